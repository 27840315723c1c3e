"""`python resnet50/train.py` with a small model: what it records, and that it resumes bit for bit."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from kharness.training.checkpoint import checkpoint_files, load
from monitoring import read_records

from ..warm_python import WarmPython

FIXED = ("--device", "cpu", "--num-threads", "1", "--tracker", "none", "--dataset", "digits")
SMALL = ("--resnet50-width", "4", "--resnet50-blocks", "1 1 1 1", "--resnet50-stem", "imagenet")
STEPS = ("--batch-size", "36", "--checkpoint-every-steps", "2", "--checkpoint-keep", "9")
TRAINED = ("--max-steps", "3", "--ema-decay", "0.9", "--resnet50-cutout", "8", "--resnet50-flip")
EVERYTHING = (*TRAINED, "--resnet50-latency-batches", "40 500", "--resnet50-predictions", "10")

Records = list[dict[str, Any]]
Train = Callable[..., Records]


@pytest.fixture(scope="module")
def train(root: Path, warm_torch: WarmPython) -> Train:
    """Run a training in a directory to its end; its records."""

    def run(directory: Path, *flags: str) -> Records:
        script = str(root / "resnet50" / "train.py")
        command = [script, "--run-dir", str(directory), *FIXED, *SMALL, *STEPS, *flags]
        done = warm_torch.run(command, cwd=directory.parent)
        assert (done.returncode, done.stderr) == (0, "")
        return [record for record, _ in read_records(directory / "metrics.jsonl")]

    return run


@pytest.fixture(scope="module")
def whole(train: Train, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Records]:
    """Three steps with everything on, with a checkpoint after the second; its directory and records."""
    directory = tmp_path_factory.mktemp("resnet50") / "whole"
    return directory, train(directory, *EVERYTHING)


def values(records: Records, name: str) -> list[Any]:
    found = [record[name] for record in records if name in record]
    assert found
    return found


def test_top_1_and_top_5_of_the_weights_and_of_their_average_are_recorded(
    whole: tuple[Path, Records],
) -> None:
    start, end = whole[1][0], whole[1][-1]
    assert (start["model"]["name"], start["schedule"]["name"]) == ("ResNet", "cosine")
    assert start["dataset"] == {"name": "digits", "train": 5400, "validation": 600, "test": 1000}
    assert start["chance_loss"] == pytest.approx(2.3026, abs=1e-3)
    validation, inference, test = (record for record in whole[1] if record["event"] == "eval")
    names = [f"{average}{name}" for average in ("", "ema_") for name in ("loss", "accuracy", "top5_accuracy")]
    assert inference["split"] == "inference"
    assert {f"val_{name}" for name in names} < validation.keys()
    assert {name: end[f"test_{name}"] for name in names} == {name: test[f"test_{name}"] for name in names}
    for average in ("", "ema_"):
        assert 0 < test[f"test_{average}accuracy"] < test[f"test_{average}top5_accuracy"] < 1
    assert test["test_ema_loss"] != test["test_loss"]
    assert (end["status"], end["steps_done"], end["best_val_loss"]) == ("complete", 3, validation["val_loss"])


def test_predictions_and_latency_are_recorded_after_training(whole: tuple[Path, Records]) -> None:
    (inference,) = (record for record in whole[1] if record.get("split") == "inference")
    assert inference["global_step"] == 3
    measured = {name for name in inference if name.startswith("batch_")}
    kinds = ("latency_seconds", "samples_per_sec", "accuracy")
    assert measured == {f"batch_{size}_{kind}" for size in (40, 500) for kind in kinds}
    assert len(inference["predictions"]) == 10
    assert inference["predictions"][0].keys() == {"label", "predicted", "probability"}
    assert (whole[0] / "predictions.png").read_bytes().startswith(b"\x89PNG")


def test_label_smoothing_is_a_part_of_the_training_loss(
    train: Train, whole: tuple[Path, Records], tmp_path: Path
) -> None:
    """The first loss is (1 - s) of the cross-entropy and s of its mean over classes, from the same weights.

    That mean is at least log 10, its value where all are equally likely.
    """
    plain = train(tmp_path / "plain", *TRAINED, "--max-steps", "1", "--resnet50-label-smoothing", "0")
    loss, smoothed = (values(records, "train_loss")[0] for records in (plain, whole[1]))
    assert smoothed > 0.9 * loss + 0.1 * math.log(10)
    assert smoothed == pytest.approx(loss, rel=0.1)


def test_a_stopped_training_resumes_bit_for_bit(
    train: Train, whole: tuple[Path, Records], tmp_path: Path
) -> None:
    """In another process, after step 2; also what augments the pictures, and the average of the weights."""
    directory, expected = tmp_path / "resumed", whole[1]
    shutil.copytree(whole[0], directory)
    for path in (directory / "checkpoints").glob("*step00000003*"):
        path.unlink()
    (saved,) = (i for i, r in enumerate(expected) if r["event"] == "checkpoint" and r["global_step"] == 2)
    lines = (directory / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (directory / "metrics.jsonl").write_bytes(b"".join(lines[: saved + 1]))  # as a crash after it leaves it

    found = train(directory, *EVERYTHING)
    assert [resumed and resumed["global_step"] for resumed in values(found, "resumed_from")] == [None, 2]
    for name in ("train_loss", "grad_norm", "val_loss", "val_ema_loss", "test_ema_loss", "model_sha256"):
        assert values(found, name) == values(expected, name)
    states = [load(checkpoint_files(path / "checkpoints")[0]) for path in (directory, whole[0])]
    assert states[0]["average"]["updates"] == 3
    for part in ("augmentation", "average"):
        assert str(states[0][part]) == str(states[1][part])


def test_samples_of_a_step_are_shown_with_their_loss(
    whole: tuple[Path, Records], tmp_path: Path, root: Path, warm_torch: WarmPython
) -> None:
    """`make inspect-batch` shows the samples also where pictures are flipped and cropped at random."""
    run = shutil.copytree(whole[0], tmp_path / "run")
    command = [str(root / "resnet50" / "train.py"), "--run-dir", str(run), "--inspect-step", "2"]
    done = warm_torch.run(command, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    rows = [line.split() for line in done.stdout.splitlines() if line[:5].strip().isdecimal()]
    assert [row[0] for row in rows] == [str(place) for place in range(1, 37)]
    assert all(0 < float(row[3]) < 10 for row in rows)
    assert (run / "inspected" / "step00000002.png").is_file()


def test_a_training_without_an_average_keeps_none(train: Train, tmp_path: Path) -> None:
    records = train(tmp_path / "run", "--max-steps", "1")
    state = load(checkpoint_files(tmp_path / "run" / "checkpoints")[0])
    assert "average" not in state["parts"]
    assert not any(name.startswith("val_ema") for record in records for name in record)


def test_the_average_of_a_pruned_model_is_pruned_alike(train: Train, tmp_path: Path) -> None:
    """It followed the weights, in which pruned ones would only fade: dense beside a sparsity of 0.9."""
    pruning = ("--pruning", "magnitude", "--pruning-sparsity", "0.9", "--pruning-every", "1")
    records = train(tmp_path / "run", *TRAINED, *pruning)
    assert records[-1]["sparsity"] == pytest.approx(0.9, abs=1e-4)
    state = load(checkpoint_files(tmp_path / "run" / "checkpoints")[0])
    average = state["average"]["model"]
    for name, pruned in state["pruning"]["pruned"].items():
        assert torch.equal(average[name] == 0, pruned), name


def test_micro_batches_of_all_samples_change_nothing_and_parts_have_their_own_batch_norm(
    train: Train, tmp_path: Path, whole: tuple[Path, Records]
) -> None:
    """Batch norm's statistics are those of each part, so losses differ from the entire batch's."""
    one = train(tmp_path / "one", *TRAINED, "--micro-batch-size", "36")
    assert values(one, "model_sha256") == values(whole[1], "model_sha256")
    parts = train(tmp_path / "parts", "--max-steps", "1", "--micro-batch-size", "12")
    assert [record["batch_size"] for record in parts if record["event"] == "start"] == [36]
    (step,) = (record for record in parts if record["event"] == "step")
    first = next(record for record in whole[1] if record["event"] == "step")
    assert step["train_loss"] != first["train_loss"]
    assert step["train_loss"] == pytest.approx(first["train_loss"], rel=0.2)
