"""Select the runs below a folder that satisfy a condition, and show them as a table."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, get_args, overload

from kharness.runs.bundle import opened
from kharness.runs.errors import MatrixError
from kharness.runs.query.stored_run import FACTS, StoredRun, read_run
from kharness.runs.status import Status
from monitoring.journal.files import JOURNAL, RUN_JSON
from monitoring.where import check_known, field_name, parse_where, spellings

# Folders in each other that are looked into: a matrix in a folder of a project in a folder of results.
DEPTH = 5

FRAMES = ("pandas", "polars")


class RunSelection(Sequence[StoredRun]):
    """Some runs, in the order of their names."""

    def __init__(self, found: Sequence[StoredRun], num_all: int, why_none: str = "") -> None:
        self._found = found
        self.num_all = num_all
        """How many there were to choose from."""
        self.why_none = why_none
        """The value of the condition that none of them has, and what is near; empty if that is not why."""

    @overload
    def __getitem__(self, index: int) -> StoredRun: ...
    @overload
    def __getitem__(self, index: slice) -> RunSelection: ...
    def __getitem__(self, index: int | slice) -> StoredRun | RunSelection:
        if isinstance(index, slice):
            return RunSelection(self._found[index], self.num_all)
        return self._found[index]

    def __len__(self) -> int:
        return len(self._found)

    def __repr__(self) -> str:
        return f"<{len(self)} of {self.num_all} runs>"

    @cached_property
    def differing(self) -> Sequence[str]:
        """The options that differ between these runs, or that only some have; `LR` and `lr` are one."""
        found: dict[str, None] = {}
        for run in self._found[1:]:
            first = self._found[0]
            # as of the runs of a matrix, of which there may be thousands
            if run.config.keys() == first.config.keys():
                differing = [name.lower() for name in first.config if first.config[name] != run.config[name]]
            else:
                known = spellings((*first.config, *run.config))
                differing = [name for name in known if first.option(name) != run.option(name)]
            found |= dict.fromkeys(differing)
        return [self._spelled[name] for name in found]

    @cached_property
    def _spelled(self) -> Mapping[str, str]:
        return spellings(name for run in self._found for name in run.config)

    def rows(self, *, best: bool = True) -> list[dict[str, Any]]:
        """Return a mapping per run, all with the same names: facts, options that differ, others, metrics.

        Metrics are `last.NAME` and `best.NAME`; None where a run has none. `best` reads whole journals. An
        option that runs spell in several cases has the name of the first that has it.
        """
        options = list(dict.fromkeys([*self.differing, *self._spelled.values()]))
        lasts = list(dict.fromkeys(name for run in self._found for name in run.last))
        bests = list(dict.fromkeys(name for run in self._found for name in run.best)) if best else []
        return [
            {
                "run": run.name,
                "project": run.project,
                "status": run.status,
                "step": run.step,
                "seconds": run.seconds,
                **{name: run.option(name.lower()) for name in options},
                **{f"last.{name}": run.last.get(name) for name in lasts},
                **{f"best.{name}": run.best.get(name) for name in bests},
            }
            for run in self._found
        ]

    def frame(self, package: str = "", *, best: bool = True) -> Any:
        """Return the rows as a frame of pandas, or of polars where only that is installed, or as they are.

        `package` names one of the two; MatrixError where it is not installed.
        """
        if package and package not in FRAMES:
            raise MatrixError(f"there is no frame of {package}", hint=" or ".join(FRAMES))
        for name in (package,) if package else FRAMES:
            make = _pandas() if name == "pandas" else _polars()
            if make is not None:
                return make(self.rows(best=best))
        if package:
            raise MatrixError(f"{package} is not installed", hint=f"pip install {package}")
        return self.rows(best=best)


def select(folder: Path | str = "results", *, where: str = "") -> RunSelection:
    """Return the runs below a folder that fulfill a condition, by the ends of their files.

    The condition is of comparisons, as monitoring.where has them: `model == 'gpt2' and lr > 1e-4`. Errors:
    WhereError for one that cannot be parsed, or a field that no run has; MatrixError for a folder that is not
    there or holds no run.
    """
    root, condition = opened(Path(folder).absolute()), parse_where(where)
    if not root.is_dir():
        hint = "name a folder of run directories; kharness run and Run write them, into results by themselves"
        raise MatrixError(f"{folder} is not a folder", hint=hint)
    found = [read_run(Path(path), name) for path, name in sorted(_directories(root))]
    if not found:
        raise MatrixError(f"no run lies in {folder}", hint="name a folder of run directories, or one of them")
    chosen = [run for run in found if condition(run.lookup)]
    if chosen:
        return RunSelection(chosen, len(found))
    check_fields(condition.fields, found)
    return RunSelection(chosen, len(found), condition.why_none(partial(_values, found)))


def _pandas() -> Callable[[list[dict[str, Any]]], Any] | None:
    """Return what makes a frame of rows; None where pandas is not installed."""
    try:
        import pandas
    except ModuleNotFoundError:
        return None
    return pandas.DataFrame  # type: ignore[no-any-return]


def _polars() -> Callable[[list[dict[str, Any]]], Any] | None:
    """Return the same of polars, which would take the types of a column from its first rows."""
    try:
        import polars
    except ModuleNotFoundError:
        return None
    return lambda rows: polars.DataFrame(rows, infer_schema_length=None)


def _values(runs: Sequence[StoredRun], field: str) -> Collection[object]:
    """The values that a field has, or may have."""
    if field == "status":
        return get_args(Status)
    return [value for run in runs if (value := run.lookup(field)) is not None]


def check_fields(fields: Iterable[str], runs: Sequence[StoredRun]) -> None:
    """WhereError for an option or a metric that no run has; a fact may be without a value in all of them."""
    missing = {field for field in fields if all(run.lookup(field) is None for run in runs)}.difference(FACTS)
    if missing:
        names = {field_name(name) for run in runs for name in (*run.config, *run.last)}
        check_known(missing, {*names, *FACTS} - missing)


def _directories(root: Path) -> Iterator[tuple[str, str]]:
    """Yield each run directory with its name below the root; links below it are not followed."""
    real = os.path.realpath(root)
    waiting = [(real, 0)]
    while waiting:
        path, depth = waiting.pop()
        if any(os.path.isfile(f"{path}/{name}") for name in (RUN_JSON, JOURNAL)):
            yield path, path[len(real) :].lstrip("/") or root.name
        elif depth < DEPTH:
            try:
                with os.scandir(path) as entries:
                    waiting += [
                        (entry.path, depth + 1)
                        for entry in entries
                        if entry.name[0] != "." and entry.is_dir(follow_symlinks=False)
                    ]
            except OSError:  # one that may not be read is none of ours
                continue
