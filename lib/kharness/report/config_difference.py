"""What two variants were configured with differently, and what they ran on."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from kharness.report.collection import REPLICATE_AXIS, Variant

_HASH = re.compile(r"[0-9a-f]{32,}")
# Of the matrix around the runs, or different in every run.
_NOT_OF_THE_TRAINING = (
    *("LAUNCHER_", "MATRIX_", "REPORT_", "SWEEP_"),
    *("RESULTS_DIR", "TRACKER_RUN_NAME", REPLICATE_AXIS),
)


def differences(a: Variant, b: Variant) -> Sequence[str]:
    """`LEARNING_RATE 0.05 -> 0.003`, from the start records of the first run of each that has one."""
    first, second = _start(a), _start(b)
    if not first or not second:
        return []
    ours, theirs = _flat(first), _flat(second)
    different = [
        name
        for name in [*ours, *(name for name in theirs if name not in ours)]
        if ours.get(name) != theirs.get(name)
    ]
    # OPTIMIZER_ADAM is told by OPTIMIZER, whose member it is
    members = {
        f"{name}_{value}".upper().replace("-", "_")
        for name in different
        for value in (ours.get(name), theirs.get(name))
        if isinstance(value, str)
    }
    return [
        f"{name} {_text(ours.get(name))} -> {_text(theirs.get(name))}"
        for name in different
        if name not in members
    ]


def _start(variant: Variant) -> Mapping[str, object]:
    return next((cell.run.start for cell in [*variant.complete, *variant.cells] if cell.run.start), {})


def _flat(start: Mapping[str, object]) -> Mapping[str, object]:
    """The options of the training, then data, device and code."""
    config = start.get("config")
    options = dict(config) if isinstance(config, Mapping) else {}
    found = {name: value for name, value in options.items() if not name.startswith(_NOT_OF_THE_TRAINING)}
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
