"""The numbers that a run is judged by: where each comes from, how people read it, which way is better."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from kharness.config.make.typed import typed_setting
from kharness.report.errors import ReportError
from kharness.report.gpu.history import sum_known
from kharness.report.runs import RunData, fields_in
from monitoring.journal.fields import row_of
from monitoring.journal.fields.directions import Said, better_of, missing_direction
from monitoring.journal.fields.row import REPORT, Better
from monitoring.journal.files import GPU_STATS
from monitoring.journal.ranks import sample_journals
from monitoring.journal.records import last_record

_Read = Callable[[RunData], float | None]

_OF_SPLIT = re.compile(r"(?P<best>best_)?(?P<split>train|val|test)(?P<mark>[_/])(?P<what>.+)")


@dataclass(frozen=True)
class Metric:
    """One number of a run."""

    name: str
    """Name in the journal."""
    label: str
    """Column title; its unit is the scaled one."""
    unit: str
    """Unit of the unscaled number."""
    scale: float
    """Shown = number * scale."""
    digits: int
    meaning: str
    read: _Read
    in_table: bool = False
    better: Better = "neither"

    @property
    def higher_is_better(self) -> bool | None:
        """Whether higher is better; None where that is unknown: then nothing is judged by it."""
        return None if self.better == "neither" else self.better == "up"

    @property
    def unjudged(self) -> str:
        """Why nothing is judged by it, and the line to write; empty for one with a direction."""
        if self.higher_is_better is not None:
            return ""
        said = typed_setting(
            missing_direction(self.name), f"kharness report --better {self.name}=down, or up"
        )
        return f"which way {self.name} is better is unknown: {said}"

    @property
    def is_cost(self) -> bool:
        """Whether the metric is a cost, such as time; every other metric is a quality."""
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
        """Return the unit of the scaled number; empty for metrics without one (a loss)."""
        return self.label.partition(" (")[2].rstrip(")")


@dataclass(frozen=True)
class OfSplit:
    """The parts of a metric's name: `val_loss`, `best_val_loss`, or W&B's `val/ppl`."""

    split: str
    """`train`, `val` or `test`; empty for a name without."""
    mark: str
    what: str

    def on(self, split: str) -> str:
        """The same of another split."""
        return f"{split}{self.mark}{self.what}"


def of_split(name: str) -> OfSplit:
    """The parts of a name; one that names no split is `what` alone."""
    found = _OF_SPLIT.fullmatch(name)
    return OfSplit(found["split"], found["mark"], found["what"]) if found else OfSplit("", "", name)


def metric_named(name: str, said: Said = MappingProxyType({})) -> Metric:
    """The metric of that name, also one that only some models have (`val_perplexity`, `val/ppl`, `wer`).

    `said` is which way people say that metrics are better, which goes before the rows of fields.

    A `test_…` metric is the end record's, which read the test set once. ReportError for a best of the test
    set: choosing the epoch by it would make the test set a part of the training.
    """
    for metric in METRICS:
        if metric.name == name:
            return replace(metric, better=better_of(name, said)) if name in said else metric
    if "test" in name and ("best" in name or "max" in name or "min" in name):
        raise ReportError(
            f"REPORT_METRIC={name}: the best of several looks at the test set is no test",
            hint="test_accuracy is read once, after training; best_val_accuracy is of the validation set",
        )
    split, label = of_split(name).split, name.replace("_", " ")
    if split == "val":
        read, where = _last_validation(name), "of the last validation"
    elif split:
        read, where = _at_end(name), "of the end record"
    else:
        read, where = _at_end_or_last(name), "of the end record, else last validation, else last step"
    return Metric(name, label, row_of(name).unit, 1, 4, f"{name} {where}", read, better=better_of(name, said))


def _last_validation(name: str) -> _Read:
    return lambda run: run.validation(name).last


def _best_validation(name: str, best: Callable[[Sequence[float]], float]) -> _Read:
    return lambda run: best(values) if (values := run.validation(name).values) else None


def _at_end(name: str) -> _Read:
    return lambda run: run.at_end(name)


def _at_end_or_last(name: str) -> _Read:
    def read(run: RunData) -> float | None:
        found = run.at_end(name)
        if found is None:
            found = run.validation(name).last
        return run.metric("step", name).last if found is None else found

    return read


def _last_train_loss(run: RunData) -> float | None:
    """Return the mean of the last tenth of a complete run's steps; where none were recorded that of the last
    epoch.
    """
    steps = run.metric("step", "train_loss").values
    if not steps or not run.complete:
        return run.metric("epoch", "train_loss").last
    return statistics.fmean(steps[-math.ceil(len(steps) / 10) :])


def _of_steps(name: str, what: Callable[[Sequence[float]], float]) -> _Read:
    return lambda run: what(values) if (values := run.metric("step", name).values) else None


def _total(name: str) -> _Read:
    """A running total: the end record's, else that of the last GPU sample, else the last of a step.

    A GPU sample's totals are over all attempts of the run.
    """

    def read(run: RunData) -> float | None:
        found = run.at_end(name)
        if found is None:
            samples = [last_record(path) for path in sample_journals(run.directory, GPU_STATS).values()]
            found = sum_known([fields_in(sample, "aggregate_stats") for sample in samples if sample], name)
        return run.metric("step", name).last if found is None else float(found)

    return read


def _metric(
    name: str, label: str, scale: float, digits: int, read: _Read, *, in_table: bool = False
) -> Metric:
    """How tables show a number whose unit and meaning are in its row."""
    row = row_of(name)
    return Metric(name, label, row.unit, scale, digits, row.about[REPORT], read, in_table, row.better)


# In the order of the tables.
METRICS: tuple[Metric, ...] = (
    _metric("test_accuracy", "test accuracy (%)", 100, 2, _at_end("test_accuracy"), in_table=True),
    _metric("test_loss", "test loss", 1, 4, _at_end("test_loss")),
    _metric("val_accuracy", "val accuracy (%)", 100, 2, _last_validation("val_accuracy"), in_table=True),
    _metric("val_loss", "val loss", 1, 4, _last_validation("val_loss"), in_table=True),
    _metric("best_val_accuracy", "best val accuracy (%)", 100, 2, _best_validation("val_accuracy", max)),
    _metric("best_val_loss", "best val loss", 1, 4, _best_validation("val_loss", min)),
    _metric("train_loss", "train loss, last tenth", 1, 4, _last_train_loss),
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
