"""Trainings that are killed, stopped, damaged and resumed end as if nothing had happened, bit for bit."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from kharness.training.checkpoint import checkpoint_files, load
from monitoring import Record, read_records
from monitoring.journal.lineage import counting
from monitoring.telemetry.phases import PARTS, PHASES

from ..few_digits import environment_of
from ..warm_python import WarmPython

# What differs from one run to the next: when, how fast, where, and how often it was begun.
INCIDENTAL = frozenset(
    {
        *("time", "seq", "attempt", "checkpoint_path", "cpu_mem_rss_mb", "samples_per_sec", "sec_per_step"),
        "cpu_wait_seconds",
        *("epoch_seconds", "training_seconds", "training_cpu_seconds", *PHASES, *PARTS),
        *("gpu_mem_allocated", "gpu_mem_reserved"),  # null on a CPU
    }
)

# 72 steps: 12 epochs of 6 steps. Half of the images validate.
SHORT = (
    *("--dataset", "few-digits", "--batch-size", "10", "--num-epochs", "12"),
    *("--lenet5-validation-fraction", "0.5", "--seed", "7"),
)

Crash = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def crash(
    root: Path,
    few_digits: Path,
    train_command: Callable[..., list[str]],
    tmp_path: Path,
    warm_few: WarmPython,
) -> Crash:
    """Run crashes.py; returns what it did, word by word."""

    def run(plan: str, *flags: str, seed: int) -> list[dict[str, Any]]:
        _, train, *given = train_command(tmp_path, *SHORT, *flags, checkout=few_digits)
        script = root / "tests" / "lenet5" / "crashes.py"
        command = [script, train, tmp_path, seed, plan, *given[2:]]
        done = warm_few.run(command, env=environment_of(few_digits))
        logs = "".join(log.read_text() for log in sorted(tmp_path.glob("*.log")))
        assert done.returncode == 0, done.stderr + logs
        return [json.loads(line) for line in done.stdout.splitlines()]

    return run


def essence(run: Path) -> list[Record]:
    """Records of a run without incidental values and without checkpoints made on request."""
    records = counting(record for record, _ in read_records(run / "metrics.jsonl"))
    return [
        {name: value for name, value in record.items() if name not in INCIDENTAL}
        for record in records
        if record["event"] not in ("start", "gap")
        and not (record["event"] == "checkpoint" and record["reason"])
    ]


def assert_same_end(run: Path, whole: Path) -> None:
    """Records, weights and optimizer state are those of the undisturbed run."""
    for found, expected in zip(essence(run), essence(whole), strict=True):
        assert found == expected
    ours, theirs = (load(checkpoint_files(path / "checkpoints")[0]) for path in (run, whole))
    assert ours["model"].keys() == theirs["model"].keys()
    assert all(torch.equal(ours["model"][name], value) for name, value in theirs["model"].items())
    states = [state["optimizer"]["state"] for state in (ours, theirs)]
    assert states[0].keys() == states[1].keys() == set(range(10))
    for found, expected in zip(states[0].values(), states[1].values(), strict=True):
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], value) for name, value in expected.items())
    assert ours["optimizer"]["param_groups"] == theirs["optimizer"]["param_groups"]
    assert torch.equal(ours["rng"]["torch"], theirs["rng"]["torch"])


def runs(directory: Path) -> list[Path]:
    return sorted(path for path in directory.glob("run-*") if path.is_dir())


def test_sigkill_at_twenty_moments_changes_no_bit(crash: Crash, tmp_path: Path) -> None:
    said = crash("kill save " * 10, "--optimizer", "adamw", seed=1998)
    assert sum("exit_code" not in word for word in said) >= 20
    assert any(word.get("inside") for word in said), "none was killed in the middle of a save"
    for run in runs(tmp_path):
        assert_same_end(run, tmp_path / "whole")


def test_stopping_and_damage_change_no_bit_of_a_pruned_training(crash: Crash, tmp_path: Path) -> None:
    """SGD with momentum, pruned at random: masks and the generator that makes them come back as well."""
    flags = ("--optimizer", "sgd", "--pruning", "random", "--pruning-sparsity", "0.5", "--pruning-every", "4")
    said = crash("TERM USR1 damage TERM kill damage USR1", *flags, seed=5)
    ended = [word.get("exit_code") for word in said if word.get("exit_code") != 0]
    assert ended == [75, 75, None, 75, None, None, 75]
    assert any(word.get("damaged") for word in said)
    records = [r for run in runs(tmp_path) for r, _ in read_records(run / "metrics.jsonl")]
    assert [r["cause"] for r in records if r["event"] == "end" and r["status"] == "interrupted"] == [
        "stopped" for word in said if word.get("exit_code") == 75
    ]
    for run in runs(tmp_path):
        assert_same_end(run, tmp_path / "whole")


@pytest.mark.gpu
def test_on_a_gpu_neither_a_kill_nor_a_stop_changes_a_bit(crash: Callable[..., Any], tmp_path: Path) -> None:
    flags = ("--device", "cuda", "--deterministic", "--optimizer", "adamw", "--lenet5-shift", "2")
    crash("kill save TERM kill", *flags, seed=1998)
    for run in runs(tmp_path):
        assert_same_end(run, tmp_path / "whole")
