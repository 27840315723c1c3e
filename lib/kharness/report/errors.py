"""Errors that end a report."""

from __future__ import annotations

from kharness.config.errors import KharnessError


class ReportError(KharnessError):
    """There is nothing to report in the place that was named, or a question that the runs cannot answer."""
