"""Tags and notes of runs: their file, the command and conditions that know them."""

from __future__ import annotations

from pathlib import Path

import pytest

import kharness
from monitoring import Run
from monitoring.errors import UserError
from monitoring.notes import LONGEST_NOTE, Notes, changed, checked, read_notes, write_notes

from ..warm_python import WarmPython


def test_they_are_a_file_of_the_run_and_go_with_the_last_of_them(tmp_path: Path) -> None:
    notes = changed(Notes(), add=["baseline", " good "], text="as in the paper\n")
    assert notes == Notes(("baseline", "good"), "as in the paper")
    write_notes(tmp_path, notes)
    kept = (tmp_path / "notes.json").read_text()
    assert kept == '{\n  "tags": [\n    "baseline",\n    "good"\n  ],\n  "note": "as in the paper"\n}\n'
    assert read_notes(tmp_path) == notes
    write_notes(tmp_path, changed(notes, remove=["good", "baseline"], text=""))
    assert list(tmp_path.iterdir()) == []
    assert read_notes(tmp_path) == Notes()


@pytest.mark.parametrize(
    ("tags", "text", "error"),
    [
        ("baseline", "", "a note is a text, and tags are a list of words"),
        ([1], "", "'1' is not a tag"),
        (["a,b"], "", "'a,b' is not a tag"),
        ([" "], "", "' ' is not a tag"),
        (["a\x1b[31m"], "", "'a\\x1b[31m' is not a tag"),
        ([str(number) for number in range(21)], "", "a run has at most 20 tags"),
        ([], "x" * (LONGEST_NOTE + 1), "a note has at most 20,000 characters"),
    ],
)
def test_what_cannot_be_kept_is_refused(tags: object, text: object, error: str) -> None:
    with pytest.raises(UserError) as refused:
        checked(tags, text)
    assert (str(refused.value), bool(refused.value.hint)) == (error, True)


@pytest.mark.parametrize("content", ["{", "[]", '{"tags": "x", "note": ""}', '{"tags": []}'])
def test_a_damaged_file_is_no_note(tmp_path: Path, content: str) -> None:
    (tmp_path / "notes.json").write_text(content)
    assert read_notes(tmp_path) == Notes()


def test_the_command_writes_them_and_conditions_find_them(
    root: Path, tmp_path: Path, warm_python: WarmPython
) -> None:
    for name in ("a", "b"):
        with Run(tmp_path / name, name=name, project="p", config={"width": 8}, agent=False) as run:
            run.log_step(1, loss=0.5)

    def note(*words: str) -> tuple[int, str, str]:
        done = warm_python.run(["-m", "kharness", "note", *words], cwd=tmp_path)
        return done.returncode, done.stdout, done.stderr

    assert note("a", "--tag", "baseline", "--tag", "wide", "-m", "the first") == (
        0,
        "a: baseline, wide; the first\n",
        "",
    )
    assert note("a", "--untag", "wide") == (0, "a: baseline; the first\n", "")
    found = kharness.runs(tmp_path, where="tags ~ base")
    assert [run.name for run in found] == ["a"]
    assert [run.name for run in kharness.runs(tmp_path, where="note ~ first")] == ["a"]
    code, out, error = note("nowhere", "--tag", "x")
    assert (code, out, error.startswith("error: ")) == (2, "", True)
    code, out, error = note("b", "--tag", "x,y")
    assert (code, out, error.splitlines()[0]) == (2, "", "error: 'x,y' is not a tag")
    assert not (tmp_path / "b/notes.json").exists()
