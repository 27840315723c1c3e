"""Differences between two variants in configuration, software and hardware."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from kharness.config.affects import Affects
from kharness.config.config_py import read_affects
from kharness.report.collection import REPLICATE_AXIS, Variant

_HASH = re.compile(r"[0-9a-f]{32,}")


def differences(a: Variant, b: Variant) -> Sequence[str]:
    """`LEARNING_RATE 0.05 -> 0.003`, from the start records of the first run of each that has one."""
    first, second = _start(a), _start(b)
    if not first or not second:
        return []
    affects = _affects([a, b])
    ours, theirs = _flat(first, affects), _flat(second, affects)
    return [
        f"{name} {_text(ours.get(name))} -> {_text(theirs.get(name))}"
        for name in [*ours, *(name for name in theirs if name not in ours)]
        if ours.get(name) != theirs.get(name)
    ]


def _affects(variants: Sequence[Variant]) -> Affects:
    """Return which options affect what, from the first run that recorded it."""
    runs = (cell.run.directory for variant in variants for cell in variant.cells)
    return next((found for run in runs if (found := read_affects(run)).words), Affects())


def _start(variant: Variant) -> Mapping[str, object]:
    return next((cell.run.start for cell in [*variant.complete, *variant.cells] if cell.run.start), {})


def _flat(start: Mapping[str, object], affects: Affects) -> Mapping[str, object]:
    """The options of the training, then data, device and code."""
    config = start.get("config")
    options = dict(config) if isinstance(config, Mapping) else {}
    names = affects.names(options, "results", "speed", "reporting", "machine")
    found = {
        name: options[name]
        for name in names
        if name != REPLICATE_AXIS and not affects.touches(name, "matrix")  # of the matrix around the runs
    }
    for name in ("data_sha256", "device", "cpu_threads"):
        found[name] = start.get(name)
    for group in ("git", "versions"):
        values = start.get(group)
        if isinstance(values, Mapping):
            found |= {f"{group}.{name}": value for name, value in values.items() if name != "dirty"}
    return found


def _text(value: object) -> str:
    text = "-" if value is None else str(value)
    return text[:12] if _HASH.fullmatch(text) else text
