"""Which run or matrix a target is about, found without the option tree."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from kharness.config.errors import ConfigError
from kharness.config.make.typed import typed_setting
from kharness.config.places import CONFIG_PY, asked_folder, asked_path
from kharness.runs.bundle import opened
from kharness.runs.files import LATEST


def asked_directory(variables: Mapping[str, str], output: Path, *, name: str = "RUN") -> Path:
    """RUN=, else the newest run or matrix of the configured RESULTS_DIR; ConfigError if it is not there.

    Reads config.py rather than the option tree, so that it needs nothing but files.
    """
    asked = variables.get(name)
    if asked:
        directory = opened(asked_path(name, asked).absolute())
        if not directory.is_dir():
            what = "is a file, no run or matrix" if directory.exists() else "does not exist"
            example = typed_setting(f"{name}=results/{LATEST}", f"results/{LATEST}")
            raise ConfigError(f"{directory} {what}", hint=f"name a run or a matrix: {example}")
        return directory.resolve()
    latest = latest_link(variables, output)
    if not latest.exists():
        raise ConfigError(
            f"{shown(latest)} does not exist",
            hint=typed_setting(
                f"run `make test_matrix` first, or say {name}=dir",
                "`kharness run` or `kharness matrix` makes it; or name a run",
            ),
        )
    return latest.resolve()


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
