"""A step that is no integer: it becomes one, or its record goes without and names it."""

from __future__ import annotations

import math
import sys
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import orjson
import pytest
import torch

from monitoring import Record, Run, read_records
from monitoring.gpu_monitor import GPUMonitor, TrainingMonitorCallback

TAKEN = [
    *((3, 3), (1.0, 1), (-2.0, -2), (torch.tensor(3.0), 3), (torch.tensor(3), 3), (torch.tensor([3]), 3)),
    *(
        (np.float32(3), 3),
        (np.int64(3), 3),
        (np.array(3), 3),
        (np.array([4.0]), 4),
        (Fraction(6, 2), 3),
        (Decimal(5), 5),
    ),
    *((2**63 - 1, 2**63 - 1), (-(2**63), -(2**63))),
]

REFUSED = [
    (1.5, "1.5"),
    ("abc", "'abc'"),
    ("3", "'3'"),
    (True, "True"),
    (np.bool_(True), repr(np.bool_(True))),
    (torch.tensor(True), "True"),
    (torch.empty((), device="meta"), "a tensor without a value"),
    (2**63, str(2**63)),
    (-(2**63) - 1, str(-(2**63) - 1)),
    (2.0**63, repr(2.0**63)),
    (math.nan, "nan"),
    (math.inf, "inf"),
    ([1], "[1]"),
    (None, "None"),
    (Decimal("1e999999"), repr(Decimal("1e999999"))),
    (1j, "1j"),
    (np.complex64(3), repr(np.complex64(3))),
    (torch.ones(2), "Tensor torch.float32 [2] on cpu"),
]


def records(directory: Path) -> list[Record]:
    return [record for record, _ in read_records(directory / "metrics.jsonl")]


@pytest.mark.parametrize(("given", "step"), TAKEN, ids=str)
def test_step_that_can_be_an_integer_becomes_one(tmp_path: Path, given: object, step: int) -> None:
    with Run(tmp_path, name="n", project="p", config={}, agent=False) as run:
        run.log_step(given, a=1)  # type: ignore[arg-type]
        run.log_eval(given, split="val", a=1)  # type: ignore[arg-type]
        run.log_epoch(1, global_step=given, a=1)  # type: ignore[arg-type]
        run.log_checkpoint(given, checkpoint_path=Path("x"), a=1)  # type: ignore[arg-type]
    found = records(tmp_path)[:-1]
    assert [(record["global_step"], record["a"], "refused_step" in record) for record in found] == [
        (step, 1, False)
    ] * 4
    assert {type(record["global_step"]) for record in found} == {int}


@pytest.mark.parametrize(("given", "shown"), REFUSED, ids=str)
def test_step_that_cannot_is_named_in_a_record_without_one(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], given: object, shown: str
) -> None:
    with Run(tmp_path, name="n", project="p", config={}, agent=False) as run:
        run.log_step(given, a=1, refused_step="mine")  # type: ignore[arg-type]
        run.log_eval(given, split="val", a=1)  # type: ignore[arg-type]
        run.log_step(2, a=2)
    step, evaluation, next_step, _ = records(tmp_path)
    assert (step["refused_step"], step["refused_step_"], step["a"]) == (shown, "mine", 1)
    assert (evaluation["refused_step"], evaluation["split"], evaluation["a"]) == (shown, "val", 1)
    assert ["global_step" in record for record in (step, evaluation, next_step)] == [False, False, True]
    path = tmp_path / "metrics.jsonl"
    warning = f"warning: {path}: {shown} is not a step; such records have a refused_step\n"
    assert capfd.readouterr().err == warning


def test_refused_step_is_shown_in_bounds(tmp_path: Path) -> None:
    class Long:
        def __repr__(self) -> str:
            return "x" * 10_000

    with Run(tmp_path, name="n", project="p", config={}, agent=False) as run:
        for given in (list(range(10_000)), "y" * 10_000, Long(), 10**5000):
            run.log_step(given)  # type: ignore[arg-type]
    assert [len(str(record["refused_step"])) <= 100 for record in records(tmp_path)[:-1]] == [True] * 4


@pytest.mark.parametrize(
    ("given", "step", "refused"), [(3.0, 3, None), (1.5, None, "1.5"), (True, None, "True")]
)
def test_callback_takes_and_refuses_the_same_steps(
    tmp_path: Path, given: object, step: int | None, refused: str | None
) -> None:
    monitor = GPUMonitor(log_dir=tmp_path, root=tmp_path, quiet=True)
    callback = TrainingMonitorCallback(monitor)
    callback.on_train_begin()
    for _ in range(2):
        callback.on_step_end(step=given, loss=0.5)
    callback.on_train_end()
    [path] = tmp_path.glob("training_metrics_*.jsonl")
    lines = [orjson.loads(line) for line in path.read_bytes().splitlines()]
    assert [(line["step"], line.get("refused_step"), line["loss"]) for line in lines] == [
        (step, refused, 0.5)
    ] * 2
    told = [f"{refused} is not a step; such lines have a refused_step"] if refused else []
    assert [problem for problem in monitor.problems if "step" in problem] == told


@pytest.mark.gpu
def test_step_on_a_gpu_is_not_waited_for(tmp_path: Path) -> None:
    assert sys.modules["torch"] is torch
    with Run(tmp_path, name="n", project="p", config={}, agent=False) as run:
        given = [torch.tensor(value, device="cuda") for value in (3.0, 1.5)]
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            for step in given:
                run.log_step(step, a=1, b=[step])  # type: ignore[arg-type]
        finally:
            torch.cuda.set_sync_debug_mode("default")
    taken, refused, _ = records(tmp_path)
    assert (taken["global_step"], taken["b"], taken["unserializable"]) == (3, [None], ["b"])
    assert ("global_step" in refused, refused["refused_step"]) == (False, "1.5")
