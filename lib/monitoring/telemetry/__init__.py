"""Measures where the time of a training goes, without waiting for its devices.

from monitoring.telemetry import TelemetryTracker
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # as in monitoring/__init__.py
    from monitoring.telemetry.callback import TelemetryCallback
    from monitoring.telemetry.tracker import TelemetryTracker

__all__ = ["TelemetryCallback", "TelemetryTracker"]

_MODULES = {"TelemetryCallback": "callback", "TelemetryTracker": "tracker"}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used: a step's phases need nothing of a tracker."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
