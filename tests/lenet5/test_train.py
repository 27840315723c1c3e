"""`python lenet5/train.py` as a process: what it records, how it stops, what it refuses."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from kharness.training.checkpoint import checkpoint_files, load
from monitoring import read_records
from monitoring.journal.records import last_record

from ..few_digits import environment_of
from ..warm_python import WarmPython
from .conftest import Trained

Train = Callable[..., Trained]

LAYERS = ("conv1", "conv2", "fc1", "fc2", "fc3")
STEP_FIELDS = {
    *("event", "time", "seq", "attempt", "global_step", "train_loss", "lr", "grad_norm", "samples_per_sec"),
    *("sec_per_step", "cpu_wait_seconds", "data_seconds", "forward_backward_seconds", "optimizer_seconds"),
    *("forward_seconds", "backward_seconds"),
    *("gpu_mem_allocated", "gpu_mem_reserved", "cpu_mem_rss_mb", "nan_inf_detected"),
}


def test_a_short_training_is_recorded_whole(train: Train) -> None:
    done = train("--num-epochs", "2", "--batch-size", "900", "--optimizer", "adamw", "--seed", "5")
    assert (done.code, done.err) == (0, "")
    (start,) = done.records("start")
    assert {
        key: start[key] for key in ("num_steps", "num_epochs", "steps_per_epoch", "batch_size", "seed")
    } == {
        "num_steps": 12,
        "num_epochs": 2,
        "steps_per_epoch": 6,
        "batch_size": 900,
        "seed": 5,
    }
    assert start["optimizer"] == {
        "name": "adamw",
        "learning_rate": 0.003,
        "betas": [0.9, 0.999],
        "eps": 1e-08,
        "weight_decay": 0.01,
        "groups": [
            {
                "names": [f"{layer}.weight" for layer in LAYERS],
                "count": 150 + 2400 + 48000 + 10080 + 840,
                "weight_decay": 0.01,
                "learning_rate": 0.003,
            },
            {
                "names": [f"{layer}.bias" for layer in LAYERS],
                "count": 6 + 16 + 120 + 84 + 10,
                "weight_decay": 0.0,
                "learning_rate": 0.003,
            },
        ],
    }
    assert start["schedule"] == {"name": "onecycle", "peak": 0.003, "num_steps": 12, "warmup_fraction": 0.3}
    assert (start["model"]["name"], start["model"]["parameters"]) == ("LeNet5", 61706)
    assert start["model"]["size_mb"] == 61706 * 4 / 1e6
    assert start["dataset"] == {"name": "mnist-subset", "train": 5400, "validation": 600, "test": 1000}

    assert start["chance_loss"] == pytest.approx(2.3026, abs=1e-3)

    steps = done.records("step")
    assert [step["global_step"] for step in steps] == list(range(1, 13))
    assert all(step.keys() == STEP_FIELDS for step in steps)
    assert all(step["gpu_mem_allocated"] is None for step in steps)
    phases = ("data_seconds", "forward_backward_seconds", "optimizer_seconds")
    assert all(0 < sum(step[name] for name in phases) < step["sec_per_step"] for step in steps)
    assert all(step["samples_per_sec"] * step["sec_per_step"] == pytest.approx(900) for step in steps)

    epochs, evals = done.records("epoch"), done.records("eval")
    assert [(epoch["epoch"], epoch["global_step"]) for epoch in epochs] == [(1, 6), (2, 12)]
    losses = [step["train_loss"] for step in steps]
    assert [epoch["train_loss"] for epoch in epochs] == pytest.approx(
        [sum(losses[:6]) / 6, sum(losses[6:]) / 6], rel=1e-5
    )
    assert [(record["split"], record["global_step"]) for record in evals] == [
        ("val", 6),
        ("val", 12),
        ("test", 12),
    ]
    assert [record["global_step"] for record in done.records("checkpoint")] == [6, 12]

    (end,) = done.records("end")
    assert (end["status"], end["steps_done"]) == ("complete", 12)
    assert end["test_accuracy"] == evals[-1]["test_accuracy"]
    assert end["best_val_loss"] == min(epoch["val_loss"] for epoch in epochs)
    assert end["best_val_accuracy"] == max(epoch["val_accuracy"] for epoch in epochs)
    assert end["training_seconds"] > 0
    assert end["training_cpu_seconds"] > 0


def test_seed_decides_every_loss_to_the_bit(
    train_command: Callable[..., list[str]], few_digits: Path, tmp_path: Path, warm_few: WarmPython
) -> None:
    """Two runs of one name and different seeds, and the first of them begun anew in its directory."""
    flags = ("--max-steps", "12", "--batch-size", "10", "--tracker-run-name", "digits")
    about = ("--dataset", "few-digits", *flags, "--seed")
    commands = [train_command(tmp_path, *about, seed, checkout=few_digits) for seed in ("3", "4")]
    commands.append([*commands[0][:2], "--run-dir", str(tmp_path / "digits"), "--from-scratch"])
    for command in commands:
        warm_few.run(command[1:], env=environment_of(few_digits)).check_returncode()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["digits", "digits_2", "latest"]

    records = [record for record, _ in read_records(tmp_path / "digits" / "metrics.jsonl")]
    other = [record for record, _ in read_records(tmp_path / "digits_2" / "metrics.jsonl")]
    first, again = ([r for r in records if r["attempt"] == attempt] for attempt in (1, 2))
    assert (first[0]["config"], first[0]["seed"]) == (again[0]["config"], 3)
    assert values(first, "train_loss") == values(again, "train_loss")
    assert values(first, "val_loss") == values(again, "val_loss")
    assert values(first, "test_loss") == values(again, "test_loss")
    pairs = zip(values(first, "train_loss"), values(other, "train_loss"), strict=True)
    assert all(a != b for a, b in pairs)

    names = [path.name[:22] for path in checkpoint_files(tmp_path / "digits" / "checkpoints")]
    assert names == [f"attempt{attempt}-step000000{step}" for attempt in ("02", "01") for step in (12, 11)]


def values(records: list[dict[str, Any]], name: str) -> list[float]:
    """A metric that is never missing for lack of a value."""
    found = [record[name] for record in records if name in record]
    assert found
    return found


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_every_optimizer_learns_digits_in_two_epochs(train: Train, optimizer: str) -> None:
    (end,) = train("--num-epochs", "2", "--optimizer", optimizer).records("end")
    assert end["best_val_accuracy"] > 0.95
    assert end["test_accuracy"] > 0.95


def test_log_every_thins_the_steps_and_keeps_the_last(train: Train) -> None:
    done = train("--max-steps", "7", "--batch-size", "200", "--log-every", "3", "--checkpoint-every", "0")
    assert [step["global_step"] for step in done.records("step")] == [3, 6, 7]
    assert [record["global_step"] for record in done.records("checkpoint")] == [7]


@pytest.mark.parametrize(
    ("flags", "steps"),
    [
        (("--logging-first-step", "--log-every", "5"), [1, 5, 10, 12]),
        (("--logging-strategy", "epoch", "--log-every", "5"), [6, 12]),
        (("--logging-strategy", "no"), []),
    ],
)
def test_logging_options_say_which_steps_have_records(
    train_few: Train, flags: tuple[str, ...], steps: list[int]
) -> None:
    short = ("--batch-size", "18", "--num-epochs", "2", "--checkpoint-every", "0")
    done = train_few(*short, *flags)
    assert [step["global_step"] for step in done.records("step")] == steps
    assert [epoch["global_step"] for epoch in done.records("epoch")] == [6, 12]


def wait_for_steps(results: Path, count: int) -> Path:
    """The run's directory, once its journal has that many steps."""
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        for directory in results.glob("lenet5_*"):
            records = read_records(directory / "metrics.jsonl")
            if sum(record["event"] == "step" for record, _ in records) >= count:
                return directory
        time.sleep(0.02)
    raise AssertionError("the training wrote no steps")


@pytest.fixture
def long_training(
    train_command: Callable[..., list[str]], tmp_path: Path, warm_torch: WarmPython
) -> Iterator[Any]:
    """A training under way that would take minutes."""
    command = train_command(tmp_path / "results", "--num-epochs", "1000")
    with warm_torch.start(
        command[1:], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        yield process
        process.kill()


def test_ctrl_c_stops_after_the_step_with_everything_saved(
    long_training: subprocess.Popen[str], tmp_path: Path
) -> None:
    directory = wait_for_steps(tmp_path / "results", 5)
    long_training.send_signal(signal.SIGINT)
    out, err = long_training.communicate()
    assert long_training.returncode == 75
    assert err == "\nSIGINT: stopping after this step\n"

    records = [record for record, _ in read_records(directory / "metrics.jsonl")]
    last = max(int(str(record["global_step"])) for record in records if record["event"] == "step")
    end = records[-1]
    assert [end[key] for key in ("event", "status", "reason", "steps_done")] == [
        *("end", "interrupted", "SIGINT", last)
    ]
    assert out.endswith(f"stopped by SIGINT after step {last}; everything is saved\n")
    newest = checkpoint_files(directory / "checkpoints")[0]
    state = load(newest)
    assert state["global_step"] == last
    assert state["data"] == {"epoch": last // 85, "position": last % 85}
    (saved,) = (r for r in records if r["event"] == "checkpoint" and r["global_step"] == last)
    assert saved["checkpoint_path"] == str(newest)
    assert saved["seq"] == state["journal_seq"] + 1


def test_second_ctrl_c_ends_at_once(long_training: subprocess.Popen[str], tmp_path: Path) -> None:
    directory = wait_for_steps(tmp_path / "results", 1)
    long_training.send_signal(signal.SIGINT)
    long_training.send_signal(signal.SIGINT)
    long_training.wait()
    # the second may come when the first has stopped it already, or while the interpreter is leaving
    assert long_training.returncode in (75, 130, -signal.SIGINT)
    *_, (end, _) = read_records(directory / "metrics.jsonl")
    assert (end["event"], end["status"]) == ("end", "interrupted")


def test_loss_that_is_no_number_stops_before_the_step(train: Train) -> None:
    done = train("--learning-rate", "1e20", "--max-steps", "50")
    assert done.code == 65
    first, second = done.err.splitlines()
    assert first.startswith("error: step 2: loss ")
    assert (
        second
        == "hint: lower LEARNING_RATE or raise SCHEDULE_WARMUP_FRACTION; earlier checkpoints are intact"
    )
    last = done.records("step")[-1]
    assert (last["global_step"], last["nan_inf_detected"], last["train_loss"]) == (2, True, None)
    (end,) = done.records("end")
    assert (end["status"], end["error"].split(":")[0]) == ("failed", "NonFiniteError")
    assert done.records("checkpoint") == []


@pytest.mark.parametrize(
    ("flags", "error", "hint"),
    [
        (
            ["--dataset", "mnist", "--data-dir", "/nonexistent"],
            "/nonexistent/mnist/train-images-idx3-ubyte.gz does not exist",
            "make data fetches it; DATASET=mnist-subset needs no download",
        ),
        (
            ["--optimizer-sgd-momentum", "0"],
            "OPTIMIZER_SGD_NESTEROV=y needs OPTIMIZER_SGD_MOMENTUM above 0",
            "set OPTIMIZER_SGD_NESTEROV=n for plain SGD",
        ),
        (
            ["--batch-size", "5401"],
            "BATCH_SIZE=5401 is larger than the training set of 5400 samples",
            "choose BATCH_SIZE of at most 5400",
        ),
        pytest.param(
            ["--device", "cuda"],
            f"DEVICE=cuda: torch {torch.__version__} is a build without GPU support",
            "train with DEVICE=auto or DEVICE=cpu, or use an environment with a GPU build of torch: "
            "make PYTHON=/path/to/python VENV=",
            marks=pytest.mark.skipif(
                torch.version.cuda is not None or torch.version.hip is not None, reason="a GPU build of torch"
            ),
        ),
    ],
    ids=["mnist", "nesterov", "batch", "cuda"],
)
def test_refusal_is_two_lines_and_leaves_nothing(
    train: Train, flags: list[str], error: str, hint: str
) -> None:
    done = train(*flags)
    assert (done.code, done.err) == (2, f"error: {error}\nhint: {hint}\n")
    assert not done.results.exists()


@pytest.mark.parametrize(
    ("flags", "code", "said"),
    [
        (["--no-such"], 2, "error: unrecognized arguments: --no-such\n"),
        (["--optimizer", "adamx"], 2, "OPTIMIZER=adamx is not one of adafactor, adam, adamw, adamwadv, "),
        (["--help"], 0, "usage: lenet5/train.py [flags]\n"),
    ],
)
def test_what_is_wrong_with_flags_is_said_before_torch_is_imported(
    root: Path, flags: list[str], code: int, said: str
) -> None:
    command = [sys.executable, "-X", "importtime", str(root / "lenet5" / "train.py"), *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if "|" in line}
    assert (done.returncode, said in done.stdout + done.stderr) == (code, True)
    assert "kharness.config.options" in imported
    assert {"torch", "numpy", "kharness.training"} & imported == set()


def test_a_new_run_directory_is_begun_and_then_complete(
    train_command: Callable[..., list[str]], tmp_path: Path, warm_torch: WarmPython
) -> None:
    new = tmp_path / "runs" / "new"
    flags = ["--run-dir", str(new), "--max-steps", "2"]
    command = train_command(tmp_path / "results", *flags)
    first = warm_torch.run(command[1:], cwd=tmp_path)
    assert (first.returncode, first.stderr) == (0, "")
    assert "\n[telemetry] run_name=" in first.stdout
    assert "[telemetry] Logging to runs/new/metrics.jsonl (and metrics.csv)\n" in first.stdout
    assert first.stdout.count("runs/new") == 1
    assert not (tmp_path / "results").exists()
    again = warm_torch.run([command[1], "--run-dir", new], cwd=tmp_path)
    assert (again.returncode, again.stderr) == (0, "")
    assert f"configuration: {new}/.config\n" in again.stdout
    assert f"{new} is complete" in again.stdout


def test_damaged_subset_is_refused(train: Train, root: Path, tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    shutil.copytree(root / "lenet5", checkout / "lenet5")
    for kconfig in [root / "Kconfig", *root.glob("*/Kconfig"), *root.glob("lib/**/Kconfig")]:
        copy = checkout / kconfig.relative_to(root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(kconfig, copy)
    images = checkout / "lenet5" / "mnist-subset" / "train-images-idx3-ubyte.gz"
    images.write_bytes((checkout / "lenet5" / "mnist-subset" / "t10k-images-idx3-ubyte.gz").read_bytes())
    done = train(checkout=checkout)
    assert done.code == 2
    assert done.err == (
        f"error: {images} is damaged: its content has SHA-256 1c611c12adc0b0f1…, not 3b9888723f9fcf2c…\n"
        "hint: git checkout -- lenet5/mnist-subset brings it back\n"
    )


def test_output_that_nobody_reads_stops_no_training(
    train_command: Any, tmp_path: Path, warm_torch: WarmPython
) -> None:
    read, write = os.pipe()
    os.close(read)
    command = train_command(tmp_path, "--max-steps", "3")
    done = warm_torch.run(command[1:], stdout=write)
    os.close(write)
    [journal] = tmp_path.glob("lenet5_*/metrics.jsonl")
    end = last_record(journal)
    assert end is not None
    assert (done.returncode, end["event"], end["status"]) == (0, "end", "complete")
