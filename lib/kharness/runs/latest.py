"""Which run or matrix a target is about, found without the option tree."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from kharness.config.errors import ConfigError
from kharness.config.make.typed import typed_comparison, typed_setting
from kharness.config.places import CONFIG_PY, asked_folder, asked_path
from kharness.runs.bundle import is_bundle, opened
from kharness.runs.files import LATEST, MATRIX_JSON, STATUS_JSON
from monitoring.journal.files import JOURNAL


def asked_directory(variables: Mapping[str, str], output: Path, *, name: str = "RUN") -> Path:
    """RUN=, else the newest run or matrix of the configured RESULTS_DIR; ConfigError if it is not there.

    Reads config.py rather than the option tree, so that it needs nothing but files.
    """
    return opened(asked_place(variables, output, name=name)).resolve()


def asked_place(variables: Mapping[str, str], output: Path, *, name: str = "RUN") -> Path:
    """Return the place that RUN= names, or the latest one; a bundle stays a bundle."""
    if asked := variables.get(name):
        return _there(asked_path(name, asked).absolute(), f"{name}=")
    latest = latest_link(variables, output)
    if not latest.exists():
        raise ConfigError(
            f"{shown(latest)} does not exist",
            hint=typed_setting(
                f"run `make test_matrix` first, or say {name}=dir",
                "`kharness run` or `kharness matrix` makes it; or name a run",
            ),
        )
    return latest


def asked_folders(text: str) -> list[Path]:
    """RUN= of several folders of runs with `:` between them; ConfigError for one that is not there."""
    folders = [asked_path("RUN", part).absolute() for part in text.split(os.pathsep) if part]
    if missing := next((folder for folder in folders if not folder.exists()), None):
        raise ConfigError(f"{missing} does not exist", hint="name a folder of results: RUN=results")
    return folders


def asked_places(variables: Mapping[str, str]) -> tuple[str, str]:
    """A= and B=; ConfigError without one of them."""
    a, b = variables.get("A"), variables.get("B")
    if a and b:
        return a, b
    variants = (f"results/{LATEST}:OPTIMIZER={name}" for name in ("sgd", "adamw"))
    hint = f"{typed_comparison(*variants)} for two variants of a matrix, or two matrices or runs"
    raise ConfigError("a comparison needs two places, A= and B=", hint=hint)


def split_place(text: str) -> tuple[Path | None, str]:
    """`dir:SYMBOL=value` as directory and assignments; all is assignments without a directory of runs."""
    place, colon, given = text.rpartition(":")
    if colon and "=" in given and (directory := _runs_at(place)):
        return directory, given
    whole = _runs_at(text)
    return (whole, "") if whole else (None, text)


def _runs_at(text: str) -> Path | None:
    try:
        path = asked_path("BASELINE", text)
    except ConfigError:
        return None
    return path if any((path / name).is_file() for name in (MATRIX_JSON, STATUS_JSON, JOURNAL)) else None


def lasting_place(text: str) -> str:
    """A place as it is called from any directory and later on, too; what is none stays as it is.

    `results/latest` is another matrix as soon as the next one is planned.
    """
    directory, given = split_place(text.strip())
    if directory is None:
        return text
    return f"{directory.resolve()}:{given}" if given else str(directory.resolve())


def with_lasting_baseline(variables: Mapping[str, str]) -> dict[str, str]:
    """Variables of a call that compare with the runs they name now, whatever `latest` is by then."""
    names = {"BASELINE", "CONFIG_REPORT_BASELINE"} & variables.keys()
    return {**variables, **{name: lasting_place(variables[name]) for name in names}}


def compared_place(text: str) -> tuple[Path, str]:
    """`dir` or `dir:SYMBOL=value …` as directory or bundle, and assignments; ConfigError if none is there."""
    directory, given = split_place(text)
    if directory is None:
        directory, given = asked_path("A or B", text), ""
        before, colon, values = text.rpartition(":")
        if colon and "=" in values and not directory.exists():
            directory, given = asked_path("A or B", before), values
    return _there(directory.absolute()), given


def _there(place: Path, variable: str = "") -> Path:
    """A directory or a bundle; ConfigError for what is neither."""
    if place.is_dir() or is_bundle(place):
        return place
    what = "is a file, no run or matrix" if place.exists() else "does not exist"
    example = typed_setting(f"{variable}results/{LATEST}", f"results/{LATEST}")
    raise ConfigError(f"{place} {what}", hint=f"name a run or a matrix: {example}")


def latest_link(variables: Mapping[str, str], output: Path) -> Path:
    """The link to the newest run or matrix of the configured RESULTS_DIR, whether it is there or not."""
    from kharness.config.config_py import read_values  # a program that is started needs none

    config = output / CONFIG_PY
    configured = read_values(config).get("RESULTS_DIR") if config.exists() else None
    results = str(variables.get("CONFIG_RESULTS_DIR") or configured or "results")
    return asked_folder("RESULTS_DIR", results, base=output) / LATEST


def shown(path: Path) -> str:
    """A path as one types it here."""
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)
