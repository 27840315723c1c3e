"""The ranks of one host, started by the training itself where NUM_GPUS asks for several.

torchrun does this too, also on several hosts. Here a request to stop reaches every rank and is waited for,
however long the checkpoint takes, and the exit code is that of the rank that failed. While they start, when
there is nothing to save and a signal would end those alone that do not handle it yet, it ends all.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType

from kharness.config.errors import RENDEZVOUS_FILE
from kharness.runs.exit_codes import EXIT_LOST_RANK, EXIT_STOPPED, SAYS_STOPPED
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
        file = Path(folder) / "rendezvous"
        ranks: list[subprocess.Popen[bytes]] = []
        stop = _PassedOn(ranks, size, file)
        before = {number: signal.signal(number, stop) for number in (*SIGNALS, signal.SIGHUP)}
        try:
            while len(ranks) < size:
                ranks.append(_start(command, len(ranks), size, file))
            stop.pass_on_early()
            _wait(ranks)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            for rank in ranks:
                rank.kill()
                rank.wait()
    return EXIT_STOPPED if stop.has_ended_all else _code([rank.returncode for rank in ranks])


def note_ready(environment: Mapping[str, str]) -> None:
    """Tell the launcher that from now on a request to stop is waited for in this rank."""
    if file := environment.get(RENDEZVOUS_FILE):
        with suppress(OSError):  # a full disk: signals end this training without saving
            _ready(Path(file), int(environment["RANK"])).touch()


def _ready(file: Path, rank: int) -> Path:
    return file.with_name(f"{file.name}.ready{rank:04}")


def _start(command: Sequence[str], rank: int, size: int, file: Path) -> subprocess.Popen[bytes]:
    """Start a rank in its own process group: Ctrl-C on the terminal reaches it once, passed on from here."""
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


class _PassedOn:
    """A handler that passes signals on to the ranks, once all of them are ready."""

    def __init__(self, ranks: Sequence[subprocess.Popen[bytes]], size: int, file: Path) -> None:
        self.has_ended_all = False
        """Whether a request came while the ranks started."""
        self._ranks, self._size, self._file = ranks, size, file
        self._early: list[int] = []

    def pass_on_early(self) -> None:
        """Pass on signals that arrived before the last rank was started."""
        while self._early:
            self(self._early.pop(0), None)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if len(self._ranks) < self._size:
            self._early.append(number)
        # one that does not wait for requests yet would be ended by the signal, and the others would wait for
        # it
        elif all(_ready(self._file, rank).exists() for rank in range(len(self._ranks))):
            for rank in self._ranks:
                rank.send_signal(number)
        # Before that they are ended; but where one has failed, that is how all of it ends.
        elif not self.has_ended_all and all(rank.poll() is None for rank in self._ranks):
            self.has_ended_all = True
            with suppress(OSError):  # not print, which is not reentrant
                os.write(2, f"\n{signal.Signals(number).name}: {SAYS_STOPPED}\n".encode())
            for rank in self._ranks:
                rank.kill()


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
