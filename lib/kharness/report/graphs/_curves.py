"""Graphs of a metric over the steps, and the table of its curves."""

from __future__ import annotations

from dataclasses import dataclass

from kharness.report.curves import PlottedMetric
from kharness.report.graphs import Figure, Numbers
from kharness.report.graphs._pictures import figure_of
from kharness.report.plots.matrix_plots import plot_of_metric
from kharness.report.summary import Summary


@dataclass(frozen=True)
class CurveGraph:
    """A graph of one metric, in the words and colors of the page."""

    metric: PlottedMetric
    value_name: str
    """The column of the CSV, in the unit of the axis."""

    def numbers(self, summary: Summary) -> Numbers:
        """One row per point of each run and of each variant's mean, in the unit of the axis.

        An empty run is the mean, and `num_runs` says of how many. Where a point stands for several steps,
        their lowest and their highest value have columns, too.
        """
        num = 2 if self.metric.of_validations else 4
        return Numbers(
            ["variant", "run", "num_runs", "global_step", *(self.value_name, "lowest", "highest")[: num - 1]],
            (
                [curve.variant, curve.run, curve.num_runs, *point[:num]]
                for curve in self.metric.curves(summary)[0]
                for point in zip(curve.steps, curve.values, curve.lows, curve.highs, strict=True)
            ),
        )

    def draw(self, summary: Summary) -> Figure:
        """Return a line per variant; of many variants some in color, the others as their range."""
        plot = plot_of_metric(summary, self.metric)
        drawn = {curve.run for curve in self.metric.curves(summary)[0]}
        title = self.metric.title.removesuffix(" (%)")
        return figure_of(
            summary,
            title,
            [plot] if plot else [],
            nothing=f"no run has recorded a {title.lower()} yet",
            without=[cell.name for cell in summary.cells if cell.name not in drawn],
        )
