"""The class VerboseLoggingCallback: the hooks as a callback of Hugging Face's Trainer."""

from __future__ import annotations

import functools

from monitoring.verbose_logging.hooks import VerboseHooks


@functools.cache
def callback_class() -> type[VerboseHooks]:
    """Return a TrainerCallback where transformers is installed, else a class with the same methods."""
    try:
        from transformers import TrainerCallback as base
    except ImportError:
        base = object
    about = {"__module__": "monitoring.verbose_logging", "__doc__": VerboseHooks.__doc__}
    return type("VerboseLoggingCallback", (VerboseHooks, base), about)
