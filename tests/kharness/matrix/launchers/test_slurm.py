"""Matrices on a real Slurm cluster of two nodes: what is submitted, what waits, and what is taken over."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import kharness

from ....slurm_cluster import SlurmCluster
from ....waiting import wait_until
from ..conftest import Checkout, attempts, behavior, printed, records, status
from .conftest import has_stepped, losses, starts

ON_SLURM = ("LAUNCHER=slurm", "CONFIG_LAUNCHER_SLURM_SIGNAL_SECONDS=5")
TWO = "CONFIG_MATRIX_AXES=SEED=1|2"


def test_a_matrix_is_few_arrays_and_few_questions(
    checkout: Checkout, slurm: SlurmCluster, on_slurm: dict[str, str]
) -> None:
    """Also in a folder whose name a shell would take for a command, and on GPUs that this machine lacks."""
    slurm.ask("sdiag", "--reset")
    folder = "re sults;$(touch harm)%a`touch harm`"
    code, output = checkout.run(
        "test_matrix", *ON_SLURM, f"CONFIG_RESULTS_DIR={folder}", environment=on_slurm
    )
    assert code == 0, output
    assert "  optimizer-adam_seed-2: complete: 3 steps in " in output
    assert "cores here" not in output
    latest = (checkout.root / folder / "latest").resolve()
    runs = sorted(path.parent for path in latest.glob("*/status.json"))
    jobs = {status(run)["attempts"][0]["slot"]["job"] for run in runs}
    assert len(runs) == 4
    # The index is below MaxArraySize, which is 3 here.
    assert sorted(job.partition("_")[2] for job in jobs) == ["0", "0", "1", "2"]
    assert len({job.partition("_")[0] for job in jobs}) == 2
    assert {attempts(run, "cause", "exit_code")[0] for run in runs} == {(None, 0)}
    assert {status(run)["attempts"][0]["job"]["host"] for run in runs} <= {"node1", "node2"}
    assert not list(checkout.root.rglob("harm"))
    # Submission and its test beside them, and those that the cluster asks itself.
    asked = dict(re.findall(r"^\s*(REQUEST_\w+)\s.*count:(\d+)", slurm.ask("sdiag"), flags=re.M))
    assert int(asked["REQUEST_SUBMIT_BATCH_JOB"]) == 2
    assert int(asked.get("REQUEST_JOB_INFO", 0)) + int(asked.get("REQUEST_JOB_USER_INFO", 0)) <= 6


def test_a_model_outside_of_the_tree(slurm: SlurmCluster, root: Path, tmp_path: Path) -> None:
    """`make M=DIR`: the nodes find its options, its code and its results."""
    folder = tmp_path / "my model"
    shutil.copytree(root / "examples/mymodel", folder, ignore=shutil.ignore_patterns("__pycache__"))
    asked = [f"M={folder}", *ON_SLURM, "CONFIG_MATRIX_AXES=SEED=3", "NUM_EPOCHS=1", "CONFIG_REPORT_GRAPHS=n"]
    done = subprocess.run(
        [sys.executable, root / "scripts/test_matrix.py", *asked],
        env={**os.environ, **slurm.environment, "PYTHONPATH": str(root / "lib")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = kharness.runs(folder / "results")
    assert (run.config["MODEL"], run.config["SEED"], run.status) == ("mymodel", 3, "complete")
    assert "job" in status(run.directory)["attempts"][0]["slot"]


def test_left_in_the_queue_and_taken_over(
    checkout: Checkout, slurm: SlurmCluster, on_slurm: dict[str, str]
) -> None:
    """A detached matrix waits, runs without a runner, and is reported by the next one, with nothing twice."""
    slurm.ask("scontrol", "update", "partition=closed", "state=down")
    arguments = [*ON_SLURM, TWO, "CONFIG_LAUNCHER_SLURM_PARTITION=closed", "DETACH=y"]
    code, output = checkout.run("test_matrix", *arguments, environment=on_slurm)
    assert code == 0, output
    assert "detached: the scheduler has 2 runs, and goes on without make" in output
    code, output = checkout.run("status", environment=on_slurm)
    assert "2 runs in the hands of the scheduler, 2 of them waiting; watch on with: make continue" in output
    assert "2 runs: 2 queued" in output
    assert "  seed-1: queued: PartitionDown" in output
    watcher = checkout.start("continue", env=on_slurm)
    wait_until(lambda: status(checkout.latest / "seed-1")["attempts"][0]["waiting"] == "PartitionDown")
    watcher.kill()
    watcher.communicate()
    slurm.ask("scontrol", "update", "partition=closed", "state=up")
    both = [checkout.latest / name for name in ("seed-1", "seed-2")]
    wait_until(lambda: all('"end"' in (run / "job.jsonl").read_text() for run in both), "the jobs")
    code, output = checkout.run("status", environment={**on_slurm, "PATH": "/usr/bin"})
    assert "2 runs: 2 complete" in output
    code, output = checkout.run("continue", "CONFIG_LAUNCHER_SLURM_PARTITION=main", environment=on_slurm)
    assert code == 0, output
    assert "matrix: complete: 2 runs" in output
    assert [len(starts(run)) for run in both] == [1, 1]


@pytest.mark.parametrize("asked", ["CONFIG_LAUNCHER_SLURM_PARTITION=main", "LAUNCHER=local"])
def test_what_waits_is_started_in_another_way(
    asked: str, checkout: Checkout, slurm: SlurmCluster, on_slurm: dict[str, str]
) -> None:
    """It would wait for ever in a partition that is down."""
    slurm.ask("scontrol", "update", "partition=closed", "state=down")
    before = set(slurm.jobs())
    arguments = [*ON_SLURM, TWO, "CONFIG_LAUNCHER_SLURM_PARTITION=closed", "DETACH=y"]
    code, output = checkout.run("test_matrix", *arguments, environment=on_slurm)
    assert code == 0, output
    code, output = checkout.run("continue", "DETACH=y", environment=on_slurm)
    assert "taken over: 2 runs that the scheduler runs or has in its queue" in output
    assert [slurm.jobs()[job] for job in sorted(set(slurm.jobs()) - before)] == ["PENDING"] * 2
    code, output = checkout.run("continue", asked, environment=on_slurm)
    assert code == 0, output
    assert output.startswith(
        "taken out of the queue: 2 runs, to be started as asked now\nmatrix: 2 of 2 runs left"
    )
    queue = "  submitted to partition main; CONFIG_LAUNCHER_SLURM_PARTITION=… with this call takes another"
    assert (queue in output.splitlines()) == (asked != "LAUNCHER=local")
    assert checkout.statuses() == {"seed-1": "complete", "seed-2": "complete"}
    # what was cancelled in the queue is one job to Slurm
    ended = ["CANCELLED"] + ["COMPLETED"] * 2 * (asked != "LAUNCHER=local")
    assert [slurm.jobs()[job] for job in sorted(set(slurm.jobs()) - before)] == ended
    for name in ("seed-1", "seed-2"):
        assert attempts(checkout.latest / name, "cause", "exit_code") == [(None, 0)]


# A sbatch whose caller is gone before or after the real one: it gets no answer.
SHIM = """#!/bin/sh
case "$*" in *--test-only*) exec {sbatch} "$@";; esac
{before}
{sbatch} "$@"
{after}
"""


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_runner_that_dies_at_its_submission(
    moment: str, checkout: Checkout, slurm: SlurmCluster, on_slurm: dict[str, str], tmp_path: Path
) -> None:
    shim = tmp_path / "bin" / "sbatch"
    shim.parent.mkdir()
    lines = {"before": "", "after": "", moment: "kill -9 $PPID" + "; exit 1" * (moment == "before")}
    shim.write_text(SHIM.format(sbatch="/usr/bin/sbatch", **lines))
    shim.chmod(0o755)
    there = {**on_slurm, "PATH": f"{shim.parent}:{on_slurm['PATH']}"}
    code, _ = checkout.run("test_matrix", *ON_SLURM, TWO, environment=there)
    assert code == -signal.SIGKILL
    assert checkout.statuses() == {"seed-1": "queued", "seed-2": "queued"}
    code, output = checkout.run("continue", environment=on_slurm)
    assert code == 0, output
    assert checkout.statuses() == {"seed-1": "complete", "seed-2": "complete"}
    for name in ("seed-1", "seed-2"):
        assert len(starts(checkout.latest / name)) == 1
        assert attempts(checkout.latest / name, "cause", "exit_code") == [(None, 0)]


def test_preempted_requeued_and_a_node_lost(
    checkout: Checkout, slurm: SlurmCluster, on_slurm: dict[str, str]
) -> None:
    """Each start is an attempt, none costs a retry, and the losses are those of an undisturbed run."""
    run = checkout.root / "results/latest/seed-1"
    arguments = [*ON_SLURM, "CONFIG_MATRIX_AXES=SEED=1", behavior("held"), "RETRIES=0"]
    runner = checkout.start("test_matrix", *arguments, "CONFIG_NUM_STEPS=6", env=on_slurm)
    wait_until(lambda: has_stepped(run), "the first attempt")
    slurm.submit("--partition=urgent", "--exclusive", "--nodes=2", command="true")
    wait_until(lambda: len(starts(run)) == 2 and len(records(run)) > 0, "the second attempt")
    wait_until(lambda: [one["event"] for one in records(run)].count("start") == 2, "its training")
    slurm.ask("scontrol", "requeue", starts(run)[-1]["job"])
    wait_until(lambda: len(starts(run)) == 3, "the third attempt")
    wait_until(lambda: [one["event"] for one in records(run)].count("start") == 3, "its training")
    slurm.crash(lost := starts(run)[-1]["node"])
    wait_until(lambda: len(starts(run)) == 4, "the fourth attempt")
    (checkout.root / "let-go").touch()
    output = runner.communicate(timeout=600)[0]
    slurm.start_node(lost)
    assert runner.returncode == 0, output
    assert attempts(run, "cause", "exit_code") == [
        ("preempted", 75),
        ("stopped", 75),
        ("node_failed", None),
        (None, 0),
    ]
    # A job that a busy machine lets end before Slurm starts it again is submitted anew, and counts from 0.
    jobs = [one["job"] for one in starts(run)]
    assert [one["restart"] for one in starts(run)] == [
        jobs[:place].count(job) for place, job in enumerate(jobs)
    ]
    assert jobs[1] == jobs[2]
    code, output = checkout.run("continue", environment=on_slurm)
    assert (code, "matrix: complete: 1 run" in output) == (0, True), output
    code, output = checkout.run("test_matrix", "CONFIG_MATRIX_AXES=SEED=1", "CONFIG_NUM_STEPS=6")
    assert code == 0, output
    assert losses(run.parent.parent / checkout.latest.name / "seed-1") == losses(run)


def test_stopped_by_ctrl_c_and_finished_on_this_machine(
    checkout: Checkout, slurm: SlurmCluster, on_slurm: dict[str, str]
) -> None:
    """Running cells save and waiting ones never start; another launcher continues both."""
    arguments = [*ON_SLURM, TWO, behavior("held"), "JOBS=1"]
    runner = checkout.start("test_matrix", *arguments, env=on_slurm)
    first, second = (checkout.root / "results/latest" / name for name in ("seed-1", "seed-2"))
    wait_until(lambda: has_stepped(first), "the first")
    wait_until(lambda: "JobArrayTaskLimit" in str(status(second)["attempts"][0]["waiting"]), "the second")
    runner.send_signal(signal.SIGINT)
    output = runner.communicate(timeout=600)[0]
    assert runner.returncode == 130, output
    assert attempts(first, "cause", "exit_code") == [("stopped", 75)]
    assert attempts(second, "cause", "exit_code") == [("stopped", None)]
    assert not (second / "job.jsonl").exists()
    waited = status(second)["attempts"][0]
    assert waited["started"] == waited["ended"] > waited["job"]["started"]
    (checkout.root / "let-go").touch()
    code, output = checkout.run("continue", "LAUNCHER=local")
    assert code == 0, output
    assert [len(status(run)["attempts"]) for run in (first, second)] == [2, 2]
    assert checkout.statuses() == {"seed-1": "complete", "seed-2": "complete"}


def test_cancelled_by_somebody_else(
    checkout: Checkout, slurm: SlurmCluster, on_slurm: dict[str, str]
) -> None:
    arguments = [*ON_SLURM, TWO, behavior("held"), "JOBS=1", "RETRIES=3"]
    runner = checkout.start("test_matrix", *arguments, env=on_slurm)
    first, second = (checkout.root / "results/latest" / name for name in ("seed-1", "seed-2"))
    wait_until(lambda: has_stepped(first), "the first")
    array = starts(first)[0]["job"].partition("_")[0]
    slurm.ask("scancel", array)
    output = runner.communicate(timeout=600)[0]
    assert runner.returncode == 3, output
    assert attempts(first, "cause", "exit_code") == [("cancelled", 75)]
    assert attempts(second, "cause", "exit_code") == [("cancelled", None)]


def refused(checkout: Checkout, *arguments: str, environment: dict[str, str]) -> tuple[str, ...]:
    """The two lines of a refusal, after which there is nothing."""
    code, output = checkout.run("test_matrix", *ON_SLURM, *arguments, environment=environment)
    assert (code, (checkout.root / "results").exists()) == (2, False), output
    return tuple(output.splitlines()[-2:])


def test_what_slurm_would_refuse_is_refused_first(
    checkout: Checkout, slurm: SlurmCluster, on_slurm: dict[str, str]
) -> None:
    option = "CONFIG_LAUNCHER_SLURM_"
    assert refused(checkout, f"{option}PARTITION=gpu", environment=on_slurm) == (
        "error: LAUNCHER_SLURM_PARTITION=gpu: there is no partition gpu",
        "hint: the cluster has main, urgent, closed",
    )
    away = {**on_slurm, "PATH": "/nowhere"}
    assert refused(checkout, environment=away) == (
        "error: LAUNCHER=slurm: there is no sbatch on the PATH",
        "hint: run it where sbatch and squeue work, such as the cluster's login node",
    )
    code, output = checkout.run("test_matrix_dry_run", *ON_SLURM, TWO, environment=on_slurm)
    assert code == 0, output
    assert "slurm: 1 job array of 2 tasks" in output
    assert re.search(r"sbatch --test-only: Job \d+ to start at ", output), output


def test_results_that_nodes_do_not_see(
    checkout: Checkout, slurm: SlurmCluster, on_slurm: dict[str, str]
) -> None:
    """The first job that cannot open its log takes those along that wait; none is left for `continue`."""
    slurm.ask("scontrol", "update", "partition=closed", "state=down")
    runner = checkout.start(
        "test_matrix", *ON_SLURM, TWO, "CONFIG_LAUNCHER_SLURM_PARTITION=closed", env=on_slurm
    )
    wait_until(lambda: "PENDING" in slurm.jobs().values(), "the array")
    folder = checkout.latest
    slurm.hide(folder.parent)
    first, second = sorted(job for job, state in slurm.jobs().items() if state == "PENDING")
    slurm.ask("scontrol", "uhold", second)
    slurm.ask("scontrol", "update", "partition=closed", "state=up")
    output = runner.communicate(timeout=600)[0]
    slurm.show(folder.parent)
    assert runner.returncode == 2, output
    (node,) = re.findall(r"^error: RESULTS_DIR: (node\d) ", output, flags=re.M)
    error = f"RESULTS_DIR: {node} cannot write to {folder}/.slurm, where the logs of its jobs are"
    assert output.splitlines()[-2:] == [
        f"error: {error}",
        "hint: set RESULTS_DIR to a folder that all nodes mount; where only these do not: "
        f"CONFIG_LAUNCHER_SLURM_SBATCH=--exclude={node}",
    ]
    both = [folder / name for name in ("seed-1", "seed-2")]
    assert [attempts(run, "cause", "reason") for run in both] == [[("refused", error)]] * 2
    assert [slurm.jobs()[job] for job in (first, second)] == ["FAILED", "CANCELLED"]
    code, output = checkout.run("continue", environment=on_slurm)
    assert (code, checkout.statuses()) == (0, {"seed-1": "complete", "seed-2": "complete"}), output


def test_a_single_training_is_a_job(
    checkout: Checkout, slurm: SlurmCluster, on_slurm: dict[str, str]
) -> None:
    """It waits, is left, taken over, and printed as on this machine; by .config alone, too."""
    slurm.ask("scontrol", "update", "partition=closed", "state=down")
    asked = ["CONFIG_TRACKER_RUN_NAME=mine", "CONFIG_LAUNCHER_SLURM_PARTITION=closed"]
    code, output = checkout.run("train", *ON_SLURM, *asked, "DETACH=y", environment=on_slurm)
    assert code == 0, output
    assert output.splitlines()[-5:] == [
        "detached: the scheduler has 1 run, and goes on without make",
        "next: how far it is:",
        "  make status RUN=results/mine",
        "next: watch on, and report at the end:",
        "  make continue RUN=results/mine",
    ]
    code, output = checkout.run("status", environment=on_slurm)
    assert "run results/mine: 1 run in the hands of the scheduler, 1 of them waiting" in output
    assert "  mine: queued: PartitionDown" in output
    watcher = checkout.start("continue", env=on_slurm)
    run = checkout.root / "results/mine"
    wait_until(lambda: status(run)["attempts"][0]["waiting"] == "PartitionDown", "its reason")
    slurm.ask("scontrol", "update", "partition=closed", "state=up")
    output = watcher.communicate(timeout=600)[0]
    assert watcher.returncode == 0, output
    node = status(run)["attempts"][0]["job"]["host"]
    assert f"queued: PartitionDown\nstarted on {node}\ntraining with sgd 0.1 in {checkout.root}\n" in output
    assert output.splitlines()[-4:-2] == [
        "next: its graphs and tables as files:",
        "  make report RUN=results/latest",
    ]
    assert len(starts(run)) == len(attempts(run)) == 1
    config = checkout.root / ".config"
    others = [line for line in config.read_text().splitlines() if "CONFIG_LAUNCHER_" not in line]
    config.write_text("\n".join([*others, "CONFIG_LAUNCHER_SLURM=y", ""]))
    code, output = checkout.run("train", "CONFIG_BEHAVIOR=crash", environment=on_slurm)
    assert code == 1, output
    assert "failed: exit code 1: RuntimeError: the loss is a banana" in output.splitlines()
    assert len(starts(checkout.latest)) == 1


def test_the_controller_is_away_for_a_while(
    checkout: Checkout, slurm: SlurmCluster, on_slurm: dict[str, str]
) -> None:
    """It is a note; what ends meanwhile is known from its file, and what runs is watched on."""
    runs = [checkout.root / "results/latest" / f"seed-{seed}" for seed in (1, 2)]
    runner = checkout.start("test_matrix", *ON_SLURM, TWO, behavior("held@2"), env=on_slurm)
    wait_until(lambda: has_stepped(runs[1]), "the second")
    slurm.stop_controller()
    away = next(line for line in printed(runner) if line.startswith("note:"))
    assert away.startswith("note: Slurm does not say how the jobs are: ")
    wait_until(lambda: [status(run)["status"] for run in runs] == ["complete", "running"], "the first")
    slurm.start_controller()
    wait_until(lambda: slurm.jobs() != {}, "the controller")
    (checkout.root / "let-go").touch()
    output = runner.communicate(timeout=600)[0]
    assert runner.returncode == 0, output
    assert [attempts(run, "cause", "exit_code") for run in runs] == [[(None, 0)], [(None, 0)]]


def test_munge_is_down(checkout: Checkout, slurm: SlurmCluster, on_slurm: dict[str, str]) -> None:
    """Said before Slurm's own programs, which try on for 50 seconds each."""
    slurm.stop_munge()
    try:
        found = refused(checkout, environment=on_slurm)
    finally:
        slurm.start_munge()
    assert found == (
        f"error: LAUNCHER=slurm: Slurm does not answer: munged does not answer at {slurm.folder}/munge/sock",
        "hint: `sinfo` and `squeue` show when it does",
    )
