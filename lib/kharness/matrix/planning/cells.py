"""Cells: the combinations of the axes' values, each resolved by Kconfig before the first one starts."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import NoReturn, TypeVar

from kharness.config.assignment import Assignment, Layer, Origin, Resolved
from kharness.config.errors import ConfigError
from kharness.config.places import COMMAND, has_model
from kharness.config.tree import Tree
from kharness.matrix.planning.axes import Axis
from kharness.matrix.planning.axis_values import MOST_LISTED, NO_AXIS, SettledAxis
from kharness.matrix.planning.filter import Filter, Named, choose
from kharness.runs.errors import MatrixError

MOST_CELLS = 100_000


@dataclass(frozen=True)
class Cell:
    """One run of the matrix."""

    name: str
    values: Mapping[str, str]
    """Axis symbol to value, as the axis spells it; one that the cell does not have is absent."""
    model: str
    resolved: Resolved | None = None
    """None for a cell of a plan that was read from its file."""


@dataclass(frozen=True)
class Refused:
    """A combination that the option tree does not allow."""

    name: str
    values: Mapping[str, str]
    reason: str


@dataclass(frozen=True)
class Combination:
    """One choice of a value for each axis, before the tree has seen it."""

    name: str
    values: Mapping[str, str]
    layer: Layer


Whole = TypeVar("Whole", bound=Named)


@dataclass(frozen=True)
class Around:
    """The settings shared by all cells."""

    base: Layer
    fixed: Layer = ()
    """Assignments that a range file makes for all trials of a sweep."""
    command_line: Layer = ()
    matrix: str = ""
    """Ends the names of the runs in the trackers."""


def combinations(axes: Sequence[SettledAxis], named: Sequence[str]) -> list[Combination]:
    """Every combination, the last axis varying fastest; `named` are the symbols that the names hold."""
    return [
        Combination(
            cell_name(values, named), values, [a for axis in axes for a in axis.layers[values[axis.symbol]]]
        )
        for values in products([axis.axis for axis in axes])
    ]


def products(axes: Sequence[Axis]) -> Iterator[dict[str, str]]:
    """Yield the values of every combination of some axes. MatrixError for too many."""
    count = math.prod(len(axis.values) for axis in axes)
    if count > MOST_CELLS:
        raise MatrixError(f"the axes have {count} combinations", hint=f"at most {MOST_CELLS} can be planned")
    symbols = [axis.symbol for axis in axes]
    for chosen in itertools.product(*(axis.values for axis in axes)):
        yield dict(zip(symbols, chosen, strict=True))


def without(
    found: Sequence[Whole], rules: Sequence[Filter], *, source: str = "MATRIX_EXCLUDE"
) -> tuple[list[Whole], list[str]]:
    """The combinations that no rule leaves out, and the names of those that one does.

    MatrixError for a rule that fits nothing: it is a mistake more often than not.
    """
    for rule in rules:
        if not any(rule.matches(one.name, one.values) for one in found):
            known = ", ".join(found[0].values)
            raise MatrixError(
                f"{source}: {rule.text} matches no cell",
                hint=f"remove it; the axes are {known}, and a cell is called {found[0].name}",
            )
    kept = [one for one in found if not any(rule.matches(one.name, one.values) for rule in rules)]
    names = {one.name for one in kept}
    return kept, [one.name for one in found if one.name not in names]


def resolve(
    tree: Tree,
    around: Around,
    wanted: Sequence[Combination],
    *,
    symbols: Sequence[str],
    chosen: Filter,
    skip_refused: bool = False,
    source: str = "MATRIX_AXES",
) -> tuple[list[Cell], list[Refused]]:
    """A cell for each chosen combination that the tree takes, its values completed to all `symbols`.

    MatrixError lists every other one with its reason, unless those are to be skipped.
    """
    cells: list[Cell] = []
    refused: list[Refused] = []
    hint = ""
    with tree.batch():
        for one in wanted:
            try:
                cells.append(resolve_one(tree, around, one, symbols=symbols))
            except ConfigError as error:
                # A cell that the filter leaves out does not run, so it may be invalid.
                if not chosen.matches(one.name, one.values):
                    continue
                refused.append(Refused(one.name, one.values, str(error)))
                hint = hint or error.hint
                # A contradiction in the call holds for all cells, so skipping refused ones would hide it.
                if isinstance(error, MistakeError):
                    skip_refused = False
    if refused and (not skip_refused or not cells):
        refuse(refused, len(wanted), hint or f"fix {source}")
    _refuse_twins(cells)
    return choose(chosen, cells), refused


def resolve_one(tree: Tree, around: Around, one: Combination, *, symbols: Sequence[str]) -> Cell:
    """The cell of one combination; ConfigError says why the tree refuses it."""
    _refuse_command_line(tree, around.command_line, one.layer)
    origin = Origin("matrix axis", "the name of the cell")
    name = Assignment("TRACKER_RUN_NAME", f"{one.name}_{around.matrix}", origin)
    resolved = tree.resolve(around.base, around.fixed, around.command_line, one.layer, [name])
    model = str(resolved.values["MODEL"])
    if not resolved.values.get(COMMAND) and not has_model(tree.root, model):
        raise ConfigError(f"MODEL={model}: there is no {model}/train.py")
    return Cell(one.name, _completed(tree, one.values, resolved, symbols), model, resolved)


def refuse(refused: Sequence[Refused], count: int, hint: str) -> NoReturn:
    """MatrixError that lists refused combinations, of so many."""
    lines = [f"{one.name}: {one.reason}" for one in refused[:MOST_LISTED]]
    if len(refused) > MOST_LISTED:
        lines.append(f"and {len(refused) - MOST_LISTED} more")
    raise MatrixError("\n  ".join([f"{len(refused)} of {count} cells are refused", *lines]), hint=hint)


def set_aside(tree: Tree, cells: Sequence[Cell]) -> list[tuple[Assignment, int]]:
    """Return assignments requested for all cells that do not apply in some, with the number of those
    cells.
    """
    count: dict[Assignment, int] = {}
    for cell in cells:
        for assignment in cell.resolved.set_aside if cell.resolved else ():
            if not tree.kconf.syms[assignment.symbol].choice:
                count[assignment] = count.get(assignment, 0) + 1
    return list(count.items())


class MistakeError(ConfigError):
    """A call that contradicts itself: no property of a cell, so no reason to skip one."""


def _completed(
    tree: Tree, values: Mapping[str, str], resolved: Resolved, symbols: Sequence[str]
) -> dict[str, str]:
    """The values of a cell with those axes added that only other cells vary, in the order of the symbols."""
    complete = {}
    for symbol in symbols:
        if symbol in values:
            complete[symbol] = values[symbol]
        elif symbol == "TRACKER":
            on = [name for name in tree.trackers() if resolved.values.get(f"ENABLE_{name.upper()}")]
            complete[symbol] = ",".join(on) or "none"
        elif symbol in resolved.values:
            complete[symbol] = tree.current(symbol)
    return complete


def _refuse_command_line(tree: Tree, command_line: Layer, layer: Layer) -> None:
    """A value given for this call that an axis would silently replace."""
    if not command_line:
        return
    for new, old in tree.overridden([command_line], layer):
        what = "fragment" if new.origin.kind == "fragment" else "axis"
        raise MistakeError(
            f"{old.origin.where} contradicts the {what} {new.origin.where}", hint="leave one of them out"
        )
    for assignment in command_line:
        if assignment.symbol == "TRACKER_RUN_NAME":
            reason = NO_AXIS[assignment.symbol]
            raise MistakeError(f"{assignment.origin.where} has no effect: {reason}", hint="leave it out")


def _refuse_twins(cells: Sequence[Cell]) -> None:
    """Two cells with the same values would only look like a comparison."""
    seen: dict[Hashable, Cell] = {}
    names: set[str] = set()
    for cell in cells:
        twin = seen.setdefault(identity(cell), cell)
        if twin is not cell:
            raise MatrixError(
                f"cells {twin.name} and {cell.name} have the same configuration",
                hint="give the axis values that differ, or leave one of them out",
            )
        # A file system may be case-insensitive.
        if cell.name.lower() in names:
            raise MatrixError(
                f"two cells would be called {cell.name}",
                hint="give the axis values or fragments that differ by more than upper and lower case",
            )
        names.add(cell.name.lower())


def identity(cell: Cell) -> Hashable:
    """Equal for cells that would train the same."""
    assert cell.resolved is not None
    values = dict(cell.resolved.values.items())
    values["TRACKER_RUN_NAME"] = ""
    return tuple(values), tuple([tuple(v) if isinstance(v, list) else v for v in values.values()])


BLOCKED = "blocked"
BLOCK_AXIS = "SEED"


def run_order(cells: Sequence[Cell], settings: Mapping[str, object]) -> list[str]:
    """The names in the order that MATRIX_ORDER asks for; empty for the order of the axes."""
    return blocked(cells) if settings.get("MATRIX_ORDER") == BLOCKED else []


def blocked(cells: Sequence[Cell]) -> list[str]:
    """Blocks of one seed in the order of the seeds, the cells of each shuffled; all one block without seeds.

    So time is not confounded with variants: a machine's load drifts, and where one variant runs after the
    other the drift becomes a difference between them; a block with all variants in it has all of them hit
    alike. That is the randomized complete block design (Fisher, The Design of Experiments, 1935, chapter IV).
    The names alone decide, so that the same cells always come in the same order.
    """
    blocks: dict[str | None, list[str]] = {}
    for cell in cells:
        blocks.setdefault(cell.values.get(BLOCK_AXIS), []).append(cell.name)
    return [name for block in blocks.values() for name in sorted(block, key=_shuffled)]


def _shuffled(name: str) -> str:
    # A hash and no generator: what is shuffled does not change with the version of Python, nor with the cells
    # that a filter leaves out. A name holds its seed, so that every block has an order of its own.
    return sha256(name.encode(errors="surrogatepass")).hexdigest()


# A longer symbol loses words from its front, which mostly say what it belongs to: OPTIMIZER_ADAMW_BETAS is
# `adamw-betas`.
LONGEST_SYMBOL = 20
LONGEST_NAME = 100
_SHORT = {"PRUNING_SPARSITY": "sparsity"}
_PLAIN = re.compile(r"[A-Za-z0-9.,+-]{1,40}", re.ASCII)


def varying(axes: Sequence[Axis]) -> list[str]:
    """The symbols that a name holds: of the axes with several values, or of all without any."""
    return [axis.symbol for axis in axes if len(axis.values) > 1] or [axis.symbol for axis in axes]


def cell_name(values: Mapping[str, str], symbols: Sequence[str]) -> str:
    """`optimizer-adamw_seed-2`: the folder of a run and its name in every report.

    The same values give the same name in every matrix with the same axes, whatever is left out, added or
    filtered, so that runs of two matrices can be recognized as the same cell. A value that does not fit into
    a folder's name is cut down and made unique by a hash of the full value; so is a name that would become
    too long.
    """
    words = symbol_words(symbols)
    name = "_".join(f"{words[symbol]}-{_in_name(values[symbol])}" for symbol in symbols)
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 10]}~{_digest(name)}"


def symbol_words(symbols: Sequence[str]) -> dict[str, str]:
    """Return each symbol's word in a name; two that would become the same keep their full names."""
    short = {symbol: _SHORT.get(symbol) or _shortened(symbol) for symbol in symbols}
    count = Counter(short.values())
    return {symbol: word if count[word] == 1 else _whole(symbol) for symbol, word in short.items()}


def _shortened(symbol: str) -> str:
    words = _whole(symbol)
    while len(words) > LONGEST_SYMBOL and "-" in words:
        words = words.partition("-")[2]
    return words


def _whole(symbol: str) -> str:
    return symbol.lower().replace("_", "-")


def _in_name(value: str) -> str:
    # Blanks only separate the values of a list, which hold no commas, so nothing is lost.
    text = value.replace(" ", ",") if "," not in value else value
    if _PLAIN.fullmatch(text) and not text.startswith("."):
        return text
    kept = re.sub(r"[^A-Za-z0-9.,+-]+", "-", text)[:24].strip(".-")
    return f"{kept}~{_digest(value)}"


def _digest(text: str) -> str:
    return sha256(text.encode(errors="surrogatepass")).hexdigest()[:6]
