"""Pin requirements/*.txt from the .in files, with hashes, and note the size of each package.

All .in files are resolved together, for every Python and for Linux on both kinds of processors, so that parts
can be installed one after the other. `make requirements KEEP=y` keeps the pinned versions that still fit.
torch is pinned apart, in torch.txt and without a hash: each build of it (CPU, CUDA, ROCm) is another file.
"""

from __future__ import annotations

import functools
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import urllib.request
import zipfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from packaging.markers import Marker
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import parse_wheel_filename

FOLDER = Path(__file__).resolve().parent.parent / "requirements"
PYTHONS = [(3, minor) for minor in range(11, 15)]
MACHINES = ("x86_64", "aarch64")
# What the default build of torch for Linux brings beyond that for a CPU.
OF_CUDA = re.compile(r"(nvidia-(?!ml-py$|nvml-dev)|triton$|cuda-)")
# The wheels that are measured: those that this one installs.
MEASURED = (PYTHONS[0], MACHINES[0])
# A wheel's list of files is at its end; torch's is 1.4 MB long.
TAIL_BYTES = 4 * 2**20
SUBSETS = ("config", "dashboard")
"""Parts of run.txt that some targets need alone."""

Package = dict[str, Any]


def main() -> int:
    """uv's exit code and message where something cannot be resolved; then nothing is written."""
    ins = sorted(path.stem for path in FOLDER.glob("*.in"))
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        keep = ["-c", str(pinned_now(scratch))] if os.environ.get("KEEP") in ("y", "1") else []
        everything = resolve([FOLDER / f"{name}.in" for name in ins], scratch, keep)
        pins = scratch / "pins.txt"
        pins.write_text("".join(f"{one['name']}=={one['version']}\n" for one in everything))
        parts = {name: resolve([FOLDER / f"{name}.in"], scratch, ["-c", str(pins)]) for name in ins}
    for name, lines in written(parts).items():
        (FOLDER / f"{name}.txt").write_text("\n".join(lines) + "\n")
    with ThreadPoolExecutor(8) as pool:
        sizes = dict(pool.map(measured, everything))
    sizes |= cpu_build(next(one["version"] for one in everything if one["name"] == "torch"))
    text = ",\n".join(f"  {json.dumps(name)}: {json.dumps(size)}" for name, size in sorted(sizes.items()))
    (FOLDER / "sizes.json").write_text(f"{{\n{text}\n}}\n")
    print(f"pinned {len(everything)} packages in {len(parts)} parts")
    return 0


def pinned_now(scratch: Path) -> Path:
    """The pins of all parts as one file of constraints."""
    lines = {
        line.split(" ")[0]
        for path in FOLDER.glob("*.txt")
        for line in path.read_text().splitlines()
        if "==" in line
    }
    file = scratch / "pinned.txt"
    file.write_text("\n".join(sorted(lines)))
    return file


def resolve(files: Sequence[Path], scratch: Path, options: Sequence[str]) -> list[Package]:
    """Packages with all their files, as pylock.toml has them (PEP 751), for all machines and Pythons."""
    output = scratch / "pylock.toml"
    output.unlink(missing_ok=True)
    command = [uv(), "pip", "compile", "--quiet", "--universal", "--python-version", "3.11"]
    command += ["--fork-strategy", "fewest", "--format", "pylock.toml", "--output-file", str(output)]
    subprocess.run([*command, *options, *map(str, files)], check=True, stdout=subprocess.DEVNULL)
    found: list[Package] = tomllib.loads(output.read_text())["packages"]
    return [one for one in found if any(is_for(one, *where) for where in everywhere())]


def uv() -> str:
    """The environment's own, which requirements/test.in names, else that on PATH."""
    own = Path(sys.executable).with_name("uv")
    return str(own) if own.exists() else shutil.which("uv") or "uv"


def everywhere() -> Iterable[tuple[tuple[int, int], str]]:
    return ((python, machine) for python in PYTHONS for machine in MACHINES)


def is_for(package: Package, python: tuple[int, int], machine: str) -> bool:
    version = ".".join(map(str, python))
    environment = {
        "python_version": version,
        "python_full_version": f"{version}.0",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "os_name": "posix",
        "platform_machine": machine,
    }
    return "marker" not in package or Marker(package["marker"]).evaluate(environment)


def written(parts: Mapping[str, Sequence[Package]]) -> dict[str, list[str]]:
    """Each file's lines: run and its subsets in full, other parts as what they add, tests as the rest."""
    split = {name: [one for one in part if not OF_CUDA.match(one["name"])] for name, part in parts.items()}
    cuda = [one for one in parts["run"] if OF_CUDA.match(one["name"])]
    run = names(split["run"])
    optional = [name for name in parts if name not in ("run", "test", *SUBSETS)]
    of_parts = run.union(*(names(split[name]) for name in optional))
    files = {
        "run": ("Everything the make targets use by default but torch", split["run"], {"torch"}),
        "cuda": ("What the default build of torch for Linux, with CUDA, adds to run.txt", cuda, set()),
        "test": ("What `make check` adds to all other parts", split["test"], of_parts),
    }
    for name in SUBSETS:
        files[name] = f"The part of run.txt that {name}.in needs", split[name], set()
    for name in optional:
        files[name] = f"What {name}.in adds to run.txt", split[name], run
    lines = {
        name: [f"# {title}; made by `make requirements`.", *locked(packages, without)]
        for name, (title, packages, without) in files.items()
    }
    torch = next(one for one in parts["run"] if one["name"] == "torch")
    title = "# Without a hash: each build (CPU, CUDA, ROCm) is another file; made by `make requirements`."
    return {**lines, "torch": [title, f"torch=={torch['version']}"]}


def names(packages: Iterable[Package]) -> set[str]:
    return {one["name"] for one in packages}


def locked(packages: Iterable[Package], without: Collection[str]) -> list[str]:
    """Pins with the hashes of all wheels that one of our machines could install."""
    lines = []
    for one in packages:
        if one["name"] not in without:
            marker = "" if all(is_for(one, *where) for where in everywhere()) else f" ; {one['marker']}"
            kept = sorted(wheel["hashes"]["sha256"] for wheel in one["wheels"] if is_ours(wheel))
            hashes = [f"    --hash=sha256:{digest}" for digest in kept]
            lines.append(" \\\n".join([f"{one['name']}=={one['version']}{marker}", *hashes]))
    return lines


def is_ours(wheel: Mapping[str, Any]) -> bool:
    own = tags_of(wheel)
    return any(tag in tags(*where) for tag in own for where in everywhere())


def tags_of(wheel: Mapping[str, Any]) -> frozenset[Tag]:
    return parse_wheel_filename(wheel.get("name") or Path(unquote(urlsplit(wheel["url"]).path)).name)[3]


@functools.cache
def tags(python: tuple[int, int], machine: str) -> dict[Tag, int]:
    """Return the wheel tags that CPython on Linux accepts with their rank, best first; glibc 2.5 (manylinux1)
    to 2.34.
    """
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in range(34, 4, -1)]
    platforms += [f"{old}_{machine}" for old in ("manylinux2014", "manylinux2010", "manylinux1")]
    found = [*cpython_tags(python, platforms=platforms), *compatible_tags(python, platforms=platforms)]
    return {tag: place for place, tag in reversed(list(enumerate(found)))}


def measured(package: Package) -> tuple[str, list[int]]:
    """Bytes of the package's wheel for MEASURED, as fetched and unpacked."""
    order = tags(*MEASURED)
    fitting = [wheel for wheel in package["wheels"] if not tags_of(wheel).isdisjoint(order)]
    wheel = min(fitting, key=lambda wheel: min(order.get(tag, len(order)) for tag in tags_of(wheel)))
    return package["name"], list(sizes_of(wheel["url"] if "url" in wheel else wheel["path"]))


def sizes_of(url: str) -> tuple[int, int]:
    """Bytes of a wheel, and of the files in it, from the list at its end."""
    if url.startswith(("/", "file:")):
        path = Path(unquote(urlsplit(url).path))
        with zipfile.ZipFile(path) as wheel:
            return path.stat().st_size, sum(file.file_size for file in wheel.infolist())
    request = urllib.request.Request(url, headers={"Range": f"bytes=-{TAIL_BYTES}"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        whole = answer.headers.get("Content-Range", "").rpartition("/")[2] or answer.headers["Content-Length"]
        with zipfile.ZipFile(io.BytesIO(answer.read())) as wheel:
            return int(whole), sum(file.file_size for file in wheel.infolist())


def cpu_build(version: str) -> dict[str, list[int]]:
    """The sizes of torch's build for a CPU, from wherever it is found; those of before where it is not."""
    with tempfile.TemporaryDirectory() as folder:
        wanted = Path(folder) / "cpu.in"
        wanted.write_text(f"torch=={version}+cpu\n")
        links = [
            word for link in os.environ.get("PIP_FIND_LINKS", "").split() for word in ("--find-links", link)
        ]
        for options in (links, ["--torch-backend", "cpu"]):
            try:
                found = resolve([wanted], Path(folder), options)
            except subprocess.CalledProcessError:
                continue  # uv has said why
            return {"torch+cpu": measured(next(one for one in found if one["name"] == "torch"))[1]}
    print(f"note: no torch {version}+cpu is found: its size stays as it was", file=sys.stderr)
    file = FOLDER / "sizes.json"
    before: dict[str, list[int]] = json.loads(file.read_text()) if file.exists() else {}
    return {name: size for name, size in before.items() if name == "torch+cpu"}


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:
        print(f"error: {' '.join(error.cmd[:4])} … failed\nhint: read its message above", file=sys.stderr)
        sys.exit(2)
    except FileNotFoundError as error:
        print(f"error: {error.filename} is not installed\nhint: make check installs it", file=sys.stderr)
        sys.exit(2)
