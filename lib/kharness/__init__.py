"""kharness: from a Kconfig menu to trained, tracked and compared PyTorch runs.

import kharness

with kharness.Run("results/first") as run:
    for loss in (0.7, 0.5):
        run.log(loss=loss)
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # each is imported when it is first used: `import kharness` costs nothing
    from kharness.report.compare import compare
    from kharness.runs.query.selection import select as runs
    from monitoring.callbacks.accelerate import AccelerateTracker
    from monitoring.callbacks.hugging_face import RunCallback
    from monitoring.callbacks.lightning import LightningLogger
    from monitoring.gpu_monitor.monitor import GPUMonitor
    from monitoring.run import Run
    from monitoring.telemetry.tracker import TelemetryTracker

__all__ = [
    "AccelerateTracker",
    "GPUMonitor",
    "LightningLogger",
    "Run",
    "RunCallback",
    "TelemetryTracker",
    "compare",
    "runs",
]

_MODULES = {
    "AccelerateTracker": "monitoring.callbacks",
    "GPUMonitor": "monitoring.gpu_monitor",
    "LightningLogger": "monitoring.callbacks",
    "Run": "monitoring",
    "RunCallback": "monitoring.callbacks",
    "TelemetryTracker": "monitoring.telemetry",
    "compare": "kharness.report.compare",
}


def _imported(name: str) -> object:
    """Import a public name when it is first used; MissingPackage says which framework it needs."""
    import importlib

    if name == "runs":  # a package that can be called
        return importlib.import_module("kharness.runs")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from monitoring.errors import naming_package

    with naming_package(f"kharness.{name}"):
        return getattr(importlib.import_module(_MODULES[name]), name)


if not TYPE_CHECKING:  # else a name that is none would be an object to mypy and pyright
    __getattr__ = _imported


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
