"""Errors of runs that the user can fix."""

from __future__ import annotations

from kharness.config.errors import KharnessError


class MatrixError(KharnessError):
    """A matrix that cannot be planned or started as it was requested."""
