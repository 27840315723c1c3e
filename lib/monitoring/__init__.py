"""Crash-proof records of trainings, followed by trackers in another process.

from monitoring import Run

with Run(directory, name="first", project="digits", config={}, trackers={"trackio": {}}) as run:
    run.start(model={"name": "mlp"}, training={"num_steps": 100, "batch_size": 64})
    run.log_step(1, train_loss=0.7, lr=1e-3)
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes as long as resolving all of a configuration
    from monitoring.errors import MonitoringError
    from monitoring.follower import Follower, RunInfo
    from monitoring.journal.records import Record, points, read_records
    from monitoring.run import Run

__all__ = ["Follower", "MonitoringError", "Record", "Run", "RunInfo", "points", "read_records"]

_MODULES = {
    "Follower": "follower",
    "MonitoringError": "errors",
    "Record": "journal.records",
    "Run": "run",
    "RunInfo": "follower",
    "points": "journal.records",
    "read_records": "journal.records",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used: reading records needs nothing of writing them."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
