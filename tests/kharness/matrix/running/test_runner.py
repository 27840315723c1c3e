"""Running a matrix: several at once, limits, retries, and causes told apart in status.json."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from ....processes import is_gone
from ..conftest import Checkout, attempts, behavior, printed, status

TWO = "CONFIG_MATRIX_AXES=SEED=1|2"


def resumed(run: Path) -> list[int | None]:
    """The step from which each attempt went on."""
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    starts = [record["resumed_from"] for record in records if record["event"] == "start"]
    return [start["global_step"] if start else None for start in starts]


def test_several_run_at_once(checkout: Checkout) -> None:
    """Each waits until it is stopped, so they can only all be asked to stop if all of them run."""
    process = checkout.start("test_matrix", "JOBS=3", behavior("hang"), "CONFIG_MATRIX_AXES=SEED=1|2|3|4")
    lines: list[str] = []
    while len([line for line in lines if re.match(r"\[\d/4\]", line)]) < 3:
        lines.append(printed(process).readline())
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 130, output
    assert checkout.statuses() == {
        **dict.fromkeys(["seed-1", "seed-2", "seed-3"], "interrupted"),
        "seed-4": "pending",
    }


@pytest.mark.parametrize(
    ("what", "status_", "cause"),
    [
        ("cuda-memory", "failed", "out_of_memory"),
        ("exit-71", "failed", "out_of_memory"),
        ("no-space", "failed", "disk_full"),
        ("exit-74", "failed", "disk_full"),
        ("non-finite", "failed", "non_finite"),
        ("cuda-error", "failed", "device"),
        ("exit-2", "failed", "refused"),
        ("crash", "failed", "error"),
        ("lie", "failed", "other_values"),
        ("sigkill", "killed", "signal"),
    ],
)
def test_causes_are_told_apart(checkout: Checkout, what: str, status_: str, cause: str) -> None:
    code, output = checkout.run("test_matrix", "RETRIES=0", behavior(what), "CONFIG_MATRIX_AXES=SEED=1")
    assert code == 3, output
    run = checkout.latest / "seed-1"
    assert (status(run)["status"], attempts(run, "cause")) == (status_, [(cause,)])


def test_ctrl_c_is_heard_while_torch_is_imported(
    checkout: Checkout, tmp_path: Path, wait_until: Callable[[Callable[[], bool]], object]
) -> None:
    begun = tmp_path / "begun"
    (tmp_path / "torch.py").write_text(
        f"import pathlib, time\npathlib.Path({str(begun)!r}).touch()\ntime.sleep(600)"
    )
    process = checkout.start(
        "test_matrix",
        "CONFIG_LAUNCHER_LOCAL_FORK_SERVER=y",
        TWO,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    wait_until(begun.exists)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=600)
    assert (process.returncode, checkout.statuses()) == (130, {"seed-1": "pending", "seed-2": "pending"})
    assert output.endswith(f"resume with: make continue RUN=results/{checkout.latest.name}\n"), output


def test_a_kill_is_tried_again_from_the_checkpoint(checkout: Checkout) -> None:
    code, output = checkout.run("test_matrix", behavior("once-sigkill@1"), TWO)
    assert code == 0, output
    run = checkout.latest / "seed-1"
    assert status(run)["status"] == "complete"
    assert attempts(run, "exit_code", "signal", "cause") == [(None, 9, "signal"), (0, None, None)]
    assert resumed(run) == [None, 1]
    assert "  seed-1 is tried again\n[1/2] seed-1, attempt 2\n" in output, output
    assert attempts(checkout.latest / "seed-2", "exit_code") == [(0,)]


def test_retries_come_to_an_end(checkout: Checkout) -> None:
    code, output = checkout.run(
        "test_matrix", "RETRIES=2", behavior("sigkill"), "CONFIG_NUM_STEPS=9", "CONFIG_MATRIX_AXES=SEED=1"
    )
    assert code == 3, output
    run = checkout.latest / "seed-1"
    assert status(run)["status"] == "killed"
    assert attempts(run, "cause") == [("signal",)] * 3
    assert resumed(run) == [None, 1, 2]


@pytest.mark.parametrize("what", ["crash", "non-finite", "lie", "exit-74", "exit-2"])
def test_what_would_only_fail_again_is_not_tried_again(checkout: Checkout, what: str) -> None:
    checkout.run("test_matrix", "RETRIES=3", behavior(what), "CONFIG_MATRIX_AXES=SEED=1")
    assert len(status(checkout.latest / "seed-1")["attempts"]) == 1


def test_a_cell_that_ran_out_of_memory_gets_the_machine_to_itself(checkout: Checkout) -> None:
    arguments = ("JOBS=2", behavior("once-exit-71@1"), "CONFIG_MATRIX_AXES=SEED=1|2|3|4")
    code, output = checkout.run("test_matrix", *arguments)
    assert code == 0, output
    assert "  seed-1 is tried again, alone\n" in output
    second = status(checkout.latest / "seed-1")["attempts"][1]
    others = [status(checkout.latest / f"seed-{seed}")["attempts"][0] for seed in (2, 3, 4)]
    assert all(other["ended"] <= second["started"] for other in others)


def test_a_timeout_lets_it_save_and_takes_no_other_along(
    checkout: Checkout, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    process = checkout.start_set_forward("test_matrix", "TIMEOUT=3600", behavior("hang@1"), TWO)
    wait_until((checkout.root / "results/latest/seed-1/checkpoint").exists)
    (checkout.root / "later").touch()
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 3, output
    assert checkout.statuses() == {"seed-1": "timeout", "seed-2": "complete"}
    run = checkout.latest / "seed-1"
    assert attempts(run, "exit_code", "cause", "reason") == [
        (75, "timeout", "over the limit of 1:00:00; stopped on request after step 1")
    ]
    assert "seed-1: over the limit of 1:00:00, stopping it with a checkpoint\n" in output


def test_without_keep_going_nothing_is_started_after_a_failure(checkout: Checkout) -> None:
    code, output = checkout.run(
        "test_matrix", "KEEP_GOING=n", behavior("crash@2"), "CONFIG_MATRIX_AXES=SEED=1|2|3"
    )
    assert code == 3, output
    assert checkout.statuses() == {"seed-1": "complete", "seed-2": "failed", "seed-3": "pending"}
    assert "KEEP_GOING=n: seed-2 is not complete, so no other is started\n" in output


def test_a_known_failure_stops_nothing_and_is_not_in_the_exit_code(checkout: Checkout) -> None:
    (checkout.root / "known").write_text("seed-1  # bananas\n")
    code, output = checkout.run(
        "test_matrix", "KEEP_GOING=n", "CONFIG_MATRIX_QUARANTINE=known", behavior("crash@1"), TWO
    )
    assert code == 0, output
    assert checkout.statuses() == {"seed-1": "failed", "seed-2": "complete"}


def test_a_cell_that_cannot_be_started_takes_no_other_along(checkout: Checkout) -> None:
    """Its log is in the way."""
    process = checkout.start("test_matrix", behavior("held"), TWO)
    printed(process).readline()
    printed(process).readline()
    (checkout.root / "results/latest/seed-2/output.log").mkdir()
    (checkout.root / "let-go").touch()
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 3, output
    assert checkout.statuses() == {"seed-1": "complete", "seed-2": "failed"}
    assert "  seed-2: failed: seed-2 cannot be started: is a directory\n" in output
    assert attempts(checkout.latest / "seed-2", "pid", "cause") == [(None, "error")]


def test_a_status_that_cannot_be_written_takes_no_other_along(checkout: Checkout) -> None:
    """A cell that has removed its own directory, much like a full disk, fails alone."""
    code, output = checkout.run("test_matrix", behavior("vanish@1"), TWO)
    assert code == 3, output
    path = checkout.latest / "seed-1" / "status.json"
    assert f"warning: {path} cannot be written; retrying\n" in output
    assert checkout.statuses() == {"seed-2": "complete"}


def test_what_a_training_started_ends_with_it(
    checkout: Checkout, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    process = checkout.start("test_matrix", behavior("forks"), "CONFIG_MATRIX_AXES=SEED=1")
    noted = checkout.root / "results/latest/seed-1/grandchild"
    wait_until(lambda: noted.exists() and noted.read_text() != "")
    grandchild = psutil.Process(int(noted.read_text()))
    process.send_signal(signal.SIGINT)
    while not printed(process).readline().startswith("SIGINT"):
        pass
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=600)
    assert checkout.statuses() == {"seed-1": "killed"}
    wait_until(lambda: is_gone(grandchild))


@pytest.mark.parametrize("again", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_that_follows_at_once_is_the_same_request(
    checkout: Checkout, wait_until: Callable[[Callable[[], bool]], None], again: signal.Signals
) -> None:
    """`timeout` over make sends two signals, one from each process."""
    process = checkout.start("test_matrix", behavior("hang"), "CONFIG_MATRIX_AXES=SEED=1")
    journal = checkout.root / "results/latest/seed-1/metrics.jsonl"
    wait_until(lambda: '"step"' in journal.read_text())
    process.send_signal(signal.SIGTERM)
    while not printed(process).readline().startswith("SIGTERM"):
        pass
    process.send_signal(again)
    output, _ = process.communicate(timeout=600)
    assert (process.returncode, checkout.statuses()) == (143, {"seed-1": "interrupted"}), output
    assert "killing" not in output


def test_a_second_runner_of_a_matrix_is_refused(
    checkout: Checkout, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    process = checkout.start("test_matrix", behavior("hang"), TWO)
    run = checkout.root / "results/latest/seed-1"
    wait_until(lambda: '"process_started"' in (run / "status.json").read_text())
    wait_until(lambda: '"step"' in (run / "metrics.jsonl").read_text())
    before = (checkout.latest / "seed-1" / "status.json").read_bytes()
    for script, name in (("continue", "RUN"), ("test_rerun", "TARGET")):
        code, output = checkout.run(script, f"{name}={checkout.latest}")
        assert code == 2
        assert re.match(rf"error: {checkout.latest} is being run by pid {process.pid} on \S+\nhint: ", output)
    assert (checkout.latest / "seed-1" / "status.json").read_bytes() == before
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=600)
    assert checkout.statuses() == {"seed-1": "interrupted", "seed-2": "pending"}
