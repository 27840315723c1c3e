"""The tables of fields in docs/ are what the rows of monitoring.journal.fields say today."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

from monitoring.journal.fields.row import OF_GPU
from monitoring.journal.fields.table import FIELDS


def test_every_table_of_fields_is_up_to_date(root: Path) -> None:
    script = runpy.run_path(str(root / "scripts" / "metrics_doc.py"))
    places: list[str] = []
    for path in sorted(root.glob("docs/*.md")):
        text = path.read_text()
        places += re.findall(r"<!-- fields: (\w+) -->", text)
        empty = re.sub(r"(<!-- fields: \w+ -->\n\n).*?(\n<!-- end)", r"\1\2", text, flags=re.DOTALL)
        assert script["page"](empty) == text, "python scripts/metrics_doc.py writes it"
    # docs/gpu-monitoring.md has the values of a GPU with their source of each vendor, by hand
    assert sorted(places) == sorted({place for row in FIELDS for place in row.about} - {OF_GPU})


def test_page_that_is_out_of_date_is_found_and_written(root: Path, tmp_path: Path) -> None:
    script = runpy.run_path(str(root / "scripts" / "metrics_doc.py"))
    page = tmp_path / "metrics.md"
    page.write_text("Before.\n\n<!-- fields: gap -->\n\n\n<!-- end of fields -->\n\nAfter.\n")
    [(path, text)] = script["stale"](tmp_path)
    assert path == page
    assert (
        text
        == """\
Before.

<!-- fields: gap -->

| field | unit | source |
| --- | --- | --- |
| `reason` | | the system's last answer |
| `seconds` | s | from the first refusal until everything kept was written |
| `delayed` | records | written late |
| `lost` | records | dropped, the oldest first, because more than 16 MiB waited |
| `first_lost_seq`, `last_lost_seq` | | which; `null` if none |

<!-- end of fields -->

After.
"""
    )
