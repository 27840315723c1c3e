"""The commands that add what a report lacks: unfinished runs, and seeds up to the next verdict."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from kharness.config.record import Record, read_record
from kharness.report.collection import REPLICATE_AXIS
from kharness.report.judging.interim_looks import PILOT
from kharness.report.judging.judgment import Verdict
from kharness.report.runs import fields_in
from kharness.report.summary import Summary
from kharness.runs.latest import shown
from kharness.runs.matrix_plan import takes_seeds
from kharness.runs.seeds_of_run import command_on, continue_with_seeds, matrix_again, more_seeds, seeds_of_run

_NONE = Record([], {})
# Where runs are unless RESULTS_DIR says otherwise.
_RESULTS = "results"


@dataclass(frozen=True)
class Suggestion:
    """A command, and what it adds."""

    words: str
    command: str


def suggestions(summary: Summary) -> list[Suggestion]:
    """Return the commands for this report, the most urgent first; none where nothing is missing.

    Of a comparison none: its sides have reports of their own.
    """
    found: list[Suggestion] = []
    if summary.is_comparison:
        return found
    unfinished = [cell for cell in summary.incomplete if not cell.known_failure]
    if unfinished and _is_of_the_tree(summary):
        what = f"{len(unfinished)} of {len(summary.cells)} runs" if len(summary.cells) > 1 else "it"
        is_of_commands = bool(summary.plan.get("template"))
        finish = command_on(place_of(summary), "continue", of_commands=is_of_commands)
        found.append(Suggestion(f"To finish {what}", finish))
    seeds = _more_seeds(summary)
    return [*found, seeds] if seeds else found


def matrix_command(summary: Summary, seeds: str = "") -> str:
    """Return the command that plans this matrix again, with other seeds where they are given."""
    records = (read_record(cell.run.directory) for cell in summary.cells)
    return matrix_again(summary.plan, next((one for one in records if one.written), _NONE), seeds)


def place_of(summary: Summary) -> str:
    """Return a directory as typed: below RESULTS_DIR in the checkout, or from this folder for a program."""
    if summary.plan.get("template"):
        return shlex.quote(shown(summary.cells[0].run.directory.parent))
    results = fields_in(summary.plan, "settings").get("RESULTS_DIR")
    return shlex.quote(f"{results or _RESULTS}/{summary.title}")


def _is_of_the_tree(summary: Summary) -> bool:
    """Whether make can start these runs: a program of one's own is started by its own command."""
    configs = (fields_in(cell.run.start, "config") for cell in summary.cells)
    return bool(summary.plan) or any("MODEL" in one for one in configs)


def _more_seeds(summary: Summary) -> Suggestion | None:
    plan = summary.plan
    if not plan:
        if not _is_of_the_tree(summary) or not summary.cells[0].run.complete:
            return None
        words = f"One run cannot tell a difference from chance. To train it with {PILOT} seeds"
        return Suggestion(words, seeds_of_run(summary.cells[0].run.directory, PILOT))
    if plan.get("kind") != "matrix":
        return None
    waiting = (Verdict.NOT_SHOWN, Verdict.TOO_FEW, Verdict.UNDECIDED)
    open_ones = [one for one in summary.conclusions.comparisons if one.verdict in waiting]
    looks = [one.next_look for one in open_ones if one.next_look]
    if not looks:
        return None
    number = min(looks)
    axis = more_seeds(summary.axes.get(REPLICATE_AXIS, ["1"]), number)
    words = f"The next verdicts are given at {number} seeds. To train them"
    if not takes_seeds(plan):
        return Suggestion(words, matrix_command(summary, axis))
    is_of_commands = bool(plan.get("template"))
    return Suggestion(words, continue_with_seeds(place_of(summary), axis, of_commands=is_of_commands))
