"""Callbacks that record trainings of other frameworks: Hugging Face's Trainer, Accelerate, Lightning.

from monitoring.callbacks import RunCallback

Trainer(model=model, args=args, train_dataset=data, callbacks=[RunCallback(trackers={"trackio": {}})]).train()
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # each of them imports its framework
    from monitoring.callbacks.accelerate import AccelerateTracker
    from monitoring.callbacks.hugging_face import GPUMonitoringCallback, RunCallback, TelemetryTrainerCallback
    from monitoring.callbacks.lightning import LightningLogger, LightningRun

__all__ = [
    "AccelerateTracker",
    "GPUMonitoringCallback",
    "LightningLogger",
    "LightningRun",
    "RunCallback",
    "TelemetryTrainerCallback",
]

_MODULES = {
    "AccelerateTracker": "accelerate",
    "GPUMonitoringCallback": "hugging_face",
    "LightningLogger": "lightning",
    "LightningRun": "lightning",
    "RunCallback": "hugging_face",
    "TelemetryTrainerCallback": "hugging_face",
}
_PACKAGES = {"accelerate": "accelerate", "hugging_face": "transformers", "lightning": "lightning"}


def __getattr__(name: str) -> object:
    """Import a callback's framework when it is first used; MissingPackage says what to install."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    module = _MODULES[name]
    try:
        return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    except ModuleNotFoundError as error:
        package = _PACKAGES[module]
        if (error.name or "").split(".")[0] != package:
            raise  # one that the framework itself lacks
        from monitoring.errors import MissingPackage

        raise MissingPackage(f"{name} needs {package}", hint=f"pip install {package}") from error
