"""Add seeds to a matrix that was planned before: its cells stay, and the new seeds get theirs.

The matrix is planned once more, from the layers or the command that its matrix.json kept, with a longer axis
SEED. What is new in that plan is added; that the rest is what it was is checked before anything is written.
The new directories are made first and matrix.json is replaced last, so whoever is killed in between leaves
the matrix as it was.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from kharness.config.output import say
from kharness.config.tree import Tree
from kharness.environment.parts import bring_for
from kharness.matrix.commands.axes import parse_axis
from kharness.matrix.commands.given import Given
from kharness.matrix.commands.planned import plan_of
from kharness.matrix.planning.axes import Axis, parse_axes
from kharness.matrix.planning.axis_values import given_axes, settle, written_out
from kharness.matrix.planning.filter import parse_filter
from kharness.matrix.planning.matrix_json import Plan, add_seeds, read_plan
from kharness.matrix.planning.needs import refuse_unrunnable
from kharness.matrix.planning.plan import draft, with_launches, write_cell
from kharness.matrix.planning.seeds_planned import SEED
from kharness.matrix.selected_runs import Place
from kharness.runs.command import CommandLaunch
from kharness.runs.errors import MatrixError
from kharness.runs.files import OUTPUT_LOG
from kharness.runs.latest import shown
from kharness.runs.rundir import sync_filesystem
from monitoring.counts import counted
from monitoring.journal.files import JOURNAL, RUN_JSON


def seeds_of(text: str, root: Path) -> list[str]:
    """Return the seeds that `SEED=text` on make's line means; ConfigError or MatrixError for what is none."""
    tree = Tree.load(root)
    given = given_axes(tree, {f"CONFIG_{SEED}": text})[0]
    axis = {**given.single, **given.axes}[SEED]
    return list(settle(tree, [axis], source=SEED)[0].axis.values)


def asked_in(options: Sequence[str], place: Place) -> list[str]:
    """Return the seeds that `-a seed=1..10` of `kharness continue` means for the matrix in a place.

    MatrixError for another axis, and for what has no seeds to add to or is continued by make.
    """
    axes = [parse_axis(text) for text in options]
    for axis in axes:
        if axis.symbol != SEED or len(axes) > 1:
            raise MatrixError(
                f"-a {' -a '.join(options)} cannot change a matrix that has begun",
                hint="seeds alone can be added, as in -a seed=1..10; kharness matrix begins another matrix",
            )
    if not place.is_matrix:
        raise MatrixError(
            f"{shown(place.directory)} is no matrix", hint="kharness matrix -a seed=1..10 … begins one"
        )
    check_whole(place)
    plan = read_plan(place.directory)
    if plan.kind == "matrix" and not plan.template:
        raise MatrixError(
            f"{shown(place.directory)} trains what a checkout has",
            hint=f"there: make continue RUN={shown(place.directory)} SEED={','.join(axes[0].values)}",
        )
    return list(axes[0].values)


def check_whole(place: Place) -> None:
    """MatrixError for a cell and for a single training, which have one seed."""
    if not place.is_matrix:
        raise MatrixError(
            f"{shown(place.directory)} is a single training, and has one {SEED}",
            hint="RUN=dir names the matrix; make test_matrix SEED=1..5 begins one",
        )
    if place.cell:
        raise MatrixError(
            f"{place.cell} is a cell of a matrix, and has one {SEED}",
            hint=f"name the matrix: RUN={shown(place.directory)}",
        )


def with_more_seeds(
    directory: Path, seeds: Sequence[str], root: Path, settings: Mapping[str, object]
) -> None:
    """Add the cells of those seeds that a matrix does not have, and say so.

    The caller holds the lock of the directory. `root` is the checkout of a matrix of trainings; `settings`
    say how its cells run now. MatrixError or ConfigError before anything is written: for a sweep, for a
    matrix without an axis SEED, where its cells would not be what they were, and for those that cannot run.
    """
    plan = read_plan(directory)
    if plan.kind != "matrix":
        raise MatrixError(
            f"{shown(directory)} is a sweep, to which no seeds are added",
            hint="make test_matrix trains its best with several seeds",
        )
    if plan.template:
        tree, axes = None, [replace(one, values=one.given or one.values, given=()) for one in plan.axes]
    else:
        tree, axes = _tree_of(plan, seeds, root), parse_axes(str(plan.settings["MATRIX_AXES"]))
    axis = next((one for one in axes if one.symbol == SEED), None)
    if axis is None:
        raise _no_seeds(directory)
    had = axis.values if tree is None else [v for text in axis.values for v in written_out(tree, SEED, text)]
    added = [seed for seed in dict.fromkeys(seeds) if seed not in had]
    if not added:
        return
    axes = [replace(one, values=[*one.values, *added]) if one is axis else one for one in axes]
    longer, write = _of_command(plan, axes, had, added) if tree is None else _of_tree(tree, plan, axes)
    known = {cell.name for cell in plan.cells}
    places = {cell.name: place for place, cell in enumerate(longer.cells) if cell.name not in known}
    # each cell of before must be among those of the longer plan, by its name
    if len(longer.cells) - len(places) < len(known):
        raise _is_another(directory, "its cells would get other names, or be others")
    if not places:
        raise MatrixError(
            f"{SEED}={'|'.join(added)} adds no run to {shown(directory)}",
            hint="its FILTER or MATRIX_EXCLUDE leaves these seeds out",
        )
    launches = [longer.launches[place] for place in places.values()]
    refuse_unrunnable(launches, settings)
    bring_for(launch.asked for launch in launches)
    for name in places:
        _remove_unbegun(directory / name)
    for place in places.values():
        write(place)
    sync_filesystem(directory)
    add_seeds(directory, longer, added)
    say(f"{counted(len(places), 'run')} added to {shown(directory)}: {SEED}={'|'.join(added)}")


Longer = tuple[Plan, Callable[[int], None]]
"""A plan with further seeds, and what writes its cell at a place."""


def _tree_of(plan: Plan, seeds: Sequence[str], root: Path) -> Tree:
    """The option tree by which trainings are planned once more; MatrixError where it is not known how."""
    if not plan.layers:
        raise MatrixError(
            f"no seeds can be added to {shown(plan.directory)}: the version that planned it did not keep how",
            hint=f"make test_matrix SEED={','.join(seeds)} trains all of them in a new matrix",
        )
    return Tree.load(root)


def _of_tree(tree: Tree, plan: Plan, axes: Sequence[Axis]) -> Longer:
    """The plan of trainings."""
    drafted = draft(
        tree,
        plan.layers["base"],
        plan.layers["command_line"],
        plan.directory,
        chosen=parse_filter(plan.chosen),
        axes_text=" ".join(map(str, axes)),
    )
    longer = with_launches(drafted, tree.root, machine=plan.machine)
    if longer.seeds.get("variants") != plan.seeds.get("variants"):
        raise _is_another(plan.directory, "this checkout has other options, or other values for them")

    def write(place: int) -> None:
        write_cell(drafted.cells[place], plan.directory / drafted.cells[place].name, root=tree.root)

    return longer, write


def _of_command(plan: Plan, axes: Sequence[Axis], had: Sequence[str], added: Sequence[str]) -> Longer:
    """The plan of anybody's command, which has kept the folder that it runs in."""
    given = Given.of(plan.template, plan.directory.parent)
    given.check(axes)
    longer = plan_of(given, axes, plan.settings, plan.directory)
    known = {cell.name for cell in plan.cells}
    if any(cell.values[SEED] not in added and cell.name not in known for cell in longer.cells):
        if len(had) == 1:  # which is in no name
            raise _is_another(plan.directory, "its runs, of one seed, would get other names")
        raise _is_another(plan.directory, "the version that planned it did not keep what --include added")

    def write(place: int) -> None:
        launch = longer.launches[place]
        assert isinstance(launch, CommandLaunch)
        given.write_run(launch.of, launch.directory, longer.cells[place].values)

    return longer, write


def _remove_unbegun(directory: Path) -> None:
    """Remove what an earlier call left that was killed before the plan had it; MatrixError for a run."""
    if any(os.path.lexists(directory / name) for name in (JOURNAL, RUN_JSON, OUTPUT_LOG)):
        raise MatrixError(
            f"{shown(directory)} is a run that its matrix does not know", hint="move it out of the matrix"
        )
    if directory.is_dir():
        shutil.rmtree(directory)


def _no_seeds(directory: Path) -> MatrixError:
    return MatrixError(
        f"{shown(directory)} has no axis {SEED} to add to",
        hint="make test_matrix SEED=1..5, or -a seed=1..5 of kharness matrix, begins a matrix of seeds",
    )


def _is_another(directory: Path, why: str) -> MatrixError:
    return MatrixError(
        f"no seeds can be added to {shown(directory)}: {why}",
        hint="plan all seeds in a new matrix, with the settings of this one",
    )
