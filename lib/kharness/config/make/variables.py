"""Parse the variables of make's command line: TRACKER=both, CONFIG_SEED=3, SEED=3, O=dir.

A symbol may be named with or without CONFIG_, but where a target has a variable of the same name.

The Makefile exports the names of the variables on its command line as KHARNESS_MAKE_VARS, so that a variable
of the same name that happens to be in the environment is not taken for one. The values never pass a shell.
KHARNESS_GOALS has the targets of the call. What each target reads is in known_variables.py; a variable that
none of a call's targets reads is refused.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path

from kharness.config.assignment import Layer, Origin, show
from kharness.config.errors import ConfigError
from kharness.config.make.kconfig_text import is_read_whole, read_options
from kharness.config.make.known_variables import (
    EVERYWHERE,
    OUTSIDE,
    SHORT,
    TARGETS,
    YES_OR_NO,
    Reads,
    readers,
    reads_of,
    target_of,
    words_of,
)
from kharness.config.make.typed import typed_setting
from kharness.config.output import printable
from kharness.config.places import (
    KCONFIG,
    asked_folder,
    asked_path,
    check_place,
    enter_outside,
    home,
)
from kharness.config.refused import ALIASES, KnownOptions, collect, nearest, one_value, several, together

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes as long as resolving all of a configuration
    from kharness.config.tree import Tree

_PATHS = {"DATA_DIR", "DEFCONFIG", "RANGE_CONFIG", "RUN", "SAVE", "TARGET"}
_PLACES = {"A", "B", "BASELINE", "CONFIG_REPORT_BASELINE"}
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def given(
    argv: Sequence[str], environ: Mapping[str, str], target: str = "", *, root: Path | None = None
) -> dict[str, str]:
    """The variables of this call by name: those that make names, then `NAME=value` arguments.

    ConfigError for a variable that none of this call's targets reads (without make: `target`, or without one
    any target), since nothing requested is ignored; and for a path that cannot be one. The model of M= has
    joined the tree then.
    """
    names = environ.get("KHARNESS_MAKE_VARS", "").split()
    variables = {name: environ[name] for name in names if name in environ}
    for word in argv:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise ConfigError(f"{word!r} is not NAME=value", hint="for example TRACKER=both or CONFIG_SEED=3")
        variables[name] = value
    goals = environ.get("KHARNESS_GOALS", "").split() or ([target] if target else [])
    _enter_outside(variables, goals)
    for name, value in list(variables.items()):
        if (read_as := _read_as(name, value, goals, root)) != name:
            del variables[name]
            if (other := variables.setdefault(read_as, value)) != value:
                raise ConfigError(
                    f"{show(name, value)} contradicts {show(read_as, other)}",
                    hint="leave one of them out",
                )
            if read_as.removeprefix("CONFIG_") != name.removeprefix("CONFIG_"):
                print(f"note: {name} is taken as {read_as.removeprefix('CONFIG_')}", file=sys.stderr)
        _check_value(read_as, value)
    return variables


def check_call(environ: Mapping[str, str], root: Path) -> dict[str, str]:
    """The variables of a call, by the names under which they are read.

    ConfigError for an unknown target, what is not the name of a variable, a variable that nothing reads, a
    value that no configuration takes, and an unknown preset.
    """
    goals = environ.get("KHARNESS_GOALS", "").split()
    unknown = [goal for goal in goals if target_of(goal) not in TARGETS and not (root / goal).is_file()]
    for goal in sorted(unknown, key=lambda goal: "=" not in goal):
        raise _no_target(goal)
    written = _written_in(environ.get("MAKEFLAGS", ""))
    hidden = [name for name in written if not _IDENTIFIER.fullmatch(name)]
    names = [*environ.get("KHARNESS_MAKE_VARS", "").split(), *hidden]
    asked = {name: written.get(name, environ.get(name, "")) for name in names}
    _enter_outside(asked, goals)
    variables: dict[str, str] = {}
    for name, value in asked.items():
        variables[read_as := _read_as(name, value, goals, root)] = value
        _check_value(read_as, value)
    _check_settings(variables, environ, root)
    _check_presets(goals, variables, root)
    return variables


def _enter_outside(variables: Mapping[str, str], goals: Sequence[str]) -> None:
    if "new-model" not in goals:  # whose folder is not there yet
        enter_outside(variables.get(OUTSIDE, ""))


def output_directory(variables: Mapping[str, str], root: Path) -> Path:
    """Where `.config` lives: O=dir, else the folder of M=, else the root."""
    chosen = variables.get("O")
    return asked_path("O", chosen).absolute() if chosen else home(root)


def layer(tree: Tree, variables: Mapping[str, str]) -> Layer:
    """Return the variables that set symbols as assignments; ConfigError names all that are refused.

    What was taken though written in another case is printed.
    """
    found = _assignments(tree, variables)
    for note in tree.notes:
        print(f"note: {note}", file=sys.stderr)
    tree.notes.clear()
    return found


def _assignments(options: KnownOptions, variables: Mapping[str, str]) -> Layer:
    asked = sorted((name, value) for name, value in variables.items() if sets_symbol(name))
    parts = (
        partial(one_value, options, symbol_of(name), value, Origin("make variable", show(name, value)))
        for name, value in asked
    )
    return collect(parts, options.out_of_range)


def less_axes(
    options: KnownOptions, variables: Mapping[str, str], environ: Mapping[str, str]
) -> dict[str, str]:
    """Without symbols of several values in a call that makes a matrix, too: they are that matrix's axes."""
    if not makes_matrix(environ):
        return dict(variables)
    return {n: v for n, v in variables.items() if not (sets_symbol(n) and several(options, symbol_of(n), v))}


def makes_matrix(environ: Mapping[str, str]) -> bool:
    """Whether a target of the call plans a matrix."""
    goals = environ.get("KHARNESS_GOALS", "").split()
    return any(TARGETS.get(goal) is TARGETS["test_matrix"] for goal in goals)


def sets_symbol(name: str) -> bool:
    """Whether a variable is one of a symbol: CONFIG_SEED, TRACKER."""
    return name.startswith("CONFIG_") or name in SHORT


def symbol_of(name: str) -> str:
    """The symbol that such a variable sets."""
    return SHORT.get(name, name.removeprefix("CONFIG_"))


def _read_as(name: str, value: str, goals: Sequence[str], root: Path | None) -> str:
    """The name under which a variable is read, that of a symbol with CONFIG_; ConfigError where none is.

    A symbol may be written in any case.
    """
    if not _IDENTIFIER.fullmatch(name):
        raise ConfigError(
            f"{name!r} is not the name of a variable",
            hint="names are letters, digits and _, as in CONFIG_SEED=3",
        )
    reads = reads_of(goals)
    symbols = list(known_options(root, home(root)).options) if root and name not in EVERYWHERE else []
    own = {*SHORT, *(word for one in reads for word in one.names)}
    is_symbol = name in symbols and name not in own
    if any(one.symbol(name) if is_symbol else one.variable(name) for one in reads):
        return f"CONFIG_{name}" if is_symbol else name
    in_case = name.upper().removeprefix("CONFIG_")
    if in_case in SHORT and any(one.variable(in_case) for one in reads):
        return in_case
    if in_case in symbols and in_case not in own and any(one.symbol(in_case) for one in reads):
        return f"CONFIG_{in_case}"
    calls = f"{_program()} {' '.join(goals)}" if goals else "any target"
    raise ConfigError(
        f"{show(name, value)} means nothing to {calls}", hint=_hint(name, value, reads, goals, symbols)
    )


def _hint(name: str, value: str, reads: Sequence[Reads], goals: Sequence[str], symbols: Sequence[str]) -> str:
    """The right way to say it, the targets that it is for, the nearest name, or all that would be read."""
    bare = name.upper().removeprefix("CONFIG_")

    def is_read(symbol: str) -> bool:
        return symbol in symbols and any(one.symbol(symbol) for one in reads)

    if bare == "SEEDS" and is_read("MATRIX_AXES"):
        seeds = _as_axis(value)
        of_matrix = any("FILTER" in one.names for one in reads)
        return f"write SEED={seeds}" if of_matrix else f'write MATRIX_AXES="… SEED={seeds.replace(",", "|")}"'
    if is_read(ALIASES.get(bare, "")):
        return f"write {_typed(ALIASES[bare], value)}"
    if is_read(bare):
        return f"write {_typed(bare, value)}"
    if name == OUTSIDE:
        return "leave it out: that is about this checkout alone"
    elsewhere = readers(name)
    if elsewhere and not name.startswith("CONFIG_"):
        return f"{name}= is for {_program()} {', '.join(elsewhere)}"
    if name.removeprefix("CONFIG_") in symbols and any(one.symbols == ("",) for one in reads):
        return "leave it out: it has no effect here"
    known = {symbol: symbol for symbol in symbols if any(one.symbol(symbol) for one in reads)}
    known |= {word: word for one in reads for word in one.words() if not word.endswith("…")}
    if near := nearest(bare, known):
        return f"did you mean {known[near[0]]}?"
    if not goals:
        return "`make help` names the variables"
    return f"{_program()} {' '.join(goals)} reads {words_of(reads)}"


def _program() -> str:
    return typed_setting("make", "kharness")


def _typed(symbol: str, value: str) -> str:
    """`SYMBOL=value` as a shell takes it: a bar of an axis would be a pipe."""
    from shlex import quote

    return f"{symbol}={quote(printable(value))}"


def _as_axis(value: str) -> str:
    """Return SEEDS=5, SEEDS=1,2,3 or SEEDS=1..5 as the axis of a matrix."""
    if value.isdecimal():
        return f"1..{value}"
    return ",".join(value.replace(",", " ").split()) or "1..5"


def _check_settings(variables: Mapping[str, str], environ: Mapping[str, str], root: Path) -> None:
    """ConfigError for what the option tree would refuse, before the package that reads trees is here."""
    options = options_of_call(variables, root)
    if not options:
        return
    for name, value in variables.items():
        if name.startswith("CONFIG_") and symbol_of(name) != "TRACKER":
            options.option(symbol_of(name), value)
    # what begins with runs that are there reads some of these in its own way
    reads = [
        one
        for one in reads_of(environ.get("KHARNESS_GOALS", "").split())
        if one.symbols == ("",) and not {"RUN", "TARGET"} & {*one.names}
    ]
    settings = {
        name: value
        for name, value in variables.items()
        if any(name not in one.names and one.symbol(symbol_of(name)) for one in reads)
    }
    if refused := options.out_of_range(_assignments(options, less_axes(options, settings, environ))):
        raise together(refused)


def _check_presets(goals: Sequence[str], variables: Mapping[str, str], root: Path) -> None:
    """ConfigError for a preset that there is none of."""
    named = [goal.removeprefix("defconfig-") for goal in goals if goal.startswith("defconfig-")]
    if named or "DEFCONFIG" in variables:
        from kharness.config.presets import find_preset  # only this needs more of the tree

        for name in [*named, *([variables["DEFCONFIG"]] if "DEFCONFIG" in variables else [])]:
            find_preset(root, name)


def is_yes(variables: Mapping[str, str], name: str) -> bool:
    """Whether one of YES_OR_NO is y or 1."""
    return variables.get(name) in ("y", "1")


def _check_value(name: str, value: str) -> None:
    if name in YES_OR_NO and value not in ("", "y", "n", "1", "0"):
        raise ConfigError(f"{show(name, value)} is neither y nor n", hint=f"write {name}=y, or leave it out")
    if name == "O":
        asked_folder(name, value)
    elif name in _PATHS:
        asked_path(name, value)
    elif name in _PLACES:
        check_place(name, value)
    elif name == "FRAGMENTS":
        for word in value.split():
            asked_path(name, word)


def options_of_call(variables: Mapping[str, str], root: Path) -> KnownOptions | None:
    """The options by which a call's values are checked before kconfiglib is here.

    None for a call without values, and for a model outside of the tree whose Kconfig only that package reads.
    """
    if not variables or (OUTSIDE in variables and not is_read_whole(home(root) / KCONFIG, root)):
        return None  # most calls: nothing of the tree is read for these
    options = known_options(root, home(root))
    return options if options.options else None


@cache
def known_options(root: Path, own: Path) -> KnownOptions:
    """The option tree, read without kconfiglib, which may not be installed yet."""
    return read_options(own / KCONFIG, root)


def _written_in(makeflags: str) -> dict[str, str]:
    """The variables in MAKEFLAGS as they were typed; make escapes blanks there and doubles `$`.

    A name that holds a blank is in no other list that make gives of its variables.
    """
    words = re.findall(r"(?:\\.|[^ \\])+", makeflags.partition("-- ")[2], flags=re.DOTALL)
    plain = (re.sub(r"\\(.)", r"\1", word, flags=re.DOTALL).replace("$$", "$") for word in words)
    found = (re.fullmatch(r"(.*?):*=(.*)", word, flags=re.DOTALL) for word in plain)
    return {match[1]: match[2] for match in found if match}


# What `make check` is called elsewhere.
_OF_CHECK = ("lint", "pytest", "test", "tests")


def _no_target(goal: str) -> ConfigError:
    if "=" in goal:
        return ConfigError(
            f"{goal!r} is not a variable", hint="write NAME=value, and quotes around all of it: 'NAME=a b'"
        )
    near = ["check"] if goal in _OF_CHECK else nearest(goal, TARGETS)
    return ConfigError(
        f"unknown target {goal!r}", hint=f"did you mean {near[0]}?" if near else "`make help` lists them"
    )
