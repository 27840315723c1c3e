"""Whether a process is still the one that was meant."""

from __future__ import annotations

import psutil


def process_started(pid: int) -> float | None:
    """Start of the process (UTC epoch seconds), None if it is gone; no later process has both."""
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return process.create_time()
    except psutil.Error:
        return None
