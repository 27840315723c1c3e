"""The page of a matrix: its cells by status, its variants by seeds, the last look, commands to type."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

from kharness.config.record import read_record
from kharness.pages.recorded_look import headlines, next_look, read_look, shown_look
from kharness.report.judging.interim_looks import Looks
from kharness.runs.command import COMMAND_JSON
from kharness.runs.errors import MatrixError
from kharness.runs.files import LEADERBOARD_JSON, STATUS_JSON, SUMMARY_JSON
from kharness.runs.latest import shown
from kharness.runs.lock import holder
from kharness.runs.matrix_plan import axis_of_seeds, known_failures, read_matrix_json, takes_seeds
from kharness.runs.rundir import plan_path
from kharness.runs.seeds_of_run import command_on, continue_with_seeds, matrix_again, more_seeds
from kharness.runs.standing import standing
from kharness.runs.status import (
    COMPLETE,
    INTERRUPTED,
    KILLED,
    PENDING,
    QUEUED,
    RUNNING,
    SILENT,
    TIMEOUT,
    RunStatus,
    failed_before,
    read_status,
)
from monitoring.errors import UserError

# How a cell is told that the matrix ended because it was losing.
STOPPED = "stopped early"

# As a cell goes through them.
ORDER = (COMPLETE, RUNNING, QUEUED, PENDING, STOPPED, INTERRUPTED, SILENT, TIMEOUT, KILLED)

# What may become another status without a change of status.json.
OPEN = (PENDING, QUEUED, RUNNING)

Rows = Mapping[str, Mapping[str, Any]]
"""Name of a cell -> what is known of its run: `id`, `status`, `step`, `steps`, `left`, `errors`."""

# Axes that are part of a title.
MOST_NAMED = 4

_NAMED_BY_TIME = re.compile(r"(test_matrix|sweep)_\d{8}T\d{6}Z")


class MatrixFiles:
    """Reads the files of matrices, each again only when it has changed; any thread may ask."""

    def __init__(self) -> None:
        self._plans = Kept[dict[str, Any] | None](lambda path: read_matrix_json(path.parent), None)
        self._statuses = Kept[RunStatus | None](_status, None)
        self._looks = Kept[dict[str, Any] | None](read_look, None)
        self._best = Kept[dict[str, Any] | None](_best, None)

    def plan(self, directory: Path) -> dict[str, Any] | None:
        """Return matrix.json; None for a directory without one, MatrixError for one that cannot be read."""
        return self._plans.of(plan_path(directory))

    def look(self, directory: Path) -> tuple[dict[str, Any] | None, str]:
        """Return the recorded look, or None and the reason why it cannot be shown, empty without one."""
        try:
            return self._looks.of(directory / SUMMARY_JSON), ""
        except (OSError, ValueError, KeyError, TypeError) as error:
            return None, f"{SUMMARY_JSON} cannot be read: {error}"

    def cells(self, directory: Path, plan: Mapping[str, Any], rows: Rows) -> list[dict[str, Any]]:
        """Return each cell of the plan with its status."""
        known = known_failures(plan)
        return [
            {
                "place": place,
                **_cell(cell, self._standing(directory / cell["name"], rows), rows, known),
            }
            for place, cell in enumerate(plan["cells"])
        ]

    def _standing(self, run: Path, rows: Rows) -> RunStatus:
        """Return how a cell stands; of one that has ended status.json is read again once it has changed."""
        kept = self._statuses.of(run / STATUS_JSON)
        is_final = kept is not None and kept.status == rows.get(run.name, {}).get("status", kept.status)
        return kept if kept is not None and is_final and kept.status not in OPEN else standing(run)

    def brief(self, directory: Path, rows: Rows) -> dict[str, Any] | None:
        """Return a matrix or sweep for a list: its name, cells by status and verdicts; None for no matrix."""
        try:
            plan = self.plan(directory)
        except MatrixError as error:
            return {"title": directory.name, "problem": str(error), "created": 0.0}
        if plan is None:
            return None
        look, problem = self.look(directory)
        counts = Counter(
            str(rows[name]["status"]) for cell in plan["cells"] if (name := cell["name"]) in rows
        )
        if waiting := len(plan["cells"]) - sum(counts.values()):
            counts[PENDING] += waiting
        return {
            **_about(directory, plan),
            "counts": counts,
            "problem": problem,
            "best": self._best.of(directory / LEADERBOARD_JSON),
            "look": look
            and {
                "recorded": look["recorded"],
                "baseline": look.get("baseline"),
                "metric": look.get("decisive_metric"),
                "unit": (look.get("metrics") or {}).get(look.get("decisive_metric"), {}).get("unit", ""),
                "since": max(0, counts[COMPLETE] - sum(run["status"] == COMPLETE for run in look["runs"])),
                "compared": len(look["comparisons"]),
                "shown": [
                    {
                        name: one.get(name)
                        for name in ("variant", "verdict", "difference", "low", "high", "words")
                    }
                    for one in headlines(look)
                ],
            },
        }

    def whole(self, directory: Path, rows: Rows) -> dict[str, Any]:
        """Return everything that the page of a matrix shows; UserError if the directory holds none."""
        plan = self.plan(directory)
        if plan is None:
            raise UserError(f"{directory.name} is no longer a matrix")
        cells = self.cells(directory, plan, rows)
        of_commands = is_of_commands(directory, plan)
        variants = _variants(plan, cells)
        seeds_of = {one["label"]: {cell["seed"]: cell["status"] for cell in one["cells"]} for one in variants}
        look, problem = self.look(directory)
        seen = shown_look(look, seeds_of, SEED) if look else None
        seeds_now = min((len(_complete(one)) for one in variants), default=0)
        due = next_look(seen, seeds_now) if seen else _first_look(plan, seeds_now)
        planned = min((len(one["cells"]) for one in variants), default=0)
        unfinished = sum(cell["status"] not in (COMPLETE, STOPPED) for cell in cells)
        place = place_of(directory)
        return {
            **_about(directory, plan),
            "axes": [{"symbol": axis["symbol"], "values": axis["values"]} for axis in plan["axes"]],
            "seed_axis": SEED,
            "runner": str(runner) if (runner := holder(directory)) is not None else None,
            "statuses": _counted(cells),
            "variants": variants,
            "look": seen,
            "problem": problem,
            "next_look": due,
            "seeds": seeds_now,
            "refused": [{"name": one["name"], "reason": one["reason"]} for one in plan["refused"]],
            "git": plan.get("git"),
            "versions": plan.get("versions"),
            "commands": {
                "record": command_on(place, "summary", of_commands=of_commands),
                "continue": command_on(place, "continue", of_commands=of_commands) if unfinished else "",
                "seeds": seeds_command(directory, plan, due) if due and due > planned else "",
            },
        }


def _status(path: Path) -> RunStatus | None:
    try:
        return read_status(path.parent)
    except MatrixError:
        return None


def _best(path: Path) -> dict[str, Any] | None:
    """Return the first row of a leaderboard that was written; None where it has none, or cannot be read."""
    try:
        content = json.loads(path.read_bytes())
        first = content["rows"][0]
        return {"metric": content["metric"], "mean": first["mean"], "values": first["values"]}
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        return None


def _about(directory: Path, plan: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "title": titled(directory.name, plan),
        "directory": directory.name,
        "kind": plan["kind"],
        "model": plan["model"],
        "created": plan["created"],
        "num_cells": len(plan["cells"]),
    }


def titled(name: str, plan: Mapping[str, Any]) -> str:
    """Return the title of a matrix: its directory, or its axes if the directory is named by a time."""
    if not _NAMED_BY_TIME.match(name):
        return name
    axes = [axis["symbol"] for axis in plan["axes"] if axis["symbol"] != SEED]
    model = plan["model"] if "," not in plan["model"] else ""  # of several the axis says which
    varied = " × ".join(axes) if len(axes) <= MOST_NAMED else f"{len(axes)} options"
    return ": ".join(filter(None, (model, varied or "seeds"))) if axes or model else name


def _cell(cell: Mapping[str, Any], found: RunStatus, rows: Rows, known: Mapping[str, str]) -> dict[str, Any]:
    """Return one cell."""
    name, row = cell["name"], rows.get(cell["name"], {})
    last, attempts = found.last, found.attempts
    status = STOPPED if found.stopped_early else found.status
    return {
        "name": name,
        "id": row.get("id"),
        "values": cell["values"],
        "seed": cell["values"].get(SEED, ""),
        "status": status,
        "reason": (last.reason if last else None) or "",
        "attempts": len(attempts),
        "unstable": status == COMPLETE and bool(failed_before(attempts)),
        "known_failure": known.get(name, ""),
        "step": row.get("step"),
        "steps": row.get("steps"),
        "left": row.get("left"),
        "errors": row.get("errors", 0),
    }


def _variants(plan: Mapping[str, Any], cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the cells by what differs beside the seed, in the order of the plan, labeled as reports do."""
    from kharness.report.collection import variant_labels  # with NumPy, which no list of matrices needs

    groups: dict[tuple[tuple[str, str], ...], list[dict[str, Any]]] = {}
    for cell in cells:
        key = tuple(one for one in cell["values"].items() if one[0] != SEED)
        groups.setdefault(key, []).append(cell)
    axes = {axis["symbol"]: axis["values"] for axis in plan["axes"]}
    included = [axis["symbol"] for axis in plan["axes"] if axis.get("included")]
    labels = variant_labels([dict(key) for key in groups], axes, included)
    return [
        {"label": label or plan["model"], "values": dict(key), "cells": group}
        for label, (key, group) in zip(labels, groups.items(), strict=True)
    ]


def _complete(variant: Mapping[str, Any]) -> list[str]:
    return [cell["name"] for cell in variant["cells"] if cell["status"] == COMPLETE]


def _counted(cells: list[dict[str, Any]]) -> dict[str, int]:
    counts = Counter(cell["status"] for cell in cells)
    places = {status: place for place, status in enumerate(ORDER)}
    return {name: counts[name] for name in sorted(counts, key=lambda name: places.get(name, len(places)))}


def _first_look(plan: Mapping[str, Any], seeds_now: int) -> int | None:
    """Return the number of seeds of the first verdict; None once it is reached."""
    seeds = plan.get("seeds") or {}
    planned, first = seeds.get("planned") or 0, len(seeds.get("first") or ())
    looks = Looks(planned or first, fixed=bool(planned))
    return looks.first if seeds_now < looks.first else None


Made = TypeVar("Made")

# Of more files the oldest are read again.
MOST_KEPT = 50_000


class Kept(Generic[Made]):
    """Values made from files; any thread may ask."""

    def __init__(self, make: Callable[[Path], Made], missing: Made) -> None:
        """`make` reads a file that is there; `missing` stands for one that is not."""
        self._make = make
        self._missing = missing
        self._known: dict[str, tuple[tuple[int, int, int], Made]] = {}

    def of(self, path: Path) -> Made:
        """Return what a file holds. What `make` raises is raised."""
        key = str(path)
        try:
            status = os.stat(key, follow_symlinks=False)
        except FileNotFoundError:
            self._known.pop(key, None)
            return self._missing
        now = (status.st_ino, status.st_size, status.st_mtime_ns)
        known = self._known.get(key)
        if known is not None and known[0] == now:
            return known[1]
        made = self._make(path)
        self._known.pop(key, None)
        while len(self._known) >= MOST_KEPT:
            self._known.pop(next(iter(self._known)), None)
        self._known[key] = (now, made)
        return made


SEED = "SEED"


def is_of_commands(directory: Path, plan: Mapping[str, Any]) -> bool:
    """Whether a matrix runs anybody's command (`kharness matrix`) and no training of the tree."""
    cells = plan["cells"]
    return bool(cells) and os.path.exists(directory / cells[0]["name"] / COMMAND_JSON)


def place_of(directory: Path) -> str:
    """Return a directory as a user types it."""
    return shlex.quote(shown(directory))


def seeds_command(directory: Path, plan: Mapping[str, Any], seeds: int) -> str:
    """Return the command that adds seeds up to so many to a matrix; empty where it is unknown.

    For a matrix that takes none it plans the same one with them.
    """
    have, of_commands = axis_of_seeds(plan), is_of_commands(directory, plan)
    wanted = more_seeds(have, seeds)
    if takes_seeds(plan):
        return continue_with_seeds(place_of(directory), wanted, of_commands=of_commands)
    is_forgotten = of_commands and not (have and plan.get("template"))
    if is_forgotten or any(axis.get("fragments") for axis in plan["axes"]):
        return ""
    first = directory / plan["cells"][0]["name"] if plan["cells"] else directory
    return matrix_again(plan, read_record(first), wanted)
