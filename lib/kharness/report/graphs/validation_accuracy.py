"""Validation accuracy at every validation, in percent."""

from kharness.report.curves import VALIDATION_ACCURACY
from kharness.report.graphs._curves import CurveGraph

GRAPH = CurveGraph(VALIDATION_ACCURACY, "val_accuracy_percent")
numbers, draw = GRAPH.numbers, GRAPH.draw
