"""Early stopping, quarantine and GPUs of runs of anybody's program, also after `kharness continue`."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import psutil
import pytest

from ....processes import is_gone
from ....simulated_nvml.simulated_nvml import SimulatedNvml
from ....waiting import wait_until
from ....warm_python import WarmPython
from ..conftest import Begin, Command, attempts, records, status
from .test_commands import folder

__all__ = ["folder"]

# The loser reports once the winner is complete and somebody says so, and would go on for ever.
LOSES = """
import pathlib, sys, time
run, lr = pathlib.Path(sys.argv[1]), float(sys.argv[2])
if lr == 1:
    winner = run.parent / "lr-8" / "status.json"
    while not (pathlib.Path("go").exists() and '"complete"' in winner.read_text()):
        time.sleep(0.01)
print(f"step 5: train loss {1 / lr:.4f}, val loss {1 / lr:.4f}", flush=True)
while lr == 1:
    time.sleep(0.01)
"""


@pytest.mark.parametrize(
    ("begun", "continued"), [("early-stopping = true\n", []), ("metric = 'val_loss'\n", ["--early-stopping"])]
)
def test_run_that_loses_is_stopped_early_also_after_a_kill(
    folder: Path, begun: str, continued: list[str], kharness: Command, begin_kharness: Begin
) -> None:
    (folder / "loses.py").write_text(LOSES)
    (folder / "kharness.toml").write_text(f"{begun}jobs = 2\nno-graphs = true\n")
    words = ["matrix", "-a", "lr=8,1", "--", sys.executable, "loses.py", "{run_dir}", "{lr}"]
    runner = begin_kharness(folder, *words)
    matrix = folder / "results" / "latest"
    wait_until(lambda: status(matrix / "lr-8")["status"] == "complete", "the winner")
    wait_until(lambda: status(matrix / "lr-1")["status"] == "running", "the loser")
    below = psutil.Process(runner.pid).children(recursive=True)
    runner.kill()
    runner.wait()
    wait_until(lambda: all(map(is_gone, below)), "the end of the loser")

    (folder / "go").touch()
    ended = kharness(folder, "continue", *continued)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    reason = "rung 1 (validation 1): val_loss 1 is not among the best 1/3 of the 2 cells that came so far"
    assert f"lr-1: stopped early: {reason}\n" in ended.stdout
    assert attempts(matrix / "lr-1", "cause") == [("runner_died",), ("stopped_early",)]
    assert status(matrix / "lr-1")["status"] == "interrupted"
    assert [one["val_loss"] for one in records(matrix / "lr-1") if one["event"] == "eval"] == [1.0]
    again = kharness(folder, "continue", *continued)
    assert (again.returncode, len(attempts(matrix / "lr-1", "cause"))) == (0, 2)


def test_runs_are_judged_from_the_validation_on_that_was_named(folder: Path, kharness: Command) -> None:
    """And where no run has the metric, the end says so."""
    printed = "for n in (1, 2): print('step', n, 'loss 0.5')"
    words = ["-a", "x=1,2", "--early-stopping", 2, "--", sys.executable, "-c", printed, "{x}"]
    ended = kharness(folder, "matrix", *words)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    settings = json.loads((folder / "results" / "latest" / "matrix.json").read_text())["settings"]
    names = ("MATRIX_EARLY_STOPPING", "MATRIX_HALVING_MIN_EPOCHS", "MATRIX_HALVING_FACTOR", "SWEEP_METRIC")
    assert [settings[name] for name in names] == [True, 2, 3, "val_loss"]
    said = "early stopping judged nothing: no run has a val_loss; --metric NAME names another\n"
    assert ended.stdout.count(said) == 1


def test_runs_in_quarantine_do_not_count_in_the_exit_code(folder: Path, kharness: Command) -> None:
    (folder / "known.txt").write_text("x-1_*  # no such width\nx-9_*  # gone\n")
    program = [sys.executable, "-c", "print('step 1 loss 1'); raise SystemExit({x})", "{seed}"]
    axes = ["-a", "x=0,1", "-a", "seed=1..2"]
    failed = kharness(folder, "matrix", *axes, "--", *program)
    assert failed.returncode == 3
    ended = kharness(folder, "matrix", *axes, "--quarantine", "known.txt", "--", *program)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "note: known.txt:2: x-9_* matches none of 4 cells\n" in ended.stdout
    known = [{"cell": f"x-1_seed-{seed}", "reason": "no such width"} for seed in (1, 2, 3)]
    plan = folder / "results" / "latest" / "matrix.json"
    assert json.loads(plan.read_text())["quarantine"] == known[:2]
    (folder / "other").mkdir()
    more = kharness(folder / "other", "continue", plan.parent, "-a", "seed=1..3")
    assert more.returncode == 0, more.stdout + more.stderr
    assert json.loads(plan.read_text())["quarantine"] == known


@pytest.mark.parametrize(
    ("ranges", "failing", "runs"),
    [(["-a", "x=0,1"], "x-1", 2), (["-a", "x=0.5..1.5", "--trials", 3], "trial-0002", 3)],
)
def test_trials_in_quarantine_do_not_count_in_the_exit_code(
    folder: Path, ranges: list[str], failing: str, runs: int, kharness: Command
) -> None:
    """Also those that a search has not chosen when the sweep begins."""
    (folder / "known.txt").write_text(f"{failing}  # no such width\ntrial-0009  # gone\n")
    program = [
        sys.executable,
        "-c",
        f"print('step 1 val_loss {{x}}'); raise SystemExit('{{run_name}}' == '{failing}')",
    ]
    words = ["--keep-going", "--", *program]
    assert kharness(folder, "sweep", *ranges, *words).returncode == 3
    ended = kharness(folder, "sweep", *ranges, "--quarantine", "known.txt", *words)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"note: known.txt:2: trial-0009 matches none of {runs} cells\n" in ended.stdout
    sweep = folder / "results" / "latest"
    assert status(sweep / failing)["status"] == "failed"
    known = json.loads((sweep / "matrix.json").read_text())["quarantine"]
    assert known == [{"cell": failing, "reason": "no such width"}]


def test_a_matrix_that_has_begun_is_given_a_quarantine(folder: Path, kharness: Command) -> None:
    program = [sys.executable, "-c", "print('step 1 loss 1'); raise SystemExit({x})", "{seed}"]
    assert kharness(folder, "matrix", "-a", "x=0,1", "-a", "seed=1,2", "--", *program).returncode == 3
    plan = folder / "results" / "latest" / "matrix.json"
    before = plan.read_bytes()
    other = folder / "other"
    other.mkdir()
    (other / "known.txt").write_text("x-1_*\n")
    refused = kharness(other, "continue", plan.parent, "--quarantine", "known.txt")
    assert (refused.returncode, refused.stderr.splitlines()[0]) == (
        2,
        "error: known.txt:1: 'x-1_*' has no reason",
    )
    assert plan.read_bytes() == before
    (other / "known.txt").write_text("x-1_*  # no such width\nx-9_*  # gone\n")
    ended = kharness(other, "continue", plan.parent, "--quarantine", "known.txt", "-a", "seed=1..3")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "note: known.txt:2: x-9_* matches none of 6 cells\n" in ended.stdout
    known = [{"cell": f"x-1_seed-{seed}", "reason": "no such width"} for seed in (1, 2, 3)]
    assert json.loads(plan.read_text())["quarantine"] == known
    assert kharness(folder, "continue").returncode == 0


def test_a_seed_that_is_in_no_name_keeps_others_from_being_added(folder: Path, kharness: Command) -> None:
    words = ["-a", "x=1,2", "-a", "seed=1", "--", "true", "{x}", "{seed}"]
    assert kharness(folder, "matrix", *words).returncode == 0
    refused = kharness(folder, "continue", "-a", "seed=1..3")
    matrix = (folder / "results" / "latest").resolve().relative_to(folder)
    assert (refused.returncode, refused.stderr.splitlines()) == (
        2,
        [
            f"error: no seeds can be added to {matrix}: its runs, of one seed, would get other names",
            "hint: plan all seeds in a new matrix, with the settings of this one",
        ],
    )


def test_a_single_run_has_neither_quarantine_nor_early_stopping(folder: Path, kharness: Command) -> None:
    assert kharness(folder, "run", "--", "true").returncode == 0
    run = (folder / "results" / "latest").resolve().relative_to(folder)
    refused = kharness(folder, "continue", "--early-stopping", run)
    assert (refused.returncode, refused.stderr.splitlines()) == (
        2,
        [
            f"error: {run} is a single run, which loses against none and has no known failures",
            "hint: --early-stopping and --quarantine are of a matrix or a sweep",
        ],
    )


def test_known_failures_that_are_alike_keep_no_other_from_being_started(
    folder: Path, kharness: Command
) -> None:
    (folder / "known.txt").write_text("x-*  # not yet\n")
    words = ["-a", "x=1..4", "--quarantine", "known.txt", "--", sys.executable, "-c", "raise SystemExit(1)"]
    ended = kharness(folder, "matrix", *words, "{x}")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    runs = (folder / "results" / "latest").glob("x-*")
    assert [status(run)["status"] for run in runs] == ["failed"] * 4


ON_GPUS = """
import os, pathlib, sys, time
print("on", os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
pathlib.Path("met-" + sys.argv[1]).touch()
while len(list(pathlib.Path().glob("met-*"))) < 2:
    time.sleep(0.01)
sys.exit(0 if pathlib.Path("repaired").exists() else 3)
"""


@pytest.fixture
def on_gpus(folder: Path, simulated_nvml: SimulatedNvml, warm_scripts_nvml: WarmPython) -> Command:
    """Run `kharness WORDS` in the folder, on a machine with five GPUs."""
    simulated_nvml.write("gpus 5", *(f"gpu {index} uuid GPU-{index}" for index in range(5)))
    seen = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    environment = {**seen, **simulated_nvml.environment()}
    return lambda *words: warm_scripts_nvml.run(["-m", "kharness", *words], cwd=folder, env=environment)


def told(run: Path) -> list[str]:
    """Return which GPUs each attempt was given."""
    return re.findall(r"^on .*", (run / "output.log").read_text(), re.MULTILINE)


def test_each_run_has_its_own_gpus(folder: Path, on_gpus: Command, simulated_nvml: SimulatedNvml) -> None:
    (folder / "on_gpus.py").write_text(ON_GPUS)
    words = ["-a", "x=1..3", "--jobs", 0, "--keep-going", "--", sys.executable, "on_gpus.py", "{x}"]
    refused = on_gpus("matrix", "--gpus-per-cell", 6, *words)
    assert (refused.returncode, refused.stderr.splitlines()) == (
        2,
        [
            "error: --gpus-per-cell 6, but only 5 can be seen",
            "hint: give a smaller --gpus-per-cell, or a longer CUDA_VISIBLE_DEVICES",
        ],
    )
    assert not (folder / "results").exists()
    ended = on_gpus("matrix", "--gpus-per-cell", 2, *words)
    assert ended.returncode == 3, ended.stdout + ended.stderr
    matrix = (folder / "results" / "latest").resolve()
    runs = sorted(matrix.glob("x-*"))
    slots = {run: attempts(run, "started", "ended", "slot")[0] for run in runs}
    for run, (began, over, slot) in slots.items():
        assert told(run) == [f"on {','.join(slot['gpus'])}"]
        assert len(set(slot["gpus"])) == 2
        for other, (other_began, other_over, its) in slots.items():
            if other != run and began < other_over and other_began < over:
                assert not {*slot["gpus"]} & {*its["gpus"]}

    simulated_nvml.write("gpus 1", "gpu 0 uuid GPU-0")
    refused = on_gpus("continue")
    assert (refused.returncode, refused.stderr.splitlines()[0]) == (
        2,
        "error: --gpus-per-cell 2, but only 1 can be seen",
    )
    (folder / "repaired").touch()
    ended = on_gpus("continue", "--gpus-per-cell", 1)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    for run in runs:
        assert told(run)[1:] == ["on GPU-0"]


# Holds memory of the only GPU until as many hold theirs as are to run at once. It tells none of it.
HOLDS = """
import fcntl, os, pathlib, sys, time
run, size, together = sys.argv[1], sys.argv[2], int(sys.argv[3])
held, script = pathlib.Path("held"), pathlib.Path(os.environ["SIMULATED_NVML"])

def tell():
    used = 1000 + sum(int(one.read_text()) for one in held.glob("of-*"))
    lines = ["gpus 1", "gpu 0 uuid GPU-0", "all memory_total 80000", f"all memory_used {used}"]
    new = script.with_suffix(f".{run}")
    new.write_text("\\n".join(lines) + "\\n")
    new.replace(script)

with open("lock", "w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    (held / f"of-{run}").write_text(size)
    (held / f"met-{run}").touch()
    tell()
print("step 1: train loss 1, val loss 1", flush=True)
while len(list(held.glob("met-*"))) < together:
    time.sleep(0.01)
with open("lock", "w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    (held / f"of-{run}").unlink()
    tell()
"""


def test_programs_share_a_gpu_as_far_as_their_memory_was_seen_to_fit(
    folder: Path, on_gpus: Command, simulated_nvml: SimulatedNvml
) -> None:
    """72,000 MiB of it are given out, of which somebody else has 1,000: two fit, a third one waits."""
    (folder / "holds.py").write_text(HOLDS)
    (folder / "held").mkdir()
    memory = ["all memory_total 80000", "all memory_used 1000"]
    simulated_nvml.write("gpus 1", "gpu 0 uuid GPU-0", *memory)
    program = [sys.executable, "holds.py", "{run_name}", 30000, 2]
    words = ["-a", "seed=1..3", "-e", "SEED={seed}", "--jobs", 3, "--gpus-per-cell", 1, "--", *program]
    ended = on_gpus("matrix", *words)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    runs = [
        attempts(run, "started", "ended", "slot")[0] for run in (folder / "results" / "latest").glob("seed-*")
    ]
    assert [slot["gpus"] for _, _, slot in runs] == [["GPU-0"]] * 3
    at_once = [sum(began <= moment < over for began, over, _ in runs) for moment, _, _ in runs]
    assert max(at_once) == 2


def test_program_is_given_its_variables_and_no_gpu_unless_some_are_asked_for(
    folder: Path, on_gpus: Command
) -> None:
    shows = "import os; print('on', os.environ.get('CUDA_VISIBLE_DEVICES'), 'with', os.environ['KEPT'])"
    given = ["-e", "KEPT={run_dir}/kept {x}"]
    ended = on_gpus("matrix", "-a", "x=1", *given, "--", sys.executable, "-c", shows, "{x}")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    run = (folder / "results" / "latest").resolve() / "x-1"
    assert told(run) == [f"on None with {run}/kept 1"]


@pytest.mark.parametrize("search", [["matrix", "-a", "x=1"], ["sweep", "-a", "x=0.5..1.5"]])
def test_gpus_that_are_chosen_twice_are_refused(folder: Path, search: list[str], on_gpus: Command) -> None:
    words = [*search, "-e", "CUDA_VISIBLE_DEVICES=3", "--", "true", "{x}"]
    refused = on_gpus(*words[:3], "--gpus-per-cell", 1, *words[3:])
    told = [
        "error: --gpus-per-cell 1 gives each run its GPUs, -e CUDA_VISIBLE_DEVICES=3 gives it others",
        "hint: leave one of them out; --gpus-per-cell 0 gives none",
    ]
    assert (refused.returncode, refused.stderr.splitlines()) == (2, told)
    assert not (folder / "results").exists()


@pytest.mark.parametrize("search", [["matrix", "-a", "x=1"], ["sweep", "-a", "x=0.5..1.5"]])
def test_gpus_of_a_machine_without_any_are_refused(
    folder: Path, search: list[str], on_gpus: Command, simulated_nvml: SimulatedNvml
) -> None:
    simulated_nvml.write("gpus 0")
    refused = on_gpus(*search, "--gpus-per-cell", 1, "--", "true", "{x}")
    assert (refused.returncode, refused.stderr.splitlines()) == (
        2,
        ["error: --gpus-per-cell 1, but no GPU can be seen", "hint: --gpus-per-cell 0 runs without"],
    )
    assert not (folder / "results").exists()
