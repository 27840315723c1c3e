"""Which run of a directory is watched: one that trains, and another one when that has ended."""

from __future__ import annotations

import time
from pathlib import Path

from monitoring.terminal.run_view import RunView, journals, open_run

# Seconds between two looks for runs that began later, as in a matrix.
LOOK_AGAIN = 2.0

# A look takes milliseconds in a matrix of a thousand cells; this share of the time goes into looks at most.
SHARE = 0.005

# Runs whose journals were written within so many seconds of the newest one train at the same time.
LATELY = 60.0


class RunWatch:
    """The run in a directory that wrote its journal last, until it ends; `turn` goes to the others."""

    def __init__(self, directory: Path) -> None:
        self.view: RunView | None = None
        """The watched run; None while there is none that can be read."""
        self.beside: list[Path] = []
        """The runs that wrote lately, by name, the watched one among them as long as it does."""
        self._directory = directory
        self._next_look = 0.0

    def look(self) -> None:
        """Take in what is new, of the watched run and of other runs."""
        began = time.monotonic()
        if began >= self._next_look:
            self._choose()
            now = time.monotonic()
            self._next_look = now + max(LOOK_AGAIN, (now - began) / SHARE)
        if self.view is not None:
            self.view.look()

    def turn(self, by: int) -> None:
        """Watch the run before or after this one."""
        if self.view is not None and self.beside:
            place = self.beside.index(self.view.directory) if self.view.directory in self.beside else -by
            self._open(self.beside[(place + by) % len(self.beside)])

    def place(self) -> tuple[int, int] | None:
        """The watched run's place among those that train, from 1, and their number; None if it is alone."""
        if self.view is None or len(self.beside) < 2 or self.view.directory not in self.beside:
            return None
        return self.beside.index(self.view.directory) + 1, len(self.beside)

    def _choose(self) -> None:
        written = journals(self._directory.resolve())  # a link may lead to a newer one by now
        if not written:
            return
        newest = max(written, key=lambda run: (written[run], run))
        self.beside = sorted(run for run in written if written[run] >= written[newest] - LATELY)
        if self.view is None or (self.view.directory != newest and not self._trains(self.view)):
            self._open(newest)

    def _trains(self, view: RunView) -> bool:
        # of a run on another machine only its journal says
        there = view.status.startswith("running") and view.directory in self.beside
        return there or view.status == "running"

    def _open(self, directory: Path) -> None:
        if self.view is None or self.view.directory != directory:
            self.view = open_run(directory) or self.view
            if self.view is not None:
                self.view.look()
