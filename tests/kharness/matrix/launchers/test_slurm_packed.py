"""Cells that share a job of a real Slurm cluster: one after the other, and several at once."""

from __future__ import annotations

import signal
from pathlib import Path

import psutil

from kharness.matrix.launchers._slurm_arrays import leave_stop
from kharness.runs.jobs.job_file import read_starts
from kharness.runs.launch import Launch

from ....processes import naming
from ....slurm_cluster import SlurmCluster
from ....waiting import wait_until
from ..conftest import Checkout, attempts, behavior, printed, records, status
from .conftest import has_stepped, losses, starts

ON_SLURM = ("LAUNCHER=slurm", "CONFIG_LAUNCHER_SLURM_SIGNAL_SECONDS=5")
TWO = "CONFIG_MATRIX_AXES=SEED=1|2"
PACKED = "CONFIG_MATRIX_AXES=SEED=1|2|3"


def test_cells_that_share_a_job(checkout: Checkout, slurm: SlurmCluster, on_slurm: dict[str, str]) -> None:
    """Preempted it goes on where it was; what dies costs one attempt of the cell that ran."""
    runs = [checkout.root / "results/latest" / f"seed-{seed}" for seed in (1, 2, 3)]
    arguments = [*ON_SLURM, PACKED, "CONFIG_MATRIX_CELLS_PER_JOB=3", behavior("held@2")]
    runner = checkout.start("test_matrix", *arguments, env=on_slurm)
    wait_until(lambda: has_stepped(runs[1]), "the second cell")
    assert status(runs[2])["status"] == "queued"
    slurm.submit("--partition=urgent", "--exclusive", "--nodes=2", command="true")
    wait_until(lambda: len(starts(runs[1])) == 2, "its second attempt")
    wait_until(lambda: [one["event"] for one in records(runs[1])].count("start") == 2, "its training")
    (job,) = job_programs(runs[0])
    job.kill()
    wait_until(lambda: len(starts(runs[1])) == 3, "its third attempt")
    (checkout.root / "let-go").touch()
    output = runner.communicate(timeout=600)[0]
    assert runner.returncode == 0, output
    assert [attempts(run, "cause", "exit_code") for run in runs] == [
        [(None, 0)],
        [("preempted", 75), ("signal", None), (None, 0)],
        [("node_failed", None), (None, 0)],
    ]
    assert status(runs[2])["attempts"][0]["reason"] == "its job ended before its turn"
    assert [len(starts(run)) for run in runs] == [1, 3, 1]
    assert starts(runs[0])[0]["job"] == starts(runs[1])[0]["job"]
    assert [(run / "output.log").read_text().count("training with") for run in runs] == [1, 3, 1]


def test_one_cell_of_a_job_is_ended(
    checkout: Checkout, slurm: SlurmCluster, on_slurm: dict[str, str]
) -> None:
    """TIMEOUT ends a cell and the next one starts, also without a runner; after Ctrl-C no other starts."""
    packed = [*ON_SLURM, TWO, "CONFIG_MATRIX_CELLS_PER_JOB=2"]
    code, output = checkout.run(
        "test_matrix", *packed, behavior("hang@1"), "TIMEOUT=1", "DETACH=y", environment=on_slurm
    )
    assert code == 0, output
    run = checkout.latest / "seed-2"
    wait_until(lambda: (run / "job.jsonl").exists() and '"end"' in (run / "job.jsonl").read_text(), "the end")
    code, output = checkout.run("status")
    assert "2 runs: 1 complete, 1 timeout" in output
    assert "  seed-1: timeout: over TIMEOUT=1; stopped on request after step 1" in output
    runner = checkout.start("test_matrix", *packed, behavior("held"), env=on_slurm)
    wait_until(lambda: checkout.latest != run.parent, "its folder")
    first, second = (checkout.latest / name for name in ("seed-1", "seed-2"))
    wait_until(lambda: has_stepped(first), "the first")
    runner.send_signal(signal.SIGINT)
    output = runner.communicate(timeout=600)[0]
    assert runner.returncode == 130, output
    assert attempts(first, "cause", "exit_code") == [("stopped", 75)]
    assert attempts(second, "cause", "exit_code") == [("stopped", None)]
    wait_until(lambda: "RUNNING" not in slurm.jobs().values(), "the end of their job")
    assert not (second / "metrics.jsonl").exists()


AT_ONCE = ("CONFIG_MATRIX_CELLS_PER_JOB=3", "CONFIG_LAUNCHER_SLURM_CPUS=2")


def job_programs(run: Path) -> list[psutil.Process]:
    """The programs of the jobs of the matrix that a run is of."""
    return naming(f"{run.parent.resolve()}/.slurm")


def training(checkout: Checkout, name: str) -> psutil.Process:
    """The process of a cell, whose own id is that of its node."""
    here = [one for one in psutil.process_iter(["cmdline", "cwd"]) if one.info["cwd"] == str(checkout.root)]
    words = {one: one.info["cmdline"] or ["", ""] for one in here}
    (found,) = (one for one in here if "train.py" in words[one][1] and words[one][-1].endswith(name))
    return found


def test_cells_of_a_job_run_at_once(
    checkout: Checkout, slurm: SlurmCluster, on_slurm: dict[str, str]
) -> None:
    """Two cells that wait for each other share a job's cores, the third follows; losses equal `local`'s."""
    arguments = [PACKED, behavior("meet-2"), "CONFIG_NUM_STEPS=6"]
    code, output = checkout.run("test_matrix", *ON_SLURM, *AT_ONCE, *arguments, environment=on_slurm)
    assert code == 0, output
    runs = [checkout.latest / f"seed-{seed}" for seed in (1, 2, 3)]
    slots = [status(run)["attempts"][0]["slot"] for run in runs]
    assert [(slot["threads"], slot["job"]) for slot in slots] == [(1, starts(runs[0])[0]["job"])] * 3
    ends = [status(run)["attempts"][0]["ended"] for run in runs]
    assert starts(runs[1])[0]["time"] < ends[0]
    assert starts(runs[2])[0]["time"] >= min(ends[:2])
    on_cluster = [losses(run) for run in runs]
    code, output = checkout.run("test_matrix", *arguments)
    assert code == 0, output
    assert [losses(checkout.latest / run.name) for run in runs] == on_cluster


def test_cells_of_a_job_share_its_gpus(
    checkout: Checkout, slurm: SlurmCluster, on_slurm: dict[str, str]
) -> None:
    """Each has MATRIX_GPUS_PER_CELL of LAUNCHER_SLURM_GPUS, and the job a CPU for each cell at a time."""
    asked = ["DEVICE=cuda", "CONFIG_LAUNCHER_SLURM_GPUS=2", *AT_ONCE[:1], PACKED, behavior("meet-2")]
    code, output = checkout.run("test_matrix_dry_run", *ON_SLURM, *asked, environment=on_slurm)
    assert code == 0, output
    assert "slurm: 1 job array of 1 task, each of up to 3 cells, 2 at a time\n" in output
    assert " --cpus-per-task=2 --gres=gpu:2 " in output
    code, output = checkout.run("test_matrix", *ON_SLURM, *asked, environment=on_slurm)
    assert code == 0, output
    runs = [checkout.latest / f"seed-{seed}" for seed in (1, 2, 3)]
    gpus = [status(run)["attempts"][0]["slot"]["gpus"] for run in runs]
    assert sorted(gpus[:2]) == [["0"], ["1"]]
    for run, (gpu,) in zip(runs, gpus, strict=True):
        assert f"\non {gpu}\n" in (run / "output.log").read_text()
    refused = [*asked[:1], *AT_ONCE[:1], "CONFIG_LAUNCHER_SLURM_GPUS=3"]
    code, output = checkout.run("test_matrix", *ON_SLURM, *refused, environment=on_slurm)
    assert (code, output.splitlines()[-2]) == (
        2,
        "error: LAUNCHER_SLURM_GPUS=3 is more than the 2 GPUs per node of partition main",
    )


def test_cells_at_once_are_killed_and_preempted(
    checkout: Checkout, slurm: SlurmCluster, on_slurm: dict[str, str]
) -> None:
    """One that is killed takes no other along; preempted all save, and go on when the job starts again."""
    runs = [checkout.root / "results/latest" / f"seed-{seed}" for seed in (1, 2, 3)]
    arguments = [*ON_SLURM, *AT_ONCE, PACKED, behavior("held"), "RETRIES=0"]
    runner = checkout.start("test_matrix", *arguments, env=on_slurm)
    wait_until(lambda: all(map(has_stepped, runs[:2])), "two at once")
    training(checkout, "/seed-1").kill()
    wait_until(lambda: has_stepped(runs[2]), "the third")
    slurm.submit("--partition=urgent", "--exclusive", "--nodes=2", command="true")
    wait_until(lambda: [len(starts(run)) for run in runs] == [1, 2, 2], "their next start")
    wait_until(
        lambda: all([one["event"] for one in records(run)].count("start") == 2 for run in runs[1:]),
        "their trainings",
    )
    (checkout.root / "let-go").touch()
    output = runner.communicate(timeout=600)[0]
    assert runner.returncode == 3, output
    assert [attempts(run, "cause", "exit_code") for run in runs] == [
        [("signal", None)],
        *([[("preempted", 75), (None, 0)]] * 2),
    ]
    for run in runs[1:]:
        assert list(losses(run)) == [1, 2, 3]


def test_cells_at_once_outlive_their_runner_and_their_job(
    checkout: Checkout, slurm: SlurmCluster, on_slurm: dict[str, str]
) -> None:
    """A lost terminal leaves them to the next; a job that is killed costs each that ran one attempt, and the
    third none."""
    runs = [checkout.root / "results/latest" / f"seed-{seed}" for seed in (1, 2, 3)]
    runner = checkout.start("test_matrix", *ON_SLURM, *AT_ONCE, PACKED, behavior("held"), env=on_slurm)
    wait_until(lambda: all(map(has_stepped, runs[:2])), "two at once")
    runner.send_signal(signal.SIGHUP)
    output = runner.communicate(timeout=600)[0]
    assert runner.returncode == 0, output
    assert "detached: the scheduler has 3 runs, and goes on without make\n" in output
    assert "3 runs in the hands of the scheduler" in checkout.run("status", environment=on_slurm)[1]
    watcher = checkout.start("continue", env=on_slurm)
    over = next(line for line in printed(watcher) if line.startswith("taken over: "))
    assert over == "taken over: 3 runs that the scheduler runs or has in its queue\n"
    turn = "its job runs other cells first"
    wait_until(lambda: attempts(runs[2], "waiting") == [(turn,)], "the third")
    (job,) = job_programs(runs[0])
    job.kill()
    wait_until(lambda: [len(starts(run)) for run in runs[:2]] == [2, 2], "their second attempts")
    (checkout.root / "let-go").touch()
    output = watcher.communicate(timeout=600)[0]
    assert watcher.returncode == 0, output
    assert [attempts(run, "cause", "exit_code") for run in runs] == [
        *([[("signal", None), (None, 0)]] * 2),
        [("node_failed", None), (None, 0)],
    ]


def test_one_of_several_cells_at_once_is_stopped(
    checkout: Checkout, slurm: SlurmCluster, on_slurm: dict[str, str]
) -> None:
    """A cell that the runner stops saves, the other continues, and the third takes its place."""
    packed = [*ON_SLURM, *AT_ONCE, PACKED, behavior("held"), "DETACH=y"]
    code, output = checkout.run("test_matrix", *packed, environment=on_slurm)
    assert code == 0, output
    runs = [checkout.latest / f"seed-{seed}" for seed in (1, 2, 3)]
    wait_until(lambda: all(map(has_stepped, runs[:2])), "two")
    begun = starts(runs[0])[0]
    leave_stop(Launch("seed-1", runs[0], checkout.root, "pretender", {}), begun["submission"], kill=False)
    slurm.ask("scancel", "--signal=USR2", "--batch", begun["job"])
    wait_until(lambda: has_stepped(runs[2]), "the third")
    (stopped,) = read_starts(runs[0], begun["submission"])
    assert stopped.end
    assert (stopped.end.exit_code, stopped.end.cause) == (75, "stopped")
    (other,) = read_starts(runs[1], starts(runs[1])[0]["submission"])
    assert other.end is None
    (checkout.root / "let-go").touch()
    wait_until(lambda: "RUNNING" not in slurm.jobs().values(), "the end of their job")
    assert "3 runs: 2 complete, 1 interrupted" in checkout.run("status")[1]


def test_one_of_several_cells_at_once_is_ended(
    checkout: Checkout, slurm: SlurmCluster, on_slurm: dict[str, str]
) -> None:
    """After a TIMEOUT the other cells continue; on Ctrl-C the running ones save, the third never starts."""
    packed = [*ON_SLURM, *AT_ONCE, PACKED]
    over = [behavior("hang@1"), "TIMEOUT=1"]
    code, output = checkout.run("test_matrix", *packed, *over, environment=on_slurm)
    assert code == 3, output
    assert checkout.statuses() == {"seed-1": "timeout", "seed-2": "complete", "seed-3": "complete"}
    earlier = checkout.latest
    runner = checkout.start("test_matrix", *packed, behavior("held"), env=on_slurm)
    wait_until(lambda: checkout.latest != earlier, "its folder")
    runs = [checkout.latest / f"seed-{seed}" for seed in (1, 2, 3)]
    wait_until(lambda: all(map(has_stepped, runs[:2])), "two at once")
    runner.send_signal(signal.SIGINT)
    output = runner.communicate(timeout=600)[0]
    assert runner.returncode == 130, output
    assert [attempts(run, "cause", "exit_code") for run in runs] == [
        *([[("stopped", 75)]] * 2),
        [("stopped", None)],
    ]
    wait_until(lambda: "RUNNING" not in slurm.jobs().values(), "the end of their job")
    assert not (runs[2] / "metrics.jsonl").exists()
