"""Presets: `defconfigs/NAME` for what spans models, `MODEL/defconfigs/NAME` for one model."""

from __future__ import annotations

from pathlib import Path

from kharness.config.assignment import Layer
from kharness.config.errors import ConfigError
from kharness.config.places import asked_path
from kharness.config.refused import did_you_mean
from kharness.config.tree import CONFIG, Tree

DEFAULT = "default"


def preset_files(root: Path) -> list[Path]:
    """Every shipped preset, those that span models first."""
    found = [*sorted(root.glob("defconfigs/*")), *sorted(root.glob("*/defconfigs/*"))]
    return [path for path in found if path.is_file() and not path.name.startswith(".")]


def find_preset(root: Path, asked: str) -> Path:
    """The file of a preset given by name or by path (from here or from the root).

    ConfigError with the nearest names if it is unknown, or if two models have one of that name.
    """
    files = preset_files(root)
    named = [path for path in files if path.name == asked]
    if len(named) > 1:
        choices = " or ".join(str(path.relative_to(root)) for path in named)
        raise ConfigError(f"preset {asked} exists more than once", hint=f"say DEFCONFIG={choices}")
    if named:
        return named[0]
    given = asked_path("DEFCONFIG", asked)
    for path in (given.absolute(), root / given):
        if asked and path.is_file():
            return path
    raise ConfigError(
        f"unknown preset {asked!r}",
        hint=did_you_mean(Path(asked).name, [path.name for path in files])
        or "make list-defconfigs shows all",
    )


def starting_layer(tree: Tree, directory: Path) -> Layer:
    """What the directory's `.config` asks for; without one the default preset's layer, saying so.

    Writes nothing: the caller does once it knows that everything else can be taken too.
    """
    path = directory / CONFIG
    if path.exists():
        return tree.base(directory)
    preset = find_preset(tree.root, DEFAULT)
    print(f"no {tree.shown(path)} yet: starting from {tree.shown(preset)}")
    return tree.read(preset, "preset")
