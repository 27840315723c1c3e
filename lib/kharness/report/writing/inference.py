"""Inference results in reports: latency and accuracy by batch size, and predictions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from kharness.report.comparison_table import Table
from kharness.report.summary import Summary
from kharness.runs.files import PREDICTIONS

# As trainings name them in records of the split `inference`.
_MEASURED = re.compile(r"batch_(\d+)_latency_seconds")

# Runs whose pictures are on the page; all of them are in the run directories.
MAX_SHEETS = 24


def inference_table(summary: Summary) -> Table | None:
    """A row for each batch size of each complete run; None where nothing was measured."""
    rows = list(_rows(summary))
    header = ["run", "batch size", "latency (ms)", "samples per second", "accuracy (%)"]
    return Table(header, rows, 1) if rows else None


def prediction_sheets(summary: Summary) -> list[tuple[str, Path]]:
    """Run and picture."""
    found = [(cell.name, cell.run.directory / PREDICTIONS) for cell in summary.cells if cell.run.complete]
    return [(name, path) for name, path in found if path.is_file()][:MAX_SHEETS]


def _rows(summary: Summary) -> Iterator[list[str]]:
    for cell in summary.cells:
        named = [_MEASURED.fullmatch(name) for event, name in cell.run.series if event == "eval"]
        sizes = sorted(int(match[1]) for match in named if match)
        for size in sizes if cell.run.complete else ():
            values = [
                cell.run.metric("eval", f"batch_{size}_{name}").last
                for name in ("latency_seconds", "samples_per_sec", "accuracy")
            ]
            scaled = zip(values, (1000, 1, 100), strict=True)
            yield [
                *(cell.name, str(size)),
                *("" if value is None else f"{value * factor:.2f}" for value, factor in scaled),
            ]
