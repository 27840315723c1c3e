"""A rank that is late in any place of a step is named: three ranks of real DistributedDataParallel."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from kharness.report.gpu.balance import rank_lines
from kharness.report.summary import collect

from ....made_once import made_once
from ....warm_python import WarmPython
from .ranks import run_ranks

SIZE = 3
# Place -> the phase that it is in, without and with forward and backward apart.
IN_A_PART = {
    "before_model": ("forward and backward", "forward"),
    "forward": ("forward and backward", "forward"),
    "loss": ("forward and backward", "forward"),
    "backward": ("forward and backward", "backward"),
    "after_gradients": ("forward and backward", "backward"),
    "after_backward": ("forward and backward", "backward"),
    "data": ("data wait", "data wait"),
}
IN_A_STEP = {
    "before_update": ("optimizer", "optimizer"),
    "optimizer": ("optimizer", "optimizer"),
    "between_steps": ("work outside these phases", "work outside these phases"),
}
PLACES = IN_A_PART | IN_A_STEP
UNSTEADY = "their steps vary more than their means differ"
ROUNDS = 6
LATE_PARTS = (None, 0, 2)
"""Without accumulation; in a micro-batch that keeps its gradients, and in the last."""


def cases() -> list[dict[str, Any]]:
    """Half of the product, in which each combination of three of the four settings occurs."""
    made: list[dict[str, Any]] = []
    for place, has_buffers, late_part, records_parts in product(
        PLACES, (False, True), LATE_PARTS, (False, True)
    ):
        if place in IN_A_STEP and late_part:
            continue
        ways = list(PLACES).index(place) + LATE_PARTS.index(late_part) + has_buffers + records_parts
        if ways % 2:
            continue
        made.append(
            {
                "name": f"{place}-{has_buffers:d}-{late_part}-{records_parts:d}",
                "place": place,
                "late_rank": len(made) % SIZE,
                "has_buffers": has_buffers,
                "late_part": late_part,
                "records_parts": records_parts,
            }
        )
    return made


def told(folder: Path, case: dict[str, Any]) -> list[str]:
    cell = collect(folder / case["name"]).cells[0]
    return rank_lines(cell.gpus, *cell.ranks)


@pytest.fixture(scope="module")
def trained(root: Path, tmp_path_factory: pytest.TempPathFactory, warm_torch: WarmPython) -> Path:
    """A run of each case, by tests/data/delays/train.py, again where other work left too few equal steps."""

    def train(folder: Path) -> None:
        left = cases()
        for _ in range(ROUNDS):
            for case in left:
                shutil.rmtree(folder / case["name"], ignore_errors=True)
            (folder / "cases.json").write_text(json.dumps(left))
            run_ranks(warm_torch, root / "tests/data/delays/train.py", folder, SIZE)
            left = [case for case in left if UNSTEADY in told(folder, case)[0]]
            if not left:
                break

    return made_once(tmp_path_factory, "delays", train)


FIRST, *OTHERS = cases()  # with the first all are trained


@pytest.mark.parametrize(
    "case", [pytest.param(FIRST, marks=pytest.mark.slow), *OTHERS], ids=lambda case: case["name"]
)
def test_the_late_rank_and_its_phase_are_named(trained: Path, case: dict[str, Any]) -> None:
    lines = told(trained, case)
    phase = PLACES[case["place"]][case["records_parts"]]
    assert f"%) of each step for rank {case['late_rank']} (" in lines[0], lines
    assert lines[0].endswith(f" in {phase}"), lines


def test_a_model_is_watched_in_all_ways_of_averaging(
    root: Path, tmp_path: Path, warm_torch: WarmPython
) -> None:
    """Unused layers, a static graph, and ranks that join, whose hooks run outside of backward."""
    ranks = [
        warm_torch.start(
            [root / "tests/data/ddp/watched.py"],
            env={
                **os.environ,
                "KHARNESS_RENDEZVOUS_FILE": str(tmp_path / "meeting"),
                **dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), "2"),
                **dict.fromkeys(("RANK", "LOCAL_RANK"), str(rank)),
            },
            stdout=subprocess.PIPE,
        )
        for rank in range(2)
    ]
    early, late = (json.loads(rank.communicate(timeout=600)[0]) for rank in ranks)
    assert list(early) == list(late) == ["unused", "static", "static, unused"]
    for way, (own, _) in late.items():
        assert own >= 1, way
    for way, (_, waited) in early.items():
        assert waited > 0, way
