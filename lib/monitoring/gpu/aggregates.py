"""Totals over several GPUs of a sample, how evenly they are loaded, and the names that trackers show."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from monitoring.gpu.sample import GpuSample

# Bands of the coefficient of variation in percent, and what they are called; above the last it is Poor.
BANDS = ((5.0, "Excellent"), (10.0, "Good"), (20.0, "Fair"))
POOR = "Poor"

# Quantity -> the value of GPUs over which its balance is computed.
BALANCED = {"memory": "memory_used_mb", "utilization": "utilization_percent", "power": "power_draw_watts"}

# The quantity that gpu_load_balance_cv and gpu_load_balance_quality are about.
MAIN_BALANCE = "memory"

# Names in trackers -> names in aggregate_stats.
AGGREGATE_POINTS = {
    "gpu_total_memory_used": "total_memory_used_mb",
    "gpu_total_memory_percent": "total_memory_percent",
    "gpu_average_utilization": "average_utilization",
    "gpu_total_power": "total_power_watts",
    "gpu_max_temperature": "max_temperature_celsius",
    "gpu_energy_joules": "energy_joules",
    "gpu_cost": "cost",
}

# Names in trackers after gpu_INDEX_ -> names of a sample's values.
DEVICE_POINTS = {
    "memory_used": "memory_used_mb",
    "utilization": "utilization_percent",
    "temperature": "temperature_celsius",
    "power": "power_draw_watts",
}


def aggregate(samples: Sequence[GpuSample]) -> dict[str, Any]:
    """Totals over the GPUs that report a value, None where none does; `lost` has the indices of lost ones."""
    used = _known(sample.memory_used_mb for sample in samples)
    # only of GPUs that report their use, so that the percentage compares the same ones
    total = _known(sample.memory_total_mb for sample in samples if sample.memory_used_mb is not None)
    utilizations = _known(sample.utilization_percent for sample in samples)
    powers = _known(sample.power_draw_watts for sample in samples)
    return {
        "gpu_count": len(samples),
        "lost": [sample.index for sample in samples if sample.state == "lost"],
        "total_memory_used_mb": sum(used) if used else None,
        "total_memory_mb": sum(total) if total else None,
        "total_memory_percent": 100 * sum(used) / sum(total) if used and total and sum(total) else None,
        "average_utilization": sum(utilizations) / len(utilizations) if utilizations else None,
        "total_power_watts": sum(powers) if powers else None,
        "max_temperature_celsius": max(
            _known(sample.temperature_celsius for sample in samples), default=None
        ),
        "load_balance": {
            "memory": balance(used),
            "utilization": balance(utilizations),
            "power": balance(powers),
        },
    }


def balance(values: Sequence[float]) -> dict[str, object]:
    """Return `cv` (population standard deviation over mean, in percent) and its `quality`.

    Both None for fewer than two values and where all are 0: nothing is shared out there.
    """
    mean = sum(values) / len(values) if len(values) > 1 else 0.0
    if mean <= 0:
        return {"cv": None, "quality": None}
    variance = sum((value - mean) ** 2 for value in values) / len(values)
    cv = 100 * math.sqrt(variance) / mean
    return {"cv": cv, "quality": quality(cv)}


def quality(cv: float) -> str:
    """Return the name of the band that a coefficient of variation, in percent, falls into."""
    return next((name for limit, name in BANDS if cv < limit), POOR)


def is_the_runs(gpu: Mapping[str, Any]) -> bool:
    """Whether a GPU of a gpu record is the run's; all are in a record that does not tell them apart."""
    return gpu.get("run_share", 1.0) is not None


def runs_gpus(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the GPUs of a gpu record that are the run's."""
    return list(filter(is_the_runs, record["multi_gpu_data"]))


def gpu_points(record: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of a gpu record under the names that trackers show; null values are no points."""
    aggregates: Mapping[str, Any] = record["aggregate_stats"]
    found = {name: aggregates.get(key) for name, key in AGGREGATE_POINTS.items()}
    balances = aggregates["load_balance"]
    found["gpu_load_balance_cv"] = balances[MAIN_BALANCE]["cv"]
    for of, numbers in balances.items():
        found[f"gpu_load_balance_{of}_cv"] = numbers["cv"]
    for gpu in runs_gpus(record):
        for name, key in DEVICE_POINTS.items():
            found[f"gpu_{gpu['index']}_{name}"] = gpu[key]
    return {name: value for name, value in found.items() if value is not None}


def gpu_texts(record: Mapping[str, Any]) -> dict[str, str]:
    """Return the texts of a gpu record that trackers show: the quality of the load balance."""
    text = record["aggregate_stats"]["load_balance"][MAIN_BALANCE]["quality"]
    return {} if text is None else {"gpu_load_balance_quality": text}


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]
