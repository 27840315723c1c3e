"""`kharness run` and `kharness matrix`: a training of anybody's, once and in all combinations."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from kharness import cli
from kharness.report.overview.next_runs import matrix_command
from kharness.report.summary import collect
from kharness.runs.errors import MatrixError
from monitoring.journal.lineage import counting
from monitoring.journal.records import read_records

from ....processes import kill_process, naming, with_arguments
from ....waiting import wait_until
from ..conftest import Begin, Command

TRAINS = Path(__file__).parent / "trains.py"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder of the user's; what still runs in it when the test ends is killed."""
    yield tmp_path
    for process in naming(str(tmp_path)):
        kill_process(process)


def steps_of(run: Path) -> list[int]:
    records = counting(record for record, _ in read_records(run / "metrics.jsonl"))
    return [int(str(record["global_step"])) for record in records if record["event"] == "step"]


def test_run_is_recorded_and_its_exit_code_passed_on(folder: Path, kharness: Command) -> None:
    ended = kharness(folder, "run", "--", sys.executable, TRAINS, "--lr", 2)
    assert ended.returncode == 0, ended.stderr
    (run,) = (path for path in (folder / "results").iterdir() if not path.is_symlink())
    assert run.name.startswith("trains_")
    assert (folder / "results" / "latest").resolve() == run
    assert f"run: results/{run.name}" in ended.stdout
    assert "iter 10: loss" in ended.stdout
    assert steps_of(run) == list(range(1, 11))
    assert json.loads((run / "status.json").read_text())["status"] == "complete"
    failed = kharness(folder, "run", "--", sys.executable, "-c", "raise SystemExit(9)")
    assert failed.returncode == 9
    assert "failed: exit code 9" in failed.stderr.splitlines()


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory, kharness: Command) -> tuple[Path, str]:
    """A matrix of two learning rates and five seeds, and what it printed."""
    folder = tmp_path_factory.mktemp("commands")
    axes = ["-a", "lr=1,2", "-a", "seed=1..5"]
    program = [sys.executable, TRAINS, "--lr", "{lr}", "--seed={seed}", "--out", "{run_dir}/x {{y}}"]
    ended = kharness(folder, "matrix", *axes, "--jobs", 2, "--", *program)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return folder, ended.stdout


def test_matrix_ends_in_a_verdict(matrix: tuple[Path, str]) -> None:
    folder, printed = matrix
    assert "matrix: 10 runs (lr=1,2 seed=1,2,3,4,5)" in printed
    assert "val loss compared with lr=1" in printed
    assert re.search(r"lr=2  -0\.0[45]\d\d \(.*\)  better, p < 0\.0001", printed)
    summary = json.loads((folder / "results" / "latest" / "summary.json").read_text())
    assert [len(variant["runs"]) for variant in summary["variants"]] == [5, 5]


def test_its_report_names_the_command_that_adds_seeds(matrix: tuple[Path, str]) -> None:
    summary = collect(matrix[0] / "results" / "latest")
    program = shlex.join(
        [sys.executable, str(TRAINS), "--lr", "{lr}", "--seed={seed}", "--out", "{run_dir}/x {{y}}"]
    )
    assert matrix_command(summary) == f"kharness matrix -a lr=1,2 -a seed=1..5 --no-graphs -- {program}"
    assert (
        matrix_command(summary, "1..10")
        == f"kharness matrix -a lr=1,2 -a seed=1..10 --no-graphs -- {program}"
    )


def test_graphs_that_a_matrix_left_out_are_drawn_later(matrix: tuple[Path, str], kharness: Command) -> None:
    folder, printed = matrix
    of_matrix = (folder / "results" / "latest").resolve()
    assert f"graphs: not drawn (--no-graphs); kharness graphs results/{of_matrix.name}\n" in printed
    assert not (of_matrix / "graphs").exists()
    assert kharness(folder, "graphs").returncode == 0
    assert (of_matrix / "graphs" / "training_loss.png").exists()


def test_words_arrive_as_they_were_given(matrix: tuple[Path, str]) -> None:
    run = (matrix[0] / "results" / "latest").resolve() / "lr-2_seed-3"
    assert f"out={run}/x {{y}} fast=False" in (run / "output.log").read_text()
    command = json.loads((run / "command.json").read_text())
    assert command["values"] == {"LR": 2, "SEED": 3}
    assert command["argv"][2:] == ["--lr", "2", "--seed=3", "--out", f"{run}/x {{y}}"]


def test_targets_of_make_know_it(matrix: tuple[Path, str], kharness: Command) -> None:
    folder, _ = matrix
    assert "10 runs: 10 complete" in kharness(folder, "status").stdout
    run = "results/latest/lr-{}_seed-1"
    assert "configuration: LR 1 -> 2" in kharness(folder, "compare", run.format(1), run.format(2)).stdout
    compared = kharness(folder, "compare", "results/latest:lr=1", "results/latest:lr=2").stdout
    assert "configuration: LR 1 -> 2" in compared
    assert "iter 1: loss" in kharness(folder, "logs", "CELL=lr-1_seed-1").stdout
    for name in ("gputop", "watch"):  # one script: what it says without a terminal
        assert kharness(folder, name).stderr.startswith("error: the dashboard needs a terminal")
    again = kharness(folder, "continue")
    assert again.returncode == 0
    assert "matrix: complete: 10 runs" in again.stdout


TOML = """
command = "{python} {trains} --lr {{lr}} --seed {{seed}}"
metric = "val_loss"
exclude = ["lr=1"]
[axis]
lr = [1, 2.5]
seed = "1..2"
"""


def test_what_stands_in_the_toml_file_holds_unless_something_else_is_typed(
    folder: Path, kharness: Command
) -> None:
    (folder / "kharness.toml").write_text(TOML.format(python=sys.executable, trains=TRAINS))
    planned = kharness(folder, "matrix", "--dry-run", "-a", "Seed=7", "--include", "lr=9")
    assert planned.returncode == 0, planned.stderr
    assert [line.split()[0] for line in planned.stdout.splitlines()] == ["lr-2.5", "lr-9", "nothing"]
    assert f"{TRAINS} --lr 2.5 --seed 7" in planned.stdout


def test_run_has_the_name_that_it_is_given(folder: Path, kharness: Command) -> None:
    words = ["run", "--name", "first try", "--", sys.executable, "-c", "print('step 1 loss 0.5')"]
    assert "run: results/first try" in kharness(folder, *words).stdout
    assert json.loads((folder / "results/first try/run.json").read_text())["tracking"]["name"] == "first try"
    assert (folder / "results/latest").resolve().name == "first try"
    again = kharness(folder, *words)
    assert (again.returncode, again.stderr.splitlines()) == (
        2,
        [
            "error: results/first try exists already",
            "hint: give another --name, or: kharness continue 'results/first try'",
        ],
    )


def test_a_folder_of_results_that_cannot_be_made_is_called_as_it_was_typed(
    folder: Path, kharness: Command
) -> None:
    refused = kharness(folder, "run", "--results", "/dev/null/x", "--", "true")
    assert (refused.returncode, refused.stderr.splitlines()) == (
        2,
        [
            "error: no run can be made in /dev/null/x: not a directory",
            "hint: --results names a folder that you can write to",
        ],
    )


def test_run_is_judged_by_what_the_toml_file_says(folder: Path, kharness: Command) -> None:
    """The line at the end of a program advises it where nothing says which way a metric is better."""
    prints = "print('step 1: val loss 0.5, val acc 0.75')"
    advised = 'in kharness.toml metric = "val_acc" and, below [better], "val_acc" = "up"'
    assert advised in kharness(folder, "run", "--", sys.executable, "-c", prints).stdout
    (folder / "kharness.toml").write_text('metric = "val_acc"\n[better]\n"val_acc" = "up"\n')
    ended = kharness(folder, "run", "--", sys.executable, "-c", prints)
    assert ended.returncode == 0, ended.stderr
    reported = kharness(folder, "report").stdout
    assert [line.split()[3:5] for line in reported.splitlines() if "complete" in line] == [
        ["0.7500", "0.5000"]
    ]
    assert "decides nothing" not in ended.stdout + reported
    assert "REPORT" not in kharness(folder, "ls", "--columns", "val_acc,best.val_acc").stdout


@pytest.mark.parametrize(
    ("content", "typed", "said", "hint"),
    [
        ("job = 2", [], "kharness.toml: job is not an option", "did you mean jobs?"),
        ("jobs = 'a'", [], "kharness.toml: jobs: a is not a number from 0 on", "kharness matrix --help"),
        (
            "jobs = 'a'",
            ["--jobs", "b"],
            "argument --jobs: b is not a number from 0 on",
            "kharness matrix --help",
        ),
        (
            "[better]\nwer = 'x'",
            [],
            "kharness.toml: better: wer=x does not say which way a metric is better",
            "--better wer=down, or up; once for each metric",
        ),
        (
            'command = "echo \'a"',
            [],
            "kharness.toml: command is not a command line: no closing quotation",
            "a list of words needs no quotes",
        ),
        (
            'resume-with = "--a \'b"',
            ["-a", "x=1,2", "--", "true", "{x}"],
            "kharness.toml: resume-with: --a 'b: no closing quotation",
            "--resume-with '--resume {run_dir}/ckpt.pt'",
        ),
    ],
)
def test_what_is_wrong_in_the_toml_file_is_told_by_its_name_there(
    folder: Path, kharness: Command, content: str, typed: list[str], said: str, hint: str
) -> None:
    (folder / "kharness.toml").write_text(content)
    refused = kharness(folder, "matrix", *typed)
    assert (refused.returncode, refused.stderr) == (2, f"error: {said}\nhint: {hint}\n")
    assert os.listdir(folder) == ["kharness.toml"]


def test_file_is_given_with_the_values_of_each_run(folder: Path, kharness: Command) -> None:
    (folder / "c.json").write_text('{"lr": {lr}, "deep": {"name": "{name}", "kept": "${lr}"}}')
    reads = ["-c", "import json, sys; print(sorted(json.load(open(sys.argv[1])).items()))", "{c.json}"]
    reads[1] += "; print('iter 0: loss 1, time 1ms')"  # a program that counts from 0 has done one step
    axes = ["-a", "lr=1e-3,x", "-a", "name=a\\1 b"]
    refused = kharness(folder, "matrix", *axes, "--render", "c.json", "--", sys.executable, *reads)
    assert refused.stderr.startswith("error: c.json cannot be read once it has the values of a run: ")
    assert refused.stderr.splitlines()[1] == "hint: put quotes around its placeholders"
    assert list((folder / "results").iterdir()) == []
    axes[1] = "lr=1e-3"
    axes[3] = "name=a b"
    ended = kharness(folder, "matrix", *axes, "--render", "c.json", "--", sys.executable, *reads)
    assert ended.returncode == 0, ended.stderr
    (log,) = (folder / "results" / "latest").glob("*/output.log")
    assert log.read_text().startswith("[('deep', {'name': 'a b', 'kept': '${lr}'}), ('lr', 0.001)]\n")
    assert "complete: 1 step in" in ended.stdout


def test_later_attempt_has_the_words_that_resume_it_where_there_is_something(
    folder: Path, kharness: Command
) -> None:
    program = "import os, sys; print(sys.argv[2:]); open(sys.argv[1], 'w') if {} else 0; sys.exit(3)"
    for keeps, shown in (("True", "['--from={}/ck pt']"), ("False", "from scratch")):
        words = ["run", "--resume-with", "'--from={run_dir}/ck pt'", "--", sys.executable, "-c"]
        assert kharness(folder, *words, program.format(keeps), "{run_dir}/ck pt").returncode == 3
        run = (folder / "results" / "latest").resolve()
        assert kharness(folder, "continue").returncode == 3
        assert shown.format(run) in (run / "output.log").read_text()


def test_resume_words_of_a_program_that_is_told_no_path_wait_for_its_checkpoint(
    folder: Path, kharness: Command
) -> None:
    program = (
        "import pathlib, sys; print(sys.argv[2:]); out = pathlib.Path(sys.argv[1]); out.mkdir(exist_ok=True);"
    )
    words = [
        "run",
        "--resume-with",
        "if:{run_dir}/out/ckpt.pt --init_from=resume",
        "--",
        sys.executable,
        "-c",
    ]
    program += "checkpoint = out / 'ckpt.pt'; is_second = (out / 'a').exists(); (out / 'a').touch();"
    program += "checkpoint.touch() if is_second else 0; sys.exit(3)"
    assert kharness(folder, *words, program, "{run_dir}/out").returncode == 3
    for _ in range(2):
        assert kharness(folder, "continue").returncode == 3
    log = (folder / "results" / "latest" / "output.log").read_text()
    assert re.findall(r"^\[.*\]$", log, re.MULTILINE) == ["[]", "[]", "['--init_from=resume']"]


def test_resume_words_take_the_newest_checkpoint_that_a_pattern_stands_for(
    folder: Path, kharness: Command
) -> None:
    program = (
        "import os, pathlib, sys, time; print(sys.argv[2:]); out = pathlib.Path(sys.argv[1])\n"
        "for n, age in ((900, 9), (1000, 1)):\n"
        "    place = out / f'checkpoint-{n}'; place.mkdir(parents=True, exist_ok=True)\n"
        "    (place / 'state').touch() if n == 900 else 0\n"
        "    os.utime(place, (time.time() - age,) * 2)\n"
        "sys.exit(3 if len(sys.argv) == 2 else 0)"
    ).replace("{n}", "{{n}}")
    resume = "--from {run_dir}/out/checkpoint-* --whole {run_dir}/out/checkpoint-*/state/.."
    words = ["run", "--resume-with", resume, "--", sys.executable, "-c"]
    assert kharness(folder, *words, program, "{run_dir}/out").returncode == 3
    run = (folder / "results" / "latest").resolve()
    ended = kharness(folder, "continue")
    assert ended.returncode == 0, ended.stderr
    again = shlex.split(ended.stdout[ended.stdout.index("kharness matrix") :], comments=True)
    assert again.pop(5) == resume
    start = ["kharness", "matrix", "-a", "seed=1..5", "--resume-with"]
    assert again == [*start, *words[3:], program, "{run_dir}/out", "--seed", "{seed}"]
    given = ["--from", f"{run}/out/checkpoint-1000", "--whole", f"{run}/out/checkpoint-900"]
    assert str(given) in (run / "output.log").read_text()


def test_hints_are_commands_that_are_there(folder: Path, kharness: Command) -> None:
    failed = kharness(folder, "matrix", "-a", "x=1", "--retries", 0, "--", "false", "{x}")
    assert failed.returncode == 3
    shown = kharness(folder, "status").stdout
    assert "resume with: kharness continue results/test_matrix_" in shown
    assert "make " not in shown


@pytest.mark.parametrize(
    ("program", "why"),
    [
        (
            "true",
            "nothing is compared: no run has test_accuracy, test_loss, val_accuracy, val_loss or train_loss;"
            " --metric NAME names another",
        ),
        ("false", "nothing is compared yet: no run is complete"),
    ],
)
def test_matrix_without_a_metric_names_none(folder: Path, program: str, why: str, kharness: Command) -> None:
    ended = kharness(folder, "matrix", "-a", "x=1,2", "--retries", 0, "--", program, "{x}")
    shown = ended.stdout.splitlines()
    assert f"  {why}" in shown, ended.stdout + ended.stderr
    assert not [line for line in shown if "compared with" in line or "test accuracy" in line]


@pytest.mark.parametrize("victim", ["runner", "bridge", "program"])
def test_killed_matrix_is_continued(
    folder: Path, victim: str, kharness: Command, begin_kharness: Begin
) -> None:
    (hold := folder / "hold").touch()
    words = ["matrix", "-a", "lr=1,2", "--retries", "0", "--no-graphs", "--", sys.executable]
    program = [str(TRAINS), "--lr", "{lr}", "--steps", "40", "--hold", str(hold)]
    runner = begin_kharness(folder, *words, *program)
    log = folder / "results" / "latest" / "lr-1" / "output.log"
    wait_until(lambda: "iter 5" in log.read_text())
    of_cell = with_arguments(str(TRAINS), psutil.Process(runner.pid).children(recursive=True))
    bridge, *guards = with_arguments("monitoring.bridge", of_cell)
    (trains,) = {*of_cell} - {bridge, *guards}
    killed = {"runner": psutil.Process(runner.pid), "bridge": bridge, "program": trains}[victim]
    os.kill(killed.pid, signal.SIGKILL)
    wait_until(lambda: not trains.is_running())
    hold.unlink()
    runner.wait()

    ended = kharness(folder, "continue")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    matrix = folder / "results" / "latest"
    shown = kharness(folder, "status").stdout
    assert "2 runs: 2 complete" in shown
    # the end of a runner says nothing of the run
    killed_by = {"runner": "from scratch after a kill with its runner"}.get(
        victim, "unstable, from scratch after a kill"
    )
    assert f"  lr-1: complete, {killed_by} (attempt 2)\n" in shown
    for cell in ("lr-1", "lr-2"):
        assert steps_of(matrix / cell) == list(range(1, 41))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_run_whose_runner_ends_takes_its_program_along_and_is_continued(
    folder: Path, number: signal.Signals, kharness: Command, begin_kharness: Begin
) -> None:
    (hold := folder / "hold").touch()
    program = [sys.executable, str(TRAINS), "--lr", "1", "--steps", "40", "--hold", str(hold)]
    runner = begin_kharness(folder, "run", "--", *program)
    run = folder / "results" / "latest"
    wait_until(lambda: (run / "output.log").exists() and "iter 5" in (run / "output.log").read_text())
    below = psutil.Process(runner.pid).children(recursive=True)
    assert with_arguments(str(TRAINS), below)
    os.kill(runner.pid, number)
    assert runner.wait() == (-signal.SIGKILL if number == signal.SIGKILL else 75)
    wait_until(lambda: not any(process.is_running() for process in below))
    hold.unlink()
    word = "killed" if number == signal.SIGKILL else "interrupted"
    cause = "runner_died" if number == signal.SIGKILL else "stopped"
    assert f"1 run: 1 {word} ({cause})\n" in kharness(folder, "status").stdout
    assert f" {word} " in kharness(folder, "ls").stdout
    assert f" {word} " in kharness(folder, "report").stdout
    assert kharness(folder, "continue").returncode == 0
    assert steps_of(run) == list(range(1, 41))


REFUSED = [
    (["matrix", "-a", "lr=1", "--", "true", "{l}"], "{l} is not an axis", "perhaps {lr}"),
    (
        ["matrix", "-a", "lr=1", "-a", "x=2", "--", "true", "{lr}"],
        "the command never receives the axis x",
        "write {x} where its value belongs: --x {x}",
    ),
    (
        ["matrix", "-a", "x=1,2", "-a", "X=3", "--", "true", "{x}"],
        "the axis x is given twice",
        "give all values at once: -a x=value,value",
    ),
    (["matrix", "--", "true"], "there is no axis", "give -a name=value,value; kharness run runs it once"),
    (["matrix", "-a", "lr=1,", "--", "true", "{lr}"], "-a lr=1, has an empty value", "for example -a lr="),
    (["matrix", "-a", "a b=1", "--", "true"], "-a a b=1 is not NAME=value,value", "for example -a lr="),
    (["matrix", "-a", "lr=1,1", "--", "true", "{lr}"], "-a: LR has the value 1 twice", "list it once"),
    (["run", "--", "nothere"], "nothere is not found", "give the command as you would type it here"),
    (["run", "--", "here.py"], "here.py is not a command", "write python"),
    (["run", "--", "./here"], "./here is not a command", "chmod +x ./here, then write ./here"),
    (["run", "--", "here"], "here is not a command", "chmod +x ./here, then write ./here"),
    (
        ["run", "--", "python3", "-u", "no.py", "x"],
        "no.py is not found",
        "give the command as you would type",
    ),
    (
        ["matrix", "-a", "x=y,n", "--", "true", "{x?}"],
        "{x?} is no word where its value is y",
        "write the flag: --x{x?}",
    ),
    (
        ["matrix", "-a", "x=1", "--launcher", "slurm", "--launcher-option", "x=1", "--", "true", "{x}"],
        "--launcher-option x=1: slurm has no option x",
        "its options: partition, account, qos",
    ),
    (
        ["run", "--detach", "--", "true"],
        "--detach: what runs on this machine ends with this command",
        "give --launcher slurm",
    ),
    (["run"], "there is no command", "kharness run -- python"),
    (
        ["matrix", "-a", "x=1"],
        "there is no command",
        "kharness matrix -a lr=1,2 -- python",
    ),
    (["mtrix", "-a", "x=1"], "unknown command 'mtrix'", "did you mean matrix?"),
    (["python3", "t.py"], "unknown command 'python3'", "kharness run -- python3 t.py"),
    (
        ["run", "--offline", "python3", "t.py", "--lr", "a b"],
        "unrecognized arguments: python3 t.py --lr a b",
        "-- before the program: kharness run --offline -- python3 t.py --lr 'a b'",
    ),
    (
        ["matrix", "-a", "x=1,2", "python3", "t.py", "{x}"],
        "unrecognized arguments: python3 t.py {x}",
        "-- before the program: kharness matrix -a x=1,2 -- python3 t.py {x}",
    ),
    (["run", "--ofline", "--", "true"], "unrecognized arguments: --ofline", "kharness run --help"),
    (["run", "-e", "A", "--", "true"], "-e A is not NAME=value", "-e LR={lr}"),
    (
        ["matrix", "--jobs", "x", "--", "true"],
        "argument --jobs: x is not a number from 0 on",
        "kharness matrix --",
    ),
    (
        ["matrix", "-a", "x=1,2", "--early-stopping", "0", "--", "true", "{x}"],
        "argument --early-stopping: 0 is not a number from 1 on",
        "kharness matrix --help",
    ),
    (
        ["matrix", "-a", "x=1,2", "--early-stopping", "--metric", "test_loss", "--", "true", "{x}"],
        "--metric test_loss: the test set chooses nothing",
        "give val_loss, val_accuracy or the like",
    ),
    (
        ["matrix", "-a", "x=1,2", "--quarantine", "none.txt", "--", "true", "{x}"],
        "none.txt: no such file or directory",
        "check the path, and that you may read it",
    ),
    (
        ["continue", "--gpus-per-cell", "a"],
        "argument --gpus-per-cell: a is not a number from 0 on",
        "kharness continue --",
    ),
    (["continue", "--jobs", "-1"], "argument --jobs: -1 is not a number from 0 on", "kharness continue --"),
    (["sweep", "--", "true"], "there is no range", "give -a name=log:low..high"),
    (["sweep", "-a", "x=3..1", "--", "true", "{x}"], "-a x=3..1 does not rise", "for example -a lr=log:"),
    (
        ["sweep", "-a", "x=log:1,2", "--", "true", "{x}"],
        "-a x=log:1,2: a range is low..high, of two numbers",
        "for example",
    ),
    (
        ["sweep", "-a", "x=1..2.5", "--method", "grid", "--", "true", "{x}"],
        "X=1..2.5 has no grid",
        "give its",
    ),
    (
        ["sweep", "-a", "seed=1..5", "--method", "tpe", "--", "true", "{seed}"],
        "SEED cannot be searched: it is no way to train better",
        "give",
    ),
    (
        ["sweep", "-a", "x=1,2", "--metric", "wer", "--", "true", "{x}"],
        "--metric wer: which way it is better is unknown",
        "add --better wer=down, or wer=up",
    ),
    *(
        (
            [command, *axis, "--tracker", "wandbb", "--", "touch", "begun{x}" if axis else "begun"],
            "unknown tracker 'wandbb'",
            "known trackers: ",
        )
        for command, axis in (("run", []), ("matrix", ["-a", "x=1,2"]), ("sweep", ["-a", "x=1,2"]))
    ),
    (
        ["run", "--pattern", "(?P<x>", "--", "true"],
        "--pattern (?P<x> is no regular expression: missing ), unterminated subpattern at position 0",
        "one named group per metric",
    ),
    (["run", "--pattern", "x", "--", "true"], "--pattern x names no metric", "one named group per metric"),
    (["status", "a", "b"], "b is one name too many", "kharness status --help"),
    (["compare", "a", "b", "C=1"], "C=1 means nothing to kharness compare", "kharness compare reads A, B, "),
    (["compare", "a", "--nope"], "unrecognized argument: --nope", "kharness compare --help"),
    *(
        (
            [*words, "--better", "val_loss=dwn"],
            "--better val_loss=dwn does not say which way a metric is better",
            "--better wer=down, or up; once for each metric",
        )
        for words in (["report"], ["compare", "a", "b"], ["summary"])
    ),
    (["reproduce", "ANYWAY=yes"], "ANYWAY=yes is neither y nor n", "write ANYWAY=y, or leave it out"),
]


@pytest.mark.parametrize(("words", "error", "hint"), REFUSED)
def test_refused_in_a_line_and_nothing_is_written(
    folder: Path, words: list[str], error: str, hint: str, kharness: Command
) -> None:
    for name in ("here", "here.py"):
        (folder / name).touch()
    ended = kharness(folder, *words)
    assert ended.returncode == 2
    first, second = ended.stderr.splitlines()
    assert first == f"error: {error}"
    assert second.startswith(f"hint: {hint}")
    assert not (folder / "results").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["here.py"], ("here.py is not a command", "write python3 here.py")),
        (["python", "here.py"], ("python is not found", "write python3")),
        ([], ("there is no command", "kharness run -- python3 train.py")),
    ],
)
def test_hints_name_the_python_that_is_there(
    tmp_path: Path, words: list[str], said: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here.py").touch()
    (tmp_path / "python3").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MatrixError) as refused:
        cli.main(["run", "--", *words])
    assert (str(refused.value), refused.value.hint) == said
