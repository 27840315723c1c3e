"""The CPU threads of cells: fixed by the plan, because another number would change the bits of results."""

from __future__ import annotations

import json

import pytest

from kharness.matrix.machine.cores import usable_cores
from kharness.matrix.machine.threads import Machine, cells_at_once, planning_machine, threads_of

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


@pytest.mark.parametrize(
    ("device", "cpus", "gpus", "cells", "threads"),
    [
        # A job of one cell has all for it; several share what their number and the cores allow.
        ("cpu", 8, 0, 1, 8),
        ("cpu", 8, 0, 4, 2),
        ("cpu", 8, 0, 100, 1),
        ("cpu", 8, 0, 0, 1),
        ("cpu", 0, 0, 4, 1),
        # On GPUs as many as there are for one each: two of two, here.
        ("cuda", 8, 0, 4, 8),
        ("cuda", 8, 4, 4, 4),
        ("cuda", 8, 4, 1, 8),
        ("auto", 8, 4, 0, 4),
        ("cpu", 8, 4, 0, 1),
    ],
)
def test_threads_are_the_share_of_a_job(device: str, cpus: int, gpus: int, cells: int, threads: int) -> None:
    """NUM_THREADS says another number, and JOBS none: it counts jobs there."""
    settings = {
        "LAUNCHER": "slurm",
        "LAUNCHER_SLURM_CPUS": cpus,
        "LAUNCHER_SLURM_GPUS": gpus,
        "MATRIX_CELLS_PER_JOB": cells,
        "MATRIX_GPUS_PER_CELL": 2,
        "MATRIX_JOBS": 3,
    }
    for asked, expected in (({"DEVICE": device}, threads), ({"DEVICE": device, "NUM_THREADS": 3}, 3)):
        machine = planning_machine([asked], settings=settings)
        assert threads_of(asked, cells_at_once(asked, settings), machine) == expected


def test_other_jobs_change_no_thread_of_a_planned_matrix(checkout: Checkout) -> None:
    code, output = checkout.run(
        "test_matrix", "CONFIG_MATRIX_AXES=SEED=1|2|3", "KEEP_GOING=n", "CONFIG_BEHAVIOR=once-exit-9@2"
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
