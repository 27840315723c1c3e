"""RunSelection as lines of a terminal: `kharness ls`."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import zip_longest

from kharness.config.affects import WORDS, Affects
from kharness.config.config_py import read_affects
from kharness.config.errors import ConfigError
from kharness.runs.causes import EXPANDED
from kharness.runs.command import words_besides
from kharness.runs.query.selection import RunSelection, check_fields
from kharness.runs.query.stored_run import ALSO, FACTS, StoredRun
from monitoring.counts import counted
from monitoring.journal.fields import is_result, row_of
from monitoring.journal.fields.row import UNKNOWN_UNIT
from monitoring.journal.series.run_series import KINDS
from monitoring.where import NAME, field_name

# Of more runs the best values are shown when they are asked for: whole journals are read.
MOST_WITH_BEST = 100

ABSENT = "-"
_GAP = 2
_LEADING = ("run", "status", "step")
_SHORTEST_NAME = 16


@dataclass(frozen=True)
class Listing:
    """A table of runs: its columns and their room."""

    runs: RunSelection
    columns: Sequence[str] = ()
    """Options, metrics (`last.NAME`, `best.NAME`) and facts; empty for what tells the runs apart."""
    width: int | None = None
    """Characters of a line; None for any number."""
    best: bool = False
    """Whether best values are read, however many runs there are."""
    asked: Collection[str] = ()
    """Fields of a condition and of the order: those that differ between the runs are always shown."""

    def lines(self) -> list[str]:
        """The table, and which columns had no room; MatrixError for a column that no run has."""
        if not len(self.runs):
            why = f"; {self.runs.why_none}" if self.runs.why_none else ""
            return [f"none of {counted(self.runs.num_all, 'run')}{why}"]
        columns, left = (self._named(), []) if self.columns else self._fitting()
        table = zip(*(column.lines() for column in columns), strict=True)
        lines = [_line(row, columns).rstrip() for row in table]
        total = len(self.runs)
        some = "" if total == self.runs.num_all else f"{total} of "
        lines += ["", some + counted(self.runs.num_all, "run")]
        if columns[0].cells != [_shown(run.name) for run in self.runs]:
            lines[-1] += "; names are cut, --json has them whole"
        if left:
            lines[-1] += f"; no room for {', '.join(left)}: --columns NAME,NAME"
        return lines

    def _named(self) -> list[_ListedColumn]:
        check_fields(map(field_name, self.columns), self.runs)
        columns = [
            _ListedColumn(name, [run.lookup(field_name(name)) for run in self.runs]) for name in self.columns
        ]
        return [self._names(columns), *columns]

    def _names(self, others: Sequence[_ListedColumn]) -> _ListedColumn:
        """The column of the runs, their names cut where a line has no room for them and the others."""
        names = [run.name for run in self.runs]
        room = max(_SHORTEST_NAME, (self.width or sys.maxsize) - _width(others) - _GAP)
        return _ListedColumn("run", _shortened(names, room))

    def _fitting(self) -> tuple[list[_ListedColumn], list[str]]:
        """The columns that a line has room for: options that differ first, then results, one at least."""
        leading = [_ListedColumn(name, [FACTS[name](run) for run in self.runs]) for name in _LEADING]
        options = [
            *self._options(),
            *self._commands(),
        ]
        metrics = self._metrics()
        asked = {ALSO.get(name, name) for name in map(_field, self.asked)}
        options += self._besides(asked, [*leading, *options, *metrics])
        needed = [one for one in (*options, *metrics) if _field(one.name) in asked]
        needed += metrics[:1] if not {*needed} & {*metrics} else []
        leading[0] = self._names([*leading[1:], *needed])
        left: tuple[list[str], list[str]] = ([], [])
        while self.width is not None and _width([*leading, *options, *metrics]) > self.width:
            spare = [[one for one in of if one not in needed] for of in (options, metrics)]
            if not any(spare):
                break
            # The last column of the kind that has more, so that some of both stay.
            of_metrics = not spare[0] or (bool(spare[1]) and len(metrics) >= len(options))
            last = spare[of_metrics][-1]
            (metrics if of_metrics else options).remove(last)
            left[of_metrics].insert(0, last.name)
        return [*leading, *options, *metrics], [*left[0], *left[1]]

    def _besides(self, asked: Collection[str], columns: Sequence[_ListedColumn]) -> list[_ListedColumn]:
        """The asked fields that no column is of; one that all runs have alike tells nothing."""
        missing = sorted({*asked} - {NAME, *(_field(column.name) for column in columns)})
        spelled = {field_name(name): name for run in self.runs for name in (*run.config, *run.last)}
        found = [
            _ListedColumn(spelled.get(name, name), [run.lookup(name) for run in self.runs])
            for name in missing
        ]
        return [column for column in found if len({*column.cells}) > 1]

    def _options(self) -> list[_ListedColumn]:
        found = [
            _ListedColumn(name, [run.option(name.lower()) for run in self.runs]) for name in self._telling()
        ]
        return [column for column in found if len({*column.cells}) > 1]

    def _commands(self) -> list[_ListedColumn]:
        """The ends of commands that differ beside the options, of programs that were run once."""
        words = [
            [] if any(map(str.isupper, run.config)) else words_besides(run.command.split(), run.config)
            for run in self.runs
        ]
        own = [one for one in words if one]
        if len({*map(tuple, own)}) < 2:
            return []
        shared = next(n for n, column in enumerate(zip_longest(*own)) if len({*column}) > 1)
        ends = [" ".join(["…"[:shared], *one[shared:]]).strip() if one else None for one in words]
        if self.width is not None:  # the results are what is looked for
            most = self.width // 3
            ends = [f"{end[: most - 1]}…" if end and len(end) > most else end for end in ends]
        return [_ListedColumn("command", ends)]

    def _telling(self) -> list[str]:
        """The options that differ and that people set: no names made of others, no symbols of a choice.

        Nor what a report is to judge by, or which runs a matrix has, which tells no trainings apart.
        """
        differing = self.runs.differing
        affects = Affects()
        for run in self.runs if differing else ():
            with suppress(ConfigError):  # one that was edited by hand is listed like any other
                if (affects := read_affects(run.directory)).words:
                    break
        chosen = {f"{name}_{str(run.config.get(name)).upper()}" for run in self.runs for name in differing}
        left_out = EXPANDED | chosen
        telling = affects.names(differing, *(word for word in WORDS if word != "matrix"))
        return [name for name in telling if name not in left_out and not name.startswith("REPORT_")]

    def _metrics(self) -> list[_ListedColumn]:
        """The last value of each result and, next to it, the best; evaluations before steps."""
        found = list(dict.fromkeys(name for run in self.runs for name in run.last if _is_shown(name)))
        kinds = {name: kind for run in self.runs for name, kind in run.kinds.items()}
        found.sort(key=lambda name: -KINDS.index(kinds[name]))
        options = {name for run in self.runs for name in run.config}
        columns = []
        for name in found:
            columns.append(
                _ListedColumn(
                    f"last.{name}" if name in options else name, [run.last.get(name) for run in self.runs]
                )
            )
            if self.best or len(self.runs) <= MOST_WITH_BEST:
                bests = [run.best.get(name) for run in self.runs]
                if bests != columns[-1].values and any(value is not None for value in bests):
                    columns.append(_ListedColumn(f"best.{name}", bests))
        return columns


class _ListedColumn:
    """A column and its cells."""

    def __init__(self, name: str, values: Sequence[object]) -> None:
        self.name, self.values = name, list(values)
        self.cells = [_shown(value) for value in values]
        self.is_text = any(isinstance(value, str) for value in values)
        self.width = max(map(len, (name, *self.cells)))

    def lines(self) -> list[str]:
        return [self.name, "-" * self.width, *self.cells]


def json_lines(runs: RunSelection, *, best: bool) -> Iterator[str]:
    """Yield a line of JSON for each run: its row; what is not finite is null."""
    for row in runs.rows(best=best):
        finite = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in row.items()
        }
        yield json.dumps(finite, allow_nan=False)


def in_order(runs: RunSelection, name: str, *, reverse: bool = False) -> RunSelection:
    """Return runs by a field, the lowest first, or the highest; those without it come last.

    WhereError for a field that no run has.
    """
    check_fields([field_name(name)], runs)

    def key(run: StoredRun) -> tuple[bool, float, str]:
        value = run.lookup(field_name(name))
        is_number = isinstance(value, (int, float))
        return not is_number, float(value) if is_number else 0.0, str(value)  # type: ignore[arg-type]

    known = [run for run in runs if not _is_nothing(run.lookup(field_name(name)))]
    unknown = [run for run in runs if _is_nothing(run.lookup(field_name(name)))]
    return RunSelection([*sorted(known, key=key, reverse=reverse), *unknown], runs.num_all)


def _is_nothing(value: object) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _field(name: str) -> str:
    """Return the name that conditions have for a column: NAME for `last.NAME`."""
    return field_name(name).removeprefix("last.")


def _is_shown(name: str) -> bool:
    """Whether a metric is a result that is better up or down, or one that only the run knows.

    Where several kinds of records have it, the first is shown; of `best_NAME` the best of NAME.
    """
    row = row_of(name)
    return (
        is_result(name)
        and "@" not in name
        and not name.startswith("best_")
        and (row.better != "neither" or row.unit == UNKNOWN_UNIT)
    )


def _shortened(names: Sequence[str], most: int) -> list[str]:
    """Names cut in their middle to `most` characters; whole where no cut tells them apart."""
    for head in (most // 2, most // 3, 2 * most // 3, 0, most - 1):
        cut = [
            name if len(name) <= most else f"{name[:head]}…{name[len(name) - most + head + 1 :]}"
            for name in names
        ]
        if len({*cut}) == len({*names}):
            return cut
    return list(names)


def _line(cells: Sequence[str], columns: Sequence[_ListedColumn]) -> str:
    return (" " * _GAP).join(
        cell.ljust(column.width) if column.is_text else cell.rjust(column.width)
        for cell, column in zip(cells, columns, strict=True)
    )


def _width(columns: Sequence[_ListedColumn]) -> int:
    return sum(column.width + _GAP for column in columns) - _GAP


def _shown(value: object) -> str:
    if value is None:
        return ABSENT
    if isinstance(value, float):
        return f"{value:.6g}"
    return " ".join(str(value).split())
