"""`python gpt2/train.py` as a process: what it records, and that it resumes bit for bit."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kharness.training.datasets import DATASETS
from kharness.training.datasets._files import Sources
from kharness.training.tokens.tokenizers import GPT2_SHA256, ByteTokenizer
from monitoring import read_records

from ..warm_python import WarmPython

SMALL = ("--gpt2-layers", "1", "--gpt2-width", "16", "--gpt2-block-size", "512", "--batch-size", "4")
FIXED = ("--device", "cpu", "--num-threads", "1", "--tracker", "none", "--max-steps", "3")


@pytest.fixture
def train(tmp_path: Path, root: Path, warm_torch: WarmPython) -> Callable[..., list[dict[str, Any]]]:
    """Run a training to its end in tmp_path / name; its records."""

    def run(name: str, *flags: str) -> list[dict[str, Any]]:
        command = [str(root / "gpt2" / "train.py"), "--run-dir", str(tmp_path / name), *FIXED, *SMALL, *flags]
        done = warm_torch.run(command, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        return [record for record, _ in read_records(tmp_path / name / "metrics.jsonl")]

    return run


def test_a_training_records_loss_and_perplexity(train: Callable[..., list[dict[str, Any]]]) -> None:
    records = train("run")
    first, last = (record for record in records if record["event"] == "eval")
    assert (first["global_step"], last["global_step"]) == (0, 3)
    assert last["val_perplexity"] == math.exp(last["val_loss"])
    assert 5 < last["val_loss"] < first["val_loss"] < math.log(256) + 0.1
    start, end = records[0], records[-1]
    assert (start["model"]["name"], start["dataset"]["name"]) == ("GPT2", "pydoc-topics")
    assert (end["status"], end["steps_done"], end["best_val_loss"]) == ("complete", 3, last["val_loss"])
    assert (start["tokens_per_sample"], end["tokens_seen"]) == (512, 3 * 4 * 512)


def test_a_run_is_never_resumed_with_another_tokenizer(
    train: Callable[..., list[dict[str, Any]]], root: Path, tmp_path: Path, warm_torch: WarmPython
) -> None:
    """Nor where the same options find it: `auto` is bytes until GPT-2's tokens are prepared."""
    (tmp_path / "text").write_text("A text of some length. " * 4000)
    text, data = str(tmp_path / "text"), str(tmp_path / "data")

    def prepare(tokenizer: str) -> None:
        config = {"DATA_DIR": data, "DATASET_TEXT_PATH": text, "TOKENIZER": tokenizer}
        DATASETS.load("text").fetch(DATASETS.options("text", config), root, Sources(say=lambda _: None))

    prepare("bytes")
    start = train("run", "--dataset", "text", "--data-dir", data, "--dataset-text-path", text)[0]
    assert start["tokenizer_sha256"] == ByteTokenizer().sha256
    prepare("gpt2")
    command = [str(root / "gpt2" / "train.py"), "--run-dir", str(tmp_path / "run")]
    done = warm_torch.run(command, cwd=tmp_path)
    error, hint = done.stderr.splitlines()
    assert done.returncode == 2
    before, now = ByteTokenizer().sha256[:16], GPT2_SHA256[:16]
    assert f"was trained with the tokenizer, SHA-256 {before}… (now {now}…), the data, SHA-256 " in error
    assert hint == "hint: --from-scratch begins with what is requested now; what is there stays"
