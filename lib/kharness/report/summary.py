"""Collect run directories into one Summary: variants, their runs, and mean and deviation over the seeds.

A variant is what remains of a cell's axis values when the seed is taken away. Only complete runs count
in a mean; every other one stays in the summary with its status and reason.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kharness.config.errors import KharnessError
from kharness.report.runs import RunData, load_run

REPLICATE_AXIS = "SEED"
JOURNAL = "metrics.jsonl"


class ReportError(KharnessError):
    """There is nothing to report in the place that was named."""


@dataclass(frozen=True)
class Metric:
    """One number a run is judged by, and how people read it."""

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


@dataclass(frozen=True)
class Statistic:
    """Over the complete runs of a variant that have the number; `std` needs two of them."""

    n: int
    mean: float | None
    std: float | None
    """Sample standard deviation (n - 1)."""


@dataclass(frozen=True)
class Cell:
    """One planned run and what came of it."""

    name: str
    values: Mapping[str, str]
    """Axis symbol to value, as the axis spells it."""
    run: RunData

    def number(self, metric: Metric) -> float | None:
        return metric.read(self.run)


@dataclass(frozen=True)
class Variant:
    """Cells that differ by the seed alone."""

    values: Mapping[str, str]
    label: str
    cells: Sequence[Cell]

    @property
    def complete(self) -> Sequence[Cell]:
        return [cell for cell in self.cells if cell.run.complete]

    def statistic(self, metric: Metric) -> Statistic:
        numbers = [number for cell in self.complete if (number := cell.number(metric)) is not None]
        return Statistic(
            n=len(numbers),
            mean=statistics.fmean(numbers) if numbers else None,
            std=statistics.stdev(numbers) if len(numbers) > 1 else None,
        )


@dataclass(frozen=True)
class Summary:
    """Everything that the tables and the graphs know."""

    directory: Path
    title: str
    axes: Mapping[str, Sequence[str]]
    plan: Mapping[str, object]
    """matrix.json; empty for a single run."""
    cells: Sequence[Cell]
    variants: Sequence[Variant]

    @property
    def incomplete(self) -> Sequence[Cell]:
        return [cell for cell in self.cells if not cell.run.complete]

    @property
    def variant_axes(self) -> Sequence[str]:
        return [symbol for symbol in self.axes if symbol != REPLICATE_AXIS]

    @property
    def metrics(self) -> Sequence[Metric]:
        """Those that at least one run has."""
        return [m for m in METRICS if any(cell.number(m) is not None for cell in self.cells)]


def collect(directory: Path) -> Summary:
    """Read a matrix directory or a single run's; ReportError if it is neither."""
    directory = directory.resolve()
    if not directory.is_dir():
        raise ReportError(f"{directory} does not exist", hint="name a run or a matrix: RUN=results/latest")
    plan = _read_plan(directory)
    if plan is None:
        return _single(directory)
    axes = {axis["symbol"]: list(axis["values"]) for axis in plan["axes"]}
    cells = [
        Cell(cell["name"], dict(cell["values"]), load_run(directory / cell["name"])) for cell in plan["cells"]
    ]
    return Summary(directory, directory.name, axes, plan, cells, _variants(cells, axes, str(plan["model"])))


def _read_plan(directory: Path) -> dict[str, Any] | None:
    path = directory / "matrix.json"
    try:
        plan: dict[str, Any] = json.loads(path.read_bytes())
        _ = (
            plan["model"],
            [axis["values"] for axis in plan["axes"]],
            [cell["values"] for cell in plan["cells"]],
        )
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise ReportError(
            f"{path} is not the plan of a matrix: {error!r}", hint="name the directory of one cell instead"
        ) from error
    return plan


def _single(directory: Path) -> Summary:
    if not (directory / JOURNAL).is_file() and not (directory / "status.json").is_file():
        raise ReportError(
            f"{directory} holds neither a matrix (matrix.json) nor a run ({JOURNAL})",
            hint="name one: RUN=results/latest, or RUN=results/latest/CELL",
        )
    cell = Cell(directory.name, {}, load_run(directory))
    return Summary(directory, directory.name, {}, {}, [cell], [Variant({}, directory.name, [cell])])


def _variants(cells: Sequence[Cell], axes: Mapping[str, Sequence[str]], model: str) -> list[Variant]:
    """In the order of the plan."""
    groups: dict[tuple[tuple[str, str], ...], list[Cell]] = {}
    for cell in cells:
        key = tuple((s, v) for s, v in cell.values.items() if s != REPLICATE_AXIS)
        groups.setdefault(key, []).append(cell)
    varying = [symbol for symbol, values in axes.items() if len(values) > 1 and symbol != REPLICATE_AXIS]
    return [
        Variant(dict(key), variant_label(dict(key), varying) or model, group) for key, group in groups.items()
    ]


def variant_label(values: Mapping[str, str], varying: Sequence[str]) -> str:
    """What a legend says: names speak for themselves, numbers and y/n need their symbol."""
    parts = []
    for symbol in varying:
        value = values.get(symbol, "?")
        named = value[:1].isalpha() and value not in ("y", "n")
        parts.append(value if named else f"{symbol.lower()}={value}")
    return ", ".join(parts)


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


def _median_of_steps(name: str) -> Callable[[RunData], float | None]:
    def read(run: RunData) -> float | None:
        values = run.metric("step", name).values
        return statistics.median(values) if values else None

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
    Metric(
        "training_seconds", "training (s)", "s", 1, 1, "wall time of the training loop",
        _at_end("training_seconds"), in_table=True,
    ),
    Metric(
        "sec_per_step", "step (ms)", "s", 1000, 2, "median time of one step, over the recorded steps",
        _median_of_steps("sec_per_step"), in_table=True,
    ),
)  # fmt: skip
