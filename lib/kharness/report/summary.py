"""A summary: the runs of a matrix, and what they allow to say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from kharness.report.collection import Collection, collection_of_plan, read_collection
from kharness.report.judging.conclusions import Conclusions, conclude


@dataclass(frozen=True)
class Summary(Collection):
    """Everything that the tables and the graphs know."""

    @cached_property
    def conclusions(self) -> Conclusions:
        """Who is better, how soon, at what price."""
        return conclude(self)


def collect(directory: Path, given: Mapping[str, str] | None = None) -> Summary:
    """Read a matrix directory or a single run's; ReportError if it is neither.

    `given` are make variables that change how it is judged (`BASELINE`, `CONFIG_REPORT_METRIC`).
    """
    return _judged(read_collection(directory, given))


def summary_of_plan(directory: Path, plan: Mapping[str, Any], given: Mapping[str, str]) -> Summary:
    """Of a matrix from what its matrix.json holds, or will hold: cells without a directory are missing."""
    return _judged(collection_of_plan(directory, plan, given))


def _judged(found: Collection) -> Summary:
    return Summary(**{field.name: getattr(found, field.name) for field in fields(found)})
