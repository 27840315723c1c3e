"""GPU samples as the agent writes them, with numbers of one's own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

Values = dict[str, Any]
"""Sample of a GPU: `memory` in MiB, `utilization`, `power`, `temperature`; or its state."""

_NAMES = {
    "memory": "memory_used_mb",
    "utilization": "utilization_percent",
    "power": "power_draw_watts",
    "temperature": "temperature_celsius",
}


def write_samples(
    run: Path, count: int, gpus: int, values: Callable[[int, int], Values], *, every: float = 1.0
) -> None:
    """Write `count` samples, `values(sample, gpu)` in each, of GPUs of 24,576 MiB."""
    with (run / "gpu_stats.jsonl").open("w") as file:
        for number in range(count):
            known = [_gpu(index, values(number, index)) for index in range(gpus)]
            record = {"event": "gpu", "time": 1000.0 + every * number, "seq": number + 1}
            record |= {"multi_gpu_data": known, "aggregate_stats": _together(known)}
            file.write(json.dumps(record) + "\n")


def _gpu(index: int, values: Values) -> Values:
    known = {_NAMES.get(name, name): value for name, value in values.items()}
    fixed = {"index": index, "uuid": f"GPU-{index}", "name": "Simulated", "memory_total_mb": 24576.0}
    return {**fixed, "run_share": 1.0, "state": "ok", "error": None, **known}


def _together(gpus: list[Values]) -> Values:
    def known(name: str) -> list[float]:
        return [gpu[name] for gpu in gpus if gpu.get(name) is not None]

    return {
        "total_memory_used_mb": sum(known("memory_used_mb")),
        "total_power_watts": sum(known("power_draw_watts")),
        "max_temperature_celsius": max(known("temperature_celsius"), default=None),
        "devices_source": "processes",
    }


def write_ranks(run: Path, seconds: list[float], steps: int = 20) -> None:
    """Journals of ranks, of which each step's forward and backward takes so long."""
    for rank, own in enumerate(seconds):
        start: Values = {"event": "start", "device": f"cuda:{rank}", "hardware": {"host": "gpu-host"}}
        phases = {"data_seconds": 0.0005, "forward_backward_seconds": own, "optimizer_seconds": 0.001}
        wait = {"collective_seconds": max(seconds) - own + 0.001}
        records = [start]
        for step in range(1, steps + 1):
            records.append({"event": "step", "global_step": step, "train_loss": 1 / step, **phases, **wait})
        name = "metrics.jsonl" if rank == 0 else f"metrics.rank{rank:04}.jsonl"
        lines = [
            json.dumps({"time": 1000.0 + i, "seq": i + 1, "attempt": 1, **one})
            for i, one in enumerate(records)
        ]
        (run / name).write_text("\n".join(lines) + "\n")
