"""system_stats.jsonl: one record per sample of the machine; its one writer is the agent.

Another host than rank 0's has system_stats.HOST.jsonl, written by the agent there.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from monitoring.agent.sampling.last_step import LastStep
from monitoring.agent.sampling.sample_files import SampleFiles
from monitoring.host.name import host_name
from monitoring.journal.files import OF_RANK_0, SYSTEM_STATS, HostFiles
from monitoring.journal.records import Record
from monitoring.journal.rotating_journal import RotatingJournal


class SystemStats:
    """Turns samples into records of one attempt of a run, and appends them."""

    def __init__(
        self, directory: Path, run: Mapping[str, Any], file_bytes: int, keep: int, own: HostFiles = OF_RANK_0
    ) -> None:
        """`own` are the files of this host."""
        self._envelope: Record = {
            "event": "system",
            "time": 0.0,
            "seq": 0,
            "attempt": run["attempts"][-1]["attempt"],
            "global_step": 0,
            "correlation_id": run["run_id"],
            "host": host_name(),
        }
        path = directory / own.name(SYSTEM_STATS)
        self._journal = RotatingJournal(path, file_bytes=file_bytes, keep=keep)
        self._step = LastStep(directory / own.journal)

    def append(self, values: Mapping[str, object]) -> None:
        """Write one sample's record."""
        now = {"time": time.time(), "global_step": self._step.read()}
        self._journal.append({**self._envelope, **now, **values})

    def close(self) -> None:
        self._journal.close()
        self._step.close()


class SystemStatsFiles(SampleFiles):
    """How system_stats.jsonl is compressed and thinned."""

    where = "SYSTEM_STATS_FILES times SYSTEM_STATS_FILE_MB are full"
