"""Training loss over the steps."""

from kharness.report.curves import TRAINING_LOSS
from kharness.report.graphs._curves import CurveGraph

GRAPH = CurveGraph(TRAINING_LOSS, "train_loss")
numbers, draw = GRAPH.numbers, GRAPH.draw
