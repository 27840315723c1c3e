"""The page gets a matrix's cells, the recorded look, the runs since then, and commands."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any, get_args

import pytest

from kharness.matrix.sweep.leaderboard import told_leaderboard
from kharness.pages.addition import MatrixPages, compared_options, folders
from kharness.pages.matrix import MatrixFiles, seeds_command, titled
from kharness.report.report import write_files
from kharness.report.summary import collect
from kharness.runs.lock import RunnerLock
from kharness.runs.seeds_of_run import more_seeds
from kharness.runs.status import Status
from monitoring.errors import UserError
from monitoring.host.name import host_name
from monitoring.host.process import process_started
from monitoring.web.rows import RunRow, read_row

from ..report.conftest import MatrixDirectory, training
from .conftest import made_sweep

RECORDED = Path(__file__).resolve().parents[2] / "data" / "recorded_matrix"


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """Results with the recorded matrix: of four runs one was killed."""
    return Path(shutil.copytree(RECORDED, tmp_path / "results" / "recorded"))


@pytest.fixture
def growing(tmp_path: Path) -> MatrixDirectory:
    """Two optimizers, three seeds, all complete; adam is better by 0.2."""
    axes = {"OPTIMIZER": ["sgd", "adam"], "SEED": ["1", "2", "3", "4"]}
    made = MatrixDirectory(tmp_path / "results" / "growing", axes)
    for name, accuracy in (("sgd", 0.5), ("adam", 0.7)):
        for seed in (1, 2, 3):
            numbers = training([1.0], [accuracy], accuracy + (seed if name == "sgd" else -seed) / 1000)
            made.add({"OPTIMIZER": name, "SEED": str(seed)}, numbers)
    return made


def rows_of(results: Path) -> list[RunRow]:
    journals = sorted(results.glob("*/*/metrics.jsonl"))
    return [read_row(f"results/{path.parent.relative_to(results)}", path.parent) for path in journals]


def shown(directory: Path) -> dict[str, Any]:
    [[_, (place, rows)]] = folders(rows_of(directory.parent)).items()
    return MatrixFiles().whole(place, rows)


def test_cells_have_their_status_reason_and_run(recorded: Path) -> None:
    found = shown(recorded)
    assert found["statuses"] == {"complete": 3, "killed": 1}
    assert [one["label"] for one in found["variants"]] == ["sgd", "adamw"]
    [killed] = [one for one in found["variants"][1]["cells"] if one["status"] == "killed"]
    assert killed == {
        "place": 3,
        "name": "optimizer-adamw_seed-2",
        "id": "results/recorded/optimizer-adamw_seed-2",
        "values": {"OPTIMIZER": "adamw", "SEED": "2"},
        "seed": "2",
        "status": "killed",
        "reason": "signal 9 (SIGKILL)",
        "attempts": 1,
        "unstable": False,
        "known_failure": "",
        "step": 16,
        "steps": 44,
        "left": killed["left"],
        "errors": 0,
    }


def test_without_a_look_it_says_when_verdicts_begin_and_how_to_record_one(recorded: Path) -> None:
    found = shown(recorded)
    assert found["look"] is None
    assert (found["seeds"], found["next_look"]) == (1, 5)
    assert found["commands"] == {
        "record": f"make summary RUN={recorded}",
        "continue": f"make continue RUN={recorded}",
        "seeds": "make test_matrix 'CONFIG_MATRIX_AXES=OPTIMIZER=sgd|adamw SEED=1..5'",
    }


def test_the_look_is_the_report_s_and_nothing_is_judged_anew(growing: MatrixDirectory) -> None:
    write_files(collect(growing.directory))
    report = json.loads((growing.directory / "summary.json").read_text())
    look = shown(growing.directory)["look"]
    [comparison], [of_report] = look["comparisons"], report["comparisons"]
    assert {name: comparison[name] for name in comparison if name in of_report and name != "seeds"} == {
        name: of_report[name] for name in of_report if name in comparison and name != "seeds"
    }
    assert (comparison["seeds"], comparison["since"], look["since"], look["num_complete"]) == (3, 0, 0, 6)
    assert look["explanation"] == report["explanation"]
    assert look["numbers"]["optimizer-adam_seed-2"] == 0.698
    assert look["variants"]["adam"]["metrics"]["test_accuracy"]["mean"] == pytest.approx(0.698)

    # a fourth seed comes: the page tells it, and the verdict is that of the look until somebody records one
    for name in ("sgd", "adam"):
        growing.add({"OPTIMIZER": name, "SEED": "4"}, training([1.0], [0.1], 0.1))
    after = shown(growing.directory)
    assert after["look"]["comparisons"] == [{**comparison, "since": 1}]
    assert (after["look"]["since"], after["seeds"]) == (2, 4)
    write_files(collect(growing.directory))
    assert shown(growing.directory)["look"]["since"] == 0


def test_while_a_runner_runs_it_it_is_named(recorded: Path) -> None:
    assert shown(recorded)["runner"] is None
    with RunnerLock(recorded):
        assert shown(recorded)["runner"] == f"pid {os.getpid()} on {os.uname().nodename}"


def test_a_summary_that_is_none_is_a_sentence(growing: MatrixDirectory) -> None:
    (growing.directory / "summary.json").write_text("[]")
    found = shown(growing.directory)
    assert (found["look"], found["problem"]) == (
        None,
        "summary.json cannot be read: summary.json is not a summary of runs",
    )


def test_a_live_run_counts_by_its_journal_and_a_dead_one_is_not_running(growing: MatrixDirectory) -> None:
    rows: dict[str, dict[str, Any]] = {}
    began = process_started(os.getpid()) or 0.0
    for name, status, started in (("sgd", "running", began), ("adam", "killed", began - 1)):
        run = growing.plan({"OPTIMIZER": name, "SEED": "4"})
        run.mkdir()
        job = {"pid": os.getpid(), "host": host_name(), "process_started": started}
        attempts = [{"started": 1.0, "job": job}]
        (run / "status.json").write_text(json.dumps({"status": "running", "attempts": attempts}))
        rows[run.name] = {"id": name, "status": status, "step": 3, "steps": 9}
    growing.plan({"OPTIMIZER": "sgd", "SEED": "5"})
    found = MatrixFiles().whole(growing.directory, rows)
    assert found["statuses"] == {"complete": 6, "running": 1, "pending": 1, "killed": 1}
    [killed] = [one for one in found["variants"][1]["cells"] if one["status"] == "killed"]
    assert killed["reason"] == "its runner died before a step was recorded"


def test_a_list_has_counts_and_what_is_shown(growing: MatrixDirectory, recorded: Path) -> None:
    write_files(collect(growing.directory))
    listed = MatrixPages().listed(rows_of(recorded.parent))
    assert [(one["id"], one["counts"]) for one in listed] == [
        ("results/recorded", {"complete": 3, "silent": 1}),
        ("results/growing", {"complete": 6}),
    ]
    assert [(one["variant"], one["verdict"]) for one in listed[1]["look"]["shown"]] == [("adam", "better")]


def test_a_sweep_in_a_list_has_the_best_of_its_leaderboard(tmp_path: Path) -> None:
    made_sweep(tmp_path / "results" / "search")
    rows = rows_of(tmp_path / "results")
    assert MatrixPages().listed(rows)[0]["best"] is None
    told_leaderboard(tmp_path / "results" / "search", lambda line: None)
    [listed] = MatrixPages().listed(rows)
    values = {"LEARNING_RATE": "0.03", "OPTIMIZER": "adam"}
    assert listed["best"] == {"metric": "val_loss", "mean": pytest.approx(0.2), "values": values}


def test_only_folders_of_runs_that_were_found_can_be_asked_for(recorded: Path) -> None:
    rows = rows_of(recorded.parent)
    for name in ("", "results", "results/recorded/..", "/etc", "results/other"):
        with pytest.raises(UserError):
            MatrixPages().shown(name, rows)


def test_seeds_are_added_to_those_there_are() -> None:
    assert more_seeds(["1", "2", "3"], 6) == "1..6"
    assert more_seeds(["7", "3"], 4) == "7|3|8|9"
    assert more_seeds([], 5) == "1..5"
    assert more_seeds(["a", "b"], 5) == "a|b"


def test_the_command_repeats_what_was_given(growing: MatrixDirectory) -> None:
    run = growing.directory / growing.cells[0]["name"]
    asked = [
        {"symbol": "NUM_EPOCHS", "value": "3", "kind": "make variable", "where": "CONFIG_NUM_EPOCHS=3"},
        {"symbol": "OPTIMIZER_SGD", "value": "y", "kind": "matrix axis", "where": "OPTIMIZER=sgd|adam"},
    ]
    written = {"MATRIX_AXES": '"OPTIMIZER=sgd SEED=1..5"'}
    (run / ".config.origins.json").write_text(json.dumps({"asked": asked, "written": written}))
    plan = json.loads((growing.directory / "matrix.json").read_text())
    assert seeds_command(growing.directory, plan, 8) == (
        "make test_matrix CONFIG_NUM_EPOCHS=3 'CONFIG_MATRIX_AXES=OPTIMIZER=sgd|adam SEED=1..8'"
    )
    assert seeds_command(growing.directory, {**plan, "layers": {"base": []}}, 8) == (
        f"make continue RUN={growing.directory} SEED=1..8"
    )


def test_a_matrix_of_commands_has_its_own_words(growing: MatrixDirectory) -> None:
    (growing.directory / growing.cells[0]["name"] / "command.json").write_text("{}")
    found = shown(growing.directory)
    assert found["commands"] == {
        "record": f"kharness report {growing.directory}",
        "continue": "",
        "seeds": "",  # its plan has not kept the command
    }


def test_options_that_differ_say_who_asked(tmp_path: Path) -> None:
    for name, rate in (("a", 0.1), ("b", 0.2)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.py").write_text(
            f"LEARNING_RATE = {rate}\nSAME = 1\nNESTEROV = {name == 'a'}\n"
        )
    asked = [
        {
            "symbol": "LEARNING_RATE",
            "value": "0.2",
            "kind": "make variable",
            "where": "CONFIG_LEARNING_RATE=0.2",
        }
    ]
    (tmp_path / "b" / ".config.origins.json").write_text(json.dumps({"asked": asked, "written": {}}))
    assert compared_options([tmp_path / "a", tmp_path / "b", tmp_path / "none"]) == {
        "options": [
            {
                "name": "LEARNING_RATE",
                "values": ["0.1", "0.2", None],
                "origins": ["default", "make variable CONFIG_LEARNING_RATE=0.2", None],
                "affects": [],
            },
            {
                "name": "SAME",
                "values": ["1", "1", None],
                "origins": ["default", "default", None],
                "affects": [],
            },
            {
                "name": "NESTEROV",
                "values": ["y", "n", None],
                "origins": ["default", "default", None],
                "affects": [],
            },
        ],
        "configured": [True, True, False],
    }


def test_each_status_has_a_sign_and_a_color_of_its_own(root: Path) -> None:
    page = root / "lib/kharness/pages/page"
    signs = re.findall(r"[ {](\w+): \[\"(.)\", \"(\w+)\"\]", (page / "parts.js").read_text())
    kinds = {status: kind for status, _, kind in signs}
    assert set(get_args(Status)) <= kinds.keys()
    colored = set(re.findall(r"\.cell\.(\w+) \{", (page / "pages.css").read_text()))
    assert {kinds[status] for status in get_args(Status)} - {"none"} <= colored


@pytest.mark.parametrize(
    ("name", "model", "axes", "title"),
    [
        ("grid", "lenet5", ["OPTIMIZER"], "grid"),
        ("test_matrix_20261127T165629Z", "lenet5", ["OPTIMIZER", "SEED"], "lenet5: OPTIMIZER"),
        ("sweep_20261127T165629Z-2", "train", ["LR", "WIDTH"], "train: LR × WIDTH"),
        ("test_matrix_20261127T165629Z", "gpt2, lenet5", ["MODEL", "SEED"], "MODEL"),
        ("test_matrix_20261127T165629Z", "gpt2", ["SEED"], "gpt2: seeds"),
        ("test_matrix_20261127T165629Z", "gpt2", ["A", "B", "C", "D", "E"], "gpt2: 5 options"),
    ],
)
def test_a_matrix_that_is_named_by_a_time_has_what_it_varies_for_a_title(
    name: str, model: str, axes: list[str], title: str
) -> None:
    assert titled(name, {"model": model, "axes": [{"symbol": one} for one in axes]}) == title
