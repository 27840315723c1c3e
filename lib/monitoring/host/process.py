"""Identifies processes by id and start, also when ids are given again, and tells their descendants."""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

# Fields of /proc/PID/stat after the name: the parent, and the start in ticks.
PARENT, STARTED = 1, 19

# More than the file has: a name of 64 bytes at most, and 51 numbers.
STAT_BYTES = 4096

# PROC_PID_INIT_INO of the kernel's include/linux/proc_ns.h.
INITIAL_PID_NAMESPACE = 0xEFFFFFFC


def process_started(pid: int) -> float | None:
    """Return when the process started, in the system's own unit; None if it is gone or a zombie.

    With the id it names one process: compare it with an earlier answer on the same host.
    """
    fields = _stat(pid)
    if fields is None:
        return None if Path("/proc/self/stat").exists() else _started_without_proc(pid)
    # Z: a zombie; X: dead, seen for a moment while it is removed (proc_pid_stat(5))
    return None if fields[0] in b"ZX" else float(fields[STARTED])


def sees_all_pids() -> bool:
    """Whether this process numbers processes as the kernel and its drivers do; not so in most containers."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino == INITIAL_PID_NAMESPACE
    except OSError:  # a system without such namespaces
        return True


class ProcessTree:
    """Some processes and all that they have started, those included that go on without their parent."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[float | None, bool]] = {}  # pid -> its start, whether it is a member

    def add(self, pid: int, started: float) -> None:
        """Add a process by its id and `process_started`; others that were none so far may be its children."""
        self._known = {pid: found for pid, found in self._known.items() if found[1]}
        self._known[pid] = started, True

    def has(self, pid: int) -> bool:
        """Whether a process is a member; one that has just ended, by what was known of it."""
        passed: dict[int, tuple[float | None, bool]] = {}
        is_member = False
        # `passed` ends a circle, which ids that are given again could make
        while pid > 0 and pid not in passed:
            fields = _stat(pid)
            started = float(fields[STARTED]) if fields is not None else None
            known = self._known.get(pid)
            if known is not None and started in (None, known[0]):
                is_member = known[1]
                break
            if fields is None:
                break
            passed[pid] = started, False
            pid = int(fields[PARENT])
        self._known |= {pid: (started, is_member) for pid, (started, _) in passed.items()}
        return is_member


def is_alive(attempt: Mapping[str, Any]) -> bool:
    """Whether the process of an attempt of run.json is still alive; call it on its host."""
    return bool(process_started(attempt["pid"]) == attempt["pid_started"])


def is_collected(pid: int) -> bool:
    """Whether a child of this process has ended; it is reaped then, if other code has not done so."""
    try:
        return reaped(pid) is not None
    except ChildProcessError:
        return True


def reaped(pid: int, *, wait: float = 0.0) -> int | None:
    """Return the exit code of a child that has ended, negative for a signal; None while it runs.

    A killed child can be reaped once all its threads have ended, which takes a busy machine a while; at most
    `wait` seconds of that are waited for. ChildProcessError where other code of this process has reaped it.
    """
    deadline = time.monotonic() + wait
    ended, status = os.waitpid(pid, os.WNOHANG)
    while not ended and time.monotonic() < deadline and process_started(pid) is None:
        time.sleep(0.001)
        ended, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None


def own_age() -> float:
    """Seconds since this process began; by the clock since the boot, which is never set."""
    started = process_started(os.getpid()) or 0.0
    if not Path("/proc/self/stat").exists():
        return time.time() - started
    # BOOTTIME, which goes on while the machine sleeps, as the start in /proc does (fs/proc/array.c)
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK")


def spawned(
    command: Sequence[str], *actions: tuple[Any, ...], environment: Mapping[str, str] = os.environ
) -> int:
    """Run a module with arguments in a session of its own, so that a Ctrl-C is the training's; return its id.

    By posix_spawn, with its file actions: no thread, and no copy of this process's memory.
    """
    arguments = [sys.executable, "-P", "-m", *command]
    return os.posix_spawn(
        sys.executable, arguments, environment, file_actions=actions, setsid=True, setsigmask=()
    )


@functools.cache
def in_children(act: Callable[[], None]) -> None:
    """Have a function called in each child that this process forks; the same one is called once."""
    os.register_at_fork(after_in_child=act)


class KeptNumber:
    """The second number in a file of /proc, which stays open."""

    def __init__(self, path: str) -> None:
        try:
            self._fd = os.open(path, os.O_RDONLY)
        except OSError:  # a system that does not count it
            self._fd = -1

    def read(self) -> int | None:
        """Return the number; None where the system does not say."""
        if self._fd == -1:
            return None
        try:
            return int(os.pread(self._fd, 128, 0).split()[1])
        except (OSError, ValueError, IndexError):  # the program has closed it, and opened something else
            self._fd = -1
            return None

    def close(self) -> None:
        if self._fd != -1:
            os.close(self._fd)
            self._fd = -1

    __del__ = close


class ResidentMemory(KeptNumber):
    """This process's resident memory."""

    def __init__(self) -> None:
        super().__init__("/proc/self/statm")
        self._page_mb = os.sysconf("SC_PAGE_SIZE") / 1e6

    def read_mb(self) -> float | None:
        """Return MB (1e6 bytes); None where the system does not say."""
        pages = self.read()
        return None if pages is None else pages * self._page_mb


def stat_fields(folder: str) -> list[bytes]:
    """Return the fields of proc_pid_stat(5) from the state on, by the process's folder; OSError if gone."""
    # past pathlib and io, which take most of the time: for each process on a GPU it is read at each sample
    fd = os.open(f"{folder}/stat", os.O_RDONLY | os.O_CLOEXEC)
    try:
        # after the name, which may have blanks and brackets
        return os.read(fd, STAT_BYTES).rpartition(b")")[2].split()
    finally:
        os.close(fd)


def _stat(pid: int) -> list[bytes] | None:
    """Return the same by process id; None without such a process, or /proc."""
    try:
        return stat_fields(f"/proc/{pid}")
    except (FileNotFoundError, ProcessLookupError):
        return None


def _started_without_proc(pid: int) -> float | None:
    import psutil  # takes longer to import than the rest of an agent of a short run

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.Error:
        return None
