"""Log messages as JSON, one object per line, with the correlation id of the run that wrote them."""

from __future__ import annotations

import logging
import os
import traceback
from collections.abc import Callable
from datetime import UTC, datetime

from monitoring.host.correlation import own_rank
from monitoring.host.name import host_name
from monitoring.journal.encoding.global_step import shown
from monitoring.journal.records import Record

# Attributes that every LogRecord has; what else there is was given with `extra=`.
STANDARD = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"})


class JsonLog(logging.Handler):
    """Passes each message to `append` as an object: time, level, logger, message, and `extra=` fields."""

    def __init__(self, append: Callable[[Record], None], correlation_id: str) -> None:
        super().__init__()
        self._append = append
        self._about = {
            "correlation_id": correlation_id,
            "host": host_name(),
            "pid": os.getpid(),
            "rank": own_rank(),
        }

    def emit(self, record: logging.LogRecord) -> None:
        line: Record = {
            "timestamp": timestamp(record.created),
            "level": record.levelname,
            "logger": record.name,
            "message": _message(record),
            **self._about,
            **{key: value for key, value in vars(record).items() if key not in STANDARD},
        }
        if record.exc_info and record.exc_info[0]:
            line["exception"] = "".join(traceback.format_exception(*record.exc_info))
        self._append(line)


def _message(record: logging.LogRecord) -> str:
    """Return the message with its arguments in it; without them, if they do not fit."""
    try:
        return record.getMessage()
    except Exception as error:  # noqa: BLE001 - the arguments' own methods are called here; the line says so
        return f"{shown(record.msg)} ({type(error).__name__} in its arguments)"


def timestamp(seconds: float) -> str:
    """UTC epoch seconds as ISO 8601 with milliseconds: 2025-07-30T12:34:56.789Z."""
    moment = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    return moment.removesuffix("+00:00") + "Z"
