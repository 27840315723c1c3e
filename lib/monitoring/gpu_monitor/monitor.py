"""Watch GPUs from a process of your own, next to a training or alone; docs/gpus-without-a-run.md shows how.

    python -m monitoring.gpu_monitor --gpu 0 --interval 1.0 --prometheus-port 9090

A training under a `Run` needs none of this: its agent samples with GPU_MONITOR=y.
"""

from __future__ import annotations

import itertools
import logging
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from monitoring.errors import MonitoringError, PortTakenError
from monitoring.gpu.device_states import DeviceStates
from monitoring.gpu.energy import EnergyMeter
from monitoring.gpu.history import Statistics
from monitoring.gpu.sample import MIB, GpuEvent, GpuSample, Snapshot
from monitoring.gpu_monitor.lines import metrics_line, training_line
from monitoring.gpu_monitor.metrics_log import LIMITS, MetricsLog, file_stamp
from monitoring.gpu_monitor.prometheus import MonitorMetrics
from monitoring.host.correlation import correlation_id, own_rank
from monitoring.host.steady_clock import SteadyClock
from monitoring.journal.encoding.global_step import as_step, shown
from monitoring.journal.records import Record
from monitoring.journal.structured_log import STANDARD, JsonLog
from monitoring.sampler_process.loop import ChosenGpus

LOGGER = "monitoring.gpu_monitor"

GpuIndex = int | Sequence[int] | Literal["all"]


class GPUMonitor(ChosenGpus):
    """Samples GPUs by a thread and a process of its own, from `start` to `stop`; `with` does both.

    Once constructed nothing raises: what goes wrong is in `problems`, in the log, and as a line on
    stderr. Without a GPU it says so and everything else works.
    """

    def __init__(
        self,
        gpu_index: GpuIndex = 0,
        sample_interval: float = 1.0,
        *,
        history_size: int = 300,
        log_dir: Path | str | None = "gpu_logs",
        file_mb: int = LIMITS.file_mb,
        files: int = LIMITS.files,
        prometheus_port: int | None = None,
        prometheus_host: str = "127.0.0.1",
        name: str = "gpu_monitor",
        quiet: bool = False,
        root: Path = Path("/"),
    ) -> None:
        """`gpu_index` is one index, several, or "all"; `sample_interval` is in seconds.

        `history_size` counts samples; `log_dir` None writes no files; from `file_mb` MiB on a file is moved
        aside and compressed, and those of one kind take `files` times as much; `prometheus_port` 0 is any
        free one; `name` is the label `run` in Prometheus; `quiet` keeps off stderr; `root` replaces the
        machine's root directory.
        ValueError for an interval or a size that is not above 0.
        """
        if sample_interval <= 0 or min(history_size, file_mb, files) < 1:
            raise ValueError("sample_interval, history_size, file_mb and files are above 0")
        super().__init__(None if gpu_index == "all" else _indices(gpu_index), history_size)
        self.sample_interval = sample_interval
        self.correlation_id = correlation_id()
        self.gpu_files: list[Path] = []
        """The gpu_metrics_*.jsonl that were written."""
        self.training_file: Path | None = None
        self.metrics = MonitorMetrics(name, self.history, self.correlation_id)
        self._log_dir = None if log_dir is None else Path(log_dir)
        self._file_bytes, self._files = file_mb * MIB, files
        self._prometheus = None if prometheus_port is None else (prometheus_host, prometheus_port)
        self._quiet = quiet
        self._root = root
        self.is_running = False
        self._meter: EnergyMeter
        self._clock: SteadyClock
        self._states: DeviceStates
        self._gpu_log: MetricsLog | None = None
        self._training_log: MetricsLog | None = None
        self._opening = threading.RLock()
        self._message_log: MetricsLog | None = None
        self._log, self._stamp = logging.Logger(LOGGER, logging.INFO), ""

    @property
    def latest(self) -> Snapshot | None:
        """The newest sample, None before the first."""
        return self.history.latest

    @property
    def prometheus_address(self) -> str | None:
        """HOST:PORT that answers scrapes, None if none does."""
        return self.metrics.address

    def statistics(self) -> dict[int, dict[str, Statistics]]:
        """GPU index -> metric -> mean, min, max and last over the history."""
        return self.history.statistics()

    def start(self) -> None:
        """Begin to sample, to write and to answer scrapes; nothing if it has begun."""
        if self.is_running:
            return
        self.ready.clear()
        self._stamp = file_stamp(time.time())
        self._open_message_log()
        if self._prometheus is not None:
            try:
                self.metrics.serve(*self._prometheus)
            except PortTakenError as error:
                error.options_are(port="prometheus_port", host="prometheus_host")
                self._tell(f"no metrics for Prometheus: {error}; {error.hint}")
            except MonitoringError as error:
                self._tell(f"no metrics for Prometheus: {error}")
        self._log.info("monitoring begins", extra={"sample_interval": self.sample_interval})
        self._clock = SteadyClock()
        self._meter = EnergyMeter(interval=self.sample_interval, started=self._clock.at(time.time()))
        self._states = DeviceStates()
        self.is_running = True
        self._begin(self.sample_interval, root=self._root)

    def stop(self) -> None:
        """End what `start` began; waits at most 2 s for a driver, then ends its process. Again: nothing."""
        if not self.is_running:
            return
        self._end()
        self.is_running = False
        self.metrics.close()
        self._log.info("monitoring ends", extra={"statistics": _plain(self.statistics())})
        for log in (self._gpu_log, self._training_log, self._message_log):
            if log is not None:
                log.close()
        self._gpu_log = self._training_log = self._message_log = None
        self._log.handlers.clear()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def log_training(self, record: Record) -> None:
        """Write one line of training_metrics_*.jsonl; `correlation_id` and `rank` are added."""
        with self._opening:
            if self._training_log is None and self.is_running:
                self._training_log = self._open_log("training_metrics")
                self.training_file = self._training_log.path if self._training_log is not None else None
        self._append(
            self._training_log, {**record, "correlation_id": self.correlation_id, "rank": own_rank()}
        )

    def log(self, message: str, **fields: object) -> None:
        """Write a message, with fields, into the structured log."""
        taken = STANDARD.intersection(fields)
        self._log.info(
            message, extra={f"{name}_" if name in taken else name: fields[name] for name in fields}
        )

    # ------------------------------------------------------------- the sampling thread

    def take(self, samples: Sequence[GpuSample], events: Sequence[GpuEvent]) -> None:
        """Add to the history and to the files."""
        now = time.time()
        measured, _ = self._meter.measure(self._chosen(samples), self._clock.at(now))
        self.history.add(Snapshot(now, measured))
        if measured and self._gpu_log is None:
            self._gpu_log = self._open_log("gpu_metrics")
        for sample in measured:
            self._append(self._gpu_log, metrics_line(sample, now, self.correlation_id))
        for change in self._states.changes(measured, now):
            if change.kind == "back":
                self._log.info(change.message)
            else:
                self._tell(change.message)
        for event in events:
            if self._wanted is None or event.index in self._wanted:
                self._log.warning(event.message, extra={"gpu_index": event.index, "code": event.code})
        self.ready.set()

    # ------------------------------------------------------------- files and messages

    def _open_message_log(self) -> None:
        program = logging.getLogger(LOGGER)
        if self._quiet:
            self._log.addHandler(logging.NullHandler())
        elif program.hasHandlers():
            self._log.addHandler(_Warnings(program))
        else:  # the program has not said where messages go
            stderr = logging.StreamHandler()
            stderr.setLevel(logging.WARNING)
            stderr.setFormatter(logging.Formatter("gpu monitor: %(message)s"))
            self._log.addHandler(stderr)
        self._message_log = self._open_log("monitor_log")
        if self._message_log is not None:
            self._log.addHandler(JsonLog(self._message_log.append, self.correlation_id))

    def _open_log(self, prefix: str) -> MetricsLog | None:
        if self._log_dir is None:
            return None
        try:
            log = MetricsLog(
                self._log_dir, prefix, self._stamp, file_bytes=self._file_bytes, keep=self._files
            )
        except MonitoringError as error:
            self._tell(str(error))
            return None
        if prefix == "gpu_metrics":
            self.gpu_files.append(log.path)
        return log

    def _append(self, log: MetricsLog | None, line: Record) -> None:
        if log is None:
            return
        log.append(line)
        failure = log.failure
        if failure is not None:
            self._tell(f"{log.path} cannot be written: {failure.strerror}; lines wait in memory")
        elif log.lost:
            self._tell(f"{log.path} lacks {log.lost} lines, which its disk did not take in time")
        elif log.removed:
            self._tell(f"{log.path}: full files are not compressed, and the oldest were removed")

    def _tell(self, problem: str) -> None:
        """Report a problem, once."""
        if problem not in self.problems:
            super()._tell(problem)
            self._log.warning(problem)


class TrainingMonitorCallback:
    """Call it from a training loop; it starts the monitor if nobody has, and never raises.

    What is no number is null in the file. A value that is still on a GPU is waited for.
    """

    def __init__(self, gpu_monitor: GPUMonitor) -> None:
        self._monitor = gpu_monitor
        self._started_monitor = False
        self._began = 0.0
        self._step_began: float | None = None
        self._count, self._num_steps = itertools.count(1), 0
        self._told_step = False

    def on_train_begin(self) -> None:
        """Start monitoring."""
        self._started_monitor = not self._monitor.is_running
        self._monitor.start()
        self._began, self._num_steps = time.monotonic(), 0
        self._count = itertools.count(1)
        self._monitor.metrics.begin_training(time.time())
        self._monitor.log("training begins")

    def on_step_begin(self) -> None:
        """Start the clock of a step."""
        self._step_began = time.perf_counter()

    def on_step_end(
        self,
        *,
        step: object = None,
        epoch: object = None,
        loss: object = None,
        lr: object = None,
        grad_norm: object = None,
        throughput: object = None,
        seconds: float | None = None,
        line: bool = True,
    ) -> None:
        """Record a step: `epoch` may have a fraction, `throughput` is in samples per second.

        `seconds` is how long it took, where that is not since `on_step_begin`; without a `line` it is
        counted and timed, and not written.
        """
        now = time.time()
        seconds = self.step_seconds() if seconds is None else seconds
        self._step_began = None
        self._num_steps = next(self._count)
        number, fraction = None if step is None else as_step(step), _number(epoch)
        record: Record = {
            "event": "step",
            "time": now,
            "global_step": number,
            "train_loss": _number(loss),
            "lr": _number(lr),
            "grad_norm": _number(grad_norm),
            "samples_per_sec": _number(throughput),
            "sec_per_step": seconds,
            **_torch_memory(),
        }
        self._monitor.metrics.take_step(record, fraction, self._num_steps)
        written = training_line(record, fraction) if line else {}
        if number is None and step is not None:
            written["refused_step"] = shown(step)
            if not self._told_step:
                self._told_step = True
                self._monitor._tell(f"{shown(step)} is not a step; such lines have a refused_step")
        if line:
            self._monitor.log_training(written)

    def step_seconds(self) -> float | None:
        """Return seconds since `on_step_begin`; None if no step has begun."""
        return None if self._step_began is None else time.perf_counter() - self._step_began

    def on_train_end(self) -> None:
        """Log the training's results, and stop the monitor if `on_train_begin` started it."""
        seconds = time.monotonic() - self._began
        self._monitor.metrics.end_training(time.time())
        self._monitor.log("training ends", steps=self._num_steps, seconds=seconds)
        if self._started_monitor:
            self._monitor.stop()


class _Warnings(logging.Handler):
    """Hands warnings on to the program's own logging."""

    def __init__(self, logger: logging.Logger) -> None:
        super().__init__(logging.WARNING)
        self._logger = logger

    def emit(self, record: logging.LogRecord) -> None:
        self._logger.handle(record)


def _indices(asked: int | Sequence[int] | str) -> frozenset[int]:
    return frozenset([int(asked)] if isinstance(asked, (int, str)) else map(int, asked))


def _number(value: Any) -> float | None:
    """A number, 0-dim tensor or text of one as a float; None for anything else, also for a complex number."""
    try:
        is_complex = getattr(getattr(value, "dtype", None), "kind", "") == "c"  # numpy's would become real
        return None if is_complex else float(value)
    except Exception:  # noqa: BLE001 - the value's own methods are called here; it is null in the file
        return None


def _torch_memory() -> Record:
    """Return what torch's allocator has given out and holds of the current GPU, in GB; nothing without."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return {}
    return {
        "gpu_mem_allocated": cuda.memory_allocated() / 1e9,
        "gpu_mem_reserved": cuda.memory_reserved() / 1e9,
    }


def _plain(found: dict[int, dict[str, Statistics]]) -> dict[str, dict[str, dict[str, float]]]:
    return {
        str(index): {metric: numbers._asdict() for metric, numbers in metrics.items()}
        for index, metrics in found.items()
    }


def sample_line(sample: GpuSample) -> str:
    """Return one GPU of a sample as a line to read, without values it does not report."""
    if sample.state != "ok":
        return f"GPU {sample.index} is {sample.state}: {sample.error}"
    parts = [
        (sample.utilization_percent, "{:3.0f}%"),
        (sample.memory_used_mb, "{:.0f} MiB"),
        (sample.memory_percent, "({:.0f}% of its memory)"),
        (sample.temperature_celsius, "{:.0f} °C"),
        (sample.power_draw_watts, "{:.0f} W"),
        (sample.fan_speed_percent, "fan {:.0f}%"),
    ]
    values = "  ".join(form.format(value) for value, form in parts if value is not None)
    return f"GPU {sample.index} {sample.name or sample.vendor}  {values or 'reports nothing'}"
