"""How long each test took, kept for the next run; and what `make quick` needs: no test begins after its time.

Hooks of pytest, which tests/conftest.py imports.
"""

from __future__ import annotations

import json
import math
import os
import time
from pathlib import Path

import pytest

# Read here: the environment of tests is cleared of it.
UNTIL = float(os.environ.get("KHARNESS_UNTIL", "inf"))
# Seconds for which tests begin all the same, from the first of a process on.
AT_LEAST = float(os.environ.get("KHARNESS_AT_LEAST", "0"))
COUNTED = os.environ.get("KHARNESS_COUNTED", "")

KEPT = "kharness/seconds"
"""In pytest's cache: test -> seconds."""
OF_SLOW = 10.0
"""Seconds of a test that is marked slow and has not run here."""

_seconds: dict[str, float] = {}
_known: dict[str, float] = {}
_began: set[str] = set()
_collected = 0
_until = -math.inf
"""When no test begins any more: UNTIL, or later where the first one came late."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    global _collected
    _collected = len(items)
    if math.isfinite(UNTIL):
        _known.update(kept(config))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Leave out what would not end in time by what it took before; nobody reports a test that is left out."""
    global _until
    if not math.isfinite(_until):
        _until = max(UNTIL, time.monotonic() + AT_LEAST)
    usual = _known.get(item.nodeid, OF_SLOW if item.get_closest_marker("slow") else 0.0)
    if time.monotonic() + usual <= _until:
        return None
    # What the test before has left for this one: the next may be of another module.
    item.session._setupstate.teardown_exact(nextitem)
    return True


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _began.add(report.nodeid)
    _seconds[report.nodeid] = round(_seconds.get(report.nodeid, 0.0) + report.duration, 3)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(ids: list[str]) -> None:
    global _collected
    _collected = len(ids)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Only where all reports arrive: not in a worker."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        return
    if COUNTED:
        Path(COUNTED).write_text(json.dumps([len(_began), _collected]))
    if _seconds and hasattr(session.config, "cache"):
        session.config.cache.set(KEPT, {**kept(session.config), **_seconds})


def kept(config: pytest.Config) -> dict[str, float]:
    """Times in pytest's cache, empty where it is not used."""
    return dict(config.cache.get(KEPT, {})) if hasattr(config, "cache") else {}
