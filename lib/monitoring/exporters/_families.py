"""The metrics of runs in Prometheus' form. docs/prometheus.md lists them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from monitoring.journal.fields import OF_GPU, prometheus_rows, rows_at
from monitoring.journal.run_metrics import GAUGES, RankMetrics, RunMetrics

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

RUN_LABELS = ("run", "rank", "host")
GPU_LABELS = ("gpu", "uuid", *RUN_LABELS)

# What the state of a rank says of each; None is not shown. Their help texts stand in their rows.
RANK_VALUES: dict[str, Callable[[RankMetrics], float | None]] = {
    "training_step": lambda rank: rank.step,
    "training_planned_steps": lambda rank: rank.num_steps,
    "training_epoch": RankMetrics.epoch,
    "training_last_step_timestamp_seconds": lambda rank: rank.last_step_time,
    "training_steps_total": lambda rank: rank.most_steps,
    "training_nonfinite_records_total": lambda rank: rank.nonfinite,
}

# Prometheus wants base units, but knows memory in MiB by the documented names.
FACTORS = {"MHz": 1e6}


class ShownRun(Protocol):
    """What is shown: a run by its files (_run_files), or a monitor in its own process (monitor_metrics)."""

    run: dict[str, Any]
    """`run_id`, and the project and group in `tracking`, as in run.json."""

    @property
    def name(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def state(self) -> RunMetrics: ...
    def is_running(self) -> bool:
        """Whether it trains."""

    def samples(self, now: float) -> list[dict[str, Any]]:
        """Its GPUs as last sampled."""

    def rank_of(self, gpu: dict[str, Any]) -> str:
        """The rank that computes on a GPU, empty if that is not known."""


def registry(runs: Callable[[], Sequence[ShownRun]], clock: Callable[[], float]) -> CollectorRegistry:
    """A registry of its own that shows what `runs` returns at each scrape."""
    from prometheus_client import CollectorRegistry

    class Collector:
        def collect(self) -> Iterable[Metric]:
            return families(runs(), clock())

        def describe(self) -> Iterable[Metric]:
            return ()  # without it the registry would ask for a scrape now

    result = CollectorRegistry(auto_describe=False)
    result.register(Collector())
    return result


def families(runs: Sequence[ShownRun], now: float) -> Iterator[Metric]:
    """Every metric that has a value, with one sample a run, rank or GPU."""
    found = [*_rank_families(runs), *_run_families(runs, now), *_gpu_families(runs, now)]
    yield from (family for family in found if family.samples)


def _family(name: str, labels: Sequence[str]) -> Any:
    """An empty family of the type and with the help text of its row."""
    from prometheus_client import core

    row = prometheus_rows()[name]
    kinds = {
        "counter": core.CounterMetricFamily,
        "gauge": core.GaugeMetricFamily,
        "histogram": core.HistogramMetricFamily,
        "summary": core.SummaryMetricFamily,
    }
    return kinds[row.prometheus_type](name, row.help, labels=labels)


def _rank_families(runs: Sequence[ShownRun]) -> Iterator[Metric]:
    ranks = [
        ([run.name, str(number), run.host], rank)
        for run in runs
        for number, rank in sorted(run.state.ranks.items())
        if rank.last_seq
    ]
    for name in GAUGES:
        held = _family(name, RUN_LABELS)
        for labels, rank in ranks:
            if name in rank.gauges:
                held.add_metric(labels, rank.gauges[name][0])
        yield held
    for name, value_of in RANK_VALUES.items():
        family = _family(name, RUN_LABELS)
        for labels, rank in ranks:
            value = value_of(rank)
            if value is not None:
                family.add_metric(labels, value)
        yield family
    durations = _family("training_step_duration_seconds", RUN_LABELS)
    allocations = _family("memory_allocation_mb", RUN_LABELS)
    for labels, rank in ranks:
        durations.add_metric(labels, rank.durations.cumulative(), rank.durations.sum)
        if rank.allocations:
            allocations.add_metric(labels, rank.allocations, rank.allocated_mib)
    yield durations
    yield allocations


def _run_families(runs: Sequence[ShownRun], now: float) -> Iterator[Metric]:
    """What there is once a run: whether it runs, its identity, its alerts, and its GPUs together."""
    labels = ("run", "host")
    running = _family("training_running", labels)
    about = _family("training_run_info", (*labels, "run_id", "project", "group"))
    firing = _family("training_alert_firing", (*labels, "rule", "subject"))
    cost = _family("gpu_cost_total", labels)
    balance = _family("gpu_load_balance_cv_percent", (*labels, "quantity"))
    for run in runs:
        who, state = [run.name, run.host], run.state
        tracking = run.run["tracking"]
        running.add_metric(who, float(run.is_running()))
        about.add_metric([*who, run.run["run_id"], tracking["project"], tracking["group"] or ""], 1.0)
        for (rule, subject), fires in sorted(state.alerts.items()):
            firing.add_metric([*who, rule, subject], float(fires))
        together = _mapping(state.gpus.get("aggregate_stats")) if run.samples(now) else {}
        if _is_number(together.get("cost")):
            cost.add_metric(who, together["cost"])
        for quantity, spread in sorted(_mapping(together.get("load_balance")).items()):
            if _is_number(_mapping(spread).get("cv")):
                balance.add_metric([*who, quantity], spread["cv"])
    yield from (running, about, firing, cost, balance)


def _gpu_families(runs: Sequence[ShownRun], now: float) -> Iterator[Metric]:
    gpus = [
        ([str(gpu["index"]), gpu.get("uuid") or "", run.name, run.rank_of(gpu), run.host], gpu)
        for run in runs
        for gpu in run.samples(now)
    ]
    up = _family("gpu_up", GPU_LABELS)
    for labels, gpu in gpus:
        up.add_metric(labels, float(gpu.get("state") == "ok"))
    yield up
    for row in rows_at(OF_GPU):
        if row.prometheus:
            family = _family(row.prometheus, GPU_LABELS)
            _add(family, gpus, row.name, FACTORS.get(row.unit, 1.0))
            yield family


def _add(family: Any, gpus: Iterable[tuple[list[str], dict[str, Any]]], source: str, factor: float) -> None:
    """One sample a GPU that reports the value."""
    for labels, gpu in gpus:
        if _is_number(gpu.get(source)):
            family.add_metric(labels, gpu[source] * factor)


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
