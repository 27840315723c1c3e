"""The agent's log besides its alerts: JSON lines in agent.log, with the run's correlation id."""

from __future__ import annotations

import sys
import threading
from types import TracebackType
from typing import TYPE_CHECKING

from monitoring.journal.encoding.json_form import strict_line
from monitoring.journal.records import Record

if TYPE_CHECKING:
    from monitoring.journal.structured_log import JsonLog


def log_as_json(correlation_id: str, *, libraries: bool) -> None:
    """Log uncaught exceptions as JSON on stderr from now on; with `libraries` also their warnings.

    `logging` is imported for `libraries` only, whose trackers import it anyway, or when there is something
    to log.
    """

    def tell(
        kind: type[BaseException], error: BaseException | None, trace: TracebackType | None, where: str
    ) -> None:
        import logging

        message = f"{where}: {kind.__name__}: {error}"
        exception = (kind, error, trace) if error is not None else None
        record = logging.LogRecord("monitoring.agent", logging.ERROR, "", 0, message, (), exception)
        _handler(correlation_id).emit(record)

    sys.excepthook = lambda kind, error, trace: tell(kind, error, trace, "agent")
    threading.excepthook = lambda given: tell(
        given.exc_type,
        given.exc_value,
        given.exc_traceback,
        given.thread.name if given.thread is not None else "a thread",
    )
    if libraries:
        import logging

        handler = _handler(correlation_id)
        handler.setLevel(logging.WARNING)
        logging.getLogger().addHandler(handler)
        logging.captureWarnings(True)


def _handler(correlation_id: str) -> JsonLog:
    from monitoring.journal.structured_log import JsonLog

    return JsonLog(_write_line, correlation_id)


def _write_line(record: Record) -> None:
    print(strict_line(record).decode(), end="", file=sys.stderr, flush=True)
