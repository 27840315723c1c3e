"""Adds matrices, sweeps and options side by side to the page of runs that `monitoring.web` serves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kharness.config.affects import Affects
from kharness.config.assignment import origin_text, value_text
from kharness.config.config_py import ConfigPy, read_config_py
from kharness.config.errors import ConfigError
from kharness.config.places import CONFIG_PY
from kharness.config.record import read_record
from kharness.pages.matrix import MatrixFiles, Rows
from kharness.runs.files import JOB_JSONL, STATUS_JSON
from kharness.runs.standing import standing
from monitoring.errors import UserError
from monitoring.web.rows import RunRow

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute

    from kharness.pages.sweep import SweepFiles
    from monitoring.web.app import Answers

# Of more matrices the newest are listed.
MOST_LISTED = 100


class MatrixPages:
    """The addition: which matrices there are follows from the runs that were found, and no other can be asked
    for.
    """

    name = "kharness"
    folder = Path(__file__).resolve().parent / "page"
    script = "main.js"
    style = "pages.css"
    status_files: Sequence[str] = (STATUS_JSON, JOB_JSONL)

    def __init__(self) -> None:
        self._matrices = MatrixFiles()
        self._sweeps: SweepFiles | None = None

    def status_of(self, directory: Path, found: str) -> str:
        """Return how a run stands, as `make status` says; without status.json its journal says all."""
        return standing(directory).status if (directory / STATUS_JSON).exists() else found

    def routes(self, answers: Answers) -> Sequence[BaseRoute]:
        """Return the routes that the pages use."""
        from starlette.routing import Route

        async def matrices(request: Request) -> Response:
            rows = answers.all_rows()
            return answers.json({"matrices": await answers.patiently("matrices", lambda: self.listed(rows))})

        async def matrix(request: Request) -> Response:
            wanted, rows = request.query_params.get("id", ""), answers.all_rows()
            return answers.json(await answers.patiently(wanted, lambda: self.shown(wanted, rows)))

        async def options(request: Request) -> Response:
            ids = (await answers.content(request)).get("ids")
            if not isinstance(ids, list) or len(ids) > MOST_RUNS:
                raise UserError(f"ids is a list of at most {MOST_RUNS} runs")
            known = {row.id: row.directory for row in answers.all_rows()}
            wanted = [known[one] for one in ids if isinstance(one, str) and one in known]
            if len(wanted) < len(ids):
                raise UserError("there is no such run any more")
            return answers.json(await answers.patiently("options", lambda: compared_options(wanted)))

        return [
            Route("/api/kharness/matrices", matrices),
            Route("/api/kharness/matrix", matrix),
            Route("/api/kharness/options", options, methods=["POST"]),
        ]

    def kept(self, answers: Answers, view: Mapping[str, str], drawn: Sequence[str]) -> Mapping[str, Any]:
        """Return what the shown matrix, the cards above the table or the differences need in a saved view."""
        rows = answers.all_rows()
        if wanted := view.get("matrix"):
            return {f"api/kharness/matrix {wanted}": self.shown(wanted, rows)}
        if view.get("run"):
            return {}
        found: dict[str, Any] = {"api/kharness/matrices": {"matrices": self.listed(rows)}}
        if view.get("panel") == "differences":
            known = {row.id: row.directory for row in rows if row.id in drawn}
            found["api/kharness/options"] = compared_options([known[one] for one in drawn[:MOST_RUNS]])
        return found

    def listed(self, rows: Sequence[RunRow]) -> list[dict[str, Any]]:
        """Return all matrices and sweeps that have begun, the newest first."""
        found = []
        for name, (directory, cells) in folders(rows).items():
            brief = self._matrices.brief(directory, cells)
            if brief is not None:
                found.append({"id": name, **brief})
        return sorted(found, key=lambda one: -one["created"])[:MOST_LISTED]

    def shown(self, wanted: str, rows: Sequence[RunRow]) -> dict[str, Any]:
        """Return a matrix or sweep by its id; UserError if no run was found in it."""
        place = folders(rows).get(wanted)
        if place is None:
            raise UserError("there is no such matrix (any more)")
        directory, cells = place
        whole = self._matrices.whole(directory, cells)
        plan = self._matrices.plan(directory)
        if plan is not None and plan["kind"] == "sweep":
            from kharness.pages.sweep import SweepFiles  # with all that plans a sweep

            self._sweeps = self._sweeps or SweepFiles()
            whole["sweep"] = self._sweeps.of(directory, plan)
        return whole


def folders(rows: Sequence[RunRow]) -> Mapping[str, tuple[Path, Rows]]:
    """Return the folders that runs are in, by id: their path, and the runs in them by name."""
    found: dict[str, tuple[Path, dict[str, Mapping[str, Any]]]] = {}
    for row in rows:
        name = row.id.rpartition("/")[0]
        if name:
            found.setdefault(name, (row.directory.parent, {}))[1][row.directory.name] = row.facts
    return found


# Runs that are put side by side.
MOST_RUNS = 50

DEFAULT = "default"

# They differ between all runs and say nothing of what was trained.
NAMES = ("TRACKER_RUN_NAME", "RESULTS_DIR")


def compared_options(directories: Sequence[Path]) -> dict[str, Any]:
    """Return each option that differs between runs: its value in each, and who asked for it.

    A run that has no config.py has null everywhere. An option that no run asked for follows from the
    others, as a default does.
    """
    shown = directories[:MOST_RUNS]
    configs = [_config(directory) for directory in shown]
    values = [dict(one.values) for one in configs]
    origins = [
        {one.symbol: origin_text(one.origin) for one in read_record(directory).asked} for directory in shown
    ]
    members = frozenset[str]().union(*(one.affects.members for one in configs))
    rows = []
    for name in dict.fromkeys(name for one in values for name in one):
        texts = [value_text(one[name]) if name in one else None for one in values]
        if name in members or name in NAMES or len(set(texts)) < 2:
            continue
        words = next((found for one in configs if (found := one.affects.words.get(name))), ())
        rows.append(
            {
                "name": name,
                "values": texts,
                "origins": [
                    _origin(name, of, own) if name in own else None
                    for of, own in zip(origins, values, strict=True)
                ],
                "affects": sorted(words),
            }
        )
    return {"options": rows, "configured": [bool(one) for one in values]}


def _config(directory: Path) -> ConfigPy:
    try:
        return read_config_py(directory / CONFIG_PY)
    except ConfigError:
        return ConfigPy({}, Affects())


def _origin(name: str, origins: dict[str, str], values: dict[str, Any]) -> str:
    """Return who asked for a value; a choice was asked for by the name of its member (`OPTIMIZER_ADAMW`)."""
    if name in origins:
        return origins[name]
    member = f"{name}_{values[name]}".upper().replace("-", "_") if isinstance(values[name], str) else ""
    return origins.get(member, DEFAULT)
