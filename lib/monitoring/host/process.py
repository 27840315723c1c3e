"""Whether a process is still the one that was meant."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def process_started(pid: int) -> float | None:
    """When the process started, in the system's own unit; None if it is gone or only waits to be collected.

    With the id it names one process: compare it with an earlier answer on the same host.
    """
    try:
        # after the name, which may have blanks and brackets: the state, ..., 20th the start in ticks
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return None if fields[0] in "ZX" else float(fields[19])
    except FileNotFoundError:
        return None if Path("/proc/self/stat").exists() else _started_without_proc(pid)
    except ProcessLookupError:
        return None


def is_alive(attempt: Mapping[str, Any]) -> bool:
    """Whether the process of an attempt of run.json is still alive; call it on its host."""
    return bool(process_started(attempt["pid"]) == attempt["pid_started"])


def own_age() -> float:
    """Seconds since this process began; by the clock that the system notes it with, which nobody sets."""
    started = process_started(os.getpid()) or 0.0
    if not Path("/proc/self/stat").exists():
        return time.time() - started
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK")


def _started_without_proc(pid: int) -> float | None:
    import psutil  # takes longer to import than the rest of an agent of a short run

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.Error:
        return None
