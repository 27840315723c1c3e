"""What is particular about gpu_stats.jsonl where its full files are compressed and thinned."""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO, cast

from monitoring.gpu.aggregates import is_the_runs
from monitoring.journal.records import Record
from monitoring.journal.rotating_journal import oldest_unarchived


class GpuStatsFiles:
    """The files of samples that a run's agent writes; RotatingJournal removes those with an archive."""

    where = "GPU_STATS_FILES times GPU_STATS_FILE_MB are full"

    def oldest(self, path: Path) -> tuple[BinaryIO, int, int] | None:
        return oldest_unarchived(path)

    def series(self, record: Record) -> object:
        """Each record has all GPUs."""
        return None

    def distinct(self, record: Record) -> object:
        """No attempt, no state of a GPU and no change of whose it is are thinned away."""
        gpus = cast("list[dict[str, Any]]", record.get("multi_gpu_data", ()))
        return record["attempt"], record["event"], [(gpu["state"], is_the_runs(gpu)) for gpu in gpus]
