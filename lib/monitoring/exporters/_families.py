"""The metrics of runs in Prometheus' form. docs/prometheus.md lists them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from monitoring.journal.run_metrics import RankMetrics, RunMetrics

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

RUN_LABELS = ("run", "rank", "host")
GPU_LABELS = ("gpu", "uuid", *RUN_LABELS)

# Metric -> the help text of a value that the records hold as it is.
HELD = {
    "training_loss": "Loss of the last recorded step, NaN if it was no finite number",
    "training_samples_per_second": "Throughput",
    "training_sparsity": "Share of the prunable weights that is zero",
    "learning_rate": "Learning rate that the last recorded step used",
    "gradient_norm": "2-norm of all gradients of the last recorded step",
    "validation_loss": "Loss on the validation set",
    "validation_accuracy": "Accuracy on the validation set, 0 to 1",
}

# Metric -> its help text and its value in the state of a rank; None is not shown.
RANK_GAUGES: dict[str, tuple[str, Callable[[RankMetrics], float | None]]] = {
    "training_step": ("Optimiser steps done; a resumed run goes back to its checkpoint", lambda r: r.step),
    "training_planned_steps": ("Steps after which the run is complete", lambda r: r.num_steps),
    "training_epoch": ("Epochs done, with the fraction of the current one", RankMetrics.epoch),
    "training_last_step_timestamp_seconds": (
        "When the last step was recorded, or the attempt began that has none yet",
        lambda r: r.last_step_time,
    ),
}

RANK_COUNTERS: dict[str, tuple[str, Callable[[RankMetrics], float | None]]] = {
    "training_steps": ("Optimiser steps reached; one that is done again counts once", lambda r: r.most_steps),
    "training_nonfinite_records": ("Records with a value that is no finite number", lambda r: r.nonfinite),
}

# Metric -> its help text, the field of a GPU sample, and what one of its units is here.
GPU_GAUGES: dict[str, tuple[str, str, float]] = {
    "gpu_utilization_percent": ("Share of the time in which a kernel ran", "utilization_percent", 1),
    "gpu_memory_used_mb": ("Memory in use, MiB", "memory_used_mb", 1),
    "gpu_memory_total_mb": ("Memory of the GPU, MiB", "memory_total_mb", 1),
    "gpu_temperature_celsius": ("Temperature of the core", "temperature_celsius", 1),
    "gpu_temperature_memory_celsius": ("Temperature of the memory", "temperature_memory_celsius", 1),
    "gpu_power_draw_watts": ("Power drawn", "power_draw_watts", 1),
    "gpu_power_limit_watts": ("Power that the GPU may draw", "power_limit_watts", 1),
    "gpu_fan_speed_percent": ("Fan speed", "fan_speed_percent", 1),
    "gpu_clock_sm_hertz": ("Clock of the processors", "clock_sm_mhz", 1e6),
    "gpu_clock_memory_hertz": ("Clock of the memory", "clock_memory_mhz", 1e6),
}

# The same for what only rises.
GPU_COUNTERS: dict[str, tuple[str, str]] = {
    "gpu_energy_joules": ("Energy used since sampling began", "energy_joules"),
    "gpu_pcie_sent_bytes": ("Bytes that the GPU sent over PCIe", "pcie_tx_bytes"),
    "gpu_pcie_received_bytes": ("Bytes that the GPU received over PCIe", "pcie_rx_bytes"),
    "gpu_ecc_uncorrected_errors": ("Memory errors that could not be corrected", "ecc_uncorrected"),
}


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


def _rank_families(runs: Sequence[ShownRun]) -> Iterator[Metric]:
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
        SummaryMetricFamily,
    )

    ranks = [
        ([run.name, str(number), run.host], rank)
        for run in runs
        for number, rank in sorted(run.state.ranks.items())
        if rank.last_seq
    ]
    for name, text in HELD.items():
        held = GaugeMetricFamily(name, text, labels=RUN_LABELS)
        for labels, rank in ranks:
            if name in rank.gauges:
                held.add_metric(labels, rank.gauges[name][0])
        yield held
    for kind, table in ((GaugeMetricFamily, RANK_GAUGES), (CounterMetricFamily, RANK_COUNTERS)):
        for name, (text, value_of) in table.items():
            family = kind(name, text, labels=RUN_LABELS)
            for labels, rank in ranks:
                value = value_of(rank)
                if value is not None:
                    family.add_metric(labels, value)
            yield family
    durations = HistogramMetricFamily(
        "training_step_duration_seconds",
        "Wall clock a step, one observation a step record",
        labels=RUN_LABELS,
    )
    allocations = SummaryMetricFamily(
        "memory_allocation_mb", "GPU memory that PyTorch's allocator has given out, MiB", labels=RUN_LABELS
    )
    for labels, rank in ranks:
        durations.add_metric(labels, rank.durations.cumulative(), rank.durations.sum)
        if rank.allocations:
            allocations.add_metric(labels, rank.allocations, rank.allocated_mib)
    yield durations
    yield allocations


def _run_families(runs: Sequence[ShownRun], now: float) -> Iterator[Metric]:
    """What there is once a run: whether it runs, its identity, its alerts, and its GPUs together."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    labels = ("run", "host")
    running = GaugeMetricFamily("training_running", "1 while the run's process trains, else 0", labels=labels)
    about = GaugeMetricFamily(
        "training_run_info", "Always 1; which run this is", labels=(*labels, "run_id", "project", "group")
    )
    firing = GaugeMetricFamily(
        "training_alert_firing",
        "1 while an alert of the run's own rules fires",
        labels=(*labels, "rule", "subject"),
    )
    cost = CounterMetricFamily("gpu_cost", "GPU hours times GPU_HOUR_PRICE, in its currency", labels=labels)
    balance = GaugeMetricFamily(
        "gpu_load_balance_cv_percent",
        "Standard deviation over mean of the run's GPUs, of memory, utilization or power",
        labels=(*labels, "quantity"),
    )
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
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    gpus = [
        ([str(gpu["index"]), gpu.get("uuid") or "", run.name, run.rank_of(gpu), run.host], gpu)
        for run in runs
        for gpu in run.samples(now)
    ]
    up = GaugeMetricFamily(
        "gpu_up", "1 if the GPU answers, 0 if it is lost or cannot be read", labels=GPU_LABELS
    )
    for labels, gpu in gpus:
        up.add_metric(labels, float(gpu.get("state") == "ok"))
    yield up
    for name, (text, source, factor) in GPU_GAUGES.items():
        gauge = GaugeMetricFamily(name, text, labels=GPU_LABELS)
        _add(gauge, gpus, source, factor)
        yield gauge
    for name, (text, source) in GPU_COUNTERS.items():
        counter = CounterMetricFamily(name, text, labels=GPU_LABELS)
        _add(counter, gpus, source, 1)
        yield counter


def _add(family: Any, gpus: Iterable[tuple[list[str], dict[str, Any]]], source: str, factor: float) -> None:
    """One sample a GPU that reports the value."""
    for labels, gpu in gpus:
        if _is_number(gpu.get(source)):
            family.add_metric(labels, gpu[source] * factor)


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
