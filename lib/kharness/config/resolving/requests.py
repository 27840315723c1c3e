"""Put requests into kconfiglib's tree, which takes as long as all else of a cell where each begins anew."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from kharness.config.assignment import Assignment

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes as long as resolving all of a configuration
    from typing import Any


class Requests:
    """Puts requests into kconfiglib's tree; in a batch only what differs from the one before."""

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
