"""Which way a metric is better: as its row has it, or as people say it; what nobody said is not guessed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from monitoring.journal.fields import row_of
from monitoring.journal.fields.row import Better

Said = Mapping[str, Better]
"""Metric -> what people say of it, which goes before its row."""

_LINE = re.compile(r"\s*(?:better\.)?(?P<name>(?!better\.)\S[^=]*?)\s*=\s*(?P<better>up|down|neither)\s*")
_SEPARATOR = re.compile(r"[;\n]")


def read_directions(text: str) -> dict[str, Better]:
    """`better.wer = down; better.val/bleu = up`; ValueError with the part that is no such line."""
    found: dict[str, Better] = {}
    for part in filter(str.strip, _SEPARATOR.split(text)):
        line = _LINE.fullmatch(part)
        if line is None:
            raise ValueError(part.strip())
        better = line["better"]
        found[line["name"]] = "up" if better == "up" else "down" if better == "down" else "neither"
    return found


def better_of(name: str, said: Said) -> Better:
    """`neither` where nobody has said it."""
    return said.get(name) or row_of(name).better


def missing_direction(name: str) -> str:
    """The line that says which way it is better, and where it is written."""
    line = f"better.{name} = down"
    return f"write {line} (or up), as CONFIG_REPORT_BETTER={shlex.quote(line)}"
