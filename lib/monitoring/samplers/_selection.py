"""Which GPUs a process may use, by the variables with which CUDA, HIP, ROCm and oneAPI are told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


class Identity:
    """What a GPU can be called by: its UUID, and those of its parts (MIG instances)."""

    def __init__(self, uuid: str | None, parts: Sequence[str] = ()) -> None:
        self.uuid = uuid
        self.parts = tuple(parts)

    def is_meant_by(self, word: str) -> bool:
        """CUDA takes the beginning of a UUID; the whole of one is meant if several begin so."""
        return any(name.startswith(word) for name in (self.uuid or "", *self.parts))


def visible(
    gpus: Sequence[Identity], variables: Sequence[str], environment: Mapping[str, str]
) -> list[tuple[int, str]]:
    """The places of the selected GPUs, rising, each with the word that selected it ("" if none was needed).

    `variables` act one after the other: the indices of each count in the order that the one before left. As
    CUDA has it, a list counts up to the first word that names no GPU, so `-1` and the empty text select none.
    """
    chosen = [(place, "") for place in range(len(gpus))]
    for variable in variables:
        if variable in environment:
            chosen = _select(gpus, chosen, environment[variable])
    return sorted(dict(reversed(chosen)).items())


def _select(gpus: Sequence[Identity], before: Sequence[tuple[int, str]], text: str) -> list[tuple[int, str]]:
    found = []
    for word in (word.strip() for word in text.split(",")):
        if word.isdigit():
            place = int(word)
            if place >= len(before):
                break
            found.append(before[place])
        else:
            named = [(place, word) for place, _ in before if word and gpus[place].is_meant_by(word)]
            exact = [(place, word) for place, _ in named if word in (gpus[place].uuid, *gpus[place].parts)]
            if len(exact or named) != 1:  # none, or ambiguous
                break
            found += exact or named
    return found
