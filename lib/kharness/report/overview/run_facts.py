"""Checkpoints and software of a single run, for its page."""

from __future__ import annotations

import json
from collections.abc import Mapping

from kharness.report.comparison_table import Table
from kharness.report.summary import Summary
from kharness.runs.files import CHECKPOINTS
from monitoring.journal.files import ENVIRONMENT_JSON


def checkpoints(summary: Summary) -> Table | None:
    """Return the files that are there, with their sizes; None without any."""
    folder = summary.cells[0].run.directory / CHECKPOINTS
    files = sorted(path for path in folder.glob("*") if path.is_file()) if folder.is_dir() else []
    rows = [[f"{CHECKPOINTS}/{path.name}", f"{path.stat().st_size / 1e6:,.2f}"] for path in files]
    return Table(["checkpoint", "size (MB)"], rows, text_columns=1) if rows else None


def packages(summary: Summary) -> Mapping[str, str] | None:
    """Return the installed packages that the run recorded; None where it did not."""
    path = summary.cells[0].run.directory / ENVIRONMENT_JSON
    try:
        found = json.loads(path.read_bytes())["packages"]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return {str(name): str(version) for name, version in found.items()} if isinstance(found, dict) else None
