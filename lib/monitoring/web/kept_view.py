"""Collects all that the scripts of a view would ask the server for: it can be shown without one."""

from __future__ import annotations

import base64
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol
from urllib.parse import parse_qs

from monitoring.errors import UserError
from monitoring.host.small_file import text_of
from monitoring.journal.files import ENVIRONMENT_JSON
from monitoring.web.charts import Charts
from monitoring.web.details import RunDetails
from monitoring.web.files import LOG, names_in, pictures_in, read_log, read_picture
from monitoring.web.folders import RunIndex
from monitoring.web.past import row_then
from monitoring.web.rows import RunRow
from monitoring.where import Where, parse_where

# So many of the newest runs are drawn where none are chosen, as by page/home.js.
NEWEST = 8

# Runs that one file draws, numbers of all their charts together, and buckets of a chart.
MOST_RUNS = 100
MOST_NUMBERS = 600_000
BUCKETS = range(60, 800)

# Ranks or GPUs of a run that are drawn, as by page/board.js.
MOST_KEYS = 64

LOGS = 3
PICTURE_BYTES = 8 * 2**20

Row = Mapping[str, Any]


class ViewSource(Protocol):
    """The server's answers, or a part of them."""

    index: RunIndex
    details: RunDetails
    charts: Charts
    additions: Sequence[Any]

    def all_rows(self) -> list[RunRow]: ...

    def row(self, row: RunRow) -> dict[str, Any]: ...

    def changes(self, since: int, epoch: int) -> dict[str, Any]: ...

    def selected(self, selection: Where, rows: Sequence[RunRow]) -> list[str]: ...


class NotKept(UserError):
    """A view that cannot be saved as a file."""


class KeptView:
    """One view, by the address that the page has for it; it reads files, and may take seconds."""

    def __init__(self, answers: ViewSource, address: str) -> None:
        self._answers = answers
        self._address = address if address.startswith("#") else f"#{address}"
        self._view = parse_qs(address.lstrip("#"), keep_blank_values=True)
        self.run = self._one("run")
        moment = self._one("at")
        try:
            self._moment = float(moment) if moment else None
        except ValueError:
            self._moment = None

    def content(self) -> dict[str, Any]:
        """Return what page/kept.js answers by. NotKept for a run that is not there, or for too many."""
        rows = self._rows()
        drawn = self._drawn(rows)
        told = {**self._answers.changes(0, 0), "rows": [self._answers.row(row) for row in rows]}
        told |= {"gone": [], "problems": [], "read_only": True, "all_read": True, "whole": True}
        kept: dict[str, Any] = {"api/runs": told}
        for row in drawn:
            kept[f"api/run {row.id}"] = self._details(row)
        if self.run:
            kept |= self._files(drawn[0])
        for addition in self._answers.additions:
            view = {name: values[-1] for name, values in self._view.items()}
            kept |= addition.kept(self._answers, view, [row.id for row in drawn])
        return {
            "address": self._address,
            "saved": time.time(),
            "answers": kept,
            "series": self._series(drawn),
            "pictures": self._pictures(drawn[0]) if self.run else {},
        }

    def _one(self, name: str) -> str:
        return self._view.get(name, [""])[-1]

    def _rows(self) -> list[RunRow]:
        """The rows of the table: those that the filter selects and nobody has hidden, and the baseline."""
        rows: Sequence[RunRow | None] = self._answers.all_rows()
        if self._moment is not None:
            rows = [row_then(row, self._moment) for row in rows if row is not None]
        found = [row for row in rows if row is not None]
        named = {self.run, self._one("base")}
        if self.run:
            return [row for row in found if row.id in named]
        hidden = {*self._view.get("hide", ())}
        found = [row for row in found if row.id not in hidden]
        if not self._one("where").strip():
            return found
        chosen = {*self._answers.selected(parse_where(self._one("where")), found), *named}
        return [row for row in found if row.id in chosen]

    def _drawn(self, rows: Sequence[RunRow]) -> list[RunRow]:
        if self.run:
            found = [row for row in rows if row.id == self.run]
            if not found:
                raise NotKept("there is no such run any more")
            return found
        if "sel" in self._view:
            chosen = [*dict.fromkeys(self._view["sel"])]
            by_id = {row.id: row for row in rows}
            found = [by_id[one] for one in chosen if one in by_id]
        else:
            found = sorted(rows, key=lambda row: -(row.facts["started"] or 0))[:NEWEST]
        if len(found) > MOST_RUNS:
            raise NotKept(f"one file draws {MOST_RUNS} runs at most, not {len(found)}", hint="choose fewer")
        return found

    def _details(self, row: RunRow) -> dict[str, Any]:
        found = self._answers.details.of(self._answers.index.get(row.id) or row, self._moment)
        found["control"]["why_not"] = "this is a saved view"
        found["pending"] = found["traces"] = []
        if not self.run:
            found |= {"logs": [], "pictures": [], "has_environment": False}
        found["logs"] = found["logs"][:LOGS]
        return found

    def _files(self, row: RunRow) -> dict[str, Any]:
        """The ends of a run's logs, and its environment."""
        found: dict[str, Any] = {}
        for name in names_in(row.directory, LOG)[:LOGS]:
            part = read_log(row.directory, name)
            shown = {"text": part.text, "begins": 0, "ends": part.ends, "size": part.size}
            found[f"api/log {row.id} {name}"] = shown
        environment = text_of(row.directory / ENVIRONMENT_JSON)
        if environment:
            found[f"api/environment {row.id}"] = _parsed(environment)
        return found

    def _pictures(self, row: RunRow) -> dict[str, str]:
        found, room = {}, PICTURE_BYTES
        for name in pictures_in(row.directory):
            data = read_picture(row.directory, name)
            room -= len(data)
            if room < 0:
                break
            found[name] = f"data:image/png;base64,{base64.b64encode(data).decode()}"
        return found

    def _series(self, drawn: Sequence[RunRow]) -> dict[str, Any]:
        """Every metric of the runs over all of its range, in as many buckets as there is room for."""
        x, charts = self._one("x") or "step", self._answers.charts
        asked: Any = {
            "x": x,
            "lo": None,
            "hi": None,
            "moment": self._moment,
            "log_x": self._one("xlog") == "1",
        }
        wanted: dict[str, list[dict[str, Any]]] = {}
        for row in drawn:
            # Until all is read, for a metric may come with the last records.
            while (about := charts.windows(row, [], buckets=1, **asked))["more"]:
                pass
            keys = MOST_KEYS if self.run else 1
            wanted[row.id] = [
                {"metric": name, "key": key}
                for name, one in about["metrics"].items()
                for key in one["keys"][:keys]
            ]
        num = sum(map(len, wanted.values())) or 1
        # Four numbers per bucket: where it is, the last value, the least and the greatest.
        buckets = min(BUCKETS.stop, max(BUCKETS.start, MOST_NUMBERS // (4 * num)))
        found = {}
        for row in drawn:
            found[row.id] = charts.windows(row, wanted[row.id], buckets=buckets, **asked)
            for window in found[row.id]["windows"]:
                for name in ("x", "last", "min", "max"):
                    if name in window:
                        window[name] = [_short(value, 10 if name == "x" else 6) for value in window[name]]
        return found


def _short(value: float, digits: int) -> float | int:
    """A number with as many digits as a chart shows, and none after the point where it is whole."""
    if value != value:
        return value
    short = float(f"{value:.{digits}g}")
    return int(short) if short.is_integer() and abs(short) < 2**53 else short


def _parsed(text: str) -> Any:
    import json

    try:
        return json.loads(text)
    except ValueError:
        return {}
