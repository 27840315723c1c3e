"""The set-up of a comparison: options of each variant, and data, code, hardware and budget of all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from kharness.config.writing import ABSENT, Table
from kharness.report.collection import REPLICATE_AXIS, SIDE, Variant, affects_of
from kharness.report.judging.budgets import budget_of, budget_words
from kharness.report.overview.next_runs import matrix_command
from kharness.report.overview.sweep_facts import spoken, symbol_words
from kharness.report.runs import fields_in
from kharness.report.summary import Summary
from monitoring.alert_sentences import alerts_of
from monitoring.counts import counted, listed
from monitoring.errors import RunDirectoryError
from monitoring.journal.run_json import read_run_json
from monitoring.where import spellings

# Of a choice that the start record already describes, and of options that another column shows.
_DESCRIBED = ("OPTIMIZER", "SCHEDULE", "LEARNING_RATE", "WEIGHT_DECAY", "PRUNING", REPLICATE_AXIS)
# Columns of options beyond those of the optimizer; more are on each run's page.
_MOST_OPTIONS = 8
# Columns of a table of two rows; with more, each variant is a column.
_WIDEST_PAIR = 6
# Optimizers that a sentence names with their rates.
_MOST_RATES = 6
_HASH_DIGITS = 16
_ALWAYS = ("learning rate", "weight decay", "betas", "schedule")
_SETTINGS = (
    *("name", "learning_rate", "weight_decay", "betas", "groups", "own_groups"),
    *("peak", "num_steps"),
)


@dataclass(frozen=True)
class SetUp:
    """Everything that a reviewer asks about the set-up."""

    options: Table | None
    """One row per variant; None where no run has begun."""
    facts: Mapping[str, str]
    """Values that hold for all runs, or those of each of them."""
    untuned: str
    """Why the optimizers may not have been compared at their best; empty where they are not compared."""
    tuning: str
    """The command that tunes them."""


def compared(summary: Summary) -> SetUp:
    """Read it from the start records and run.json of the runs, and from the plan."""
    settings = {variant.label: settings_of(variant) for variant in summary.variants}
    untuned, tuning = _untuned(summary, settings)
    return SetUp(
        options=options_table(summary, settings),
        facts=facts(summary),
        untuned=untuned,
        tuning=tuning,
    )


def settings_of(variant: Variant) -> Mapping[str, str]:
    """Return what a variant's optimizer, schedule and pruning are set to, by name; empty before it began."""
    start = variant.start
    optimizer, schedule, pruning = (fields_in(start, name) for name in ("optimizer", "schedule", "pruning"))
    found: dict[str, str] = {}
    if optimizer:
        found["optimizer"] = text_of(optimizer.get("name"))
        for name in ("learning_rate", "weight_decay", "betas"):
            if optimizer.get(name) is not None:
                found[symbol_words(name)] = text_of(optimizer[name])
    if schedule:
        found["schedule"] = ", ".join(
            [text_of(schedule.get("name")), *_others(schedule, skip=("learning_rate",))]
        )
    if optimizer:
        found["other settings"] = ", ".join(_others(optimizer)) or ABSENT
    if pruning:
        found["pruning"] = ", ".join([text_of(pruning.get("name")), *_others(pruning)])
    return found


def options_table(summary: Summary, settings: Mapping[str, Mapping[str, str]]) -> Table | None:
    """Return the table of variants: the optimizer's settings, then every option in which they differ."""
    if not any(settings.values()) and not any(one.start for one in summary.variants):
        return None
    named = {name: None for of in settings.values() for name in of}
    others = [name for name in named if name not in _ALWAYS]
    columns = [
        *(name for name in _ALWAYS if name in named),
        *(
            name
            for name in others
            if len(settings) == 1 or len({of.get(name) for of in settings.values()}) > 1
        ),
    ]
    if columns and all(of.get("optimizer") in (None, label) for label, of in settings.items()):
        columns = [name for name in columns if name != "optimizer"]
    differing = _differing(summary)
    if not columns and not differing:
        return None
    rows = [
        [
            variant.label,
            *(settings[variant.label].get(name, ABSENT) for name in columns),
            *(options.get(variant.label, ABSENT) for options in differing.values()),
        ]
        for variant in summary.variants
    ]
    header = [summary.variant_word if summary.plan else "run", *columns, *map(symbol_words, differing)]
    if len(rows) == 2 and len(header) > _WIDEST_PAIR:  # side by side
        header, *rows = [list(row) for row in zip(header, *rows, strict=True)]
        header[0] = "setting"
    return Table(header, rows, text_columns=len(header))


def _differing(summary: Summary) -> Mapping[str, Mapping[str, str]]:
    """Return options by symbol, each with its value by variant, that differ and that no setting describes."""
    if len(summary.variants) < 2:
        return {}
    affects = affects_of(summary.variants)
    values: dict[str, dict[str, str]] = {}
    of_variants = {variant.label: fields_in(variant.start, "config") for variant in summary.variants}
    spelled = spellings(name for options in of_variants.values() for name in options)
    for label, options in of_variants.items():
        for name in affects.names(options, "results", "speed"):
            if not name.startswith(_DESCRIBED):
                values.setdefault(spelled[name.lower()], {})[label] = text_of(options[name])
    begun = [variant.label for variant in summary.variants if variant.start]
    differing = {name: of for name, of in values.items() if len({of.get(label, "") for label in begun}) > 1}
    return dict(list(differing.items())[: None if len(summary.variants) == 2 else _MOST_OPTIONS])


def facts(summary: Summary) -> Mapping[str, str]:
    """Return data, budget, hardware, software, code and command, in the words of people."""
    starts = [cell.run.start for cell in summary.cells if cell.run.start]
    told, last = _told_by_attempts(summary.run_directories)
    complete = [cell.run for cell in summary.cells if cell.run.complete]
    found: dict[str, str] = {
        # A program's own model is not known: its plan has the name of the script there, for the title.
        "model": _models(starts)
        or ("" if "template" in summary.plan else str(summary.plan.get("model") or "")),
        **{symbol_words(name): ", ".join(values) for name, values in summary.axes.items() if name != SIDE},
        "dataset": _distinct(_dataset(start) for start in starts),
        "budget of a run": budget_words(budget_of(complete)) if complete else "",
        "hardware": _distinct(told["hardware"]),
        "host": _distinct(told["host"]),
        "device": _distinct(text_of(start.get("device")) for start in starts if start.get("device")),
        "threads of a run": _distinct(
            text_of(start["cpu_threads"]) for start in starts if start.get("cpu_threads")
        ),
        "versions": _distinct(told["versions"]) or versions_words(summary.plan),
        "code": _distinct([_git(summary.plan), *told["code"]]),
        "begun": _time(summary.plan.get("created")),
        "command": _command(summary, last),
        "alerts": str(summary.part("alerts", partial(_alerts, summary), "")),
    }
    return {name: text for name, text in found.items() if text}


def _told_by_attempts(
    directories: Sequence[Path],
) -> tuple[Mapping[str, Iterable[str]], Mapping[str, object]]:
    """Return what the last attempts of the runs ran on, each text once, and the last of them."""
    found: dict[str, dict[str, None]] = {name: {} for name in ("hardware", "host", "versions", "code")}
    last: Mapping[str, object] = {}
    for directory in directories:
        if one := last_attempt(directory):
            texts = (
                _hardware(one),
                text_of(one.get("host")),
                versions_words(one),
                _git(one),
            )
            for of, text in zip(found.values(), texts, strict=True):
                of[text] = None
            last = one
    return found, last


def last_attempt(directory: Path) -> Mapping[str, object]:
    """Return the last attempt in the run.json of a run; empty where that has none, or cannot be read."""
    try:
        attempt: Mapping[str, object] = read_run_json(directory)["attempts"][-1]
    except RunDirectoryError:
        return {}
    return attempt


def _models(starts: Sequence[Mapping[str, object]]) -> str:
    texts = []
    for start in starts:
        model, configured = fields_in(start, "model"), fields_in(start, "config").get("MODEL")
        if model and (configured or model.get("architecture") or model.get("parameters")):
            number = model.get("parameters")
            size = f", {number:,} parameters" if isinstance(number, int) else ""
            texts.append(f"{spoken(text_of(configured or model.get('name')))}{size}")
    return _distinct(texts)


def _dataset(start: Mapping[str, object]) -> str:
    dataset, sha = fields_in(start, "dataset"), start.get("data_sha256")
    if not dataset:
        return f"sha256 {str(sha)[:_HASH_DIGITS]}" if sha else ""
    sizes = [f"{size:,} {name}" for name, size in dataset.items() if isinstance(size, int)]
    text = spoken(text_of(dataset.get("name")))
    text += f": {', '.join(sizes)}" if sizes else ""
    return f"{text}; sha256 {str(sha)[:_HASH_DIGITS]}" if sha else text


def _hardware(attempt: Mapping[str, object]) -> str:
    hardware = fields_in(attempt, "hardware")
    parts = [text_of(hardware.get("cpu"))] if hardware.get("cpu") else []
    usable, memory, gpus = (hardware.get(name) for name in ("cpu_usable", "memory_bytes", "gpus"))
    parts += [counted(usable, "processor")] if isinstance(usable, int) else []
    parts += [f"{memory / 1e9:.0f} GB of memory"] if isinstance(memory, int) else []
    if isinstance(gpus, Sequence):
        names = [text_of(gpu.get("name")) if isinstance(gpu, Mapping) else text_of(gpu) for gpu in gpus]
        parts += [f"{names.count(name)} × {name}" for name in dict.fromkeys(names)] or ["no GPU"]
    return ", ".join(parts)


def _git(recorded: Mapping[str, object]) -> str:
    git = fields_in(recorded, "git")
    if not git.get("revision"):
        return ""
    changed = git.get("diff_sha256")
    state = f", with uncommitted changes {str(changed)[:12]}" if changed else ""
    return f"{git['revision']}{state}"


def _command(summary: Summary, attempt: Mapping[str, object]) -> str:
    if not summary.plan:
        return text_of(attempt["command"]) if attempt.get("command") else ""
    if summary.plan.get("kind") != "matrix":
        return ""
    return matrix_command(summary)


def _alerts(summary: Summary) -> str:
    found = [alerts_of(directory) for directory in summary.run_directories]
    number, runs = sum(map(len, found)), sum(map(bool, found))
    return f"{counted(number, 'alert')} in {counted(runs, 'run')}" if number else "none"


def _untuned(summary: Summary, settings: Mapping[str, Mapping[str, str]]) -> tuple[str, str]:
    """Return the sentence on rates that were not tuned in this matrix, and the command that tunes them."""
    if "OPTIMIZER" not in summary.axes or len(summary.axes["OPTIMIZER"]) < 2 or not summary.plan:
        return "", ""
    if summary.plan.get("kind") != "matrix":
        return "", ""
    rates: dict[str, dict[str, None]] = {}
    for variant in summary.variants:
        of = settings[variant.label]
        if "learning rate" in of:
            rates.setdefault(of.get("optimizer", variant.label), {})[of["learning rate"]] = None
    single = {name: next(iter(of)) for name, of in rates.items() if len(of) == 1}
    if len(single) < 2:
        return "", ""
    named = [f"{name} at {rate}" for name, rate in list(single.items())[:_MOST_RATES]]
    more = [f"{len(single) - _MOST_RATES} more"] if len(single) > _MOST_RATES else []
    return (
        f"Learning rates were not tuned in this matrix: {listed([*named, *more])} ran at one rate each. "
        "At other rates the order may be another one. To give each optimizer its best rate first, "
        "search over a range file with seeds of its own, then compare at the rates found (docs/sweep.md):",
        f'echo \'CONFIG_OPTIMIZER="{"|".join(single)}"\nCONFIG_LEARNING_RATE="0.001|0.003|0.01|0.03"\''
        " > rates.ranges\nmake sweep RANGE_CONFIG=rates.ranges",
    )


def _others(described: Mapping[str, object], skip: Sequence[str] = ()) -> list[str]:
    """Return the settings without a column of their own, as words; those that are off are left out."""
    words = []
    for name, value in described.items():
        if name in _SETTINGS or name in skip or value is None or value is False:
            continue
        if isinstance(value, (str, int, float, bool, list, tuple)) and value != []:
            words.append(symbol_words(name) + ("" if value is True else f" {text_of(value)}"))
    return words


def text_of(value: object) -> str:
    """Return a value of a record in words: `y` for True, `-` for None."""
    if isinstance(value, bool):
        return "y" if value else "n"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, (list, tuple)):
        return " ".join(map(text_of, value)) or ABSENT
    return ABSENT if value is None else str(value)


def versions_words(recorded: Mapping[str, object]) -> str:
    """Return `python 3.11.9, torch 2.13.0`; empty where nothing was recorded."""
    versions = fields_in(recorded, "versions")
    return ", ".join(f"{name} {version}" for name, version in versions.items() if version)


def _time(created: object) -> str:
    if not isinstance(created, (int, float)):
        return ""
    return datetime.fromtimestamp(created, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _distinct(texts: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(text for text in texts if text))
