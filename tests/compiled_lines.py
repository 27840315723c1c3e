"""Import this before forks that are bridges: each would compile what finds numbers, 9 ms of CPU time."""

from monitoring.bridge.printed_line import printed_values
from monitoring.journal.fields.directions import without_direction

for line in (
    "iter 3: loss 0.5, time 2ms",
    "step 3: train loss 0.5, val loss 0.5",
    "step: 3 loss: 0.5",
    "step 3 loss 0.5",
    "{'loss': '0.5'}",
):
    printed_values(line)
without_direction(["loss", "other"], {})
