"""The ranks of one host, started by the training itself where NUM_GPUS asks for several.

torchrun does this too, also on several hosts. Here a request to stop reaches every rank and is waited for,
however long the checkpoint takes, and the exit code is that of the rank that failed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType

from kharness.config.errors import RENDEZVOUS_FILE
from kharness.runs.exit_codes import EXIT_LOST_RANK
from kharness.training.guard import SIGNALS
from monitoring.host.libc import ending_with

# How long the others may take to end after the first has failed, and how often their ends are looked for.
END_WITHIN = 60.0
LOOK_EVERY = 0.05


def launch(command: Sequence[str], size: int) -> int:
    """Run the command in `size` processes, ranks 0 to size - 1; returns an exit code when all have ended.

    That is 0 if all returned 0, else the first code of a rank that failed by itself.
    """
    with tempfile.TemporaryDirectory(prefix="kharness-ranks-") as folder:
        ranks = [_start(command, rank, size, Path(folder) / "rendezvous") for rank in range(size)]
        before = {number: signal.signal(number, _passed_on(ranks)) for number in (*SIGNALS, signal.SIGHUP)}
        try:
            _wait(ranks)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            for rank in ranks:
                rank.kill()
                rank.wait()
    return _code([rank.returncode for rank in ranks])


def _start(command: Sequence[str], rank: int, size: int, file: Path) -> subprocess.Popen[bytes]:
    """In a process group of its own: Ctrl-C on the terminal reaches it once, passed on from here."""
    about: Mapping[str, object] = {
        "RANK": rank,
        "LOCAL_RANK": rank,
        "WORLD_SIZE": size,
        "LOCAL_WORLD_SIZE": size,
        RENDEZVOUS_FILE: file,
    }
    return subprocess.Popen(
        command,
        env={**os.environ, **{name: str(value) for name, value in about.items()}},
        process_group=0,
        preexec_fn=ending_with(os.getpid()),
    )


def _passed_on(ranks: Sequence[subprocess.Popen[bytes]]) -> Callable[[int, FrameType | None], None]:
    def pass_on(number: int, frame: FrameType | None) -> None:
        for rank in ranks:
            rank.send_signal(number)

    return pass_on


def _wait(ranks: Sequence[subprocess.Popen[bytes]]) -> None:
    """Until all have ended, or END_WITHIN after the first has failed."""
    deadline = None
    while any(rank.poll() is None for rank in ranks):
        now = time.monotonic()
        failed = any(rank.returncode for rank in ranks)
        if deadline is None and failed:
            deadline = now + END_WITHIN
        if deadline is not None and now >= deadline:
            return
        time.sleep(LOOK_EVERY)


def _code(codes: Sequence[int]) -> int:
    own = [code for code in codes if code > 0 and code != EXIT_LOST_RANK]
    return own[0] if own else EXIT_LOST_RANK if any(codes) else 0
