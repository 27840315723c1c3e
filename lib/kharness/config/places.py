"""Paths as users give them, checked before anything looks at what is there.

Every path that comes from a user, in a variable, a flag or an option, is made here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from kharness.config.errors import ConfigError
from kharness.config.output import printable
from monitoring.errors import refusal
from monitoring.outside import enter, outside

# Bytes: of one name on all common file systems, and of a path less what is put into the directory it names.
_LONGEST_NAME = 255
_LONGEST_PATH = 3500


OUTPUT = "KHARNESS_O"
"""The variable of the environment that is to `python MODEL/train.py` what O= is to make."""
KCONFIG, TRAIN = "Kconfig", "train.py"
COMMAND = "COMMAND"
"""The option of an outside model that has no train.py on our loop, but any program: the command."""
COMMAND_SCRIPT = "scripts/run_command.py"

CONFIG_PY = "config.py"
"""File of a run directory, and of a configuration: the values as Python."""
TREE_KCONFIG = "lib/kharness/Kconfig"
"""The options of the tree: what the Kconfig of a model outside of it sources, from the checkout's root."""


def shown_from(root: Path, path: Path) -> str:
    """A path as messages show it: from the root on where it lies below it."""
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)


def home(root: Path) -> Path:
    """Where `.config` and results are: the folder of the model outside of the tree, without one the root."""
    return outside() or root


def output(root: Path) -> Path:
    """Where a training started by hand looks for `.config` and puts its results: KHARNESS_O, else `home`."""
    chosen = os.environ.get(OUTPUT, "")
    return asked_path(OUTPUT, chosen).absolute() if chosen else home(root)


def model_folder(root: Path, model: str) -> Path:
    """The folder with a model's train.py: the tree's own where it has one of the name, else that of M=."""
    folder = outside()
    # os.path, for a matrix asks it for each of its cells
    return folder if folder and not os.path.isfile(os.path.join(root, model, TRAIN)) else root / model


def has_model(root: Path, model: str) -> bool:
    """Whether there is a train.py for a model."""
    places = [os.path.join(root, model), outside()]
    return any(os.path.isfile(os.path.join(place, TRAIN)) for place in places if place)


def is_outside(folder: Path) -> bool:
    """Whether a folder holds a model outside of the tree: its Kconfig sources the tree's."""
    try:
        text = (folder / KCONFIG).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return f'source "{TREE_KCONFIG}"' in text


def enter_outside(text: str) -> None:
    """Have the model in the folder of `M=` join the tree, or none; ConfigError if there is none."""
    folder = asked_path("M", text).resolve() if text else None
    if folder and not is_outside(folder):
        what = "does not source the tree's" if (folder / KCONFIG).is_file() else "is not there"
        raise ConfigError(
            f"M={printable(text)}: {folder / KCONFIG} {what}",
            hint=f'a line of it is: source "{TREE_KCONFIG}"; make new-model M=DIR writes a whole model',
        )
    enter(folder)


def asked_path(name: str, text: str) -> Path:
    """The path that `name` (a variable, a flag, a symbol) gives, its `~` expanded; ConfigError if it is none.

    Whether something is there is the caller's to find out: that question raises nothing any more.
    """
    try:
        return _path(text)
    except ValueError as error:
        raise ConfigError(f"{name}={printable(text)} {error}", hint="give another path") from None


def asked_folder(name: str, text: str, *, base: Path | None = None) -> Path:
    """A directory that is there or can be made, from `base` on; ConfigError where a file is in its place."""
    given = asked_path(name, text)
    path = base / given if base else given
    there = next((one for one in (path, *path.absolute().parents) if os.path.exists(one)), path)
    if os.path.exists(there) and not os.path.isdir(there):
        raise ConfigError(
            f"{name}={printable(text)} is not a directory", hint="name one that is, or a new one"
        )
    return path


def given_data(variables: Mapping[str, str]) -> Path | None:
    """DATA_DIR=, a folder of data set files that are there already; ConfigError where it is none."""
    given = variables.get("DATA_DIR")
    if not given:
        return None
    folder = asked_path("DATA_DIR", given)
    if not folder.is_dir():
        raise ConfigError(
            f"DATA_DIR={given} is not a folder",
            hint="name the folder that has the files; CONFIG_DATA_DIR=folder says where they are put",
        )
    return folder


def check_place(name: str, text: str) -> None:
    """Raise ConfigError for `dir` or `dir:SYMBOL=value …` if no path can be that directory."""
    place, colon, given = text.rpartition(":")
    asked_path(name, place if colon and "=" in given else text)


def _path(text: str) -> Path:
    """ValueError, as the end of a sentence, for what the system refuses to look at."""
    from kharness.config.dotconfig import check_storable  # a program that is started names none

    check_storable(text)
    try:
        path = Path(text).expanduser()
    except RuntimeError:
        raise ValueError("is in the home of a user who is not known here") from None
    encoded = os.fsencode(path.absolute())
    if len(encoded) > _LONGEST_PATH or any(len(part) > _LONGEST_NAME for part in encoded.split(b"/")):
        raise ValueError("is too long for a path")
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        reason = refusal(error)
        raise ValueError(f"cannot be looked at: {reason}") from None
    return path


@contextmanager
def kconfig_environment(root: Path) -> Iterator[None]:
    """kconfiglib reads its settings from the environment: only ours, and only while the tree is parsed."""
    names = ["CONFIG_", "srctree", *(n for n in os.environ if n.startswith("KCONFIG_"))]
    saved = {name: os.environ.pop(name) for name in names if name in os.environ}
    os.environ.update(srctree=str(root), KCONFIG_WARN_UNDEF="y")
    try:
        yield
    finally:
        for name in ("srctree", "KCONFIG_WARN_UNDEF"):
            del os.environ[name]
        os.environ.update(saved)
