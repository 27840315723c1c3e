"""Numbers with their nouns and lists of names, for messages."""

from __future__ import annotations

from collections.abc import Sequence


def counted(number: int, thing: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{number} {thing}{'s' * (number != 1)}"


def listed(names: Sequence[str], last: str = "and") -> str:
    """`a, b and c`."""
    return f" {last} ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)


def cut_list(names: Sequence[str], most: int, separator: str = ", ") -> str:
    """`a, b and 3 more`: the first `most` of some names."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return separator.join(names[:most]) + more
