"""A matrix in a bundle: continued, reported and compared where it is unpacked, the original left alone."""

from __future__ import annotations

import json
from pathlib import Path

from kharness.runs.bundle.archive import write_bundle
from kharness.runs.files import BUNDLE

from .conftest import Checkout, attempts, behavior


def test_it_is_continued_reported_and_compared(checkout: Checkout, tmp_path: Path) -> None:
    code, output = checkout.run("test_matrix", "CONFIG_MATRIX_AXES=SEED=1|2", behavior("once-crash@2"))
    assert code == 3, output
    original = checkout.latest
    before = {path: path.read_bytes() for path in original.rglob("*") if path.is_file()}
    archive = write_bundle(original, tmp_path / f"failed{BUNDLE}").path

    code, output = checkout.run("continue", f"RUN={archive}")
    assert code == 0, output
    unpacked = tmp_path / "failed.unpacked" / original.name
    assert attempts(unpacked / "seed-2", "cause", "exit_code") == [("error", 1), (None, 0)]
    assert attempts(unpacked / "seed-1", "exit_code") == [(0,)]
    summary = json.loads((unpacked / "summary.json").read_text())
    assert [cell["status"] for cell in summary["runs"]] == ["complete", "complete"]
    assert {path: path.read_bytes() for path in original.rglob("*") if path.is_file()} == before

    (unpacked / "report.html").unlink()
    code, output = checkout.run("report", f"RUN={archive}")
    assert code == 0, output
    assert (unpacked / "report.html").is_file()

    code, output = checkout.run("compare", f"A={archive}", f"B={original}")
    assert code == 0, output
    assert output.splitlines()[:2] == [f"A: {archive}", f"B: {original}"]
