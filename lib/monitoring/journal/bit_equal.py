"""Two journals of the same training, compared bit for bit."""

from __future__ import annotations

import contextlib
import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

from monitoring.host.environment import hardware
from monitoring.journal.end_status import INTERRUPTED
from monitoring.journal.fields import is_result
from monitoring.journal.files import JOURNAL
from monitoring.journal.lineage import Lineage, counting
from monitoring.journal.records import MEASURING, Record, read_records

# Fields that say what a record is of, and those that say whether it counts here.
_KEYED, _READ = frozenset({"event", "global_step", "split"}), frozenset({"reason"})

_PACKAGES = ("torch", "torchvision", "numpy", "triton")

# What a start record says about the machine beside its `numerics`, by its field and the name of a part of it.
_MACHINE = (
    ("device", None),
    ("cpu_threads", None),
    ("hardware", "cpu"),
    ("hardware", "gpus"),
    *(("versions", package) for package in ("python", *_PACKAGES)),
)


@dataclass(frozen=True)
class BitComparison:
    """Outcome of a bitwise comparison."""

    equal: int
    """Number of equal records before the first different one."""
    difference: str
    """The first difference in one line; empty without one."""
    on_request: int = 0
    """Checkpoints that the first run made because it was stopped, and the second did not."""
    same: Sequence[str] = ()
    """Metrics that are equal in every record."""
    others: Sequence[str] = ()
    """Those that are not."""


def machine_differences(run: Path, other: Path) -> list[str]:
    """Differences of the machines and packages of two runs, such as `torch: 2.13.0, now 2.14.0`.

    What decides the bits of a GPU comes first. What one of the runs did not record is left out.
    """
    (*_, after) = Lineage.read(other / JOURNAL).starts
    now, found = _machine(after), dict[str, None]()
    for start in Lineage.read(run / JOURNAL).starts:
        for name, value in _machine(start).items():
            if name in now and value != now[name]:
                found[f"{name}: {_text(value)}, now {_text(now[name])}"] = None
    return list(found)


def differences_here(start: Record) -> list[str]:
    """Differences of this machine and its packages from those of a run, as far as is known before it runs.

    GPUs, and what torch computes with, are compared when the training has begun.
    """
    here: dict[str, object] = {"python": platform.python_version(), "cpu": hardware()["cpu"]}
    for package in _PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            here[package] = version(package)
    then = _machine(start)
    names = [name for name in ("cpu", "python", *_PACKAGES) if then.get(name) is not None]
    return [
        f"{name}: {_text(then[name])}, here {_text(here.get(name, 'none'))}"
        for name in names
        if _release(then[name]) != _release(here.get(name))
    ]


def _release(version: object) -> str:
    """A version without its build, such as +cpu, which metadata may leave out."""
    return str(version).partition("+")[0]


def _machine(start: Record) -> dict[str, object]:
    numerics = start.get("numerics")
    found = {**numerics} if isinstance(numerics, Mapping) else {}
    found.pop("gpu", None)  # one of hardware's
    return found | {part or field: _part(start.get(field), part) for field, part in _MACHINE}


def compare(run: Path, other: Path) -> BitComparison:
    """Every value of `run` that counts with that of `other`; what `other` has beyond those is not looked at.

    Values are matched by event, step and split. What `monitoring.journal.fields` has as of the machine
    (times, speeds, memory, paths) is no result; a field that it does not know is one.
    """
    before, after = (Lineage.read(directory / JOURNAL) for directory in (run, other))
    data = [lineage.starts[-1].get("data_sha256") for lineage in (before, after)]
    if data[0] != data[1]:
        return BitComparison(
            0, f"the data: SHA-256 {_text(data[0])} in {run.name}, {_text(data[1])} in {other.name}"
        )
    first, second = _results(run), _results(other)
    equal, on_request, difference = 0, 0, ""
    others: dict[str, None] = {}
    for key, record in first.items():
        match = second.get(key)
        # Somebody asked the first run for it by a request, and nobody asked the second.
        if match is None and key.event == "checkpoint" and record.get("reason"):
            on_request += 1
            continue
        found = f"{_named(key)} is missing in {other.name}" if match is None else ""
        for field, value in record.items():
            # By their JSON: to Python 1.0, 1 and True are equal.
            if is_result(field) and json.dumps(value) != json.dumps((match or {}).get(field)):
                others[field] = None
                values = f"{_text(value)} in {run.name}, {_text((match or {}).get(field))} in {other.name}"
                found = found or f"{_named(key)}: {field}: {values}"
        difference = difference or found
        equal += not difference
    measured = {field: None for record in first.values() for field in record if is_result(field)}
    same = [field for field in measured if field not in others]
    return BitComparison(equal, difference, on_request, same, list(others))


class _Key(NamedTuple):
    """Event, step and split of a value; `again` counts values that are there several times."""

    event: object
    step: object
    split: object
    again: int = 0


def _results(run: Path) -> dict[_Key, Record]:
    """Return the values of each step, evaluation …: a program reports them in other groups each time."""
    records = counting(record for record, _ in read_records(run / JOURNAL))
    found: dict[_Key, Record] = {}
    for record in records:
        event = record.get("event")
        if event not in MEASURING or (event == "end" and record.get("status") == INTERRUPTED):
            continue
        key = _Key(event, record.get("global_step"), record.get("split"))
        found.setdefault(key, {})
        for field, value in record.items():
            if field in _KEYED or not (is_result(field) or field in _READ):
                continue
            place = key
            while field in found.setdefault(place, {}):
                place = place._replace(again=place.again + 1)
            found[place][field] = value
    return found


def _named(key: _Key) -> str:
    of = f" of step {key.step}" if key.step is not None else ""
    return f"the {key.event} record{of}{f' ({key.split})' if key.split else ''}"


def _part(value: object, part: str | None) -> object:
    if part is None or not isinstance(value, Mapping):
        return value
    return value.get(part)


def _text(value: object) -> str:
    return json.dumps(value) if not isinstance(value, str) else value
