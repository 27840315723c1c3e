"""How evenly GPUs and ranks are loaded: each GPU's share, the CV in its bands, and each rank's own work."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from kharness.report.gpu.balance import BALANCED, DECEIVING, verdict, wasted_words
from kharness.report.graphs import Figure, Numbers
from kharness.report.graphs._pictures import MOST_ROWS, figure_of
from kharness.report.plots.gpu_plots import by_gpu, over_runs, waiting
from kharness.report.plots.gpu_samples import BUSY, MEMORY, POWER, Sampled, sampled, without_samples
from kharness.report.plots.gpu_samples import applies as has_samples
from kharness.report.plots.gpu_variants import balance_of
from kharness.report.plots.rows import RowPlot
from kharness.report.summary import Summary


def applies(summary: Summary) -> bool:
    """Where a run has GPU samples; of a single run several ranks are enough."""
    return has_samples(summary) or _only_ranks(summary)


def numbers(summary: Summary) -> Numbers:
    """Means of each GPU in the unit of the samples, CVs in percent with their band, seconds of each rank."""
    return Numbers(
        ["variant", "run", "kind", "of", "quantity", "value", "p05", "p95", "quality"],
        _rows(summary),
    )


def draw(summary: Summary) -> Figure:
    """Return what each GPU of a run did and the work of its ranks; of several runs each GPU in all."""
    runs = [run for run in sampled(summary) if len(run.history.gpus) > 1]
    plots: list[RowPlot | None] = [balance_of(runs, MOST_ROWS)]
    if len(summary.cells) > 1:
        plots += [over_runs(runs, one, MOST_ROWS) for one in (BUSY, MEMORY, POWER)]
    else:
        [cell] = summary.cells
        ranks = cell.ranks[0]
        if runs:
            plots += [by_gpu(cell.gpus, one, MOST_ROWS) for one in (BUSY, MEMORY, POWER)]
        plots.append(waiting(cell.gpus, ranks, MOST_ROWS) if ranks else None)
    return figure_of(
        summary,
        "GPU Load Balance Analysis",
        [plot for plot in plots if plot],
        nothing="no run has two GPUs: nothing is shared out",
        without=without_samples(summary),
        said=textwrap.wrap(_in_words(summary, runs), 120),
    )


def _in_words(summary: Summary, runs: Sequence[Sampled]) -> str:
    """Return what the graph shows, or why it does not."""
    known = [(cell, ranks) for cell in summary.cells if (ranks := cell.ranks[0])]
    if known:
        cell, worst = max(known, key=lambda pair: pair[1].wasted_share)
        name = "" if len(summary.cells) == 1 else f"{cell.name}: "
        return f"{name}wasted share of the ranks' own work {wasted_words(worst)}: {verdict(cell.gpus, worst)}"
    if runs:
        return f"whether a rank waits for another is not known: {runs[0].cell.ranks[1]}; {DECEIVING}"
    return ""


def _only_ranks(summary: Summary) -> bool:
    """Whether there is one run alone that has several ranks and no two GPUs to compare."""
    cell = summary.cells[0] if len(summary.cells) == 1 else None
    return cell is not None and bool(cell.ranks[0]) and len(cell.gpus.gpus) < 2


def _rows(summary: Summary) -> Iterator[list[str | float | None]]:
    """Yield each rank's phases; of runs with two GPUs or more each GPU's means, and their CVs."""
    for variant in summary.variants:
        for cell in variant.cells:
            about, history, ranks = (variant.label, cell.name), cell.gpus, cell.ranks[0]
            for rank in ranks.ranks if ranks else ():
                for phase, value in rank.phases.items():
                    yield [*about, "rank", rank.name, phase, value, None, None, None]
            if len(history.gpus) < 2:
                continue
            for gpu in history.gpus:
                of = f"{gpu.host} {gpu.index}" if gpu.several_hosts else gpu.label
                for quantity in BALANCED:
                    if spread := gpu.spreads.get(quantity):
                        yield [*about, "gpu", of, quantity, spread.mean, spread.low, spread.high, None]
            for quantity in BALANCED:
                cv, quality = history.balance(quantity)
                if cv is not None:
                    yield [*about, "cv", "", quantity, cv, None, None, quality]
