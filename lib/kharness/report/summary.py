"""A summary: the runs of a matrix with all conclusions drawn from them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from kharness.report.collection import Collection, collection_of_plan, read_collection
from kharness.report.judging.aggregates import Aggregate, aggregates
from kharness.report.judging.conclusions import Conclusions, conclude
from kharness.report.metrics import METRICS, Metric


@dataclass(frozen=True)
class Summary(Collection):
    """Everything that the tables and the graphs know."""

    @property
    def all_metrics(self) -> Sequence[Metric]:
        """Those of the files: METRICS, and what else decides (`wer`, `val/ppl`)."""
        deciding = {metric.name: metric for metric, _ in self.conclusions.metrics.values()}
        own = [metric for name, metric in deciding.items() if all(name != known.name for known in METRICS)]
        return (*METRICS, *own)

    @property
    def table_metrics(self) -> Sequence[Metric]:
        """Those of the tables that people read, where a run has them: the usual ones, and before them what
        else decides.
        """
        deciding = {metric.name for metric, _ in self.conclusions.metrics.values()}
        found = [
            metric
            for metric in self.all_metrics
            if (metric.in_table or metric.name in deciding)
            and any(cell.number(metric) is not None for cell in self.cells)
        ]
        return sorted(found, key=lambda metric: metric.in_table)

    @property
    def run_directories(self) -> Sequence[Path]:
        """Those of all cells, or of the one run."""
        return [cell.run.directory for cell in self.cells]

    @cached_property
    def drawn(self) -> dict[Hashable, Any]:
        """Cache of the numbers that graphs compute, so that a picture and its CSV show the same ones."""
        return {}

    @cached_property
    def conclusions(self) -> Conclusions:
        """The sections on quality, time and cost."""
        return conclude(self)

    @cached_property
    def aggregates(self) -> Sequence[Aggregate]:
        """Scores over several workloads; empty with one."""
        return aggregates(self, self.conclusions)


def collect(directory: Path, given: Mapping[str, str] | None = None) -> Summary:
    """Read a matrix directory or a single run's; ReportError if it is neither.

    `given` are make variables that change how it is judged (`BASELINE`, `CONFIG_REPORT_METRIC`).
    """
    return _judged(read_collection(directory, given))


def summary_of_plan(directory: Path, plan: Mapping[str, Any], given: Mapping[str, str]) -> Summary:
    """Build the summary of a matrix from its matrix.json, written or still to be; cells without a directory
    are missing.
    """
    return _judged(collection_of_plan(directory, plan, given))


def _judged(found: Collection) -> Summary:
    return Summary(**{field.name: getattr(found, field.name) for field in fields(found)})
