"""A whole matrix whose cells are forked, two at once, each on cores of its own."""

from __future__ import annotations

import json
from pathlib import Path

from kharness.matrix.machine.cores import usable_cores

from ....warm_python import WarmPython
from ..conftest import Checkout


def test_forked_cells_share_no_core(root: Path, tmp_path: Path, warm_torch: WarmPython) -> None:
    checkout = Checkout(tmp_path / "checkout", root, warm_torch)
    code, output = checkout.run(
        "test_matrix", "CONFIG_LAUNCHER_LOCAL_FORK_SERVER=y", "JOBS=2", "CONFIG_NUM_STEPS=20"
    )
    assert code == 0, output
    assert "note: runs start as fresh processes" not in output
    assert set(checkout.statuses().values()) == {"complete"}
    attempts = [
        json.loads(path.read_text())["attempts"][0] for path in sorted(checkout.latest.glob("*/status.json"))
    ]
    share = len(usable_cores()) // 2
    bound = {tuple(attempt["slot"]["cores"]) for attempt in attempts}
    assert len(bound) == (2 if share else 1)
    assert len(set().union(*bound)) == sum(map(len, bound))
    assert {attempt["slot"]["threads"] for attempt in attempts} == {share or 1}
