"""A training run as the training process sees it: it writes the journal and keeps the agent alive."""

from __future__ import annotations

import dataclasses
import os
import platform
import shlex
import sys
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from monitoring.agent_process import AgentProcess
from monitoring.correlation import CORRELATION_ID
from monitoring.device_scalars import InFlight, take_scalars
from monitoring.environment import git_state, hardware, versions
from monitoring.errors import is_full, unwritable
from monitoring.follower import follower_module, follower_options
from monitoring.gpu_options import gpu_monitor_options
from monitoring.journal import Journal
from monitoring.lineage import superseding
from monitoring.process import process_started
from monitoring.ranks import journal_name, registered_by_rank_0
from monitoring.records import ENVELOPE, Record, plain
from monitoring.run_json import register_attempt

Status = Literal["complete", "interrupted", "failed"]

# How often, in seconds, the trainer reads its memory use and looks whether the agent is alive.
LOOK_EVERY = 1.0

# The fields that log_step adds to the caller's.
STEP_FIELDS = 7


class Run:
    """Writes the records of one training into DIRECTORY/metrics.jsonl; a follower process does the rest.

    Every record whose call has returned is in the journal, whatever happens to the process, except one
    that has CUDA scalars: a later call writes it when they have arrived, and `finish` waits for them. After
    construction nothing raises: what the disk does not take is kept and written later, a value without a
    JSON form becomes null and is listed in `unserializable`, and calls after `finish` or in a forked child
    do nothing. One thread logs.

    A training of several processes opens it in each, in one directory, with the `rank` of each: rank 0 is
    the run, the others write DIRECTORY/metrics.rank0001.jsonl and so on beside it, and nothing else.

    Errors, all before the first record: RunDirectoryError, RunBusyError, and for the trackers
    UnknownFollower, FollowerOptionsError and MissingPackage.
    """

    def __init__(
        self,
        directory: Path,
        *,
        name: str,
        project: str,
        config: Mapping[str, object],
        trackers: Mapping[str, Mapping[str, object]] | None = None,
        group: str | None = None,
        identity: Mapping[str, object] | None = None,
        gpu_monitor: bool | Mapping[str, Any] = False,
        agent: bool = True,
        rank: int = 0,
    ) -> None:
        """Open a new run in `directory`, or the next attempt of the run that is there.

        `trackers` maps tracker names to their options, `identity` goes into run.json (seed, data hash),
        `gpu_monitor` asks the agent to sample the GPUs (True, or options of GpuMonitorOptions), and
        `agent=False` leaves the following to `monitoring.agent.catch_up`. A `rank` above 0 waits until rank 0
        has opened the run; names, configuration, trackers, `identity` and `gpu_monitor` are those of rank 0.
        """
        if rank < 0:
            raise ValueError(f"rank={rank} is below 0")
        self.directory = Path(directory).absolute()
        self.rank = rank
        _check_trackers(trackers or {})
        sampling = gpu_monitor_options(gpu_monitor)
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable(self.directory, error) from error
        self._journal = Journal(self.directory / journal_name(rank))
        self._about = {"hardware": hardware(), "versions": versions(), "git": git_state(_program_folder())}
        try:
            if rank:
                run = registered_by_rank_0(self.directory, rank)
                self._journal.attempt = run["attempts"][-1]["attempt"]
                self._about |= {"rank": rank, **_this_process()}
            else:
                run = register_attempt(
                    self.directory,
                    name=name,
                    project=project,
                    group=group,
                    config=config,
                    trackers=trackers or {},
                    gpu_monitor=dataclasses.asdict(sampling) if sampling is not None else False,
                    attempt={
                        "attempt": self._journal.attempt,
                        **_this_process(),
                        **self._about,
                        **(identity or {}),
                    },
                )
            self.attempt = self._journal.attempt
            self._agent = AgentProcess(self.directory) if agent and not rank else None
            if self._agent is not None:
                self._agent.start()
        except OSError as error:
            self._journal.close()
            raise unwritable(self.directory, error) from error
        except BaseException:
            self._journal.close()
            raise
        self.run_id: str = run["run_id"]
        os.environ[CORRELATION_ID] = self.run_id  # for what this process starts and logs beside the run
        self.name: str = run["tracking"]["name"]
        self.project: str = run["tracking"]["project"]
        self._config = run["config"]
        self._in_flight: deque[InFlight] = deque()
        self._memory = _ResidentMemory()
        self._memory_mb = self._memory.read_mb()
        self._looked = time.time()
        self._next_look = self._looked + LOOK_EVERY

    def start(self, *, model: Mapping[str, object], training: Mapping[str, object], **fields: object) -> None:
        """Record what is trained, how and on what.

        `model` has at least `name`, `parameters` (a count) and `architecture`. `training` and `fields` have
        `num_steps`, `num_epochs`, `steps_per_epoch`, `batch_size`, `optimizer` and `schedule`; they stand
        in the record field by field. A training that may go on from a checkpoint gives `resumed_from` and
        `supersedes`, by which readers tell the records that still count (see monitoring.lineage); of a rank
        above 0 `supersedes` is worked out for its own journal.
        """
        about: Record = {"run_name": self.name, "project": self.project, "run_id": self.run_id}
        about |= {"correlation_id": self.run_id, **training, **fields}
        if self.rank and about.get("supersedes"):
            resumed = about.get("resumed_from")
            step = resumed.get("global_step") if isinstance(resumed, Mapping) else 0
            about["supersedes"] = superseding(self._journal.path, step if isinstance(step, int) else 0)
        self._log("start", None, {**about, "model": model, "config": self._config, **self._about})

    def log_step(self, global_step: int, /, **metrics: object) -> None:
        """Record one training step: numbers, text, None (not measured) or 0-dim tensors.

        `cpu_mem_rss_mb` (1e6 bytes, at most a second old) and `nan_inf_detected` are added.
        """
        now = time.time()
        if not self._looked <= now < self._next_look:  # the clock may be set back
            self._look_around(now)
        record: Record = {
            "event": "step",
            "time": now,
            "seq": 0,
            "attempt": self.attempt,
            "global_step": global_step,
            "cpu_mem_rss_mb": self._memory_mb,
            "nan_inf_detected": False,
            **metrics,
        }
        if len(record) != STEP_FIELDS + len(metrics):
            _restore_envelope(record, metrics, "step", now, self.attempt, global_step)
        if self._in_flight:
            self._append_in_order(record)
            return
        try:
            self._journal.append(record)
        except TypeError:
            self._append_unusual(record)

    def log_epoch(self, epoch: int, /, *, global_step: int, **metrics: object) -> None:
        """Record the end of an epoch (counted from 1)."""
        self._log("epoch", global_step, {"epoch": epoch, **metrics})

    def log_eval(self, global_step: int, /, *, split: str, **metrics: object) -> None:
        """Record an evaluation on the split "val" or "test"."""
        self._log("eval", global_step, {"split": split, **metrics})

    def log_checkpoint(self, global_step: int, /, *, checkpoint_path: Path, **fields: object) -> None:
        """Record that a checkpoint is complete on disk."""
        self._log("checkpoint", global_step, {"checkpoint_path": str(checkpoint_path), **fields})

    def last_seq(self) -> int:
        """The `seq` of the last record, after writing those that wait for a device; a checkpoint holds it.

        They are on disk on return: after a loss of power no checkpoint is ahead of its journal.
        """
        self._settle()
        self._journal.sync()
        return self._journal.seq

    def finish(self, status: Status = "complete", **fields: object) -> None:
        """Write the end record and close the journal; wait for no tracker. A second call does nothing."""
        if self._journal.closed:
            return
        self._log("end", None, {"status": status, **fields})
        self._settle()
        self._journal.close()
        self._memory.close()
        if os.environ.get(CORRELATION_ID) == self.run_id:
            del os.environ[CORRELATION_ID]
        if self._agent is not None:
            self._agent.keep_alive(at_once=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None or (isinstance(error, SystemExit) and not error.code):
            self.finish()
        elif isinstance(error, KeyboardInterrupt):
            self.finish("interrupted", cause="stopped")
        else:
            full = isinstance(error, OSError) and is_full(error)
            # One that an error knows itself: out_of_memory, non_finite …
            cause = getattr(error, "cause", "disk_full" if full else "error")
            self.finish("failed", error=f"{type(error).__name__}: {error}", cause=cause)

    def _log(self, event: str, global_step: int | None, fields: Mapping[str, object]) -> None:
        now = time.time()
        if not self._looked <= now < self._next_look:  # the clock may be set back
            self._look_around(now)
        record: Record = {"event": event, "time": now, "seq": 0, "attempt": self.attempt}
        if global_step is not None:
            record["global_step"] = global_step
        envelope = len(record)
        record.update(fields)
        if len(record) != envelope + len(fields):
            _restore_envelope(record, fields, event, now, self.attempt, global_step)
        self._append_in_order(record)

    def _append_in_order(self, record: Record) -> None:
        """Append behind the records that wait for a device, writing those whose scalars have arrived."""
        while self._in_flight and self._in_flight[0].arrived():
            self._append_complete(self._in_flight.popleft().complete())
        if self._in_flight:
            self._in_flight.append(take_scalars(record) or InFlight(record))
        else:
            self._append_unusual(record)

    def _settle(self) -> None:
        """Write the records that wait for a device, waiting for it."""
        while self._in_flight:
            self._append_complete(self._in_flight.popleft().complete())

    def _append_unusual(self, record: Record) -> None:
        """Append a record that may have tensors, or values that JSON does not know."""
        flight = take_scalars(record)
        if flight is not None:
            self._in_flight.append(flight)
        else:
            self._append_complete(record)

    def _append_complete(self, record: Record) -> None:
        try:
            self._journal.append(record)
        except TypeError:
            self._journal.append(plain(record))

    def _look_around(self, now: float) -> None:
        """The once-in-a-second work: memory use, and an agent that is gone."""
        self._looked, self._next_look = now, now + LOOK_EVERY
        if self._journal.closed:
            return
        self._memory_mb = self._memory.read_mb()
        if self._agent is not None:
            self._agent.keep_alive()


class _ResidentMemory:
    """This process's resident memory, read from one open file of /proc."""

    def __init__(self) -> None:
        try:
            self._fd = os.open("/proc/self/statm", os.O_RDONLY)
        except OSError:  # a system without /proc: not measured
            self._fd = -1
        self._page_mb = os.sysconf("SC_PAGE_SIZE") / 1e6

    def read_mb(self) -> float | None:
        """MB (1e6 bytes); None where the system does not say."""
        if self._fd == -1:
            return None
        return int(os.pread(self._fd, 128, 0).split()[1]) * self._page_mb

    def close(self) -> None:
        if self._fd != -1:
            os.close(self._fd)
            self._fd = -1


def _restore_envelope(
    record: Record,
    fields: Mapping[str, object],
    event: str,
    now: float,
    attempt: int,
    global_step: int | None,
) -> None:
    """Give back what a caller's field of the same name replaced; that one is kept as `<name>_`."""
    for key in ENVELOPE.intersection(fields):
        record[f"{key}_"] = fields[key]
    record.update({"event": event, "time": now, "seq": 0, "attempt": attempt})
    if global_step is not None:
        record["global_step"] = global_step


def _check_trackers(trackers: Mapping[str, Mapping[str, object]]) -> None:
    for name, values in trackers.items():
        options = follower_options(name, values)
        check = getattr(follower_module(name), "check", None)
        if check is not None:
            check(options)


def _program_folder() -> Path | None:
    """Where the program lies, whose git revision counts; None for one that is no file."""
    program = Path(sys.argv[0]).absolute()
    return program.parent if program.is_file() else None


def _this_process() -> Record:
    return {
        "started": time.time(),
        "host": platform.node(),
        "command": shlex.join([sys.executable, *sys.argv]),
        "cwd": os.getcwd(),
        "pid": os.getpid(),
        "pid_started": process_started(os.getpid()),
    }
