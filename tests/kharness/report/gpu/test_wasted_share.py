"""A share that may hide waiting is a lower bound, and nobody is called evenly loaded by it."""

from __future__ import annotations

import pytest

from kharness.report.gpu.balance import rank_lines
from kharness.report.gpu.history import GpuRecording
from monitoring.telemetry.load_balance import RankBalance, RankTimes


@pytest.mark.parametrize(
    ("unproven", "line"),
    [
        (
            "",
            "Ranks: wasted share = 2.0% (1 - mean/max of the ranks' own work, 9 step records); evenly loaded",
        ),
        (
            "collective_seconds not recorded by any rank",
            "Ranks: wasted share = at least 2.0% (1 - mean/max of the ranks' own work, 9 step records); "
            "not known whether they are evenly loaded: collective_seconds not recorded by any rank",
        ),
    ],
)
def test_share_without_proof_is_a_lower_bound(unproven: str, line: str) -> None:
    ranks = [RankTimes(rank, f"rank {rank}", {"data_seconds": 0.1}, 0.1, 1.0) for rank in range(4)]
    balance = RankBalance(ranks, 9, 0.02, 0.02, {}, unproven=unproven)
    assert rank_lines(GpuRecording(), balance, "")[0] == line


@pytest.mark.parametrize("lasting_share", [0.0, 0.04, 0.06, 0.4])
@pytest.mark.parametrize("unproven", ["", "collective_seconds not recorded by any rank"])
def test_evenly_loaded_never_stands_beside_a_large_wasted_share(lasting_share: float, unproven: str) -> None:
    ranks = [RankTimes(rank, f"rank {rank}", {"data_seconds": 0.1}, 0.1, 1.0) for rank in range(4)]
    balance = RankBalance(ranks, 9, 0.45, lasting_share, {}, unproven=unproven)
    said = rank_lines(GpuRecording(), balance, "")[0]
    assert "45.0%" in said
    assert "evenly loaded" not in said.replace("not known whether they are evenly loaded", "")
