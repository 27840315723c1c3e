"""The environment of a run: hardware, versions and git state, for its start record and run.json."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from monitoring.host.name import host_name

# In the folder of a copied checkout: the git state that it was in, and what differed from the revision.
COPIED_STATE, COPIED_DIFFERENCE = ".copied_state.json", ".copied_difference"

# Packages whose version can change a result or a record; listed if this process has imported them.
PACKAGES = ("torch", "torchvision", "numpy", "triton", "transformers", "lightning", "orjson")


def hardware() -> dict[str, object]:
    """Host, processor, memory (bytes) and the GPUs that this process can use by torch."""
    return {
        "host": host_name(),
        "cpu": _cpu_name(),
        "cpu_count": os.cpu_count(),
        "cpu_usable": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "gpus": gpu_names(),
    }


def versions() -> dict[str, str]:
    """Versions of Python, the operating system and the imported ones of PACKAGES."""
    found = {"python": platform.python_version(), "platform": _platform()}
    for package in PACKAGES:
        if package in sys.modules:
            found[package] = str(getattr(sys.modules[package], "__version__", None) or _version(package))
    return found


def _platform() -> str:
    """Return what `platform.platform()` says; it starts `uname -p`, whose answer it leaves out."""
    if sys.platform != "linux":
        return platform.platform()
    system = platform.system(), platform.release(), platform.machine()
    return "-".join(filter(None, (*system, "with", "".join(platform.libc_ver()))))


def _version(package: str) -> str:
    from importlib import metadata  # takes as long to import as all else here

    return metadata.version(package)


def git_state(directory: Path | str | None = None) -> dict[str, object] | None:
    """Revision, whether tracked files differ from it, and the difference's SHA-256; None outside git."""
    return git_state_and_difference(directory)[0]


def git_state_and_difference(directory: Path | str | None = None) -> tuple[dict[str, object] | None, bytes]:
    """Return a git state, and the changes of tracked files as a patch for `git apply`; empty without any."""
    if (copied := _copied(directory)) is not None:
        state: dict[str, object] = json.loads((copied / COPIED_STATE).read_text())
        return state, (copied / COPIED_DIFFERENCE).read_bytes()
    # Mostly nothing differs; then one process finds all. How far a branch is from its upstream may take git
    # long to count.
    asked = ("--porcelain=v2", "--branch", "--no-ahead-behind", "--untracked-files=no")
    status = _git("status", *asked, directory=directory)
    lines = status.decode(errors="replace").splitlines() if status is not None else []
    revision = next((line.split()[2] for line in lines if line.startswith("# branch.oid ")), "(initial)")
    is_clean = all(line.startswith("#") for line in lines)
    difference = b"" if is_clean else _git("diff", "HEAD", "--binary", directory=directory)
    if revision == "(initial)" or difference is None:
        return None, b""
    digest = _hash_of(difference) if difference else None
    return {"revision": revision, "dirty": bool(difference), "diff_sha256": digest}, difference


def _hash_of(difference: bytes) -> str:
    import hashlib  # which loads OpenSSL; mostly nothing differs

    return hashlib.sha256(difference).hexdigest()


def write_copied_state(folder: Path, state: Mapping[str, object], difference: bytes) -> None:
    """Note the git state of the checkout that a folder, which is none, has the sources of."""
    (folder / COPIED_DIFFERENCE).write_bytes(difference)
    (folder / COPIED_STATE).write_text(json.dumps(state))


def _copied(directory: Path | str | None) -> Path | None:
    """The folder of a copied checkout that a directory is, or is in."""
    here = Path(directory or ".").absolute()
    return next((place for place in (here, here.parent) if (place / COPIED_STATE).exists()), None)


def _git(*arguments: str, directory: Path | str | None) -> bytes | None:
    if not _may_be_in_git(directory):
        return None
    try:
        return subprocess.run(
            ["git", *arguments],
            cwd=directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            timeout=20,
            # `git status` would else refresh the index, under a lock that other commands meet
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
        ).stdout
    except (OSError, subprocess.SubprocessError):  # no git, no repository, or one it refuses to read
        return None


def _may_be_in_git(directory: Path | str | None) -> bool:
    """Whether git would find a repository of this folder: to start it takes a hundred times as long."""
    if "GIT_DIR" in os.environ:
        return True
    place = os.path.realpath(directory or ".")
    while not os.path.lexists(os.path.join(place, ".git")):
        place, below = os.path.dirname(place), place
        if place == below:
            return False
    return True


def _cpu_name() -> str | None:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or None


def gpu_names() -> list[str] | None:
    """Return the GPUs of a process that has begun to use CUDA; [] before that, None in one without torch.

    It never begins: on a training on the CPU that would cost a second and memory on every GPU.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    if not torch.cuda.is_initialized():
        return []
    return [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
