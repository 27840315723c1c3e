"""Builds the Prometheus metrics of runs, machines and GPUs; docs/prometheus.md lists them."""

from __future__ import annotations

import contextlib
import functools
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from typing import TYPE_CHECKING, Any, Protocol

from monitoring.gpu.throttling import THROTTLE_REASONS, bits_of
from monitoring.journal.fields import prometheus_rows, rows_at
from monitoring.journal.fields.row import OF_GPU, SYSTEM, FieldRow
from monitoring.journal.records import Record, time_of
from monitoring.journal.run_metrics import GAUGES, RankMetrics, RunMetrics

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

RUN_LABELS = ("run", "rank", "host")
GPU_LABELS = ("gpu", "uuid", "host", "modelName")
"""Without a run: several runs sample the same GPUs, and a sum over these series is that of the machine."""
RUN_INFO_LABELS = ("run", "project", "rank", "gpu", "uuid", "host")

# Metric -> its value in the state of a rank; None is not shown. Their help texts are in their rows.
RANK_VALUES: dict[str, Callable[[RankMetrics], float | None]] = {
    "training_step": lambda rank: rank.step,
    "training_planned_steps": lambda rank: rank.num_steps,
    "training_epoch": RankMetrics.epoch,
    "training_last_step_timestamp_seconds": lambda rank: rank.last_step_time,
    "training_steps_total": lambda rank: rank.most_steps,
    "training_nonfinite_records_total": lambda rank: rank.nonfinite,
}

# Prometheus wants base units, but knows memory in MiB by the documented names.
FACTORS = {"MHz": 1e6, "GB": 1e9}

# The metric of the reasons for lower clocks, one series each.
REASON = "gpu_throttle_reason"

# Counters of a sampler since it began: of several runs' the highest is shown, so that none falls and rises.
COUNTED_BY_SAMPLER = ("xid_errors", "xid_last_error")


class ShownRun(Protocol):
    """A source of metrics: a run by its files (_run_files), or a monitor in its own process (gpu_monitor)."""

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
        """Return the newest gpu record of each host that it trains on, as in gpu_stats.jsonl."""

    def machines(self, now: float) -> dict[str, Record]:
        """Return the newest sample of each host that it trains on."""

    def rank_of(self, gpu: dict[str, Any], host: str) -> str:
        """Return the rank that computes on a GPU of a host, empty if that is not known."""


def registry(runs: Callable[[], Sequence[ShownRun]], clock: Callable[[], float]) -> CollectorRegistry:
    """Return a registry of its own that shows what `runs` returns at each scrape."""
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
    """Yield every metric that has a value, with one sample per run, rank or GPU."""
    found = [_build_info(), *_rank_families(runs), *_run_families(runs, now), *_gpu_families(runs, now)]
    found += _machine_families(runs, now)
    # an empty one would still print its help and type
    yield from (family for family in found if family.samples)


DISTRIBUTIONS = ("torch-kharness", "kharness-monitoring")
"""Names that this package may be installed under; `kharness` on the public index is another project."""


@functools.cache
def version() -> str:
    """Return the installed version of kharness; `unknown` if it is only on the path."""
    for distribution in DISTRIBUTIONS:
        with contextlib.suppress(metadata.PackageNotFoundError):
            return metadata.version(distribution)
    return "unknown"


def _build_info() -> Metric:
    info = _family("kharness_build_info", ("version", "python_version"))
    info.add_metric([version(), platform.python_version()], 1.0)
    built: Metric = info
    return built


def _family(name: str, labels: Sequence[str]) -> Any:
    """Return an empty family of the type and with the help text of its row."""
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
    """Yield the metrics of each run: whether it runs, its identity, its alerts, and its GPUs together."""
    labels = ("run", "host")
    running = _family("training_running", labels)
    about = _family("training_run_info", (*labels, "run_id", "project", "group"))
    firing = _family("training_alert_firing", (*labels, "rule", "subject"))
    cost = _family("gpu_cost_total", labels)
    energy = _family("training_energy_joules_total", labels)
    balance = _family("gpu_load_balance_cv_percent", (*labels, "quantity"))
    for run in runs:
        who, state = [run.name, run.host], run.state
        tracking = run.run["tracking"]
        running.add_metric(who, float(run.is_running()))
        about.add_metric([*who, run.run["run_id"], tracking["project"], tracking["group"] or ""], 1.0)
        for (rule, subject), fires in sorted(state.alerts.items()):
            firing.add_metric([*who, rule, subject], float(fires))
        for record in run.samples(now):
            there, together = [run.name, record["host"]], _mapping(record.get("aggregate_stats"))
            for family, name in ((cost, "cost"), (energy, "energy_joules")):
                if _is_number(together.get(name)):
                    family.add_metric(there, together[name])
            for quantity, spread in sorted(_mapping(together.get("load_balance")).items()):
                if _is_number(_mapping(spread).get("cv")):
                    balance.add_metric([*there, quantity], spread["cv"])
    yield from (running, about, firing, cost, energy, balance)


def _gpu_families(runs: Sequence[ShownRun], now: float) -> Iterator[Metric]:
    """Yield the metrics of each GPU, whichever runs sample it; and which run computes on which."""
    info = _family("kharness_run_info", RUN_INFO_LABELS)
    for run in runs:
        for host, _, gpu in _sampled(run, now):
            rank = run.rank_of(gpu, host)
            if rank or _is_number(gpu.get("run_share")):
                project = run.run["tracking"]["project"]
                info.add_metric([run.name, project, rank, *_identity(gpu), host], 1.0)
    yield info
    gpus = [
        ([*_identity(gpu), host, gpu.get("name") or ""], gpu) for host, gpu in _gpus_of_machines(runs, now)
    ]
    up = _family("gpu_up", GPU_LABELS)
    for labels, gpu in gpus:
        up.add_metric(labels, float(gpu.get("state") == "ok"))
    yield up
    yield from _throttling_families(gpus)
    nvidia = [(labels, gpu) for labels, gpu in gpus if gpu.get("vendor") == "nvidia"]
    for row in rows_at(OF_GPU):
        if row.prometheus:
            yield _filled(_family(row.prometheus, GPU_LABELS), gpus, row.name, FACTORS.get(row.unit, 1.0))
        if row.dcgm:
            yield _filled(_dcgm_family(row), nvidia, row.name, row.dcgm_factor)


def _machine_families(runs: Sequence[ShownRun], now: float) -> Iterator[Metric]:
    """Yield the metrics of each machine, whichever runs sample it; and the part of each run's processes."""
    looks = [(run.name, host, record) for run in runs for host, record in sorted(run.machines(now).items())]
    newest: dict[str, Record] = {}
    for _, host, record in sorted(looks, key=lambda look: time_of(look[2])):
        newest[host] = record
    machines = [([host], record) for host, record in sorted(newest.items())]
    trainers = [([name, host], record) for name, host, record in looks]
    for row in rows_at(SYSTEM):
        if row.prometheus:
            is_run = row.name.startswith("trainer_")
            family = _family(row.prometheus, ("run", "host") if is_run else ("host",))
            yield _filled(family, trainers if is_run else machines, row.name, FACTORS.get(row.unit, 1.0))


def _gpus_of_machines(runs: Sequence[ShownRun], now: float) -> Iterator[tuple[str, dict[str, Any]]]:
    """Host and newest sample of each GPU that any of the runs samples."""
    found: dict[tuple[str, ...], list[tuple[float, dict[str, Any]]]] = {}
    for run in runs:
        for host, time, gpu in _sampled(run, now):
            found.setdefault((host, *_identity(gpu)), []).append((time, gpu))
    for (host, *_), looks in sorted(found.items()):
        # several runs may sample one GPU: it has one series, with the newest values
        newest = max(looks, key=lambda look: look[0])[1]
        counting = max((gpu for _, gpu in looks), key=lambda gpu: gpu.get(COUNTED_BY_SAMPLER[0]) or 0)
        yield host, {**newest, **{name: counting.get(name) for name in COUNTED_BY_SAMPLER}}


def _sampled(run: ShownRun, now: float) -> Iterator[tuple[str, float, dict[str, Any]]]:
    """Host, time and values of each GPU that a run samples."""
    for record in run.samples(now):
        for gpu in record["multi_gpu_data"]:
            if isinstance(gpu, dict):
                yield record["host"], record["time"], gpu


def _identity(gpu: Mapping[str, Any]) -> tuple[str, str]:
    """Return the labels `gpu` and `uuid`."""
    return str(gpu["index"]), gpu.get("uuid") or ""


def _throttling_families(gpus: Sequence[tuple[list[str], dict[str, Any]]]) -> Iterator[Metric]:
    """Yield each reason that NVIDIA's driver knows as 1 or 0; of other vendors, those that hold."""
    reasons = _family(REASON, (*GPU_LABELS, "reason"))
    bits = _dcgm_family(prometheus_rows()[REASON])
    for labels, gpu in gpus:
        holding = gpu.get("throttle_reasons")
        if not isinstance(holding, list):
            continue
        is_nvidia = gpu.get("vendor") == "nvidia"
        for reason in dict.fromkeys([*(THROTTLE_REASONS.values() if is_nvidia else ()), *holding]):
            reasons.add_metric([*labels, reason], float(reason in holding))
        if is_nvidia:
            bits.add_metric(labels, float(bits_of(holding)))
    yield from (reasons, bits)


def _dcgm_family(row: FieldRow) -> Any:
    """Return an empty family by dcgm-exporter's name.

    A counter has no type: prometheus_client, and OpenMetrics, know none whose name does not end in `_total`.
    """
    from prometheus_client import core

    kinds = {"gauge": core.GaugeMetricFamily, "counter": core.UnknownMetricFamily}
    unit = {1000.0: ", in mJ", 0.01: ", from 0 to 1"}.get(row.dcgm_factor, "")
    unit = ", in MHz" if row.unit == "MHz" else unit
    return kinds[row.prometheus_type](row.dcgm, f"{row.help}{unit}", labels=GPU_LABELS)


def _filled(
    family: Any, gpus: Iterable[tuple[list[str], dict[str, Any]]], source: str, factor: float
) -> Metric:
    """Return the family with one sample per GPU that reports the value."""
    for labels, gpu in gpus:
        if _is_number(gpu.get(source)):
            family.add_metric(labels, gpu[source] * factor)
    filled: Metric = family
    return filled


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
