"""Where a Run writes in a program that runs under the bridge: a file of its own, which the bridge reads.

The bridge is the only writer of the run's journal. Such a Run starts no agent and writes no run.json.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from monitoring.errors import make_directory

SPOOL = "MONITORING_SPOOL"
"""Environment variable: the folder of such files."""
ENDING = ".spool.jsonl"


def spool_file(rank: int) -> Path | None:
    """Return a new file for this process's records; None unless a bridge requested one.

    Only those of rank 0 are read.
    """
    if not (folder := os.environ.get(SPOOL)):
        return None
    make_directory(Path(folder))
    import uuid  # here, for most runs need no spool

    # in the order of their beginning; two of one process at one time are told apart by the last part
    name = f"{time.time_ns()}-{os.getpid()}-{uuid.uuid4().hex[:6]}"
    return Path(folder) / (f"{name}.rank{rank:04d}.jsonl" if rank else f"{name}{ENDING}")


def spooled_run(*, name: str, project: str, config: Mapping[str, object]) -> dict[str, Any]:
    """Return what a Run needs to know of itself where no run.json is written."""
    import uuid  # as above

    return {"run_id": uuid.uuid4().hex, "tracking": {"name": name, "project": project}, "config": config}
