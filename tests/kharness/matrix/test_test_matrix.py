"""`make test_matrix` from outside: the script as a process, with a model that can be told to go wrong."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from ...processes import is_gone
from .conftest import Checkout, behavior, printed, records
from .test_dry_run import put_run

ROOT = Path(__file__).resolve().parents[3]

FOUR = ["optimizer-adam_seed-1", "optimizer-adam_seed-2", "optimizer-sgd_seed-1", "optimizer-sgd_seed-2"]


def test_a_matrix_from_nothing_to_its_report(checkout: Checkout) -> None:
    code, output = checkout.run("test_matrix")
    assert code == 0, output
    lines = output.splitlines()
    name = checkout.latest.name
    assert lines[0] == "no .config yet: starting from defconfigs/default"
    assert lines[1:6] == [
        "matrix: 4 runs (OPTIMIZER=sgd|adam SEED=1|2)",
        f"  in results/{name}",
        "  baseline: sgd, the first; BASELINE=adam compares with another",
        "  a time left is shown once the first run is under way",
        "[1/4] optimizer-sgd_seed-1",
    ]
    assert re.fullmatch(r"  optimizer-sgd_seed-1: complete: 3 steps in \d+\.\d s, loss 0\.2600", lines[6])
    assert "sgd        2/2       51.50 ± 0.71" in output
    assert "delivered" not in output  # the CSV is no tracker
    assert lines[-2:] == [f"summary: results/{name}/summary.md", f"page: results/{name}/report.html"]
    assert checkout.statuses() == dict.fromkeys(FOUR, "complete")
    assert 'CONFIG_MATRIX_AXES="OPTIMIZER=sgd|adam SEED=1|2"' in (checkout.root / ".config").read_text()


def test_how_long_it_takes_is_said_before_it_begins(checkout: Checkout) -> None:
    """The estimate comes from runs that have ended; a plan of hours also says how to shorten it."""
    put_run(checkout, "a", seconds=4000)
    given = ("CONFIG_MATRIX_AXES=OPTIMIZER=sgd|adam", "BASELINE=adam")
    code, output = checkout.run("test_matrix", *given)
    assert (code, output.splitlines()[3:6]) == (
        0,
        [
            "  baseline: adam",
            "  estimate: 2:13:20",
            "  to shorten it: OPTIMIZER=… with fewer values, CONFIG_MAX_STEPS=…, JOBS=…; "
            "Ctrl-C stops it, and `make continue` goes on",
        ],
    )
    short = checkout.run("test_matrix", "CONFIG_MATRIX_AXES=SEED=1", "JOBS=2")[1].splitlines()
    assert [line for line in short if "baseline" in line] == []
    assert len([line for line in short if line.startswith("  estimate: ")]) == 1


def test_what_a_run_directory_holds(checkout: Checkout) -> None:
    checkout.run("test_matrix", "CONFIG_MATRIX_AXES=SEED=1")
    run = checkout.latest / "seed-1"
    found = {path.name for path in run.iterdir()}
    assert {".config", "config.py", "run.json", "status.json", "metrics.jsonl", "output.log"} <= found
    assert "CONFIG_SEED=1\n" in (run / ".config").read_text()
    assert (run / "output.log").read_text() == f"training with sgd 0.1 in {checkout.root}\n"
    status = json.loads((run / "status.json").read_text())
    attempt = status["attempts"][0]
    assert status["status"] == "complete"
    assert (attempt["exit_code"], attempt["signal"], attempt["reason"]) == (0, None, None)
    assert attempt["started"] < attempt["ended"]


def test_the_plan_says_what_was_to_run_and_on_what(checkout: Checkout) -> None:
    environment = {**os.environ, "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b"}
    environment |= {"GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b", "GIT_CONFIG_GLOBAL": os.devnull}
    for command in (["init", "-q"], ["add", "pretender"], ["commit", "-q", "-m", "x"]):
        subprocess.run(["git", *command], cwd=checkout.root, check=True, env=environment)
    revision = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=checkout.root, check=True, capture_output=True, text=True
    ).stdout.strip()
    checkout.run("test_matrix", "CONFIG_MATRIX_AXES=OPTIMIZER=adam|sgd")
    plan = json.loads((checkout.latest / "matrix.json").read_text())
    assert plan["axes"] == [{"symbol": "OPTIMIZER", "values": ["adam", "sgd"]}]
    assert [(cell["name"], cell["values"]) for cell in plan["cells"]] == [
        ("optimizer-adam", {"OPTIMIZER": "adam"}),
        ("optimizer-sgd", {"OPTIMIZER": "sgd"}),
    ]
    assert plan["git"] == {"revision": revision, "dirty": False, "diff_sha256": None}
    assert plan["model"] == "pretender"
    assert plan["versions"]["kconfiglib"] == "14.1.0"


def test_the_printed_command_runs_by_hand(checkout: Checkout) -> None:
    checkout.run("test_matrix", "CONFIG_MATRIX_AXES=SEED=3")
    command = json.loads((checkout.latest / "matrix.json").read_text())["cells"][0]["command"]
    subprocess.run(command, shell=True, cwd=checkout.root, check=True)  # noqa: S602 - it is meant for a shell
    starts = [r for r in records(checkout.latest / "seed-3") if r["event"] == "start"]
    assert [(r["attempt"], r["config"]["SEED"]) for r in starts] == [(1, 3), (2, 3)]


def test_make_variables_count_for_this_call_only(checkout: Checkout) -> None:
    environment = {
        "KHARNESS_MAKE_VARS": "TRACKER CONFIG_NUM_STEPS",
        "TRACKER": "none",
        "CONFIG_NUM_STEPS": "5",
    }
    environment |= {"CONFIG_SEED": "99"}  # not on make's command line, so it is nobody's
    code, output = checkout.run("test_matrix", environment=environment)
    assert code == 0, output
    start = records(checkout.latest / FOUR[0])[0]
    assert (start["config"]["NUM_STEPS"], start["config"]["SEED"]) == (5, 1)
    assert "CONFIG_NUM_STEPS=3" in (checkout.root / ".config").read_text()


def test_refused_cells_are_listed_and_nothing_is_made(checkout: Checkout) -> None:
    code, output = checkout.run("test_matrix", "CONFIG_MATRIX_AXES=OPTIMIZER=sgd|lion SEED=1|101")
    assert (code, output.splitlines()) == (
        2,
        [
            "no .config yet: starting from defconfigs/default",
            "error: 2 values of MATRIX_AXES are refused",
            "  OPTIMIZER=lion is not one of adam, sgd (see `make configwhy SYMBOL=OPTIMIZER`)",
            "  SEED=1|101: SEED=101 is outside 0..100 (give a value from 0 to 100)",
            "hint: fix MATRIX_AXES",
        ],
    )
    assert not (checkout.root / "results").exists()
    assert not (checkout.root / ".config").exists()


@pytest.mark.parametrize("script", ["test_matrix", "test_matrix_dry_run"])
def test_what_could_not_be_run_or_judged_is_refused_before_anything_is_made(
    checkout: Checkout, script: str
) -> None:
    before = everything(checkout.root)
    kconfig = (ROOT / "lib/kharness/matrix/Kconfig").read_text()
    launchers = ", ".join(re.findall(r'^\tdefault "(\w+)" if LAUNCHER_', kconfig, flags=re.M))
    refused = [
        ("BASELINE=nowhere", "BASELINE=nowhere is not a variant, run or matrix"),
        ("BASELINE=OPTIMIZER=lion", "BASELINE=OPTIMIZER=lion is not a variant, run or matrix"),
        ("CONFIG_REPORT_METRIC=best_test_accuracy", "REPORT_METRIC=best_test_accuracy: "),
        ("FAIL_ON_REGRESSION=perhaps", "FAIL_ON_REGRESSION=perhaps is neither y nor n"),
        ("FILTER=SEED=9", "FILTER=SEED=9 matches none of 4 cells"),
        ("JOBS=-1", "JOBS=-1: MATRIX_JOBS=-1 is outside 0..4096"),
        ("LAUNCHER=other", f"LAUNCHER=other is not one of {launchers}"),
    ]
    for argument, message in refused:
        code, output = checkout.run(script, argument)
        told = [line for line in output.splitlines() if not line.startswith("no .config yet")]
        assert (code, len(told), told[1][:6]) == (2, 2, "hint: "), output
        assert told[0].startswith(f"error: {message}")
        assert everything(checkout.root) == before
    early = ("CONFIG_MATRIX_EARLY_STOPPING=y", "CONFIG_SWEEP_METRIC=test_loss")
    code, output = checkout.run(script, *early)
    assert (code, everything(checkout.root)) == (2, before)
    assert "error: SWEEP_METRIC=test_loss: the test set chooses nothing\n" in output


def everything(root: Path) -> dict[str, bytes]:
    files = [path for path in root.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def test_a_baseline_is_the_matrix_that_it_was_when_it_was_given(checkout: Checkout) -> None:
    """Neither the one that `latest` is by now, nor one that lies elsewhere when the report is read again."""
    checkout.run("test_matrix", "CONFIG_MATRIX_AXES=OPTIMIZER=sgd SEED=1|2")
    first = checkout.latest
    axes = "CONFIG_MATRIX_AXES=OPTIMIZER=adam|sgd SEED=1|2"
    code, output = checkout.run("test_matrix", "BASELINE=results/latest:OPTIMIZER=sgd", axes)
    assert code == 0, output
    assert checkout.latest != first
    settings = json.loads((checkout.latest / "matrix.json").read_text())["settings"]
    assert settings["REPORT_BASELINE"] == f"{first}:OPTIMIZER=sgd"
    process = checkout.start("summary", f"RUN={checkout.latest}", cwd="/")
    again, _ = process.communicate(timeout=600)
    compared = [line for line in again.splitlines() if "compared with" in line]
    assert compared == [f"test accuracy compared with {first}:OPTIMIZER=sgd (95 % intervals):"]
    assert compared[0] in output


@pytest.mark.parametrize(
    ("what", "status", "reason"),
    [
        ("crash", "failed", "exit code 1: RuntimeError: the loss is a banana"),
        ("sigkill", "killed", "signal 9 (SIGKILL)"),
        ("no-journal", "failed", "exit code 0, but the journal's end record is missing"),
        ("no-end", "failed", "exit code 0, but the journal's end record is missing"),
        ("lie", "failed", "ran with other values than requested: LEARNING_RATE=0.5, requested 0.1"),
    ],
)
def test_a_run_that_goes_wrong_takes_no_other_along(
    checkout: Checkout, what: str, status: str, reason: str
) -> None:
    code, output = checkout.run("test_matrix", behavior(f"{what}@1"), "CONFIG_MATRIX_AXES=SEED=1|2")
    name = checkout.latest.name
    assert code == 3, output
    assert checkout.statuses() == {"seed-1": status, "seed-2": "complete"}
    assert f"  seed-1: {status}: {reason} (" in output
    assert f"see results/{name}/seed-1/output.log" in output
    assert f"not complete, in no mean: 1 of 2\n  seed-1: {status} ({reason})\n" in output
    assert "pretender  1/2" in output
    summary = json.loads((checkout.latest / "summary.json").read_text())
    assert summary["num_runs"] == {status: 1, "complete": 1}


def test_a_crash_shows_the_end_of_its_output(checkout: Checkout) -> None:
    _, output = checkout.run("test_matrix", behavior("crash"), "CONFIG_MATRIX_AXES=SEED=1")
    assert "  | RuntimeError: the loss is a banana\n" in output


def test_ctrl_c_saves_and_reports_what_is_there(
    checkout: Checkout, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    process = checkout.start("test_matrix", behavior("hang@2"), "CONFIG_MATRIX_AXES=SEED=1|2|3")
    run = checkout.root / "results" / "latest" / "seed-2" / "metrics.jsonl"
    wait_until(lambda: run.exists() and '"step"' in run.read_text())
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 130, output
    assert checkout.statuses() == {"seed-1": "complete", "seed-2": "interrupted", "seed-3": "pending"}
    assert (
        "SIGINT: stopping after the current step, with everything saved; a second one kills at once\n"
        in output
    )
    assert "  seed-2: interrupted: stopped on request after step 1 (" in output
    assert "  seed-2: interrupted (stopped on request after step 1)\n  seed-3: pending\n" in output
    assert "pretender  1/3" in output
    where = f"results/{checkout.latest.resolve().name}"
    assert output.splitlines()[-1] == f"resume with: make continue RUN={where}"
    assert records(checkout.latest / "seed-2")[-1]["status"] == "interrupted"
    assert (checkout.latest / "output.log").exists() is False
    assert (checkout.latest / "seed-2" / "output.log").read_text().endswith("saving\n")


def test_a_second_ctrl_c_kills(checkout: Checkout, wait_until: Callable[[Callable[[], bool]], None]) -> None:
    process = checkout.start("test_matrix", behavior("deaf@1"), "CONFIG_MATRIX_AXES=SEED=1|2")
    run = checkout.root / "results" / "latest" / "seed-1" / "metrics.jsonl"
    wait_until(lambda: run.exists() and '"step"' in run.read_text())
    process.send_signal(signal.SIGINT)
    for line in printed(process):
        if line.startswith("SIGINT"):
            break
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 130, output
    assert checkout.statuses() == {"seed-1": "killed", "seed-2": "pending"}
    assert "killing what runs\n" in output


def test_runs_die_with_a_runner_that_is_killed(
    checkout: Checkout, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    process = checkout.start("test_matrix", behavior("deaf"), "CONFIG_MATRIX_AXES=SEED=1")
    status = checkout.root / "results" / "latest" / "seed-1" / "status.json"
    wait_until(lambda: status.exists() and '"process_started"' in status.read_text())
    pid = json.loads(status.read_text())["attempts"][0]["pid"]
    training = psutil.Process(pid)
    assert training.is_running()
    process.kill()
    process.communicate()
    wait_until(lambda: is_gone(training))


def test_matrices_started_together_share_no_directory(checkout: Checkout) -> None:
    processes = [checkout.start("test_matrix", "CONFIG_MATRIX_AXES=SEED=1") for _ in range(4)]
    outputs = [process.communicate(timeout=600)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * 4, outputs
    matrices = [path for path in (checkout.root / "results").iterdir() if not path.is_symlink()]
    assert len(matrices) == 4
    names = {json.loads((path / "seed-1" / "run.json").read_text())["tracking"]["name"] for path in matrices}
    assert len(names) == 4
    assert checkout.latest in matrices


def test_points_that_did_not_arrive_are_named_with_the_way_to_send_them(checkout: Checkout) -> None:
    code, output = checkout.run("test_matrix", behavior("no-agent"), "CONFIG_MATRIX_AXES=SEED=1")
    run = f"results/{checkout.latest.name}/seed-1"
    assert code == 0, output
    assert f"warning: {run}: csv lacks 6 records; later: make sync RUN={run}\n" in output


def test_what_the_agents_found_is_told_once_at_the_end(checkout: Checkout) -> None:
    code, output = checkout.run("test_matrix", "GPU_MONITOR=y", "CONFIG_MATRIX_AXES=SEED=1|2")
    told = "warning: gpu_monitor: GPU_MONITOR=y, but there is no GPU; gpu_stats.jsonl is not written"
    assert code == 0, output
    assert output.splitlines().count(f"{told} (2 of 2 runs: seed-1, seed-2)") == 1


def test_results_go_to_the_output_directory(checkout: Checkout, tmp_path: Path) -> None:
    code, output = checkout.run("test_matrix", f"O={tmp_path / 'out'}", "CONFIG_MATRIX_AXES=SEED=1")
    assert code == 0, output
    assert (tmp_path / "out" / ".config").exists()
    assert (tmp_path / "out" / "results" / "latest" / "seed-1" / "status.json").exists()
    assert not (checkout.root / "results").exists()


def test_a_results_folder_that_is_a_file_is_refused(checkout: Checkout) -> None:
    (checkout.root / "results").write_text("")
    code, output = checkout.run("test_matrix")
    assert code == 2
    assert "error: " in output
    assert "Traceback" not in output


def test_summary_and_graphs_again_are_the_same(checkout: Checkout) -> None:
    checkout.run("test_matrix", "CONFIG_MATRIX_AXES=OPTIMIZER=sgd|adam", "CONFIG_REPORT_GRAPHS=y")
    files = [*checkout.latest.glob("summary.*"), *(checkout.latest / "graphs").iterdir()]
    before = {path.name: path.read_bytes() for path in files}
    assert {"summary.json", "summary.csv", "summary.md", "training_loss.png"} <= set(before)
    assert checkout.run("graphs")[0] == 0
    code, output = checkout.run("summary", f"RUN={checkout.latest}")
    assert code == 0
    assert "sgd        1/1" in output
    assert {path.name: path.read_bytes() for path in files} == before


@pytest.mark.parametrize("script", ["summary", "graphs"])
def test_a_report_of_nothing_is_refused(checkout: Checkout, script: str) -> None:
    code, output = checkout.run(script)
    assert (code, output) == (
        2,
        "error: results/latest does not exist\nhint: run `make test_matrix` first, or say RUN=dir\n",
    )
    code, output = checkout.run(script, "RUN=nowhere")
    assert (code, output.splitlines()[0]) == (2, f"error: {checkout.root}/nowhere does not exist")
