"""Whether a process is still the one that was meant."""

from __future__ import annotations

from pathlib import Path


def process_started(pid: int) -> float | None:
    """When the process started, in the system's own unit; None if it is gone or only waits to be collected.

    With the id it names one process: compare it with an earlier answer on the same host.
    """
    try:
        # behind the name, which may have blanks and brackets: the state, ..., 20th the start in ticks
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return None if fields[0] in "ZX" else float(fields[19])
    except FileNotFoundError:
        return None if Path("/proc/self/stat").exists() else _started_without_proc(pid)
    except ProcessLookupError:
        return None


def _started_without_proc(pid: int) -> float | None:
    import psutil  # takes longer to import than the rest of an agent of a short run

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.Error:
        return None
