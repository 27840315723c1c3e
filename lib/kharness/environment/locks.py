"""The pins of requirements/*.txt, the packages an environment holds, and their sizes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from kharness.config.errors import KharnessError

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "requirements"

Python = tuple[int, int]
"""A version, such as (3, 11)."""
MARKER = re.compile(r"python_(?:full_)?version (<|>=) '(\d+)\.(\d+)'")

Sizes = Mapping[str, tuple[int, int]]
"""Bytes of each package by name, as fetched and on the disk, of the wheels for Linux on x86_64."""


class InstallError(KharnessError):
    """The environment cannot be made as requested."""


def lock_of(part: str) -> Path:
    """The lock file of a part; InstallError for one that does not exist."""
    lock = FOLDER / f"{part}.txt"
    if not lock.is_file():
        raise InstallError(f"unknown part {part}", hint="each part is a file of requirements/")
    return lock


def pinned(lock: Path, python: Python | None = None) -> dict[str, str]:
    """Version by normalized name; with a Python, of what is for that one."""
    found = re.findall(r"^([A-Za-z0-9._-]+)==(\S+)(?: ; ([^\\\n]+))?", lock.read_text(), re.MULTILINE)
    return {
        normalized(name): version
        for name, version, marker in found
        if python is None or not marker or is_for(python, marker)
    }


def is_for(python: Python, marker: str) -> bool:
    """Whether a marker of our locks holds: `make requirements` writes these, and a bare Python reads them."""
    limit = MARKER.fullmatch(marker.strip())
    if limit is None:
        raise InstallError(f"unknown marker: {marker}", hint="one like python_full_version < '3.14' is known")
    return (python < (int(limit[2]), int(limit[3]))) == (limit[1] == "<")


def installed(venv: Path) -> dict[str, str]:
    """Return the environment's own packages by normalized name, without starting its Python."""
    found = (path.name.removesuffix(".dist-info") for path in site_packages(venv, "*.dist-info"))
    parts = (text.rpartition("-") for text in found)
    return {normalized(name): version for name, _, version in parts}


def python_of(venv: Path) -> Python | None:
    """The version of the environment's Python; None before it is made."""
    for folder in venv.glob("lib/python*.*/site-packages"):
        major, minor = folder.parent.name.removeprefix("python").split(".")
        return int(major), int(minor)
    return None


def site_packages(venv: Path, pattern: str) -> Iterable[Path]:
    return venv.glob(f"lib/python*/site-packages/{pattern}")


def normalized(name: str) -> str:
    """Normalize a name as the specification of the simple index (PEP 503) does."""
    return re.sub(r"[-_.]+", "-", name).lower()


def lacking(venv: Path, parts: Iterable[str]) -> dict[str, str]:
    """The pins of the parts, for its Python, that the environment does not hold."""
    there, python = installed(venv), python_of(venv)
    pins = {name: version for part in parts for name, version in pinned(lock_of(part), python).items()}
    return {name: version for name, version in pins.items() if there.get(name) != version}


def sizes() -> Sizes:
    """Return the sizes that `make requirements` measured."""
    found = json.loads((FOLDER / "sizes.json").read_text())
    return {name: (fetched, unpacked) for name, (fetched, unpacked) in found.items()}


def about(names: Iterable[str], known: Sizes) -> str:
    """`about 282 MB to fetch, 1.0 GB on the disk` of the packages whose size is known."""
    found = [known[name] for name in names if name in known]
    fetched, unpacked = (rounded(sum(one[place] for one in found)) for place in (0, 1))
    return f"about {fetched} to fetch, {unpacked} on the disk"


def rounded(size: int) -> str:
    """`2.7 GB`, `90 MB`, `344 KB`."""
    if size >= 1e9:
        return f"{size / 1e9:.1f} GB"
    return f"{size / 1e6:.0f} MB" if size >= 1e6 else f"{max(1, round(size / 1e3))} KB"
