"""The documented name of `monitoring.verbose_logging`."""

from __future__ import annotations

from monitoring.verbose_logging import VerboseLoggingCallback

__all__ = ["VerboseLoggingCallback"]
