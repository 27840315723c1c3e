"""Effects of each option (results, speed, …), read from the `Affects:` line of its Kconfig help.

    Affects: results, speed

results: what a training computes. speed: how long a step takes. reporting: what is recorded and shown.
machine: where and how it runs, such as device, folders, launcher and retries. matrix: the matrix around the
trainings, the same for all its cells.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from kharness.config.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes as long as resolving all of a configuration
    from typing import Any

WORDS = ("results", "speed", "reporting", "machine", "matrix")
UNKNOWN = frozenset({"results", "speed"})
"""Assumed for an unknown option, such as one that a later version removed: the safe side."""

_MEMBERS = "members"
# They reach the launcher in the settings of the matrix: one that is no setting would keep its default.
_OF_LAUNCHERS = "LAUNCHER_"
_SETTING = frozenset({"machine", "matrix"})
_LINE = "Affects:"


@dataclass(frozen=True)
class Affects:
    """The words that each option of a tree affects."""

    words: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Words by symbol."""
    members: frozenset[str] = frozenset()
    """Members of choices, and bools that nobody sets: another symbol already says what they are."""

    def of(self, symbol: str) -> frozenset[str]:
        """Return a symbol's words for what it affects; UNKNOWN for one that the tree lacks."""
        return self.words.get(symbol, UNKNOWN)

    def touches(self, symbol: str, *words: str) -> bool:
        """Whether a symbol affects one of these at least."""
        return not self.of(symbol).isdisjoint(words)

    def names(self, values: Iterable[str], *words: str) -> Sequence[str]:
        """Those of some symbols that affect one of the words; members of choices are left to their choice."""
        asked = tuple(values), words
        if asked not in self._named:
            touched = frozenset(name for name in self.words if self.touches(name, *words)) - self.members
            # An option that the tree lacks affects what UNKNOWN says.
            left_out = self.words.keys() - touched | self.members
            known = UNKNOWN.isdisjoint(words)
            self._named[asked] = [n for n in asked[0] if (n in touched if known else n not in left_out)]
        return self._named[asked]

    @cached_property
    def _named(self) -> dict[tuple[tuple[str, ...], tuple[str, ...]], list[str]]:
        """Answers of `names`: a matrix asks the same of each cell."""
        return {}

    @cached_property
    def groups(self) -> dict[str, str]:
        """The form in config.py: the symbols of each word, separated by blanks."""
        found = {word: " ".join(name for name, of in self.words.items() if word in of) for word in WORDS}
        return {**found, _MEMBERS: " ".join(sorted(self.members))}

    @cached_property
    def source(self) -> str:
        """The groups as the lines of config.py."""
        return "\n".join(
            ["affects = {", *(f"    {word!r}: {of!r}," for word, of in self.groups.items()), "}"]
        )

    @classmethod
    def from_groups(cls, groups: Mapping[str, str]) -> Affects:
        """Rebuild from the value of `groups`."""
        of = {word: frozenset(text.split()) for word, text in groups.items()}
        members = of.pop(_MEMBERS, frozenset())
        names = frozenset().union(*of.values())
        return cls({name: frozenset(word for word in of if name in of[word]) for name in names}, members)


def read_affects(entries: Mapping[str, Iterable[Any]], members: frozenset[str]) -> Affects:
    """Read the words from the help texts in each symbol's Kconfig entries (kconfiglib's nodes).

    ConfigError for a word that is none, and for an option of a launcher that is not one of the matrix.
    """
    found: dict[str, frozenset[str]] = {}
    for symbol, nodes in entries.items():
        for node in nodes:
            try:
                words = read_line(node.help)
                if symbol.startswith(_OF_LAUNCHERS) and not _SETTING.issubset(words or ()):
                    raise ValueError(f"an option of a launcher needs '{_LINE} machine, matrix'")
            except ValueError as error:
                raise ConfigError(
                    f"{node.filename}:{node.linenr}: {symbol}: {error}",
                    hint="fix the Kconfig file",
                ) from None
            if words is not None:
                found[symbol] = words
                break
    return Affects(found, members)


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
