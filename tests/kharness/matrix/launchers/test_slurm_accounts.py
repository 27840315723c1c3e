"""A matrix on a real Slurm cluster that keeps accounts, by slurmdbd and a MariaDB of its own."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ....slurm_cluster import SlurmCluster, missing
from ....waiting import wait_until
from ..conftest import Checkout, attempts, behavior, printed, status

ON_SLURM = ("LAUNCHER=slurm", "CONFIG_LAUNCHER_SLURM_SIGNAL_SECONDS=5", "RETRIES=0", behavior("held"))


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    if reason := missing(accounting=True):
        pytest.skip(f"no Slurm with accounts here: {reason}")
    cluster = SlurmCluster(tmp_path_factory.mktemp("slurm"), nodes=2, cpus=1, accounting=True)
    with contextlib.ExitStack() as at_the_end:
        at_the_end.callback(cluster.stop)
        cluster.start()
        yield cluster


def set_limits(slurm: SlurmCluster, **limits: str) -> None:
    """The limits of the only user; empty for none."""
    words = [f"{name}={number or -1}" for name, number in limits.items()]
    slurm.ask("sacctmgr", "-i", "modify", "user", "root", "set", *words)

    def are_set() -> bool:
        shown = slurm.ask("scontrol", "show", "assoc", "users=root", "flags=assoc")
        return all(re.findall(rf" {name}=(\d*)", shown)[-1] == number for name, number in limits.items())

    wait_until(are_set, "the limits")


def test_limits_of_a_user(checkout: Checkout, slurm: SlurmCluster, root: Path) -> None:
    """Cells over the submit limit follow once there is room; those over the job limit wait."""
    there = {**os.environ, **slurm.environment, "PYTHONPATH": str(root / "lib")}
    runs = [checkout.root / "results/latest" / f"seed-{seed}" for seed in (1, 2, 3)]
    set_limits(slurm, MaxSubmitJobs="2", MaxJobs="1")
    others = slurm.submit("--partition=closed", "--array=0-1")
    runner = checkout.start_set_forward("test_matrix", *ON_SLURM, "CONFIG_MATRIX_AXES=SEED=1|2|3", env=there)
    full = next(line for line in printed(runner) if line.startswith("note:"))
    assert full.startswith("note: 3 cells wait for room in Slurm's queue: AssocMaxSubmitJobLimit; ")
    slurm.ask("scancel", others)
    wait_until(lambda: "PENDING" not in slurm.jobs().values(), "room")
    (checkout.root / "later").touch()
    wait_until(lambda: attempts(runs[1], "waiting") == [("AssocMaxJobsLimit",)], "the second")
    assert attempts(runs[2], "waiting") == [("not submitted yet",)]
    (checkout.root / "let-go").touch()
    output = runner.communicate(timeout=600)[0]
    assert runner.returncode == 0, output
    assert [attempts(run, "cause", "exit_code") for run in runs] == [[(None, 0)]] * 3
    set_limits(slurm, MaxSubmitJobs="", MaxJobs="")


def reason(run: Path) -> str:
    return str(status(run)["attempts"][-1]["reason"])


def test_why_jobs_ended_is_known_by_the_accounts(checkout: Checkout, slurm: SlurmCluster, root: Path) -> None:
    """The queue has forgotten them, and they have noted nothing; accounts that are down are a note."""
    there = {**os.environ, **slurm.environment, "PYTHONPATH": str(root / "lib")}
    lost, cancelled = (checkout.root / "results/latest" / name for name in ("seed-1", "seed-2"))

    def job(run: Path) -> dict[str, str]:
        events = map(json.loads, (run / "job.jsonl").read_text().splitlines())
        found: dict[str, str] = [event for event in events if event["event"] == "start"][-1]
        return found

    def both_have_stepped() -> bool:
        return all('"step"' in (run / "metrics.jsonl").read_text() for run in (lost, cancelled))

    arguments = [*ON_SLURM, "CONFIG_MATRIX_AXES=SEED=1|2"]
    code, output = checkout.run("test_matrix", *arguments, "DETACH=y", environment=there)
    assert code == 0, output
    wait_until(both_have_stepped, "both")
    lost, cancelled = lost.resolve(), cancelled.resolve()
    slurm.ask("scontrol", "update", f"jobid={job(lost)['job']}", "requeue=0")
    slurm.crash(node := job(lost)["node"])
    # An operator sees it at once, the controller within half a minute.
    slurm.ask("scontrol", "update", f"nodename={node}", "state=down", "reason=crashed")
    wait_until(lambda: "NODE_FAIL" in slurm.ask("sacct", "-n", "-X", "-o", "State"), "the accounts")
    slurm.start_node(node)
    watcher = checkout.start("continue", env=there)
    wait_until(lambda: status(lost)["status"] == "running", "its next attempt")
    wait_until(lambda: (lost / "metrics.jsonl").read_text().count('"start"') == 2, "its training")
    slurm.ask("scancel", job(cancelled)["job"])
    wait_until(lambda: status(cancelled)["status"] != "running", "the end of the other")
    assert attempts(lost, "cause")[0] == ("node_failed",)
    assert status(lost)["attempts"][0]["reason"] == f"its node failed on {node}"
    assert attempts(cancelled, "cause", "exit_code") == [("cancelled", 75)]
    assert reason(cancelled).startswith(f"its job was cancelled by root on {job(cancelled)['node']}")
    slurm.stop_accounting()
    slurm.ask("scancel", job(lost)["job"])
    small = ["CONFIG_LAUNCHER_SLURM_MEMORY_MB=1", "CONFIG_MATRIX_AXES=SEED=3"]
    other = checkout.start("test_matrix", *ON_SLURM, *small, env=there)
    wait_until(lambda: checkout.latest != lost.parent, "its folder")
    over = [checkout.latest / "seed-3", checkout.root / "packed" / "latest" / "seed-4"]
    packed = ["CONFIG_MATRIX_CELLS_PER_JOB=2", "CONFIG_RESULTS_DIR=packed", small[0]]
    shared = checkout.start("test_matrix", *ON_SLURM, *packed, "CONFIG_MATRIX_AXES=SEED=4", env=there)
    output = watcher.communicate(timeout=600)[0]
    assert watcher.returncode == 3, output
    assert "note: the accounts do not say why jobs have ended: " in output
    # The queue forgets after two seconds here, so that nobody can say who it was.
    assert attempts(lost, "exit_code")[1:] == [(75,)]
    for runner, run in zip((other, shared), over, strict=True):
        output = runner.communicate(timeout=600)[0]
        assert runner.returncode == 3, output
        assert attempts(run, "cause") == [("out_of_memory",)]
        # The step's watcher says it, with both numbers, or that of the job without.
        assert " memory limit" in reason(run)
