"""environment.json: the packages where a run trained, and its environment variables but for secrets.

The agent writes it, which has both from the trainer: no training waits for it. The names of the variables
that are left out are in the file.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable
from pathlib import Path
from sys import executable
from sys import path as import_path

import orjson

from monitoring.host.name import host_name
from monitoring.journal.atomic_file import write_atomically
from monitoring.journal.files import ENVIRONMENT_JSON, OF_RANK_0, HostFiles
from monitoring.secrets import without_secrets

# The end of the folder in which an installer notes a package: NAME-VERSION.dist-info (packaging.python.org,
# "Recording installed projects").
NOTED = ".dist-info"


def save_environment(directory: Path, attempt: int, own: HostFiles = OF_RANK_0) -> None:
    """Write the file of a run's attempt, unless an agent of it has; OSError if the disk does not take it."""
    path = directory / own.name(ENVIRONMENT_JSON)
    if attempt_of(path) == attempt:
        return
    variables, left_out = without_secrets(os.environ)
    about = {
        "attempt": attempt,
        "host": host_name(),
        "python": platform.python_version(),
        "executable": executable,
        "packages": installed_packages(import_path),
        "variables": variables,
        "left_out": left_out,
    }
    data = orjson.dumps(about, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    write_atomically(path, data, durable=False)


def attempt_of(path: Path) -> object:
    """Return the attempt that a file is of, None if there is none that can be read."""
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
