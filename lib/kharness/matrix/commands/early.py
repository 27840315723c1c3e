"""A bridge that is forked before its run is known: it imports what it needs while the run is planned.

A second interpreter takes as long to start as all the rest before the program does.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn


class EarlyBridge:
    """The process of a bridge that waits for its command line, and ends if none comes."""

    def __init__(self) -> None:
        ours, self._to = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        self.pid = os.fork()
        if not self.pid:
            os.close(self._to)
            _wait_for_run(ours, parent)
        os.close(ours)

    def begin(self, words: Sequence[str], *, cwd: Path, log: Path, environment: Mapping[str, str]) -> None:
        """Have it run with these words, its output appended to a file."""
        content = {"words": words, "cwd": str(cwd), "log": str(log), "environment": dict(environment)}
        with os.fdopen(self._to, "wb") as pipe:
            pipe.write(json.dumps(content).encode())


def _wait_for_run(ours: int, parent: int) -> NoReturn:
    """Become the bridge; nothing of the process that this one was forked from is run any more."""
    code = 1
    try:
        os.setsid()  # what a terminal sends to the runner is passed on by it
        from monitoring.bridge.bridge import main
        from monitoring.bridge.sources import source_kinds
        from monitoring.host.libc import ending_with

        ending_with(parent)()
        source_kinds()
        with os.fdopen(ours, "rb") as pipe:
            content = json.loads(pipe.read() or b"null")
        if content is not None:
            _enter(content)
            code = main(content["words"])
            sys.stdout.flush()
            sys.stderr.flush()
    except Exception:  # noqa: BLE001 - as an interpreter of its own would
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


def _enter(content: Mapping[str, Any]) -> None:
    """Take over what a process gets when it is started: files, folder, environment, signals."""
    os.chdir(content["cwd"])
    log = os.open(content["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, fd in enumerate((nothing, log, log)):
        os.dup2(fd, number)
    os.closerange(3, max(nothing, log) + 1)
    sys.stdout, sys.stderr = (
        os.fdopen(number, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)
        for number in (1, 2)
    )
    os.environ.clear()
    os.environ.update(content["environment"])
    signal.signal(signal.SIGINT, signal.SIG_DFL)
