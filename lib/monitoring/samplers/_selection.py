"""Which GPUs a process may use, by the variables of CUDA, HIP, ROCm and oneAPI.

CUDA's and HIP's variables count as PyTorch reads them (`_parse_visible_devices` in torch/cuda/__init__.py),
ROCm's as its runtime does (RvdFilter in ROCR-Runtime;
rocm.docs.amd.com/en/latest/conceptual/gpu-isolation.html).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from monitoring.gpu.masks import environments


class Identity:
    """The names of a GPU: its UUID, and those of its parts (MIG instances)."""

    def __init__(self, uuid: str | None, parts: Sequence[str] = ()) -> None:
        self.uuid = uuid
        self.parts = tuple(parts)

    def is_meant_by(self, word: str) -> bool:
        """CUDA takes the beginning of a UUID; the full one is meant if several begin so."""
        return any(name.startswith(word) for name in (self.uuid or "", *self.parts))


# Variables in which indices and UUIDs may stand side by side. A GPU named twice ends such a list; any other
# list then names none.
# then names none.
MIXED = frozenset({"ROCR_VISIBLE_DEVICES"})


class Visible(NamedTuple):
    """A GPU that a process may use."""

    place: int
    """Its place among all of the vendor's."""
    number: int | None
    """N of `cuda:N` in that process; None of one that only another process may use."""
    word: str
    """The UUID, or its beginning, that selected it; empty for an index, or where nothing was needed."""


def visible_to_any(
    environment: Mapping[str, str], select: Callable[[Mapping[str, str]], Sequence[Visible]]
) -> list[Visible]:
    """Return the GPUs that `select` finds in an environment, and in those of further masks, once each."""
    own, *others = (select(one) for one in environments(environment))
    found = {one.place: one for one in own}
    for one in chain.from_iterable(others):
        found.setdefault(one.place, one._replace(number=None))
    return [found[place] for place in sorted(found)]


def visible(
    gpus: Sequence[Identity], variables: Sequence[str], environment: Mapping[str, str]
) -> list[Visible]:
    """Return the selected GPUs by rising place.

    `variables` act one after the other: the indices of each count in the order that the one before left. As
    CUDA has it, a list counts up to the first word that names no GPU, so `-1` and the empty text select none.
    """
    chosen = [(place, "") for place in range(len(gpus))]
    for variable in variables:
        if variable in environment:
            chosen = _select(gpus, chosen, environment[variable], is_mixed=variable in MIXED)
    found = (Visible(place, number, word) for number, (place, word) in enumerate(chosen))
    return sorted(found, key=lambda one: one.place)


def _select(
    gpus: Sequence[Identity], before: Sequence[tuple[int, str]], text: str, *, is_mixed: bool
) -> list[tuple[int, str]]:
    words = [word.strip() for word in text.split(",")]
    by_number = _number(words[0]) is not None
    found: list[tuple[int, str]] = []
    for word in words:
        number = _number(word)
        # CUDA takes a list of indices or one of UUIDs; its first word decides
        if not is_mixed and (number is not None) != by_number:
            break
        one = _named(gpus, before, word) if number is None else before[number : number + 1]
        if len(one) != 1:  # none, or ambiguous
            break
        place, taken = one[0][0], dict(found)
        if place not in taken:
            found += one
        elif not word.startswith("MIG") or word == taken[place]:  # of several instances CUDA uses the first
            return found if is_mixed else []
    return found


def _number(word: str) -> int | None:
    """Return the index that a word begins with, as strtoul() reads it; None for a UUID, and below 0."""
    digits = re.match(r"\+?([0-9]+)", word)
    return int(digits[1]) if digits else None


def _named(gpus: Sequence[Identity], before: Sequence[tuple[int, str]], word: str) -> list[tuple[int, str]]:
    """Return the GPUs that a UUID, or the beginning of one, may mean."""
    named = [(place, word) for place, _ in before if word and gpus[place].is_meant_by(word)]
    exact = [(place, word) for place, _ in named if word in (gpus[place].uuid, *gpus[place].parts)]
    return exact or named
