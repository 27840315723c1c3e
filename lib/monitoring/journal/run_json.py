"""run.json: the identity of a run, its configuration and trackers, and one entry per attempt."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from monitoring.errors import RunDirectoryError
from monitoring.journal.atomic_file import write_atomically
from monitoring.journal.encoding.json_form import plain
from monitoring.journal.encoding.json_shape import TEXT_OR_NULL, check_shape, json_lines
from monitoring.journal.files import RUN_JSON

_SHAPE = {
    "run_id": str,
    "tracking": {"project": str, "name": str, "group": TEXT_OR_NULL, "trackers?": {"*": dict}},
    "gpu_monitor?": (bool, dict),
    "machine_monitor?": (bool, dict),
    "config": dict,
    "attempts": [{"attempt": int}],
}

INTERPRETER = "interpreter"
"""Field of an attempt: the Python that runs somebody's program; null for a program of another kind."""


def read_run_json(directory: Path) -> dict[str, Any]:
    """Return DIRECTORY/run.json; RunDirectoryError if it is missing or malformed."""
    path = f"{directory}/{RUN_JSON}"  # a list of ten thousand runs would wait for pathlib's
    try:
        with open(path, "rb", buffering=0) as file:
            content = orjson.loads(file.readall())
    except FileNotFoundError as error:
        raise RunDirectoryError(
            f"{directory} is not a run directory: it has no {RUN_JSON}",
            hint="name a directory that a training wrote, such as results/RUN",
        ) from error
    except (OSError, orjson.JSONDecodeError) as error:
        raise RunDirectoryError(f"{path} cannot be read: {error}") from error
    try:
        check_shape(content, _SHAPE)
        if not content["attempts"]:
            raise ValueError("attempts is empty")
    except ValueError as error:
        raise RunDirectoryError(
            f"{path} does not describe a run: {error}", hint="it is damaged, or not what a training wrote"
        ) from None
    run: dict[str, Any] = content
    return run


def register_attempt(
    directory: Path,
    *,
    name: str,
    project: str,
    group: str | None,
    config: Mapping[str, object],
    trackers: Mapping[str, Mapping[str, object]],
    gpu_monitor: bool | Mapping[str, object],
    machine_monitor: bool | Mapping[str, object],
    attempt: Mapping[str, object],
) -> dict[str, Any]:
    """Write run.json for a first or a further attempt and return it.

    A further attempt keeps the run's id, project, name and group, so that trackers continue the same run;
    configuration and trackers are those of the newest attempt. OSError if it cannot be written.
    """
    if (directory / RUN_JSON).exists():
        run = read_run_json(directory)
    else:
        tracking = {"project": project, "name": name, "group": group}
        run = {"run_id": os.urandom(8).hex(), "created": time.time(), "tracking": tracking, "attempts": []}
    run["tracking"]["trackers"] = {tracker: dict(options) for tracker, options in trackers.items()}
    run["gpu_monitor"], run["machine_monitor"] = gpu_monitor, machine_monitor
    run["config"] = dict(config)
    run["attempts"] = [old for old in run["attempts"] if old["attempt"] != attempt["attempt"]] + [
        dict(attempt)
    ]
    write_atomically(directory / RUN_JSON, json_lines(plain(run)))
    return run


def take_config(directory: Path, said: Mapping[str, object]) -> dict[str, object]:
    """Take the configuration that a program itself reports into run.json, and return the whole.

    What has its name in capitals is an axis, and stays; the rest gives way to what the program says under
    that name, whatever its case.
    """
    try:
        run = read_run_json(directory)
    except RunDirectoryError:  # the journal has what the program says
        return dict(said)
    axes = {name.lower() for name in run["config"] if name.isupper()}
    own = {name: value for name, value in said.items() if name.lower() not in axes}
    replaced = {name.lower() for name in own}
    kept = {name: value for name, value in run["config"].items() if name.lower() not in replaced}
    run["config"] = {**kept, **own}
    with suppress(OSError):
        write_atomically(directory / RUN_JSON, json_lines(plain(run)))
    config: dict[str, object] = run["config"]
    return config
