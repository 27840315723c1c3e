"""Validation loss at every validation, of models that have no accuracy."""

from __future__ import annotations

from kharness.report.curves import VALIDATION_LOSS
from kharness.report.graphs._curves import CurveGraph
from kharness.report.summary import Summary

GRAPH = CurveGraph(VALIDATION_LOSS, "val_loss")
numbers, draw = GRAPH.numbers, GRAPH.draw


def applies(summary: Summary) -> bool:
    """Whether a model is judged by it: the others have `validation_accuracy`."""
    runs = [cell.run for cell in summary.cells]
    return any(VALIDATION_LOSS.read(run) for run in runs if not run.validation("val_accuracy"))
