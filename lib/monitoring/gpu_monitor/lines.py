"""The documented lines of GPUMonitor's files, as views of a sample and of a step record."""

from __future__ import annotations

from monitoring.gpu.sample import MIB, GpuSample
from monitoring.journal.fields import rows_at
from monitoring.journal.fields.row import STEP
from monitoring.journal.records import Record, as_number
from monitoring.journal.structured_log import timestamp

# The fields of a line of gpu_metrics_*.jsonl after `timestamp` and `gpu_index`, as documented.
DOCUMENTED = (
    *("utilization_percent", "memory_used_mb", "memory_total_mb", "memory_percent"),
    *("temperature_celsius", "power_draw_watts", "fan_speed_percent"),
)

# The same of a line of training_metrics_*.jsonl after `epoch` -> the fields of a step record.
STEP_FIELDS = {row.line: row.name for row in rows_at(STEP) if row.line}


def metrics_line(sample: GpuSample, time: float, correlation_id: str) -> Record:
    """Return one GPU of a snapshot as a line of gpu_metrics_*.jsonl."""
    return {
        "timestamp": timestamp(time),
        "gpu_index": sample.index,
        **{name: getattr(sample, name) for name in DOCUMENTED},
        "energy_joules": sample.energy_joules,
        "gpu_uuid": sample.uuid,
        "gpu_name": sample.name,
        "state": sample.state,
        "error": sample.error,
        "correlation_id": correlation_id,
    }


def training_line(record: Record, epoch: float | None) -> Record:
    """Return a step record as a line of training_metrics_*.jsonl, with null for missing fields."""
    return {
        "timestamp": timestamp(as_number(record["time"]) or 0.0),
        "step": record["global_step"],
        "epoch": epoch,
        **{line: record.get(name) for line, name in STEP_FIELDS.items()},
        "memory_allocated_mb": _mib(as_number(record.get("gpu_mem_allocated"))),
        "memory_reserved_mb": _mib(as_number(record.get("gpu_mem_reserved"))),
    }


def _mib(gigabytes: float | None) -> float | None:
    return None if gigabytes is None else round(gigabytes * 1e9) / MIB  # whole bytes
