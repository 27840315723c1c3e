"""Who keeps the others waiting, and in which phase: four ranks, joined by gloo, one of them slow."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest

from kharness.report.gpu.balance import verdict
from kharness.report.summary import collect
from monitoring import read_records
from monitoring.agent.rule_watch import RuleWatch
from monitoring.journal.alerts import Alerts
from monitoring.terminal.run_view import RunView

from ....warm_python import WarmPython
from .ranks import run_ranks

SIZE = 4
CONFIG = {"ALERT_STRAGGLER_RECORDS": 5}
SLOW = {
    "data": (0, "data wait"),
    "forward": (1, "forward"),
    "backward": (2, "backward"),
    "optimizer": (3, "optimizer"),
}


@pytest.fixture(scope="module")
def trained(root: Path, tmp_path_factory: pytest.TempPathFactory, warm_torch: WarmPython) -> Path:
    """Four runs by tests/data/straggler/train.py: in each another rank and phase is slow."""
    folder = tmp_path_factory.mktemp("straggler")
    run_ranks(warm_torch, root / "tests/data/straggler/train.py", folder, SIZE)
    return folder


def watch(directory: Path) -> list[tuple[object, ...]]:
    """One life of an agent; what stands in alerts.jsonl after it."""
    with closing(Alerts(directory)) as alerts:
        rules = RuleWatch(directory, CONFIG, alerts)
        while rules.look(0.0, running=False):
            pass
    keys = ("rule", "state", "subject", "condition", "source", "global_step")
    return [tuple(alert.get(key) for key in keys) for alert, _ in read_records(directory / "alerts.jsonl")]


@pytest.mark.parametrize("phase", SLOW)
def test_report_alert_and_terminal_name_rank_and_phase(trained: Path, phase: str) -> None:
    directory, (rank, words) = trained / phase, SLOW[phase]
    cell = collect(directory).cells[0]
    ranks, _ = cell.ranks
    assert ranks is not None
    assert f"%) of each step for rank {rank} (" in verdict(cell.gpus, ranks)
    assert verdict(cell.gpus, ranks).endswith(f" in {words}")
    message = f"rank {rank} is slow in {words}: the others wait for it"
    expected = [("straggler", "firing", f"rank {rank}, {words}", message, "metrics.jsonl", 5)]
    assert watch(directory) == expected
    assert watch(directory) == expected  # an agent that is started again reports nothing twice
    view = RunView(directory)
    view.look()
    assert view.alert == message


def test_all_ranks_have_the_telemetry_of_all(trained: Path) -> None:
    """Ranks gather it by torch.distributed, without files: each of them has the same."""
    counts = [json.loads((trained / f"data/counts.{rank}").read_text()) for rank in range(SIZE)]
    assert counts == [[6] * SIZE] * SIZE
    found = json.loads((trained / "data/telemetry/telemetry_callback_all_ranks.json").read_text())
    assert [rank["timers"]["steps"]["count"] for rank in found.values()] == [6] * SIZE
