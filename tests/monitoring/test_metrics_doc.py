"""Each field of each record of a real training has a row, and docs/metrics.md lists it."""

from __future__ import annotations

import re
from pathlib import Path

from monitoring.journal.fields import rows_at
from monitoring.journal.fields.row import EVERY
from monitoring.journal.records import ENVELOPE, read_records

from ..warm_python import WarmPython


def documented(page: str) -> dict[str, set[str]]:
    """The fields in the tables of each section."""
    sections = re.split(r"^## ", page, flags=re.M)[1:]
    return {
        section.split("\n")[0]: {
            name
            for cell in re.findall(r"^\| (`[^|]*) \|", section, flags=re.M)
            for name in re.findall(r"`(\w+)`", cell)
        }
        for section in sections
    }


def test_every_field_of_a_training_is_documented(root: Path, tmp_path: Path, warm_torch: WarmPython) -> None:
    flags = ["--max-steps", "2", "--results-dir", tmp_path, "--tracker", "none"]
    warm_torch.run(["lenet5/train.py", *flags], cwd=root, timeout=600).check_returncode()
    [journal] = tmp_path.glob("lenet5_*/metrics.jsonl")
    fields = documented((root / "docs/metrics.md").read_text())
    records = [record for record, _ in read_records(journal)]
    assert {str(record["event"]) for record in records} == {
        "start",
        "step",
        "eval",
        "epoch",
        "checkpoint",
        "end",
    }
    for record in records:
        event = str(record["event"])
        rows = {row.name for place in (EVERY, event) for row in rows_at(place)}
        assert set(record) - rows == set()
        assert set(record) - ENVELOPE - fields[event] == set()
