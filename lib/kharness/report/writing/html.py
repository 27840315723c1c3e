"""report.html: the full report as one file, which needs no network and no other file.

The page itself is page/report.html.jinja, with its style and script next to it. Everything that comes from a
run (names, reasons, output) is escaped by the template engine.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from kharness.config.writing import Table
from kharness.report.comparison_table import EXPLANATION, comparison, each_run
from kharness.report.graphs import warnings_of
from kharness.report.judging.conclusions import Conclusions
from kharness.report.judging.judgment import Comparison
from kharness.report.judging.sentences import comparison_sentence, explanation
from kharness.report.overview.compared import compared, last_attempt, text_of
from kharness.report.overview.headline import Headline, headline
from kharness.report.overview.sweep_facts import sweep_facts
from kharness.report.plots.cost_plots import prices, profile, time_per_step, time_to_target
from kharness.report.plots.gpu_plots import gpu_plots
from kharness.report.plots.matrix_plots import plots_of_matrix
from kharness.report.plots.plot import Plot
from kharness.report.plots.rows import RowPlot
from kharness.report.plots.run_plots import last_numbers, plots_of_run, read_series
from kharness.report.plots.verdict_rows import MOST_ROWS, verdict_picture
from kharness.report.summary import Summary
from kharness.report.writing.caveats import caveat_lines
from kharness.report.writing.conclusion_files import with_texts
from kharness.report.writing.conclusion_tables import (
    EFFECTS,
    aggregates_caption,
    aggregates_table,
    costs_table,
    effects_table,
    profiles_table,
    times_table,
    unmeasured_costs,
    verdicts_table,
)
from kharness.report.writing.gpu_tables import EXPLANATION as GPU_EXPLANATION
from kharness.report.writing.gpu_tables import gpus_table, said_of_gpus
from kharness.report.writing.page_pictures import (
    NO_PICTURES,
    inference_table,
    pictures,
    say_something,
    sheets,
)
from kharness.runs.files import CHECKPOINTS, GRAPHS
from kharness.runs.matrix_plan import refused
from kharness.runs.output_tail import output_tail
from monitoring.alert_sentences import alert_lines
from monitoring.journal.files import ENVIRONMENT_JSON

if TYPE_CHECKING:
    from jinja2 import Template

# A thousand failed runs have mostly one cause; the page stays small enough to mail.
MAX_TAILS = 100
# Runs whose text is on the page; all of it is in the journals.
MAX_SAMPLES = 24
# Pieces of the template that are written at a time.
_PIECES = 500
# A word that a column of names has no room for on a phone.
_LONG_WORD = re.compile(r"\S{23,}")
# Of the private use area of Unicode: no text has it.
_STAR = "\ue000"


def as_html(summary: Summary) -> str:
    """The page; its graphs are those in the summary's directory (draw_all)."""
    return "".join(html_parts(summary))


def html_parts(summary: Summary) -> Iterable[str]:
    """Yield the same, part by part."""
    part = summary.part
    sweep = part("the leaderboard", partial(sweep_facts, summary), None)
    # the trials of a sweep are ranked, and judged against none of them
    by_metric = [] if sweep else summary.conclusions.by_metric
    found = part("pictures of verdicts", lambda: list(filter(None, map(verdict_picture, by_metric))), [])
    series = (
        None if summary.plan else part("series", partial(read_series, summary.cells[0].run.directory), None)
    )
    if summary.plan:
        plots = part("curves", partial(plots_of_matrix, summary), [])
    else:
        plots = part("curves", partial(plots_of_run, series), []) if series else []
    drawn = {plot.name for plot in plots}
    alone = not summary.plan  # only the page of a single run has these
    checkpoints = part("the list of checkpoints", partial(_checkpoints, summary), None) if alone else None
    packages = part("packages", partial(_packages, summary), None) if alone else None
    said = [] if sweep else [*summary.conclusions.comparisons, *summary.conclusions.effects]
    of_gpus = part("pictures of GPUs", partial(gpu_plots, summary), [])
    page = page_template().stream(
        title=summary.title,
        plots=plots,
        shared_legend=_shared_legend(plots),
        curve_notes=_notes(plots),
        has_csv=bool(summary.plan) and not summary.is_comparison,
        numbers=part("numbers", partial(last_numbers, series), None) if series else None,
        checkpoints=checkpoints,
        packages=packages,
        headline=part("the headline", partial(headline, summary, sweep), Headline(summary.title, "", [], [])),
        sweep=sweep,
        verdict_pictures=found,
        all_verdicts=part("every difference", partial(_all_verdicts, by_metric), []),
        compared=part("what was compared", partial(compared, summary), None),
        counts=Counter(cell.run.shown_status for cell in summary.cells),
        conclusions=summary.conclusions,
        judged_by=explanation(with_texts(summary.conclusions, _without_emphasis)),
        **_judged(summary, by_metric, said),
        row_plots=[
            *part("the time per step", partial(time_per_step, summary), []),
            *part("the time to the target", partial(time_to_target, summary), []),
        ],
        # the leaderboard has these numbers, and by a test set nobody should choose
        comparison=comparison(summary).without_empty() if summary.plan and not sweep else None,
        explanation=" ".join(
            [EXPLANATION, *(f"{line[0].upper()}{line[1:]}." for line in caveat_lines(summary))]
        ),
        **_of_gpus(summary, of_gpus),
        **part(GRAPHS, partial(pictures, summary, drawn, draws_gpus=bool(of_gpus)), NO_PICTURES),
        samples=part("samples", partial(_samples, summary), []),
        inference=part("inference", partial(inference_table, summary), None),
        sheets=part("predictions", partial(sheets, summary), []),
        incomplete=summary.incomplete,
        tails=_tails(summary),
        alerts=part("alerts", partial(alert_lines, summary.run_directories), []),
        failed=warnings_of(summary),
        num_runs=len(summary.cells),
        refused=refused(summary.plan),
        runs=_runs_with_commands(summary).without_empty(),
    )
    page.enable_buffering(_PIECES)
    return page


def _judged(
    summary: Summary, by_metric: Sequence[Conclusions], said: Sequence[Comparison]
) -> Mapping[str, object]:
    """Return the conclusions on each metric, in the page's words."""
    part = summary.part
    return {
        "verdicts": part(
            "verdicts", lambda: [(one, verdicts_table(one).without_empty()) for one in by_metric], []
        ),
        "effects": part(
            "main effects",
            lambda: [effects_table(one).without_empty() for one in by_metric if one.effects],
            [],
        ),
        "effects_are": EFFECTS,
        "over_workloads": part("scores over workloads", partial(_over_workloads, summary), None),
        "sentences": part(
            "sentences",
            lambda: [comparison_sentence(with_texts(one, _without_emphasis)) for one in said],
            [],
        ),
        "prices": part("prices", partial(_prices, summary.conclusions), {}),
        "price_plots": (plots := part("prices", partial(_price_plots, summary.conclusions), [])),
        "price_notes": _notes(plots),
    }


def _of_gpus(summary: Summary, plots: Sequence[object]) -> Mapping[str, object]:
    part = summary.part
    return {
        "gpus": part("GPUs", partial(gpus_table, summary), None),
        "gpu_explanation": GPU_EXPLANATION,
        "said_of_gpus": part("GPUs", partial(said_of_gpus, summary), []),
        "gpu_plots": plots,
        "gpu_notes": _notes([one for one in plots if isinstance(one, Plot)]),
    }


@cache
def page_template() -> Template:
    """The page of a report, which takes longer to compile than to fill."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parents[1] / "page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["emphasized"] = _emphasized
    environment.filters["breakable"] = _breakable
    return environment.get_template("report.html.jinja")


def _shared_legend(plots: Sequence[Plot]) -> Sequence[tuple[str, int]]:
    """Return the legend that all of several plots have below them; empty where they differ, or have none."""
    legends = {tuple(plot.legend) for plot in plots}
    return plots[0].legend if len(plots) > 1 and len(legends) == 1 and not plots[0].ends else []


def _notes(plots: Sequence[Plot]) -> Sequence[str]:
    return list(dict.fromkeys(said for plot in plots for said in plot.said))


def _emphasized(text: str) -> str:
    """Escaped, with what conclusions write as **bold** and *emphasis* for a page in Markdown."""
    from markupsafe import Markup, escape

    strong = re.sub(r"\*\*([^*]+)\*\*", r"<b>\1</b>", str(escape(text)))
    return Markup(re.sub(r"\*([^*]+)\*", r"<em>\1</em>", strong).replace(_STAR, "*"))


def _breakable(text: str) -> str:
    """Escaped; on a phone `optimizer_sgd_momentum=0.95` is broken before its number, and not within."""
    from markupsafe import Markup, escape

    return Markup(_LONG_WORD.sub(lambda found: found[0].replace("=", "=<wbr>"), str(escape(text))))


def _without_emphasis(text: str) -> str:
    """The text with a stand-in for each star, which is none of ours."""
    return text.replace("*", _STAR)


def _over_workloads(summary: Summary) -> tuple[Table, str] | None:
    """Return the scores over several workloads with their caption."""
    found = summary.aggregates
    if not found:
        return None
    return aggregates_table(found), aggregates_caption(found[0].variant, summary.settings.confidence)


def _prices(conclusions: Conclusions) -> Mapping[str, Table]:
    """Tables of time to target and cost, by title."""
    tables = {
        f"Time to target on {times.workload}: {times.target}, {times.target.chosen_by}; no verdict": (
            times_table(times).without_empty()
        )
        for times in conclusions.times
    }
    if any(len(profile.ratios) > 1 for profile in conclusions.profiles):
        tables["Performance profile over all workloads"] = profiles_table(conclusions)
    for workload, fronts in conclusions.fronts_of.items():
        if not say_something(fronts):
            continue
        missing = ", ".join(unmeasured_costs(fronts))
        title = f"Quality and its price on {workload}"
        tables[f"{title}; not known: {missing}" if missing else title] = costs_table(fronts)
    return tables


def _price_plots(conclusions: Conclusions) -> Sequence[Plot]:
    """Return quality over each cost that says something of some workload, and the profile over all."""
    telling = filter(say_something, conclusions.fronts_of.values())
    return [*prices([front for fronts in telling for front in fronts]), *profile(conclusions)]


def _all_verdicts(by_metric: Sequence[Conclusions]) -> Sequence[RowPlot]:
    """Return the rows of every metric that has more than the first screen shows."""
    found = [verdict_picture(one, most=len(one.comparisons)) for one in by_metric]
    return [one for one in found if one and len(one.rows) > MOST_ROWS]


def _samples(summary: Summary) -> list[tuple[str, str]]:
    """Run and text of what trained models wrote."""
    complete = [cell for cell in summary.cells if cell.run.complete]
    found = [
        (cell.name, texts) for cell in complete if isinstance(texts := cell.run.end.get("samples"), list)
    ]
    return [(name, str(text)) for name, texts in found[:MAX_SAMPLES] for text in texts]


def _tails(summary: Summary) -> Mapping[str, str]:
    """Return the ends of the output of runs that are not complete, by name; of the first ones, if many."""
    return {cell.name: output_tail(cell.run.directory) for cell in summary.incomplete[:MAX_TAILS]}


def _runs_with_commands(summary: Summary) -> Table:
    """Every run as in the other reports, and how to start it again: by its run.json outside a matrix."""
    runs = each_run(summary)
    commands = summary.commands
    rows = [
        [*row, commands.get(cell.name) or text_of(last_attempt(cell.run.directory).get("command") or "")]
        for row, cell in zip(runs.rows, summary.cells, strict=True)
    ]
    return Table([*runs.header, "command"], rows, runs.text_columns)


def _checkpoints(summary: Summary) -> Table | None:
    """Return the files that are there, with their sizes; None without any."""
    folder = summary.cells[0].run.directory / CHECKPOINTS
    files = sorted(path for path in folder.glob("*") if path.is_file()) if folder.is_dir() else []
    rows = [[f"{CHECKPOINTS}/{path.name}", f"{path.stat().st_size / 1e6:,.2f}"] for path in files]
    return Table(["checkpoint", "size (MB)"], rows, text_columns=1) if rows else None


def _packages(summary: Summary) -> Mapping[str, str] | None:
    """Return the installed packages that the run recorded; None where it did not."""
    path = summary.cells[0].run.directory / ENVIRONMENT_JSON
    try:
        found = json.loads(path.read_bytes())["packages"]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return {str(name): str(version) for name, version in found.items()} if isinstance(found, dict) else None
