"""Verbose logs of a training: everything that it does and how the machine is used meanwhile, as JSON lines.

from monitoring.verbose_logging import VerboseLoggingCallback

trainer = Trainer(..., callbacks=[VerboseLoggingCallback(verbosity_level="high")])

docs/verbose-logging.md has the levels, the entries and what it costs. Importing this imports no framework;
VerboseLoggingCallback is a Hugging Face TrainerCallback where transformers is installed, and a class
with the same methods otherwise.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from monitoring.verbose_logging.hooks import VerboseHooks
    from monitoring.verbose_logging.hooks import VerboseHooks as VerboseLoggingCallback

__all__ = ["VerboseLoggingCallback", "configured_callbacks"]


def configured_callbacks(config: Mapping[str, Any]) -> list[VerboseLoggingCallback]:
    """Return the callbacks that a configuration requests: one if `use_verbose_logging` is true, else none.

    `verbosity_level` is low, medium, high (the default) or ultra; ValueError for another.
    """
    if not config.get("use_verbose_logging"):
        return []
    return [callback_class()(verbosity_level=config.get("verbosity_level", "high"))]


@functools.cache
def callback_class() -> type[VerboseHooks]:
    """Return a TrainerCallback where transformers is installed, else a class with the same methods."""
    from monitoring.verbose_logging.hooks import VerboseHooks

    try:
        from transformers import TrainerCallback as base
    except ImportError:
        base = object
    about = {"__module__": __name__, "__doc__": VerboseHooks.__doc__}
    return type("VerboseLoggingCallback", (VerboseHooks, base), about)


def __getattr__(name: str) -> object:
    """Make the class when it is first used: that imports transformers, which takes seconds."""
    if name != "VerboseLoggingCallback":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return callback_class()
