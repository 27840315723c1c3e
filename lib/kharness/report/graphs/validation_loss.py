"""Validation loss at every validation, of models that have no accuracy."""

from __future__ import annotations

from dataclasses import replace

from kharness.report.curves import VALIDATION_LOSS
from kharness.report.graphs._curves import CurveGraph
from kharness.report.runs import RunData, Series
from kharness.report.summary import Summary


def applies(summary: Summary) -> bool:
    """Whether a model is judged by it: the others have `validation_accuracy`."""
    return any(_loss(cell.run) for cell in summary.cells)


def _loss(run: RunData) -> Series:
    return Series() if run.validation("val_accuracy") else VALIDATION_LOSS.read(run)


GRAPH = CurveGraph(replace(VALIDATION_LOSS, read=_loss), "Validation loss", "validation loss", "val_loss")
numbers, draw = GRAPH.numbers, GRAPH.draw
