"""Writes `.config`, `config.py` and the record of origins, so that a reader never meets half a file."""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from kharness.config.assignment import Resolved, literal
from kharness.config.config_py import OF_CONFIG, OF_ITSELF, text_hash
from kharness.config.dotconfig import read_text
from kharness.config.errors import ConfigError, KharnessError, full_disk
from kharness.config.places import CONFIG_PY
from kharness.config.project_name import check_run_name, project_name
from kharness.config.record import ORIGINS, make_record, record_text
from kharness.config.tree import CONFIG, Tree
from monitoring.errors import is_full, refusal

LOCK = ".config.lock"
OLD = ".config.old"


def write_config(resolved: Resolved, directory: Path, *, root: Path) -> bool:
    """Write the three files of a configuration; returns whether anything changed."""
    return write_files(config_files(resolved, root), directory)


def write_files(files: Mapping[str, str], directory: Path) -> bool:
    """Write the texts that `config_files` or `read_files` gave; returns whether anything changed.

    Everything is made and checked before the first file is touched. Each file is replaced at once, under a
    lock that makes writers of the same directory take turns. The record of origins comes first, then
    `.config`, then `config.py` with its hash: so a crash in between is no edit by hand.
    """
    with _locked(directory):
        changed = {name: text for name, text in files.items() if _current(directory / name) != text.encode()}
        old = _current(directory / CONFIG)
        if CONFIG in changed and old:
            write_file(directory / OLD, old)
        for name, text in changed.items():
            write_file(directory / name, text.encode())
    return bool(changed)


def write_new_config(resolved: Resolved, directory: Path, *, root: Path) -> None:
    """Write the three files into a new directory that no other process knows of yet.

    Nothing is flushed to the disk: who writes a thousand of them does that once, before announcing them.
    """
    try:
        directory.mkdir(parents=True)
        for name, text in config_files(resolved, root).items():
            with open(os.path.join(directory, name), "wb") as file:  # without a Path: there are thousands
                file.write(text.encode())
    except OSError as error:
        raise _cannot_write(directory, error) from error


def load_config(tree: Tree, directory: Path) -> Resolved:
    """The configuration of a directory, its `config.py` made again if `.config` was edited by hand."""
    resolved = tree.resolve(tree.base(directory))
    write_config(resolved, directory, root=tree.root)
    return resolved


def config_files(resolved: Resolved, root: Path) -> dict[str, str]:
    """The texts of the three files by name, in the order of writing."""
    return {
        ORIGINS: record_text(make_record(resolved)),
        CONFIG: resolved.text,
        CONFIG_PY: config_py(resolved, root),
    }


def read_files(directory: Path) -> dict[str, str]:
    """The same as found in a directory, as far as they exist."""
    paths = [directory / name for name in (ORIGINS, CONFIG, CONFIG_PY)]
    return {path.name: read_text(path, str(path)) for path in paths if path.is_file()}


def config_py(resolved: Resolved, root: Path) -> str:
    """`config.py` as text: literals only, the same bytes for the same `.config` in the same checkout."""
    project = checked_project_name(resolved, root)
    literals = {**resolved.literals, "TRACKER_PROJECT": literal("TRACKER_PROJECT", project)}
    lines = [
        "",
        "import sys",
        "",
        *literals.values(),
        "",
        "# What each option affects: docs/configuration.md.",
        resolved.affects.source,
        "",
        "# `from config import config` gives the values as attributes.",
        "config = sys.modules[__name__]",
    ]
    body = "\n".join(lines) + "\n"
    return (
        '"""Made from .config; change it with `make menuconfig`, not here."""\n\n'
        f"{OF_CONFIG}{text_hash(resolved.text)}\n{OF_ITSELF}{text_hash(body)}\n{body}"
    )


def checked_project_name(resolved: Resolved, root: Path) -> str:
    """The expanded TRACKER_PROJECT; ConfigError for a template that would fail when a run starts."""
    checking = "TRACKER_RUN_NAME"
    try:
        check_run_name(resolved.values, root)
        checking = "TRACKER_PROJECT"
        return project_name(resolved.values, root)
    except ValueError as error:
        raise ConfigError(
            f"{resolved.origins[checking].where}: {checking}: {error}",
            hint="write it short, no /; in braces checksum, timestamp (runs only) or a symbol in lower case",
        ) from None


def write_file(path: Path, data: bytes) -> None:
    """Replace a file atomically: written to a temporary one, flushed to the disk, then renamed."""
    # a name that nobody can have guessed, made and never opened: a link that was put there is not followed
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(8)}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with open(os.open(temporary, flags, 0o666), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise _cannot_write(path, error) from error


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """One writer a directory at a time; the directory is made if it does not exist."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise _cannot_write(directory, error) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _current(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _cannot_write(path, error) from error


def _cannot_write(path: Path, error: OSError) -> KharnessError:
    if is_full(error):
        return full_disk(OSError(error.errno, error.strerror, str(path)))
    return ConfigError(
        f"{path}: {refusal(error)}",
        hint="choose a directory that you can write to with O=dir",
    )
