"""Tensors as metrics: host ones at once, those on a GPU without waiting for it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from monitoring import Run, read_records
from monitoring.telemetry.device_scalars import take_scalars


def test_take_scalars_turns_host_tensors_into_numbers_in_place() -> None:
    record: dict[str, object] = {"a": torch.tensor(1.5), "b": torch.tensor([True]), "c": 2}
    assert take_scalars(record) is None
    assert record == {"a": 1.5, "b": True, "c": 2}


@pytest.mark.gpu
def test_run_writes_gpu_scalars_in_order_without_synchronizing(tmp_path: Path) -> None:
    with Run(tmp_path, name="n", project="p", config={}, agent=False) as run:
        big = torch.randn(4096, 4096, device="cuda")
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            for step in range(1, 51):
                for _ in range(5):
                    big = big @ big
                    big = big / big.norm()
                run.log_step(step, train_loss=big.norm() * step, lr=0.1)
                run.log_step(1000 + step, train_loss=0.5)
            waiting = len(run._in_flight)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    assert waiting > 0
    steps = [record for record, _ in read_records(tmp_path / "metrics.jsonl")][:-1]
    assert [record["global_step"] for record in steps] == [n for i in range(1, 51) for n in (i, 1000 + i)]
    assert [record["train_loss"] for record in steps[::2]] == pytest.approx(list(range(1, 51)), rel=1e-3)
