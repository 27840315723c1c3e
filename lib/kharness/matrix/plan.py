"""A matrix before it starts: all of it checked, then its directory, plan and cells written."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from platform import python_version

from kharness.config.assignment import Layer
from kharness.config.generate import write_config
from kharness.config.presets import starting_layer
from kharness.config.tree import CONFIG, Tree
from kharness.matrix.axes import Axis, parse_axes
from kharness.matrix.cells import Cell, expand
from kharness.matrix.launch import Launch
from kharness.matrix.rundir import create_exclusively, link_latest, numbered, results_directory, stamp
from kharness.matrix.status import RunStatus, write_status
from monitoring.atomic_file import write_atomically
from monitoring.environment import git_state

MATRIX_JSON = "matrix.json"
PACKAGES = ("kharness", "torch", "numpy", "kconfiglib")


@dataclass(frozen=True)
class Plan:
    """A matrix whose directories exist, every run pending."""

    directory: Path
    axes: Sequence[Axis]
    cells: Sequence[Cell]
    launches: Sequence[Launch]
    """In the order of the cells."""


def prepare(tree: Tree, output: Path, command_line: Layer) -> Plan:
    """Check the whole matrix, then write it; MatrixError or ConfigError before anything is written.

    `output` is where `.config` lives; if it has none, the default preset becomes it.
    """
    base = starting_layer(tree, output)
    configured = tree.resolve(base)
    given = {assignment.symbol: assignment.value for assignment in command_line}
    settings = {**configured.values, **given}
    axes = parse_axes(str(settings["MATRIX_AXES"]))
    results = results_directory(str(settings["RESULTS_DIR"]), output)
    attempt, started = 1, stamp()
    while True:
        name = numbered(f"test_matrix_{started}", attempt)
        if not (results / name).exists():
            cells = expand(tree, base, command_line, axes, matrix=name.removeprefix("test_matrix_"))
            directory = create_exclusively(results, name)
            if directory is not None:
                break
        attempt += 1
    if not (output / CONFIG).exists():
        write_config(configured, output, root=tree.root)
    return _write(Plan(directory, axes, cells, [_launch(tree.root, directory, cell) for cell in cells]))


def _launch(root: Path, directory: Path, cell: Cell) -> Launch:
    return Launch(cell.name, directory / cell.name, root, cell.model, cell.resolved.values)


def _write(plan: Plan) -> Plan:
    content = json.dumps(_as_json(plan), indent=2) + "\n"
    write_atomically(plan.directory / MATRIX_JSON, content.encode())
    for cell, launch in zip(plan.cells, plan.launches, strict=True):
        write_config(cell.resolved, launch.directory, root=launch.root)
        write_status(launch.directory, RunStatus("pending"))
    link_latest(plan.directory)
    return plan


def _as_json(plan: Plan) -> dict[str, object]:
    return {
        "format": 1,
        "created": time.time(),
        "model": ", ".join(dict.fromkeys(cell.model for cell in plan.cells)),
        "axes": [{"symbol": axis.symbol, "values": axis.values} for axis in plan.axes],
        "cells": [
            {"name": cell.name, "values": cell.values, "model": cell.model, "command": launch.command_line}
            for cell, launch in zip(plan.cells, plan.launches, strict=True)
        ],
        "git": git_state(str(plan.launches[0].root)),
        "versions": {"python": python_version(), **{name: _version(name) for name in PACKAGES}},
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
