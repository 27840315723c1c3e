"""environment.json: what was installed where a run trained, and its environment variables but for secrets.

The agent writes it, which has both from the trainer: no training waits for it. What merely looks like a
secret is left out as well, as no run depends on such a value; the names of what is left out are in the file.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from sys import executable
from sys import path as import_path

import orjson

from monitoring.host.name import host_name
from monitoring.journal.atomic_file import write_atomically
from monitoring.journal.files import ENVIRONMENT_JSON, OF_RANK_0, HostFiles

# In the name of a variable, whatever its case, between others: WANDB_API_KEY, DB_PASS, GITHUB_PAT, netrc.
SECRET_NAMES = re.compile(
    r"key|token|secret|passw|passphrase|credential|private|cookie|session|signature|webhook|netrc|certificate"
    r"|(?:^|_)(?:auth|pass|pat|pin|pw|pwd|salt|dsn|sas|jwt|connection_?string)(?:_|$)",
    re.IGNORECASE,
)

# Variables whose names only look like those of secrets.
NO_SECRETS = frozenset({"PWD", "OLDPWD", "XDG_SESSION_ID", "XDG_SESSION_TYPE", "XDG_SESSION_CLASS"})

# In a value. The forms of keys are those that their issuers document, as GitHub's and Hugging Face's secret
# scanning knows them; the last one is whatever is long and drawn from letters of both cases and digits.
SECRET_VALUES = re.compile(
    r"://[^/\s@]*@"  # a URL with a user, and perhaps a password
    r"|[?&;](?:[a-z_-]*(?:key|token|secret|sig|signature|password|pwd|auth))="
    r"|\b(?:password|passwd|pwd|secret|token|api[_-]?key|accountkey)\s*[=:]\s*\S"
    r"|\b(?:bearer|basic)\s+\S{8}"
    r"|-----BEGIN "
    r"|\beyJ[\w-]{8,}\.[\w-]+\."  # a JSON web token
    r"|\b(?:sk|pk|rk)[-_][\w-]{16,}"  # OpenAI, Anthropic, Stripe
    r"|\bhf_\w{20,}|\bgh[pousr]_\w{20,}|\bgithub_pat_\w{20,}|\bglpat-[\w-]{16,}|\bpypi-[\w-]{16,}"
    r"|\bxox[a-z]-[\w-]{10,}|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bAIza[\w-]{30,}|\bya29\.[\w-]{20,}|\bnpm_\w{20,}"
    r"|\b[0-9a-f]{32,}\b"  # as those of Weights & Biases
    r"|(?-i:(?<![\w/.])(?=[\w+]*[a-z])(?=[\w+]*[A-Z])(?=[\w+]*\d)[\w+]{24,}={0,2}(?![\w/.]))",
    re.IGNORECASE,
)

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
    """Which attempt a file is of, None if there is none that can be read."""
    try:
        return orjson.loads(path.read_bytes()).get("attempt")
    except (OSError, orjson.JSONDecodeError, AttributeError):
        return None


def installed_packages(places: Iterable[str]) -> dict[str, str]:
    """Package -> version, of those that can be imported from the folders of an import path.

    By the names of their folders: reading all their metadata takes a third of a second. Of several of one
    name the first counts, as when it is imported.
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


def without_secrets(environment: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The variables that may be read by others, and the names of the rest."""
    open_ones = {
        name: _encodable(value)
        for name, value in sorted(environment.items())
        if (name in NO_SECRETS or not SECRET_NAMES.search(name)) and not SECRET_VALUES.search(value)
    }
    return open_ones, sorted(map(_encodable, environment.keys() - open_ones.keys()))


def _encodable(text: str) -> str:
    """Bytes that are no UTF-8 are shown as such a character."""
    return os.fsencode(text).decode(errors="replace")
