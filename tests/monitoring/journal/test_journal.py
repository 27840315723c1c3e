"""One writer, whole lines, and a disk that may say no."""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from monitoring.errors import RunBusyError, RunDirectoryError
from monitoring.host.file_locks import try_lock
from monitoring.journal.journal import Journal
from monitoring.journal.records import Record, read_records
from monitoring.run import Run


def records(path: Path) -> list[Record]:
    return [record for record, _ in read_records(path)]


def in_a_process(program: str, path: Path) -> str:
    """Run the program with the journal's path as argument; its stderr."""
    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_journal_cuts_a_torn_line_and_continues_seq_and_attempt(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"event":"step","seq":4,"attempt":2}\n{"event":"step","se')
    journal = Journal(path)
    journal.append({"event": "step", "seq": 0, "attempt": journal.attempt})
    journal.close()
    assert path.read_bytes() == (
        b'{"event":"step","seq":4,"attempt":2}\n{"event":"step","seq":5,"attempt":3}\n'
    )


@pytest.mark.parametrize("content", [b"notes\n", b'{"seq":"1","attempt":1}\n', b"[1]\n", b"\0\0\n{"])
def test_journal_refuses_a_file_that_is_none_and_leaves_it(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(content)
    with pytest.raises(RunDirectoryError, match="the last line is not a journal record"):
        Journal(path)
    assert path.read_bytes() == content


def test_journal_that_is_open_is_refused_a_second_time(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "metrics.jsonl")
    with pytest.raises(RunBusyError, match="is being written by another process"):
        Journal(tmp_path / "metrics.jsonl")
    journal.close()
    Journal(tmp_path / "metrics.jsonl").close()


def test_lock_that_a_child_of_a_killed_process_still_shares_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "metrics.jsonl"
    ready, begun = os.pipe()
    child = os.fork()
    if not child:
        try_lock(os.open(path, os.O_RDWR | os.O_CREAT))
        os.write(begun, b"1")
        signal.pause()
    os.read(ready, 1)

    def ends_meanwhile(seconds: float) -> None:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        monkeypatch.undo()

    monkeypatch.setattr("monitoring.host.file_locks.time.sleep", ends_meanwhile)
    try:
        Journal(path).close()
        with pytest.raises(ProcessLookupError):  # it was opened only after the child's end
            os.kill(child, 0)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


def test_journal_that_nobody_holds_any_more_can_be_opened_again(tmp_path: Path) -> None:
    Journal(tmp_path / "metrics.jsonl").append({"seq": 0, "attempt": 1})
    journal = Journal(tmp_path / "metrics.jsonl")
    assert (journal.seq, journal.attempt) == (1, 2)
    journal.close()


def is_interrupted(number: int, error: type[Exception], call: Callable[[], None]) -> bool:
    """Raise, as a signal handler does, before the nth line that a call executes in a journal and its file.

    False when it has fewer, and is done.
    """

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal number
        # handlers run after calls: the lines of a Backlog's methods that have none are one step
        if not frame.f_code.co_qualname.startswith(("Journal.", "LineFile.")):
            return None
        if event == "line":
            number -= 1
            if number == 0:
                raise error
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except error:
        pass
    finally:
        sys.settrace(before)
    return number <= 0


def part_of_a_line(fd: int, line: bytes) -> int:
    """Write seven bytes, as write(2) does on a disk that is then full."""
    return os.write(fd, line[:7])


@pytest.mark.parametrize("error", [TypeError, OSError])
@pytest.mark.parametrize("written", [os.write, part_of_a_line])
def test_journal_interrupted_twice_at_any_line_writes_no_seq_twice(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    written: Callable[[int, bytes], int],
    error: type[Exception],
) -> None:
    """The second time while it looks at what the first has left."""
    monkeypatch.setattr("monitoring.journal.journal.write", written)
    cases = 0
    for first in itertools.count(1):
        goes_on = False
        for second in itertools.count(1):
            path = tmp_path / f"{first}-{second}.jsonl"
            journal = Journal(path)

            def append(text: str, journal: Journal = journal) -> None:
                journal.append({"text": text, "seq": 0, "attempt": 1})

            append("a")
            goes_on = is_interrupted(first, error, functools.partial(append, "b"))
            is_second = is_interrupted(second, error, functools.partial(append, "c"))
            append("d")
            journal.close()
            found = records(path)
            numbers = [int(str(record["seq"])) for record in found]
            assert numbers == sorted(set(numbers)), (first, second)
            # an OSError is the disk's: the record waits, and one that is interrupted in this leaves a hole
            assert error is OSError or numbers == list(range(1, len(found) + 1)), (first, second)
            texts = [str(record["text"]) for record in found if record.get("event") != "gap"]
            assert texts == sorted(set(texts)), (first, second)
            assert {"a", "d"} <= set(texts), (first, second)
            cases += 1
            if not is_second:
                break
        if not goes_on:
            break
    assert cases > 100


# RLIMIT_FSIZE is a disk that is full at a byte: the write that reaches it is short, the next ones fail.
FULL_AND_FREE_AGAIN = """
import resource, sys
from pathlib import Path
from monitoring.host.file_locks import try_lock
from monitoring.journal.journal import Journal
journal = Journal(Path(sys.argv[1]))
def step(i):
    journal.append({"event": "step", "time": 0, "seq": 0, "attempt": 1, "global_step": i, "text": "x" * 100})
step(1)
resource.setrlimit(resource.RLIMIT_FSIZE, (400, resource.RLIM_INFINITY))
for i in range(2, 12):
    step(i)
    assert Path(sys.argv[1]).read_bytes().endswith(b"}\\n")
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
step(12)
journal.close()
"""


def test_journal_on_a_full_disk_keeps_records_and_writes_them_later(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    warning = in_a_process(FULL_AND_FREE_AGAIN, path)
    assert warning == (
        f"warning: {path}: file too large; records are kept in memory until it takes them again\n"
    )
    *steps, gap = records(path)
    assert [(record["seq"], record["global_step"]) for record in steps] == [(i, i) for i in range(1, 13)]
    assert gap == {
        "event": "gap",
        "time": gap["time"],
        "seq": 13,
        "attempt": 1,
        "reason": "file too large",
        "seconds": gap["seconds"],
        "delayed": 10,
        "lost": 0,
        "first_lost_seq": None,
        "last_lost_seq": None,
    }


FULL_FOR_TOO_LONG = """
import resource, sys
from pathlib import Path
from monitoring.journal import journal as module
from monitoring.host.file_locks import try_lock
from monitoring.journal.journal import Journal
journal = Journal(Path(sys.argv[1]))
def step(text=""):
    journal.append({"event": "step", "time": 0, "seq": 0, "attempt": 1, "text": text})
step()
resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
for i in range(20):
    step("x" * 2**20)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
step()
journal.close()
"""


def test_journal_that_loses_records_says_which(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    in_a_process(FULL_FOR_TOO_LONG, path)
    *steps, gap = records(path)
    assert [record["seq"] for record in steps] == [1, *range(7, 23)]
    lost = {key: gap[key] for key in ("delayed", "lost", "first_lost_seq", "last_lost_seq")}
    assert lost == {"delayed": 16, "lost": 5, "first_lost_seq": 2, "last_lost_seq": 6}


LONG_FULL = """
import resource, sys
from pathlib import Path
from monitoring.host.file_locks import try_lock
from monitoring.journal.journal import Journal
journal = Journal(Path(sys.argv[1]))
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
def step():
    journal.append({"event": "step", "time": 1e9, "seq": 0, "attempt": 1, "text": "x" * 160})
step()
resource.setrlimit(resource.RLIMIT_FSIZE, (200, resource.RLIM_INFINITY))
before = resident()
for i in range(90_000):
    step()
print((resident() - before) / 2**20, file=sys.stderr)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
step()
journal.close()
"""


def test_journal_on_a_full_disk_takes_no_more_memory_than_it_keeps(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    taken = float(in_a_process(LONG_FULL, path).splitlines()[-1])
    *steps, gap = records(path)
    kept = sum(len(line) for line in path.read_bytes().splitlines(keepends=True)[1:-1])
    assert (kept < 16 * 2**20, kept > 15 * 2**20) == (True, True)
    assert taken < 20  # MiB: the 16 that it keeps, and what an interpreter takes for that
    assert [record["seq"] for record in steps] == [1, *range(90_003 - len(steps) + 1, 90_003)]
    lost = {key: gap[key] for key in ("lost", "first_lost_seq", "last_lost_seq")}
    assert lost == {"lost": 90_002 - len(steps), "first_lost_seq": 2, "last_lost_seq": 90_003 - len(steps)}


STAYS_FULL = """
import resource, sys
from pathlib import Path
from monitoring.host.file_locks import try_lock
from monitoring.journal.journal import Journal
journal = Journal(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
journal.append({"event": "step", "time": 0, "seq": 0, "attempt": 1})
journal.append({"event": "step", "time": 0, "seq": 0, "attempt": 1})
journal.close()
journal.append({"event": "step", "time": 0, "seq": 0, "attempt": 1})
"""


def test_journal_on_a_disk_that_stays_full_says_how_much_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    assert in_a_process(STAYS_FULL, path).splitlines() == [
        f"warning: {path}: file too large; records are kept in memory until it takes them again",
        f"error: {path}: 2 records could not be written: file too large",
        f"warning: {path}: a record was not written: it is closed",
    ]
    assert path.read_bytes() == b""


FORKS = """
import os, sys
from pathlib import Path
from monitoring.host.file_locks import try_lock
from monitoring.journal.journal import Journal
journal = Journal(Path(sys.argv[1]))
journal.append({"event": "step", "seq": 0, "attempt": 1})
child = os.fork()
if child == 0:
    other = os.open(os.devnull, os.O_WRONLY)  # takes the number of the descriptor that the child gave up
    journal.append({"event": "step", "seq": 0, "attempt": 1, "child": True})
    journal.close()
    os.write(other, b"x")
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
journal.append({"event": "step", "seq": 0, "attempt": 1})
try:
    Journal(Path(sys.argv[1]))
except Exception as error:
    assert "is being written" in str(error), error
else:
    raise AssertionError("the child has released its parent's lock")
journal.close()
"""


def test_journal_in_a_forked_child_neither_writes_nor_closes_the_parents(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    warning = in_a_process(FORKS, path)
    assert warning == f"warning: {path}: a record was not written: it belongs to the parent process\n"
    assert records(path) == [{"event": "step", "seq": i, "attempt": 1} for i in (1, 2)]


OUTLIVED = """
import os, sys, time
from pathlib import Path
from monitoring.host.file_locks import try_lock
from monitoring.journal.journal import Journal
journal = Journal(Path(sys.argv[1]))
if os.fork() == 0:
    print("ready", flush=True)  # by the child: its hook after the fork has run
    os.read(0, 1)
    os._exit(0)
time.sleep(600)
"""


def test_journal_of_a_killed_trainer_is_free_while_its_workers_still_live(tmp_path: Path) -> None:
    command: list[str | Path] = [sys.executable, "-c", OUTLIVED, tmp_path / "metrics.jsonl"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as trainer:
        assert trainer.stdout is not None
        assert trainer.stdout.readline() == b"ready\n"
        trainer.kill()
        trainer.wait()
        Journal(tmp_path / "metrics.jsonl").close()


def test_journal_of_a_run_that_was_dropped_is_free(tmp_path: Path) -> None:
    def drop() -> None:
        run = Run(tmp_path / "run", name="r", project="p", config={}, trackers={}, agent=False)
        run.log_step(1, train_loss=0.5)

    gc.disable()  # as if the collector had not come by
    try:
        drop()
        drop()
    finally:
        gc.enable()
    found = records(tmp_path / "run" / "metrics.jsonl")
    assert [(record["attempt"], record["global_step"]) for record in found] == [(1, 1), (2, 1)]
