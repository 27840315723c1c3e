"""What an option affects, as the `Affects:` line of its Kconfig help says: one word, or several.

    Affects: results, speed

results: what a training computes. speed: how long a step takes. reporting: what is recorded and shown.
machine: where and how it runs, such as device, folders, launcher and retries. matrix: the matrix around the
trainings, the same for all its cells.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

WORDS = ("results", "speed", "reporting", "machine", "matrix")
UNKNOWN = frozenset({"results", "speed"})
"""Of an option that nothing is known of, such as one that a later version has removed: the safe side."""

_MEMBERS = "members"
_LINE = "Affects:"


@dataclass(frozen=True)
class Affects:
    """What each option of a tree affects."""

    words: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By symbol."""
    members: frozenset[str] = frozenset()
    """Of choices: what they are, the symbol of their choice says, too."""

    def of(self, symbol: str) -> frozenset[str]:
        """Of one symbol; UNKNOWN for one that the tree lacks."""
        return self.words.get(symbol, UNKNOWN)

    def touches(self, symbol: str, *words: str) -> bool:
        """Whether a symbol affects one of these at least."""
        return not self.of(symbol).isdisjoint(words)

    def names(self, values: Iterable[str], *words: str) -> list[str]:
        """Those of some symbols that affect one of the words; members of choices are left to their choice."""
        return [name for name in values if name not in self.members and self.touches(name, *words)]

    @cached_property
    def groups(self) -> dict[str, str]:
        """As config.py has them: the symbols of each word, separated by blanks."""
        found = {word: " ".join(name for name, of in self.words.items() if word in of) for word in WORDS}
        return {**found, _MEMBERS: " ".join(sorted(self.members))}

    @classmethod
    def from_groups(cls, groups: Mapping[str, str]) -> Affects:
        """What `groups` gave."""
        of = {word: frozenset(text.split()) for word, text in groups.items()}
        members = of.pop(_MEMBERS, frozenset())
        names = frozenset().union(*of.values())
        return cls({name: frozenset(word for word in of if name in of[word]) for name in names}, members)


def read_line(help_text: str | None) -> frozenset[str] | None:
    """The words in a help text, None without an `Affects:` line; ValueError for an unknown one."""
    lines = [line.strip() for line in (help_text or "").splitlines()]
    found = [line.removeprefix(_LINE) for line in lines if line.startswith(_LINE)]
    if not found:
        return None
    words = [word.strip() for word in ",".join(found).split(",")]
    for word in words:
        if word not in WORDS:
            raise ValueError(f"'{_LINE} {word}' is none of {', '.join(WORDS)}")
    return frozenset(words)


def without_lines(help_text: str) -> str:
    """A help text in one line, for people who read the types and effects elsewhere."""
    lines = help_text.splitlines()
    return " ".join(line for line in lines if not line.startswith((_LINE, "Value:")))
