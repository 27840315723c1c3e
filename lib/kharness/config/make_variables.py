"""What was written on make's command line: TRACKER=both, CONFIG_SEED=3, O=dir.

The Makefile exports the names of the variables on its command line as KHARNESS_MAKE_VARS, so that a variable
of the same name that happens to be in the environment is not taken for one. The values never pass a shell.
KHARNESS_GOALS has the targets of the call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from kharness.config.assignment import Assignment, Layer, Origin, show
from kharness.config.errors import ConfigError
from kharness.config.places import lasting_place
from kharness.config.tree import Tree

SHORT = {
    "TRACKER": "TRACKER",
    "GPU_MONITOR": "GPU_MONITOR",
    "BASELINE": "REPORT_BASELINE",
    "JOBS": "MATRIX_JOBS",
    "KEEP_GOING": "MATRIX_KEEP_GOING",
    "LAUNCHER": "LAUNCHER",
    "RETRIES": "MATRIX_RETRIES",
    "TIMEOUT": "MATRIX_TIMEOUT",
}
"""Short names of symbols, taken without CONFIG_."""

_PLACES = {"BASELINE", "CONFIG_REPORT_BASELINE"}

_ONE_MATRIX = ("continue", "test_rerun", "test-rerun")
_MATRICES = ("test_matrix", "test-matrix", *_ONE_MATRIX)
_REPORTS = ("summary", "graphs", "gpu-report")
TARGET_VARIABLES: dict[str, tuple[str, ...]] = {
    "A": ("compare", "configdiff"),
    "ANYWAY": ("reproduce",),
    "B": ("compare", "configdiff"),
    "CELL": ("logs",),
    "DEFCONFIG": ("defconfig",),
    "FAIL_ON_REGRESSION": (*_MATRICES, "summary", "compare"),
    "FILTER": (*_MATRICES, "test_matrix_dry_run", "test-matrix-dry-run", "status", "estimate"),
    "FOLLOW": ("logs",),
    "FRAGMENTS": ("mergeconfig",),
    "O": (),
    "RANGE_CONFIG": ("sweep",),
    "RUN": (
        *("continue", "status", "estimate", "logs", *_REPORTS),
        *("reproduce", "sync", "prometheus", "gputop"),
    ),
    "SIMULATE": ("gputop",),
    "SYMBOL": ("configwhy",),
    "TARGET": ("test_rerun", "test-rerun"),
    "TOLERANCE": (*_MATRICES, "summary", "compare"),
}
"""Variables that set no symbol, and the targets that read them (none: all do)."""


def given(argv: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of this call by name: those that make names, then `NAME=value` arguments.

    ConfigError for a variable that none of this call's targets reads: what is asked is not passed over.
    """
    names = environ.get("KHARNESS_MAKE_VARS", "").split()
    goals = environ.get("KHARNESS_GOALS", "").split()
    for name in names:
        readers = TARGET_VARIABLES.get(name)
        if readers and goals and not set(readers) & set(goals):
            raise ConfigError(
                f"{show(name, environ.get(name, ''))} means nothing to make {' '.join(goals)}",
                hint=f"{name}= is for make {', '.join(readers)}",
            )
    variables = {name: environ[name] for name in names if name in environ}
    for word in argv:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise ConfigError(f"{word!r} is not NAME=value", hint="for example TRACKER=both or CONFIG_SEED=3")
        variables[name] = value
    for name in _PLACES & variables.keys():
        variables[name] = lasting_place(variables[name])
    return variables


def output_directory(variables: Mapping[str, str], root: Path) -> Path:
    """Where `.config` lives: O=dir, else the root."""
    chosen = variables.get("O")
    return Path(chosen).absolute() if chosen else root


def layer(tree: Tree, variables: Mapping[str, str], *, own: Sequence[str] = ()) -> Layer:
    """The variables that set symbols, as assignments; `own` are names that the target itself uses.

    ConfigError for a symbol without its CONFIG_, and for a name that is nearly one that counts.
    """
    found: list[Assignment] = []
    for name, value in sorted(variables.items()):
        if name.startswith("CONFIG_") or name in SHORT:
            symbol = SHORT.get(name, name)
            found.extend(tree.assignments(symbol, value, Origin("make variable", show(name, value))))
        elif name not in (*own, *TARGET_VARIABLES):
            _refuse_near_miss(tree, name, value)
    return found


def _refuse_near_miss(tree: Tree, name: str, value: str) -> None:
    """A misspelt TRACKER must not train untracked."""
    symbol = tree.kconf.syms.get(name)
    if symbol and symbol.nodes:
        raise ConfigError(f"{show(name, value)} sets nothing", hint=f"write CONFIG_{show(name, value)}")
    from difflib import get_close_matches

    near = get_close_matches(
        name.upper(), [*SHORT, *(name for name in TARGET_VARIABLES if len(name) > 3)], n=1, cutoff=0.75
    )
    if near:
        raise ConfigError(f"{show(name, value)} sets nothing", hint=f"did you mean {near[0]}?")
