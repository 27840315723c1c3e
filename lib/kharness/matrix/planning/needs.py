"""Check the machine for what cells need before the first one starts, with each model's MODEL/needs.py."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from kharness.config.places import COMMAND, TRAIN, has_model, home, model_folder
from kharness.matrix.launchers import check_launcher, schedules
from kharness.matrix.machine.resources import refuse_too_few_gpus
from kharness.matrix.planning.template import Template, option_texts
from kharness.runs.command import CommandLaunch
from kharness.runs.errors import MatrixError
from kharness.runs.launch import Launch
from monitoring.counts import counted
from monitoring.gpu.masks import VARIABLES

NEEDS = "needs.py"


def refuse_unrunnable(launches: Sequence[Launch], settings: Mapping[str, object]) -> None:
    """Raise MatrixError for cells that could not run with these settings."""
    _refuse_own_gpus(launches, settings)
    elsewhere = schedules(settings)
    if elsewhere:
        check_launcher(settings, launches)
    else:
        refuse_too_few_gpus(launches, settings)
    refuse_unmet(launches, elsewhere=elsewhere)


def _refuse_own_gpus(launches: Sequence[Launch], settings: Mapping[str, object]) -> None:
    """MatrixError for programs that are given GPUs, and by `-e` others."""
    if not (asked := settings.get("MATRIX_GPUS_PER_CELL")):
        return
    for launch in launches:
        given = launch.of.environment if isinstance(launch, CommandLaunch) else {}
        for name in given.keys() & VARIABLES:
            raise MatrixError(
                f"--gpus-per-cell {asked} gives each run its GPUs, -e {name}={given[name]} gives it others",
                hint="leave one of them out; --gpus-per-cell 0 gives none",
            )


def refuse_unmet(launches: Sequence[Launch], *, elsewhere: bool = False) -> None:
    """Raise MatrixError listing what cells lack; a model without a needs.py needs nothing.

    And where a training's model is not here: M=DIR gives one outside of the tree.

    With `elsewhere` they run on other machines, whose GPUs and compilers are not those of this one.
    """
    ours = [one for one in launches if not isinstance(one, CommandLaunch)]
    commands = {str(command): one for one in ours if (command := one.asked.get(COMMAND))}
    for one in commands.values():
        Template.configured(one.asked).check((), home(one.root), options=option_texts(one.asked))
    models = {(one.root, one.model) for one in ours if not one.asked.get(COMMAND)}
    refused: dict[str, Mapping[str, str]] = {}
    for root, model in sorted(models):
        if not has_model(root, model):
            raise MatrixError(
                f"MODEL={model}: there is no {model}/{TRAIN}",
                hint="one outside of the tree is given by its folder: M=DIR",
            )
        script = model_folder(root, model) / NEEDS
        if script.is_file():
            asked = {one.name: one.asked for one in launches if (one.root, one.model) == (root, model)}
            refused |= _ask(script, asked, elsewhere, root)
    if refused:
        raise _error(refused, len(launches))


def _ask(
    script: Path, asked: Mapping[str, Mapping[str, object]], elsewhere: bool, root: Path
) -> dict[str, Mapping[str, str]]:
    """Return error and hint of each refused cell, by name."""
    with tempfile.TemporaryFile("w+") as request:
        # A file: to fill a pipe subprocess polls it before every 512 bytes.
        request.write(json.dumps({**request_of(asked), "elsewhere": elsewhere}))
        request.seek(0)
        done = subprocess.run(
            [sys.executable, str(script)],
            stdin=request,
            capture_output=True,
            text=True,
            cwd=root,
            check=False,
        )
    try:
        answered: dict[str, Mapping[str, str]] = json.loads(done.stdout)
    except ValueError:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise MatrixError(
            f"{script} gives no answer: {last}", hint=f"run it by hand: {sys.executable} {script}"
        ) from None
    return answered


def request_of(asked: Mapping[str, Mapping[str, object]]) -> dict[str, object]:
    """The values of all cells as `answer` of kharness.training.needs reads them: 10,000 cells share most."""
    first = next(iter(asked.values()))
    differ: set[str] = set()
    for values in asked.values():
        differ |= first.keys() ^ values.keys()
        differ.update(name for name, value in values.items() if name not in differ and first[name] != value)
    common = {name: value for name, value in first.items() if name not in differ}
    cells = {name: {one: of[one] for one in differ if one in of} for name, of in asked.items()}
    return {"common": common, "cells": cells}


def _error(refused: Mapping[str, Mapping[str, str]], total: int) -> MatrixError:
    cells: dict[tuple[str, str], int] = {}
    for one in refused.values():
        reason = one["error"], one["hint"]
        cells[reason] = cells.get(reason, 0) + 1
    (first, hint), *others = cells
    if not others:
        which = "" if len(refused) == total else f" ({len(refused)} of {counted(total, 'cell')})"
        return MatrixError(f"{first}{which}", hint=hint)
    lines = [f"{error} ({cells[error, hint]}; {hint})" for error, hint in cells]
    message = "\n  ".join([f"{len(refused)} of {counted(total, 'cell')} could not begin", *lines])
    return MatrixError(message, hint="change what they are trained with, or bring what is missing")
