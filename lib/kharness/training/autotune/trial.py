"""Trial steps of a training in a separate process, so that they leave nothing behind in this one.

The process is forked before anything of the training is there: it has a model, random generators and data of
its own, and its memory grows by what a training needs. It takes a step on request, and ends with the process
that began it.
"""

from __future__ import annotations

import gc
import json
import math
import os
import resource
import shutil
import signal
import socket
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch

from kharness.training.errors import OutOfMemoryError, TrainingError
from kharness.training.model_check import EnoughMeasured, MeasuredPhases, bytes_in, free_memory
from kharness.training.setup import Setup
from monitoring.errors import UserError
from monitoring.host.libc import ending_with
from monitoring.telemetry.phases import PHASES

_STATUS = Path("/proc/self/status")


@dataclass(frozen=True)
class TrialStep:
    """Time and memory of a trial step of one or several micro-batches."""

    samples: int
    part_seconds: float
    """Seconds to read the samples, and for forward and backward pass."""
    update_seconds: float
    memory: int
    """The most bytes so far, besides what the process had before the training."""
    free: int | None
    """Bytes that were free before the training; None where the system does not say."""
    num_steps: int
    """Number of steps of the planned training."""


class TrialFailedError(Exception):
    """A trial that could not take its step."""

    def __init__(self, reason: str, *, fixable: TrainingError | None = None, memory: bool = False) -> None:
        super().__init__(reason)
        self.fixable = fixable
        """The error to report, if the user can fix it."""
        self.memory = memory
        """Whether it ran out of memory."""


class BegunTrial:
    """A running trial, seen from the training that started it."""

    def __init__(self, pid: int, connection: socket.socket, folder: Path) -> None:
        self._pid, self._connection, self._folder = pid, connection, folder
        self._answers = connection.makefile("r")

    def step(self, most_seconds: float = math.inf) -> TrialStep:
        """Have it take a step; TrialFailedError where it cannot, or not within so many seconds."""
        self._connection.settimeout(most_seconds if math.isfinite(most_seconds) else None)
        with suppress(OSError):  # it has ended: its last answer says why
            self._connection.sendall(b"s")
        try:
            line = self._answers.readline()
        except TimeoutError:
            raise TrialFailedError(f"no step within {most_seconds:.3g} s") from None
        if not line:
            _, status = os.waitpid(self._pid, 0)
            number = os.WTERMSIG(status)
            raise TrialFailedError(f"its process ended by signal {number}", memory=number == signal.SIGKILL)
        answer = json.loads(line)
        if "reason" not in answer:
            return TrialStep(**answer)
        error = None
        if answer["hint"] is not None:
            error = TrainingError(answer["reason"], hint=answer["hint"])
            error.exit_code, error.cause = answer["exit_code"], answer["cause"]
        raise TrialFailedError(answer["reason"], fixable=error, memory=answer["memory"])

    def close(self) -> None:
        """End its process, whatever it is doing."""
        self._answers.close()
        self._connection.close()
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(self._pid, 0)
        shutil.rmtree(self._folder, ignore_errors=True)


class OwnTrial:
    """The same trial, on the side of the process that takes its steps."""

    def __init__(self, connection: socket.socket, folder: Path) -> None:
        self.folder = folder
        """For what a run writes; the other side removes it."""
        self._connection = connection

    def is_wanted(self) -> bool:
        """Wait for the next request of a step; False where there is no further one."""
        return bool(self._connection.recv(1))

    def answer(self, content: Mapping[str, Any]) -> None:
        self._connection.sendall(json.dumps(content).encode() + b"\n")

    @contextmanager
    def last(self) -> Iterator[None]:
        """Within it errors become the trial's answer, and the process ends."""
        try:
            yield
        except EnoughMeasured:
            pass
        except BaseException as error:  # noqa: BLE001 - also SystemExit: nothing of it may go on
            fixable = error if isinstance(error, UserError) else None
            with suppress(OSError):
                self.answer(
                    {
                        "reason": str(error) or type(error).__name__,
                        "hint": fixable and fixable.hint,
                        "exit_code": getattr(error, "exit_code", 1),
                        "cause": getattr(error, "cause", ""),
                        "memory": isinstance(error, OutOfMemoryError),
                    }
                )
        finally:
            _end()


def begin_trial() -> BegunTrial | OwnTrial:
    """Fork: the trial here, and the process that is to run it there."""
    # The first optimizer of a process imports a lot; here it does so once for all trials.
    torch.optim.SGD([torch.zeros(1)])
    folder = Path(tempfile.mkdtemp(prefix="kharness-trial-"))
    ours, theirs = socket.socketpair()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    end_with_us = ending_with(os.getpid())
    with warnings.catch_warnings():
        # Python 3.12 warns that a fork copies the locks of other threads: torch has started none yet.
        warnings.simplefilter("ignore")
        pid = os.fork()
    if pid:
        theirs.close()
        return BegunTrial(pid, ours, folder)
    end_with_us()
    ours.close()
    # a collection would write to the headers of all objects, and so copy the pages that the training shares
    gc.freeze()
    _silence()
    return OwnTrial(theirs, folder)


class StepOnRequest(MeasuredPhases):
    """The phases of a trial, which takes a step when it is wanted."""

    def __init__(self, setup: Setup[Any], trial: OwnTrial, room: Room, *, ranks: int) -> None:
        super().__init__(setup)
        of_rank = samples_of_rank(setup.options.BATCH_SIZE, ranks)
        # Two micro-batches: with the second the gradients of the first are there, too.
        self.part_size = min(of_rank, 2 * (setup.options.MICRO_BATCH_SIZE or of_rank))
        self._trial, self._room = trial, room
        self._free = room.free(setup.device.torch)

    def begin(self) -> None:
        """Wait for the request of the step."""
        if not self._trial.is_wanted():
            raise EnoughMeasured
        super().begin()

    def end(self, phase: str) -> None:
        """A phase ends; with the last of them the step."""
        super().end(phase)
        if phase == PHASES[-1]:
            assert self.part_size is not None
            step = TrialStep(
                samples=self.part_size,
                part_seconds=sum(self._seconds.values()) - self._seconds[phase],
                update_seconds=self._seconds[phase],
                memory=self._room.taken(self.setup.device.torch),
                free=self._free,
                num_steps=self.setup.schedule.num_steps,
            )
            self._trial.answer(asdict(step))


class Room:
    """The memory that a training may take: on a CPU what is free now, shared by the ranks of the host."""

    def __init__(self, *, ranks: int) -> None:
        free = free_memory(torch.device("cpu"))
        self._free = None if free is None else free // ranks
        self._before = bytes_in(_STATUS, "VmRSS") or 0

    def limit(self) -> None:
        """Have this process get an error where it asks for more than that.

        Without a limit the kernel looks for a process to end, and may choose another.
        """
        taken, hard = bytes_in(_STATUS, "VmData"), resource.getrlimit(resource.RLIMIT_DATA)[1]
        if self._free is not None and taken is not None:
            # VmData counts what this limit counts: the heap, and private mappings that can be written
            # (setrlimit(2))
            resource.setrlimit(resource.RLIMIT_DATA, (taken + self._free, hard))

    def free(self, device: torch.device) -> int | None:
        """Return the bytes a training can use, those it already uses included."""
        if device.type == "cuda":
            return (free_memory(device) or 0) + torch.cuda.memory_allocated(device)
        return self._free

    def taken(self, device: torch.device) -> int:
        """The most that it has had so far."""
        if device.type == "cuda":
            return torch.cuda.max_memory_reserved(device)
        return (bytes_in(_STATUS, "VmHWM") or 0) - self._before


def samples_of_rank(batch_size: int, ranks: int) -> int:
    """The samples of a batch that each of so many ranks computes, at most."""
    return -(-batch_size // ranks)


def _silence() -> None:
    """Discard the trial's output, which the training prints again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(nowhere, descriptor)
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115  # as long as the process


def _end() -> NoReturn:
    """Without what a process does at its end: that is for the one that was forked from."""
    os._exit(0)
