"""How a run stands, worked out by hand from journals with resumes; and that nobody else works it out."""

from __future__ import annotations

import re
from pathlib import Path

import orjson
import pytest

from monitoring.journal.records import Record, last_line
from monitoring.journal.run_state import GLANCE, RunState, read_end


def begun(
    attempt: int, at: float, *, resumed: int | None = None, gone: tuple[int, int] | None = None
) -> Record:
    return {
        "event": "start",
        "attempt": attempt,
        "time": at,
        "num_steps": 100,
        "steps_per_epoch": 10,
        "resumed_from": {"global_step": resumed} if resumed is not None else None,
        "supersedes": {"first_seq": gone[0], "last_seq": gone[1]} if gone else None,
    }


def step(attempt: int, number: int, at: float, loss: float | None) -> Record:
    return {"event": "step", "attempt": attempt, "time": at, "global_step": number, "train_loss": loss}


def epoch(attempt: int, number: int, at: float) -> Record:
    return {"event": "epoch", "attempt": attempt, "time": at, "global_step": 10 * number, "epoch": number}


# Attempt 1 makes 12 steps, one in 2 s; attempt 2 resumes after step 10 and makes two a second; attempt 3 was
# killed before it began; attempt 4 begins from scratch, and its clock is an hour slow.
STORY: list[tuple[Record, tuple[object, ...]]] = [
    # after each record: attempt, step, most steps, epoch, loss, steps/s, seconds left, status, what is gone
    (begun(1, 100.0), (1, None, 0, None, None, None, None, None, [])),
    (step(1, 8, 116.0, 0.8), (1, 8, 8, 0.8, 0.8, None, None, None, [])),
    (step(1, 10, 120.0, 0.7), (1, 10, 10, 1.0, 0.7, 0.5, 180.0, None, [])),
    (epoch(1, 1, 121.0), (1, 10, 10, 1.0, 0.7, 0.5, 180.0, None, [])),
    (step(1, 12, 124.0, None), (1, 12, 12, 1.2, None, 0.5, 176.0, None, [])),
    (
        {"event": "end", "attempt": 1, "time": 125.0, "status": "interrupted"},
        (1, 12, 12, 1.2, None, 0.5, None, "interrupted", []),
    ),
    (begun(2, 200.0, resumed=10, gone=(5, 6)), (2, 10, 12, 1.0, None, None, None, None, [5, 6])),
    (step(2, 11, 200.5, 0.6), (2, 11, 12, 1.1, 0.6, None, None, None, [])),
    (step(2, 13, 201.5, 0.5), (2, 13, 13, 1.3, 0.5, 2.0, 43.5, None, [])),
    ({"event": "gap", "attempt": 3, "time": 300.0}, (2, 13, 13, 1.3, 0.5, 2.0, 43.5, None, [])),
    (begun(4, 50.0, gone=(1, 10)), (4, 0, 13, 0.0, None, None, None, None, list(range(1, 11)))),
    (step(4, 1, 60.0, 2.0), (4, 1, 13, 0.1, 2.0, None, None, None, [])),
    (step(4, 2, 5.0, 1.5), (4, 2, 13, 0.2, 1.5, None, None, None, [])),
    (step(4, 3, 9.0, 1.0), (4, 3, 13, 0.3, 1.0, 0.25, 388.0, None, [])),
    (
        {"event": "end", "attempt": 4, "time": 9.5, "status": "complete"},
        (4, 3, 13, 0.3, 1.0, 0.25, None, "complete", []),
    ),
]


def seen(state: RunState) -> tuple[object, ...]:
    return (
        *(state.attempt, state.step, state.most_steps, state.epoch(), state.train_loss),
        *(state.steps_per_second, state.seconds_left, state.status),
    )


def write(path: Path, records: list[Record]) -> Path:
    numbered = ({"seq": seq, **record} for seq, record in enumerate(records, 1))
    path.write_bytes(b"".join(orjson.dumps(record) + b"\n" for record in numbered))
    return path


def test_state_after_each_record_of_a_resumed_run() -> None:
    state, found = RunState(), []
    for seq, (record, _) in enumerate(STORY, 1):
        gone = state.update({"seq": seq, **record})
        found.append((*seen(state), list(gone)))
    assert found == [expected for _, expected in STORY]
    assert (state.last_seq, state.last_time, state.last_step_time, state.num_steps) == (15, 9.5, 9.0, 100)


@pytest.mark.parametrize("count", range(len(STORY) + 1))
def test_end_of_a_journal_says_what_all_of_it_says(tmp_path: Path, count: int) -> None:
    state = RunState()
    for seq, (record, _) in enumerate(STORY[:count], 1):
        state.update({"seq": seq, **record})
    assert read_end(write(tmp_path / "metrics.jsonl", [record for record, _ in STORY[:count]])) == state


def test_training_with_a_limit_of_time_ends_with_it() -> None:
    state = RunState()
    left = []
    for record in (
        {**begun(1, 100.0), "max_seconds": 60},
        *(step(1, n, 100 + 2 * n, 1.0) for n in (5, 10, 29, 31)),
    ):
        state.update(record)
        left.append(state.seconds_left)
    assert left == [None, None, 40.0, 2.0, 0.0]


def test_end_of_a_long_journal_of_two_attempts(tmp_path: Path) -> None:
    """Attempt 2 resumes after step 3,000 of 5,000 and makes a step a second: more than the end holds."""
    first = [begun(1, 0.0), *(step(1, n, float(n), 1.0) for n in range(1, 5001))]
    again = [step(2, n, 6000.0 + n, 1 / n) for n in range(3001, 6001)]
    journal = write(
        tmp_path / "metrics.jsonl", [*first, begun(2, 9000.0, resumed=3000, gone=(3002, 5001)), *again]
    )
    state = read_end(journal)
    assert journal.stat().st_size > 4 * GLANCE
    assert seen(state) == (2, 6000, 6000, 600.0, 1 / 6000, 1.0, 0.0, None)
    assert state.start["resumed_from"] == {"global_step": 3000}


def test_end_after_an_offset_knows_nothing_of_what_was_before(tmp_path: Path) -> None:
    journal = write(tmp_path / "metrics.jsonl", [record for record, _ in STORY[:6]])
    with journal.open("rb") as file:
        offset = last_line(file.fileno())[1]
    assert read_end(journal, since=offset) == RunState()
    assert read_end(tmp_path / "nowhere") == RunState()


def test_one_place_reads_what_a_start_record_supersedes(root: Path) -> None:
    reads = re.compile(r"""\.get\(["']supersedes["']|\[["'](supersedes|first_seq|last_seq)["']\]""")
    sources = [*root.glob("lib/**/*.py"), *root.glob("scripts/*.py"), *root.glob("*/train.py")]
    found = sorted(str(path.relative_to(root)) for path in sources if reads.search(path.read_text()))
    # a Run replaces what the caller says by what holds for the journal of its own rank
    assert found == ["lib/monitoring/journal/run_state.py", "lib/monitoring/run.py"], (
        "take it from RunState.update, or from monitoring.journal.run_state.superseded"
    )
