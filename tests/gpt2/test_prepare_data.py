"""`python gpt2/prepare_data.py` as its user meets it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from ..warm_python import WarmPython

NOTE = "A note, and another one.\n"

Prepare = Callable[..., CompletedProcess[str]]


@pytest.fixture
def prepare(root: Path, tmp_path: Path, warm_python: WarmPython) -> Prepare:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.md").write_text(NOTE * 40)

    def run(*flags: str) -> CompletedProcess[str]:
        where = ("--data-dir", str(tmp_path / "data"), "--dataset-text-path", str(tmp_path / "notes"))
        script = root / "gpt2" / "prepare_data.py"
        return warm_python.run([script, "--dataset", "text", *where, *flags])

    return run


def test_prepared_tokens_are_shown(prepare: Prepare, tmp_path: Path) -> None:
    done = prepare("--tokenizer", "chars")
    assert (done.returncode, done.stderr) == (0, "")
    (folder,) = (tmp_path / "data" / "tokens").glob("text-*-chars")
    assert done.stdout.splitlines()[1:] == [
        f"{folder}: 900 train, 100 validation tokens (chars)",
        f"{folder}: verified",
    ]
    shown = prepare("--tokenizer", "chars", "--show")
    assert (shown.returncode, shown.stderr) == (0, "")
    lines = shown.stdout.splitlines()[1:]
    assert lines[0].startswith("dataset: text, SHA-256 ")
    assert lines[1].startswith("tokens: chars, 13 different, SHA-256 ")
    assert (lines[2], lines[5]) == ("train: 900 tokens", "validation: 100 tokens")
    assert lines[4] == f"  {(NOTE * 3)[:64]!r}"


def test_mistakes_are_one_error(prepare: Prepare, tmp_path: Path) -> None:
    for flags, error in (
        (("--show",), "manifest.json does not exist\nhint: make data with the same options prepares it, "),
        (("--from", "/nowhere"), "error: --from /nowhere is not a folder\n"),
        (("--tokenizer", "gpt2", "--tokenizer-vocabulary", "/nowhere"), "/nowhere holds no vocabulary"),
        (("--no-such-flag",), "error: unrecognized arguments: --no-such-flag\n"),
    ):
        done = prepare(*flags)
        assert done.returncode == 2
        assert error in done.stderr
    assert not (tmp_path / "data").exists()
