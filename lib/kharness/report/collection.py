"""Run directories as one Collection: variants, their runs, and mean and deviation over the seeds.

A variant is what remains of a cell's axis values when the seed is taken away. Only complete runs count
in a mean; every other one stays in it with its status and reason.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from kharness.config.affects import Affects
from kharness.config.config_py import read_affects
from kharness.config.make.typed import typed_setting
from kharness.config.writing import Made, guarded
from kharness.report.errors import ReportError
from kharness.report.gpu.history import GpuRecording, read_gpu_history
from kharness.report.metrics import Metric
from kharness.report.reading import load_runs
from kharness.report.runs import MOST_PLOTTED, RunData, fields_in, load_run
from kharness.report.settings import ReportSettings, read_settings, with_directions_of_runs
from kharness.runs.errors import MatrixError
from kharness.runs.files import MATRIX_JSON, STATUS_JSON
from kharness.runs.matrix_plan import known_failures, read_matrix_json, short_value
from kharness.runs.rundir import has_plan
from monitoring.journal.files import JOURNAL
from monitoring.telemetry.load_balance import RankBalance, rank_balance

REPLICATE_AXIS = "SEED"
COMPARISON = "comparison"
"""`kind` of the plan of two places that are compared, beside `matrix` and `sweep`."""

SIDE = "SIDE"
"""The axis of these two; no option has this name."""

# A label that would name more settings than these ends in an ellipsis.
_MOST_NAMED = 5


@dataclass(frozen=True)
class Statistic:
    """Over the complete runs of a variant that have the number; `std` needs two of them."""

    n: int
    mean: float | None
    std: float | None
    """Sample standard deviation (n - 1)."""


@dataclass(frozen=True)
class CellResult:
    """One planned run and its outcome."""

    name: str
    values: Mapping[str, str]
    """Axis symbol to value, as the axis spells it."""
    run: RunData
    known_failure: str = ""
    """Why it is in quarantine; empty if it is not."""

    @cached_property
    def _numbers(self) -> dict[str, float | None]:
        """Numbers read so far, so that a median over all steps is taken once."""
        return {}

    def number(self, metric: Metric) -> float | None:
        if metric.name not in self._numbers:
            self._numbers[metric.name] = metric.read(self.run)
        return self._numbers[metric.name]

    @cached_property
    def gpus(self) -> GpuRecording:
        """The run's recorded GPU samples; empty without samples."""
        return read_gpu_history(self.run.directory)

    @cached_property
    def ranks(self) -> tuple[RankBalance | None, str]:
        """How evenly its ranks are loaded, or None and the reason why that is unknown."""
        return rank_balance(self.run.directory)

    @cached_property
    def seed(self) -> str | None:
        """The seed by which runs of different variants are paired: the axis value, else the training's
        own.
        """
        configured = fields_in(self.run.start, "config").get(REPLICATE_AXIS)
        value = self.values.get(REPLICATE_AXIS, self.run.start.get("seed", configured))
        return None if value is None else str(value)


@dataclass(frozen=True)
class Variant:
    """Cells that differ by the seed alone."""

    values: Mapping[str, str]
    label: str
    cells: Sequence[CellResult]

    @property
    def complete(self) -> Sequence[CellResult]:
        return [cell for cell in self.cells if cell.run.complete]

    @property
    def start(self) -> Mapping[str, object]:
        """The start record of its first run that has one, of a complete one if any; empty before it began."""
        return next((cell.run.start for cell in [*self.complete, *self.cells] if cell.run.start), {})

    def numbers(self, metric: Metric) -> list[float]:
        """Return the numbers of its complete runs that have one."""
        return [number for cell in self.complete if (number := cell.number(metric)) is not None]

    @cached_property
    def _statistics(self) -> dict[str, Statistic]:
        """Statistics taken so far: conclusions, graphs and files each ask for all of them."""
        return {}

    def statistic(self, metric: Metric) -> Statistic:
        if metric.name not in self._statistics:
            numbers = self.numbers(metric)
            self._statistics[metric.name] = Statistic(
                n=len(numbers),
                mean=statistics.fmean(numbers) if numbers else None,
                std=statistics.stdev(numbers) if len(numbers) > 1 else None,
            )
        return self._statistics[metric.name]


@dataclass(frozen=True)
class Collection:
    """A matrix, or a single run: its plan, its cells and the variants that they are runs of."""

    directory: Path
    title: str
    axes: Mapping[str, Sequence[str]]
    plan: Mapping[str, object]
    """matrix.json; empty for a single run."""
    cells: Sequence[CellResult]
    variants: Sequence[Variant]
    settings: ReportSettings = field(default_factory=ReportSettings)

    warnings: list[str] = field(default_factory=list, compare=False)
    """Parts of the report that failed, a line each."""

    def part(
        self, name: str, make: Callable[[], Made], instead: Any, *, raises: type[Exception] | tuple[()] = ()
    ) -> Made | Any:
        """Return a part of the report, or `instead` with a warning if making it fails; what `raises` names
        (what a user can fix) is raised.
        """
        return guarded(name, make, instead, self.warnings.append, raises=raises)

    @property
    def is_sweep(self) -> bool:
        """Whether its runs are the trials of a sweep, which are ranked."""
        return self.plan.get("kind") == "sweep"

    @property
    def variant_word(self) -> str:
        """`variant`, or `configuration` in a sweep, as its leaderboard calls them."""
        return "configuration" if self.is_sweep else "variant"

    @property
    def is_comparison(self) -> bool:
        """Whether it is of two places, whose files are elsewhere."""
        return self.plan.get("kind") == COMPARISON

    @property
    def incomplete(self) -> Sequence[CellResult]:
        return [cell for cell in self.cells if not cell.run.complete]

    @property
    def variant_axes(self) -> Sequence[str]:
        return [symbol for symbol in self.axes if symbol != REPLICATE_AXIS]

    @property
    def commands(self) -> Mapping[str, str]:
        """The command of each cell that the plan has one of, by name."""
        cells = self.plan.get("cells")
        known = cells if isinstance(cells, Sequence) else ()
        return {cell["name"]: str(cell["command"]) for cell in known if cell.get("command")}

    @property
    def included_axes(self) -> Sequence[str]:
        """Those that MATRIX_INCLUDE alone names: most variants have the value of .config there."""
        return _included(self.plan)


def read_collection(directory: Path, given: Mapping[str, str] | None = None) -> Collection:
    """Read a matrix directory or a single run's; ReportError if it is neither.

    `given` are make variables that change how it is judged (`BASELINE`, `CONFIG_REPORT_METRIC`).
    """
    directory = directory.resolve()
    if not directory.is_dir():
        raise ReportError(
            f"{directory} does not exist", hint="name a run or a matrix, such as results/latest"
        )
    plan = _read_plan(directory)
    if plan is None:
        return _single(directory, read_settings(directory, {}, given or {}))
    return collection_of_plan(directory, plan, given or {})


def collection_of_plan(directory: Path, plan: Mapping[str, Any], given: Mapping[str, str]) -> Collection:
    """Build the collection of a matrix from its matrix.json, written or still to be; cells without a
    directory are missing.
    """
    settings = read_settings(directory, plan, given)
    axes = {axis["symbol"]: list(axis["values"]) for axis in plan["axes"]}
    known = known_failures(plan)
    runs = load_runs(
        [directory / cell["name"] for cell in plan["cells"]],
        most_other_work=settings.other_work_limit,
        reads_more=len(plan["cells"]) <= MOST_PLOTTED,
    )
    cells = [
        CellResult(cell["name"], dict(cell["values"]), run, known.get(cell["name"], ""))
        for cell, run in zip(plan["cells"], runs, strict=True)
    ]
    variants = _variants(cells, axes, _included(plan), str(plan["model"]))
    settings = with_directions_of_runs(settings, [cell.run.start for cell in cells])
    return Collection(directory, directory.name, axes, dict(plan), cells, variants, settings)


def _read_plan(directory: Path) -> dict[str, Any] | None:
    if not has_plan(directory):
        return None
    try:
        return read_matrix_json(directory)
    except MatrixError as error:
        raise ReportError(str(error), hint="name the directory of one cell instead") from error


def _single(directory: Path, settings: ReportSettings) -> Collection:
    if not (directory / JOURNAL).is_file() and not (directory / STATUS_JSON).is_file():
        raise ReportError(
            f"{directory} holds neither a matrix ({MATRIX_JSON}) nor a run ({JOURNAL})",
            hint=typed_setting(
                "name one: RUN=results/latest, or RUN=results/latest/CELL",
                "name one: results/latest, or results/latest/CELL",
            ),
        )
    run = load_run(directory, most_other_work=settings.other_work_limit, reads_more=True)
    cell = CellResult(directory.name, {}, run)
    variants = [Variant({}, directory.name, [cell])]
    settings = with_directions_of_runs(settings, [cell.run.start])
    return Collection(directory, directory.name, {}, {}, [cell], variants, settings)


def _included(plan: Mapping[str, Any]) -> list[str]:
    return [axis["symbol"] for axis in plan.get("axes", ()) if axis.get("included", False)]


def _variants(
    cells: Sequence[CellResult], axes: Mapping[str, Sequence[str]], included: Sequence[str], model: str
) -> list[Variant]:
    """The variants in the order of the plan."""
    groups: dict[tuple[tuple[str, str], ...], list[CellResult]] = {}
    for cell in cells:
        key = tuple((s, v) for s, v in cell.values.items() if s != REPLICATE_AXIS)
        groups.setdefault(key, []).append(cell)
    labels = variant_labels([dict(key) for key in groups], axes, included)
    return [
        Variant(dict(key), label or model, group)
        for (key, group), label in zip(groups.items(), labels, strict=True)
    ]


def variant_labels(
    variants: Sequence[Mapping[str, str]], axes: Mapping[str, Sequence[str]], included: Sequence[str] = ()
) -> list[str]:
    """Return labels for legends. An axis of MATRIX_INCLUDE alone is named where a variant differs from the
    first.

    So a matrix that changes one of many settings at a time has short labels, and the first is its baseline.
    """
    symbols = [symbol for symbol in axes if symbol != REPLICATE_AXIS]
    varying = [symbol for symbol in symbols if len(axes[symbol]) > 1]
    of_grid = [symbol for symbol in symbols if symbol not in included]
    short = []
    shown = [{symbol: short_value(value) for symbol, value in values.items()} for values in variants]
    for values in shown:
        named = [s for s in varying if s in of_grid or values.get(s) != shown[0].get(s)]
        if included and not named:
            named = of_grid
        label = variant_label(values, named[:_MOST_NAMED] if included else named)
        short.append(f"{label}, …" if included and len(named) > _MOST_NAMED else label)
    # Two variants may be short for the same; then each varying axis is named, at full length.
    if len(set(short)) == len(short):
        return short
    return [variant_label(values, varying) for values in variants]


def variant_label(values: Mapping[str, str], varying: Sequence[str]) -> str:
    """Return a legend's label: names speak for themselves, numbers and y/n need their symbol.

    An axis that a variant does not have, such as the sparsity of an unpruned one, is not named.
    """
    parts = []
    for symbol in varying:
        if symbol not in values:
            continue
        value = values[symbol]
        named = value[:1].isalpha() and value not in ("y", "n")
        parts.append(value if named else f"{symbol.lower()}={value}")
    return ", ".join(parts)


def affects_of(variants: Sequence[Variant]) -> Affects:
    """Return which options affect what, from the first run that recorded it."""
    runs = (cell.run.directory for variant in variants for cell in variant.cells)
    return next((found for run in runs if (found := read_affects(run)).words), Affects())


def why_incomplete(cell: CellResult) -> str:
    """Return status and reason as recorded."""
    status = cell.run.shown_status
    return f"{status} ({cell.run.reason})" if cell.run.reason else status
