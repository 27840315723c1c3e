"""Commands that train again by several seeds: what one run trained, or anybody's program."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from kharness.config.assignment import Assignment
from kharness.config.config_py import read_affects
from kharness.config.make.typed import typed_make
from kharness.config.record import Record, read_record
from kharness.runs.matrix_plan import axis_of_seeds

AXES = "MATRIX_AXES"
TYPED = "make variable"
"""Kind of origin of what the command line gave."""
# `--seed=1`, `seed=1` and `trainer.seed=1`; and the word before a seed.
_SEED_WORD, _SEED_OPTION = (
    re.compile(r"((?:--)?(?:[\w.-]*[._-])?seed(?:_everything)?=)\d+"),
    re.compile(r"--(?:[\w.-]*[._-])?seed(?:_everything)?"),
)
_SEED, _NAME = "SEED", "TRACKER_RUN_NAME"


def seeds_of_run(directory: Path, seeds: int) -> str:
    """Return the `make test_matrix` that trains what a run trained with so many seeds.

    It names every option that the run was asked for and that changes what is trained, wherever it was asked:
    nothing of it is left to .config.
    """
    record, affects = read_record(directory), read_affects(directory)
    words = {}
    for one in record.asked:
        is_typed = one.origin.kind == TYPED and "=" in one.origin.where
        if one.symbol in (_SEED, _NAME) or one.symbol.startswith("MATRIX_"):
            continue
        if is_typed or affects.touches(one.symbol, "results", "speed"):
            words[one.symbol] = one.origin.where if is_typed else _asked_words(one, record)
    axis = f"{_SEED}=1..{seeds}"
    # Another axis of .config would train other variants as well.
    others = [word for word in configured_axes(record) if not word.startswith(f"{_SEED}=")]
    axes = f"CONFIG_{AXES}={axis}" if others else axis
    return typed_make(" ".join(["test_matrix", *map(shlex.quote, dict.fromkeys(words.values())), axes]))


def matrix_again(plan: Mapping[str, Any], record: Record, seeds: str = "") -> str:
    """Return the command that plans a matrix again, with other seeds where they are given.

    It repeats what the command line gave the runs, by the `record` of one of them, and the axes where .config
    has others or is not known. A matrix of anybody's program is planned by `kharness matrix`.
    """
    if plan.get("template"):
        have = axis_of_seeds(plan)
        return matrix_of_plan(plan, (seeds or more_seeds(have, len(have))).replace("|", ","))
    given = {
        one.symbol: shlex.quote(one.origin.where)
        for one in record.asked
        if one.origin.kind == TYPED and "=" in one.origin.where
    }
    is_typed = given.pop(AXES, None) is not None
    axes = {
        axis["symbol"]: axis["values"]
        for axis in plan.get("axes", ())
        if not axis.get("included") and not axis.get("fragments")
    }
    replicates = axes.pop(_SEED, [])
    words = [f"{symbol}={'|'.join(values)}" for symbol, values in axes.items()]
    configured = configured_axes(record)
    others = [word for word in configured if not word.startswith(f"{_SEED}=")]
    axis = seeds or more_seeds(replicates, len(replicates))
    wanted = [f"{_SEED}={axis}"] if axis else []
    if is_typed or sorted(others) != sorted(words):
        last = [shlex.quote(f"CONFIG_{AXES}={' '.join([*words, *wanted])}")]
    else:
        last = [shlex.quote(word) for word in wanted if seeds or word not in configured]
    return typed_make(" ".join(["test_matrix", *given.values(), *last]))


def matrix_of_plan(plan: Mapping[str, Any], seeds: str) -> str:
    """Return the `kharness matrix` that plans a matrix of a program again, with other `seeds`."""
    axes = [
        f"{axis['symbol'].lower()}={','.join(axis.get('given') or axis['values'])}"
        for axis in plan["axes"]
        if axis["symbol"] != _SEED
    ]
    settings = {name: str(value) for name, value in plan["settings"].items() if value}
    asked = {option: settings[name] for option, name in _ASKED.items() if name in settings}
    groups = {option: settings.get(name, "").split("; ") for option, name in _GROUPS.items()}
    further = {option: [one for one in those if one] for option, those in groups.items()}
    template = {**plan["template"], "no_graphs": plan["settings"].get("REPORT_GRAPHS") is False}
    return matrix_of_program(
        template, axes, seeds, {**further, **{option: [value] for option, value in asked.items()}}
    )


# Options of `kharness matrix` that its settings keep: of one value, and of several.
# Words that shlex splits as they are.
_PLAIN = re.compile(r"[\w@%+=:,./{}*-]+", re.ASCII)
_ASKED = {
    "--metric": "REPORT_METRIC",
    "--baseline": "REPORT_BASELINE",
    "--budget": "REPORT_BUDGET_UNIT",
    "--quarantine": "MATRIX_QUARANTINE",
    "--gpus-per-cell": "MATRIX_GPUS_PER_CELL",
}
_GROUPS = {"--include": "MATRIX_INCLUDE", "--exclude": "MATRIX_EXCLUDE", "--better": "REPORT_BETTER"}


def matrix_of_program(
    template: Mapping[str, Any],
    axes: Sequence[str],
    seeds: str,
    further: Mapping[str, Sequence[str]] = {},
) -> str:
    """Return the `kharness matrix` of a command template as matrix.json has it, with axes such as `lr=1,2`,
    and `further` options.

    A command that took no seed gets one, unless `seeds` is empty.
    """
    environment = template["environment"]
    words = list(template["words"])
    if seeds and not any("{seed}" in text for text in (*words, *environment.values())):
        words += ["--seed", "{seed}"]
    options = {
        "-a": [*axes, f"{_SEED.lower()}={seeds}"] if seeds else axes,
        "-e": [f"{name}={value}" for name, value in environment.items()],
        "--follow": template["follow"],
        "--pattern": template["patterns"],
        "--render": template.get("render", template["files"]),
        "--tracker": template["trackers"],
        "--resume-with": [_resume_text(template["resume"])] if template["resume"] else (),
        "--project": [template["project"]] if template["project"] else (),
        **further,
    }
    given = [word for option, those in options.items() for one in those for word in (option, one)]
    # of both monitors, the one of GPUs brings the other
    flags = ["--hook"] * template.get("hook", False) + [
        f"--{name}" for name in template.get("monitors", ())[:1]
    ]
    flags += ["--no-graphs"] * template.get("no_graphs", False)
    return shlex.join(["kharness", "matrix", *given, *flags, "--", *words])


def _resume_text(words: Sequence[str]) -> str:
    """Return the words of later attempts as one, in which a placeholder or `*` needs no quotes of its own."""
    return " ".join(word if _PLAIN.fullmatch(word) else shlex.quote(word) for word in words)


def with_seed(words: Sequence[str]) -> tuple[list[str], bool]:
    """Return a command's words with `{seed}` in place of the seed that it gives, and whether it gives one."""
    found, is_seed = [], False
    for before, word in pairwise(["", *words]):
        if match := _SEED_WORD.fullmatch(word):
            word = f"{match[1]}{{seed}}"
        elif _SEED_OPTION.fullmatch(before) and word.isdecimal():
            word = "{seed}"
        is_seed = is_seed or word.endswith("{seed}")
        found.append(word)
    return found, is_seed


def _asked_words(one: Assignment, record: Record) -> str:
    """Return `CONFIG_OPTIMIZER=muon` for the member OPTIMIZER_MUON of a choice, else the symbol itself."""
    if one.value == "y":
        for name, text in record.written.items():
            value = text.strip('"')
            if text != value and one.symbol == f"{name}_{value.upper().replace('-', '_')}":
                return f"CONFIG_{name}={value}"
    return f"CONFIG_{one.symbol}={one.value}"


def more_seeds(have: Sequence[str], count: int) -> str:
    """Return an axis of `count` seeds that begins with those there are: `1..10`, else `7|9|10|11`."""
    numbers = [int(seed) for seed in have if seed.isdecimal()]
    if len(numbers) < len(have) or not count or len(have) == count == 1:
        return "|".join(have)
    first = numbers[0] if numbers else 1
    if numbers == list(range(first, first + len(numbers))):
        return f"{first}..{first + max(count, len(numbers)) - 1}"
    highest, missing = max(numbers), max(0, count - len(numbers))
    return "|".join([*have, *(str(highest + further) for further in range(1, missing + 1))])


def continue_with_seeds(place: str, axis: str, *, of_commands: bool) -> str:
    """Return the command that adds the seeds of an axis, as `more_seeds` has it, to a matrix."""
    seeds = f"{'-a seed' if of_commands else _SEED}={axis.replace('|', ',')}"
    return f"{command_on(place, 'continue', of_commands=of_commands)} {seeds}"


def command_on(place: str, target: str, *, of_commands: bool) -> str:
    """Return the command that records a look (`summary`), or runs what is planned (`continue`)."""
    if of_commands:
        return f"kharness {'report' if target == 'summary' else target} {place}"
    return typed_make(f"{target} RUN={place}")


def configured_axes(record: Record) -> Sequence[str]:
    """Return the axes that .config had, a word each."""
    return record.written.get(AXES, "").strip('"').split()
