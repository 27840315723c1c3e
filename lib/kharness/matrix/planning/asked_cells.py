"""A FILTER= that means no cell, refused before the package that reads option trees is installed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kharness.config.dotconfig import CONFIG, assigned, read_text, unquote
from kharness.config.places import home, shown_from
from kharness.config.presets import DEFAULT, find_preset
from kharness.config.refused import KnownOptions
from kharness.matrix.planning.axes import parse_axes
from kharness.matrix.planning.axis_values import given_axes, settle
from kharness.matrix.planning.cells import combinations, varying
from kharness.matrix.planning.filter import choose, parse_filter


def check_planned(options: KnownOptions, variables: Mapping[str, str], output: Path, root: Path) -> None:
    """MatrixError for a FILTER= that means no cell of the matrix that a call is to plan.

    Not where the matrix is more, or less, than the product of axes of symbols.
    """
    chosen = parse_filter(variables.get("FILTER", ""))
    if not chosen.text:
        return
    settings = _settings(output, root)
    settings |= {name.removeprefix("CONFIG_"): value for name, value in variables.items()}
    given, _ = given_axes(options, variables)
    text = given.over(settings.get("MATRIX_AXES", ""), is_given="CONFIG_MATRIX_AXES" in variables)
    axes = parse_axes(text) if text else []
    if not axes or any(axis.files for axis in axes):
        return
    if any(settings.get(name) for name in ("MATRIX_EXCLUDE", "MATRIX_INCLUDE")):
        return
    grid = settle(options, axes)
    choose(chosen, combinations(grid, varying([axis.axis for axis in grid])))


def _settings(output: Path, root: Path) -> dict[str, str]:
    """The texts of the configuration that a matrix begins with."""
    path = output / CONFIG
    if not path.exists():
        path = find_preset(root, DEFAULT)
    found = assigned(read_text(path, shown_from(home(root), path)))
    return {name: unquote(text) for name, text in found if text and text.startswith('"')}
