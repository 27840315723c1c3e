"""The numbers that a run is judged by: where each comes from, how people read it, which way is better."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kharness.report.errors import ReportError
from kharness.report.runs import RunData
from monitoring.journal.files import GPU_STATS
from monitoring.journal.records import last_record

COSTS = (
    *("training_seconds", "training_cpu_seconds", "sec_per_step", "peak_gpu_memory", "peak_cpu_memory"),
    *("energy_joules", "cost"),
)
"""What a result is bought with; every other metric is a quality."""

# The ends of names of numbers that one wants small; every other one is wanted large.
_SMALL_ENDS = (
    "loss",
    "perplexity",
    "seconds",
    "joules",
    "memory",
    "cost",
    "_mb",
    "sec_per_step",
    "other_work",
)


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
    read: Callable[[RunData], float | None]
    in_table: bool = False

    @property
    def higher_is_better(self) -> bool:
        return not self.name.endswith(_SMALL_ENDS)

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
    return Metric(name, name.replace("_", " "), "", 1, 4, f"{name} {where}", read)


def _last_validation(name: str) -> Callable[[RunData], float | None]:
    return lambda run: run.validation(name).last


def _best_validation(
    name: str, best: Callable[[Sequence[float]], float]
) -> Callable[[RunData], float | None]:
    def read(run: RunData) -> float | None:
        values = run.validation(name).values
        return best(values) if values else None

    return read


def _at_end(name: str) -> Callable[[RunData], float | None]:
    return lambda run: run.at_end(name)


def _of_steps(name: str, what: Callable[[Sequence[float]], float]) -> Callable[[RunData], float | None]:
    def read(run: RunData) -> float | None:
        values = run.metric("step", name).values
        return what(values) if values else None

    return read


def _total(name: str) -> Callable[[RunData], float | None]:
    """A running total: the end record's, else that of the last GPU sample, else the last of a step.

    A GPU sample's totals are over all attempts of the run.
    """

    def read(run: RunData) -> float | None:
        found = run.at_end(name)
        if found is None:
            sample = last_record(run.directory / GPU_STATS) or {}
            totals = sample.get("aggregate_stats")
            found = totals.get(name) if isinstance(totals, Mapping) else None
        return run.metric("step", name).last if found is None else float(found)

    return read


# In the order of the tables.
METRICS: tuple[Metric, ...] = (
    Metric(
        "test_accuracy", "test accuracy (%)", "fraction", 100, 2,
        "accuracy on the test set, read once after training", _at_end("test_accuracy"), in_table=True,
    ),
    Metric("test_loss", "test loss", "nats", 1, 4, "loss on the test set, read once after training",
           _at_end("test_loss")),
    Metric(
        "val_accuracy", "val accuracy (%)", "fraction", 100, 2,
        "accuracy of the last validation", _last_validation("val_accuracy"), in_table=True,
    ),
    Metric(
        "val_loss", "val loss", "nats", 1, 4, "loss of the last validation", _last_validation("val_loss"),
        in_table=True,
    ),
    Metric("best_val_accuracy", "best val accuracy (%)", "fraction", 100, 2,
           "highest accuracy of any validation", _best_validation("val_accuracy", max)),
    Metric("best_val_loss", "best val loss", "nats", 1, 4, "lowest loss of any validation",
           _best_validation("val_loss", min)),
    Metric("train_loss", "train loss", "nats", 1, 4, "mean training loss of the last epoch",
           lambda run: run.metric("epoch", "train_loss").last),
    Metric("sparsity", "sparsity (%)", "fraction", 100, 1,
           "share of the prunable weights that is zero in the end", _at_end("sparsity"), in_table=True),
    Metric(
        "training_seconds", "training (s)", "s", 1, 1, "wall time of the training loop",
        _at_end("training_seconds"), in_table=True,
    ),
    Metric("training_cpu_seconds", "CPU (s)", "s", 1, 1,
           "CPU time, user and system, of the training loop and the children it waited for",
           _at_end("training_cpu_seconds"), in_table=True),
    Metric("other_work", "other work (%)", "fraction", 100, 0,
           "share of the processors that other programs kept busy meanwhile", lambda run: run.other_work,
           in_table=True),
    Metric(
        "sec_per_step", "step (ms)", "s", 1000, 2, "median time of one step, over the recorded steps",
        _of_steps("sec_per_step", statistics.median), in_table=True,
    ),
    Metric("peak_gpu_memory", "GPU memory (GB)", "GB", 1, 2,
           "highest gpu_mem_reserved of any recorded step, 1e9 bytes", _of_steps("gpu_mem_reserved", max),
           in_table=True),
    Metric("peak_cpu_memory", "CPU memory (MB)", "MB", 1, 0,
           "highest cpu_mem_rss_mb of any recorded step, 1e6 bytes", _of_steps("cpu_mem_rss_mb", max)),
    Metric("energy_joules", "energy (J)", "J", 1, 0, "energy of the devices over the training",
           _total("energy_joules"), in_table=True),
    Metric("cost", "cost", "", 1, 4, "cost of the training in the currency of its price", _total("cost"),
           in_table=True),
)  # fmt: skip
