"""Something that an agent samples in the background, and when that is done."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from monitoring.journal.alerts import Alerts, Severity
from monitoring.journal.files import HostFiles

if TYPE_CHECKING:
    from monitoring.gpu.options import MachineMonitorOptions
    from monitoring.journal.encoding.archiver import Thinning


class Sampling:
    """Something sampled in the background; one thread calls the methods, none of which waits."""

    def __init__(self, directory: Path, alerts: Alerts) -> None:
        self._directory, self._alerts = directory, alerts
        self.done = threading.Event()
        """Set when no sample follows."""

    def start(self) -> None:
        """Begin to sample."""

    def watch(self) -> None:
        """Look, now and then, whether something does not answer."""

    def end(self) -> None:
        """Request one more sample, the last."""


class JournalSampling(Sampling):
    """Samples one attempt of a run into a journal of its own until `end` is called; then `done` is set."""

    journal: str
    """The name that rank 0's host gives its journal."""
    thinning: Thinning

    def __init__(
        self,
        directory: Path,
        run: Mapping[str, Any],
        alerts: Alerts,
        own: HostFiles,
        options: MachineMonitorOptions | None,
    ) -> None:
        """`run` is the run.json of a run that asks for samples, `own` are the files of this host."""
        super().__init__(directory, alerts)
        assert options is not None
        self._run, self._own, self._options = run, own, options
        self._ending = threading.Event()
        self._failure = ""
        self._told: set[str] = set()

    def start(self) -> None:
        """Begin to sample, and to archive full files of samples."""
        from monitoring.gpu.sample import MIB
        from monitoring.journal.encoding.archiver import Archiver

        options, path = self._options, self._directory / self._own.name(self.journal)
        size = options.file_mb * MIB
        archiver = Archiver(path, self.thinning, file_bytes=size, keep=options.files, tell=self._tell_once)
        work: dict[str, Callable[[], None]] = {"sampling": self._sample}
        work["archive"] = partial(archiver.run, self._ending)
        for name, target in work.items():
            threading.Thread(target=target, name=f"{options.NAME} {name}", daemon=True).start()

    def end(self) -> None:
        """Request one more sample, the last."""
        self._ending.set()

    def _sample(self) -> None:
        """Sample until the end, whatever fails, and set `done`."""
        raise NotImplementedError

    def _tell_once(self, severity: Severity, message: str) -> None:
        if message not in self._told:
            self._told.add(message)
            self._alerts.add(self._options.NAME, severity, message)


class AllDone:
    """Several events, none of which is ever cleared, as one."""

    def __init__(self, events: Sequence[threading.Event | AllDone]) -> None:
        self._events = events

    def is_set(self) -> bool:
        return all(event.is_set() for event in self._events)

    def wait(self, seconds: float) -> bool:
        """Return True as soon as all are set, False after so many seconds."""
        deadline = time.monotonic() + seconds
        return all(event.wait(max(0.0, deadline - time.monotonic())) for event in self._events)


Awaited = threading.Event | AllDone
"""An event that happens once and stays set, or several as one."""
