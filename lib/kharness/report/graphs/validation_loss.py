"""Validation loss at every validation, of models that have no accuracy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kharness.report.graphs import Numbers
from kharness.report.graphs._curves import Look, curve_numbers, curves, draw_curves
from kharness.report.runs import RunData, Series
from kharness.report.summary import Summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOOK = Look(
    title="Validation loss",
    y_label="validation loss",
    value_name="val_loss",
    markers=True,
    scale="log",
)


def applies(summary: Summary) -> bool:
    """Whether a model is judged by it: the others have `validation_accuracy`."""
    return any(_loss(cell.run) for cell in summary.cells)


def numbers(summary: Summary) -> Numbers:
    """The loss of each run and the mean of each variant, in nats."""
    return curve_numbers(curves(summary, _loss), LOOK.value_name)


def draw(summary: Summary) -> Figure:
    return draw_curves(summary, curves(summary, _loss), LOOK, size=1)


def _loss(run: RunData) -> Series:
    return Series() if run.validation("val_accuracy") else run.validation("val_loss")
