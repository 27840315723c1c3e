"""The GPU report of a run or a matrix: every GPU and how evenly they were loaded, and the graphs of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from kharness.report.collection import CellResult, Variant
from kharness.report.errors import ReportError
from kharness.report.gpu.balance import BALANCED, balance_words, far_line, verdict
from kharness.report.graphs import draw_all, gpu_graphs
from kharness.report.summary import Summary
from kharness.report.writing.gpu_tables import breakdown_lines, remarks, runs_table, with_load
from monitoring.counts import counted
from monitoring.gpu.aggregates import POOR
from monitoring.journal.files import ALERTS, GPU_STATS

# How many cells the report of a matrix draws graphs of, which takes about half a second each.
MAX_CELLS_DRAWN = 40

# Most tables printed in a terminal; the table of all runs has a row for each.
MAX_CELLS_TOLD = 20

# Lines of such tables that the report of a matrix prints before its results, about a screen.
MAX_LINES = 60

# Runs with something to look at that a report names on the terminal, besides those whose tables it prints.
MAX_REMARKED = 8


def check_known(summary: Summary) -> None:
    """ReportError if no run has GPU samples or several ranks."""
    if not with_load(summary):
        about = f"no run of {summary.directory} has" if summary.plan else f"{summary.directory} has no"
        raise ReportError(
            f"{about} GPU samples ({GPU_STATS}), nor journals of several ranks",
            hint=f"train with GPU_MONITOR=y; where that found no GPU, {ALERTS} of the run says why",
        )


def gpu_report_lines(summary: Summary) -> list[str]:
    """Every GPU of each run, and of a matrix one row per run."""
    cells = with_load(summary)
    lines = []
    for cell in cells[:MAX_CELLS_TOLD]:
        lines += [*breakdown_lines(cell), ""]
    if len(cells) > MAX_CELLS_TOLD:
        lines += [
            f"and {len(cells) - MAX_CELLS_TOLD} more runs: RUN={summary.directory.name}/CELL for one",
            "",
        ]
    if not summary.plan:
        return lines[:-1]
    sampled = sum(bool(cell.gpus) for cell in cells)
    lines += [f"{summary.title} - {sampled} of {counted(len(summary.cells), 'run')} with GPU samples:"]
    return [*lines, runs_table(summary).plain()]


def draw_cells(summary: Summary, cells: Sequence[CellResult]) -> list[Path]:
    """Draw the GPU graphs of single cells of a matrix."""
    if not summary.plan:
        return []
    names = gpu_graphs()
    return [path for cell in cells for path in draw_all(_single(summary, cell), names)]


def cells_of_report(summary: Summary) -> Sequence[CellResult]:
    """The cells that a report draws GPU graphs of."""
    return with_load(summary)[:MAX_CELLS_DRAWN] if summary.plan else []


def gpu_summary_lines(summary: Summary) -> list[str]:
    """Return the lines on GPUs that the report of a matrix or run prints, none where nothing is known.

    The tables of as many runs as fit in MAX_LINES, and of the others what needs attention.
    """
    cells = with_load(summary)
    if not cells:
        return []
    if not summary.plan:
        return ["", *breakdown_lines(cells[0])]
    lines, told = [""], 0
    while told < len(cells) and len(lines) + len(table := breakdown_lines(cells[told])) <= MAX_LINES:
        lines += [*table, ""]
        told += 1
    sampled = sum(bool(cell.gpus) for cell in cells)
    lines.append(f"GPUs: {sampled} of {counted(len(summary.cells), 'run')} with samples")
    if len(cells) <= MAX_CELLS_TOLD:
        lines += runs_table(summary).plain().splitlines()
    remarkable = [(cell, said) for cell in cells[told:] if (said := _remarkable(cell))]
    lines += [f"  {cell.name}: {'; '.join(said)}" for cell, said in remarkable[:MAX_REMARKED]]
    if len(remarkable) > MAX_REMARKED:
        lines.append(f"  and {len(remarkable) - MAX_REMARKED} more runs with something to look at")
    if told < len(cells):
        others = ("the other " if told else "all ") + counted(len(cells) - told, "run")
        lines.append(f"  every GPU of {others}: `make gpu-report`")
    if len(cells) > MAX_CELLS_DRAWN:
        undrawn = counted(len(cells) - MAX_CELLS_DRAWN, "more run")
        lines.append(f"  graphs not drawn yet of {undrawn}: `make gpu-report` draws them")
    return lines


def _remarkable(cell: CellResult) -> list[str]:
    """Return what needs attention: uneven loads, ranks that wait, lost GPUs, heat."""
    history, (ranks, _) = cell.gpus, cell.ranks
    uneven = [name for name in BALANCED if history.balance(name)[1] == POOR]
    found = [f"{name} {balance_words(history, name)}" for name in uneven]
    if ranks is not None and ranks.slow is not None:
        found.append(verdict(history, ranks))
    far = far_line(history)
    return [*found, *([far] if far else []), *remarks(history)]


def _single(summary: Summary, cell: CellResult) -> Summary:
    """A cell as the summary of a single run; it keeps what has been read."""
    return replace(
        summary,
        directory=cell.run.directory,
        title=f"{summary.title}: {cell.name}",
        axes={},
        plan={},
        cells=[cell],
        variants=[Variant({}, cell.name, [cell])],
    )
