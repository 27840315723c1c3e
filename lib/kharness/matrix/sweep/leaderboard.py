"""The leaderboard of a sweep: its configurations, the best first, by what their last validation said."""

from __future__ import annotations

import csv
import io
import json
import shlex
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from kharness.config.affects import Affects
from kharness.config.config_py import read_affects
from kharness.config.make.typed import typed, typed_make, typed_setting
from kharness.config.writing import Table, Writing, guarded, in_markdown, list_item, on_one_line
from kharness.matrix.planning.axes import Axis
from kharness.matrix.planning.axis_values import is_setting
from kharness.matrix.planning.matrix_json import read_plan
from kharness.matrix.sweep.rank_errors import CONFIDENCE, Measured, Ranges, rank_ranges
from kharness.matrix.sweep.validation import Objective, Trial, read_objective, read_trial
from kharness.runs.budget import COUNTS, Spent, counted_unit, spent
from kharness.runs.exit_codes import EXIT_FAILED
from kharness.runs.files import LEADERBOARD_CSV, LEADERBOARD_JSON, LEADERBOARD_MD
from kharness.runs.latest import shown
from kharness.runs.matrix_plan import short_value
from kharness.runs.seeds_of_run import matrix_of_program
from monitoring.counts import counted
from monitoring.journal.atomic_file import write_atomically
from monitoring.journal.files import JOURNAL
from monitoring.journal.run_state import read_end

REPLICATE = "SEED"
# Seeds that no sweep is likely to have used.
NEW_SEEDS = "101..105"
# How many rows a terminal shows; the files hold all.
SHOWN = 20


@dataclass(frozen=True)
class TrialRow:
    """One configuration: the trials that differ by the seed alone."""

    values: Mapping[str, str]
    trials: Sequence[Trial]
    budget: tuple[int, ...] = ()
    """Budgets of its complete trials, in the leaderboard's unit; several where they differ, empty where
    unknown."""
    num_validation: int | None = None
    """Samples of the validation set, as far as its trials say and agree."""

    @property
    def complete(self) -> Sequence[Trial]:
        return [trial for trial in self.trials if trial.value is not None]

    @property
    def scores(self) -> Sequence[float]:
        return [trial.value for trial in self.trials if trial.value is not None]

    @property
    def mean(self) -> float:
        """Mean of the complete trials, of which there is at least one."""
        return statistics.fmean(self.scores)

    @property
    def deviation(self) -> float | None:
        """Sample standard deviation; None for a single trial."""
        return statistics.stdev(self.scores) if len(self.scores) > 1 else None


@dataclass(frozen=True)
class Leaderboard:
    """A sweep in order."""

    title: str
    objective: Objective
    symbols: Sequence[str]
    common: Mapping[str, str]
    """Assignments shared by all trials of the sweep, except trackers."""
    rows: Sequence[TrialRow]
    """Rows, best first; ties in the order of their planning."""
    incomplete: Sequence[Trial]
    """Trials that are in no row's mean."""
    refused: Sequence[tuple[str, str]]
    """Name and reason of each configuration that the option tree refused."""
    num_trials: int
    budget_unit: str = "steps"
    """One of kharness.runs.budget.COUNTS."""
    template: Mapping[str, Any] = field(default_factory=dict)
    """The command with its placeholders, as in matrix.json; empty for trainings of the tree."""
    defaults: Mapping[str, str] = field(default_factory=dict)
    """Values of the symbols where no trial gives them one; empty where unknown, as of a program."""

    @cached_property
    def ranges(self) -> Ranges | None:
        """Range of ranks that each row may truly have; None where unknown."""
        accuracy = self.objective.metric.endswith("accuracy")
        rows = [
            Measured(
                row.scores,
                row.budget if len(row.budget) == 1 else (),
                row.num_validation if accuracy else None,
            )
            for row in self.rows
        ]
        return rank_ranges(rows, minimize=self.objective.minimize)

    @property
    def budgets_differ(self) -> bool:
        # two besides the unknown one, which is empty; or seeds of one row that had different ones
        return len({row.budget for row in self.rows} | {()}) > 2 or any(len(r.budget) > 1 for r in self.rows)

    @property
    def notes(self) -> Sequence[str]:
        """Caveats about the ranks."""
        if len(self.rows) < 2:
            return []
        known = [count for row in self.rows for count in row.budget]
        found = []
        if self.budgets_differ:
            found.append(
                f"budgets differ ({self.budget_unit} {min(known):,} to {max(known):,}): "
                "a rank above one that had less shows nothing"
            )
        elif known and all(row.budget for row in self.rows):
            found.append(f"equal {self.budget_unit}: {known[0]:,}")
        if not all(row.budget for row in self.rows):
            found.append(
                f"the number of {self.budget_unit} is not known of all: ranks may be of unequal budgets"
            )
        if self.ranges is None:
            found.append(
                "which ranks cannot be separated is unknown: "
                "of a single seed only an accuracy has a known error"
            )
            return found
        last = self.ranges.ranges[0][1]
        which = f"may truly have any of the ranks 1 to {last}" if last > 1 else "is shown to be the best"
        confidence = f"{CONFIDENCE * 100:g} %, {self.ranges.method}"
        return [*found, f"the first {which} ({confidence})"]

    def best_of(self, row: TrialRow) -> float:
        """The best of all validations of a configuration, which is not what it is ranked by."""
        return self.objective.best([value for trial in row.complete for value in trial.validations])

    @property
    def winners(self) -> Sequence[Winners]:
        """The best row of each member of a choice, where the sweep varies more than that."""
        ranked = [(row.values, row.mean) for row in self.rows]
        tried = [trial.values for row in self.rows for trial in row.trials]
        return winners_of(self.symbols, ranked, tried + [one.values for one in self.incomplete])

    @property
    def warning(self) -> str:
        """Sentence on selection bias in the first row; empty where nothing was selected."""
        if len(self.rows) < 2:
            return ""
        return (
            f"the first of {counted(len(self.rows), 'configuration')} was chosen by the validation set "
            "that it is shown with: expect less of it"
        )

    @property
    def confirmation(self) -> tuple[str, str]:
        """How the first row is compared with the defaults, else with the second, in words and as a command.

        Empty without a second.
        """
        if len(self.rows) < 2:
            return "", ""
        first, second = (
            {name: value for name, value in row.values.items() if name != REPLICATE} for row in self.rows[:2]
        )
        is_new = self.defaults and not all(_alike(self.defaults.get(name, ""), first[name]) for name in first)
        other = self.defaults if is_new else second
        is_tested = any(trial.is_tested for trial in self.rows[0].complete)
        words = (
            f"compare the first with {'the default' if is_new else 'the second'}"
            f"{' on the test set' if is_tested else ''}, by seeds that the sweep has not used"
        )
        if not self.template:
            return words, _comparing([other, first], self.common)
        better = f"{self.objective.metric}={'down' if self.objective.minimize else 'up'}"
        further = {"--better": [better]}
        if not is_tested:
            further["--metric"] = [self.objective.metric]
        differ = [name for name in first if first[name] != other[name]]
        # Two values on each of several axes would also train their mixtures; the first is then a group of
        # --include, whose words can have no blanks.
        both = len(differ) == 1 or any(len(first[name].split()) != 1 for name in differ)
        axes = [
            f"{name.lower()}={value}{f',{first[name]}' if both and name in differ else ''}"
            for name, value in other.items()
        ]
        if not both:
            further["--include"] = [" ".join(f"{name.lower()}={first[name]}" for name in differ)]
        return words, matrix_of_program(self.template, axes, NEW_SEEDS, further)


def read_leaderboard(directory: Path) -> Leaderboard:
    """The leaderboard of a sweep as its runs stand; MatrixError if the directory holds no plan."""
    plan = read_plan(directory)
    objective = read_objective(plan.settings)
    trials = [read_trial(directory, cell, objective) for cell in plan.cells]
    affects = read_affects(directory / trials[0].name) if trials else Affects()
    groups: dict[tuple[tuple[str, str], ...], list[Trial]] = {}
    for trial in trials:
        key = tuple((name, value) for name, value in trial.values.items() if name != REPLICATE)
        groups.setdefault(key, []).append(trial)
    counts = {trial.name: _counted(directory / trial.name) for trial in trials if trial.value is not None}
    known = [u for u in COUNTS if counts and all(getattr(c, u) is not None for c, _ in counts.values())]
    asked = str(plan.settings.get("REPORT_BUDGET_UNIT", "auto"))
    unit = counted_unit("auto" if asked == "time" else asked, known)
    rows = [_row(dict(key), group, unit, counts) for key, group in groups.items()]
    # A configuration is ranked by the seeds that completed; the table shows how many of the planned ones
    # these are.
    ranked = [row for row in rows if row.complete]
    ranked.sort(key=lambda row: row.mean if objective.minimize else -row.mean)
    return Leaderboard(
        title=directory.name,
        objective=objective,
        symbols=[name for name in plan.ranges if name != REPLICATE],
        common={
            assignment.symbol: assignment.value
            for layer in ("fixed", "command_line")
            for assignment in plan.layers.get(layer, ())
            if assignment.symbol not in (REPLICATE, *plan.ranges)
            and not is_setting(affects, assignment.symbol)
            and affects.touches(assignment.symbol, "results", "speed", "machine")
        },
        rows=ranked,
        incomplete=[trial for trial in trials if trial.value is None],
        refused=[(one.name, one.reason) for one in plan.refused],
        num_trials=len(trials),
        budget_unit=unit,
        template=plan.template,
        defaults={name: value for name, value in plan.defaults.items() if name != REPLICATE},
    )


def _row(
    values: Mapping[str, str],
    trials: Sequence[Trial],
    unit: str,
    counts: Mapping[str, tuple[Spent, int | None]],
) -> TrialRow:
    found = [counts[trial.name] for trial in trials if trial.name in counts]
    spent_by = [getattr(count, unit) for count, _ in found]
    sizes = {size for _, size in found}
    return TrialRow(
        values,
        trials,
        budget=() if None in spent_by else tuple(sorted(set(spent_by))),
        num_validation=sizes.pop() if len(sizes) == 1 else None,
    )


def _counted(run: Path) -> tuple[Spent, int | None]:
    """Return a trial's training budget and its number of validation samples, from its journal."""
    state = read_end(run / JOURNAL)
    dataset = state.start.get("dataset")
    size = dataset.get("validation") if isinstance(dataset, Mapping) else None
    return spent(state.start, state.end, last_step=state.step), size if isinstance(size, int) else None


def write_leaderboard(board: Leaderboard, directory: Path, say: Callable[[str], None]) -> None:
    """Write leaderboard.json, .csv and .md into the sweep's directory; NotWritten names what cannot be."""
    writing = Writing()
    for name, as_text in (
        (LEADERBOARD_JSON, as_json),
        (LEADERBOARD_CSV, as_csv),
        (LEADERBOARD_MD, as_markdown),
    ):
        text = guarded(name, partial(as_text, board), None, lambda line: say(f"warning: {line}"))
        if text is not None:
            writing.write(partial(_written, directory / name, text))
    writing.check(again=typed("continue", shown(directory)))


def _written(path: Path, text: str) -> list[Path]:
    write_atomically(path, text.encode())
    return [path]


def told_leaderboard(directory: Path, say: Callable[[str], None]) -> int:
    """Say the leaderboard, then write it; an exit code: 3 if nothing could be ranked."""
    board = read_leaderboard(directory.resolve())
    lines = ["", f"{board.title}: {board.objective.words}, {counted(len(board.rows), 'configuration')}", ""]
    if board.rows:
        lines += _table(board, board.rows[:SHOWN]).plain().splitlines()
        if len(board.rows) > SHOWN:
            lines.append(f"and {len(board.rows) - SHOWN} more, in {LEADERBOARD_MD}")
        lines.append("")
    for of in board.winners:
        lines += [f"the best of each {of.symbol}:", *(f"  {on_one_line(line)}" for line in of.lines)]
        lines += [""] if board.template else ["to compare them:", f"  {of.command(board.common)}", ""]
    for title, entries in _left_out(board, is_brief=True):
        lines += [title, *(f"  {on_one_line(entry)}" for entry in entries)]
    lines += [f"note: {note}" for note in board.notes]
    lines += [f"note: {board.warning}"] if board.warning else []
    words, command = board.confirmation
    lines += [f"next: {words}:", f"  {command}"] if command else []
    if not board.rows:
        lines.append(f"no trial is complete and has {board.objective.metric}: there is no best one")
        other = typed_setting("SWEEP_METRIC=", "--metric ")
        lines.append(f"hint: {other}NAME takes another metric of the validation set that trials have")
    say("\n".join(lines))
    write_leaderboard(board, directory, say)
    say(f"leaderboard: {shown(directory / LEADERBOARD_MD)}")
    return 0 if board.rows else EXIT_FAILED


def as_json(board: Leaderboard) -> str:
    words, command = board.confirmation
    content = {
        "format": 1,
        "metric": board.objective.metric,
        "direction": "minimize" if board.objective.minimize else "maximize",
        "budget_unit": board.budget_unit,
        "notes": list(board.notes),
        "confidence": CONFIDENCE,
        "rows": [
            {
                "rank": rank,
                "rank_range": list(board.ranges.ranges[rank - 1]) if board.ranges else None,
                "budget": list(row.budget),
                "values": dict(row.values),
                "mean": row.mean,
                "standard_deviation": row.deviation,
                "best_validation": board.best_of(row),
                "complete": len(row.complete),
                "trials": [trial.name for trial in row.trials],
            }
            for rank, row in enumerate(board.rows, 1)
        ],
        "incomplete": [
            {"name": one.name, "values": dict(one.values), "state": one.state, "reason": one.reason}
            for one in board.incomplete
        ],
        "refused": [{"name": name, "reason": reason} for name, reason in board.refused],
        "warning": board.warning or None,
        "confirm_words": words or None,
        "confirm": command or None,
    }
    return json.dumps(content, indent=2) + "\n"


def as_csv(board: Leaderboard) -> str:
    """Return one row per configuration, with numbers in full."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    metric = board.objective.metric
    writer.writerow(
        ["rank", *board.symbols, metric, "std", f"best_{metric}", "complete", "planned", "trials"]
    )
    for rank, row in enumerate(board.rows, 1):
        numbers = [row.mean, "" if row.deviation is None else row.deviation, board.best_of(row)]
        values = [row.values.get(symbol, "") for symbol in board.symbols]
        names = " ".join(trial.name for trial in row.trials)
        writer.writerow([rank, *values, *numbers, len(row.complete), len(row.trials), names])
    return file.getvalue()


def as_markdown(board: Leaderboard) -> str:
    lines = [
        f"# Leaderboard of {in_markdown(board.title)}",
        "",
        f"Ranked by {in_markdown(board.objective.words)}, after the last step.",
        "",
    ]
    lines += [_table(board, board.rows).markdown(), "", *(f"- {note}" for note in board.notes), ""]
    for of in board.winners:
        lines += [f"The best of each {of.symbol}:", "", *(list_item(in_markdown(line)) for line in of.lines)]
        lines.append("")
        if not board.template:
            lines += ["To compare them:", "", "```", of.command(board.common), "```", ""]
    for title, entries in _left_out(board):
        lines += [f"{title}:", "", *(list_item(in_markdown(entry)) for entry in entries), ""]
    words, command = board.confirmation
    if command:
        warning = f"**{board.warning[0].upper()}{board.warning[1:]}.**"
        lines += [f"{warning} {words[0].upper()}{words[1:]}:", "", "```", command, "```"]
    if not board.rows:
        lines.append(f"No trial is complete and has {board.objective.metric}.")
    return "\n".join(lines) + "\n"


def _table(board: Leaderboard, shown_rows: Sequence[TrialRow]) -> Table:
    metric = board.objective.metric
    several = any(len(row.trials) > 1 for row in board.rows)
    header = ["rank", *(["95 %"] if board.ranges else []), *board.symbols]
    header += [
        *([board.budget_unit] if board.budgets_differ else []),
        metric,
        f"best {metric}",
        "n" if several else "trial",
    ]
    rows = []
    for rank, row in enumerate(shown_rows, 1):
        deviation = "" if row.deviation is None else f" ± {row.deviation:.3g}"
        runs = f"{len(row.complete)}/{len(row.trials)}" if several else row.trials[0].name
        values = [short_value(row.values.get(symbol, "")) for symbol in board.symbols]
        numbers = [f"{row.mean:.6g}{deviation}", f"{board.best_of(row):.6g}"]
        first = [str(rank)]
        if board.ranges:
            low, high = board.ranges.ranges[rank - 1]
            first.append(f"{low}" if low == high else f"{low} to {high}")
        if board.budgets_differ:
            values.append(" to ".join(f"{count:,}" for count in row.budget[:1] + row.budget[1:][-1:]) or "-")
        rows.append([*first, *values, *numbers, runs])
    return Table(header, rows, text_columns=len(header))


def _left_out(board: Leaderboard, *, is_brief: bool = False) -> list[tuple[str, list[str]]]:
    """Return what is in no row, each group with a title; in brief, trials of one reason are one entry."""
    found = []
    if board.incomplete:
        title = f"not complete, in no row: {len(board.incomplete)} of {counted(board.num_trials, 'trial')}"
        alike: dict[str, list[Trial]] = {}
        for trial in board.incomplete:
            alike.setdefault(trial.reason if is_brief else trial.name, []).append(trial)
        found.append((title, [_incomplete(*trials) for trials in alike.values()]))
    if board.refused:
        title = f"refused by the option tree: {len(board.refused)}"
        found.append((title, [f"{name}: {reason}" for name, reason in board.refused]))
    return found


def _incomplete(first: Trial, *others: Trial) -> str:
    alike = f" (and {counted(len(others), 'other')} alike)" if others else ""
    return f"{first.name}: {first.reason}{alike}"


# With fewer values tried, each is an end of them.
FEWEST_VALUES = 3


@dataclass(frozen=True)
class Winner:
    """The best row with one value of a choice."""

    value: str
    rank: int
    values: Mapping[str, str]
    """Values of all symbols of the sweep."""
    mean: float
    ends: Mapping[str, str]
    """Symbols whose value is an end of those tried with this choice: `lowest` or `highest`."""


@dataclass(frozen=True)
class Winners:
    """The best of each value of `symbol`, in the order of their ranks."""

    symbol: str
    winners: Sequence[Winner]

    @property
    def lines(self) -> Sequence[str]:
        """Return a line for each winner, with a remark where a value is the end of the tried range."""
        found = []
        width = max(len(one.value) for one in self.winners)
        for one in self.winners:
            others = [f"{name}={value}" for name, value in one.values.items() if name != self.symbol]
            ends = [f"{name} is the {end} that was tried" for name, end in one.ends.items()]
            parts = [one.value.ljust(width), f"rank {one.rank}", *others, f"{one.mean:.6g}"]
            found.append("  ".join(parts) + (f"  ({', '.join(ends)})" if ends else ""))
        return found

    def command(self, common: Mapping[str, str]) -> str:
        """Return the command that compares them on seeds the sweep has not used; `common` holds for all of
        them.
        """
        return _comparing([one.values for one in self.winners], common)


def _comparing(variants: Sequence[Mapping[str, str]], common: Mapping[str, str]) -> str:
    """Return the `make test_matrix` of variants, the baseline first, on seeds the sweep has not used."""
    groups = [
        " ".join([*(str(Axis(name, [value])) for name, value in one.items()), f"{REPLICATE}={NEW_SEEDS}"])
        for one in variants
    ]
    asked = {**common, "MATRIX_AXES": groups[0], "MATRIX_INCLUDE": "; ".join(groups[1:])}
    return typed_make(shlex.join(["test_matrix", *(f"CONFIG_{name}={asked[name]}" for name in asked)]))


def winners_of(
    symbols: Sequence[str],
    ranked: Sequence[tuple[Mapping[str, str], float]],
    tried: Sequence[Mapping[str, str]],
) -> Sequence[Winners]:
    """For each symbol with names as values, in a sweep of several symbols.

    `ranked` has values and mean of each configuration, the best first, `tried` the values of all trials.
    """
    found = []
    for symbol in symbols if len(symbols) > 1 else ():
        if all(_number(one.get(symbol, "0")) is not None for one in tried):
            continue
        best: dict[str, Winner] = {}
        for rank, (values, mean) in enumerate(ranked, 1):
            value = values.get(symbol)
            if value is not None and value not in best:
                alike = [one for one in tried if one.get(symbol) == value]
                best[value] = Winner(value, rank, values, mean, _ends(values, alike))
        if len(best) > 1:
            found.append(Winners(symbol, [*best.values()]))
    return found


def _ends(values: Mapping[str, str], tried: Sequence[Mapping[str, str]]) -> Mapping[str, str]:
    found = {}
    for name, text in values.items():
        numbers = {_number(one[name]) for one in tried if name in one}
        known = {number for number in numbers if number is not None}
        if len(known) < max(FEWEST_VALUES, len(numbers)):
            continue
        if (number := _number(text)) in (min(known), max(known)):
            found[name] = "lowest" if number == min(known) else "highest"
    return found


def _alike(one: str, other: str) -> bool:
    return one == other or (_number(one) is not None and _number(one) == _number(other))


def _number(text: str) -> Decimal | None:
    try:
        return Decimal(text)
    except InvalidOperation:
        return None
