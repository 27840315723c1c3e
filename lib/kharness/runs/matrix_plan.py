"""matrix.json, the plan of a matrix, as it stands on the disk. docs/run-directory.md lists the fields."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kharness.runs.errors import MatrixError
from kharness.runs.files import MATRIX_JSON, SOURCES
from monitoring.errors import MonitoringError
from monitoring.journal.atomic_file import sync_folder, write_atomically
from monitoring.journal.encoding.json_shape import NUMBER, TEXT_OR_NULL, WHOLE_OR_NULL, check_shape, read_json
from monitoring.journal.run_json import read_run_json
from monitoring.outside import MODEL_GIT

FORMAT = 2

_GIT = ({"revision": str, "dirty": bool, "diff_sha256?": TEXT_OR_NULL}, type(None))
_SHAPE = {
    "format": int,
    "kind": str,
    "created": NUMBER,
    "model": str,
    "axes": [
        {
            "symbol": str,
            "values": [str],
            "included?": bool,
            "given?": [str],
            "fragments?": [{"value": str, "file": str, "text": str}],
        }
    ],
    "filter": str,
    "ranges": {"*": str},
    "layers": {"*": [{"symbol": str, "value": str, "kind": str, "where": str}]},
    "template?": (
        {
            "words": [str],
            "environment": {"*": str},
            "cwd": str,
            "project": str,
            "follow": [str],
            "patterns": [str],
            "trackers": dict,
            "files": {"*": str},
            "resume": [str],
            "hook?": bool,
            "monitors?": [str],
        },
        type(None),
    ),
    "settings": dict,
    "exhausted?": bool,
    "seeds": dict,
    "cells": [{"name": str, "values": {"*": str}, "model": str, "threads?": WHOLE_OR_NULL}],
    "machine": ({"cores": int, "gpus": int}, type(None)),
    "git?": _GIT,
    "model_git?": _GIT,
    "versions?": {"*": TEXT_OR_NULL},
    "order": [str],
    "excluded": [str],
    "refused": [{"name": str, "values": {"*": str}, "reason": str}],
    "quarantine": [{"cell": str, "reason": str}],
}


def read_matrix_json(directory: Path) -> dict[str, Any]:
    """DIRECTORY/matrix.json; MatrixError if it is missing or not what write_matrix_json writes."""
    path = directory / MATRIX_JSON
    try:
        content = read_json(path.read_bytes())
        if not isinstance(content, dict):
            raise ValueError("it is not a JSON object")
        found = content.get("format")
        if isinstance(found, int) and found != FORMAT:
            raise MatrixError(
                f"{path} has format {found}, which this checkout does not know",
                hint="use the checkout that the matrix was started with",
            )
        check_shape(content, _SHAPE)
        for cell in content["cells"]:
            # The name becomes a path below the directory; one with a separator in it would lead elsewhere.
            if os.path.basename(cell["name"]) != cell["name"] or cell["name"] in ("", ".", ".."):
                raise ValueError(f"{cell['name']!r} is not the name of a cell")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise MatrixError(
            f"{directory} holds no {MATRIX_JSON}", hint="name the directory of a matrix: results/latest"
        ) from error
    except (OSError, ValueError) as error:
        raise no_plan(directory, str(error)) from error
    return content


def write_matrix_json(directory: Path, content: Mapping[str, Any]) -> None:
    """Replace DIRECTORY/matrix.json; it survives a loss of power on return."""
    write_atomically(directory / MATRIX_JSON, (json.dumps(content, indent=2) + "\n").encode())
    sync_folder(directory)


def no_plan(directory: Path, what: str) -> MatrixError:
    """The error for a directory whose matrix.json is no plan, with what is wrong."""
    return MatrixError(
        f"{directory / MATRIX_JSON} is not the plan of a matrix: {what}", hint="name another directory"
    )


def sources_of(directory: Path) -> Path | None:
    """The copied sources that a matrix trains from, if it has some."""
    path = directory / SOURCES
    return path if os.path.isdir(path) else None


def has_other_sources(directory: Path, plan: Mapping[str, Any]) -> bool:
    """Whether an attempt at a cell began with other sources than those that its matrix was planned with."""
    if not plan.get("git") or plan.get("template"):  # a command of anybody's has sources of its own
        return False
    try:
        attempts = read_run_json(directory)["attempts"]
    except MonitoringError:
        return False
    states = [(attempt.get(name), plan.get(name)) for attempt in attempts for name in ("git", MODEL_GIT)]
    return any(state and state != planned for state, planned in states)


def axis_of_seeds(plan: Mapping[str, Any]) -> Sequence[str]:
    """Return the values of the axis SEED; empty without one."""
    return next((axis["values"] for axis in plan.get("axes", []) if axis["symbol"] == "SEED"), ())


def takes_seeds(plan: Mapping[str, Any]) -> bool:
    """Whether `make continue SEED=…` can add seeds to a matrix: it knows what its cells share, and its cells
    are named for their seeds.
    """
    axes = [axis for axis in plan.get("axes", []) if not axis.get("included")]
    named = [axis for axis in axes if len(axis["values"]) > 1] or axes
    # Of a program's axes an earlier version did not keep which values --include alone has brought.
    of_program = plan.get("template") and (not plan.get("include") or any("given" in axis for axis in axes))
    knows = bool(plan.get("layers") or of_program)
    return knows and plan.get("kind") == "matrix" and any(axis["symbol"] == "SEED" for axis in named)


def trials_to_choose(plan: Mapping[str, Any]) -> int:
    """How many trials a search has still to choose; 0 once its space has no more, and of all else."""
    if plan.get("kind") != "sweep" or plan["settings"].get("SWEEP_METHOD") != "tpe" or plan.get("exhausted"):
        return 0
    return max(0, int(plan["settings"]["SWEEP_TRIALS"]) - len(plan["cells"]))


def known_failures(plan: Mapping[str, Any]) -> dict[str, str]:
    """Cell name to reason, for the quarantined cells."""
    return {entry["cell"]: entry["reason"] for entry in plan.get("quarantine", [])}


def short_value(value: str) -> str:
    """Return a value as people read it, six digits of a number; JSON and CSV hold it in full."""
    try:
        return value if len(value) <= 10 else f"{float(value):.6g}"
    except ValueError:
        return value


def refused(plan: Mapping[str, Any]) -> dict[str, str]:
    """Cell name to reason, for the cells that the option tree refused and the plan skipped."""
    return {entry["name"]: entry["reason"] for entry in plan.get("refused", [])}
