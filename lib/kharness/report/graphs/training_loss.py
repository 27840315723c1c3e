"""Training loss over the steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kharness.report.graphs import Numbers
from kharness.report.graphs._curves import Look, bin_size, curve_numbers, curves, draw_curves
from kharness.report.runs import RunData, Series
from kharness.report.summary import Summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOOK = Look("Training loss", "training loss (nats)", "train_loss", scale="log")


def numbers(summary: Summary) -> Numbers:
    """The loss of each run and the mean of each variant, as drawn: means and extremes of a few steps."""
    found = curves(summary, _loss, size=bin_size(summary, _loss))
    return curve_numbers(found, LOOK.value_name, extremes=True)


def draw(summary: Summary) -> Figure:
    size = bin_size(summary, _loss)
    return draw_curves(summary, curves(summary, _loss, size=size), LOOK, size=size)


def _loss(run: RunData) -> Series:
    return run.metric("step", "train_loss")
