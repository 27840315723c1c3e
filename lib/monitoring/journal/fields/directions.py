"""Whether a metric is better up or down: by its row or the user's setting; never guessed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from monitoring.journal.fields import row_of
from monitoring.journal.fields.row import Better

Said = Mapping[str, Better]
"""Metric -> direction set by the user, which overrides its row."""

_LINE = re.compile(r"\s*(?:better\.)?(?P<name>(?!better\.)\S[^=]*?)\s*=\s*(?P<better>up|down|neither)\s*")
_SEPARATOR = re.compile(r"[;\n]")


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
