"""How often rules that judge curves are right: precision and recall on labeled curves, and a real one."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import orjson
import pytest

from monitoring.rules import Finding, events_of, open_rule
from monitoring.rules.memory_leak import BINS

from .labeled_curves import FAMILIES, Row

RULES = ("loss_spike", "memory_leak", "overfitting", "step_time", "vanishing_gradient")

SEEDS = 10


def changes(rule: str, rows: Iterable[Row], **options: object) -> list[tuple[object, bool]]:
    """Where a subject of the rule begins to hold and ceases to."""
    opened, events = open_rule(rule, options), events_of(rule)
    held: dict[str, bool] = {}
    found = []
    for row in rows:
        findings: Iterable[Finding] = opened.update(row) if events is None or row["event"] in events else ()
        for finding in findings:
            if finding.holds != held.get(finding.subject, False):
                held[finding.subject] = finding.holds
                found.append((row.get("global_step"), finding.holds))
    return found


@cache
def curves() -> dict[str, list[list[Row]]]:
    """Family -> its curves."""
    return {
        family.__name__: [list(family(random.Random(f"{family.__name__}{seed}"))) for seed in range(SEEDS)]
        for family in FAMILIES
    }


@cache
def fired(rule: str) -> dict[str, int]:
    """Family -> of how many of its curves the rule warns."""
    return {family: sum(bool(changes(rule, rows)) for rows in found) for family, found in curves().items()}


@pytest.mark.parametrize("rule", RULES)
def test_rule_warns_of_its_own_family_and_of_no_other(rule: str) -> None:
    found = dict(fired(rule))
    right, wrong = found.pop(rule), sum(found.values())
    assert right / SEEDS >= 0.9
    assert right / (right + wrong) >= 0.9


@pytest.mark.parametrize("rule", ["diverged", "gradient_norm"])
def test_rule_warns_of_no_family(rule: str) -> None:
    assert sum(fired(rule).values()) == 0


def recorded(root: Path) -> Iterator[Row]:
    curves = orjson.loads((root / "tests/data/curves/lenet5_40_epochs.json").read_bytes())
    columns = ("train_loss", "grad_norm", "sec_per_step", "cpu_mem_rss_mb")
    for step, values in enumerate(zip(*(curves[name] for name in columns), strict=True), start=1):
        row = {
            "event": "step",
            "time": step / 10,
            "global_step": step,
            **dict(zip(columns, values, strict=True)),
        }
        yield row
        if str(step) in curves["val_loss"]:
            yield {**row, "event": "eval", "val_loss": curves["val_loss"][str(step)]}


def test_real_training_overfits_from_where_its_validation_loss_rises(root: Path) -> None:
    """Its lowest validation loss, 0.0171, is that of step 2380; it then stays near 0.025.

    Other programs made its steps slower: 0.06 s in the beginning, 0.085 s before step 710, 0.14 s later.
    """
    found = {rule: changes(rule, recorded(root)) for rule in (*RULES, "diverged", "gradient_norm")}
    assert found.pop("overfitting") == [(2635, True)]
    slow = found.pop("step_time")
    assert [holds for _, holds in slow] == [True, False] * (len(slow) // 2) + [True] * (len(slow) % 2)
    assert all(int(str(step)) > 700 for step, _ in slow)
    assert not any(found.values())


def noisy(*levels: tuple[int, float]) -> list[Row]:
    """Step records at each loss for its number of steps, with 2% of noise."""
    noise = random.Random(1)
    losses = [level * noise.gauss(1.0, 0.02) for count, level in levels for _ in range(count)]
    return [
        {"event": "step", "global_step": step, "train_loss": loss}
        for step, loss in enumerate(losses, start=1)
    ]


@pytest.mark.parametrize(
    ("chance", "levels", "expected"),
    [
        (2.303, [(300, 2.303)], [(279, True)]),  # never learns: after three quarters, and 50 records more
        (None, [(300, 2.303)], []),  # what a guess has is not known, and a fine-tuning may gain little
        (2.303, [(99, 2.303)], []),  # a trial of whether it runs
        (2.303, [(250, 2.303), (50, 2.0)], []),  # begins to learn late
        (2.303, [(50, 2.3), (100, 0.5), (150, 2.303)], [(234, True)]),  # loses it
        (None, [(50, 2.3), (100, 0.5), (150, 2.303)], [(234, True)]),
        (None, [(50, 2.3), (100, 0.5), (60, 2.303), (90, 0.5)], []),  # comes back
        (None, [(50, 2.3), (150, 9.0), (100, 0.5)], [(114, True), (229, False)]),  # explodes, and recovers
        (2.303, [(10, 9.0), (290, 2.303)], [(279, True)]),  # of first weights that are worse than a guess
        (3.26, [(20, 5.4), (280, 3.26)], []),  # has learned how frequent each token is, and is on its way
        (3.26, [(20, 5.4), (280, 3.5)], [(279, True)]),  # not even that
        (None, [(300, -5.0)], []),  # no loss that a share means anything of
    ],
)
def test_training_has_diverged_where_its_loss_says_so(
    chance: float | None, levels: list[tuple[int, float]], expected: list[tuple[int, bool]]
) -> None:
    rows = noisy(*levels)
    start = {"event": "start", "num_steps": len(rows), "chance_loss": chance, "resumed_from": None}
    assert changes("diverged", [start, *rows]) == expected


def test_training_without_a_plan_is_judged_at_its_end() -> None:
    rows = [{"event": "start", "chance_loss": 2.303}, *noisy((120, 2.303))]
    assert changes("diverged", [*rows, {"event": "end", "status": "interrupted"}]) == []
    assert changes("diverged", [*rows, {"event": "end", "status": "complete"}]) == [(None, True)]


def test_slow_downs_that_come_step_by_step_or_now_and_then() -> None:
    def rows(seconds: Callable[[int], float]) -> list[Row]:
        return [{"event": "step", "global_step": step, "sec_per_step": seconds(step)} for step in range(600)]

    assert changes("step_time", rows(lambda step: 0.1 * (1 + step / 600))) == [(357, True)]
    assert changes("step_time", rows(lambda step: 0.1 * (20 if step % 10 == 0 else 1))) == [(89, True)]
    late = [(289, True)]
    assert changes("step_time", rows(lambda step: 0.1 * (20 if step % 10 == 0 and step > 200 else 1))) == late
    assert changes("step_time", rows(lambda step: 0.1 * (20 if step % 100 == 0 else 1))) == []


def test_leak_of_two_percent_an_hour_is_found_within_five_hours() -> None:
    rows: list[Row] = [
        {"event": "step", "time": 60.0 * i, "global_step": i, "cpu_mem_rss_mb": 2000 * (1 + 0.02 * i / 60)}
        for i in range(60 * 8)
    ]
    [(step, holds)] = changes("memory_leak", rows)
    assert (holds, int(str(step)) / 60 < 5) == (True, True)


def test_cache_that_fills_ever_more_slowly_is_no_leak() -> None:
    rows: list[Row] = [
        {
            "event": "step",
            "time": 60.0 * i,
            "global_step": i,
            "cpu_mem_rss_mb": 3000 - 1000 * math.exp(-i / 12),
        }
        for i in range(60 * 8)
    ]
    assert changes("memory_leak", rows) == []


def test_leak_is_over_when_memory_stays(root: Path) -> None:
    """A part of a window is 60 s long; memory rises for 20 of them."""
    memory = [1000.0 + 20 * min(part, 20) for part in range(60) for _ in range(6)]
    rows = [
        {"event": "step", "time": 10.0 * i, "global_step": i, "cpu_mem_rss_mb": value}
        for i, value in enumerate(memory)
    ]
    found = changes("memory_leak", rows, ALERT_MEMORY_LEAK_SECONDS=60.0 * BINS)
    assert [(int(str(step)) // 6, holds) for step, holds in found] == [(10, True), (26, False)]


def machine(**values: object) -> Row:
    return {"event": "system", "host": "node1", **values}


@pytest.mark.parametrize(
    ("rule", "well", "bad", "message"),
    [
        (
            "host_memory",
            {"memory_usage_percent": 90.0},
            {"memory_usage_percent": 90.5},
            "node1: more than 90% of the memory is in use",
        ),
        (
            "disk_full",
            {"disk_usage_percent": 97.0, "disk_free_gb": 2.5},
            {"disk_usage_percent": 50.0, "disk_free_gb": 1.5},
            "node1: the disk of the run directory is more than 98% full or has less than 2 GB left",
        ),
        (
            "disk_full",
            {"disk_usage_percent": 97.0, "disk_free_gb": 2.5},
            {"disk_usage_percent": 98.5, "disk_free_gb": 90.0},
            "node1: the disk of the run directory is more than 98% full or has less than 2 GB left",
        ),
    ],
)
def test_machine_that_is_full(rule: str, well: dict[str, Any], bad: dict[str, Any], message: str) -> None:
    opened = open_rule(rule, {})
    assert [finding.holds for finding in opened.update(machine(**well))] == [False]
    [found] = opened.update(machine(**bad))
    assert (found.holds, found.message, found.subject) == (True, message, "node1")
    assert opened.update(machine(**dict.fromkeys(well))) == ()
    assert opened.hold > 0


def test_gpu_memory_has_a_warning_and_an_error() -> None:
    held = {}
    for used in (89, 92, 96):
        gpu = {"index": 0, "uuid": "GPU-a", "state": "ok", "memory_used_mb": used, "memory_total_mb": 100}
        record: Row = {"event": "gpu", "multi_gpu_data": [gpu]}
        held[used] = [
            (open_rule(rule, {}).severity, finding.holds)
            for rule in ("gpu_memory", "gpu_memory_full")
            for finding in open_rule(rule, {}).update(record)
        ]
    assert held == {
        89: [("warning", False), ("error", False)],
        92: [("warning", True), ("error", False)],
        96: [("warning", True), ("error", True)],
    }
