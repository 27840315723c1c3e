"""Several processes of one training: a journal each, one run."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from monitoring import Record, Run, read_records
from monitoring.errors import RunBusyError, RunDirectoryError
from monitoring.exporters._run_files import RunFiles
from monitoring.journal.ranks import rank_journals, registered_by_rank_0

from ...waiting import wait_until

# Opens the run as a rank, logs steps FIRST to LAST, and ends.
RANK = """
import json, sys
from pathlib import Path
from monitoring import Run
directory, rank, first, last, about = sys.argv[1:]
names = {"name": f"name of {rank}", "project": f"project of {rank}", "config": {"OF": rank}}
with Run(Path(directory), **names, agent=False, trackers={}, rank=int(rank)) as run:
    run.start(model={}, training={}, **json.loads(about))
    for step in range(int(first), int(last) + 1):
        run.log_step(step, data_seconds=step / 1000)
"""


def begin_rank(directory: Path, rank: int, first: int, last: int, about: str = "{}") -> subprocess.Popen[str]:
    arguments = [str(directory), str(rank), str(first), str(last), about]
    return subprocess.Popen(
        [sys.executable, "-c", RANK, *arguments], stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def run_rank_0(directory: Path, first: int, last: int, about: str = "{}") -> None:
    subprocess.run(
        [sys.executable, "-c", RANK, str(directory), "0", str(first), str(last), about], check=True
    )


def ended(rank: subprocess.Popen[str]) -> tuple[int, str]:
    _, said = rank.communicate(timeout=600)
    return rank.returncode, said


def journal(directory: Path, rank: int) -> list[Record]:
    return [record for record, _ in read_records(rank_journals(directory)[rank])]


def test_a_rank_that_is_early_waits_for_rank_0(tmp_path: Path) -> None:
    early = begin_rank(tmp_path, 2, 1, 2)
    wait_until((tmp_path / "metrics.rank0002.jsonl").exists, "the journal of rank 2")
    with Run(tmp_path, name="digits", project="p", config={"SEED": 1}, agent=False) as run:
        run.start(model={}, training={})
        run.log_step(1)
        assert ended(early) == (0, "")
    start, *others = journal(tmp_path, 2)
    named = {name: start[name] for name in ("rank", "run_name", "project", "config", "attempt", "pid")}
    assert named == {
        "rank": 2,
        "run_name": "digits",
        "project": "p",
        "config": {"SEED": 1},
        "attempt": 1,
        "pid": early.pid,
    }
    assert start["run_id"] == start["correlation_id"] == run.run_id
    assert [(record["event"], record["seq"], record.get("data_seconds")) for record in others] == [
        ("step", 2, 0.001),
        ("step", 3, 0.002),
        ("end", 4, None),
    ]
    shown = RunFiles(tmp_path)
    shown.read()
    samples = [{"processes": [{"pid": pid}]} for pid in (os.getpid(), early.pid, 1)]
    assert [shown.rank_of(sample, shown.host) for sample in samples] == ["0", "2", ""]
    # without the difference of a checkout that is being worked on
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix != ".diff") == [
        "metrics.jsonl",
        "metrics.rank0002.jsonl",
        "run.json",
    ]


def test_all_ranks_count_the_same_attempt_and_only_what_was_not_done_again_counts(tmp_path: Path) -> None:
    run_rank_0(tmp_path, 1, 3)  # rank 1 came to nothing in this attempt
    second = '{"resumed_from": {"global_step": 2}, "supersedes": {"first_seq": 4, "last_seq": 5}}'
    rank_1 = begin_rank(tmp_path, 1, 3, 6, second)
    wait_until((tmp_path / "metrics.rank0001.jsonl").exists, "the journal of rank 1")
    run_rank_0(tmp_path, 3, 6, second)
    assert ended(rank_1) == (0, "")
    third = '{"resumed_from": {"global_step": 4}, "supersedes": {"first_seq": 9, "last_seq": 11}}'
    rank_1 = begin_rank(tmp_path, 1, 5, 5, third)
    run_rank_0(tmp_path, 5, 5, third)
    assert ended(rank_1) == (0, "")
    starts = [record for record in journal(tmp_path, 1) if record["event"] == "start"]
    assert [(start["attempt"], start["supersedes"]) for start in starts] == [
        (2, None),  # nothing of its own
        (3, {"first_seq": 4, "last_seq": 6}),  # steps 5 and 6, and the end
    ]


def test_a_rank_has_one_process(tmp_path: Path) -> None:
    with (
        Run(tmp_path, name="n", project="p", config={}, agent=False),
        Run(tmp_path, name="n", project="p", config={}, rank=1),
        pytest.raises(RunBusyError, match=r"metrics.rank0001.jsonl is being written by another process"),
    ):
        Run(tmp_path, name="n", project="p", config={}, rank=1)


def test_a_rank_without_rank_0_says_so(tmp_path: Path) -> None:
    run_rank_0(tmp_path, 1, 1)
    time.sleep(0.02)  # what an earlier launch has left does not count
    code = "import sys; from pathlib import Path; from monitoring.journal.ranks import registered_by_rank_0;"
    code += "registered_by_rank_0(Path(sys.argv[1]), 3, seconds=0.1)"
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True)
    expected = (
        f"monitoring.errors.RunDirectoryError: rank 3: rank 0 has not opened the run in {tmp_path} for 0 s"
    )
    assert done.stderr.splitlines()[-1] == expected
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(RunDirectoryError, match="does not describe a run"):
        registered_by_rank_0(tmp_path, 1)
    with pytest.raises(ValueError, match="rank=-1 is below 0"):
        Run(tmp_path, name="n", project="p", config={}, rank=-1)
