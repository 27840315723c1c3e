"""The examples of docs/change-the-training.md: recorded, resumed bit for bit, in two processes as in one."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from kharness.training.checkpoint import checkpoint_files, load

from ....warm_python import StartedPython, WarmPython
from .ranks import ends, steps

EXAMPLES = re.findall(
    r"^```python\n# (\w+)\n",
    (Path(__file__).resolve().parents[4] / "docs/change-the-training.md").read_text(),
    flags=re.M,
)
FLAGS = (
    *("--batch-size", "7", "--num-epochs", "2", "--device", "cpu", "--tracker", "none", "--log-every", "1"),
    *("--learning-rate", "0.05", "--schedule", "constant", "--optimizer", "sgd", "--micro-batch-size", "3"),
    *("--ddp-find-unused", "--no-eval-first", "--gpt2-sample-tokens", "0"),
)
OWN = {"record": {"entropy"}, "auxiliary": {"aux_loss"}, "discriminator": {"critic_loss"}}

Started = Callable[..., list[StartedPython]]


@pytest.fixture
def start(root: Path, tmp_path: Path, warm_torch: WarmPython) -> Started:
    """Start the ranks of an example in a run directory."""
    meetings: list[Path] = []

    def started(run: Path, size: int, *flags: str, **env: str) -> list[StartedPython]:
        meetings.append(tmp_path / f"meeting{len(meetings)}")
        ranks = {"WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size)} if size > 1 else {}
        meeting = {"KHARNESS_RENDEZVOUS_FILE": str(meetings[-1])} if size > 1 else {}
        return [
            warm_torch.start(
                [
                    root / "tests/data/changed/train.py",
                    *("--run-dir", run, *([] if (run / ".config").exists() else (*FLAGS, *flags))),
                ],
                env={
                    "PATH": "/usr/bin:/bin",
                    **ranks,
                    **meeting,
                    **env,
                    **({"RANK": str(rank), "LOCAL_RANK": str(rank)} if size > 1 else {}),
                },
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            for rank in range(size)
        ]

    return started


def trained(run: Path) -> dict[str, Any]:
    state: dict[str, Any] = load(checkpoint_files(run / "checkpoints")[0])
    return state


@pytest.mark.parametrize("example", EXAMPLES)
def test_two_processes_train_as_one_does_and_a_stopped_training_goes_on(
    start: Started, tmp_path: Path, example: str
) -> None:
    runs = {name: tmp_path / name for name in ("one", "two", "stopped")}
    started = [
        start(runs["one"], 1, EXAMPLE=example),
        start(runs["two"], 2, EXAMPLE=example),
        start(runs["stopped"], 1, EXAMPLE=example, STOP="4"),
    ]
    assert [ends(ranks) for ranks in started[:2]] == [[(0, "")], [(0, "")] * 2]
    assert [code for code, _ in ends(started[2])] == [75]
    assert ends(start(runs["stopped"], 1, EXAMPLE=example)) == [(0, "")]
    one, two, stopped = ({s["global_step"]: s for s in steps(run / "metrics.jsonl")} for run in runs.values())
    assert list(one) == list(range(1, 11))
    own = OWN.get(example, set())
    for step, record in one.items():
        for name in ("train_loss", "grad_norm", *own):
            assert two[step][name] == pytest.approx(record[name], rel=1e-12)
            assert stopped[step][name] == record[name]
    states = [trained(run) for run in runs.values()]
    for name, weight in states[0]["model"].items():
        torch.testing.assert_close(states[1]["model"][name], weight, rtol=1e-12, atol=1e-14)
        assert torch.equal(states[2]["model"][name], weight)
