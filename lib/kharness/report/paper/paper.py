"""The folder paper/: every table as LaTeX and Markdown, pictures as PDF and SVG, sources, an appendix."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kharness.config.writing import Table, in_markdown
from kharness.report.comparison_table import comparison
from kharness.report.graphs._paper import write_curves, write_intervals
from kharness.report.judging.conclusions import Conclusions
from kharness.report.judging.sentences import levels_words, method_words, unit_words
from kharness.report.overview.compared import compared
from kharness.report.overview.headline import human_title
from kharness.report.paper.appendix import appendix, bibliography
from kharness.report.paper.latex import MOST_LINES, breakable, escaped, file_name, latex_figure, latex_table
from kharness.report.plots.matrix_plots import frames_of_matrix
from kharness.report.plots.plot import Plot
from kharness.report.plots.run_plots import plots_of_run, read_series
from kharness.report.summary import Summary
from kharness.report.writing.conclusion_tables import (
    aggregates_caption,
    aggregates_table,
    costs_table,
    effects_table,
    times_table,
    verdicts_table,
)
from monitoring.counts import counted
from monitoring.journal.atomic_file import write_atomically

PAPER = "paper"
FIGURES = "figures.tex"
STYLE = "paper.mplstyle"
_FIRST_STYLE = Path(__file__).with_name(STYLE)
_PREVIEW = Path(__file__).with_name("preview.tex")


def write_paper(summary: Summary) -> list[Path]:
    """Write everything; returns the files. ReportError for a style file that matplotlib does not take.

    The style file is written where there is none, and then belongs to the author.
    """
    folder = summary.directory / PAPER
    folder.mkdir(exist_ok=True)
    style = folder / STYLE
    if not style.exists():
        write_atomically(style, _FIRST_STYLE.read_bytes())
    figures, captions = _figures(summary, folder, style)
    texts = {FIGURES: "\n".join(captions)} if captions else {}
    texts["references.bib"] = bibliography(summary)
    found = tables(summary)
    texts[_PREVIEW.name] = preview(found, figures=bool(captions))
    for name, (table, caption) in found.items():
        texts[f"{name}.tex"] = latex_table(table, caption=caption, label=name)
        texts[f"{name}.md"] = f"{table.markdown()}\n\n{in_markdown(caption)}\n"
    texts |= _appendix(summary)
    for name, text in texts.items():
        write_atomically(folder / name, text.encode())
    return [style, *figures, *(folder / name for name in texts)]


def preview(tables: Mapping[str, tuple[Table, str]], *, figures: bool) -> str:
    """Return an article with all tables and figures; its first lines say how to compile it."""
    inputs = "\n".join(
        rf"\input{{{name}}}" + (r"\clearpage" if len(table.rows) > MOST_LINES / 4 else "")
        for name, (table, _) in tables.items()
    )
    text = _PREVIEW.read_text().replace("% tables", inputs)
    return text if figures else text.replace("\\input{figures}\n\\clearpage\n", "")


def tables(summary: Summary) -> Mapping[str, tuple[Table, str]]:
    """Return tables with their captions, by the names of their files."""
    title = human_title(summary)
    mean = f" {_mean_words(summary)}" if summary.plan else ""
    found = {"comparison": (comparison(summary).without_empty(), f"{title}.{mean}")}
    options = compared(summary).options
    if options is not None:
        found["options"] = (options, f"{title}. Settings{' of each variant' if summary.plan else ''}.")
    if not summary.plan:  # what follows compares
        return found
    parts = summary.conclusions.by_metric
    for part in parts:
        ending = f"_{file_name(part.metric.name)}" if len(parts) > 1 else ""
        if part.comparisons:
            found[f"verdicts{ending}"] = (
                verdicts_table(part).without_empty(),
                f"{title}. {difference_words(part)}",
            )
        if part.effects:
            caption = f"{title}. Main effects. {difference_words(part)}"
            found[f"main_effects{ending}"] = (effects_table(part).without_empty(), caption)
    if summary.aggregates:
        caption = aggregates_caption(summary.aggregates[0].variant, summary.settings.confidence)
        found["over_workloads"] = (aggregates_table(summary.aggregates), f"{title}. {caption}")
    for number, times in enumerate(summary.conclusions.times, 1):
        caption = f"Time to target on {times.workload}: {times.target}, {times.target.chosen_by}."
        found[f"time_to_target_{number}"] = (times_table(times).without_empty(), caption)
    for number, (workload, fronts) in enumerate(summary.conclusions.fronts_of.items(), 1):
        caption = (
            f"Quality and its price on {workload}: means of complete runs; Pareto-optimal is what nothing "
            "was shown to beat."
        )
        found[f"costs_{number}"] = (costs_table(fronts).without_empty(), caption)
    return found


def difference_words(part: Conclusions) -> str:
    """Return the caption of differences: n, what the intervals hold for, and the method."""
    shown = [*part.comparisons, *part.effects]
    counts = {one.counts for one in part.comparisons}
    number = f"n = {next(iter(counts))[0]} seeds each" if len(counts) == 1 else "n as given"
    methods = "; ".join(dict.fromkeys(words for one in part.comparisons if (words := method_words(one))))
    text = (
        f"Differences from {part.baseline} in {part.metric.title} ({number}) with "
        f"{levels_words(shown, part.settings.confidence)}, which hold at once for all comparisons"
    )
    return f"{text}; {methods}." if methods else f"{text}."


def _mean_words(summary: Summary) -> str:
    numbers = {len(variant.complete) for variant in summary.variants}
    n = f"n = {next(iter(numbers))}" if len(numbers) == 1 else "n complete runs"
    return f"Mean ± sample standard deviation over seeds ({n} per variant)."


def _figures(summary: Summary, folder: Path, style: Path) -> tuple[list[Path], list[str]]:
    """Draw the curves and the differences; returns the files and the LaTeX of their captions."""
    parts = (_curves_of_matrix, _differences) if summary.plan else (_curves_of_run,)
    files: list[Path] = []
    captions: list[str] = []
    for part in parts:
        for name, words, written in part(summary, folder, style):
            files += written
            captions.append(latex_figure(name, caption=f"{human_title(summary)}. {words}"))
    return files, captions


_Figures = Iterator[tuple[str, str, Sequence[Path]]]
"""Name, caption and files of each figure."""


def _curves_of_run(summary: Summary, folder: Path, style: Path) -> _Figures:
    """Draw everything that a run recorded more than once, as its page does."""
    for plot in plots_of_run(read_series(summary.cells[0].run.directory)):
        area = any(strand.lows for strand in plot.strands)
        words = "last value of several records; area: their range" if area else "every record"
        yield _curve_figure(folder, plot, style, words)


def _curves_of_matrix(summary: Summary, folder: Path, style: Path) -> _Figures:
    for plot in frames_of_matrix(summary):
        area = any(one.lows for one in plot.strands)
        shown = "areas from the lowest run to the highest" if area else "thin: single runs"
        yield _curve_figure(folder, plot, style, f"means over {_runs(summary)}, {shown}")


def _curve_figure(folder: Path, plot: Plot, style: Path, words: str) -> tuple[str, str, Sequence[Path]]:
    path = folder / file_name(plot.name)
    return path.name, f"{plot.title}: {words}.", write_curves(path, plot, style=style)


def _differences(summary: Summary, folder: Path, style: Path) -> _Figures:
    for part in summary.conclusions.by_metric:
        rows = [one for one in part.comparisons if one.difference is not None]
        name = f"differences_{file_name(part.metric.name)}"
        unit = unit_words(part.metric)
        label = f"difference in {part.metric.title}{f' ({unit})' if unit else ''}"
        written = write_intervals(folder / name, rows, style=style, x_label=label)
        if written:
            yield name, difference_words(part), written


def _runs(summary: Summary) -> str:
    numbers = {len(variant.complete) for variant in summary.variants}
    return counted(next(iter(numbers)), "seed") if len(numbers) == 1 else "the complete seeds"


def _appendix(summary: Summary) -> Mapping[str, str]:
    found = appendix(summary)
    markdown = ["# Reproducibility", f"{in_markdown(human_title(summary))}."]
    latex = [r"\section{Reproducibility}", f"{escaped(human_title(summary))}."]
    for heading, lines in found.items():
        if lines:
            markdown += [f"## {heading}", "\n".join(f"- {in_markdown(line)}" for line in lines)]
            items = "\n".join(rf"\item {breakable(line)}" for line in lines)
            latex += [
                rf"\subsection{{{heading}}}",
                f"\\begin{{itemize}}\n\\raggedright\n{items}\n\\end{{itemize}}",
            ]
    return {"appendix.md": "\n\n".join(markdown) + "\n", "appendix.tex": "\n\n".join(latex) + "\n"}
