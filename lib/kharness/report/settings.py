"""How a report judges: the REPORT_… options that the matrix was begun with, and those of the command line."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from kharness.config.config_py import read_values
from kharness.config.errors import ConfigError
from kharness.config.places import CONFIG_PY
from kharness.report.errors import ReportError
from kharness.report.runs import fields_in
from kharness.runs.budget import UNITS
from kharness.runs.latest import with_lasting_baseline
from kharness.runs.matrix_plan import axis_of_seeds
from monitoring.callbacks.logged import recorded_name
from monitoring.journal.fields.directions import Said, read_directions

SYMBOLS = (
    *("REPORT_BASELINE", "REPORT_BETTER", "REPORT_BUDGET_UNIT", "REPORT_CONFIDENCE"),
    "REPORT_EQUIVALENCE_MARGIN",
    *("REPORT_GRAPHS", "REPORT_METRIC", "REPORT_OTHER_WORK_LIMIT", "REPORT_TARGET", "REPORT_TIME_TOLERANCE"),
)


@dataclass(frozen=True)
class ReportSettings:
    """The defaults are those of the option tree, for a run without a config.py."""

    baseline: str = ""
    """A variant, or the directory of a run or another matrix; empty takes the first variant."""
    better: Said = field(default_factory=dict)
    """Which way metrics of one's own are better; what is not here has that of its row, or none."""
    confidence: float = 0.95
    metric: str = "test_accuracy"
    metric_given: bool = False
    """Whether this call gives it: then it is that of every run, whatever the run was configured with."""
    target: str = ""
    """`val_accuracy>=0.97`; empty lets the report choose."""
    budget_unit: str = "auto"
    """One of kharness.runs.budget.UNITS."""
    other_work_limit: float = 0.1
    """The share of the processors that others may have kept busy during a run whose times count."""
    time_tolerance: float = 0.5
    """How much longer than the other the better one of two may have trained, as a share."""
    margin: float = 0.0
    """Differences smaller than it count as none, in the metric's unit; 0 if not set."""
    graphs: bool = True
    """Whether the report of a matrix draws them; `make graphs` does in any case."""
    seeds_planned: int = 0
    """MATRIX_SEEDS_PLANNED: the only number of seeds that gives a verdict; 0 leaves looks open."""
    first_seeds: tuple[str, ...] = ()
    """Seeds of the question's first plan, in an earlier matrix; empty if this one is the first."""
    first_seeds_elsewhere: int = 0
    """How many of them this matrix has no runs of, as one of fewer seeds after a longer one."""
    seed_order: tuple[str, ...] = ()
    """Those and the seeds of later plans, in the order in which they were planned."""

    def in_order(self, seeds: Iterable[str]) -> tuple[str, ...]:
        """Return these seeds in the order in which looks take them: as they were first planned."""
        known = dict.fromkeys(seeds)
        before = [seed for seed in (*self.first_seeds, *self.seed_order) if seed in known]
        return tuple(dict.fromkeys([*before, *known]))

    def planned_first(self, seeds: Iterable[str]) -> int:
        """How many seeds the first plan had, of these and of those this matrix lacks; 0 if none of these."""
        known = len({*self.first_seeds}.intersection(seeds))
        return known and known + self.first_seeds_elsewhere


def read_settings(directory: Path, plan: Mapping[str, object], given: Mapping[str, str]) -> ReportSettings:
    """Read the settings of a matrix from its plan, of a single run from its config.py, overridden by `given`.

    `given` has make variables (`CONFIG_REPORT_METRIC`, `BASELINE`); other names are ignored.
    """
    stored = fields_in(plan, "settings") if plan else _configured(directory)
    settings = _planned(plan)
    for symbol in SYMBOLS:
        if stored.get(symbol) is not None:
            settings = _with(settings, symbol, str(stored[symbol]), symbol)
    for name, value in with_lasting_baseline(given).items():
        symbol = "REPORT_BASELINE" if name == "BASELINE" else name.removeprefix("CONFIG_")
        if symbol in SYMBOLS and symbol != name:
            settings = _with(settings, symbol, value, name)
        elif name.startswith("CONFIG_REPORT_"):
            raise ReportError(
                f"{name} is not an option of the report", hint=f"there are {', '.join(SYMBOLS)}"
            )
    return settings


def _planned(plan: Mapping[str, object]) -> ReportSettings:
    """Return the settings fixed before the first run; no command line changes them."""
    seeds = fields_in(plan, "seeds")
    planned, first, order = (seeds.get(name) for name in ("planned", "first", "order"))
    first = tuple(map(str, first)) if isinstance(first, Sequence) else ()
    here = axis_of_seeds(plan)
    return ReportSettings(
        seeds_planned=planned if isinstance(planned, int) else 0,
        first_seeds=first,
        first_seeds_elsewhere=sum(seed not in here for seed in first) if here else 0,
        seed_order=tuple(map(str, order)) if isinstance(order, Sequence) else (),
    )


def _configured(directory: Path) -> Mapping[str, object]:
    path = directory / CONFIG_PY
    try:
        return read_values(path) if path.exists() else {}
    except ConfigError:
        return {}  # a report needs no config.py, so a broken one is no reason to have none


def _with(settings: ReportSettings, symbol: str, value: str, name: str) -> ReportSettings:
    if symbol == "REPORT_BASELINE":
        return replace(settings, baseline=value.strip())
    if symbol == "REPORT_BETTER":
        return replace(settings, better={**settings.better, **_directions(value, name)})
    if symbol == "REPORT_METRIC":
        return replace(settings, metric=value.strip(), metric_given=name != symbol)
    if symbol == "REPORT_TARGET":
        return replace(settings, target=value.strip())
    if symbol == "REPORT_GRAPHS":
        return replace(settings, graphs=_flag(value, name))
    if symbol == "REPORT_BUDGET_UNIT":
        return replace(settings, budget_unit=_budget_unit(value, name))
    if symbol == "REPORT_OTHER_WORK_LIMIT":
        limit = _number(value, name, 0, 1, "0.1 is a tenth of the processors; 1 counts all")
        return replace(settings, other_work_limit=limit)
    if symbol == "REPORT_TIME_TOLERANCE":
        tolerance = _number(value, name, 0, 1000, "0.5 allows half as much again")
        return replace(settings, time_tolerance=tolerance)
    if symbol == "REPORT_EQUIVALENCE_MARGIN":
        margin = _number(value, name, 0, math.inf, "0.005 is half a point of accuracy")
        return replace(settings, margin=margin)
    try:
        confidence = float(value)
    except ValueError:
        confidence = 0
    if not 0.5 <= confidence < 1:
        raise ReportError(
            f"{name}={value} is not a number from 0.5 to below 1", hint="0.95 is what most papers use"
        )
    return replace(settings, confidence=confidence)


def with_directions_of_runs(
    settings: ReportSettings, starts: Sequence[Mapping[str, object]]
) -> ReportSettings:
    """Add the metric directions in the runs' configurations; the report's own options take precedence."""
    said = dict(settings.better)
    for start in starts:
        text = fields_in(start, "config").get("REPORT_BETTER")
        if isinstance(text, str) and text:
            said = {**_directions(text, "REPORT_BETTER of a run"), **said}
    return replace(settings, better=said) if said else settings


def _directions(value: str, name: str) -> Said:
    try:
        said = read_directions(value)
    except ValueError as error:
        raise ReportError(
            f"{name}: {error} does not say which way a metric is better",
            hint="write better.wer = down; several are separated by semicolons",
        ) from error
    # Also under the name that a metric of a script is recorded by.
    return {recorded_name(metric): better for metric, better in said.items()} | said


def _budget_unit(value: str, name: str) -> str:
    if value not in UNITS:
        raise ReportError(
            f"{name}={value} is not a unit of budgets", hint=f"choose one of {', '.join(UNITS)}"
        )
    return value


def _flag(value: str, name: str) -> bool:
    flags = {"y": True, "n": False, str(True): True, str(False): False}
    if value not in flags:
        raise ReportError(f"{name}={value} is neither y nor n", hint=f"leave out {name} or set it to y or n")
    return flags[value]


def _number(value: str, name: str, low: float, high: float, hint: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not low <= number <= high or math.isinf(number):
        limits = f"from {low:g} to {high:g}" if math.isfinite(high) else f"of at least {low:g}"
        raise ReportError(f"{name}={value} is not a number {limits}", hint=hint)
    return number
