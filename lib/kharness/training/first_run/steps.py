"""The steps of the first run, in the order of what is worth knowing first, for 40 minutes of one H100."""

from __future__ import annotations

from kharness.training.first_run import devices, trainings
from kharness.training.first_run.timed import Step

MINUTES = 40.0
"""For all steps together."""

STEPS = (
    # alive, and equal to nvidia-smi
    Step("machine", 60, devices.machine),
    Step("equal", 30, devices.equal, needs_gpu=True),
    Step("sampler", 60, devices.sampler),
    # numbers right
    Step("peak", 60, devices.peak, needs_gpu=True),
    Step("energy", 60, devices.energy, needs_gpu=True),
    Step("bits", 240, trainings.bits),
    # fast
    Step("waits", 180, trainings.waits),
    Step("pace", 240, trainings.pace),
    # faults
    Step("faults", 120, trainings.faults),
    # as seen from outside
    Step("views", 120, trainings.views),
    Step("matrix", 240, trainings.matrix),
    # the suite
    Step("tests", 390, devices.tests),
    Step("suite", 600, devices.suite),
)

BY_NAME = {step.name: step for step in STEPS}
