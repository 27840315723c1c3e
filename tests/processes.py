"""Processes that may end at any moment, also between two questions about them."""

from __future__ import annotations

import contextlib
import os

import psutil


def is_gone(process: psutil.Process) -> bool:
    """Whether it has ended, also where nobody has waited for it yet."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def kill_process(process: psutil.Process) -> None:
    """SIGKILL, unless it has ended by itself meanwhile."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process.kill()


def open_files(pid: int) -> set[str]:
    """Names of what a process has open, which may close any of them meanwhile; none once it is gone."""
    found = set()
    with contextlib.suppress(OSError):
        for descriptor in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(FileNotFoundError):
                found.add(os.readlink(f"/proc/{pid}/fd/{descriptor}"))
    return found


def naming(text: str) -> list[psutil.Process]:
    """Those of the machine with this text in their command; psutil takes 20 ms to ask all for theirs."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError, psutil.NoSuchProcess):
            with open(f"/proc/{pid}/cmdline", "rb") as command:
                is_named = os.fsencode(text) in command.read()
            if is_named:
                found.append(psutil.Process(int(pid)))
    return found


def with_arguments(argument: str, processes: list[psutil.Process]) -> list[psutil.Process]:
    """Those that run and were started with this argument."""
    found = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.status() != psutil.STATUS_ZOMBIE and argument in process.cmdline():
                found.append(process)
    return found
