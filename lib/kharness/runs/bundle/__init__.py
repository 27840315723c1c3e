"""A run or a matrix in one archive: `kharness bundle` writes it, commands on run directories read it."""

from __future__ import annotations

from pathlib import Path

from kharness.runs.files import BUNDLE


def is_bundle(place: Path) -> bool:
    return place.name.endswith(BUNDLE) and place.is_file()


def opened(place: Path) -> Path:
    """Return the directory of a run or a matrix: a bundle is unpacked first, anything else is as it is."""
    if not is_bundle(place):
        return place
    from kharness.runs.bundle.archive import unpacked  # here: hardly any place is one

    return unpacked(place)
