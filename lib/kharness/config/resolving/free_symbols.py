"""Symbols that no other depends on, such as SEED: requests that differ in these alone have like outcomes.

    known = KnownOutcomes(kconf, free_symbols(kconf, kconfiglib))
    known.keep(asked, resolved)
    known.find(other)                the outcome of another request, or None where it has to be computed

Cells of a matrix mostly differ in their seed; the other values of a configuration, 300 of them, are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from kharness.config.assignment import Assignment, Resolved
from kharness.config.resolving.stand_ins import has_prompt
from kharness.config.values import Value

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes as long as resolving all of a configuration
    from typing import Any


class KnownOutcomes:
    """Outcomes of earlier requests, by everything in them but the free symbols."""

    def __init__(self, kconf: Any, free: frozenset[str]) -> None:
        self._symbols: Mapping[str, Any] = kconf.syms
        self._free = free
        self._found: dict[Hashable, tuple[Resolved, Mapping[str, str]]] = {}

    def find(
        self,
        asked: Sequence[Assignment],
        took: Callable[[Assignment], bool],
        typed: Callable[[Any], Value],
    ) -> Resolved | None:
        """The outcome of a request that is in kconfiglib's tree already; None where it is not known."""
        found = self._found.get(self._key(asked))
        free = [a for a in asked if a.symbol in self._free]
        if found is None or not all(map(took, free)):
            return None
        known, lines = found
        text, minimal = known.text, f"\n{known.minimal}"
        for a in free:
            old, new = f"\n{lines[a.symbol]}", f"\n{self._symbols[a.symbol].config_string}"
            text, minimal = text.replace(old, new, 1), minimal.replace(old, new, 1)
        return replace(
            known,
            values={**known.values, **{a.symbol: typed(self._symbols[a.symbol]) for a in free}},
            text=text,
            minimal=minimal[1:],
            asked=asked,
            origins={**known.origins, **{a.symbol: a.origin for a in free}},
        )

    def keep(self, asked: Sequence[Assignment], resolved: Resolved) -> None:
        """Note an outcome whose request is in kconfiglib's tree, and all of which took."""
        free = [a.symbol for a in asked if a.symbol in self._free]
        lines = {name: str(self._symbols[name].config_string) for name in free}
        if all(lines.values()):
            self._found[self._key(asked)] = resolved, lines

    def _key(self, asked: Sequence[Assignment]) -> Hashable:
        """Whether a free symbol has its default counts, too: then it is not in the minimal configuration."""
        return tuple((a.symbol, self._has_default(a.symbol)) if a.symbol in self._free else a for a in asked)

    def _has_default(self, name: str) -> bool:
        symbol = self._symbols[name]
        return bool(symbol.str_value == symbol._str_default())


def free_symbols(kconf: Any, lib: Any) -> frozenset[str]:
    """Numbers and texts with a prompt, whose value no symbol, choice, menu or comment depends on.

    `lib` is the module kconfiglib.
    """
    conditions = [node.dep for node in kconf.node_iter()]
    conditions += [node.visibility for node in kconf.node_iter() if node.item is lib.MENU]
    looked_at = {item for condition in conditions for item in lib.expr_items(condition)}
    return frozenset(
        symbol.name
        for symbol in kconf.unique_defined_syms
        if symbol.orig_type is not lib.BOOL
        and has_prompt(symbol)
        and not symbol._dependents
        and symbol not in looked_at
    )


class Requests:
    """Puts requests into kconfiglib's tree; in a batch only what differs from the one before.

    A whole request takes as long as all else of a cell.
    """

    def __init__(self, kconf: Any, free: frozenset[str]) -> None:
        self._kconf = kconf
        self._free = free
        self._is_batch = False
        # Without the free symbols: what was put in last, and what is there and has been resolved.
        self._last: list[tuple[str, str]] = []
        self._in_place: list[tuple[str, str]] | None = None

    def apply(self, asked: Iterable[Assignment]) -> None:
        """Make these the values of the tree, all others its defaults."""
        self._kconf.warnings.clear()
        symbols = self._kconf.syms
        free: list[tuple[str, str]] = []
        fixed: list[tuple[str, str]] = []
        for a in asked:
            (free if a.symbol in self._free else fixed).append((a.symbol, a.value))
        if fixed == self._in_place:
            for name in self._free.difference(name for name, _ in free):
                symbols[name].unset_value()
        else:
            self._kconf.unset_values()
            for name, value in fixed:
                symbols[name].set_value(value)
        for name, value in free:
            symbols[name].set_value(value)
        # kconfiglib warns once of a value that it holds: the next request has to begin anew.
        self._last, self._in_place = fixed, None

    def resolved(self) -> None:
        """Note that what was put in last has an outcome, and no warning."""
        self._in_place = self._last if self._is_batch else None

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Trust that nobody else changes the tree in this block."""
        self._is_batch = True
        try:
            yield
        finally:
            self._is_batch, self._in_place = False, None
