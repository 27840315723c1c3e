"""The numbers that a run is judged by: where each comes from, how people read it, which way is better."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kharness.report.errors import ReportError
from kharness.report.gpu.history import sum_known
from kharness.report.runs import RunData
from monitoring.journal.fields import REPORT, row_of
from monitoring.journal.files import GPU_STATS
from monitoring.journal.ranks import sample_journals
from monitoring.journal.records import last_record

_Read = Callable[[RunData], float | None]


@dataclass(frozen=True)
class Metric:
    """One number of a run."""

    name: str
    """As in the journal, in the journal's unit."""
    label: str
    """Column title; its unit is the scaled one."""
    unit: str
    """Of the unscaled number."""
    scale: float
    """Shown = number * scale."""
    digits: int
    meaning: str
    read: _Read
    in_table: bool = False

    @property
    def higher_is_better(self) -> bool:
        """Also of one that nothing is known of."""
        return not row_of(self.name).smaller_is_better

    @property
    def is_cost(self) -> bool:
        """Whether it is what a result is bought with; every other metric is a quality."""
        return row_of(self.name).kind != "result"

    @property
    def resolution(self) -> float:
        """The least difference that a table shows, in `unit`."""
        return 10.0**-self.digits / self.scale

    @property
    def title(self) -> str:
        """The label without its unit."""
        return self.label.partition(" (")[0]

    @property
    def shown_unit(self) -> str:
        """Of the scaled number; empty for one that people read without (a loss)."""
        return self.label.partition(" (")[2].rstrip(")")


def metric_named(name: str) -> Metric:
    """The metric of that name, also one that only some models have (`val_perplexity`).

    A `test_…` metric is the end record's, which read the test set once. ReportError for a best of the test
    set: choosing the epoch by it would make the test set a part of the training.
    """
    for metric in METRICS:
        if metric.name == name:
            return metric
    if "test" in name and ("best" in name or "max" in name or "min" in name):
        raise ReportError(
            f"REPORT_METRIC={name}: the best of several looks at the test set is no test",
            hint="test_accuracy is read once, after training; best_val_accuracy is of the validation set",
        )
    read = _last_validation(name) if name.startswith("val_") else _at_end(name)
    where = "of the last validation" if name.startswith("val_") else "of the end record"
    return Metric(name, name.replace("_", " "), row_of(name).unit, 1, 4, f"{name} {where}", read)


def _last_validation(name: str) -> _Read:
    return lambda run: run.validation(name).last


def _best_validation(name: str, best: Callable[[Sequence[float]], float]) -> _Read:
    def read(run: RunData) -> float | None:
        values = run.validation(name).values
        return best(values) if values else None

    return read


def _at_end(name: str) -> _Read:
    return lambda run: run.at_end(name)


def _of_steps(name: str, what: Callable[[Sequence[float]], float]) -> _Read:
    def read(run: RunData) -> float | None:
        values = run.metric("step", name).values
        return what(values) if values else None

    return read


def _total(name: str) -> _Read:
    """A running total: the end record's, else that of the last GPU sample, else the last of a step.

    A GPU sample's totals are over all attempts of the run.
    """

    def read(run: RunData) -> float | None:
        found = run.at_end(name)
        if found is None:
            samples = [last_record(path) for path in sample_journals(run.directory, GPU_STATS).values()]
            totals = [sample.get("aggregate_stats") for sample in samples if sample is not None]
            found = sum_known([it for it in totals if isinstance(it, Mapping)], name)
        return run.metric("step", name).last if found is None else float(found)

    return read


def _metric(
    name: str, label: str, scale: float, digits: int, read: _Read, *, in_table: bool = False
) -> Metric:
    """How tables show a number whose unit and meaning are in its row."""
    row = row_of(name)
    return Metric(name, label, row.unit, scale, digits, row.about[REPORT], read, in_table)


# In the order of the tables.
METRICS: tuple[Metric, ...] = (
    _metric("test_accuracy", "test accuracy (%)", 100, 2, _at_end("test_accuracy"), in_table=True),
    _metric("test_loss", "test loss", 1, 4, _at_end("test_loss")),
    _metric("val_accuracy", "val accuracy (%)", 100, 2, _last_validation("val_accuracy"), in_table=True),
    _metric("val_loss", "val loss", 1, 4, _last_validation("val_loss"), in_table=True),
    _metric("best_val_accuracy", "best val accuracy (%)", 100, 2, _best_validation("val_accuracy", max)),
    _metric("best_val_loss", "best val loss", 1, 4, _best_validation("val_loss", min)),
    _metric("train_loss", "train loss", 1, 4, lambda run: run.metric("epoch", "train_loss").last),
    _metric("sparsity", "sparsity (%)", 100, 1, _at_end("sparsity"), in_table=True),
    _metric("training_seconds", "training (s)", 1, 1, _at_end("training_seconds"), in_table=True),
    _metric("training_cpu_seconds", "CPU (s)", 1, 1, _at_end("training_cpu_seconds"), in_table=True),
    _metric("other_work", "other work (%)", 100, 0, lambda run: run.other_work, in_table=True),
    _metric(
        "sec_per_step", "step (ms)", 1000, 2, _of_steps("sec_per_step", statistics.median), in_table=True
    ),
    _metric("peak_gpu_memory", "GPU memory (GB)", 1, 2, _of_steps("gpu_mem_reserved", max), in_table=True),
    _metric("peak_cpu_memory", "CPU memory (MB)", 1, 0, _of_steps("cpu_mem_rss_mb", max)),
    _metric("energy_joules", "energy (J)", 1, 0, _total("energy_joules"), in_table=True),
    _metric("cost", "cost", 1, 4, _total("cost"), in_table=True),
)
