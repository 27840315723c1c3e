"""Steps that the source which counts has lost with a killed program: another source, or an earlier attempt,
stands in for them."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest

from monitoring.bridge.left_out import LeftOut, LeftOutValue
from monitoring.bridge.recorder import COPY_OF, INSTEAD_OF, REPORTED
from monitoring.journal.lineage import counting
from monitoring.journal.records import read_records

from .conftest import Bridged

# It prints steps, and adds the first of them to a file, which counts; then it ends as it is told to.
REPORTS = """
import json, os, pathlib, signal, sys, time

number, first, kept, printed, end = json.loads(sys.argv[1])
journal = pathlib.Path(sys.argv[2])
bridge = os.getppid()
if end == "early":
    print(f"iter {printed - 1}: loss 0.5, time {number}.00ms", flush=True)
    while f'"step_ms":{number}' not in journal.read_text():
        time.sleep(0.01)
with open("rows.jsonl", "a") as file:
    for step in range(first, kept):
        file.write(json.dumps({"step": step, "loss": number + 1 / (step + 3)}) + "\\n")
while end == "late" and journal.read_text().count(f'"train_loss":{number}.') < kept - first:
    time.sleep(0.01)
for step in range(first, printed):
    print(f"iter {step}: loss {number + 1 / (step + 3):.4f}, time {number}.00ms", flush=True)
if end == "bridge":
    last = f'"step_ms":{number}'
    while journal.read_text().count(last) < printed - first:
        time.sleep(0.01)
    os.kill(bridge, signal.SIGKILL)
    signal.pause()
elif end in ("program", "late"):
    os.kill(os.getpid(), signal.SIGKILL)
"""
CODES = {
    "bridge": -signal.SIGKILL,
    "program": 128 + signal.SIGKILL,
    "late": 128 + signal.SIGKILL,
    "early": 0,
    "well": 0,
}
Attempt = tuple[int, int, int, str]
"""The first step, the ends of those that the file has and of those that were printed, and what is killed: the
bridge, the program, or that when it was late to print. One that ends well may print early."""


def attempted(bridged: Bridged, run_dir: Path, *attempts: Attempt) -> str:
    """Run them; what the bridges said."""
    said = ""
    for number, (*steps, end) in enumerate(attempts, 1):
        given = [json.dumps([number, *steps, end]), run_dir / "metrics.jsonl"]
        ended = bridged(run_dir, sys.executable, "-c", REPORTS, *given, options=["--follow", "rows.jsonl"])
        assert ended.returncode == CODES[end], ended.stderr
        said += ended.stderr
    return said


def counted(run_dir: Path) -> list[tuple[object, int, str]]:
    """The losses that count: the step, the attempt that measured it, and what it was recorded from."""
    found = []
    for record in counting([record for record, _ in read_records(run_dir / "metrics.jsonl")]):
        if isinstance(loss := record.get("train_loss"), float):
            mark = record[REPORTED]
            assert isinstance(mark, dict)
            source = "an earlier record" if COPY_OF in mark else mark["by"]
            assert mark.get(INSTEAD_OF) == ("jsonl" if mark["by"] == "output" else None)
            found.append((record["global_step"], int(loss), source))
    return found


def of(attempt: int, source: str, *steps: int) -> list[tuple[object, int, str]]:
    return [(step, attempt, source) for step in steps]


@pytest.mark.parametrize("killed", ["program", "bridge"])
def test_steps_that_only_the_poorer_source_kept_are_recorded_from_it(
    run_dir: Path, killed: str, bridged: Bridged
) -> None:
    """Once, by the attempt that did them last, and unless a later one does them again."""
    attempts = [(0, 4, 8, killed), (6, 8, 11, killed), (10, 12, 12, "well")]
    said = attempted(bridged, run_dir, *attempts)
    assert counted(run_dir) == [
        *of(1, "jsonl", 0, 1, 2, 3),
        *of(1, "output", 4, 5),
        *of(2, "jsonl", 6, 7),
        *of(2, "output", 8, 9),
        *of(3, "jsonl", 10, 11),
    ]
    notes = [line for line in said.splitlines() if "steps are recorded from" in line]
    assert notes == [
        "note: 4 steps are recorded from output: the source that counts has not kept them",
        "note: 3 steps are recorded from output: the source that counts has not kept them",
    ]


def test_an_attempt_of_which_only_the_poorer_source_kept_anything_counts_by_it(
    run_dir: Path, bridged: Bridged
) -> None:
    attempted(bridged, run_dir, (0, 6, 6, "program"), (4, 4, 7, "program"), (7, 9, 9, "well"))
    assert counted(run_dir) == [
        *of(1, "jsonl", 0, 1, 2, 3),
        *of(2, "output", 4, 5, 6),
        *of(3, "jsonl", 7, 8),
    ]


def test_a_poorer_source_that_is_found_later_stands_in_for_nothing_that_counts(
    run_dir: Path, bridged: Bridged
) -> None:
    """Earlier attempts have found both alike."""
    attempted(bridged, run_dir, (0, 6, 6, "program"), (4, 9, 9, "late"), (9, 10, 10, "well"))
    assert counted(run_dir) == [
        *of(1, "jsonl", 0, 1, 2, 3),
        *of(2, "jsonl", 4, 5, 6, 7, 8),
        *of(3, "jsonl", 9),
    ]


@pytest.mark.parametrize("last", [9, 10])
def test_steps_that_were_done_again_and_lost_everywhere_count_as_measured_before(
    run_dir: Path, last: int, bridged: Bridged
) -> None:
    """Also where the program has no step left to do."""
    attempted(bridged, run_dir, (0, 9, 0, "program"), (5, 6, 0, "program"), (9, last, 0, "well"))
    assert counted(run_dir) == [
        *of(1, "jsonl", 0, 1, 2, 3, 4),
        *of(2, "jsonl", 5),
        *of(1, "an earlier record", 6, 7, 8),
        *of(3, "jsonl", *range(9, last)),
    ]


def test_an_earlier_value_gives_way_to_one_that_a_late_source_reports(
    run_dir: Path, bridged: Bridged
) -> None:
    """Another source was first to tell where this attempt went on."""
    attempted(bridged, run_dir, (0, 9, 9, "program"), (5, 6, 6, "program"), (7, 10, 10, "early"))
    assert counted(run_dir) == [
        *of(1, "jsonl", 0, 1, 2, 3, 4),
        *of(2, "jsonl", 5),
        *of(1, "an earlier record", 6),
        *of(3, "jsonl", 7, 8, 9),
    ]
    copies = [record for record, _ in read_records(run_dir / "metrics.jsonl") if COPY_OF in str(record)]
    assert [record["global_step"] for record in copies if "train_loss" in record] == [6, 7, 8, 6]


@pytest.mark.parametrize(
    ("counts", "others", "expected"),
    [
        pytest.param({1: 0.51, 2: 0.26}, {1: 0.5, 2: 0.3, 3: 0.2}, [3], id="rounded"),
        pytest.param({1: 0.5, 2: 0.25}, {1: 0.5, 2: 0.35, 3: 0.2}, [], id="other values"),
        pytest.param({1: 0.5, 2: 0.25}, {10: 0.5, 20: 0.25, 30: 0.2}, [], id="other steps"),
        pytest.param({1: 0.5, 3: 0.2}, {1: 0.5, 2: 0.3, 3: 0.2, 4: 0.1}, [], id="more of them"),
        pytest.param({1: 0.5, 2: 0.3, 3: 0.2}, {1: 0.5, 3: 0.2, 5: 0.1}, [5], id="fewer of them"),
        pytest.param({}, {1: 0.5, 2: 0.25}, [], id="nothing to compare"),
    ],
)
@pytest.mark.parametrize("is_late", [False, True])
def test_a_source_stands_in_only_if_it_had_the_same_values(
    counts: dict[int, float], others: dict[int, float], expected: list[int], is_late: bool
) -> None:
    """Whichever is read first."""
    left_out = LeftOut()

    def leave() -> None:
        for step, value in others.items():
            left_out.leave(0, "output", LeftOutValue("train_loss", step, "loss", value, step, None))

    def count() -> None:
        for step, value in counts.items():
            left_out.count("train_loss", step, value)

    for read in (count, leave) if is_late else (leave, count):
        read()
    assert [[one.step for one in group] for group in left_out.rest(0)] == [[step] for step in expected]
