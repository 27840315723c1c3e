"""Importing a tracker's files makes a run with every value once."""

from __future__ import annotations

import contextlib
import json
import math
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from monitoring.bridge.importing import NothingToImportError, import_run, place_for
from monitoring.journal.run_json import read_run_json

from .conftest import STEPS, Bridged
from .test_sources import LOSSES, config, records


@pytest.mark.parametrize("kind", ["wandb", "trackio", "scalars", "mlflow", "csv", "jsonl"])
def test_every_value_is_there_once(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch, stored_by: Callable[[str], Path]
) -> None:
    shutil.copytree(stored_by(kind), tmp_path, symlinks=True, dirs_exist_ok=True)
    source = {"scalars": "runs", "mlflow": "mlflow.db", "csv": "own.csv", "jsonl": "own.jsonl"}
    monkeypatch.chdir(tmp_path)
    path = Path(source.get(kind, kind))  # as one types it
    directory = tmp_path / "results" / "imported"
    count = import_run(path, directory, project="p", agent=False)
    # add_scalars of torch has written further curves, in folders of their own
    steps = [r for r in records(directory, "step") if "train_loss" in r]
    assert [r["global_step"] for r in steps] == list(range(STEPS))
    assert [r["train_loss"] for r in steps] == pytest.approx(LOSSES, rel=1e-7)
    assert count == len(records(directory, "step")) + len(records(directory, "eval"))
    assert records(directory, "end") == [{"status": "complete", "first_step": 0, "steps_done": STEPS}]
    assert read_run_json(directory)["attempts"][0]["imported_from"] == str(tmp_path / path)
    told = {"wandb": 0.25, "trackio": 0.5, "scalars": 0.5, "mlflow": 0.5}
    assert config(directory).get("lr") == told.get(kind)
    with pytest.raises(NothingToImportError, match="has a run already"):
        import_run(path, directory, project="p", agent=False)


def test_rows_as_they_are(tmp_path: Path) -> None:
    """Names with slashes, nested ones, NaN, text, steps that go back: kept."""
    rows = [
        {"step": 3, "a/b": 1, "nested": {"x": 2}, "loss": math.nan, "word": "w"},
        {"step": 1, "loss": 0.5},
        {"loss": 0.25},
    ]
    source = tmp_path / "rows.jsonl"
    source.write_text("".join(json.dumps(row).replace("NaN", "null") + "\n" for row in rows) + '{"torn": ')
    import_run(source, tmp_path / "run", project="p", agent=False)
    assert records(tmp_path / "run", "step") == [
        {"global_step": 3, "a/b": 1, "nested/x": 2, "train_loss": None, "word": "w"},
        {"global_step": 1, "train_loss": 0.5},
        {"global_step": 4, "train_loss": 0.25},
    ]


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ((), "holds nothing that is known"),
        (("a.txt", "b.db"), "holds nothing that is known"),
        (("a.csv", "b.csv"), "holds 2 runs of csv"),
    ],
)
def test_what_is_no_run_is_refused(tmp_path: Path, files: tuple[str, ...], said: str) -> None:
    folder = tmp_path / "from"
    folder.mkdir()
    for name in files:
        (folder / name).write_text("x,y\n")
    with pytest.raises(NothingToImportError, match=said):
        import_run(folder, tmp_path / "run", project="p", agent=False)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("name", "text"), [("a.jsonl", '{"step": 1, "loss": 2}'), ("a.csv", "step,loss\n1,2")]
)
def test_last_line_needs_no_end(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert import_run(tmp_path / name, tmp_path / "run", project="p", agent=False) == 1
    assert records(tmp_path / "run", "step") == [{"global_step": 1, "train_loss": 2}]


@pytest.mark.parametrize(
    ("kind", "at", "said"),
    [
        ("wandb", "wandb/offline*/*.wandb", "is cut off: its last "),
        ("scalars", "runs/a/*tfevents*", "is cut off: its last "),
        ("csv", "own.csv", "has a last line without an end: its last number may lack digits"),
        ("jsonl", "own.jsonl", "ends in the middle of a line, which is left out"),
    ],
)
def test_half_written_log_is_read_as_far_as_it_goes(
    tmp_path: Path,
    kind: str,
    at: str,
    said: str,
    capsys: pytest.CaptureFixture[str],
    stored_by: Callable[[str], Path],
) -> None:
    (stored,) = stored_by(kind).glob(at)
    whole = import_run(stored, tmp_path / "whole", project="p", agent=False)
    assert capsys.readouterr().err == ""
    content, path = stored.read_bytes(), tmp_path / stored.name
    path.write_bytes(content[: len(content) * 2 // 3])
    assert 0 < import_run(path, tmp_path / "half", project="p", agent=False) < whole
    assert capsys.readouterr().err.startswith(f"note: {path.name} {said}")


def test_line_that_is_no_json_is_left_out_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"step":1,"lo\n{"step":2,"loss":NaN}\noops\n{"step":3,"loss":2')
    assert import_run(path, tmp_path / "run", project="p", agent=False) == 1
    (record,) = records(tmp_path / "run", "step")
    assert (record["global_step"], record["train_loss"], record["nonfinite"]) == (2, None, ["train_loss"])
    assert capsys.readouterr().err.splitlines() == [
        'note: a.jsonl has a line that is no JSON, which is left out: \'{"step":1,"lo\'',
        "note: a.jsonl ends in the middle of a line, which is left out",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("step,loss\n1,0.5\n2,nan\n", ""),
        ("step,phase,loss\n1,train,0.5\n", ""),
        ("step,loss\n1,0.5\n2,n/a\n", "the column loss, row 2, which is no metric: 'n/a'"),
        ("step;loss;acc\n1;0,5;0.9\n2;1;0.9\n", "the column loss, row 1, which is no metric: '0,5'"),
        ("\ufeffstep\tloss\n1\t0.5\n", ""),
    ],
)
def test_text_in_a_column_of_numbers_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    (tmp_path / "a.csv").write_text(text)
    import_run(tmp_path / "a.csv", tmp_path / "run", project="p", agent=False)
    assert [one["global_step"] for one in records(tmp_path / "run", "step")] == [1, 2][: text.count("\n") - 1]
    assert capsys.readouterr().err == (f"note: a.csv has text in {said}\n" if said else "")


def test_database_whose_writer_was_killed_is_read_to_what_was_complete(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has a hot journal, which a reader that must not write cannot roll back."""
    database = tmp_path / "m.db"
    written = f"""
import os, sqlite3
to = sqlite3.connect({str(database)!r})
to.execute("PRAGMA cache_size = 2")  # so that what is not complete is in the file, too
to.execute("CREATE TABLE metrics (id INTEGER PRIMARY KEY, timestamp, step, metrics)")
row = "INSERT INTO metrics (step, metrics) VALUES (?, ?)"
to.executemany(row, [(step, '{{"loss": 0.5}}') for step in (1, 2)])
to.commit()
to.executemany(row, [(step, '{{"loss": 0.5}}') for step in range(3, 2000)])
os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", written], check=False)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert before.keys() == {"m.db", "m.db-journal"}
    assert import_run(database, tmp_path / "run", project="p", agent=False) == 2
    assert [one["global_step"] for one in records(tmp_path / "run", "step")] == [1, 2]
    said = "note: m.db was cut off while it was written: what was not complete is left out\n"
    assert capsys.readouterr().err == said
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before


# Each with values of its own.
HOSTILE = {
    "deep.jsonl": b'{"step":1,"a":' + b"[" * 100_000 + b"]" * 100_000 + b'}\n{"step":2,"a":3}\n',
    "nested.jsonl": b'{"b":' * 990 + b"1" + b"}" * 990 + b'\n{"step":2,"b":3}\n',
    "long.csv": b"step,c\n2,3\n3," + b"x" * 200_000 + b"\n",
    "events.out.tfevents.1": b"\xff" * 100,
    "events.out.tfevents.2": bytes(100),
    "a.wandb": b":W&B\0\0\0" + b"\xff" * 100,
}


def test_whatever_followed_files_hold_the_program_goes_on(tmp_path: Path, bridged: Bridged) -> None:
    writes = (f"open({name!r}, 'wb').write({content!r})" for name, content in HOSTILE.items())
    (tmp_path / "writes.py").write_text("\n".join([*writes, "print('step 5: acc 0.5')"]))
    options = [word for name in HOSTILE for word in ("--follow", name)]
    ended = bridged(tmp_path / "run", sys.executable, "writes.py", options=options)
    rows = [
        {name: one[name] for name in ("global_step", "a", "b", "c", "acc") if name in one}
        for one in records(tmp_path / "run", "step")
    ]
    assert (ended.returncode, "Traceback" in ended.stderr) == (0, False)
    assert sorted(rows, key=str) == [
        {"global_step": 2, "a": 3},
        {"global_step": 2, "b": 3},
        {"global_step": 2, "c": 3},
        {"global_step": 5, "acc": 0.5},
    ]


def test_name_that_no_file_can_have_ends_no_program(tmp_path: Path, bridged: Bridged) -> None:
    name = f"{'a' * 300}.csv"
    ended = bridged(
        tmp_path / "run", sys.executable, "-c", "print('step 5: acc 0.5')", options=("--follow", name)
    )
    assert (ended.returncode, f"{name} is not there" in ended.stderr) == (0, True)


def test_what_cannot_be_read_to_its_end_is_no_complete_run(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "m.db")) as broken:
        broken.execute("CREATE TABLE metrics (key, value, is_nan)")  # and nothing else of MLflow's
        broken.commit()
    with pytest.raises(NothingToImportError, match=r"m\.db cannot be read after 0 records: m"):
        import_run(tmp_path / "m.db", tmp_path / "run", project="p", agent=False)
    (end,) = records(tmp_path / "run", "end")
    assert end["status"] == "failed"


def test_command(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"step": 1, "loss": 2}\n')
    command = [sys.executable, "-m", "kharness", "import", "a.jsonl"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (0, "1 record imported into results/a\n")


def test_files_of_one_name_become_runs_of_their_own(tmp_path: Path) -> None:
    for folder in ("a", "b", "c/b"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "metrics.csv").write_text("step,loss\n1,2\n")

    def place(source: str) -> str:
        directory = place_for(tmp_path / source, tmp_path / "results")
        import_run(tmp_path / source, directory, project="p", agent=False)
        return directory.name

    sources = [f"{folder}/metrics.csv" for folder in ("a", "b", "c/b")]
    assert [place(source) for source in sources] == ["metrics", "b_metrics", "b_metrics_2"]
    for source in (*sources, "c/../b/metrics.csv"):
        with pytest.raises(NothingToImportError, match="was imported before"):
            place(source)
