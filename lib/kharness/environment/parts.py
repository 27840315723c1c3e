"""Bring an environment to what parts of requirements/ pin: by set-up, and what a make call needs besides.

What it brings is said before it begins. An environment whose folder was renamed, moved or copied is told
where it is.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from kharness.environment.installer import Installer, say, watched
from kharness.environment.locks import (
    FOLDER,
    ROOT,
    about,
    installed,
    lacking,
    lock_of,
    normalized,
    pinned,
    site_packages,
    sizes,
)
from kharness.environment.torch_build import TorchChoice

# The part that has torch, and the project itself.
RUN = "run"
TESTS = "test"

# Python compiles what it imports for the first time: a first training would wait for that without a sign.
FIRST_IMPORT = "from kharness.training.forkserver.server import preload; preload()"

# Those that set-up and `make check` install.
NOT_OPTIONAL = frozenset({"cuda", "torch", "test", "config", "dashboard", RUN})


# What `python -m venv` notes of the call that `Installer.make_environment` makes.
MADE = re.compile(r"^command = .* -m venv --without-pip (.+)$", re.MULTILINE)

# Bytes of a script's first line that Linux reads; one with a space in the path names no program.
LONGEST = 127


def bring_for(configurations: Iterable[Mapping[str, object]]) -> None:
    """Install the trackers that trainings with these values report to; InstallError if that fails."""
    parts = _parts()
    bring({part for values in configurations for part in parts if values.get(f"ENABLE_{part.upper()}")})


def bring(parts: Collection[str]) -> None:
    """Install what is not there or pinned otherwise since; only where set-up has made the environment.

    In any other, and for names that are no part, the error of what is missing says what to install.
    """
    venv = Path(sys.prefix)
    if not (venv / ".ready").exists():
        return
    there = installed(venv)
    for part in sorted(_parts() & set(parts)):
        stamp = venv / f".ready-{part}"
        is_there = _named(part) <= there.keys()
        if not is_there or (stamp.exists() and stamp.read_text() != fingerprint([part])):
            create(stamp, [part])
            importlib.invalidate_caches()


def _parts() -> set[str]:
    return {path.stem for path in FOLDER.glob("*.txt")} - NOT_OPTIONAL


def _named(part: str) -> set[str]:
    """The packages that a part is for."""
    lines = (FOLDER / f"{part}.in").read_text().splitlines()
    return {normalized(re.split(r"[<>=!~\[ ;#]", line)[0]) for line in lines if line and line[0] not in "#-"}


VERSION = "lib/VERSION"


def create(stamp: Path, parts: Sequence[str]) -> None:
    """Bring the environment that holds `stamp` to what the parts pin, then write the stamp, last.

    InstallError for a part that does not exist, a TORCH= that is none, and an installation that fails.
    """
    venv = stamp.parent
    for part in parts:
        lock_of(part)
    torch = TorchChoice(venv, os.environ) if RUN in parts else None
    venv.mkdir(parents=True, exist_ok=True)
    with (venv / ".setup-lock").open("a") as lock:
        # Two makes at once: the second waits, then finds the work done. Not .lock, for which uv itself waits.
        fcntl.flock(lock, fcntl.LOCK_EX)
        wanted = fingerprint(parts)
        needs_torch = torch is not None and not torch.is_installed()
        old = moved_from(venv)
        if stamp.exists() and stamp.read_text() == wanted and not (needs_torch or old) and works(venv):
            os.utime(stamp)
            return
        stamp.unlink(missing_ok=True)
        installer = Installer(venv, shutil.which("uv"))
        if not works(venv):
            say(f"setup: making {_shown(venv)} with {sys.executable}")
            installer.make_environment()
        elif old:
            say(f"setup: {_shown(venv)} was made in {old.parent}; it is told where it is now")
            installer.make_environment()
            move_scripts(venv, old)
        link_library(venv)
        _install(venv, parts, torch if needs_torch else None, installer)
        if torch is not None:
            torch.keep()
        stamp.write_text(wanted)
    say(f"setup: {_shown(venv)} is ready")


def _install(venv: Path, parts: Sequence[str], torch: TorchChoice | None, installer: Installer) -> None:
    """Only what the environment lacks is fetched."""
    pins = lacking(venv, parts)
    if pins:
        packages = f"{len(pins)} packages" if len(pins) > 1 else next(iter(pins))
        say(f"setup: {installer.name} brings {packages} into {_shown(venv)}: {about(pins, sizes())}")
    build = torch.build(installer) if torch is not None else None
    for line in torch.lines(build, installer) if torch is not None and build is not None else []:
        say(f"setup: {line}")
    if TESTS in parts and pins:
        installer = _with_uv(venv, installer, pins)
    for part in parts:
        if pins.keys() & pinned(lock_of(part)).keys():
            installer.install_locked(lock_of(part))
    if torch is not None and build is not None:
        torch.install(build, installer)
    if RUN in parts:
        installer.install_project(ROOT)
    if TESTS in parts or (RUN in parts and not installer.uv):
        installer.add_pip()
    # the tests import it beside mypy, where nobody waits for it alone
    if build is not None and "check" not in os.environ.get("KHARNESS_GOALS", "").split():
        say("setup: importing torch for the first time")
        # whatever it says, the first training says it again
        watched([venv / "bin" / "python", "-P", "-c", FIRST_IMPORT], None, "importing")


def _with_uv(venv: Path, installer: Installer, pins: Mapping[str, str]) -> Installer:
    """Go on with the uv that the tests pin: their packages take it 9 s of CPU time, and pip 40.

    Where it does not reach what pip does, pip goes on.
    """
    version = pinned(lock_of(TESTS)).get("uv")
    if installer.uv or version is None:
        return installer
    if "uv" in pins:
        installer.install_one(lock_of(TESTS), "uv")
    quicker = Installer(venv, str((venv / "bin" / "uv").absolute()))
    if not quicker.uv_would_install("--no-deps", f"uv=={version}"):
        return installer
    say("setup: uv brings the others")
    return quicker


def _shown(venv: Path) -> Path:
    """The environment's path as one types it here."""
    return venv.relative_to(Path.cwd()) if venv.is_relative_to(Path.cwd()) else venv


def link_library(venv: Path) -> None:
    """Let an environment find lib/, also one of the user's own; installing the project replaces the file."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    version = (ROOT / VERSION).read_text().strip()
    name = f"{project['name'].replace('-', '_')}-{version}"
    for packages in site_packages(venv, ""):
        (packages / f"__editable__.{name}.pth").write_text(f"{ROOT / 'lib'}\n")


def fingerprint(parts: Sequence[str]) -> str:
    """SHA-256 over what the parts pin, the project file and this Python."""
    # an environment is of one Python, and finds one checkout's lib/
    digest = hashlib.sha256(sys.version.encode() + str(ROOT).encode())
    locks = [lock_of(part) for part in (*parts, *(["torch"] if RUN in parts else []))]
    for path in [*locks, ROOT / "pyproject.toml", ROOT / VERSION]:
        digest.update(path.read_bytes())
    return digest.hexdigest() + "\n"


def works(venv: Path) -> bool:
    """Whether the environment's Python starts (that of a half-made or moved one does not)."""
    python = venv / "bin" / "python"
    if not python.exists():
        return False
    return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0


def moved_from(venv: Path) -> Path | None:
    """Where it was made, unless that is where it is, or nobody noted it."""
    try:
        made = MADE.search((venv / "pyvenv.cfg").read_text())
    except OSError:
        return None
    return Path(made[1]) if made and Path(made[1]) != Path(os.path.abspath(venv)) else None


def move_scripts(venv: Path, old: Path) -> None:
    """Have the scripts in bin/ run by the Python that is beside them."""
    python = re.escape(f"{old}/bin/").encode() + rb"""([^/'" \n]+)"""
    first = re.compile(b"#!%b\n|#!/bin/sh\n'''exec' ['\"]?%b['\"]? .*\n' '''\n" % (python, python))
    for script in (venv / "bin").iterdir():
        if script.is_symlink() or not script.is_file():
            continue
        content = script.read_bytes()
        if found := first.match(content):
            name = (found[1] or found[2]).decode()
            script.write_bytes(_first(Path(os.path.abspath(venv), "bin", name)) + content[found.end() :])


def _first(python: Path) -> bytes:
    line = f"#!{python}\n".encode()
    if b" " in line or len(line) > LONGEST:
        line = f"#!/bin/sh\n'''exec' \"{python}\" \"$0\" \"$@\"\n' '''\n".encode()
    return line
