"""The CPU threads of cells: fixed by the plan, because another number would change the bits of results."""

from __future__ import annotations

import json

import pytest

from kharness.matrix.machine.cores import usable_cores
from kharness.matrix.machine.threads import Machine, threads_of

from ..conftest import Checkout


@pytest.mark.parametrize(
    ("asked", "jobs", "machine", "threads"),
    [
        ({"NUM_THREADS": 0}, 1, Machine(8, 0), 8),
        ({}, 1, Machine(8, 0), 8),
        ({"NUM_THREADS": 0}, 0, Machine(8, 0), 8),
        ({"NUM_THREADS": 0}, 3, Machine(8, 0), 2),
        ({"NUM_THREADS": 0}, 9, Machine(8, 0), 1),
        ({"NUM_THREADS": 5}, 3, Machine(8, 0), 5),
        ({"NUM_THREADS": 0, "DEVICE": "cuda"}, 1, Machine(8, 4), 2),
        ({"NUM_THREADS": 0, "DEVICE": "cuda"}, 8, Machine(8, 4), 1),
        ({"NUM_THREADS": 0, "DEVICE": "cpu"}, 1, Machine(8, 4), 8),
    ],
)
def test_threads_are_the_share_of_the_cores(
    asked: dict[str, object], jobs: int, machine: Machine, threads: int
) -> None:
    assert threads_of(asked, jobs, machine) == threads


def test_other_jobs_change_no_thread_of_a_planned_matrix(checkout: Checkout) -> None:
    code, output = checkout.run(
        "test_matrix", "CONFIG_MATRIX_AXES=SEED=1|2|3", "KEEP_GOING=n", "CONFIG_BEHAVIOUR=once-exit-9@2"
    )
    assert code == 3, output
    plan = json.loads((checkout.latest / "matrix.json").read_text())
    cores = len(usable_cores())
    assert plan["machine"] == {"cores": cores, "gpus": 0}
    assert [cell["threads"] for cell in plan["cells"]] == [cores] * 3
    code, output = checkout.run("continue", f"JOBS={cores + 1}", "KEEP_GOING=y")
    assert code == 0, output
    assert checkout.run("test_rerun", "FILTER=SEED=1", "JOBS=2")[0] == 0
    statuses = [json.loads((checkout.latest / f"seed-{n}" / "status.json").read_text()) for n in (1, 2, 3)]
    threads = [[attempt["slot"]["threads"] for attempt in status["attempts"]] for status in statuses]
    assert threads == [[cores, cores], [cores, cores], [cores]]
