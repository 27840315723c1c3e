"""The Run that a training process opens: it writes the journal and keeps the agent alive."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from os import write  # by name: to look it up in a large module touches memory that a training's caches lack
from pathlib import Path
from threading import get_ident
from time import time as wall_clock
from types import TracebackType
from typing import Any, Self

from orjson import dumps

from monitoring.agent.process import AgentProcess
from monitoring.alert_lines import AlertLines, is_terminal, say_place
from monitoring.errors import is_full, make_directory, unwritable
from monitoring.host.correlation import CORRELATION_ID
from monitoring.host.environment import gpu_names, hardware
from monitoring.host.process import ResidentMemory
from monitoring.journal.encoding.global_step import FIRST_STEP, LAST_STEP, as_step, set_step, shown
from monitoring.journal.encoding.json_form import free_name
from monitoring.journal.end_status import COMPLETE, FAILED, INTERRUPTED, EndStatus
from monitoring.journal.files import AGENT_LOG, journal_name
from monitoring.journal.journal import Journal, say
from monitoring.journal.ranks import registered_by_rank_0
from monitoring.journal.records import ENVELOPE, JSON_LINE, Record
from monitoring.journal.reentrant_queue import ReentrantQueue, raised_by_handler
from monitoring.journal.run_json import register_attempt
from monitoring.journal.this_process import keep_code_diffs, program, this_process
from monitoring.media.run_media import RunMedia
from monitoring.spool import spool_file, spooled_run
from monitoring.telemetry.device_scalars import PLAIN, InFlight, take_scalars

# How often, in seconds, the trainer reads its memory use and looks whether the agent is alive.
LOOK_EVERY = 1.0

# The fields that log_step adds to the caller's.
STEP_FIELDS = 7

# Stands for the step of a record that has none.
NO_STEP = object()

# Stands for an event: write the records that wait for a device.
SETTLE = "settle"


class Run(RunMedia):
    """Writes the records of one training into DIRECTORY/metrics.jsonl; a follower process does the rest.

    Every record whose call has returned is in the journal, whatever happens to the process, except one
    that has CUDA scalars: a later call writes it when they have arrived, and `finish` waits for them. After
    construction nothing raises: what the disk does not take is kept and written later, a value without a
    JSON form becomes null and is listed in `unserializable`, a step that is no integer is named in
    `refused_step`, and calls after `finish` or in a forked child do nothing.

    Any thread may log, and so may signal handlers: the record of one that interrupts another call of its
    thread is written as soon as that one continues, or ends by what the handler raises.

    A training of several processes opens it in each, in one directory, with the `rank` of each: rank 0 is
    the run, the others write DIRECTORY/metrics.rank0001.jsonl and so on in the same folder, and nothing else.

    Errors, all before the first record: RunDirectoryError, RunBusyError, and for the trackers
    UnknownFollower, FollowerOptionsError and MissingPackage.
    """

    # as a run begins
    _tensor: type | None = None  # torch.Tensor, once a record that it may be in has come
    _told_step = False
    _is_started = False
    _last_logged: int | None = None

    def __init__(
        self,
        directory: Path | str,
        *,
        name: str = "",
        project: str = "",
        config: Mapping[str, object] | None = None,
        trackers: Mapping[str, Mapping[str, object]] | None = None,
        group: str | None = None,
        identity: Mapping[str, object] | None = None,
        gpu_monitor: bool | Mapping[str, Any] = False,
        machine_monitor: bool | Mapping[str, Any] = False,
        agent: bool = True,
        rank: int = 0,
        quiet: bool = False,
    ) -> None:
        """Open a new run in `directory`, or the next attempt of the run that is there.

        Without a `name` it has the directory's, without a `project` that of the folder which holds it.
        `trackers` maps tracker names to their options, `identity` goes into run.json (seed, data hash),
        `gpu_monitor` asks the agent to sample the GPUs (True, or options of GpuMonitorOptions),
        `machine_monitor` the rest of the machine (MachineMonitorOptions), and `agent=False` leaves
        delivery to `monitoring.agent.follow.catch_up`. A `rank` above 0 waits until rank 0 has opened
        the run; names, configuration, trackers, `identity` and what is sampled are those of rank 0.
        On a terminal a line says where the run is and what shows it, unless `quiet`.
        """
        if rank < 0:
            raise ValueError(f"rank={rank} is below 0")
        self.directory, self.rank = Path(directory).absolute(), rank
        named, config = Path(os.path.abspath(directory)), config or {}
        name, project = name or named.name or "run", project or named.parent.name or "runs"
        if trackers:
            from monitoring.follower import check_followers  # here, as below: many runs have none

            check_followers(trackers)
        sampled = _sampled(gpu_monitor, machine_monitor)
        make_directory(self.directory)
        spool = spool_file(rank)
        self._journal = Journal(spool or self.directory / journal_name(rank))
        self._hardware = hardware()
        about, differences = program()
        self._about = {"hardware": self._hardware, **about}
        try:
            if spool is not None:
                agent = False
                run = spooled_run(name=name, project=project, config=config)
            elif rank:
                run = self._joined()
            else:
                run = self._registered(
                    identity,
                    name=name,
                    project=project,
                    group=group,
                    config=config,
                    trackers=trackers or {},
                    **sampled,
                )
                keep_code_diffs(self.directory, about, differences)
            self.attempt = self._journal.attempt
            self._alerts = self._shown_alerts(run) if agent else None
            if self._alerts is not None and not quiet:
                say_place(self.directory, name)
            self._agent = self._started_agent(run) if agent else None
        except OSError as error:
            self._journal.close()
            raise unwritable(self.directory, error) from error
        except BaseException:
            self._journal.close()
            raise
        self.run_id: str = run["run_id"]
        os.environ[CORRELATION_ID] = self.run_id  # for what this process starts and logs next to the run
        self.name: str = run["tracking"]["name"]
        self.project: str = run["tracking"]["project"]
        self._config = run["config"]
        self._looking = threading.RLock()
        self._next_steps = itertools.count(1)  # a count, for any thread may take the next one
        self._memory = ResidentMemory()
        self._hot = _Hot(self._take, self._journal, self._memory.read_mb())
        self._in_flight = self._hot.in_flight

    def _registered(self, identity: Mapping[str, object] | None, **tracking: Any) -> dict[str, Any]:
        """Write this attempt into run.json and return that, as register_attempt takes `tracking`."""
        attempt = {"attempt": self._journal.attempt, **this_process(), **self._about, **(identity or {})}
        return register_attempt(self.directory, attempt=attempt, **tracking)

    def _joined(self) -> dict[str, Any]:
        """Return the run.json that rank 0 has written, for the attempt that it has begun."""
        run = registered_by_rank_0(self.directory, self.rank)
        self._journal.attempt = run["attempts"][-1]["attempt"]
        self._about |= {"rank": self.rank, **this_process()}
        return run

    def _shown_alerts(self, run: Mapping[str, Any]) -> AlertLines | None:
        """Return what prints rank 0's alerts on a terminal, if that is wanted."""
        is_shown = not self.rank and run["config"].get("NOTIFY_TERMINAL", True) and is_terminal()
        return AlertLines(self.directory) if is_shown else None

    def _started_agent(self, run: Mapping[str, Any]) -> AgentProcess | None:
        """Start rank 0's agent, or that of the first rank of another host, which trains on if that fails."""
        arguments, log = tuple[str, ...](), AGENT_LOG
        if self.rank:
            # here, because few runs are on several hosts
            from monitoring.agent.hosts.first_rank import first_rank

            first = first_rank(self.directory, run, self.rank, self._about)
            if first is None:
                return None
            arguments, log = ("--host", first.argument), first.files.name(AGENT_LOG)
        agent = AgentProcess(self.directory, *arguments, log=log)
        agent.keep_alive(at_once=True)
        return agent

    def start(self, *, model: Mapping[str, object], training: Mapping[str, object], **fields: object) -> None:
        """Record the model, the training and the machine.

        `model` has at least `name`, `parameters` (a count) and `architecture`. `training` and `fields` have
        `num_steps`, `num_epochs`, `steps_per_epoch`, `batch_size`, `optimizer` and `schedule`; they stand
        in the record field by field. A training that may resume from a checkpoint gives `resumed_from` and
        `supersedes`, by which readers find the records that still count (monitoring.journal.lineage); of a
        rank above 0 `supersedes` is worked out for its own journal.
        """
        self._is_started = True
        about: Record = {"run_name": self.name, "project": self.project, "run_id": self.run_id}
        about |= {"correlation_id": self.run_id, **_fields("training", training), **fields}
        if self.rank and about.get("supersedes"):
            # here, because no other run needs it, and every training waits for what this module imports
            from monitoring.journal.lineage import superseding

            about["supersedes"] = superseding(self._journal.path, _resumed_step(about.get("resumed_from")))
        self._hardware["gpus"] = gpu_names()  # many begin to use CUDA after they opened the run
        self._log("start", NO_STEP, {**about, "model": model, "config": self._config, **self._about})

    def log(
        self, metrics: Mapping[str, object] | None = None, /, *, step: int | None = None, **more: object
    ) -> None:
        """Record metrics of the next step, or of `step`: `log(loss=0.5)`, `log({"val/loss": 0.4}, step=100)`.

        Steps are counted from 1, and from `step` on where it was given. The first call begins the run unless
        `start` did. In a further attempt what was recorded from that step on counts no longer.
        """
        number = as_step(step) if step is not None else next(self._next_steps)
        if step is not None and number is not None:
            self._next_steps = itertools.count(number + 1)
        if not self._is_started:
            self._begin(max(number or 1, 1))
        self._last_logged = number
        # a step that is none is refused, and named, by log_step
        self.log_step(step if number is None else number, _named(metrics or {}), **more)  # type: ignore[arg-type]

    def _log_media(self, step: int | None, fields: Mapping[str, object]) -> None:
        """Record what was kept, at a step or at the last one that `log` has counted."""
        step = self._last_logged if step is None else step
        self._log("eval", NO_STEP if step is None else step, fields)

    def _is_over(self) -> bool:
        return self._journal.closed

    def _begin(self, step: int) -> None:
        """Write the start record of a training that gave none, before its first step."""
        resumed: dict[str, object] = {}
        if self.attempt > 1:
            # here, as in start
            from monitoring.journal.lineage import superseding

            with contextlib.suppress(OSError):  # a journal that cannot be read says so elsewhere
                resumed["supersedes"] = superseding(self._journal.path, step - 1)
            resumed["resumed_from"] = {"global_step": step - 1} if step > 1 else None
        self.start(model={}, training={}, **resumed)

    def log_step(
        self, global_step: int, metrics: Mapping[str, object] | None = None, /, **more: object
    ) -> None:
        """Record one training step: numbers, text, None (not measured) or 0-dim tensors.

        `metrics` is a mapping, of which no copy is kept, `more` the same by keyword; a dict alone takes the
        least time. `cpu_mem_rss_mb` (1e6 bytes, at most a second old) and `nan_inf_detected` are added. The
        keyword `at` is when it was, in UTC epoch seconds, if that is not now.
        """
        if metrics is None:
            metrics = more
        elif more or type(metrics) is not dict:
            self._queue_step(global_step, metrics, more)
            return
        now = wall_clock()
        hot = self._hot
        journal = hot.journal
        record: Record = {
            "event": "step",
            "time": now,
            "seq": 0,
            "attempt": journal.attempt,
            "global_step": global_step,
            "cpu_mem_rss_mb": hot.memory_mb,
            "nan_inf_detected": False,
            **metrics,
        }
        if (
            hot.only != get_ident()
            or hot.busy
            or not hot.looked <= now < hot.next_look  # the clock may be set back
            or type(global_step) is not int
            or global_step > LAST_STEP
            or len(record) != STEP_FIELDS + len(metrics)
            or hot.in_flight
            or "at" in more
        ):
            self._queue_step(global_step, metrics, more)
            return
        # From here on as queue.add does, without its calls: this is the hot path. What counts is how much
        # code and memory it touches, because between steps the caches hold the training's.
        hot.busy = True
        try:
            # SEVERAL is 0, which is false: a second thread came before `busy` was set (see its add)
            if alone := hot.only:
                for value in metrics.values():
                    # of a NaN or an infinity a NaN is left; to search the line for nulls takes longer
                    if type(value) is float and not value - value:
                        continue  # in words: CPython 3.12 and 3.13 leave the bare jump back out of the `try`
                    is_finite = self._take_numbers(record)
                    break
                else:
                    is_finite = True
                if is_finite and journal.backlog is None and not journal.is_doubtful:
                    record["seq"] = seq = journal.seq + 1
                    line = dumps(record, None, JSON_LINE)
                    journal.is_doubtful = True  # until it is known how much of the line is there
                    if write(journal.fd, line) == len(line):
                        journal.seq = seq
                        journal.is_doubtful = False
                    else:
                        self._append_in_order(record)
                else:
                    self._append_in_order(record)
        except (TypeError, OSError, RuntimeError) as error:
            if raised_by_handler(error):
                raise
            # else orjson refuses a value, the disk the line, or another thread changes the caller's mapping
            self._append_in_order(record)
        finally:
            hot.busy = False
            if hot.queued:
                hot.drain()
        if not alone:
            hot.add(record)

    def _queue_step(
        self, global_step: object, metrics: Mapping[str, object], more: Mapping[str, object]
    ) -> None:
        """Record a step that needs more: a second thread, once a second's work, a field of the envelope."""
        now = self._now()
        fields = dict(more)
        moment = _moment(fields.pop("at", None), now, fields)
        if metrics is not more:
            fields = {**_named(metrics), **fields}
        added = {"cpu_mem_rss_mb": self._hot.memory_mb, "nan_inf_detected": False}
        self._queue("step", global_step, added | fields, moment)

    def log_epoch(self, epoch: int, /, *, global_step: int, **metrics: object) -> None:
        """Record the end of an epoch (counted from 1)."""
        self._log("epoch", global_step, {"epoch": epoch, **metrics})

    def log_eval(self, global_step: int, /, *, split: str, at: object = None, **metrics: object) -> None:
        """Record an evaluation on the split "val" or "test"; `at` as of log_step.

        `pictures` names PNG files of the run directory, {"attention": "attention.png"}, which trackers show.
        """
        now = _moment(at, None, metrics)
        self._log("eval", global_step, {"split": split, **metrics}, now)

    def log_checkpoint(self, global_step: int, /, *, checkpoint_path: Path, **fields: object) -> None:
        """Record that a checkpoint is complete on disk."""
        self._log("checkpoint", global_step, {"checkpoint_path": checkpoint_path, **fields})

    def log_control_change(
        self, global_step: int, /, *, control: str, old: object, new: object, source: str, **fields: object
    ) -> None:
        """Record that a request changed something after so many steps (monitoring.control)."""
        changed = {"control": control, "old": old, "new": new, "source": source, **fields}
        self._log("control_change", global_step, changed)

    def log_control_refused(self, global_step: int, /, *, reason: str, source: str, **fields: object) -> None:
        """Record that a request was not applied, and why."""
        self._log("control_refused", global_step, {"reason": reason, "source": source, **fields})

    def log_alert_samples(
        self, global_step: int, /, *, rule: str, sample_indices: Sequence[int], **fields: object
    ) -> None:
        """Record which training samples a step had that an alert of this rule is about."""
        self._log("alert_samples", global_step, {"rule": rule, "sample_indices": sample_indices, **fields})

    def relay(self, event: str, global_step: int | None, at: float, fields: Mapping[str, object]) -> None:
        """Append a record made by another process: its event, step, time and fields."""
        self._log(event, NO_STEP if global_step is None else global_step, fields, at)

    def last_seq(self) -> int:
        """The `seq` of the last record, after writing those that wait for a device; a checkpoint holds it.

        They are on disk on return: after a loss of power no checkpoint is ahead of its journal.
        """
        self._hot.add({"event": SETTLE})
        seq = self._journal.seq
        self._journal.sync()  # other threads keep logging during this
        return seq

    def finish(self, status: EndStatus = COMPLETE, **fields: object) -> None:
        """Write the end record and close the journal; wait for no tracker. A second call does nothing."""
        if not self._journal.closed:
            self._log("end", NO_STEP, {"status": status, **fields})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None or (isinstance(error, SystemExit) and not error.code):
            self.finish()
        elif isinstance(error, KeyboardInterrupt):
            self.finish(INTERRUPTED, cause="stopped")
        else:
            self.finish(FAILED, **_described(error))

    def _log(
        self, event: str, global_step: object, fields: Mapping[str, object], at: float | None = None
    ) -> None:
        now = self._now()
        self._queue(event, global_step, fields, now if at is None else at)

    def _now(self) -> float:
        """Return the time, after the work of once per second where it is due."""
        now = wall_clock()
        if not self._hot.looked <= now < self._hot.next_look:  # the clock may be set back
            self._look_around(now)
        return now

    def _queue(self, event: str, global_step: object, fields: Mapping[str, object], at: float) -> None:
        record: Record = {"event": event, "time": at, "seq": 0, "attempt": self.attempt}
        if global_step is not NO_STEP:
            record["global_step"] = global_step
        record.update(fields)
        if not ENVELOPE.isdisjoint(fields):
            _restore_envelope(record, fields, event, at, self.attempt, global_step)
        self._hot.add(record)

    def _take(self, record: Record) -> None:
        """Write a record, or have it wait for a device; the end record ends everything."""
        event = record["event"]
        if self._journal.closed:
            self._in_flight.clear()  # a forked child's are its parent's
            if event == "end":
                return
        if event == SETTLE:
            self._write_arrived(wait=True)
            return
        self._append_in_order(record)
        if event == "end":
            self._end()

    def _end(self) -> None:
        self._write_arrived(wait=True)
        self._journal.close()
        with self._looking:
            self._memory.close()
            if self._alerts is not None:
                self._alerts.look()
            if os.environ.get(CORRELATION_ID) == self.run_id:
                del os.environ[CORRELATION_ID]
            if self._agent is not None:
                self._agent.keep_alive(at_once=True)

    def _take_numbers(self, record: Record) -> bool:
        """Turn host tensors into numbers; False if a number is not finite or something else is not JSON."""
        for name, value in record.items():
            kind = type(value)
            if kind is self._tensor and not value.is_cuda:  # type: ignore[attr-defined]
                try:
                    record[name] = value = value.item()  # type: ignore[attr-defined]
                except Exception as error:
                    if raised_by_handler(error):
                        raise
                    return False  # it has several elements, or none in memory
                kind = type(value)
            if kind not in PLAIN or (kind is float and value - value):  # type: ignore[operator]
                return False
        return True

    def _append_in_order(self, record: Record) -> None:
        """Append after the records that wait for a device, writing those whose scalars have arrived."""
        if self._in_flight:
            self._write_arrived(wait=False)
        if self._tensor is None:
            self._tensor = getattr(sys.modules.get("torch"), "Tensor", None)
        flight = take_scalars(record)
        if flight is not None or self._in_flight:
            self._in_flight.append(flight or InFlight(record))
        else:
            self._append_complete(record)

    def _write_arrived(self, *, wait: bool) -> None:
        """Write the records whose scalars have arrived, or all of them, waiting for the device."""
        while self._in_flight and (wait or self._in_flight[0].arrived()):
            record = self._in_flight[0].complete()
            if not self._journal.has(record):  # else an exception came in between, after it was written
                self._append_complete(record)
            self._in_flight.popleft()

    def _append_complete(self, record: Record) -> None:
        """Append a record of numbers and whatever else."""
        step = record.get("global_step", 0)
        if type(step) is not int or not FIRST_STEP <= step <= LAST_STEP:  # nearly all are: no call for these
            self._judge_step(record, step)
        self._journal.append_any(record)

    def _judge_step(self, record: Record, step: object) -> None:
        if not set_step(record, step) and not self._told_step:
            self._told_step = True
            place = self._journal.path
            say(f"warning: {place}: {shown(step)} is not a step; such records have a refused_step")

    def _look_around(self, now: float) -> None:
        """Do the work of once per second: memory use, an agent that is gone, the alerts of one that is there.

        One thread at a time does it.
        """
        self._hot.looked, self._hot.next_look = now, now + LOOK_EVERY
        if self._journal.closed:
            return
        try:  # before the lock is taken: as that call returns, a signal handler may raise
            if self._looking.acquire(blocking=False):
                self._hot.memory_mb = self._memory.read_mb()
                if self._agent is not None:
                    self._agent.keep_alive()
                if self._alerts is not None:
                    self._alerts.look()
        finally:
            try:
                self._looking.release()
            except RuntimeError as error:  # another thread has it
                if raised_by_handler(error):
                    raise


class _Hot(ReentrantQueue):
    """State that every step record needs, side by side: between steps the caches hold the training's data.

    One object of it and the journal took a third less time than five objects that hold the same.
    """

    __slots__ = ("in_flight", "journal", "looked", "memory_mb", "next_look")

    def __init__(self, take: Callable[[Any], None], journal: Journal, memory_mb: float | None) -> None:
        """`looked` and `next_look` are seconds of the wall clock."""
        super().__init__(take)
        self.journal, self.memory_mb = journal, memory_mb
        self.in_flight: deque[InFlight] = deque()
        self.looked = wall_clock()
        self.next_look = self.looked + LOOK_EVERY


def _restore_envelope(
    record: Record,
    fields: Mapping[str, object],
    event: str,
    now: float,
    attempt: int,
    global_step: object,
) -> None:
    """Restore what a caller's field of the same name replaced; that one is kept as `<name>_`."""
    for key in sorted(ENVELOPE.intersection(fields)):
        record[free_name(f"{key}_", record)] = record.pop(key)
    record.update({"event": event, "time": now, "seq": 0, "attempt": attempt})
    if global_step is not NO_STEP:
        record["global_step"] = global_step


def _moment(at: object, now: float | None, metrics: dict[str, object]) -> Any:
    """Return the time that `at` says; one that is no number is a metric of that name."""
    if isinstance(at, int | float):
        return at
    if at is not None:
        metrics["at"] = at
    return now


def _fields(name: str, given: Mapping[str, object]) -> Mapping[str, object]:
    """Return the fields of a mapping, or, if it does not give them, the mapping itself under its name."""
    try:
        return dict(given)
    except Exception:  # noqa: BLE001 - the mapping's own methods are called here; its field is named as lost
        return {name: given}


def _named(metrics: Mapping[str, object]) -> dict[str, object]:
    return {str(name): value for name, value in _fields("metrics", metrics).items()}


def _resumed_step(resumed: object) -> int:
    step = as_step(resumed.get("global_step")) if isinstance(resumed, dict) else None
    return step if step is not None else 0


def _described(error: BaseException) -> Record:
    """Return an end record's fields for the error that ended the training, with its cause."""
    full = isinstance(error, OSError) and is_full(error)
    try:
        # One that an error knows itself: out_of_memory, non_finite …
        cause = getattr(error, "cause", "disk_full" if full else "error")
        return {"error": f"{type(error).__name__}: {error}", "cause": cause}
    except Exception:  # noqa: BLE001 - the error's own methods are called here; its type says what it was
        return {"error": type(error).__name__, "cause": "error"}


def _sampled(gpus: bool | Mapping[str, Any], machine: bool | Mapping[str, Any]) -> dict[str, Any]:
    """Return what is sampled, as run.json has it: False, or all options."""
    if gpus is False and machine is False:
        return {"gpu_monitor": False, "machine_monitor": False}
    from monitoring.gpu.options import GpuMonitorOptions, MachineMonitorOptions

    full = GpuMonitorOptions.in_full(gpus), MachineMonitorOptions.in_full(machine)
    return dict(zip(("gpu_monitor", "machine_monitor"), full, strict=True))
