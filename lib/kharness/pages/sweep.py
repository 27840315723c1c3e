"""The page of a sweep: its leaderboard with ranks, all trials in their order, what mattered."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kharness.matrix.sweep.leaderboard import Leaderboard, as_json, read_leaderboard
from kharness.report.importance import importances
from kharness.runs.files import STATUS_JSON
from monitoring.journal.files import JOURNAL

Signature = tuple[tuple[str, int, int], ...]


class SweepFiles:
    """Leaderboards, each read again when a trial has begun or ended; any thread may ask."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[Signature, dict[str, Any]]] = {}

    def of(self, directory: Path, plan: Mapping[str, Any]) -> dict[str, Any]:
        """Return the leaderboard as the sweep's files say it. MatrixError for a plan that cannot be read."""
        now = _signature(directory, plan)
        known = self._known.get(directory)
        if known is not None and known[0] == now:
            return known[1]
        shown = shown_sweep(read_leaderboard(directory), plan)
        self._known[directory] = (now, shown)
        return shown


def shown_sweep(board: Leaderboard, plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return a leaderboard with all trials in the order of their planning.

    Of a trial `value` is the objective after its last step, and null unless it is complete.
    """
    trials = {
        trial.name: {
            "name": trial.name,
            "values": {name: trial.values.get(name) for name in board.symbols},
            "state": trial.state,
            "reason": trial.reason,
            "value": trial.value,
            "last": trial.validations[-1] if trial.validations else None,
        }
        for trial in [*(one for row in board.rows for one in row.trials), *board.incomplete]
    }
    complete = [trial for row in board.rows for trial in row.complete]
    return {
        **json.loads(as_json(board)),
        "objective": board.objective.words,
        "symbols": list(board.symbols),
        "ranges": dict(plan["ranges"]),
        "method": plan["settings"].get("SWEEP_METHOD"),
        "trials": [trials[cell["name"]] for cell in plan["cells"] if cell["name"] in trials],
        "importance": [
            asdict(one)
            for one in importances(
                [
                    {name: trial.values[name] for name in board.symbols if name in trial.values}
                    for trial in complete
                ],
                [trial.value for trial in complete if trial.value is not None],
            )
        ],
        "winners": [
            {"symbol": of.symbol, "lines": list(of.lines), "command": of.command(board.common)}
            for of in board.winners
        ],
    }


def _signature(directory: Path, plan: Mapping[str, Any]) -> Signature:
    """Return what changes when a trial begins or ends; not with each record of one that trains."""
    found = []
    for cell in plan["cells"]:
        try:
            status = (directory / cell["name"] / STATUS_JSON).stat()
            found.append((cell["name"], status.st_mtime_ns, status.st_size))
        except OSError:
            found.append((cell["name"], 0, int((directory / cell["name"] / JOURNAL).exists())))
    return tuple(found)
