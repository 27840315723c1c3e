"""GPU memory of the variants side by side: what all GPUs needed at once, and the fullest one."""

from __future__ import annotations

from collections.abc import Iterator

from kharness.report.graphs import Figure, Numbers
from kharness.report.graphs._pictures import MOST_ROWS, figure_of
from kharness.report.plots.gpu_samples import applies as has_samples
from kharness.report.plots.gpu_samples import sampled, without_samples
from kharness.report.plots.gpu_variants import OF_VARIANTS, TOGETHER, of_variants
from kharness.report.summary import Summary


def applies(summary: Summary) -> bool:
    """A single run has nothing to be compared with."""
    return len(summary.variants) > 1 and has_samples(summary)


def numbers(summary: Summary) -> Numbers:
    """One row per run, in MiB."""
    return Numbers(
        [
            *("variant", "run", "status", "num_gpus", "peak_total_mb"),
            *("fullest_gpu", "fullest_gpu_peak_mb", "gpu_mb"),
        ],
        _peaks(summary),
    )


def draw(summary: Summary) -> Figure:
    """Return a row per variant, the highest first."""
    plots = [of_variants(summary, one, MOST_ROWS) for one in (OF_VARIANTS[0], TOGETHER)]
    return figure_of(
        summary,
        "GPU Memory Comparison",
        [plot for plot in plots if plot],
        nothing="no GPU reports its memory",
        without=without_samples(summary),
    )


def _peaks(summary: Summary) -> Iterator[list[str | int | float | None]]:
    for run in sampled(summary):
        history = run.history
        gpus = [gpu for gpu in history.gpus if "memory" in gpu.spreads]
        if gpus and history.peak_memory_mb is not None:
            fullest = max(gpus, key=lambda gpu: gpu.spreads["memory"].peak)
            yield [
                *(run.variant, run.cell.name, run.cell.run.status, len(history.gpus)),
                *(history.peak_memory_mb, fullest.index, fullest.spreads["memory"].peak, fullest.total_mb),
            ]
