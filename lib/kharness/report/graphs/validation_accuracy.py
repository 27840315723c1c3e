"""Validation accuracy at every validation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kharness.report.graphs import Numbers
from kharness.report.graphs._curves import Look, curve_numbers, curves, draw_curves
from kharness.report.runs import RunData, Series
from kharness.report.summary import Summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOOK = Look(
    title="Validation accuracy",
    y_label="validation accuracy (%)",
    value_name="val_accuracy_percent",
    markers=True,
    scale="log error",
)


def numbers(summary: Summary) -> Numbers:
    """The accuracy of each run and the mean of each variant, in percent."""
    return curve_numbers(curves(summary, _accuracy, scale=100), LOOK.value_name)


def draw(summary: Summary) -> Figure:
    return draw_curves(summary, curves(summary, _accuracy, scale=100), LOOK, size=1)


def _accuracy(run: RunData) -> Series:
    return run.validation("val_accuracy")
