"""The examples of docs/change-the-training.md: recorded, resumed bit for bit, in two processes as in one."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

from kharness.training.checkpoint import checkpoint_files, load

from ....warm_python import StartedPython, WarmPython
from .ranks import ends, steps

FLAGS = (
    *("--batch-size", "7", "--num-epochs", "1", "--device", "cpu", "--tracker", "none", "--log-every", "1"),
    *("--learning-rate", "0.05", "--schedule", "constant", "--optimizer", "sgd", "--micro-batch-size", "3"),
    *("--no-eval-first", "--gpt2-sample-tokens", "0", "--ddp-find-unused"),
)
OWN = {"record": {"entropy"}, "auxiliary": {"aux_loss"}, "discriminator": {"critic_loss"}}
UNNEEDED = re.compile(r"\[rank\d\].*find_unused_parameters=True was specified.*\n")
"""Torch's warning where the forward pass used all parameters; in some examples it does not."""


def trained(run: Path) -> dict[str, Any]:
    state: dict[str, Any] = load(checkpoint_files(run / "checkpoints")[0])
    return state


def test_two_processes_train_as_one_does_and_a_stopped_training_goes_on(
    root: Path, tmp_path: Path, warm_torch: WarmPython
) -> None:
    def start(name: str, **env: str) -> StartedPython:
        return warm_torch.start(
            [root / "tests/data/changed/train.py", tmp_path / name, *FLAGS],
            env={**os.environ, **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    ranks = {
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "KHARNESS_RENDEZVOUS_FILE": str(tmp_path / "meeting-"),
    }
    two = [start("two", **ranks, RANK=rank, LOCAL_RANK=rank) for rank in "01"]
    one, stopped = start("one"), start("stopped", STOP="2")
    found = [(code, UNNEEDED.sub("", text)) for code, text in ends([*two, one])]
    assert found == [(0, "")] * 3
    assert [code for code, _ in ends([stopped])] == [0]
    assert ends([start("stopped")]) == [(0, "")]
    names = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert {*OWN, "step", "pcgrad"} < set(names)
    for name in names:
        runs = [tmp_path / kind / name for kind in ("one", "two", "stopped")]
        of_one, of_two, of_stopped = ({s["global_step"]: s for s in steps(r / "metrics.jsonl")} for r in runs)
        assert list(of_one) == list(range(1, 6))
        for step, record in of_one.items():
            for metric in ("train_loss", "grad_norm", *OWN.get(name, ())):
                assert of_two[step][metric] == pytest.approx(record[metric], rel=1e-12), (name, metric)
                assert of_stopped[step][metric] == record[metric], (name, metric)
        states = [trained(run)["model"] for run in runs]
        for key, weight in states[0].items():
            torch.testing.assert_close(states[1][key], weight, rtol=1e-12, atol=1e-14)
            assert torch.equal(states[2][key], weight), (name, key)
