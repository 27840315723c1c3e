"""Bundles: the files of a run or a matrix, a list of them with their hashes, its packages; and back.

One may come from anybody: unpacked, nothing leaves its folder, and no size surprises the disk.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from kharness.runs.errors import MatrixError
from kharness.runs.files import BUNDLE, BUNDLE_JSON, CHECKPOINTS, REQUIREMENTS, UNPACKED, WEIGHTS
from monitoring.errors import refusal
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

    MatrixError where the archive cannot be written, lies in the directory itself, or is the one that this was
    unpacked from: that may have weights, and what was done here since is none of what somebody sent.
    """
    path = target or Path(f"{directory.name}{BUNDLE}")
    if path.resolve().is_relative_to(directory.resolve()):
        raise MatrixError(f"{path} lies in what it is to hold", hint="-o FILE names a place elsewhere")
    if path.exists() and _folder_of(path.resolve()) == directory.resolve().parent:
        raise MatrixError(f"{path} is the bundle that this was read from", hint="-o FILE names another file")
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
            f"{path} cannot be written: {refusal(error)}",
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
    # zip64 whatever its size: a header that was written for less than 2 GiB cannot take more any more
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


# An archive may unpack to so many times its size and so many bytes more: a million steps of constant values
# compress to a hundredth.
MOST_TIMES = 300
MORE = 64 * 2**20
MOST_FILES = 200_000
# Bytes of the disk that stay free.
SPARE = 256 * 2**20


def unpacked(path: Path) -> Path:
    """Return the run directory or matrix in a bundle, unpacked next to it as NAME.unpacked/NAME.

    One that was unpacked before is taken as it is. MatrixError for an archive that is no bundle, is damaged,
    or would write anywhere else, links, devices or more than its size allows.
    """
    folder = _folder_of(path)
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            name = _checked(path, members)
            if (folder / name / BUNDLE_JSON).is_file():
                if _told(path, archive, name) == (folder / name / BUNDLE_JSON).read_bytes():
                    return folder / name
                raise MatrixError(
                    f"{folder} is of another bundle", hint=f"move it away, then read {path.name} again"
                )
            _check_room(path, members, folder.parent)
            # Hidden, and named in one step when all of it is verified: half a bundle is never read as a run.
            temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
            try:
                _extract(path, archive, members, temporary)
                _verify(path, temporary / name)
                os.replace(temporary, folder)
            except BaseException:
                shutil.rmtree(temporary, ignore_errors=True)
                raise
    except (zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        raise _refused(path, str(error).lower()) from error
    except OSError as error:
        raise MatrixError(
            f"{path} cannot be unpacked: {refusal(error)}",
            hint="copy it into a folder that you can write to",
        ) from error
    return folder / name


def _folder_of(path: Path) -> Path:
    """Return the folder next to a bundle that it is unpacked into."""
    return path.with_name(path.name.removesuffix(BUNDLE) + UNPACKED)


def _refused(path: Path, reason: str) -> MatrixError:
    return MatrixError(
        f"{path.name} is refused: {reason}", hint="kharness bundle RUN writes one that is read"
    )


def _checked(path: Path, members: Sequence[zipfile.ZipInfo]) -> str:
    """Return the one folder that all members are in; MatrixError for what no bundle has."""
    if len(members) > MOST_FILES:
        raise _refused(path, f"it has more than {MOST_FILES} files")
    seen: set[str] = set()
    total = 0
    for member in members:
        parts = PurePosixPath(member.filename).parts
        shown = member.filename[:80]
        bad = (
            {"..", "."} & {*member.filename.split("/")}
            or not all(map(str.isprintable, parts))
            or "\\" in shown
        )
        if bad or member.filename.startswith("/") or "//" in member.filename or len(parts) < 2:
            raise _refused(path, f"{shown!r} is not a path inside of it")
        # the upper half is the mode of Unix; 0 where the archive was made elsewhere
        kind = stat.S_IFMT(member.external_attr >> 16)
        if kind not in (0, stat.S_IFREG) or member.is_dir():
            raise _refused(path, f"{shown} is not a plain file")
        if member.flag_bits & 1 or member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise _refused(path, f"{shown} is encrypted, or packed in another way")
        if member.filename.casefold() in seen:
            raise _refused(path, f"it has {shown} twice")
        seen.add(member.filename.casefold())
        total += member.file_size
    size = path.stat().st_size
    if total > MOST_TIMES * size + MORE:
        raise _refused(path, f"it is {size} bytes and would be {total}")
    [name, *others] = {PurePosixPath(member.filename).parts[0] for member in members} or {""}
    if others or f"{name}/{BUNDLE_JSON}".casefold() not in seen:
        raise _refused(path, f"it has no {BUNDLE_JSON}")
    return name


def _check_room(path: Path, members: Sequence[zipfile.ZipInfo], folder: Path) -> None:
    total, free = sum(member.file_size for member in members), shutil.disk_usage(folder).free
    if total + SPARE > free:
        raise MatrixError(
            f"{path.name} would be {total} bytes and the disk has {free} left",
            hint="make room, or copy it elsewhere",
        )


def _extract(path: Path, archive: zipfile.ZipFile, members: Sequence[zipfile.ZipInfo], folder: Path) -> None:
    """Write each member as a new plain file, and no more of it than it says."""
    for member in members:
        target = folder.joinpath(*PurePosixPath(member.filename).parts)
        target.parent.mkdir(parents=True, exist_ok=True)
        left = member.file_size
        with archive.open(member) as source, target.open("xb") as file:
            while part := source.read(CHUNK):
                left -= len(part)
                if left < 0:
                    raise _refused(path, f"{member.filename} is larger than it says")
                file.write(part)


def _told(path: Path, archive: zipfile.ZipFile, name: str) -> bytes:
    member = archive.getinfo(f"{name}/{BUNDLE_JSON}")
    with archive.open(member) as file:
        return file.read(member.file_size + 1)


def _verify(path: Path, directory: Path) -> None:
    """Raise MatrixError unless the files are those that the bundle lists."""
    try:
        about: Any = json.loads((directory / BUNDLE_JSON).read_bytes())
        listed = {str(name): str(one["sha256"]) for name, one in about["files"].items()}
        number = about["format"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _refused(path, f"its {BUNDLE_JSON} says nothing") from error
    if number != FORMAT:
        raise _refused(path, f"it has format {number}, and this kharness reads {FORMAT}")
    found = _hashes(directory)
    wrong = sorted(name for name in {*listed, *found} if listed.get(name) != found.get(name))
    if wrong:
        raise _refused(path, f"{wrong[0]} is not what {BUNDLE_JSON} says")


def _hashes(directory: Path) -> Mapping[str, str]:
    found = {}
    for folder, _, names in os.walk(directory):
        for name in names:
            one = Path(folder, name)
            inside = one.relative_to(directory).as_posix()
            if inside != BUNDLE_JSON:
                with one.open("rb") as file:
                    found[inside] = hashlib.file_digest(file, "sha256").hexdigest()
    return found
