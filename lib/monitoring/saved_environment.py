"""environment.json: the packages where a run trained, and its environment variables but for secrets.

The agent writes it, which has both from the trainer: no training waits for it. The names of the variables
that are left out are in the file.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from sys import executable
from sys import path as import_path
from typing import Any, NamedTuple

import orjson

from monitoring.host.name import host_name
from monitoring.journal.atomic_file import write_atomically
from monitoring.journal.encoding.json_shape import json_lines
from monitoring.journal.files import ENVIRONMENT_JSON, OF_RANK_0, HostFiles
from monitoring.journal.run_json import INTERPRETER
from monitoring.secrets import without_secrets

# The end of the folder in which an installer notes a package: NAME-VERSION.dist-info (packaging.python.org,
# "Recording installed projects").
NOTED = ".dist-info"


# Said by the Python that runs a program: its version, its path, and where it looks for packages.
_ASK = (
    "import json, platform; from sys import executable, path;"
    "print(json.dumps([platform.python_version(), executable, path[1:]]))"
)


def save_environment(directory: Path, attempt: Mapping[str, Any], own: HostFiles = OF_RANK_0) -> None:
    """Write the file of a run's attempt (its entry in run.json), unless an agent of it has.

    OSError if the disk does not take it.
    """
    path = directory / own.name(ENVIRONMENT_JSON)
    if attempt_of(path) == attempt["attempt"]:
        return
    variables, left_out = without_secrets(os.environ)
    installed = Installed.here()
    if INTERPRETER in attempt:
        installed = Installed.of(attempt[INTERPRETER], attempt["cwd"])
    about = {
        "attempt": attempt["attempt"],
        "host": host_name(),
        **installed._asdict(),
        "variables": variables,
        "left_out": left_out,
    }
    write_atomically(path, json_lines(about), durable=False)


class Installed(NamedTuple):
    """A Python and its packages; None and nothing where a program is run by none, or by one that fails."""

    python: str | None
    executable: str | None
    packages: Mapping[str, str]

    @classmethod
    def here(cls) -> Installed:
        """Return this Python, which is the trainer's own where it is an agent's."""
        return cls(platform.python_version(), executable, installed_packages(import_path))

    @classmethod
    def of(cls, interpreter: str | None, cwd: str) -> Installed:
        """Ask another Python, in the folder in which it runs a program."""
        if interpreter is None:
            return cls(None, None, {})
        import subprocess  # here: most trainings are of this Python

        try:
            done = subprocess.run(
                [interpreter, "-c", _ASK],
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=20,
                check=True,
            )
            python, path, places = orjson.loads(done.stdout)
            return cls(python, path, installed_packages(places))
        except (OSError, ValueError, TypeError, subprocess.SubprocessError):
            return cls(None, interpreter, {})


def attempt_of(path: Path) -> object:
    """Return the attempt a file belongs to, or None if it cannot be told."""
    try:
        return orjson.loads(path.read_bytes()).get("attempt")
    except (OSError, orjson.JSONDecodeError, AttributeError):
        return None


def installed_packages(places: Iterable[str]) -> dict[str, str]:
    """Package -> version, of those that can be imported from the folders of an import path.

    Read off the names of their folders: reading all their metadata takes a third of a second. Of several of
    one name the first counts, as when it is imported.
    """
    found: dict[str, str] = {}
    for place in places:
        try:
            noted = [name for name in os.listdir(place or ".") if name.endswith(NOTED)]
        except OSError:  # a folder that is not there, or an archive
            continue
        for folder in noted:
            name, _, version = folder.removesuffix(NOTED).rpartition("-")
            if name:
                found.setdefault(re.sub(r"[-_.]+", "-", name).lower(), version)
    return dict(sorted(found.items()))
