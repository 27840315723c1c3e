"""`python gpt2/train.py` as a process: what it records, and that it resumes bit for bit."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kharness.config.options import parse
from kharness.training.datasets import DATASETS
from kharness.training.datasets._files import Sources
from kharness.training.tokens.tokenizers import GPT2_SHA256, ByteTokenizer
from monitoring import read_records
from monitoring.journal.lineage import counting

from ..made_once import made_once
from ..warm_python import WarmPython

SMALL = ("--gpt2-layers", "1", "--gpt2-width", "16", "--gpt2-block-size", "64", "--batch-size", "4")
FIXED = (
    "--device",
    "cpu",
    "--num-threads",
    "1",
    "--tracker",
    "none",
    "--max-steps",
    "3",
    "--gpt2-sample-tokens",
    "5",
)


@pytest.fixture
def train(tmp_path: Path, root: Path, warm_torch: WarmPython) -> Callable[..., list[dict[str, Any]]]:
    """Run a training to its end in tmp_path / name; its records."""

    def run(name: str, *flags: str) -> list[dict[str, Any]]:
        given = () if (tmp_path / name).exists() else (*FIXED, *SMALL, *flags)
        command = [str(root / "gpt2" / "train.py"), "--run-dir", str(tmp_path / name), *given]
        done = warm_torch.run(command, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        return records_of(tmp_path / name)

    return run


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory, root: Path, warm_torch: WarmPython) -> Path:
    """The run directory of one that several tests look at, which all workers read."""

    def run(folder: Path) -> None:
        command = [root / "gpt2" / "train.py", "--run-dir", folder / "run", *FIXED, *SMALL]
        done = warm_torch.run(command, cwd=folder)
        assert (done.returncode, done.stderr) == (0, "")

    return made_once(tmp_path_factory, "gpt2-trained", run) / "run"


def records_of(directory: Path) -> list[dict[str, Any]]:
    return [record for record, _ in read_records(directory / "metrics.jsonl")]


def test_a_training_records_loss_and_perplexity(trained: Path) -> None:
    records = records_of(trained)
    first, last = (record for record in records if record["event"] == "eval")
    assert (first["global_step"], last["global_step"]) == (0, 3)
    assert last["val_perplexity"] == math.exp(last["val_loss"])
    assert 5 < last["val_loss"] < first["val_loss"] < math.log(256) + 0.1
    start, end = records[0], records[-1]
    assert (start["model"]["name"], start["dataset"]["name"]) == ("GPT2", "pydoc-topics")
    assert (end["status"], end["steps_done"], end["best_val_loss"]) == ("complete", 3, last["val_loss"])
    assert 3 < start["chance_loss"] < 3.5  # of the bytes of English text
    assert (start["tokens_per_sample"], end["tokens_seen"]) == (64, 3 * 4 * 64)


def test_samples_of_a_step_are_shown_with_their_loss(
    trained: Path, tmp_path: Path, root: Path, warm_torch: WarmPython
) -> None:
    """`make inspect-batch` lists the samples of a step; their mean loss is the one that the journal has."""
    records = records_of(trained)
    assert records[0]["config"]["GPT2_DROPOUT"] == 0
    copy = shutil.copytree(trained, tmp_path / "run")
    command = [root / "gpt2" / "train.py", "--run-dir", copy, "--inspect-step", "1"]
    done = warm_torch.run(command, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    rows = [line.split(maxsplit=4) for line in done.stdout.splitlines() if line[:5].strip().isdecimal()]
    assert [row[0] for row in rows] == ["1", "2", "3", "4"]
    assert all(row[4][0] in "'\"" for row in rows), "each with its text"
    [loss] = [
        record["train_loss"]
        for record in records
        if record.get("global_step") == 1 and record["event"] == "step"
    ]
    assert sum(float(row[3]) for row in rows) / 4 == pytest.approx(loss, abs=1e-4)


def test_a_killed_run_resumes_bit_for_bit(train: Callable[..., list[dict[str, Any]]], tmp_path: Path) -> None:
    """A run killed after its second step continues from that checkpoint to the same numbers."""
    flags = ("--gpt2-dropout", "0.1", "--gpt2-recipe", "modern", "--amp", "bf16")
    whole = train(
        "whole", *flags, "--checkpoint-every", "2", "--eval-interval", "2", "--micro-batch-size", "3"
    )
    killed = shutil.copytree(tmp_path / "whole", tmp_path / "killed")
    for path in killed.glob("checkpoints/*step00000003*"):
        path.unlink()
    lines = (killed / "metrics.jsonl").read_text().splitlines(keepends=True)
    saved = next(n for n, record in enumerate(whole, 1) if record["event"] == "checkpoint")
    (killed / "metrics.jsonl").write_text("".join(lines[:saved]))
    again = train("killed")
    assert again[saved]["resumed_from"]["global_step"] == 2
    evaluations = [
        [(r["global_step"], r["val_loss"]) for r in counting(records) if r["event"] in ("eval", "epoch")]
        for records in (whole, again)
    ]
    assert [step for step, _ in evaluations[0]] == [0, 2, 3, 3]
    assert evaluations[1] == evaluations[0], "that of the checkpoint's step is not made again"
    for event, names in {
        "checkpoint": ("global_step", "model_sha256", "optimizer_sha256"),
        "end": ("best_val_loss", "samples", "tokens_seen"),
    }.items():
        old, new = ([r for r in records if r["event"] == event][-1] for records in (whole, again))
        assert [new[name] for name in names] == [old[name] for name in names]
    assert len(whole[-1]["samples"][0].encode(errors="replace")) >= 6


def test_micro_batches_give_the_update_of_the_batch(
    train: Callable[..., list[dict[str, Any]]], trained: Path
) -> None:
    """Also where the last one is smaller; but for rounding."""
    whole, parts = records_of(trained), train("parts", "--micro-batch-size", "3")
    steps = [[record for record in records if record["event"] == "step"] for records in (whole, parts)]
    for name in ("train_loss", "grad_norm"):
        found = [[step[name] for step in run] for run in steps]
        assert found[1] == pytest.approx(found[0], rel=1e-5)
    ends = [[r["model_sha256"] for r in run if r["event"] == "checkpoint"][-1] for run in (whole, parts)]
    assert ends[0] != ends[1], "the sums were not rounded at other places"


def test_the_documented_command_is_understood(root: Path) -> None:
    """docs: python gpt2/train.py --dataset finewebedu --tracker wandb --tracker-project my-experiments …"""
    argv = ["--dataset", "finewebedu", "--optimizer", "adamwspam", "--tracker", "wandb"]
    argv += ["--tracker-project", "my-experiments", "--tracker-run-name", "experiment-1"]
    options, _ = parse(argv, root=root, model="gpt2", prog="", description="")
    names = (
        "GPT2_SIZE",
        "EVAL_SAMPLES",
        "EVAL_BATCH_SIZE",
        "GPT2_BLOCK_SIZE",
        "ENABLE_WANDB",
        "TRACKER_PROJECT",
    )
    assert [options.values[name] for name in names] == ["124m", 200, 64, 1024, True, "my-experiments"]


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


def test_two_processes_share_steps_and_validation(
    train: Callable[..., list[dict[str, Any]]], trained: Path
) -> None:
    one, two = (
        {
            (record["event"], record["global_step"]): record.get("val_loss", record.get("train_loss"))
            for record in records
            if record["event"] in ("step", "eval")
        }
        for records in (records_of(trained), train("two", "--num-gpus", "2", "--micro-batch-size", "1"))
    )
    assert list(two) == list(one)
    assert two == pytest.approx(one, rel=1e-5)


def test_a_compiled_model_trains_as_the_one_that_it_was_traced_from(
    trained: Path, root: Path, tmp_path: Path, warm_torch: WarmPython
) -> None:
    """Without a C++ compiler: the graph's operations one by one. Torch's own log says what was traced.

    For steps, and for evaluations by batches of two sizes; not for the text that it writes in the end.
    """
    plain = records_of(trained)
    flags = ("--compile", "--compile-backend", "aot_eager", "--dep-log-level", "info")
    command = [root / "gpt2/train.py", "--run-dir", tmp_path / "compiled", *FIXED, *SMALL, *flags]
    done = warm_torch.run(command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("torchdynamo start tracing") == 3
    compiled = records_of(tmp_path / "compiled")
    names = ("train_loss", "grad_norm", "val_loss")
    found, wanted = (
        [
            record[name]
            for record in records
            if record["event"] in ("step", "eval")
            for name in names
            if name in record
        ]
        for records in (compiled, plain)
    )
    assert len(wanted) == 2 * 3 + 2
    assert found == pytest.approx(wanted, rel=1e-5)
