"""Slow steps: what the training causes is a warning, what other processes cause a note once it lasts."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from monitoring.journal.alerts import is_news
from monitoring.journal.records import read_records

from .test_rules import look, write

USUAL = (0.1, 0.0)
OWN = (0.25, 0.0)
OTHERS = (0.4, 0.3)
CROWDED = (0.5, 0.3)  # by itself twice as slow, as beside others that take its caches
BOTH = (0.8, 0.3)

SLOW = "steps take more than 1.5 times as long as before"
OTHER = f"other processes have the processors: {SLOW}"


def training(*parts: tuple[int, tuple[float, float]]) -> Iterable[dict[str, object]]:
    """Step records in parts of equal pace: seconds per step, and those of them without a processor."""
    time, step = 0.0, 0
    for count, (seconds, waited) in parts:
        for _ in range(count):
            time, step = time + seconds, step + 1
            values = {"sec_per_step": seconds, "cpu_wait_seconds": waited}
            yield {"event": "step", "time": time, "global_step": step, **values}


def alerts(directory: Path) -> list[tuple[object, object, object, bool]]:
    found = (alert for alert, _ in read_records(directory / "alerts.jsonl"))
    return [(it["severity"], it["state"], it["message"], is_news(it)) for it in found]


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([(100, USUAL), (20, OTHERS), (100, USUAL), (20, OTHERS), (100, USUAL)], []),  # bursts of 8 s
        ([(100, USUAL), (35, OWN), (200, USUAL)], []),  # for 8.75 s
        (
            [(100, USUAL), (200, OTHERS), (200, USUAL)],
            [
                (
                    "info",
                    "firing",
                    f"{OTHER}: 0.4 s at step 256, limit 0.15 s",
                ),
                (
                    "info",
                    "resolved",
                    f"no longer: {OTHER}: 0.1 s at step 407, limit 0.15 s",
                ),
            ],
        ),
        (
            [(100, USUAL), (60, OWN), (200, USUAL)],
            [
                ("warning", "firing", f"{SLOW}: 0.25 s at step 146, limit 0.15 s"),
                ("info", "resolved", f"no longer: {SLOW}: 0.1 s at step 266, limit 0.15 s"),
            ],
        ),
        ([(100, USUAL), (60, BOTH)], [("warning", "firing", f"{SLOW}: 0.5 s at step 118, limit 0.15 s")]),
        ([(100, USUAL), (60, OTHERS), (100, USUAL)], []),  # for 24 s
        (
            [(100, USUAL), (200, CROWDED)],
            [
                (
                    "info",
                    "firing",
                    f"{OTHER}: 0.5 s at step 226, limit 0.15 s",
                )
            ],
        ),
    ],
)
def test_slow_steps_are_told_with_their_cause(
    tmp_path: Path, parts: list[tuple[int, tuple[float, float]]], expected: list[tuple[object, ...]]
) -> None:
    write(tmp_path / "metrics.jsonl", training(*parts))
    look(tmp_path)
    is_warned = any(severity == "warning" for severity, *_ in expected)
    assert alerts(tmp_path) == [(*one, is_warned) for one in expected]


def test_every_tenth_step_is_slow_by_itself_or_by_others(tmp_path: Path) -> None:
    for name, waited in (("own", 0.0), ("others", 1.9)):
        rows = [(1, (2.0, waited) if step % 10 == 0 else USUAL) for step in range(400)]
        (tmp_path / name).mkdir()
        write(tmp_path / name / "metrics.jsonl", training(*rows))
        look(tmp_path / name)
    uneven = "some steps take so long that the mean is over 1.5 times the median"
    [(severity, _, message, _)] = alerts(tmp_path / "own")
    assert (severity, str(message).startswith(uneven)) == ("warning", True)
    assert alerts(tmp_path / "others") == []
