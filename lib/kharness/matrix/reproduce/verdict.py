"""The last lines of a reproduction: whether every value is the same."""

from __future__ import annotations

from pathlib import Path

from kharness.config.output import say
from kharness.runs.exit_codes import EXIT_FAILED, EXIT_STOPPED
from kharness.runs.latest import shown
from monitoring.counts import counted, cut_list
from monitoring.journal.bit_equal import compare
from monitoring.journal.files import JOURNAL
from monitoring.journal.lineage import Lineage

# So many names of metrics are said.
MOST_NAMES = 8


def has_ended_alike(past: Path, again: Path, exit_code: int) -> bool:
    """Whether both runs ended in a way that can be compared."""
    before, after = (Lineage.read(directory / JOURNAL) for directory in (past, again))
    return bool(after.starts) and not (exit_code and before.end.get("status") != after.end.get("status"))


def say_not_compared(past: Path, again: Path, exit_code: int) -> int:
    """Say why nothing is compared; the exit code of the command."""
    say(f"not compared: {shown(again)} did not end as {past.name} did")
    return exit_code if exit_code >= EXIT_STOPPED else EXIT_FAILED


def say_verdict(past: Path, again: Path, *, names: bool = False) -> int:
    """Say what is equal and what is not; 0 if all is. With `names` also of which metrics."""
    compared = compare(past, again)
    if compared.on_request:
        say(f"not compared: {compared.on_request} checkpoints made because the run was stopped")
    if not compared.difference:
        say(f"bit-equal: {counted(compared.equal, 'record')}")
        return 0
    say(f"bit-equal up to there: {counted(compared.equal, 'record')}")
    if names and compared.others:
        same, others = (cut_list(one, MOST_NAMES) or "nothing" for one in (compared.same, compared.others))
        say(f"equal in all records: {same}; not equal: {others}")
    say(f"first difference: {compared.difference}")
    return EXIT_FAILED
