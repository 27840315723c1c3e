"""The test loss of each run."""

from __future__ import annotations

from kharness.report.graphs import Figure, Numbers
from kharness.report.graphs._canvas import canvas, notes
from kharness.report.summary import Summary


def numbers(summary: Summary) -> Numbers:
    """One row per run."""
    losses = [(cell.name, cell.run.at_end("test_loss")) for cell in summary.cells]
    return Numbers(["run", "test_loss"], losses)


def draw(summary: Summary) -> Figure:
    """A bar for each run that has been tested."""
    losses = {cell.name: cell.run.at_end("test_loss") for cell in summary.cells}
    tested = [(name, loss) for name, loss in losses.items() if loss is not None]
    figure = canvas(8.4, 3.0, "Test loss", "cross-entropy in nats, lower is better", notes(summary, []))
    figure.add_subplot().barh([name for name, _ in tested], [loss for _, loss in tested])
    return figure
