"""Presets: `defconfigs/NAME` for what spans models, `MODEL/defconfigs/NAME` for one model, M= included."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from kharness.config.assignment import Layer
from kharness.config.dotconfig import read_text
from kharness.config.errors import ConfigError
from kharness.config.output import say
from kharness.config.places import asked_path, home, shown_from
from kharness.config.refused import did_you_mean
from kharness.config.tree import CONFIG, Tree

DEFAULT = "default"
_NEEDS = "Needs: "
_INDENT = " " * 6
# A path or a command is never broken.
_WRAPPED = textwrap.TextWrapper(
    80, initial_indent=_INDENT, subsequent_indent=_INDENT, break_long_words=False, break_on_hyphens=False
)


def preset_files(root: Path) -> list[Path]:
    """Every preset, those that span models first.

    With M= they are its own and those that span models but for `default`: the others count on a model that is
    the default no more.
    """
    found, own = sorted(root.glob("defconfigs/*")), home(root)
    if own == root:
        found += sorted(root.glob("*/defconfigs/*"))
    else:
        found = [path for path in found if path.name != DEFAULT] + sorted(own.glob("defconfigs/*"))
    return [path for path in found if path.is_file() and not path.name.startswith(".")]


def find_preset(root: Path, asked: str) -> Path:
    """The file of a preset given by name or by path (from here or from the root).

    ConfigError with the nearest names if it is unknown, or if two models have one of that name.
    """
    files = preset_files(root)
    named = [path for path in files if path.name == asked]
    if len(named) > 1:
        choices = " or ".join(shown_from(root, path) for path in named)
        raise ConfigError(f"preset {asked} exists more than once", hint=f"say DEFCONFIG={choices}")
    if named:
        return named[0]
    given = asked_path("DEFCONFIG", asked)
    for path in (given.absolute(), home(root) / given, root / given):
        if asked and path.is_file():
            return path
    raise ConfigError(
        f"unknown preset {asked!r}",
        hint=did_you_mean(Path(asked).name, [path.name for path in files])
        or "make list-defconfigs shows all",
    )


def listing(tree: Tree, matrix: str = "make test_matrix") -> Iterator[str]:
    """Return all presets by model: the first comment of the file, what it needs, how its `matrix` is run."""
    for folder, paths in groupby(preset_files(tree.root), key=lambda path: path.parent.parent):
        member = tree.aliases["MODEL"].get(folder.name)
        model = "Any model" if folder == tree.root else _entry(tree, member)[0] if member else folder.name
        yield f"{model}, in {tree.shown(folder / 'defconfigs')}/"
        for path in paths:
            yield f"  {path.name}"
            for text in _described(tree, path, matrix):
                yield from _WRAPPED.wrap(text)


def _described(tree: Tree, path: Path, matrix: str) -> list[str]:
    """Return a preset's description, its needs (`Needs:` line and dataset), and the target for its axes."""
    comments = [line[2:] for line in read_text(path, tree.shown(path)).splitlines() if line.startswith("# ")]
    comments = [line for line in comments if not line.endswith(" is not set")]
    about = next((line for line in comments if not line.startswith(_NEEDS)), "")
    needs = [line.removeprefix(_NEEDS) for line in comments if line.startswith(_NEEDS)]
    resolved = tree.resolve(tree.read(path, "preset"))
    dataset = tree.aliases.get("DATASET", {}).get(str(resolved.values.get("DATASET")))
    if dataset and "`make data`" in _entry(tree, dataset)[1]:
        needs.append("`make data` once")
    axes = any(assignment.symbol == "MATRIX_AXES" for assignment in resolved.asked)
    run = [f"Run: `{matrix}`"] if axes else []
    return [about, ". ".join([f"{_NEEDS}{', '.join(needs)}"] * bool(needs) + run)]


def _entry(tree: Tree, name: str) -> tuple[str, str]:
    """Prompt and help of a choice's member."""
    node = tree.symbol(name).nodes[0]
    return str(node.prompt[0]), str(node.help or "")


def starting_layer(tree: Tree, directory: Path) -> Layer:
    """Return the layer of the directory's `.config`; without one that of the default preset, announced.

    Writes nothing: the caller does once it knows that everything else can be taken too.
    """
    path = directory / CONFIG
    if path.exists():
        return tree.base(directory)
    preset = default_preset(tree)
    say(f"no {tree.shown(path)} yet: starting from {tree.shown(preset) if preset else 'the defaults'}")
    return tree.read(preset, "preset") if preset else []


def default_preset(tree: Tree) -> Path | None:
    """The preset of a directory without `.config`; None for an outside model that has none."""
    if home(tree.root) != tree.root and all(path.name != DEFAULT for path in preset_files(tree.root)):
        return None
    return find_preset(tree.root, DEFAULT)
