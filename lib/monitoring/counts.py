"""Numbers with their nouns, for messages."""

from __future__ import annotations


def counted(number: int, thing: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{number} {thing}{'s' * (number != 1)}"
