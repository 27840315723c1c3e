"""The verdict on a run that has ended, and the end of its output."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from kharness.matrix.execute import judge, other_values, output_tail
from kharness.matrix.journal_tail import JournalTail
from kharness.matrix.status import Attempt

START = {"event": "start", "config": {"SEED": 1, "TRACKER_PROJECT": "p-12345"}}
STEP = {"event": "step", "global_step": 4, "train_loss": 0.5}
COMPLETE = {"event": "end", "status": "complete"}
INTERRUPTED = {"event": "end", "status": "interrupted"}
FAILED = {"event": "end", "status": "failed", "error": "ValueError: x"}


def tail(directory: Path, *records: dict[str, Any]) -> JournalTail:
    lines = [json.dumps({"time": 10.0 + i, "seq": i + 1, "attempt": 1, **r}) for i, r in enumerate(records)]
    (directory / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))
    made = JournalTail(directory)
    made.update()
    return made


@pytest.mark.parametrize(
    ("exit_code", "number", "stop_asked", "records", "verdict"),
    [
        (0, None, False, [START, COMPLETE], ("complete", None)),
        (0, None, True, [START, COMPLETE], ("complete", None)),
        (0, None, False, [], ("failed", "exit code 0, but the journal's end record is missing")),
        (
            0,
            None,
            False,
            [START, INTERRUPTED],
            ("failed", "exit code 0, but the journal's end record says interrupted"),
        ),
        (
            0,
            None,
            False,
            [{"event": "start", "config": {"SEED": 2}}, COMPLETE],
            ("failed", "ran with other values than asked: SEED=2, asked 1"),
        ),
        (75, None, True, [START, STEP, INTERRUPTED], ("interrupted", "stopped on request after step 4")),
        (75, None, False, [START, STEP, INTERRUPTED], ("interrupted", "stopped on request after step 4")),
        (
            130,
            None,
            True,
            [],
            ("interrupted", "stopped on request after step 0, without an end record"),
        ),
        (
            None,
            9,
            True,
            [START, STEP],
            ("killed", "killed after step 4, before it had stopped"),
        ),
        (None, 9, False, [START, STEP], ("killed", "signal 9 (SIGKILL)")),
        (1, None, False, [START, FAILED], ("failed", "exit code 1: ValueError: x")),
        (2, None, False, [], ("failed", "exit code 2")),
    ],
)
def test_verdict(
    tmp_path: Path,
    exit_code: int | None,
    number: int | None,
    stop_asked: bool,
    records: list[dict[str, Any]],
    verdict: tuple[str, str | None],
) -> None:
    attempt = Attempt(started=1.0, pid=7, ended=2.0, exit_code=exit_code, signal=number)
    asked = {"SEED": 1, "TRACKER_PROJECT": "{model}-{checksum}"}
    assert judge(attempt, tail(tmp_path, *records), asked, stop_asked=stop_asked) == verdict


def test_values_are_compared_as_json_holds_them() -> None:
    asked = {"RATE": 1000.0, "BETAS": [0.9, 1.0], "NAME": "a", "FLAG": True}
    assert other_values(json.loads(json.dumps(asked)), asked) == ""
    assert other_values({**asked, "FLAG": 1}, asked) == "FLAG=1, asked True"
    assert other_values({}, {"A": 1}) == "A is not recorded"
    assert other_values(None, {"A": 1}) == "the start record holds no configuration"
    assert other_values(dict.fromkeys("ABCDE", 0), dict.fromkeys("ABCDE", 2)) == (
        "A=0, asked 2; B=0, asked 2; C=0, asked 2 and 2 more"
    )


def test_the_end_of_the_output_is_fit_for_a_terminal(tmp_path: Path) -> None:
    log = tmp_path / "output.log"
    log.write_bytes(b"first\n" + b"10%\r50%\r100%\n\n" + b"\x1b[2Jred\xff\n" + b"x" * 400)
    assert output_tail(log, 3) == ["100%", "?[2Jred\ufffd", "x" * 300]
    assert output_tail(tmp_path / "absent") == []


def test_the_tail_follows_a_journal_as_it_grows(tmp_path: Path) -> None:
    followed = tail(tmp_path, {**START, "num_steps": 10}, {**STEP, "global_step": 1})
    assert (followed.step, followed.num_steps, followed.seconds_left) == (1, 10, None)
    with (tmp_path / "metrics.jsonl").open("a") as journal:
        journal.write('{"event":"step","time":15.0,"attempt":1,"global_step":3,"train_loss":null}\n{"torn')
    followed.update()
    # Two steps in 4 s, and 7 to go.
    assert (followed.step, followed.train_loss, followed.seconds_left) == (3, None, 14.0)


def test_the_tail_of_a_second_attempt_forgets_the_first(tmp_path: Path) -> None:
    followed = tail(tmp_path, START, STEP, INTERRUPTED, {"event": "start", "attempt": 2})
    assert (followed.step, followed.end) == (None, {})


def test_signals_have_names_in_reasons(tmp_path: Path) -> None:
    attempt = Attempt(started=1.0, pid=7, ended=2.0, signal=signal.SIGSEGV)
    assert judge(attempt, tail(tmp_path), {}, stop_asked=False) == ("killed", "signal 11 (SIGSEGV)")
