"""Make or check the Python environment of the make targets; runs on a bare Python, with PYTHONPATH=lib.

python scripts/environment.py create .venv/.ready run         # what most targets need, with torch
python scripts/environment.py create .venv/.ready-wandb wandb # what a tracker adds
python scripts/environment.py folder                          # of this Python's environment
python scripts/environment.py verify                          # for `make PYTHON=/path/to/python VENV=`
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# torch 2.13.0, which requirements/ pin, has wheels for these; the language is that of the first.
MINIMUM, NEWEST = (3, 11), (3, 14)
# Imported only by what needs them, so a user's own environment may lack them until then.
OPTIONAL = {
    *("nvidia-ml-py", "pillow", "prometheus_client", "pytorch_optimizer", "schedulefree", "scipy", "tqdm"),
}


class SetupError(Exception):
    """An error the user can fix: a message and a hint."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def main(argv: Sequence[str]) -> int:
    """Run `create STAMP PART…`, `folder` or `verify`; 0 when the environment is intact."""
    try:
        if list(argv) == ["folder"]:
            print(folder(ROOT))
            return 0
        refuse_version(sys.version_info[:3], newest=argv[:1] == ["create"])
        if argv[:1] == ["create"] and len(argv) > 2:
            return create(Path(argv[1]), argv[2:])
        if list(argv) != ["verify"]:
            raise SetupError(f"unknown arguments: {' '.join(argv)}", "read the first lines of this script")
        verify()
    except SetupError as error:
        print(f"error: {error}\nhint: {error.hint}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nset-up interrupted; the same command takes it up again", file=sys.stderr)
        return 130
    return 0


def refuse_version(version: Sequence[int], *, newest: bool) -> None:
    """SetupError for a Python that kharness does not run on; with `newest` also for one without a torch."""
    found = ".".join(map(str, version))
    if tuple(version[:2]) < MINIMUM or (newest and tuple(version[:2]) > NEWEST):
        supported = " to ".join(f"{major}.{minor}" for major, minor in (MINIMUM, NEWEST))
        raise SetupError(
            f"{sys.executable} is Python {found}; kharness runs on {supported}",
            "name another one: make PYTHON=/path/to/python3.11",
        )


def folder(root: Path) -> str:
    """Where the environment of this Python's version is: .venv if that is one of it, else .venv-3.13."""
    version = ".".join(map(str, sys.version_info[:2]))
    try:
        made = (root / ".venv" / "pyvenv.cfg").read_text()
    except OSError:
        made = ""
    is_own = re.search(rf"^version(_info)? *= *{re.escape(version)}\.", made, re.MULTILINE)  # uv's: _info
    return ".venv" if is_own else f".venv-{version}"


def create(stamp: Path, parts: Sequence[str]) -> int:
    """Bring the environment that holds `stamp` to what the parts pin; 0, or that of the error it reports."""
    from kharness.config.errors import full_disk  # no older Python could read these
    from kharness.environment import parts as environment
    from monitoring.errors import UserError, is_full, report_error

    try:
        environment.create(stamp, parts)
    except UserError as error:
        return report_error(error)
    except OSError as error:
        if not is_full(error):
            raise
        return report_error(full_disk(error))
    return 0


def verify() -> None:
    """Raise if this interpreter lacks a package of requirements/run.in; versions are the user's choice."""
    missing = [name for name in required(ROOT / "requirements" / "run.in") if not installed(name)]
    needed = [name for name in missing if name not in OPTIONAL]
    if needed:
        raise SetupError(
            f"{sys.executable} lacks {', '.join(needed)}",
            f"{sys.executable} -m pip install {' '.join(needed)}, or leave VENV= out to use .venv",
        )


def required(requirements: Path) -> list[str]:
    """Names of the packages that a requirements file asks for."""
    lines = (line.split("#")[0].strip() for line in requirements.read_text().splitlines())
    return [re.split(r"[<>=!~\[ ;]", line)[0] for line in lines if line and not line.startswith("-")]


def installed(name: str) -> bool:
    import importlib.metadata  # it takes as long as all the others, and set-up needs none of it

    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
