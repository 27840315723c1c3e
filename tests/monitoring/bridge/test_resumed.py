"""Where a program goes on that finds its own checkpoints: what it measures again counts once, and no step is
lost that it does not do again."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from monitoring.journal.lineage import counting
from monitoring.journal.records import read_records
from monitoring.journal.run_state import read_end
from monitoring.journal.series import RunSeries

from ...warm_python import WarmPython
from .conftest import Bridged
from .test_sources import config

Rows = list[dict[str, object]]

# One attempt reports its rows and is killed; the next one has the rows of its own.
REPORTS = """
import json, os, pathlib, sys
attempts, kept = json.loads(sys.argv[1]), pathlib.Path("attempt")
number = int(kept.read_text()) if kept.exists() else 0
kept.write_text(str(number + 1))
with open("rows.jsonl", "a") as file:
    for row in attempts[number]:
        file.write(json.dumps(row) + "\\n")
if number + 1 < len(attempts):
    os.kill(os.getpid(), 9)
"""


def trained(*steps: int) -> Rows:
    return [{"step": step, "loss": 1 / (1 + step)} for step in steps]


def evaluated(*steps: int) -> Rows:
    return [{"step": step, "val/loss": 2 / (1 + step)} for step in steps]


SUMMARY: Rows = [{"step": 3, "train_runtime": 0.5, "train_loss": 0.25, "epoch": 1.0}]
BEFORE = [(1, "step", 0), (1, "eval", 0), (1, "step", 1)]
STEPS = [(1, "step", 1), (1, "step", 2), (1, "step", 3)]


@pytest.mark.parametrize(
    ("attempts", "resumed", "counted"),
    [
        pytest.param([trained(1, 2, 3), SUMMARY], [3], [*STEPS, (2, "step", 3)], id="its summary alone"),
        pytest.param(
            [trained(1, 2, 3), [{"step": 3, "train/train_runtime": 0.5, "train/epoch": 1}], trained(3)],
            [3, 3, 2],
            [*STEPS[:2], (3, "step", 3)],
            id="then a step after all",
        ),
        pytest.param(
            [[*trained(1, 2, 3), *evaluated(3)], [*SUMMARY, *evaluated(3)]],
            [3, 3],
            [*STEPS, (2, "step", 3), (2, "eval", 3)],
            id="the evaluation after its last step",
        ),
        pytest.param(
            [trained(1, 2, 3), [*evaluated(2), *trained(3, 4)]],
            [3, 2],
            [*STEPS[:2], (2, "eval", 2), (2, "step", 3), (2, "step", 4)],
            id="an evaluation that was none before",
        ),
        pytest.param(
            [
                [*evaluated(0), *trained(0, 1), *evaluated(2), *trained(2, 3)],
                [*evaluated(2), *trained(2, 3, 4)],
            ],
            [3, 1],
            [*BEFORE, (2, "step", 2), (2, "eval", 2), (2, "step", 3), (2, "step", 4)],
            id="an evaluation before each step, as nanoGPT has it",
        ),
        pytest.param(
            [[*evaluated(0), *trained(0, 1)], [*evaluated(0), *trained(0, 1)]],
            [1, None],
            [(2, "step", 0), (2, "eval", 0), (2, "step", 1)],
            id="from scratch",
        ),
        pytest.param(
            [trained(1, 2, 3), [{"step": 2, "f1": 0.5}, *trained(3)]],
            [3, 2],
            [*STEPS[:2], (2, "step", 2), (2, "step", 3)],
            id="a metric that is new",
        ),
    ],
)
def test_only_what_is_measured_again_is_superseded(
    run_dir: Path,
    attempts: list[Rows],
    resumed: list[int | None],
    counted: list[tuple[int, str, int]],
    bridged: Bridged,
) -> None:
    program = [sys.executable, "-c", REPORTS, json.dumps(attempts)]
    codes = [bridged(run_dir, *program, options=["--follow", "rows.jsonl"]).returncode for _ in attempts]
    assert codes == [128 + signal.SIGKILL] * (len(attempts) - 1) + [0]
    journal = read(run_dir)
    starts = [
        r["resumed_from"] and r["resumed_from"]["global_step"] for r in journal if r["event"] == "start"
    ]
    assert starts == [None, *resumed]
    found = [(r["attempt"], r["event"], r["global_step"]) for r in counting(journal) if "global_step" in r]
    assert found == counted


def read(run_dir: Path) -> list[dict[str, Any]]:
    return [dict(record) for record, _ in read_records(run_dir / "metrics.jsonl")]


# Attempts of two sources, of which the second is late: (source, step) in the order of the records.
LATE = [
    [("a", 1), ("a", 2), ("b", 1), ("a", 3), ("a", 4), ("b", 2), ("a", 5), ("b", 3)],
    [("a", 3), ("b", 3)],
]
REPORTS_TWICE = """
import json, os, pathlib, sys, time
journal, number, rows = pathlib.Path(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])
for source, step in rows:
    row = {"step": step, "loss" if source == "a" else "lr": number}
    before = journal.read_bytes().count(b'"event":"step"')
    with open(source + ".jsonl", "a") as file:
        file.write(json.dumps(row) + "\\n")
    while journal.read_bytes().count(b'"event":"step"') == before:
        time.sleep(0.01)
os.kill(os.getpid(), 9)
"""


def test_steps_that_are_done_again_count_once_where_sources_are_not_equally_late(
    run_dir: Path, bridged: Bridged
) -> None:
    """The journal has the late one's early steps behind later ones of the other."""
    options = ["--follow", "a.jsonl", "--follow", "b.jsonl"]
    for number, rows in enumerate(LATE, 1):
        program = [sys.executable, "-c", REPORTS_TWICE, run_dir / "metrics.jsonl", number, json.dumps(rows)]
        assert bridged(run_dir, *program, options=options).returncode == 128 + signal.SIGKILL
    counts = [r for r in counting(read(run_dir)) if r["event"] == "step"]
    losses = [(r["global_step"], r["train_loss"]) for r in counts if "train_loss" in r]
    rates = [(r["global_step"], r["lr"]) for r in counts if "lr" in r]
    assert [losses, rates] == [[(1, 1), (2, 1), (3, 2)], [(1, 1), (2, 1), (3, 2)]]
    series = RunSeries(run_dir)
    assert not series.refresh()
    shown = [list(series.window(name).last) for name in ("train_loss", "lr")]
    assert [shown, read_end(run_dir / "metrics.jsonl").step] == [[[1, 1, 2], [1, 1, 2]], 3]


TRAINER = """
import os, signal, torch
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

kept = get_last_checkpoint("out") if os.path.isdir("out") else None


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def forward(self, x, labels):
        return {"loss": (self.layer(x)[:, 0] - labels).square().mean()}


class Killed(TrainerCallback):
    def on_save(self, args, state, control, **_):
        if kept is None and state.global_step == 4:
            os.kill(os.getpid(), signal.SIGKILL)


data = [{"x": torch.tensor([n / 4, 1.0]), "labels": torch.tensor(n / 2)} for n in range(4)]
given = TrainingArguments(
    "out", learning_rate=3e-4, num_train_epochs=2, per_device_train_batch_size=2, logging_steps=1,
    save_strategy="epoch", eval_strategy="epoch", report_to=["tensorboard"], use_cpu=True, disable_tqdm=True,
)
trainer = Trainer(Net(), given, train_dataset=data, eval_dataset=data, callbacks=[Killed()])
trainer.train(resume_from_checkpoint=kept)
trainer.evaluate()
"""


def test_a_trainer_that_was_killed_after_its_last_step_keeps_it(
    run_dir: Path, warm_frameworks: WarmPython, offline: dict[str, str]
) -> None:
    """Continued, it trains nothing, logs its summary, and evaluates once more."""
    program = run_dir.parent / "train.py"
    program.write_text(TRAINER)
    ended = [
        warm_frameworks.run(
            ["-m", "monitoring.bridge", run_dir, "--", sys.executable, program],
            cwd=run_dir.parent,
            env={**os.environ, **offline},
        )
        for _ in range(2)
    ]
    assert [one.returncode for one in ended] == [128 + signal.SIGKILL, 0], ended[1].stderr
    counts = counting(read(run_dir))
    losses = {r["global_step"]: (r["attempt"], r["train_loss"]) for r in counts if "train_loss" in r}
    assert [(step, attempt) for step, (attempt, _) in losses.items()] == [(1, 1), (2, 1), (3, 1), (4, 1)]
    series = RunSeries(run_dir)
    assert not series.refresh()
    assert list(series.window("train_loss").last) == [loss for _, loss in losses.values()]
    assert read_end(run_dir / "metrics.jsonl").step == 4
    evaluations = [(r["attempt"], r["global_step"]) for r in counts if r["event"] == "eval"]
    assert evaluations == [(1, 2), (2, 4)]
    summaries = [(r["attempt"], r["global_step"]) for r in counts if "train/train_runtime" in r]
    assert summaries == [(2, 4)]
    told = config(run_dir)
    assert (told["learning_rate"], told["num_train_epochs"], told["optim"]) == (3e-4, 2, "adamw_torch_fused")
    assert not [name for name in told if name.startswith("_")]
