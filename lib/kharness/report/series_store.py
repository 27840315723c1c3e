"""Numbers of many runs in a file without a name, so that ten thousand journals need no memory."""

from __future__ import annotations

import os
import tempfile
import weakref
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import Any, NamedTuple, overload

from kharness.report.runs import Key, Series

_ITEM = array("d").itemsize
# Arrays of steps that stay in memory: nearly all runs of a matrix have those of another one.
_KEPT = 16


class NumberStore:
    """Blocks of numbers, in the folder of temporary files; gone with the process, however that ends."""

    def __init__(self) -> None:
        self._size = 0
        self._file: int | None = None
        with suppress(OSError), tempfile.TemporaryFile() as file:
            self._file = os.dup(file.fileno())
            weakref.finalize(self, os.close, self._file)

    def put(self, *columns: array[Any]) -> int:
        """Store a block and return where it begins; OSError where there is no room for it."""
        data = b"".join(column.tobytes() for column in columns)
        if self._file is None or os.pwrite(self._file, data, self._size) < len(data):
            raise OSError("no room for temporary files")
        self._size += len(data)
        return self._size - len(data)

    def get(self, kind: str, begins: int, count: int) -> array[Any]:
        """Return so many numbers."""
        found = array(kind)
        if self._file is not None:
            found.frombytes(os.pread(self._file, count * _ITEM, begins))
        return found


class StoredNumbers(Sequence[float]):
    """A column, which is read whenever it is looked at."""

    __slots__ = ("_begins", "_count", "_store")

    def __init__(self, store: NumberStore, begins: int, count: int) -> None:
        self._store, self._begins, self._count = store, begins, count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> float: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[float]: ...
    def __getitem__(self, index: int | slice) -> float | Sequence[float]:
        return self._numbers()[index]

    def __iter__(self) -> Iterator[float]:
        return iter(self._numbers())

    def _numbers(self) -> array[float]:
        return self._store.get("d", self._begins, self._count)


def stored(store: NumberStore, numbers: array[float]) -> Sequence[float]:
    """Return the numbers as a column of the store, or as they are where there is no room for them."""
    with suppress(OSError):
        return StoredNumbers(store, store.put(numbers), len(numbers))
    return numbers


class SeriesPlace(NamedTuple):
    """Where a series is."""

    steps: int
    values: int
    """Bytes from where those of the run begin."""
    number: int


Layout = Mapping[Key, SeriesPlace]


class SeriesStore:
    """Series of runs; steps that several runs have are there once."""

    def __init__(self) -> None:
        self._numbers = NumberStore()
        self._steps: dict[bytes, int] = {}
        """Digest -> where they begin."""
        self._layouts: dict[tuple[tuple[Key, SeriesPlace], ...], Layout] = {}
        self._recent: dict[int, array[int]] = {}

    def put(self, series: Mapping[Key, Series]) -> tuple[int, Layout]:
        """Store those of a run and return where they are; OSError where there is no room for them."""
        layout: dict[Key, SeriesPlace] = {}
        size = 0
        for key, one in series.items():
            layout[key] = SeriesPlace(self._stored_steps(one.steps), size, len(one))
            size += len(one) * _ITEM
        return self._numbers.put(*(one.values for one in series.values())), layout

    def at(self, begins: int, layout: Layout) -> SeriesOfRun:
        """Return what `put` has stored; alike runs share where in their block everything is."""
        return SeriesOfRun(self, begins, self._layouts.setdefault(tuple(layout.items()), layout))

    def read(self, begins: int, place: SeriesPlace) -> Series:
        """Read one series of a run."""
        steps = self._recent.get(place.steps)
        if steps is None or len(steps) != place.number:
            steps = self._recent[place.steps] = self._numbers.get("q", place.steps, place.number)
            if len(self._recent) > _KEPT:
                del self._recent[next(iter(self._recent))]
        return Series(steps, self._numbers.get("d", begins + place.values, place.number))

    def _stored_steps(self, steps: array[int]) -> int:
        digest = blake2b(steps.tobytes(), digest_size=16).digest()
        if digest not in self._steps:
            self._steps[digest] = self._numbers.put(steps)
        return self._steps[digest]


class SeriesOfRun(Mapping[Key, Series]):
    """The series of a run, each read whenever it is asked for."""

    __slots__ = ("_begins", "_layout", "_store")

    def __init__(self, store: SeriesStore, begins: int, layout: Layout) -> None:
        self._store, self._begins, self._layout = store, begins, layout

    def __getitem__(self, key: Key) -> Series:
        return self._store.read(self._begins, self._layout[key])

    def __iter__(self) -> Iterator[Key]:
        return iter(self._layout)

    def __len__(self) -> int:
        return len(self._layout)
