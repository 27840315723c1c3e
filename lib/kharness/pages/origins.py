"""Options of several runs side by side, with who asked for each value."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kharness.config.affects import Affects
from kharness.config.assignment import origin_text, value_text
from kharness.config.config_py import ConfigPy, read_config_py
from kharness.config.errors import ConfigError
from kharness.config.places import CONFIG_PY
from kharness.config.record import read_record

# Runs that are put side by side.
MOST_RUNS = 50

DEFAULT = "default"

# They differ between all runs and say nothing of what was trained.
NAMES = ("TRACKER_RUN_NAME", "RESULTS_DIR")


def compared_options(directories: Sequence[Path]) -> dict[str, Any]:
    """Return each option that differs between runs: its value in each, and who asked for it.

    A run that has no config.py has null everywhere. An option that no run asked for follows from the
    others, as a default does.
    """
    shown = directories[:MOST_RUNS]
    configs = [_config(directory) for directory in shown]
    values = [dict(one.values) for one in configs]
    origins = [
        {one.symbol: origin_text(one.origin) for one in read_record(directory).asked} for directory in shown
    ]
    members = frozenset[str]().union(*(one.affects.members for one in configs))
    rows = []
    for name in dict.fromkeys(name for one in values for name in one):
        texts = [value_text(one[name]) if name in one else None for one in values]
        if name in members or name in NAMES or len(set(texts)) < 2:
            continue
        words = next((found for one in configs if (found := one.affects.words.get(name))), ())
        rows.append(
            {
                "name": name,
                "values": texts,
                "origins": [
                    _origin(name, of, own) if name in own else None
                    for of, own in zip(origins, values, strict=True)
                ],
                "affects": sorted(words),
            }
        )
    return {"options": rows, "configured": [bool(one) for one in values]}


def _config(directory: Path) -> ConfigPy:
    try:
        return read_config_py(directory / CONFIG_PY)
    except ConfigError:
        return ConfigPy({}, Affects())


def _origin(name: str, origins: dict[str, str], values: dict[str, Any]) -> str:
    """Return who asked for a value; a choice was asked for by the name of its member (`OPTIMIZER_ADAMW`)."""
    if name in origins:
        return origins[name]
    member = f"{name}_{values[name]}".upper().replace("-", "_") if isinstance(values[name], str) else ""
    return origins.get(member, DEFAULT)
