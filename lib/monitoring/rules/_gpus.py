"""What the rules about single GPUs share: their samples, and their names in alerts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from monitoring.gpu.aggregates import runs_gpus
from monitoring.journal.records import Record


def gpus(record: Record) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each of the run's GPUs that answered, with its subject in alerts: its UUID, else its index."""
    if record.get("event") != "gpu" or not isinstance(record.get("multi_gpu_data"), list):
        return
    for sample in runs_gpus(record):
        if sample.get("state") == "ok":
            yield sample.get("uuid") or str(sample.get("index")), sample


def gpu_name(sample: dict[str, Any]) -> str:
    """`GPU 3`."""
    return f"GPU {sample.get('index')}"
