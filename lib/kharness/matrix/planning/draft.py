"""A matrix as it was requested: all of it checked, nothing written yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from kharness.config.assignment import Layer, Resolved
from kharness.config.places import asked_path, home, lasting_place
from kharness.config.tree import Tree
from kharness.config.values import Value
from kharness.matrix.planning.axes import Axis, parse_axes, split_groups
from kharness.matrix.planning.axis_values import NO_AXES, Fragment, GivenAxes, SettledAxis, is_setting, settle
from kharness.matrix.planning.cells import (
    Around,
    Cell,
    Combination,
    Refused,
    combinations,
    resolve,
    set_aside,
    varying,
    without,
)
from kharness.matrix.planning.filter import Filter, parse_filter
from kharness.matrix.planning.quarantine import Entry, idle, quarantined, read_quarantine
from kharness.runs.errors import MatrixError
from monitoring.counts import counted


@dataclass(frozen=True)
class Draft:
    """A checked matrix that has not been written."""

    configured: Resolved
    """The base configuration, without what holds for this call only."""
    settings: Mapping[str, Value]
    """Settings of the matrix itself: the base configuration overridden by the command line."""
    axes: Sequence[Axis]
    cells: Sequence[Cell]
    refused: Sequence[Refused] = ()
    """Combinations left out because the tree refuses them."""
    excluded: Sequence[str] = ()
    """Names of the cells that MATRIX_EXCLUDE leaves out."""
    fragments: Mapping[str, Sequence[Fragment]] = field(default_factory=dict)
    """Fragments by axis."""
    quarantine: Mapping[str, str] = field(default_factory=dict)
    """Reason by cell."""
    chosen: str = ""
    """The FILTER that chose the cells; empty for all."""
    notes: Sequence[str] = ()
    """Requests for all cells that do not apply to some."""


def read_settings(tree: Tree, base: Layer, *above: Layer) -> dict[str, Value]:
    """The settings of the matrix; those that are out of reach are absent."""
    # Only these of what lies above: its other values may need what an axis brings.
    of_matrix = [[one for one in layer if is_setting(tree.affects, one.symbol)] for layer in above]
    values = tree.resolve(base, *of_matrix).values
    settings = {n: v for n, v in values.items() if is_setting(tree.affects, n) and n != "TRACKER_RUN_NAME"}
    if "REPORT_BASELINE" in settings:
        settings["REPORT_BASELINE"] = lasting_place(str(settings["REPORT_BASELINE"]))
    return settings


def draft(
    tree: Tree,
    base: Layer,
    command_line: Layer,
    *,
    matrix: str,
    chosen: Filter | None = None,
    given: GivenAxes = NO_AXES,
    axes_text: str = "",
) -> Draft:
    """The matrix that a configuration and a command line ask for.

    `matrix` ends the names of its runs, `given` are axes of the command line; `axes_text` replaces both these
    and MATRIX_AXES. MatrixError or ConfigError for whatever cannot be taken.
    """
    configured = tree.resolve(base)
    settings = read_settings(tree, base, command_line)
    has_axes = any(one.symbol == "MATRIX_AXES" for one in command_line)
    settings["MATRIX_AXES"] = axes_text or given.over(str(settings["MATRIX_AXES"]), is_given=has_axes)
    grid = settle(tree, parse_axes(str(settings["MATRIX_AXES"])))
    found = combinations(grid, varying([axis.axis for axis in grid]))
    found, excluded = without(found, _rules(str(settings["MATRIX_EXCLUDE"])))
    groups = _included(tree, str(settings["MATRIX_INCLUDE"]))
    found += _further(grid, groups)
    if not found:
        raise MatrixError(
            f"MATRIX_EXCLUDE leaves out all {counted(len(excluded), 'cell')}",
            hint="remove a group of it, or a word",
        )
    excluded = [name for name in excluded if name not in {one.name for one in found}]
    axes = [grid, *groups]
    symbols = list(dict.fromkeys(axis.symbol for group in axes for axis in group))
    cells, refused = resolve(
        tree,
        Around(base, command_line=command_line, matrix=matrix),
        found,
        symbols=symbols,
        chosen=chosen or Filter(),
        skip_refused=bool(settings["MATRIX_SKIP_REFUSED"]),
    )
    entries = quarantine_entries(home(tree.root), str(settings["MATRIX_QUARANTINE"]))
    return Draft(
        configured,
        settings,
        axes=_all_axes(grid, symbols, cells),
        cells=cells,
        refused=refused,
        excluded=excluded,
        fragments=_fragments([axis for group in axes for axis in group]),
        quarantine=quarantined(entries, [cell.name for cell in cells]),
        chosen=chosen.text if chosen else "",
        # A cell that FILTER leaves out, or the tree refuses, is one that a line of the quarantine may mean.
        notes=[*tree.notes, *notes(tree, cells), *idle(entries, [one.name for one in found])],
    )


def notes(tree: Tree, cells: Sequence[Cell]) -> list[str]:
    """Return requests for all cells that do not apply to some, as sentences."""
    return [
        f"{assignment} ({assignment.origin.where}) does not apply to {count} of the runs"
        for assignment, count in set_aside(tree, cells)
    ]


def _rules(text: str) -> list[Filter]:
    return [parse_filter(group, source="MATRIX_EXCLUDE") for group in split_groups(text, "MATRIX_EXCLUDE")]


def _included(tree: Tree, text: str) -> list[list[SettledAxis]]:
    """Each group of MATRIX_INCLUDE, a small matrix of its own."""
    source = "MATRIX_INCLUDE"
    return [
        settle(tree, parse_axes(group, source=source), source=source) for group in split_groups(text, source)
    ]


def _further(grid: Sequence[SettledAxis], groups: Sequence[Sequence[SettledAxis]]) -> list[Combination]:
    """The cells of the groups, named for all that their group says, the axes of the matrix first."""
    order = [axis.symbol for axis in grid]
    found: list[Combination] = []
    for group in groups:
        said = [axis.symbol for axis in group]
        named = [symbol for symbol in order if symbol in said]
        found += combinations(group, [*named, *(symbol for symbol in said if symbol not in order)])
    return found


def _all_axes(grid: Sequence[SettledAxis], symbols: Sequence[str], cells: Sequence[Cell]) -> list[Axis]:
    """The axes with the values that only further cells have, and those that only these bring in."""
    known = {axis.symbol: axis.axis for axis in grid}
    axes = []
    for symbol in symbols:
        axis = known.get(symbol, Axis(symbol, [], included=True))
        met = dict.fromkeys([*axis.values, *(c.values[symbol] for c in cells if symbol in c.values)])
        axes.append(replace(axis, values=list(met), files=()) if len(met) > len(axis.values) else axis)
    return axes


def _fragments(axes: Sequence[SettledAxis]) -> dict[str, list[Fragment]]:
    found: dict[str, list[Fragment]] = {}
    for axis in axes:
        if axis.fragments:
            known = found.setdefault(axis.symbol, [])
            known += [fragment for fragment in axis.fragments if fragment not in known]
    return found


def quarantine_entries(root: Path, configured: str) -> list[Entry]:
    """The lines of the quarantine file; none without a file."""
    if not configured:
        return []
    return read_quarantine(root / asked_path("MATRIX_QUARANTINE", configured), configured)
