"""A GPU monitor's values for Prometheus, in the metrics that the exporter of runs has."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

from monitoring.exporters._monitor_files import ShownMonitor
from monitoring.gpu.aggregates import aggregate
from monitoring.gpu.history import GpuHistory
from monitoring.host.name import host_name
from monitoring.journal.encoding.json_form import mark_nonfinite
from monitoring.journal.records import Record
from monitoring.journal.run_metrics import RankMetrics
from monitoring.trackers import require_package

if TYPE_CHECKING:
    from monitoring.exporters._monitor_port import MonitorPort


class MonitorMetrics(ShownMonitor):
    """Shows a monitor, and the training that calls it, as a run; a scrape reads it from its own thread."""

    def __init__(self, name: str, history: GpuHistory, correlation_id: str) -> None:
        run = {"run_id": correlation_id, "tracking": {"project": "", "group": None}}
        super().__init__(name, host_name(), run, os.getpid(), RankMetrics())
        self._history = history
        self._seq = 0
        self._lock = threading.RLock()
        self._shown: MonitorPort | None = None

    @property
    def address(self) -> str | None:
        return None if self._shown is None else self._shown.address

    def samples(self, now: float) -> list[dict[str, Any]]:
        latest = self._history.latest
        if latest is None:
            return []
        gpus = [sample._asdict() for sample in latest.gpus]
        about = {"host": self.host, "time": latest.time, "aggregate_stats": aggregate(latest.gpus)}
        return [{**about, "multi_gpu_data": gpus}]

    def begin_training(self, now: float) -> None:
        self.trains, self.rank = True, RankMetrics()
        self._update({"event": "start", "time": now})

    def take_step(self, record: Record, epoch: float | None, num_steps: int) -> None:
        """Take a step record; `num_steps` is how many steps have ended, whatever they are called."""
        self._update(record)
        # a loop may count from 0, or report every tenth step only
        self.rank.most_steps = max(self.rank.most_steps, num_steps)
        if epoch is not None:
            self.rank.epochs_done = epoch

    def end_training(self, now: float) -> None:
        self.trains = False
        self._update({"event": "end", "time": now})

    def serve(self, host: str, port: int) -> None:
        """Have scrapes answered; PortTakenError if nobody does there, MissingPackage without the client."""
        require_package("prometheus_client")
        # here, because few monitors are shown to anybody
        from monitoring.exporters._monitor_port import MonitorPort

        self._shown = MonitorPort(self, host, port)

    def close(self) -> None:
        """Stop being shown."""
        if self._shown is not None:
            self._shown.close()
            self._shown = None

    def _update(self, record: Record) -> None:
        with self._lock:
            self._seq += 1
            shown = {**record, "seq": self._seq, "attempt": 1}
            mark_nonfinite(shown)
            self.rank.update(shown)
