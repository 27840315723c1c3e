"""metrics_doc.py [--check]: write the tables of fields in docs/*.md, or say which page is out of date.

A table stands between `<!-- fields: PLACE -->` and `<!-- end of fields -->`, is made from
lib/monitoring/journal/fields/table.py, and is the only part of a page that this writes.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from kharness.config.errors import ConfigError, run_command
from kharness.config.generate import write_file
from monitoring.journal.fields import rows_at
from monitoring.journal.fields.row import (
    ALERT_SAMPLES,
    CONTROL_CHANGE,
    CONTROL_REFUSED,
    EVERY,
    GAP,
    GPU,
    OF_GPUS,
    REPORT,
    SCRAPE,
    START,
    SYSTEM,
    TRACKERS,
    UNITS,
    FieldRow,
)

DOCS = Path(__file__).resolve().parent.parent / "docs"

TABLE = re.compile(r"(<!-- fields: (\w+) -->\n\n).*?(\n<!-- end of fields -->)", re.DOTALL)

UNJUDGED = (
    EVERY,
    START,
    GAP,
    GPU,
    SYSTEM,
    OF_GPUS,
    REPORT,
    TRACKERS,
    CONTROL_CHANGE,
    CONTROL_REFUSED,
    ALERT_SAMPLES,
)
"""Places of which no table says whether a field is compared on reproduction: its records are not."""


def page(text: str) -> str:
    """The page with its tables as they should be."""
    return TABLE.sub(lambda found: f"{found[1]}{table(found[2])}{found[3]}", text)


def table(place: str) -> str:
    """The rows of a place; neighbors that differ in nothing but their name share a line."""
    lines = [heads(place), ["---"] * len(heads(place))]
    for columns, rows in groupby(rows_at(place), lambda row: cells(row, place)):
        lines.append([", ".join(f"`{shown_name(row, place)}`" for row in rows), *columns])
    return "".join(" ".join(cell for part in line for cell in ("|", part) if cell) + " |\n" for line in lines)


def heads(place: str) -> Sequence[str]:
    """The titles of a table's columns."""
    if place == SCRAPE:
        return ["metric", "type", "of dcgm-exporter", "what"]
    if place in UNJUDGED:
        return ["metric" if place in (REPORT, TRACKERS) else "field", "unit", "source"]
    return ["field", "unit", "better", "bit-equal", "source"]


def cells(row: FieldRow, place: str) -> Sequence[str]:
    """The cells of a field's line after its name."""
    unit, about = UNITS.get(row.unit, row.unit), row.about[place]
    if place == SCRAPE:
        field = f"[`{row.name}`](metrics.md#system)" if SYSTEM in row.about else about
        return [row.prometheus_type, f"`{row.dcgm}`" if row.dcgm else "", field]
    if place in UNJUDGED:
        return [unit, about]
    better = row.better if row.better != "neither" else ""
    return [unit, better, "yes" if row.kind == "result" else "no", about]


def shown_name(row: FieldRow, place: str) -> str:
    """Under which name the place shows it."""
    return row.prometheus if place == SCRAPE else row.name


def stale(docs: Path) -> Iterator[tuple[Path, str]]:
    """Each page that is out of date, with its text as it should be."""
    for path in sorted(docs.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        if (right := page(text)) != text:
            yield path, right


def main(argv: Sequence[str]) -> int:
    """Write the tables, or with --check compare them."""
    for path, text in stale(DOCS):
        if list(argv) == ["--check"]:
            raise ConfigError(
                f"docs/{path.name} is out of date", hint="python scripts/metrics_doc.py writes its tables"
            )
        write_file(path, text.encode())
    return 0


if __name__ == "__main__":
    run_command(main)
