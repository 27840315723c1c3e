"""Types of the public names as mypy and pyright infer them; nothing runs this file."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import assert_type

import kharness
from kharness.report.compare import Compared
from kharness.runs.query.selection import RunSelection
from kharness.runs.query.stored_run import StoredRun
from monitoring.callbacks.accelerate import AccelerateTracker
from monitoring.callbacks.hugging_face import RunCallback
from monitoring.callbacks.lightning import LightningLogger
from monitoring.gpu_monitor.monitor import GPUMonitor
from monitoring.run import Run
from monitoring.telemetry.tracker import TelemetryTracker

with kharness.Run("results/typed") as run:
    assert_type(run, Run)
    run.log({"val/loss": 0.5}, step=3, loss=0.5)
    run.log_text("sample", "text")
    run.log_table("errors", ["label"], [[1], ["two"]])
    run.log(loss=1, step="x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

found = kharness.runs("results", where="lr > 1e-4")
assert_type(found, RunSelection)
assert_type(found[0], StoredRun)
assert_type(found[0].series("val_loss").steps, array[float])
assert_type(kharness.compare("results/a", "results/b"), Compared)
kharness.runs("results", were="lr")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]

classes: Sequence[type] = (
    assert_type(kharness.AccelerateTracker, type[AccelerateTracker]),
    assert_type(kharness.GPUMonitor, type[GPUMonitor]),
    assert_type(kharness.LightningLogger, type[LightningLogger]),
    assert_type(kharness.RunCallback, type[RunCallback]),
    assert_type(kharness.TelemetryTracker, type[TelemetryTracker]),
)
none = kharness.Ran  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
