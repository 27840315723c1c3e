"""Where an attempt begins, told from a run directory as attempts before it left it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from kharness.config.options import Options, parse
from kharness.training.checkpoint import Stateful, checkpoint_files, training_state
from kharness.training.errors import ResumeError
from kharness.training.resume import ResumePoint, find_origin, log_checkpoint
from monitoring import Record, Run, read_records
from monitoring.journal.lineage import counting

DATA = "d" * 64
HASHES = {"tokenizer_sha256": "b" * 64, "data_sha256": DATA}


class Trainer:
    """Attempts at one run, each killed where its plan ends: no end record unless it is asked for."""

    def __init__(self, root: Path, directory: Path) -> None:
        self.root = root
        self.directory = directory

    def options(self, *flags: str) -> Options:
        options, _ = parse(list(flags), root=self.root, model="lenet5", prog="train.py", description="")
        return options

    def find(self, *flags: str, data_sha256: str = DATA, **others: Any) -> ResumePoint:
        return find_origin(self.directory, self.options(*flags), data_sha256=data_sha256, **others)

    def attempt(self, origin: ResumePoint, until: int, *, saves: tuple[int, ...] = (), **ending: Any) -> None:
        """Log the steps up to `until`, save after some; `recorded=False` leaves the last save unrecorded."""
        recorded = ending.pop("recorded", True)
        options = self.options()
        run = Run(self.directory, name="r", project="p", config=options.values, agent=False)
        checkpoints = origin.begin(run, options, model={"name": "m"}, training=HASHES)
        first = origin.state["global_step"] + 1 if origin.state else 1
        for step in range(first, until + 1):
            run.log_step(step, train_loss=1 / step)
            if step in saves:
                checkpoints.improves(1 / step, step=step)
                state = self.state(run, step)
                path = checkpoints.save(step, state, best=True)
                if recorded or step != saves[-1]:
                    log_checkpoint(run, step, path, state, best=True)
        if ending:
            run.finish(**ending)
        run._journal.close()  # as the end of a process does

    def state(self, run: Run, step: int) -> dict[str, Any]:
        torch.manual_seed(step)
        model = nn.Linear(2, 2)
        parts: dict[str, Stateful] = {
            "model": model,
            "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
        }
        return training_state(parts, journal_seq=run.last_seq(), attempt=run.attempt)

    def records(self, event: str) -> list[Record]:
        return [r for r, _ in read_records(self.directory / "metrics.jsonl") if r["event"] == event]

    def counting(self, event: str) -> list[tuple[object, object]]:
        """(attempt, step) of the records that count."""
        records = counting(record for record, _ in read_records(self.directory / "metrics.jsonl"))
        return [(r["attempt"], r.get("global_step")) for r in records if r["event"] == event]

    def checkpoint(self, attempt: int, step: int) -> Path:
        (path,) = self.directory.glob(f"checkpoints/attempt{attempt:02d}-step{step:08d}-*.pt")
        return path


@pytest.fixture
def trainer(root: Path, tmp_path: Path) -> Trainer:
    return Trainer(root, tmp_path / "run")


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_first_attempt_begins_at_the_first_step(trainer: Trainer) -> None:
    origin = trainer.find()
    assert (str(origin), origin.state, origin.complete) == ("", None, False)
    assert origin.start_fields() == {"resumed_from": None, "supersedes": None, "passed_over": []}


def test_attempt_goes_on_from_the_newest_and_supersedes_what_came_behind(trainer: Trainer) -> None:
    trainer.attempt(trainer.find(), 7, saves=(3, 5))
    origin = trainer.find()
    name = trainer.checkpoint(1, 5).name
    assert str(origin) == f"resume: after step 5, from {name}\n"
    trainer.attempt(origin, 8)
    start = trainer.records("start")[1]
    # start, 3 steps, checkpoint, 2 steps (seq 7), checkpoint (seq 8), 2 steps
    assert {key: start[key] for key in ("resumed_from", "supersedes", "passed_over")} == {
        "resumed_from": {"checkpoint": name, "attempt": 1, "global_step": 5, "journal_seq": 7},
        "supersedes": {"first_seq": 9, "last_seq": 10},
        "passed_over": [],
    }
    assert trainer.counting("step") == [*((1, step) for step in range(1, 6)), (2, 6), (2, 7), (2, 8)]
    assert trainer.counting("checkpoint") == [(1, 3), (1, 5)]


def test_checkpoint_whose_writer_was_killed_before_it_recorded_it_is_recorded(trainer: Trainer) -> None:
    trainer.attempt(trainer.find(), 5, saves=(3, 5), recorded=False)
    trainer.attempt(trainer.find(), 6)
    (first, second) = trainer.records("checkpoint")
    assert (second["attempt"], second["global_step"], second["best"]) == (2, 5, True)
    assert second["checkpoint_path"] == str(trainer.checkpoint(1, 5))
    assert second["model_sha256"] != first["model_sha256"]
    assert trainer.records("start")[1]["supersedes"] is None


def test_every_attempt_counts_from_where_it_was_left(trainer: Trainer) -> None:
    trainer.attempt(trainer.find(), 5, saves=(4,))
    trainer.attempt(trainer.find(), 7)
    trainer.attempt(trainer.find(), 9, saves=(6,), status="interrupted", cause="stopped")
    trainer.attempt(trainer.find(), 8)
    assert trainer.counting("step") == [
        *((1, step) for step in range(1, 5)),
        *((3, step) for step in (5, 6)),
        *((4, step) for step in (7, 8)),
    ]
    assert trainer.counting("end") == []
    assert [record["global_step"] for record in trainer.records("checkpoint")] == [4, 6]


def test_broken_checkpoint_is_reported_and_passed_over(trainer: Trainer) -> None:
    trainer.attempt(trainer.find(), 6, saves=(3, 5))
    newest = trainer.checkpoint(1, 5)
    damage(newest)
    origin = trainer.find()
    first, second = str(origin).splitlines()
    assert first.startswith(f"skipped: {newest.name}: is damaged: its SHA-256 begins with ")
    assert second == f"resume: after step 3, from {trainer.checkpoint(1, 3).name}"
    trainer.attempt(origin, 4)
    passed_over = trainer.records("start")[1]["passed_over"]
    assert isinstance(passed_over, list)
    assert [passed["checkpoint"] for passed in passed_over] == [newest.name]
    assert trainer.counting("step") == [(1, 1), (1, 2), (1, 3), (2, 4)]
    assert trainer.counting("checkpoint") == [(1, 3)]


def test_checkpoint_of_a_future_that_was_given_up_is_not_taken_up_again(trainer: Trainer) -> None:
    """It could not be read once, so attempt 2 went on from before it; then it can."""
    trainer.attempt(trainer.find(), 6, saves=(3, 5))
    damage(trainer.checkpoint(1, 5))
    trainer.attempt(trainer.find(), 4)
    damage(trainer.checkpoint(1, 5))  # the same bit again: whole
    origin = trainer.find()
    assert str(origin) == f"resume: after step 3, from {trainer.checkpoint(1, 3).name}\n"


def test_best_is_taken_when_all_later_ones_are_broken(trainer: Trainer) -> None:
    trainer.attempt(trainer.find(), 9, saves=(3, 5, 7))
    (best,) = checkpoint_files(trainer.directory / "checkpoints", best=True)
    copy = best.read_bytes()
    best.unlink()
    best.write_bytes(copy)  # a file system without hard links
    for step in (5, 7):
        damage(trainer.checkpoint(1, step))
    origin = trainer.find()
    assert origin.path == best
    assert [name for name, _ in origin.passed_over] == [trainer.checkpoint(1, 7).name]
    trainer.attempt(origin, 8)
    resumed = trainer.records("start")[1]["resumed_from"]
    assert resumed == {
        "checkpoint": trainer.checkpoint(1, 7).name,
        "attempt": 1,
        "global_step": 7,
        "journal_seq": 10,
    }


def test_nothing_whole_begins_anew_and_says_why(trainer: Trainer) -> None:
    trainer.attempt(trainer.find(), 4, saves=(3,))
    damage(trainer.checkpoint(1, 3))
    origin = trainer.find()
    assert [line.partition(":")[0] for line in str(origin).splitlines()] == ["skipped", "from scratch"]
    trainer.attempt(origin, 2)
    start = trainer.records("start")[1]
    assert (start["resumed_from"], start["supersedes"]) == (None, {"first_seq": 1, "last_seq": 6})
    assert trainer.counting("step") == [(2, 1), (2, 2)]


def test_checkpoint_ahead_of_its_journal_is_passed_over(trainer: Trainer) -> None:
    trainer.attempt(trainer.find(), 5, saves=(3, 5))
    journal = trainer.directory / "metrics.jsonl"
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:5]))
    origin = trainer.find()
    assert origin.passed_over == [(trainer.checkpoint(1, 5).name, "the journal has lost its records up to 7")]
    assert origin.state is not None
    assert origin.state["global_step"] == 3


def test_from_scratch_keeps_everything_and_counts_none_of_it(trainer: Trainer) -> None:
    trainer.attempt(trainer.find(), 6, saves=(3, 5))
    before = checkpoint_files(trainer.directory / "checkpoints")
    trainer.attempt(trainer.find(from_scratch=True), 5, saves=(1, 2, 3))
    assert checkpoint_files(trainer.directory / "checkpoints") == [
        trainer.checkpoint(2, 3),
        trainer.checkpoint(2, 2),
        *before,
    ]
    assert trainer.counting("step") == [(2, step) for step in range(1, 6)]
    assert len(trainer.records("step")) == 11
    for path in (trainer.checkpoint(2, 3), trainer.checkpoint(2, 2)):
        damage(path)
    origin = trainer.find()
    assert origin.state is None, "the checkpoints of before are not of this lineage"


def test_complete_run_is_left_alone_until_asked_to_begin_anew(trainer: Trainer) -> None:
    trainer.attempt(trainer.find(), 5, saves=(5,), status="complete")
    assert trainer.find().complete
    assert not trainer.find(from_scratch=True).complete
    with pytest.raises(ResumeError, match="was trained with SEED=1"):
        trainer.find("--seed", "2")


def test_options_that_shape_the_training_must_be_the_same(trainer: Trainer) -> None:
    trainer.attempt(trainer.find(), 5, saves=(3,))
    with pytest.raises(ResumeError) as caught:
        trainer.find("--seed", "2", "--optimizer", "adamw", "--learning-rate", "0.25")
    message = str(caught.value)
    assert message.startswith(
        f"{trainer.directory} was trained with SEED=1 (now 2), OPTIMIZER=sgd (now adamw), "
    )
    assert "LEARNING_RATE=0.05 (now 0.25)" in message
    assert caught.value.hint == "--from-scratch begins with what is requested now; what is there stays"
    assert trainer.find("--seed", "2", from_scratch=True).state is None


def test_options_around_the_training_may_change(trainer: Trainer) -> None:
    trainer.attempt(trainer.find(), 5, saves=(3,))
    flags = ["--log-every", "7", "--tracker", "trackio", "--matrix-jobs", "4", "--report-metric", "val_loss"]
    origin = trainer.find(*flags, "--results-dir", "other", "--data-dir", "/x", "--checkpoint-keep", "9")
    assert origin.state is not None


def test_other_data_are_refused(trainer: Trainer) -> None:
    trainer.attempt(trainer.find(), 5, saves=(3,))
    with pytest.raises(ResumeError, match=r"was trained with the data, SHA-256 d{16}… \(now e{16}…\)$"):
        trainer.find(data_sha256="e" * 64, tokenizer_sha256=HASHES["tokenizer_sha256"])


def test_another_tokenizer_is_refused(trainer: Trainer) -> None:
    """Its tokens are other data as well; text is asked for its tokenizer, images are not."""
    trainer.attempt(trainer.find(), 5, saves=(3,))
    assert trainer.find(tokenizer_sha256=HASHES["tokenizer_sha256"]).state is not None
    with pytest.raises(ResumeError) as caught:
        trainer.find(tokenizer_sha256="a" * 64, data_sha256="e" * 64)
    tokenizer = f"the tokenizer, SHA-256 {'b' * 16}… (now {'a' * 16}…)"
    assert str(caught.value).endswith(
        f" was trained with {tokenizer}, the data, SHA-256 {'d' * 16}… (now {'e' * 16}…)"
    )
    assert caught.value.hint == "--from-scratch begins with what is requested now; what is there stays"


def test_run_that_was_trained_in_the_meantime_is_refused(trainer: Trainer) -> None:
    trainer.attempt(trainer.find(), 5, saves=(3,))
    origin = trainer.find()
    trainer.attempt(origin, 7, saves=(6,))
    with pytest.raises(ResumeError, match="another process has trained this run in the meantime"):
        trainer.attempt(origin, 7)
