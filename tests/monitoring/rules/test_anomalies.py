"""How often rules that judge curves are right: precision and recall on labelled curves, and a real one."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import orjson
import pytest

from monitoring.rules import Finding, events_of, open_rule
from monitoring.rules.memory_leak import BINS

from .labelled_curves import FAMILIES, Row

RULES = ("loss_spike", "memory_leak", "overfitting", "step_time", "vanishing_gradient")

SEEDS = 10


def changes(rule: str, rows: Iterable[Row], **options: object) -> list[tuple[object, bool]]:
    """Where the rule's first subject begins to hold and ceases to."""
    opened, events = open_rule(rule, options), events_of(rule)
    held, found = False, []
    for row in rows:
        findings: Iterable[Finding] = opened.update(row) if events is None or row["event"] in events else ()
        for finding in findings:
            if finding.holds != held:
                held = finding.holds
                found.append((row.get("global_step"), held))
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
def test_rule_warns_of_its_own_family_and_of_no_other(rule: str, root: Path) -> None:
    """The figures stand in the docs."""
    found = dict(fired(rule))
    right, wrong = found.pop(rule), sum(found.values())
    recall, precision = right / SEEDS, right / (right + wrong)
    assert recall >= 0.9
    assert precision >= 0.9
    table = (root / "docs/alerts.md").read_text()
    row = [line for line in table.splitlines() if line.startswith(f"| `{rule}` |")][-1]
    assert re.findall(r"(\d+)%", row) == [f"{100 * precision:.0f}", f"{100 * recall:.0f}"]


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

    Other programs, which ran beside it from about step 2,100 on, made its steps slower.
    """
    found = {rule: changes(rule, recorded(root)) for rule in RULES}
    assert found.pop("overfitting") == [(2635, True)]
    slow = found.pop("step_time")
    assert [holds for _, holds in slow] == [True, False] * (len(slow) // 2) + [True] * (len(slow) % 2)
    assert all(int(str(step)) > 2000 for step, _ in slow)
    assert found == {"loss_spike": [], "memory_leak": [], "vanishing_gradient": []}


def test_leak_is_over_when_memory_stays(root: Path) -> None:
    """A part of a window is 60 s long; memory rises for 20 of them."""
    memory = [1000.0 + 20 * min(part, 20) for part in range(60) for _ in range(6)]
    rows = [
        {"event": "step", "time": 10.0 * i, "global_step": i, "cpu_mem_rss_mb": value}
        for i, value in enumerate(memory)
    ]
    found = changes("memory_leak", rows, ALERT_MEMORY_LEAK_SECONDS=60.0 * BINS)
    assert [(int(str(step)) // 6, holds) for step, holds in found] == [(10, True), (23, False)]


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
            "node1: the disk of the run directory is nearly full",
        ),
        (
            "disk_full",
            {"disk_usage_percent": 97.0, "disk_free_gb": 2.5},
            {"disk_usage_percent": 98.5, "disk_free_gb": 90.0},
            "node1: the disk of the run directory is nearly full",
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
