"""Pace: steps and samples between one reading and the next."""

from __future__ import annotations

import pytest

from monitoring.telemetry.pace import Pace


def test_without_steps_nothing_is_measured() -> None:
    assert Pace().read() == {"samples_per_sec": None, "sec_per_step": None}


def test_reading_begins_anew() -> None:
    pace = Pace()
    pace.step(64)
    pace.step(32)
    first = pace.read()
    assert first["samples_per_sec"] is not None
    assert first["sec_per_step"] is not None
    # 96 samples in 2 steps, whatever the time was
    assert first["samples_per_sec"] * first["sec_per_step"] == pytest.approx(48)
    assert pace.read() == {"samples_per_sec": None, "sec_per_step": None}


def test_restart_forgets_what_was_no_training() -> None:
    pace = Pace()
    pace.step(64)
    pace.restart()
    assert pace.read() == {"samples_per_sec": None, "sec_per_step": None}
