"""A launcher as somebody else might write one: it hands files to a queue that knows nothing of kharness.

folder_queue.py is the queue. Its job ids are names of files, and all that it tells is in files beside them.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kharness.runs.files import OUTPUT_LOG
from kharness.runs.launch import Exit, Job, Launch, Launcher, Slot


@dataclass(frozen=True)
class Options:
    """Where the queue is."""

    folder: str = ""


def open_launcher(options: Options, say: Callable[[str], None]) -> Launcher:
    return Spool(Path(options.folder))


class Spool:
    """Jobs of the queue in a folder."""

    name = "spool"

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def submit(self, launch: Launch, slot: Slot) -> Job:
        name = f"{launch.name}-{uuid.uuid4().hex[:8]}"
        job = {
            "command": launch.command,
            "directory": str(launch.root),
            "environment": slot.environment(),
            "log": str(launch.directory / OUTPUT_LOG),
        }
        new = self._folder / f"{name}.new"
        new.write_text(json.dumps(job))
        new.rename(self._folder / f"{name}.job")
        return Job(launcher=self.name, id=name, host="queue", pid=None, started=time.time())

    def poll(self, job: Job) -> Exit | None:
        try:
            ended = json.loads((self._folder / f"{job.id}.ended").read_text())
        except FileNotFoundError:
            return None
        code = ended["code"]
        return Exit(code if code >= 0 else None, -code if code < 0 else None, ended["time"])

    def cancel(self, job: Job, *, kill: bool) -> None:
        (self._folder / f"{job.id}.{'kill' if kill else 'stop'}").touch()

    def alive(self, job: Job) -> bool:
        return self.poll(job) is None

    def filenos(self) -> Sequence[int]:
        return ()

    def close(self) -> None:
        """The queue goes on without us."""
