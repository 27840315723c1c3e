"""A run that a framework's callback opens when training begins, and that ends with the process.

Frameworks call nothing at the very end: an evaluation after the training still belongs to the run, and a
training that raises calls its callbacks no more.
"""

from __future__ import annotations

import atexit
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from monitoring.journal.end_status import COMPLETE, INTERRUPTED
from monitoring.journal.files import JOURNAL
from monitoring.run import Run


@dataclass
class RunSettings:
    """What a callback is told of the run that it opens; the fields are those of Run."""

    directory: Path | None
    name: str | None = None
    project: str | None = None
    trackers: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    gpu_monitor: bool | Mapping[str, Any] = False
    agent: bool = True


class OpenRun:
    """A Run with the end that fits how its training went."""

    def __init__(self, settings: RunSettings, config: Mapping[str, object], rank: int = 0) -> None:
        """Errors: those of Run, for the user to fix before the first step."""
        assert settings.directory is not None
        self.run = Run(
            settings.directory,
            name=settings.name or settings.directory.resolve().name,
            project=settings.project or settings.directory.resolve().parent.name or "runs",
            config=config,
            trackers=settings.trackers,
            gpu_monitor=settings.gpu_monitor,
            agent=settings.agent,
            rank=rank,
        )
        self.is_trained = False
        """Whether the training has gone to its end."""
        self._at_end: dict[str, object] = {}
        atexit.register(self.close)

    def resumed(self, step: int, checkpoint: str | None = None) -> dict[str, object]:
        """`resumed_from` and `supersedes` of the start record of a training that goes on after a step."""
        # here, because only a training that resumes, or one in a used directory, needs it
        from monitoring.journal.lineage import superseding

        at = {"checkpoint": checkpoint, "global_step": step} if step else None
        gone = None if self.run.rank else superseding(self.run.directory / JOURNAL, step)
        return {"resumed_from": at, "supersedes": gone}

    def add_to_end(self, **fields: object) -> None:
        """Fields of the end record."""
        self._at_end.update(fields)

    def close(self, error: BaseException | None = None) -> None:
        """Write the end record: complete, or failed by `error` or by what ends the process."""
        atexit.unregister(self.close)
        error = error or (None if self.is_trained else getattr(sys, "last_value", None))
        if error is None and self.is_trained:
            self.run.finish(COMPLETE, **self._at_end)
        elif error is None or isinstance(error, KeyboardInterrupt):
            self.run.finish(INTERRUPTED, cause="stopped", **self._at_end)
        else:
            self.run.__exit__(type(error), error, error.__traceback__)
