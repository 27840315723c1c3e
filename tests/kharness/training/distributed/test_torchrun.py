"""The real torchrun: two agents that meet as those of two hosts do, with a rank each."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from monitoring import read_records

from ....ports import free_port
from ....warm_python import WarmPython

FLAGS = (
    *("--batch-size", "8", "--num-epochs", "1", "--max-steps", "2", "--device", "cpu", "--tracker", "none"),
    *("--log-every", "1"),
)


def test_two_agents_start_one_training(root: Path, tmp_path: Path, warm_torch: WarmPython) -> None:
    agent = [
        *("-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1", "--rdzv-backend", "c10d"),
        *("--rdzv-id", "hosts", "--rdzv-endpoint", f"127.0.0.1:{free_port()}"),
        *(root / "tests/data/ddp/train.py", "--run-dir", tmp_path / "run", *FLAGS),
    ]
    agents = [
        warm_torch.start(agent, env=dict(os.environ), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    printed = [process.communicate(timeout=600) for process in agents]
    assert [process.wait() for process in agents] == [0, 0], printed
    assert sorted("2 processes" in output for output, _ in printed) == [False, True]
    journals = [
        [dict(record) for record, _ in read_records(tmp_path / "run" / name)]
        for name in ("metrics.jsonl", "metrics.rank0001.jsonl")
    ]
    assert [journal[0]["world_size"] for journal in journals] == [2, 2]
    losses = [[r["train_loss"] for r in journal if r["event"] == "step"] for journal in journals]
    assert (len(losses[0]), losses[0]) == (2, losses[1])


@pytest.mark.parametrize(
    ("imported", "flags", "said"),  # flags are checked before torch is imported, and after it
    [
        (
            "warm_python",
            ("--optimizer", "none-such"),
            "error: --optimizer none-such: OPTIMIZER=none-such is not",
        ),
        ("warm_torch", ("--batch-size", "0"), "error: --batch-size 0: BATCH_SIZE=0 is outside 1..65536"),
    ],
)
def test_wrong_flags_are_reported_by_the_first_rank_alone(
    root: Path, imported: str, flags: tuple[str, ...], said: str, request: pytest.FixtureRequest
) -> None:
    warm: WarmPython = request.getfixturevalue(imported)
    of_all = {"WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    ranks = [
        warm.start(
            [root / "lenet5/train.py", *flags],
            env={**os.environ, **of_all, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for rank in range(3)
    ]
    printed = [process.communicate(timeout=600) for process in ranks]
    assert [process.wait() for process in ranks] == [2, 2, 2]
    assert printed[0][1].startswith(said)
    assert printed[1:] == [("", ""), ("", "")]
