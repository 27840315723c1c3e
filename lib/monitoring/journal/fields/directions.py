"""Whether a metric is better up or down: by its row or the user's setting; never guessed."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence

from monitoring.counts import counted
from monitoring.journal.fields import row_of
from monitoring.journal.fields.row import Better
from monitoring.measures import MEASURED

Said = Mapping[str, Better]
"""Metric -> direction set by the user, which overrides its row."""

_LINE = re.compile(r"\s*(?:better\.)?(?P<name>(?!better\.)\S[^=]*?)\s*=\s*(?P<better>up|down|neither)\s*")
_SEPARATOR = re.compile(r"[;\n]")
_OF_EVALUATION = re.compile(r"(?:val|valid|validation|eval|test)[_/]")
# So many names of metrics without a direction are told.
MOST_NAMED = 3


def read_directions(text: str) -> dict[str, Better]:
    """Return metric -> direction of `better.wer = down; better.val/bleu = up`; ValueError: a bad part."""
    found: dict[str, Better] = {}
    for part in filter(str.strip, _SEPARATOR.split(text)):
        line = _LINE.fullmatch(part)
        if line is None:
            raise ValueError(part.strip())
        better = line["better"]
        found[line["name"]] = "up" if better == "up" else "down" if better == "down" else "neither"
    return found


def better_of(name: str, said: Said) -> Better:
    """Return a metric's direction; `neither` where no setting and no row says one."""
    return said.get(name) or row_of(name).better


def missing_direction(name: str) -> str:
    """Return the line that sets a metric's direction, and the option it is written into."""
    line = f"better.{name} = down"
    return f"write {line} (or up), as CONFIG_REPORT_BETTER={shlex.quote(line)}"


def without_direction(names: Iterable[str], said: Said) -> list[str]:
    """Return the losses, scores and results of evaluations of which nothing says which way is better."""
    return [
        name
        for name in names
        if (re.search(MEASURED, name) or _OF_EVALUATION.match(name))
        and not row_of(name).about  # what has a row and no direction is no result
        and name not in said
    ]


def directions_needed(names: Sequence[str], *, typed: str = "") -> str:
    """Return one line on metrics without a direction, and what is `typed` to judge by the first of them."""
    first, more = names[0], len(names) - MOST_NAMED
    named = ", ".join(names[:MOST_NAMED]) + (f" and {counted(more, 'other')}" if more > 0 else "")
    it, key = "it" if len(names) == 1 else first, json.dumps(first)
    typed = typed or (
        f"kharness report --metric {shlex.quote(first)} --better {shlex.quote(f'{first}=up')} (or down)"
        f' judges by {it}; in kharness.toml metric = {key} and, below [better], {key} = "up"'
    )
    return f"{named} decide{'s' * (len(names) == 1)} nothing, for which way is better is unknown: {typed}"
