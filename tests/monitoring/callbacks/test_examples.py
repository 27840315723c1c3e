"""The examples of docs/callbacks.md, run as they are written, and what their journals hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from monitoring import read_records
from tests.monitoring.conftest import RunProgram
from tests.warm_python import WarmPython

from .conftest import example, launch


def records(results: Path, name: str) -> list[dict[str, Any]]:
    return [dict(record) for record, _ in read_records(results / "results" / name / "metrics.jsonl")]


def events(found: list[dict[str, Any]]) -> list[tuple[object, object]]:
    return [(record["event"], record.get("global_step")) for record in found]


def steps(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [record for record in found if record["event"] == "step"]


def test_hugging_face(root: Path, results: Path, run_program: RunProgram) -> None:
    run_program(example(root, "hugging_face.py"))
    found = records(results, "first")
    assert events(found) == [
        ("start", None),
        *[("step", 1), ("step", 2), ("checkpoint", 2), ("step", 3), ("step", 4), ("checkpoint", 4)],
        *[("epoch", 4), ("eval", 4), ("end", None)],
    ]
    start, end = found[0], found[-1]
    assert start["model"] == {
        "name": "gpt2",
        "architecture": "GPT2LMHeadModel",
        "parameters": 29184,
        "trainable_parameters": 29184,
    }
    assert {
        key: start[key] for key in ("num_steps", "num_epochs", "batch_size", "schedule", "supersedes")
    } == {"num_steps": 4, "num_epochs": 1, "batch_size": 8, "schedule": "linear", "supersedes": None}
    assert start["config"]["learning_rate"] == 5e-5
    assert [record["lr"] for record in steps(found)] == pytest.approx([5e-5, 3.75e-5, 2.5e-5, 1.25e-5])
    logged = {"train_loss", "lr", "grad_norm", "epoch", "samples_per_sec", "sec_per_step"}
    assert all(record[name] > 0 for record in steps(found) for name in logged)
    assert [record["split"] for record in found if record["event"] == "eval"] == ["val"]
    assert found[-2]["val_loss"] == pytest.approx(4.6, abs=0.4)  # about ln 100: it has learned nothing
    assert end["status"] == "complete"
    mean = sum(record["train_loss"] for record in steps(found)) / 4
    assert end["train_loss"] == pytest.approx(mean, rel=1e-6)


def test_accelerate(root: Path, results: Path, run_program: RunProgram) -> None:
    run_program(example(root, "accelerate_loop.py"))
    found = records(results, "second")
    expected = [("start", None), *(("step", step) for step in range(1, 5)), ("eval", 4), ("end", None)]
    assert events(found) == expected
    assert (found[0]["num_steps"], found[0]["model"]["parameters"]) == (4, 9)
    assert found[5]["val_loss"] == steps(found)[-1]["train_loss"]
    assert found[-1]["status"] == "complete"


def test_lightning(root: Path, results: Path, run_program: RunProgram) -> None:
    """With an evaluation after the training, which Lightning counts otherwise than those within."""
    run_program(example(root, "lightning_module.py") + "\ntrainer.validate(trainer.lightning_module, data)\n")
    found = records(results, "third")
    assert [pair for pair in events(found) if pair[0] in ("start", "step", "eval", "end")] == [
        ("start", None),
        *(("step", step) for step in range(1, 5)),
        *[("eval", 4), ("eval", 4), ("end", None)],
    ]
    assert (found[0]["model"]["name"], found[0]["optimizer"], found[0]["num_steps"]) == ("Sum", "sgd", 4)
    logged = {"train_loss", "grad_norm", "samples_per_sec", "sec_per_step"}
    assert all(record[name] > 0 for record in steps(found) for name in logged)
    assert found[-1]["status"] == "complete"


EXAMPLES = [("hugging_face", "first", 2), ("accelerate_loop", "second", 1), ("lightning_module", "third", 2)]


@pytest.mark.parametrize(("program", "run", "journals"), EXAMPLES)
def test_examples_train_with_two_processes(
    root: Path,
    results: Path,
    warm_frameworks: WarmPython,
    forked_agents: None,
    program: str,
    run: str,
    journals: int,
) -> None:
    """Torchrun starts the processes, Lightning its own (`devices=2`); accelerate calls trackers on one."""
    text = example(root, f"{program}.py")
    with_two = text.replace('accelerator="cpu",', 'accelerator="cpu", devices=2,')
    with_two = with_two.replace("use_cpu=True", 'use_cpu=True, ddp_backend="gloo"')
    (results / "program.py").write_text(with_two)
    launch(warm_frameworks, [results / "program.py"], results, program.split("_module")[0], 2)
    assert [path.name for path in (results / "results").iterdir()] == [run]
    found = sorted((results / "results" / run).glob("metrics*.jsonl"))
    of_ranks = [[dict(record) for record, _ in read_records(path)] for path in found]
    assert len(of_ranks) == journals
    for records in of_ranks:
        assert [record["global_step"] for record in steps(records)] == [1, 2, 3, 4]
        assert records[-1]["status"] == "complete"


def test_a_loop_of_ones_own(root: Path, results: Path, warm_torch: WarmPython, forked_agents: None) -> None:
    program = results / "program.py"
    program.write_text(example(root, "plain_pytorch.py"))
    done = warm_torch.run([program], cwd=results)
    assert done.returncode == 0, done.stderr
    found = records(results, "fourth")
    assert events(found) == [("start", None), *(("step", step) for step in range(1, 5)), ("end", None)]
