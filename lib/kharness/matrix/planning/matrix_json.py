"""The plan of a matrix, as a value and as its file matrix.json. docs/run-directory.md lists the fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from platform import python_version
from typing import Any, Literal

from kharness.config.assignment import Assignment, Layer, Origin
from kharness.config.values import Value
from kharness.config.writing import attributes
from kharness.matrix.machine.threads import Machine
from kharness.matrix.planning.axes import Axis
from kharness.matrix.planning.axis_values import Fragment
from kharness.matrix.planning.cells import Cell, Refused
from kharness.runs.launch import Launch
from kharness.runs.matrix_plan import FORMAT, known_failures, no_plan, read_matrix_json, write_matrix_json
from monitoring.host.environment import git_state
from monitoring.outside import MODEL_GIT, outside

PACKAGES = {"kharness": "torch-kharness", **{name: name for name in ("torch", "numpy", "kconfiglib")}}
"""Recorded name -> the distribution that it is installed as."""

Kind = Literal["matrix", "sweep"]


@dataclass(frozen=True)
class Plan:
    """A matrix whose directories exist."""

    directory: Path
    axes: Sequence[Axis]
    cells: Sequence[Cell]
    launches: Sequence[Launch]
    """In the order of the cells."""
    kind: Kind = "matrix"
    settings: Mapping[str, Value] = field(default_factory=dict)
    """MATRIX_JOBS and its like."""
    refused: Sequence[Refused] = ()
    excluded: Sequence[str] = ()
    fragments: Mapping[str, Sequence[Fragment]] = field(default_factory=dict)
    """Fragments by axis."""
    quarantine: Mapping[str, str] = field(default_factory=dict)
    """Reason by cell."""
    chosen: str = ""
    """The FILTER of the call that planned it."""
    ranges: Mapping[str, str] = field(default_factory=dict)
    """For a sweep, the range of each symbol as written."""
    defaults: Mapping[str, str] = field(default_factory=dict)
    """For a sweep, the value of each symbol where no trial gives it one; empty where unknown."""
    layers: Mapping[str, Layer] = field(default_factory=dict)
    """The layers that its cells share, for those that are made later: trials of a search, further seeds."""
    machine: Machine | None = None
    """The machine it was planned on."""
    threads: Mapping[str, int] = field(default_factory=dict)
    """CPU threads by cell, of those that the plan gives some."""
    order: Sequence[str] = ()
    """The names of the cells as they are to run; empty for the order of the cells."""
    notes: Sequence[str] = ()
    """Requests for all cells that do not apply to some; not kept in the file."""
    template: Mapping[str, Any] = field(default_factory=dict)
    """The command with its placeholders, as `Given.content` has it; empty for trainings of the tree."""
    exhausted: bool = False
    """Whether a search has found no more trials in its space."""
    seeds: Mapping[str, object] = field(default_factory=dict)
    """Seeds of the first plan, for verdicts that count looks; empty for a sweep."""
    created: float = 0.0
    """UTC epoch seconds."""

    def note_lines(self) -> list[str]:
        """Return the requests that do not apply."""
        notes = [*self.notes, *(f"{one.name} is left out: {one.reason}" for one in self.refused)]
        return [f"note: {note}" for note in notes]


def write_plan(plan: Plan, root: Path, *, into: Path) -> None:
    """Write a new plan; it is on disk on return. The directory `into` will have the plan's name."""
    versions = {"python": python_version(), **{name: _version(package) for name, package in PACKAGES.items()}}
    git = {"git": git_state(root), **({MODEL_GIT: git_state(own)} if (own := outside()) else {})}
    write_matrix_json(into, {**planned_content(plan), **git, "versions": versions})


def add_cell(directory: Path, cell: Cell, launch: Launch) -> None:
    """Put one more cell into the plan of a running search; its directory must exist."""
    content = read_matrix_json(directory)
    content["cells"].append(_cell_json(cell, launch))
    content["model"] = ", ".join(dict.fromkeys(known["model"] for known in content["cells"]))
    for axis in content["axes"]:
        value = cell.values.get(axis["symbol"])
        if value is not None and value not in axis["values"]:
            axis["values"].append(value)
    write_matrix_json(directory, content)


def add_seeds(directory: Path, plan: Plan, seeds: Sequence[str]) -> None:
    """Put the cells of further seeds into a plan, whose other cells keep their entries.

    `plan` is the same one with these seeds; the directories of its cells must exist.
    """
    content, longer = read_matrix_json(directory), planned_content(plan)
    kept = {cell["name"]: cell for cell in content["cells"]}
    content |= {name: longer[name] for name in ("axes", "excluded", "refused", "order")}
    content["cells"] = [kept.get(cell["name"], cell) for cell in longer["cells"]]
    content["quarantine"] += [one for one in longer["quarantine"] if one["cell"] not in kept]
    if "MATRIX_AXES" in content["settings"]:
        content["settings"]["MATRIX_AXES"] = longer["settings"]["MATRIX_AXES"]
    known = content["seeds"]
    # What the question was first planned with stays: looks count from it.
    known["order"] = list(dict.fromkeys([*known.get("order", known["first"]), *seeds]))
    write_matrix_json(directory, content)


def write_quarantine(directory: Path, file: str, quarantine: Mapping[str, str]) -> None:
    """Replace the quarantine of a plan by that of another file."""
    content = read_matrix_json(directory)
    content["settings"]["MATRIX_QUARANTINE"] = file
    content["quarantine"] = _quarantine_json(quarantine)
    write_matrix_json(directory, content)


def note_exhausted(directory: Path) -> None:
    """Note that the space of a search has no more trials."""
    write_matrix_json(directory, {**read_matrix_json(directory), "exhausted": True})


def add_refused(directory: Path, refused: Sequence[Refused]) -> None:
    """Note combinations that the tree refused during a search."""
    content = read_matrix_json(directory)
    content["refused"] += map(_refused_json, refused)
    write_matrix_json(directory, content)


def read_plan(directory: Path) -> Plan:
    """The plan of a directory, without launches; MatrixError if it cannot be read."""
    content = read_matrix_json(directory)
    try:
        return _as_plan(directory, content)
    except ValueError as error:
        raise no_plan(directory, str(error)) from error


def planned_content(plan: Plan) -> dict[str, Any]:
    """Return the part of matrix.json about the matrix itself, without the code that ran it."""
    settings = dict(plan.settings)
    return {
        "format": FORMAT,
        "kind": plan.kind,
        "created": plan.created,
        "model": ", ".join(dict.fromkeys(cell.model for cell in plan.cells))
        or str(settings.get("MODEL", "")),
        "axes": [_axis_json(axis, plan) for axis in plan.axes],
        "include": settings.get("MATRIX_INCLUDE", ""),
        "exclude": settings.get("MATRIX_EXCLUDE", ""),
        "filter": plan.chosen,
        "ranges": dict(plan.ranges),
        **({"defaults": dict(plan.defaults)} if plan.defaults else {}),
        "layers": {name: [_assignment_json(a) for a in layer] for name, layer in plan.layers.items()},
        **({"template": dict(plan.template)} if plan.template else {}),
        "settings": settings,
        "seeds": dict(plan.seeds),
        "cells": [_cell_json(cell, launch) for cell, launch in zip(plan.cells, plan.launches, strict=True)],
        "machine": asdict(plan.machine) if plan.machine else None,
        "order": list(plan.order),
        "excluded": list(plan.excluded),
        "refused": [_refused_json(one) for one in plan.refused],
        "quarantine": _quarantine_json(plan.quarantine),
    }


def _quarantine_json(quarantine: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"cell": name, "reason": reason} for name, reason in quarantine.items()]


def _axis_json(axis: Axis, plan: Plan) -> dict[str, Any]:
    content: dict[str, Any] = {"symbol": axis.symbol, "values": list(axis.values)}
    if axis.included:
        content["included"] = True
    if axis.given:
        content["given"] = list(axis.given)
    if fragments := plan.fragments.get(axis.symbol):
        content["fragments"] = [attributes(one, "value", "file", "sha256", "text") for one in fragments]
    return content


def _cell_json(cell: Cell, launch: Launch) -> dict[str, Any]:
    return {
        "name": cell.name,
        "values": dict(cell.values),
        "model": cell.model,
        "command": launch.command_line,
        "threads": launch.threads or None,
    }


def _refused_json(one: Refused) -> dict[str, Any]:
    return {"name": one.name, "values": dict(one.values), "reason": one.reason}


def _assignment_json(a: Assignment) -> dict[str, object]:
    return {**attributes(a, "symbol", "value"), **attributes(a.origin, "kind", "where")}


def _assignment(content: Mapping[str, str]) -> Assignment:
    return Assignment(content["symbol"], content["value"], Origin(content["kind"], content["where"]))


def _as_plan(directory: Path, content: Mapping[str, Any]) -> Plan:
    cells = [Cell(cell["name"], dict(cell["values"]), cell["model"]) for cell in content["cells"]]
    return Plan(
        directory=directory,
        axes=[
            Axis(
                axis["symbol"],
                list(axis["values"]),
                included=axis.get("included", False),
                given=axis.get("given", ()),
            )
            for axis in content["axes"]
        ],
        cells=cells,
        launches=(),
        kind=content["kind"],
        settings=content["settings"],
        refused=[Refused(one["name"], one["values"], one["reason"]) for one in content["refused"]],
        excluded=content["excluded"],
        fragments={
            axis["symbol"]: [Fragment(f["value"], f["file"], f["text"]) for f in axis["fragments"]]
            for axis in content["axes"]
            if "fragments" in axis
        },
        quarantine=known_failures(content),
        chosen=content["filter"],
        ranges=content["ranges"],
        defaults=content.get("defaults") or {},
        layers={name: [_assignment(a) for a in layer] for name, layer in content["layers"].items()},
        template=content.get("template") or {},
        seeds=content["seeds"],
        machine=Machine(made["cores"], made["gpus"]) if (made := content["machine"]) else None,
        threads={cell["name"]: int(cell["threads"]) for cell in content["cells"] if cell.get("threads")},
        order=content["order"],
        exhausted=content.get("exhausted", False),
        created=float(content["created"]),
    )


def _version(package: str) -> str | None:
    from importlib import metadata  # takes as long to import as `make status` to read 300 runs

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
