"""RUN/records.db: every record in a table of SQLite."""

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from monitoring.follower import Follower, RunInfo
from monitoring.journal.files import JOURNAL
from monitoring.journal.records import Record


@dataclass(frozen=True)
class Options:
    """Where the records go."""

    file: str


def open_follower(run: RunInfo, options: Options) -> Follower:
    """The table, made if it is not there."""
    return SqliteTable(run.directory / options.file)


class SqliteTable:
    """A transaction lasts from flush to flush."""

    def __init__(self, path: Path) -> None:
        self._table = sqlite3.connect(path)
        self._table.execute("create table if not exists records (seq integer primary key, record text)")

    def last_seq(self, journal: str = JOURNAL) -> int:
        return int(self._table.execute("select coalesce(max(seq), 0) from records").fetchone()[0])

    def deliver(self, records: Sequence[Record]) -> None:
        rows = [(record["seq"], json.dumps(record)) for record in records]
        self._table.executemany("insert into records values (?, ?)", rows)

    def flush(self) -> None:
        self._table.commit()

    def close(self, status: str | None) -> None:
        self._table.close()
