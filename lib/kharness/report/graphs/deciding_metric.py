"""A metric that decides, over validations or steps, where no other graph shows it: `val_acc`."""

from __future__ import annotations

from kharness.report.curves import deciding
from kharness.report.graphs import Figure, Numbers
from kharness.report.graphs._curves import CurveGraph
from kharness.report.summary import Summary


def applies(summary: Summary) -> bool:
    """Whether the runs have such a metric."""
    return bool(deciding(summary))


def numbers(summary: Summary) -> Numbers:
    """Return the curves; of several workloads those of the first metric."""
    return _graph(summary).numbers(summary)


def draw(summary: Summary) -> Figure:
    """Draw them."""
    return _graph(summary).draw(summary)


def _graph(summary: Summary) -> CurveGraph:
    metric, *_ = deciding(summary)
    return CurveGraph(metric, metric.name.removeprefix("deciding_"))
