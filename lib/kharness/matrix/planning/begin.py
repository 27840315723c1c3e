"""Create run directories atomically: none is seen half-written, and interrupted ones are recognized.

A directory is made in PARENT/.planning_NAME/NAME, moved to PARENT/NAME when all of it is there, and then the
`latest` link points at it. So a planner that is killed leaves `.planning_NAME`, whatever it was at.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Self, TypeVar

from kharness.runs.errors import MatrixError
from kharness.runs.files import RUNNER_LOCK
from kharness.runs.latest import shown
from kharness.runs.lock import RunnerLock, holder
from kharness.runs.rundir import create_exclusively, link_latest, numbered
from monitoring.journal.atomic_file import sync_folder

MAKING = ".planning_"

# What plans a directory again, by the beginning of its name.
_PLANNED_BY = {"test_matrix_": "make test_matrix", "sweep_": "make sweep RANGE_CONFIG=file"}

PlanT = TypeVar("PlanT")


class Planning:
    """A directory with a unique name; removed if it is not published."""

    def __init__(self, place: Path, workshop: Path) -> None:
        self.place = place
        """Where it will be."""
        self.directory = workshop / place.name
        """Where to write it; not there yet."""
        self._workshop = workshop
        self._lock = RunnerLock(workshop)

    @classmethod
    def begin(cls, parent: Path, name: str) -> Planning | None:
        """Begin a directory; None if the name is taken or in use by another runner; MatrixError if no folder
        can be made.
        """
        workshop = create_exclusively(parent, f"{MAKING}{name}")
        if workshop is None:
            return None
        if os.path.lexists(parent / name):
            workshop.rmdir()
            return None
        return cls(parent / name, workshop)

    @classmethod
    def begin_numbered(cls, parent: Path, wanted: str) -> Planning:
        """Begin PARENT/WANTED, or WANTED_2 and so on where that is taken."""
        return next(filter(None, (cls.begin(parent, numbered(wanted, number)) for number in count(1))))

    def __enter__(self) -> Self:
        self._lock.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._lock.__exit__(*error)
        with contextlib.suppress(OSError):  # a program that is published waits for no import
            (self._workshop / RUNNER_LOCK).unlink()
            self._workshop.rmdir()
        if self._workshop.exists():
            import shutil

            shutil.rmtree(self._workshop, ignore_errors=True)

    def publish(self, *, newest: bool = True, durable: bool = True) -> None:
        """Rename the directory to its final name; `latest` means the `newest` from now on.

        A `durable` name survives a loss of power from here on, for which one waits.
        """
        os.rename(self.directory, self.place)
        if durable:
            sync_folder(self.place.parent)
        if newest:
            link_latest(self.place)


def publish_new(
    results: Path,
    wanted: str,
    planned: Callable[[Path], PlanT],
    check: Callable[[PlanT], None],
    fill: Callable[[PlanT, Path], None],
) -> PlanT:
    """Plan for RESULTS/WANTED, or WANTED_2 and so on, and `fill` it; nothing is written if a check fails."""
    names = (numbered(wanted, number) for number in count(1))
    while True:
        # Another runner may take the name between this look and `begin`, which then returns None.
        name = next(name for name in names if not (results / name).exists())
        plan = planned(results / name)
        check(plan)
        if (planning := Planning.begin(results, name)) is not None:
            break
    with planning:
        fill(plan, planning.directory)
        planning.publish()
    return plan


def refuse_unplanned(latest: Path) -> None:
    """Raise MatrixError if a matrix begun after `latest` is still being planned, or its planning was cut off.

    Who means the newest must not get an older one without a word.
    """
    unplanned = what_is_unplanned(latest)
    if unplanned is not None:
        raise unplanned


def what_is_unplanned(latest: Path) -> MatrixError | None:
    """The error of `refuse_unplanned`, for who only looks."""
    workshop = _newest(latest)
    if workshop is None:
        return None
    place = workshop.parent / workshop.name.removeprefix(MAKING)
    before = f"RUN={shown(latest.resolve())}" if latest.exists() else ""
    if (planner := holder(workshop)) is not None:
        what, hint = f"is being planned by {planner}", "wait until it runs"
    elif place.exists():
        what, hint = "was planned, and cut off before it began", f"name it: RUN={shown(place)}"
    else:
        what = "was cut off while it was being planned; nothing of it has run"
        prefix = next((known for known in _PLANNED_BY if place.name.startswith(known)), "")
        hint = f"plan it again: {_PLANNED_BY.get(prefix, 'make train')}"
    return MatrixError(
        f"{shown(place)} {what}", hint=f"{hint}; or name the one before it: {before}" if before else hint
    )


def _newest(latest: Path) -> Path | None:
    """The youngest directory in the making that was begun after the link was set."""
    since = 0
    with contextlib.suppress(FileNotFoundError):
        since = latest.lstat().st_mtime_ns
    begun: dict[Path, int] = {}
    for workshop in latest.parent.glob(f"{MAKING}*"):
        with contextlib.suppress(FileNotFoundError):  # published while we looked
            begun[workshop] = workshop.stat().st_mtime_ns
    newest = max(begun, key=lambda one: begun[one], default=None)
    return newest if newest is not None and begun[newest] > since else None
