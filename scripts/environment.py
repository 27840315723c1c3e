"""Make or check the Python environment of the make targets; standard library only, runs on a bare Python.

python scripts/environment.py create .venv/.ready requirements/run.txt
python scripts/environment.py folder            # of the environment that belongs to this Python
python scripts/environment.py verify            # for `make PYTHON=/path/to/python VENV=`
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# torch 2.13.0, which requirements/ pin, has wheels for these; the language is that of the first.
MINIMUM, NEWEST = (3, 11), (3, 14)
# Fetched only by these targets, so a user's own environment may lack them until then.
OPTIONAL = {
    *(
        "google-crc32c",
        "nvidia-ml-py",
        "optuna",
        "pillow",
        "prometheus_client",
        "pytorch_optimizer",
        "schedulefree",
    ),
    *("scipy", "setuptools", "tensorboard", "tiktoken", "tqdm", "trackio", "wandb"),
}


class SetupError(Exception):
    """What the user can fix: a message and a hint."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def main(argv: Sequence[str]) -> int:
    """Run `create STAMP REQUIREMENTS`, `folder` or `verify`; 0 when the environment is intact."""
    try:
        if list(argv) == ["folder"]:
            print(folder(ROOT))
            return 0
        refuse_version(sys.version_info[:3], newest=argv[:1] == ["create"])
        if argv[:1] == ["create"] and len(argv) == 3:
            create(Path(argv[1]), Path(argv[2]))
        elif list(argv) == ["verify"]:
            verify()
        else:
            raise SetupError(f"unknown arguments: {' '.join(argv)}", "read the first lines of this script")
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
    return (
        ".venv"
        if re.search(rf"^version *= *{re.escape(version)}\.", made, re.MULTILINE)
        else f".venv-{version}"
    )


def create(stamp: Path, requirements: Path) -> None:
    """Bring the environment that holds `stamp` to `requirements`, then write the stamp, last."""
    venv = stamp.parent
    venv.mkdir(parents=True, exist_ok=True)
    with (venv / ".lock").open("a") as lock:
        # Two makes at once: the second waits, then finds the work done.
        fcntl.flock(lock, fcntl.LOCK_EX)
        wanted = fingerprint(requirements)
        if stamp.exists() and stamp.read_text() == wanted and works(venv):
            os.utime(stamp)
            return
        if not works(venv):
            say(f"setup: making {venv} with {sys.executable}")
            run([sys.executable, "-m", "venv", str(venv)], f"could not make {venv}", venv_hint())
        say(f"setup: installing {requirements} into {venv} (the first time this fetches torch)")
        pip = [str(venv / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install"]
        pip += ["--quiet", "--progress-bar", "off", "--no-compile"]
        hint = "read pip's message above; behind a proxy set HTTPS_PROXY, then type the same command again"
        run([*pip, "-r", str(requirements)], f"pip could not install {requirements}", hint)
        # Built with the pinned setuptools just installed, so that nothing unpinned is fetched.
        run(
            [*pip, "--no-deps", "--no-build-isolation", "-e", str(ROOT)],
            "pip could not install kharness",
            hint,
        )
        compile_modules(venv)
        stamp.write_text(wanted)
    say(f"setup: {venv} is ready")


def compile_modules(venv: Path) -> None:
    """Byte-compile what was installed, on all cores; pip would take one, for as long as all else here.

    Packages hold files that are no Python of this version: they are left as they are, as pip does.
    """
    command: list[str | Path] = [venv / "bin" / "python", "-m", "compileall", "-qq", "-j", "0", venv / "lib"]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=False)


def say(line: str) -> None:
    """Print; a reader that is gone, or a terminal that is closed, is no reason to stop a set-up."""
    try:
        print(line, flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


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
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def fingerprint(requirements: Path) -> str:
    """SHA-256 over the requirements, those they include, the project file and this Python."""
    digest = hashlib.sha256(sys.version.encode() + str(ROOT).encode())
    names = [requirements, ROOT / "pyproject.toml", ROOT / "requirements" / "run.txt"]
    for path in names:
        digest.update(path.read_bytes())
    return digest.hexdigest() + "\n"


def works(venv: Path) -> bool:
    """Whether the environment's Python starts and has pip (a half-made or moved one does not)."""
    python = venv / "bin" / "python"
    if not python.exists():
        return False
    return subprocess.run([python, "-c", "import pip"], capture_output=True, check=False).returncode == 0


def venv_hint() -> str:
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return (
        f"on Debian and Ubuntu: apt-get install python{version}-venv; or make PYTHON=/path/to/another/python"
    )


def run(command: list[str], failure: str, hint: str) -> None:
    if subprocess.run(command, check=False).returncode != 0:
        raise SetupError(failure, hint)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
