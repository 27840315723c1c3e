"""The key `s`: saves the newest samples, and the steps of the graphs, in the formats of GPUMonitor."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from monitoring.errors import MonitoringError
from monitoring.gpu.sample import Snapshot
from monitoring.gpu_monitor.lines import metrics_line
from monitoring.gpu_monitor.metrics_log import MetricsLog, file_stamp
from monitoring.terminal.run_view import RunView


def save(folder: Path, samples: Sequence[Snapshot], run: RunView | None) -> str:
    """Write gpu_metrics_*.jsonl and training_metrics_*.jsonl; returns a sentence on the result."""
    stamp, written = file_stamp(time.time()), []
    correlation_id = run.run_id if run is not None else ""
    gpus = [metrics_line(sample, looked.time, correlation_id) for looked in samples for sample in looked.gpus]
    steps = run.training_lines() if run is not None else []
    try:
        for prefix, lines in (("gpu_metrics", gpus), ("training_metrics", steps)):
            if not lines:
                continue
            log = MetricsLog(folder, prefix, stamp)
            for line in lines:
                log.append(line)
            log.close()
            if log.failure is not None:
                raise log.failure
            written.append(log.path)
    except (MonitoringError, OSError) as error:
        return f"not saved: {error}"
    return f"saved {_names(written)}" if written else "nothing to save yet"


def _names(paths: Sequence[Path]) -> str:
    """Return a text that is short, and that a shell takes: DIR/{gpu,training}_metrics_STAMP.jsonl."""
    kinds, stamps = zip(*(path.name.split("_", 1) for path in paths), strict=True)
    if len(paths) > 1 and len(set(stamps)) == 1:
        return f"{paths[0].parent}/{{{','.join(kinds)}}}_{stamps[0]}"
    return ", ".join(map(str, paths))
