"""`make continue` and `make test_rerun` from outside, with a model that only pretends to train."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from kharness.config.assignment import Origin
from kharness.config.generate import write_config
from kharness.config.tree import Tree
from monitoring.agent.follow import undelivered
from monitoring.agent.lock import is_followed
from monitoring.host.process import process_started

from .conftest import Checkout, attempts, behavior, records, status

THREE = "CONFIG_MATRIX_AXES=SEED=1|2|3"
Wait = Callable[[Callable[[], bool]], None]


@pytest.fixture(scope="module")
def trained(make_checkout: Callable[[], Checkout]) -> Checkout:
    """A complete matrix of three cells, to be copied."""
    checkout = make_checkout()
    code, output = checkout.run("test_matrix", THREE)
    assert code == 0, output
    return checkout


@pytest.fixture
def complete(trained: Checkout, tmp_path: Path) -> Checkout:
    """A complete matrix of three cells."""
    return trained.copy(tmp_path / "checkout")


def resumed(run: Path) -> list[int | None]:
    starts = [record["resumed_from"] for record in records(run) if record["event"] == "start"]
    return [start["global_step"] if start else None for start in starts]


def everything(directory: Path) -> dict[str, bytes]:
    """All files but the lock, which says nothing once nobody holds it."""
    files = [path for path in directory.rglob("*") if path.is_file() and ".agent" not in path.name]
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


def interrupted(checkout: Checkout, wait_until: Wait, *arguments: str, seed: int = 2) -> Path:
    """A matrix whose cell of that seed was half done when its runner was killed with everything else."""
    process = checkout.start("test_matrix", *arguments)
    run = checkout.root / f"results/latest/seed-{seed}"
    wait_until(lambda: '"process_started"' in text(run / "status.json") and (run / "checkpoint").exists())
    pid = status(run)["attempts"][0]["pid"]
    process.kill()
    process.communicate()
    wait_until(lambda: process_started(pid) is None)
    return run.parent.resolve()


def text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def edit(run: Path, **values: str) -> None:
    """Change what a cell was planned with, as `make olddefconfig O=` does: it behaves otherwise then."""
    tree = Tree.load(next(folder for folder in run.resolve().parents if (folder / "Kconfig").exists()))
    layers = [tree.assignments(name, value, Origin("test")) for name, value in values.items()]
    write_config(tree.resolve(tree.base(run), *layers), run, root=tree.root)


def test_exactly_the_missing_cells_are_run(checkout: Checkout, wait_until: Wait) -> None:
    matrix = interrupted(checkout, wait_until, behavior("hang@2"), THREE)
    # The agent of a run lives on without its runner, and brings the trackers up to date meanwhile.
    wait_until(lambda: not undelivered(matrix / "seed-1") and not is_followed(matrix / "seed-1"))
    complete = everything(matrix / "seed-1")
    edit(matrix / "seed-2", BEHAVIOR="good")
    code, output = checkout.run("continue")
    assert code == 0, output
    lines = output.splitlines()
    begins = lines.index(f"matrix: 2 of 3 runs left in results/{matrix.name}")
    assert re.fullmatch(r"  estimate: [0-9.:]+( s)?", lines[begins + 1]), output
    assert checkout.statuses() == dict.fromkeys(["seed-1", "seed-2", "seed-3"], "complete")
    assert everything(matrix / "seed-1") == complete
    assert attempts(matrix / "seed-2", "cause", "reason", "exit_code") == [
        ("runner_died", "its runner died after step 1", None),
        (None, None, 0),
    ]
    assert resumed(matrix / "seed-2") == [None, 1]
    assert resumed(matrix / "seed-3") == [None]


def test_the_outcome_is_that_of_an_undisturbed_matrix(checkout: Checkout, wait_until: Wait) -> None:
    matrix = interrupted(checkout, wait_until, behavior("hang@2"), THREE)
    for run in matrix.glob("seed-*"):
        edit(run, BEHAVIOR="good")
    checkout.run("continue")
    rows = [line for line in (matrix / "summary.csv").read_text().splitlines() if "seed-" in line]
    checkout.run("test_matrix", behavior("good"), THREE)
    same = [line for line in (checkout.latest / "summary.csv").read_text().splitlines() if "seed-" in line]
    losses = [[float(field) for field in row.split(",") if field.startswith("0.2")] for row in rows]
    assert losses == [[float(field) for field in row.split(",") if field.startswith("0.2")] for row in same]
    assert all(losses)


def test_a_complete_matrix_says_so_and_reports_again(complete: Checkout) -> None:
    before = everything(complete.latest)
    (complete.latest / "summary.md").unlink()
    code, output = complete.run("continue")
    assert code == 0, output
    assert f"matrix: complete: 3 runs in results/{complete.latest.name}\n" in output
    assert everything(complete.latest) == before


def test_what_would_only_fail_again_is_left(checkout: Checkout) -> None:
    checkout.run("test_matrix", behavior("non-finite@2"), THREE)
    code, output = checkout.run("continue")
    where = f"results/{checkout.latest.name}"
    assert code == 3, output
    assert f"matrix: nothing is left to run of 3 runs in {where}\n" in output
    assert (
        "left: seed-2 would only fail again: exit code 65: NonFiniteError: step 2: loss nan\n"
        f"hint: to try them all the same: make test_rerun TARGET={where}\n"
    ) in output
    assert len(status(checkout.latest / "seed-2")["attempts"]) == 1


def test_other_failures_are_tried_again(checkout: Checkout) -> None:
    checkout.run("test_matrix", behavior("once-crash@2"), THREE)
    assert checkout.statuses()["seed-2"] == "failed"
    code, output = checkout.run("continue")
    assert code == 0, output
    assert attempts(checkout.latest / "seed-2", "cause") == [("error",), (None,)]


def test_a_training_that_was_complete_when_its_runner_died_is_not_repeated(complete: Checkout) -> None:
    run = complete.latest / "seed-2"
    journal = (run / "metrics.jsonl").read_bytes()
    written = status(run)
    written["status"] = "running"
    written["attempts"][0] |= {"ended": None, "exit_code": None}
    (run / "status.json").write_text(json.dumps(written))
    code, output = complete.run("continue")
    assert code == 0, output
    assert status(run)["status"] == "complete"
    assert attempts(run, "ended") == [(records(run)[-1]["time"],)]
    assert (run / "metrics.jsonl").read_bytes() == journal


def test_a_cell_that_lives_on_without_its_runner_is_never_doubled(complete: Checkout) -> None:
    """`make continue` leaves alone a cell that outlived its runner, where the kernel does not end it."""
    run = complete.latest / "seed-2"
    alive = subprocess.Popen(["sleep", "600"])
    try:
        written = status(run)
        written["status"] = "running"
        written["attempts"][0] |= {"ended": None, "exit_code": None}
        written["attempts"][0]["job"] |= {"pid": alive.pid, "process_started": process_started(alive.pid)}
        (run / "status.json").write_text(json.dumps(written))
        before = everything(run)
        code, output = complete.run("continue")
        assert code == 3, output
        host = written["attempts"][0]["job"]["host"]
        assert f"left: seed-2 still runs without its runner, as pid {alive.pid} on {host}\n" in output
        assert everything(run) == before
    finally:
        alive.kill()
        alive.wait()


def test_a_filter_chooses_among_the_missing(checkout: Checkout, wait_until: Wait) -> None:
    matrix = interrupted(checkout, wait_until, behavior("hang@1"), THREE, seed=1)
    edit(matrix / "seed-1", BEHAVIOR="good")
    code, output = checkout.run("continue", "FILTER=SEED=2", f"RUN={matrix}")
    assert code == 0, output
    assert checkout.statuses() == {"seed-1": "running", "seed-2": "complete", "seed-3": "pending"}
    code, output = checkout.run("continue", f"RUN={matrix / 'seed-3'}")
    assert code == 0, output
    assert checkout.statuses() == {"seed-1": "running", "seed-2": "complete", "seed-3": "complete"}
    code, output = checkout.run("continue", "FILTER=SEED=9")
    assert (code, output.splitlines()[0]) == (2, "error: FILTER=SEED=9 matches none of 3 cells")


def test_settings_of_the_runner_may_change_and_those_of_the_cells_not(checkout: Checkout) -> None:
    checkout.run("test_matrix", "RETRIES=0", behavior("once-sigkill"), THREE)
    assert set(checkout.statuses().values()) == {"killed"}
    code, output = checkout.run("continue", "CONFIG_NUM_STEPS=9")
    assert (code, output.splitlines()) == (
        2,
        [
            "error: CONFIG_NUM_STEPS=9 cannot change a matrix that has begun",
            "hint: its cells keep the configuration that they were planned with; leave it out",
        ],
    )
    code, output = checkout.run("continue", "JOB=2")
    assert (code, output.splitlines()[1]) == (2, "hint: did you mean JOBS?")
    code, output = checkout.run("continue", "JOBS=3", "TIMEOUT=60")
    assert code == 0, output
    # All were started before the first had ended.
    begun = [line[:5] for line in output.splitlines() if line.startswith(("[", "  seed"))]
    assert begun[:3] == ["[1/3]", "[2/3]", "[3/3]"]


def test_cells_never_see_the_configuration_as_it_is_now(checkout: Checkout, wait_until: Wait) -> None:
    matrix = interrupted(checkout, wait_until, behavior("hang@2"), THREE)
    edit(matrix / "seed-2", BEHAVIOR="good")
    config = checkout.root / ".config"
    config.write_text(config.read_text().replace("CONFIG_NUM_STEPS=3", "CONFIG_NUM_STEPS=30"))
    code, output = checkout.run("continue")
    assert code == 0, output
    assert {records(run)[-1]["steps_done"] for run in matrix.glob("seed-*")} == {3}


def test_a_planning_that_was_cut_short_is_named(complete: Checkout) -> None:
    (complete.latest / "matrix.json").unlink()
    for script in ("continue", "status", "estimate"):
        code, output = complete.run(script)
        assert (code, output.splitlines()) == (
            2,
            [
                f"error: {complete.latest} holds cells without a plan: "
                "it was interrupted while it was being planned",
                "hint: nothing of it has run; plan it again: make test_matrix",
            ],
        )


@pytest.mark.parametrize("left", ["", "{", '{"status": "lovely", "attempts": []}', '{"status": "pending"}'])
def test_a_status_that_a_power_loss_took_is_made_again(complete: Checkout, left: str) -> None:
    """The status is rebuilt from the journal, so that no complete run is started again."""
    run = complete.latest / "seed-2"
    before = everything(run)
    (run / "status.json").write_text(left)
    assert "3 runs: 3 complete\n" in complete.run("status")[1]
    code, output = complete.run("continue")
    assert code == 0, output
    assert f"matrix: complete: 3 runs in results/{complete.latest.name}\n" in output
    assert status(run)["status"] == "complete"
    assert attempts(run, "started", "ended") == [(records(run)[0]["time"], records(run)[-1]["time"])]
    kept = list(run.glob("status.json.unreadable-*"))
    assert [path.read_text() for path in kept] == [left]
    after = {name: data for name, data in everything(run).items() if name in before}
    assert {**after, "status.json": before["status.json"]} == before


def test_a_lost_status_of_a_complete_run_is_that_of_its_journal(complete: Checkout) -> None:
    runs = [complete.latest / name for name in ("seed-1", "seed-2")]
    (runs[0] / "status.json").unlink()
    # Of two writes the power has left the older one.
    (runs[1] / "status.json").write_text('{"status": "pending", "attempts": []}')
    edit(runs[1], LEARNING_RATE="0.5")
    code, output = complete.run("continue")
    assert code == 3, output
    assert [status(run)["status"] for run in runs] == ["complete", "failed"]
    assert attempts(runs[1], "cause") == [("other_values",)]


def test_a_lost_status_of_a_run_that_is_half_done_lets_it_resume(
    checkout: Checkout, wait_until: Wait
) -> None:
    matrix = interrupted(checkout, wait_until, behavior("hang@2"), THREE)
    edit(matrix / "seed-2", BEHAVIOR="good")
    (matrix / "seed-2" / "status.json").unlink()
    code, output = checkout.run("continue")
    assert code == 0, output
    assert resumed(matrix / "seed-2") == [None, 1]


def test_an_attempt_that_died_before_it_began_takes_nothing_from_a_complete_run(complete: Checkout) -> None:
    """Its only record has a later attempt than the end that counts, and its status was lost."""
    run = complete.latest / "seed-2"
    with (run / "metrics.jsonl").open("a") as journal:
        gap = {"event": "gap", "time": 1.0, "seq": len(records(run)) + 1, "attempt": 2, "lost": 1}
        journal.write(json.dumps(gap) + "\n")
    (run / "status.json").unlink()
    code, output = complete.run("continue")
    assert code == 0, output
    assert attempts(run, "cause") == [(None,)]


def test_a_cell_whose_directory_is_gone_is_named(complete: Checkout) -> None:
    shutil.rmtree(complete.latest / "seed-2")
    code, output = complete.run("continue")
    assert (code, output.splitlines()[0]) == (2, f"error: {complete.latest}/seed-2 is not there")


def test_a_single_training_is_continued(checkout: Checkout, wait_until: Wait) -> None:
    process = checkout.start("train", behavior("hang"), "CONFIG_TRACKER_RUN_NAME=mine")
    run = checkout.root / "results/mine"
    wait_until(lambda: '"step"' in text(run / "metrics.jsonl"))
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=600)
    edit(run, BEHAVIOR="good")
    code, output = checkout.run("continue")
    assert code == 0, output
    assert output.splitlines() == [
        "run: results/mine",
        f"training with sgd 0.1 in {checkout.root}",
        "page: results/mine/report.html",
        "next: its graphs and tables as files:",
        "  make report RUN=results/latest",
        "next: several seeds, which show how far they spread:",
        "  make test_matrix CONFIG_BEHAVIOR=good CONFIG_MATRIX_AXES=SEED=1..5",
    ]
    assert resumed(run) == [None, 1]
    assert attempts(run, "cause") == [("stopped",), (None,)]
    assert checkout.run("continue") == (0, "results/mine is complete\n")
    code, output = checkout.run("continue", "CONFIG_SEED=1..4")
    assert (code, output) == (
        2,
        "error: results/mine is a single training, and has one SEED\n"
        "hint: RUN=dir names the matrix; make test_matrix SEED=1..5 begins one\n",
    )


def test_a_training_that_diverged_is_left(checkout: Checkout) -> None:
    checkout.run("train", behavior("non-finite"), "CONFIG_TRACKER_RUN_NAME=mine")
    code, output = checkout.run("continue", "RUN=results/mine")
    assert (code, output.splitlines()) == (
        3,
        [
            "results/mine would only fail again: exit code 65: NonFiniteError: step 2: loss nan",
            "hint: to try it all the same: make test_rerun TARGET=results/mine",
        ],
    )


def test_a_directory_without_runs_is_refused(checkout: Checkout, tmp_path: Path) -> None:
    code, output = checkout.run("continue", f"RUN={tmp_path}")
    assert (code, output.splitlines()) == (
        2,
        [
            f"error: {tmp_path} holds neither a matrix (matrix.json) nor a run (status.json)",
            "hint: name one: RUN=results/latest, or RUN=results/latest/CELL",
        ],
    )
    code, output = checkout.run("continue")
    assert (code, output.splitlines()[0]) == (2, "error: results/latest does not exist")


def test_rerun_takes_the_failed_ones_from_scratch(checkout: Checkout) -> None:
    checkout.run("test_matrix", behavior("once-non-finite@2"), THREE)
    before = records(checkout.latest / "seed-2")
    code, output = checkout.run("test_rerun")
    assert code == 0, output
    assert f"matrix: 1 of 3 runs again from scratch in results/{checkout.latest.name}\n" in output
    run = checkout.latest / "seed-2"
    assert records(run)[: len(before)] == before
    assert resumed(run) == [None, None]
    assert attempts(run, "cause", "arguments") == [("non_finite", []), (None, ["--from-scratch"])]
    code, output = checkout.run("test_rerun")
    assert code == 0
    assert f"no run in results/{checkout.latest.name} has failed; FILTER=… runs others again\n" in output


def test_rerun_takes_what_the_filter_means_and_keeps_the_old(complete: Checkout) -> None:
    before = {name: everything(complete.latest / name) for name in ("seed-1", "seed-3")}
    code, output = complete.run("test_rerun", f"TARGET={complete.latest}", "FILTER=SEED=2")
    assert code == 0, output
    assert {name: everything(complete.latest / name) for name in before} == before
    run = complete.latest / "seed-2"
    assert attempts(run, "exit_code") == [(0,), (0,)]
    assert [record["attempt"] for record in records(run) if record["event"] == "end"] == [1, 2]


def test_a_rerun_that_died_before_it_began_begins_anew_again(complete: Checkout) -> None:
    run = complete.latest / "seed-2"
    edit(run, BEHAVIOR="exit-2")
    complete.run("test_rerun", "FILTER=SEED=2")
    assert status(run)["status"] == "failed"
    edit(run, BEHAVIOR="good")
    code, output = complete.run("continue")
    assert code == 0, output
    assert resumed(run) == [None, None]
    assert attempts(run, "arguments")[1:] == [(["--from-scratch"],), (["--from-scratch"],)]


def test_rerun_of_a_single_training(checkout: Checkout) -> None:
    checkout.run("train", "CONFIG_TRACKER_RUN_NAME=mine")
    code, output = checkout.run("test_rerun", "TARGET=results/mine")
    assert code == 0, output
    assert resumed(checkout.root / "results/mine") == [None, None]


def test_a_runner_that_is_killed_lets_go_of_its_matrix(checkout: Checkout, wait_until: Wait) -> None:
    """Also where a child of its own outlives it."""
    matrix = interrupted(checkout, wait_until, behavior("hang@2"), THREE)
    assert json.loads((matrix / ".runner.lock").read_text())["pid"] not in psutil.pids()
    assert "not running; resume with" in checkout.run("status")[1]
    assert os.access(matrix / ".runner.lock", os.W_OK)
