"""The report of a matrix or a run: what a terminal shows, the graphs, the summary that shows them."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from kharness.config.make.typed import typed, typed_setting
from kharness.config.writing import Writing, on_one_line
from kharness.report.comparison_table import (
    comparison,
    each_run,
    incomplete_lines,
    quarantined_lines,
    unexpected,
    unstable_words,
)
from kharness.report.errors import ReportError
from kharness.report.gpu_report import cells_of_report, draw_cells, gpu_summary_lines
from kharness.report.graphs import GRAPH_MODULES, draw_all, warnings_of
from kharness.report.judging.sentences import comparison_lines
from kharness.report.regression import fails_on_regression, regressions, tolerance_of
from kharness.report.runs import MOST_PLOTTED
from kharness.report.summary import Summary, collect, summary_of_plan
from kharness.report.writing import files
from kharness.report.writing.caveats import caveat_lines
from kharness.report.writing.html import as_html
from kharness.runs.causes import common_words
from kharness.runs.files import REPORT_HTML, SUMMARY_MD
from kharness.runs.latest import shown
from kharness.runs.status import FAILED, PENDING
from monitoring.counts import counted
from monitoring.errors import error_lines
from monitoring.journal.atomic_file import write_atomically

# A terminal names so many runs that have not begun.
MOST_PENDING = 5


def write_all(summary: Summary) -> list[Path]:
    """Draw all graphs, write summary.{json,csv,md}, junit.xml and report.html; returns the files.

    NotWritten names what cannot be written, when all else is.
    """
    again = typed("graphs summary", shown(summary.directory))
    if not summary.settings.graphs:
        return _write_files(summary, Writing(), again=again)
    writing = Writing()
    names = GRAPH_MODULES.names
    while names and writing.write(partial(draw_all, summary, names[:1])):
        names = names[1:]
    if names:  # drawing takes time, and there is no room for the others either
        writing.leave_out(f"{len(names) - 1} more graphs are not drawn")
    else:
        cells = summary.part("GPUs", partial(cells_of_report, summary), [])
        writing.write(partial(draw_cells, summary, cells))
    return _write_files(summary, writing, again=again)


def write_files(summary: Summary) -> list[Path]:
    """All but the graphs, which report.html takes as they are; returns the paths. NotWritten as above."""
    return _write_files(summary, Writing(), again=typed("summary", shown(summary.directory)))


def _write_files(summary: Summary, writing: Writing, *, again: str) -> list[Path]:
    drawn = len(writing.written)
    files.write_files(summary, writing)
    writing.check(again=again)
    return writing.written[drawn:]


def page_line(run: Path) -> str:
    """Write the page of a run and return where it is, or why it is not; the training is over in any case."""
    try:
        _write_page(run, None)
    except Exception as error:  # noqa: BLE001 - a page that fails must not make a training that went well fail
        return f"page: not written ({type(error).__name__}: {on_one_line(str(error))})"
    return f"page: {shown(run / REPORT_HTML)}"


def write_everything(directory: Path, given: Mapping[str, str] | None = None) -> tuple[Summary, list[Path]]:
    """Draw the graphs, then write the report, then the page of each run where there are few.

    `given` are make variables that change how it is judged (`BASELINE`, `CONFIG_REPORT_METRIC`), and whether
    graphs are drawn (`CONFIG_REPORT_GRAPHS`). Returns the summary and the pages and tables that were written;
    NotWritten as above.
    """
    summary = collect(directory, given)
    written = write_all(summary)
    if summary.plan and len(summary.cells) <= MOST_PLOTTED:
        for cell in summary.cells:
            if cell.run.start:
                page = partial(_write_page, cell.run.directory, given)
                written += summary.part(f"page of {cell.name}", page, [])
    return summary, written


def _write_page(run: Path, given: Mapping[str, str] | None) -> list[Path]:
    write_atomically(run / REPORT_HTML, as_html(collect(run, given)).encode())
    return [run / REPORT_HTML]


def told_report(
    directory: Path,
    say: Callable[[str], None],
    given: Mapping[str, str] | None = None,
    *,
    of_sweep: Callable[[Path, Callable[[str], None]], int] | None = None,
) -> int:
    """Print the conclusions about a directory, then write the full report; returns an exit code.

    A sweep that is judged by nothing else than it was begun with is told by `of_sweep`, if there is one: its
    trials are ranked by the validation set, and a table of them would show the test set.

    With FAIL_ON_REGRESSION=y among the `given` make variables that is 3 if a variant is worse than its
    baseline and 2 if that cannot be decided; else it is 0. NotWritten, as `write_all`, once printed.
    A graph or another part that fails is a line `warning: …`, and changes nothing of that.
    """
    summary = collect(directory, given)
    if of_sweep is not None and summary.is_sweep and not given:
        code = of_sweep(directory, say)
        _tell_files(summary, say)
        return code
    verdict, code = told_regressions(summary, given or {})
    # After a week of training a bug in a statistic must cost neither the table nor the files of the report.
    lines = summary.part("comparison", partial(report_lines, summary), [], raises=ReportError)
    say("\n".join([*lines, *verdict]))
    _tell_files(summary, say)
    return code


def _tell_files(summary: Summary, say: Callable[[str], None]) -> None:
    """Write the full report and say where it is, and which parts of it failed."""
    directory = summary.directory
    try:
        written = write_all(summary)
    finally:
        for line in warnings_of(summary):
            say(f"warning: {line}")
    if not summary.settings.graphs:
        place = shlex.quote(shown(directory))
        again = typed_setting(typed("graphs summary", shown(directory)), f"kharness graphs {place}")
        say(f"graphs: not drawn ({typed_setting('REPORT_GRAPHS=n', '--no-graphs')}); {again}")
    named = {"summary": directory / SUMMARY_MD, "page": directory / REPORT_HTML}
    say("\n".join(f"{what}: {shown(path)}" for what, path in named.items() if path in written))


def told_regressions(summary: Summary, given: Mapping[str, str]) -> tuple[list[str], int]:
    """Return the lines that FAIL_ON_REGRESSION=y prints on a matrix and its baseline, and the exit code."""
    if not fails_on_regression(given):
        return [], 0
    try:
        conclusions = summary.conclusions
        worse = regressions([*conclusions.comparisons, *conclusions.effects], tolerance_of(given))
    except ReportError as error:
        return error_lines(error, error.hint), error.exit_code
    return ([f"regression: {line}" for line in worse], 3) if worse else (["no regression shown"], 0)


def check_judging(
    directory: Path, given: Mapping[str, str], *, planned: Mapping[str, Any] | None = None
) -> Summary:
    """Return the summary as it is before anything runs.

    ReportError for a baseline, metric or target that the report could not use. `planned` is the plan of a
    matrix that is not written yet, as its matrix.json will hold it.
    """
    fails_on_regression(given)
    tolerance_of(given)
    summary = collect(directory, given) if planned is None else summary_of_plan(directory, planned, given)
    _ = summary.conclusions
    return summary


def _missing_lines(summary: Summary) -> list[str]:
    """Those that are not complete; many that never began are a number, which an interrupted matrix has."""
    missing = unexpected(summary)
    pending = [cell.name for cell in missing if cell.run.shown_status == PENDING]
    folded = pending if len(pending) > MOST_PENDING else []
    if not missing:
        return []
    lines = [f"not complete, in no mean: {len(missing)} of {len(summary.cells)}"]
    alike: dict[str, list[str]] = {}
    for cell, line in zip(missing, incomplete_lines(summary), strict=True):
        if cell.name not in folded:
            own = [str(cell.run.directory), cell.name, *cell.values.values()]
            is_one = cell.run.status == FAILED
            alike.setdefault(common_words(line, own) if is_one else cell.name, []).append(line)
    for first, *others in alike.values():
        more = f" (and {counted(len(others), 'other')} alike)" if others else ""
        lines.append(f"  {on_one_line(first)}{more}")
    return [*lines, f"  and {len(folded)} runs: {PENDING}"] if folded else lines


def report_lines(summary: Summary) -> list[str]:
    """Return the comparison (of a single run: its numbers) for a terminal, with all that was left out."""
    table = comparison(summary) if summary.plan else each_run(summary)
    lines = ["", table.plain(), ""]
    if any(len(variant.complete) > 1 for variant in summary.variants):
        lines.append("mean ± sample standard deviation over seeds; n: complete runs of those planned")
    lines += _missing_lines(summary)
    unstable = [unstable_words(cell) for cell in summary.cells if cell.run.unstable]
    if unstable:
        lines.append(f"counted, but unstable: {len(unstable)} of {len(summary.cells)}")
        lines += [f"  {on_one_line(line)}" for line in unstable]
    known = quarantined_lines(summary)
    if known:
        lines.append(f"known failures: {len(known)}")
        lines += [f"  {on_one_line(line)}" for line in known]
    lines += map(on_one_line, summary.part("caveats", partial(caveat_lines, summary), []))
    compared = summary.part("verdicts", lambda: comparison_lines(summary.conclusions), [], raises=ReportError)
    gpus = summary.part("GPUs", partial(gpu_summary_lines, summary), [])
    return [*gpus, *lines, *map(on_one_line, compared)]
