"""Writes a bundle: the files of a run or a matrix, a list of them with their hashes, and its packages."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kharness.runs.errors import MatrixError
from kharness.runs.files import BUNDLE, BUNDLE_JSON, CHECKPOINTS, REQUIREMENTS, WEIGHTS
from monitoring.journal.atomic_file import replacing
from monitoring.journal.files import ENVIRONMENT_JSON, STORES

FORMAT = 1
CHUNK = 2**20
WEIGHT_ENDINGS = (".pt", ".pth", ".ckpt", ".safetensors", ".distcp")
# What trackers keep for themselves, and can be made again from the journal by `make sync`.
OF_TRACKERS = frozenset({"wandb", "tensorboard", STORES, "mlartifacts"})
# The configuration and hidden files that are none of a run's content: locks, halves of files.
_CONFIG = ".config"


@dataclass(frozen=True)
class WrittenBundle:
    """An archive that was written."""

    path: Path
    files: int
    bytes: int
    """Size of the archive."""
    left_out: int
    """Files with weights that it does not have."""


def write_bundle(directory: Path, target: Path | None = None, *, weights: bool = False) -> WrittenBundle:
    """Write a run or a matrix into one archive, DIRECTORY.kharness.zip without a target.

    MatrixError where the archive cannot be written, or lies in the directory itself.
    """
    path = target or Path(f"{directory.name}{BUNDLE}")
    if path.resolve().is_relative_to(directory.resolve()):
        raise MatrixError(f"{path} lies in what it is to hold", hint="-o FILE names a place elsewhere")
    content, left_out = {}, 0
    try:
        with replacing(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for one in sorted(_files(directory)):
                name = one.relative_to(directory).as_posix()
                if not weights and _is_weights(name):
                    left_out += 1
                    continue
                content[name] = _add(archive, one, f"{directory.name}/{name}")
            packages = _packages(directory)
            if packages:
                archive.writestr(f"{directory.name}/{REQUIREMENTS}", packages)
                content[REQUIREMENTS] = _about(packages)
            about = {"format": FORMAT, "created": time.time(), "name": directory.name, "files": content}
            archive.writestr(f"{directory.name}/{BUNDLE_JSON}", json.dumps(about, indent=1))
    except OSError as error:
        raise MatrixError(
            f"{path} cannot be written: {(error.strerror or str(error)).lower()}",
            hint="-o FILE names another place",
        ) from error
    return WrittenBundle(path, len(content), path.stat().st_size, left_out)


def _files(directory: Path) -> Iterator[Path]:
    """Yield the plain files that a bundle may have; links and what is hidden are left out."""
    for folder, folders, names in os.walk(directory):
        here = Path(folder)
        folders[:] = [
            name
            for name in folders
            if name[0] != "." and name not in OF_TRACKERS and not (here / name).is_symlink()
        ]
        for name in names:
            path = here / name
            # the two are of a bundle that it was unpacked from
            is_content = (name[0] != "." or name == _CONFIG) and name not in (BUNDLE_JSON, REQUIREMENTS)
            if is_content and stat.S_ISREG(path.lstat().st_mode):
                yield path


def _is_weights(name: str) -> bool:
    return CHECKPOINTS in name.split("/")[:-1] or name.endswith(WEIGHT_ENDINGS) or name.endswith(WEIGHTS)


def _add(archive: zipfile.ZipFile, path: Path, name: str) -> dict[str, object]:
    """Add a file as it is now: of one that grows meanwhile, what it had."""
    digest, left = hashlib.sha256(), path.stat().st_size
    size, info = 0, zipfile.ZipInfo(name, time.gmtime()[:6])
    info.compress_type = zipfile.ZIP_DEFLATED
    with path.open("rb") as source, archive.open(info, "w", force_zip64=True) as to:
        while left > 0 and (part := source.read(min(CHUNK, left))):
            digest.update(part)
            to.write(part)
            left -= len(part)
            size += len(part)
    return {"sha256": digest.hexdigest(), "bytes": size}


def _about(content: str) -> dict[str, object]:
    return {"sha256": hashlib.sha256(content.encode()).hexdigest(), "bytes": len(content.encode())}


def _packages(directory: Path) -> str:
    """The packages of the newest run as requirements; empty where it does not say."""
    found = sorted(directory.glob(f"**/{ENVIRONMENT_JSON}"), key=lambda path: path.stat().st_mtime)
    for path in reversed(found):
        try:
            packages = json.loads(path.read_bytes())["packages"]
            return "".join(f"{name}=={version}\n" for name, version in sorted(packages.items()))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
    return ""
