"""`make control`: what it sends, what the training answers, and what is refused before anything is sent."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from monitoring import Run
from monitoring.journal.run_state import read_end

from ..waiting import wait_until
from ..warm_python import WarmPython

Control = Callable[..., tuple[int, str, str]]


@pytest.fixture
def control(root: Path, warm_python: WarmPython) -> Control:
    """Exit code, output and errors of the script."""

    def run(*variables: str) -> tuple[int, str, str]:
        done = warm_python.run(["scripts/control.py", *variables], cwd=root)
        return done.returncode, done.stdout, done.stderr

    return run


def test_a_running_training_answers(
    root: Path, tmp_path: Path, control: Control, warm_python: WarmPython, warm_torch: WarmPython
) -> None:
    run = tmp_path / "run"
    flags = ("--num-epochs", "100000", "--batch-size", "7", "--device", "cpu", "--tracker", "none")
    training = warm_torch.start(
        [root / "tests/data/ddp/train.py", "--run-dir", run, *flags], stdout=subprocess.DEVNULL
    )
    until = time.monotonic() + 600
    while not read_end(run / "metrics.jsonl").step and training.poll() is None:
        assert time.monotonic() < until
        time.sleep(0.02)
    words = ("LR_FACTOR=0.5", "CHECKPOINT=1", "LOG_EVERY=100")
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    at_once = [
        warm_python.start(["scripts/control.py", f"RUN={run}", word], cwd=root, **pipes) for word in words
    ]
    answers = [(*sent.communicate(timeout=600), sent.wait()) for sent in at_once]
    assert [(code, err, out.splitlines()[1].split(": ", 1)[1]) for out, err, code in answers] == [
        (0, "", said) for said in ("lr_factor=0.5, was 1.0", "checkpoint=True", "log_every=100, was 1")
    ]
    code, out, err = control(f"RUN={run}", "PROFILE=1", "EVALUATE=y")
    assert (code, err) == (0, "")
    step = int(out.split("after step ")[1].split(":")[0])
    assert out.splitlines() == [
        f"run: {run}",
        f"applied after step {step}: profile=1",
        f"applied after step {step}: evaluate=True",
    ]
    # An earlier answer is no condition for a later one, also where the sender's clock is wrong.
    (run / "control.json").write_text(json.dumps({"evaluate": True, "timestamp": time.time() + 3600}))
    assert control(f"RUN={run}", "STOP=1")[0] == 0
    assert training.wait(600) == 75
    assert control(f"RUN={run}", "STOP=1") == (
        *(2, ""),
        f"error: {run} has ended: interrupted\nhint: name one that is running\n",
    )


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ([], "nothing is requested"),
        (["CHECKPOINT=0"], "CHECKPOINT=0 is neither 1 nor y"),
        (["LR_FACTOR=half"], "LR_FACTOR=half is not a number"),
        (["LR_FACTOR=0"], "LR_FACTOR=0 is outside 0.0001..100"),
        (["LR_FACTOR=nan"], "LR_FACTOR=nan is not a number"),
        (["PROFILE=1001"], "PROFILE=1001 is outside 1..1000"),
        (["CHECKPONIT=1"], "CHECKPONIT=1 means nothing to make control"),
    ],
)
def test_what_cannot_be_requested_is_not_sent(
    tmp_path: Path, control: Control, words: list[str], error: str
) -> None:
    with Run(tmp_path / "run", name="run", project="p", config={}, agent=False) as run:
        run.start(model={}, training={})
        code, out, err = control(f"RUN={tmp_path / 'run'}", *words)
    first, hint = err.splitlines()
    assert (code, out, first) == (2, "", f"error: {error}")
    assert hint.startswith("hint: ")
    assert not (tmp_path / "run" / "requests").exists()


# A run of which a process records a step and then does what is told: end, die, or live on without an answer.
BEGUN = """
import os, sys, time
from pathlib import Path
from monitoring import Run
run = Run(Path(sys.argv[1]), name="n", project="p", config={}, agent=False)
run.start(model={}, training={})
run.log_step(1, train_loss=0.5)
while not any(Path(sys.argv[1], "requests").glob("0*.json")):
    time.sleep(0.01)
if sys.argv[2] == "end":
    run.finish("interrupted")
os._exit(9)
"""


@pytest.mark.parametrize(
    ("how", "code", "said"),
    [
        ("end", 3, "not applied: lr_factor, stop: the training has ended before: interrupted"),
        ("die", 75, "pending: lr_factor, stop: the training process has died; the next attempt applies it, "),
    ],
)
def test_the_end_of_a_training_that_does_not_answer_is_told(
    tmp_path: Path, control: Control, how: str, code: int, said: str
) -> None:
    run = tmp_path / "run"
    with subprocess.Popen([sys.executable, "-c", BEGUN, run, how]):
        wait_until(lambda: read_end(run / "metrics.jsonl").step)
        got, out, err = control(f"RUN={run}", "LR_FACTOR=0.5", "STOP=1")
    assert (got, err, out.splitlines()[1].startswith(said)) == (code, "", True), out
    assert len(list((run / "requests").iterdir())) == (how == "die")
    first = control(f"RUN={run}", "STOP=1")[2].splitlines()[0]
    how_ended = "the process of {} has died" if how == "die" else "{} has ended: interrupted"
    assert first == f"error: {how_ended.format(run)}"


def test_the_hint_names_the_nearest_word(control: Control, tmp_path: Path) -> None:
    assert control("CHECKPONIT=1")[2].endswith("hint: did you mean CHECKPOINT?\n")
    (tmp_path / "empty").mkdir()
    assert control(f"RUN={tmp_path / 'empty'}", "STOP=1")[2].startswith(
        f"error: {tmp_path / 'empty'} is not a run that has begun\nhint: "
    )
