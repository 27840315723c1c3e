"""Where the runs of a command go: `--launcher slurm --launcher-option partition=gpu`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

from kharness.config.values import Value
from kharness.matrix.commands.given import Given, prepare_run, preview_run
from kharness.matrix.launchers import LAUNCHERS, schedules
from kharness.matrix.planning.needs import refuse_unrunnable
from kharness.matrix.planning.single import on_cluster
from kharness.runs.command import CommandLaunch
from kharness.runs.errors import MatrixError


def launcher_settings(name: str, pairs: Sequence[str], *, jobs: int | None, detach: bool) -> dict[str, Value]:
    """Return the settings of a launcher; MatrixError for an unknown one, and for an option that it lacks.

    Without `jobs` one run at a time on this machine, and as many as it allows in a scheduler's queue.
    """
    kinds = {field.name: str(field.type) for field in fields(LAUNCHERS.load(name).Options)}
    found: dict[str, Value] = {"LAUNCHER": name, "LAUNCHER_LOCAL_FORK_SERVER": True, "MATRIX_DETACH": detach}
    found["MATRIX_JOBS"] = jobs if jobs is not None else 0 if schedules(found) else 1
    for pair in pairs:
        option, equals, value = pair.partition("=")
        if not equals or option not in kinds:
            raise MatrixError(
                f"--launcher-option {pair}: {name} has no option {option}"
                if equals
                else f"--launcher-option {pair} is not NAME=VALUE",
                hint=f"its options: {', '.join(kinds)}",
            )
        found[LAUNCHERS.symbol(name, option)] = _typed(pair, value, kinds[option])
    if detach and not schedules(found):
        raise MatrixError(
            "--detach: what runs on this machine ends with this command", hint="give --launcher slurm"
        )
    return found


def prepare_job(given: Given) -> CommandLaunch:
    """Make the directory of a single run of a launcher's; MatrixError before anything is written."""
    (wished,) = preview_run(given)
    refuse_unrunnable([on_cluster(wished, given.settings)], given.settings)
    launch = prepare_run(given)
    return replace(launch, threads=on_cluster(launch, given.settings).threads)


def _typed(pair: str, value: str, kind: str) -> Value:
    if kind == "bool" and value in ("y", "n"):
        return value == "y"
    if kind == "int" and value.isascii() and value.isdecimal():
        return int(value)
    if kind in ("bool", "int"):
        raise MatrixError(
            f"--launcher-option {pair} is no {'number' if kind == 'int' else 'y or n'}", hint="give one"
        )
    return value
