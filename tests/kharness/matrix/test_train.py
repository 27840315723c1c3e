"""`make train` from outside: one run in a directory of its own."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable

import pytest

from .conftest import Checkout, printed
from .planning.test_needs import NEEDS


def test_a_training_in_a_directory_of_its_own(checkout: Checkout) -> None:
    code, output = checkout.run("train", "CONFIG_TRACKER_RUN_NAME=mine", "CONFIG_NUM_STEPS=5")
    assert code == 0, output
    lines = output.splitlines()
    assert lines[0] == "no .config yet: starting from defconfigs/default"
    assert lines[1:] == [
        "run: results/mine",
        "configuration: pretender, preset default; NUM_STEPS=5",
        f"training with sgd 0.1 in {checkout.root}",
        "page: results/mine/report.html",
        "next: its graphs and tables as files:",
        "  make report RUN=results/latest",
        "next: several seeds, which show how far they spread:",
        "  make test_matrix CONFIG_NUM_STEPS=5 CONFIG_MATRIX_AXES=SEED=1..5",
    ]
    status = json.loads((checkout.root / "results/mine/status.json").read_text())
    assert status["status"] == "complete"
    assert "CONFIG_NUM_STEPS=3" in (checkout.root / ".config").read_text()
    assert checkout.latest.name == "mine"


def test_a_dashboard_is_opened_for_the_project_of_the_run(checkout: Checkout) -> None:
    """Also where .config has another, or lies elsewhere (`O=`)."""
    code, output = checkout.run("train", "TRACKER=trackio", "CONFIG_TRACKER_PROJECT=their digits")
    assert code == 0, output
    command = "  make trackio-view 'CONFIG_TRACKER_PROJECT=their digits'"
    assert output.splitlines()[-2:] == ["next: its dashboard:", command]


def test_a_name_that_is_taken_gets_a_number_in_the_tracker_too(checkout: Checkout) -> None:
    for _ in range(2):
        checkout.run("train", "CONFIG_TRACKER_RUN_NAME=mine")
    run = json.loads((checkout.root / "results/mine_2/run.json").read_text())
    assert run["tracking"]["name"] == "mine_2"


@pytest.mark.parametrize(
    ("what", "code", "said"),
    [
        ("crash", 1, "failed: exit code 1: RuntimeError: the loss is a banana"),
        ("sigkill", 137, "killed: signal 9 (SIGKILL)"),
        ("lie", 3, "failed: ran with other values than requested: LEARNING_RATE=0.5, requested 0.1"),
    ],
)
def test_the_exit_code_is_that_of_the_training(checkout: Checkout, what: str, code: int, said: str) -> None:
    got, output = checkout.run("train", f"CONFIG_BEHAVIOR={what}")
    assert (got, said in output.splitlines()) == (code, True), output


def test_ctrl_c_is_passed_on_and_the_training_saves(
    checkout: Checkout, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    process = checkout.start("train", "CONFIG_BEHAVIOR=hang", "CONFIG_TRACKER_RUN_NAME=mine")
    journal = checkout.root / "results/mine/metrics.jsonl"
    wait_until(lambda: journal.exists() and '"step"' in journal.read_text())
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 75, output
    assert "saving\n" in output
    assert "interrupted: stopped on request after step 1\n" in output
    assert "resume with: make continue RUN=results/mine\n" in output


def test_what_cannot_begin_is_refused_before_anything_is_made(checkout: Checkout) -> None:
    (checkout.root / "pretender/needs.py").write_text(NEEDS)
    code, output = checkout.run("train", "CONFIG_SEED=2")
    assert (code, output.splitlines()[1:]) == (2, ["error: no data for NUM_STEPS=3", "hint: make data"])
    assert not (checkout.root / "results").exists()
    assert not (checkout.root / ".config").exists()


def test_a_training_that_is_refused_late_leaves_nothing(checkout: Checkout) -> None:
    said = [
        "error: DATA_DIR=data holds no \x1b[31mimages",
        "hint: make data",
        "results/mine is removed: nothing was trained",
    ]
    asked = ("train", "CONFIG_BEHAVIOR=refused", "CONFIG_TRACKER_RUN_NAME=mine")
    code, output = checkout.run(*asked)
    assert (code, output.splitlines()[-3:]) == (2, said)
    assert list((checkout.root / "results").iterdir()) == []
    checkout.run("train", "CONFIG_TRACKER_RUN_NAME=before", "CONFIG_NUM_STEPS=1")
    assert checkout.run(*asked)[0] == 2
    assert {path.name for path in (checkout.root / "results").iterdir()} == {"before", "latest"}
    assert checkout.latest.name == "before"


def test_a_second_training_is_compared_with_the_first(checkout: Checkout) -> None:
    for name in ("first", "second"):
        _, output = checkout.run("train", f"CONFIG_TRACKER_RUN_NAME={name}", "CONFIG_OPTIMIZER=adam")
    assert output.splitlines()[-1] == "  make compare A=results/first B=results/latest"
    assert "configuration: pretender, preset default; OPTIMIZER=adam" in output.splitlines()


def test_a_wrong_name_for_the_run_is_refused(checkout: Checkout) -> None:
    code, output = checkout.run("train", "CONFIG_TRACKER_RUN_NAME=a/b")
    assert code == 2
    assert not (checkout.root / "results").exists()
    assert output.splitlines()[1:] == [
        "error: TRACKER_RUN_NAME: 'a/b' cannot be the name of a folder",
        "hint: give CONFIG_TRACKER_RUN_NAME=name",
    ]


def test_the_output_is_passed_on_while_it_is_printed(checkout: Checkout) -> None:
    process = checkout.start("train", "CONFIG_BEHAVIOR=hang")
    for line in printed(process):
        if line.startswith("training with"):
            break
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=600)
    assert process.returncode == 75
