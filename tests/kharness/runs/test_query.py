"""`kharness.runs` and `kharness ls`, on run directories that a Run has written."""

from __future__ import annotations

import json
import math
import re
import sys
from pathlib import Path
from typing import Any, assert_type

import orjson
import pytest

import kharness
from kharness import cli
from kharness.config.affects import Affects
from kharness.config.assignment import Origin
from kharness.config.generate import write_config
from kharness.config.tree import Tree
from kharness.runs.errors import MatrixError
from kharness.runs.query.listing import Listing
from kharness.runs.query.selection import RunSelection
from monitoring.errors import UserError
from monitoring.where import WhereError


def write(directory: Path, config: dict[str, object], losses: list[float], **start: object) -> None:
    with kharness.Run(directory, config=config, agent=False) as run:
        run.start(model={"name": "m"}, training={"batch_size": 4, "tokens_per_sample": 10}, **start)
        for step, loss in enumerate(losses, start=1):
            run.log_step(step, loss=loss + 0.1)
            run.log_eval(step, split="val", val_loss=loss)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    results = tmp_path_factory.mktemp("asked") / "results"
    write(results / "lr/low", {"model": "gpt2", "lr": 1e-4, "seed": 1}, [0.8, 0.75, 0.7])
    write(results / "lr/high", {"model": "gpt2", "lr": 1e-2, "seed": 1}, [0.9, 0.5, 0.9])
    write(results / "other", {"MODEL": "lenet5", "LEARNING_RATE": 0.1, "seed": 1}, [math.nan])
    # what is no run, and what is one twice
    (results / "empty").mkdir()
    (results / "latest").symlink_to("other")
    (results / ".hidden").symlink_to("lr")
    return results


def names(runs: RunSelection) -> list[str]:
    return [run.name for run in runs]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("", ["lr/high", "lr/low", "other"]),
        ("model == 'gpt2' and lr > 1e-4", ["lr/high"]),
        ("lr >= 1e-2", ["lr/high", "other"]),
        ("CONFIG_MODEL=lenet5 or val_loss<0.8", ["lr/low", "other"]),
        ("best.val_loss < 0.6", ["lr/high"]),
        ("last.val_loss < 0.6", []),
        ("best.val_loss < 0.71 and not high and status=complete and step=3", ["lr/low"]),
        ("project=lr seconds<3600", ["lr/high", "lr/low"]),
    ],
)
def test_a_condition_selects(results: Path, where: str, expected: list[str]) -> None:
    assert names(kharness.runs(results, where=where)) == expected


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("momentum=0.9", "no run has momentum"),
        ("lr >", "a value after > is missing at the end"),
        ("(lr > 1", "a bracket is not closed"),
        ("__import__('os').system('x')", None),
        ("lr > 1 if", None),
    ],
)
def test_what_is_no_condition_is_an_error_and_never_run(
    results: Path, where: str, message: str | None
) -> None:
    if message is None:  # words that are parts of names
        assert names(kharness.runs(results, where=where)) == []
        return
    with pytest.raises(WhereError, match=re.escape(message)):
        kharness.runs(results, where=where)


def test_a_run_has_all_that_its_files_say(results: Path) -> None:
    runs = kharness.runs(results)
    assert_type(runs, RunSelection)
    package: object = sys.modules["kharness.runs"]
    assert package == kharness.runs, "one name, for the package and for the call"
    assert (runs.differing, repr(runs)) == (["lr", "model", "LEARNING_RATE"], "<3 of 3 runs>")
    high, _, other = runs
    assert (high.status, high.step, high.config["seed"], high.project) == ("complete", 3, 1, "lr")
    assert {name: high.last[name] for name in ("loss", "val_loss")} == {"loss": 1.0, "val_loss": 0.9}
    assert high.best["val_loss"] == 0.5
    assert math.isnan(other.last["val_loss"])
    assert "val_loss" not in other.best

    series = high.series("val_loss")
    assert ([*series.steps], [*series.values], len(series)) == ([1, 2, 3], [0.9, 0.5, 0.9], 3)
    assert series.samples is not None
    assert series.tokens is not None
    assert ([*series.samples], [*series.tokens]) == ([4, 8, 12], [40, 80, 120])
    assert [*series.times] == sorted(series.times)
    with pytest.raises(MatrixError, match="lr/high has no metric val"):
        high.series("val")


def test_a_series_has_each_step_that_counts_once_and_every_spike(tmp_path: Path) -> None:
    losses = [1e9 if step == 777 else 1 / step for step in range(1, 2001)]
    for first, last in ((1, 1500), (1001, 2000)):
        with kharness.Run(tmp_path / "run", agent=False) as writing:
            for step in range(first, last + 1):
                writing.log(step=step, train_loss=losses[step - 1])
    [run] = kharness.runs(tmp_path)
    series = run.series("train_loss")
    assert [*zip(series.steps, series.values, strict=True)] == [*enumerate(losses, start=1)]
    assert (series.samples, run.best["train_loss"], run.last["train_loss"]) == (None, 1 / 2000, 1 / 2000)


def test_frames_are_of_what_is_installed_else_rows(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = kharness.runs(results, where="lr<1")
    rows = runs.rows()
    assert list(rows[0])[:9] == ["run", "project", "status", "step", "seconds",
                                 "lr", "model", "LEARNING_RATE", "seed"]  # fmt: skip
    assert [row["model"] for row in rows] == ["gpt2", "gpt2", "lenet5"], "`MODEL` and `model` are one option"
    assert [row["best.val_loss"] for row in rows] == [0.5, 0.7, None]
    assert runs.frame()["last.loss"].tolist()[:2] == [1.0, pytest.approx(0.8)]
    assert runs.frame("polars")["best.val_loss"].to_list() == [0.5, 0.7, None]
    with pytest.raises(MatrixError, match="there is no frame of excel"):
        runs.frame("excel")
    for package in ("pandas", "polars"):
        monkeypatch.setitem(sys.modules, package, None)
    assert runs[:1].frame(best=False) == runs[:1].rows(best=False)
    with pytest.raises(MatrixError, match="pandas is not installed"):
        runs.frame("pandas")


def test_a_damaged_run_costs_only_itself(tmp_path: Path) -> None:
    write(tmp_path / "good", {"lr": 0.1}, [0.5])
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad/run.json").write_text("{")
    (tmp_path / "bad/metrics.jsonl").write_bytes(b'{"event":"st\n[]\n\xff')
    bad, good = kharness.runs(tmp_path)
    assert (bad.status, bad.step, dict(bad.last), dict(bad.best), dict(bad.config)) == (
        "pending",
        None,
        {},
        {},
        {},
    )
    assert bad.problem.startswith(f"{tmp_path / 'bad/run.json'} cannot be read")
    assert good.last["val_loss"] == 0.5


def ls(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert cli.main(["ls", *words]) == 0
    return capsys.readouterr().out.splitlines()


def test_ls_shows_what_differs_then_results(
    results: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(results.parent)
    assert ls(capfd, "lr>1e-5 model=gpt2", "--sort", "best.val_loss") == [
        "run      status    step      lr  val_loss  best.val_loss  loss  best.loss",
        "-------  --------  ----  ------  --------  -------------  ----  ---------",
        "lr/high  complete     3    0.01       0.9            0.5     1        0.6",
        "lr/low   complete     3  0.0001       0.7            0.7   0.8        0.8",
        "",
        "2 of 3 runs",
    ]
    assert ls(capfd, "results/lr", "--columns", "seed,best.val_loss")[2:4] == [
        "high     1            0.5",
        "low      1            0.7",
    ]
    assert ls(capfd, "--sort", "val_loss", "--reverse", "--columns", "lr, val_loss")[2:5] == [
        "lr/high    0.01       0.9",
        "lr/low   0.0001       0.7",
        "other       0.1       nan",
    ]
    assert ls(capfd, "lr<1e-2", "results/lr")[2:] == [
        "low  complete     3       0.7   0.8",
        "",
        "1 of 2 runs",
    ]
    assert ls(capfd, "results", "name~x") == ["none of 3 runs"]
    rows: list[dict[str, Any]] = [orjson.loads(line) for line in ls(capfd, "--json", "--best")]
    assert [(row["run"], row["best.val_loss"]) for row in rows][:2] == [("lr/high", 0.5), ("lr/low", 0.7)]
    monkeypatch.setenv("COLUMNS", "60")  # in a pipe, too
    assert ls(capfd, "results")[-2:] == [
        "3 runs; no room for LEARNING_RATE, best.val_loss, loss,",
        "  best.loss: --columns NAME,NAME",
    ]


def test_ls_shows_no_option_that_only_says_which_runs_there_are(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    affects = Affects(
        {
            "LEARNING_RATE": frozenset({"results"}),
            "SWEEP_TRIALS": frozenset({"matrix"}),
            "MODEL_READS_TEXT": frozenset({"reporting"}),
        },
        frozenset({"MODEL_READS_TEXT"}),
    )
    for name, rate in [("a", 0.1), ("b", 0.2)]:
        config: dict[str, object] = {
            "LEARNING_RATE": rate,
            "SWEEP_TRIALS": rate,
            "MODEL_READS_TEXT": rate,
            "unknown": rate,
        }
        write(tmp_path / "results" / name, config, [1.0])
        (tmp_path / "results" / name / "config.py").write_text(affects.source)
    assert ls(capfd, "results") == [
        "run  status    step  LEARNING_RATE  unknown  val_loss  loss",
        "---  --------  ----  -------------  -------  --------  ----",
        "a    complete     1            0.1      0.1         1   1.1",
        "b    complete     1            0.2      0.2         1   1.1",
        "",
        "2 runs",
    ]


def test_ls_has_room_for_what_the_condition_and_the_order_are_of(
    results: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever else must go, and though no table has it by itself; not for what all runs have alike."""
    monkeypatch.setenv("COLUMNS", "46")
    assert ls(capfd, str(results), "best.loss<9", "model=gpt2", "--sort", "lr") == [
        "run      status    step      lr  best.loss",
        "-------  --------  ----  ------  ---------",
        "lr/low   complete     3  0.0001        0.8",
        "lr/high  complete     3    0.01        0.6",
        "",
        "2 of 3 runs; no room for val_loss,",
        "  best.val_loss, loss: --columns NAME,NAME",
    ]
    assert ls(capfd, str(results), "gpt2 or seconds>=0")[0].split()[:4] == [
        "run",
        "status",
        "step",
        "seconds",
    ]


@pytest.mark.parametrize(
    ("condition", "why"),
    [
        ("status=runing", "; no run has status=runing: did you mean running?"),
        ("status=failed", ""),
        ("model=GPT2 and lenet", ""),
        ("model=gtp2", "; no run has model=gtp2: did you mean gpt2?"),
        ("name=oter", "; no run has name=oter: did you mean other?"),
        ("model=gpt2 lr=0.02", "; no run has lr=0.02: it is 0.01, 0.0001, 0.1"),
        ("tags=good", "; no run has tags"),
        ("tags~good", ""),
    ],
)
def test_ls_names_what_is_near_where_no_run_has_a_value(
    results: Path, capfd: pytest.CaptureFixture[str], condition: str, why: str
) -> None:
    assert ls(capfd, str(results), condition) == [f"none of 3 runs{why}"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nope"], "nope is not a folder"),
        (["empty"], "no run lies in empty"),
        ([".", "--columns", "foo"], "no run has foo"),
        ([".", "--sort", "val_los"], "no run has val_los"),
        ([".", "lr>"], "a value after > is missing at the end"),
    ],
)
def test_ls_says_what_is_wrong(
    results: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], message: str
) -> None:
    monkeypatch.chdir(results)
    with pytest.raises(UserError, match=re.escape(message)) as raised:
        cli.main(["ls", *words])
    assert raised.value.hint


def test_the_program_of_the_page_runs(
    root: Path, results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    [program] = re.findall(r"```python\n# ask.py\n(.*?)```", (root / "docs/ask.md").read_text(), flags=re.S)
    monkeypatch.chdir(results.parent)
    exec(program, {})
    assert capsys.readouterr().out.startswith("lr/high complete 0.01 0.9 0.5\n")


def test_a_long_command_leaves_room_for_the_result(tmp_path: Path) -> None:
    for rate, loss in (("0.1", 0.5), ("0.2", 0.25)):
        write(tmp_path / rate, {}, [loss])
        stored = json.loads((tmp_path / rate / "run.json").read_text())
        stored["attempts"][0]["command"] = f"python train.py --lr {rate} --out {'x' * 60}"
        (tmp_path / rate / "run.json").write_text(json.dumps(stored))
    assert Listing(kharness.runs(tmp_path), width=80).lines()[2:4] == [
        "0.1  complete     1  … 0.1 --out xxxxxxxxxxxxx…       0.5   0.6",
        "0.2  complete     1  … 0.2 --out xxxxxxxxxxxxx…      0.25  0.35",
    ]


def test_long_names_leave_room_for_a_result(tmp_path: Path) -> None:
    """And for what is asked for; they are cut where they still differ, or else are whole."""
    for at, matrix in enumerate(("test_matrix_20261129T052331Z", "test_matrix_20261129T052339Z")):
        write(tmp_path / matrix / "optimizer-adamw_seed-1", {"lr": 0.1 + at}, [0.5 + at])
    found = kharness.runs(tmp_path)
    first, second = (f"test_matrix_20261129T0523{end}/optimizer-adamw_seed-1" for end in ("31Z", "39Z"))
    assert Listing(found, width=80).lines()[2:] == [
        f"{first}  complete     1       0.5",
        f"{second}  complete     1       1.5",
        "",
        "2 runs; no room for lr, loss: --columns NAME,NAME",
    ]
    assert Listing(found, width=70).lines()[2:] == [
        "test_matrix_20…52331Z/optimizer-adamw_seed-1  complete     1       0.5",
        "test_matrix_20…52339Z/optimizer-adamw_seed-1  complete     1       1.5",
        "",
        "2 runs; names are cut, --json has them whole; no room for lr, loss: --columns NAME,NAME",
    ]
    assert Listing(found, ["lr"], width=54).lines()[2:] == [
        "test_matrix_2026…9T052331Z/optimizer-adamw_seed-1  0.1",
        "test_matrix_2026…9T052339Z/optimizer-adamw_seed-1  1.1",
        "",
        "2 runs; names are cut, --json has them whole",
    ]
    assert Listing(found, width=30).lines()[2].startswith(first)


def test_runs_of_the_tree_are_told_apart_by_what_was_chosen(root: Path) -> None:
    """Not by each symbol of a choice, nor by names; one without run.json has what its start record says."""
    found = kharness.runs(root / "tests/data/recorded_matrix", where="optimizer=sgd or test_accuracy>0.8")
    assert Listing(found, width=90).lines()[:3] == [
        "run                     status    step  OPTIMIZER  LEARNING_RATE  test_loss  test_accuracy",
        "----------------------  --------  ----  ---------  -------------  ---------  -------------",
        "optimizer-adamw_seed-1  complete    44  adamw              0.003    0.52501          0.866",
    ]


def test_what_only_follows_from_an_option_tells_no_runs_apart(root: Path, tmp_path: Path) -> None:
    tree = Tree.load(root)
    for name in ("sgd", "adamw"):
        resolved = tree.resolve(tree.assignments("OPTIMIZER", name, Origin("test")))
        write(tmp_path / name, dict(resolved.values), [0.5])
        write_config(resolved, tmp_path / name, root=root)
    found = kharness.runs(tmp_path)
    assert "OPTIMIZER_KEEPS_TWO_MOMENTS" in found.differing
    assert Listing(found).lines()[0].split() == [
        *("run", "status", "step", "OPTIMIZER", "LEARNING_RATE", "WEIGHT_DECAY"),
        *("OPTIMIZER_ADAMW_BETAS", "OPTIMIZER_ADAMW_EPS", "OPTIMIZER_SGD_NESTEROV", "OPTIMIZER_SGD_MOMENTUM"),
        *("val_loss", "loss"),
    ]
