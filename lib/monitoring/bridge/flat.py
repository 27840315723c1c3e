"""Rows of foreign stores as values: nested names become one, and the names of step and time are known."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from operator import itemgetter

from monitoring.bridge.source import Reported
from monitoring.journal.encoding.global_step import as_step

# Names under which programs and their trackers report the step, the first that is there counts; and the time.
STEPS = ("global_step", "trainer/global_step", "train/global_step", "step", "iter", "iteration", "_step")
TIMES = ("_timestamp", "timestamp", "time")

# What trackers add to rows of their own accord.
OF_TRACKERS = ("_step", "_runtime")

# An epoch second of 2001-09-09: smaller numbers called `time` are durations.
FIRST_TIME = 1e9

# Options of a configuration that are kept, and characters of one: a model's table of labels is none of them.
MOST_OPTIONS, LONGEST_OPTION = 500, 1000


def flattened(
    values: Mapping[str, object], above: str = "", between: str = "/"
) -> Iterator[tuple[str, object]]:
    """Yield name and value, names of nested mappings joined by what is to stand `between` them."""
    for name, value in values.items():
        if isinstance(value, dict):  # as all parsers make them
            yield from flattened(value, f"{above}{name}{between}", between)
        else:
            yield f"{above}{name}", value


def options(config: Mapping[str, object], run_dir: str = "") -> dict[str, object]:
    """Return what a tracker keeps of a program's configuration as options, like those of a command line.

    Names of nested ones are joined by dots, as Hydra has them, and one in capitals is in small letters:
    capitals are for axes. Left out are what a tracker adds (`_wandb`), secrets, what names the run's own
    directory, and of more than MOST_OPTIONS those in the largest mappings below. ValueError for one that is
    nested as deep as Python can go.
    """
    given = {name: value for name, value in config.items() if not str(name).startswith("_")}
    try:
        flat = list(flattened(given, between="."))
    except RecursionError as error:
        raise ValueError(str(error)) from error
    beside = Counter(name.rpartition(".")[0] for name, _ in flat)
    beside[""] = 0
    found: dict[str, object] = {}
    for name, value in sorted(flat, key=lambda pair: beside[pair[0].rpartition(".")[0]]):
        if isinstance(value, (str, list, tuple)) and not _is_shown(name, str(value), run_dir):
            continue
        known = name.lower() if name.isupper() else name
        found.setdefault(known, value[:LONGEST_OPTION] if isinstance(value, str) else value)
    return dict(sorted(islice(found.items(), MOST_OPTIONS), key=itemgetter(0)))


def _is_shown(name: str, text: str, run_dir: str) -> bool:
    from monitoring.secrets import is_secret_option  # few programs have texts among their options

    return not (run_dir and run_dir in text) and not is_secret_option(name.replace(".", "_"), text)


def reported(row: Mapping[str, object], place: int) -> Reported:
    """Return a row of a table; columns that say its step and time are no values.

    ValueError for one that is nested as deep as Python can go.
    """
    try:
        values = dict(flattened(row))
    except RecursionError as error:
        raise ValueError(str(error)) from error
    step = None
    for name in STEPS:
        if name in values and (step := as_step(values[name])) is not None:
            del values[name]
            break
    for name in OF_TRACKERS:
        values.pop(name, None)
    time = None
    for name in TIMES:
        if name not in values:
            continue
        at = values[name]
        if isinstance(at, int | float) and not isinstance(at, bool) and math.isfinite(at) and at > FIRST_TIME:
            time = float(at) if time is None else time
            del values[name]
    return Reported(values, place, step, time)
