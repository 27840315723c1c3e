"""The system's clock is set by an hour meanwhile, back or ahead: what is measured stays what passed."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from kharness.report.gpu.history import read_gpu_history
from monitoring.agent.sample_threads.gpu_stats import GpuStats
from monitoring.exporters._run_files import Runs
from monitoring.gpu.options import GpuMonitorOptions
from monitoring.gpu.sample import GpuSample
from monitoring.gpu_monitor import GPUMonitor
from monitoring.host.steady_clock import SteadyClock
from monitoring.journal.files import GPU_STATS
from monitoring.journal.records import JSON_LINE
from monitoring.run import Run
from monitoring.terminal.source import RecordedGpus

from ..simulated_nvml.simulated_nvml import SimulatedNvml
from ..waiting import wait_until

HOUR = 3600.0

SET = pytest.mark.parametrize("by", [-HOUR, HOUR])


@pytest.fixture
def set_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets what this process takes for the system's clock, by some seconds."""
    real = time.time

    def set_clock(by: float) -> None:
        monkeypatch.setattr(time, "time", lambda: real() + by)

    return set_clock


def sample(power: float = 100.0) -> GpuSample:
    return GpuSample(0, "GPU-0", "made up", "nvidia", "ok", power_draw_watts=power)


@SET
def test_energy_and_hours_are_those_of_the_time_that_passed(tmp_path: Path, by: float) -> None:
    options = GpuMonitorOptions(hour_price=36.0)
    stats = GpuStats(tmp_path, options, run_id="r", attempt=1, started=1e6, host="h")
    for second in range(11):
        wall = 1e6 + second + (by if second > 5 else 0.0)
        record = stats.append([sample()], time=wall, global_step=0, steady=1e6 + second)
    stats.close()
    sums: Any = record["aggregate_stats"]
    assert (sums["energy_joules"], sums["unmeasured_seconds"]) == (1000.0, 0.0)
    assert (sums["gpu_hours"], sums["cost"]) == pytest.approx((10 / HOUR, 0.1))
    history = read_gpu_history(tmp_path)
    assert history.seconds == (10.0 if by < 0 else 10.0 + HOUR)
    curve = history.gpus[0].curves["power"]
    assert list(curve.seconds) == sorted(curve.seconds)
    assert history.gpus[0].spreads["power"].n == 11


def test_reports_count_what_a_thinned_record_stands_for_from_before(tmp_path: Path) -> None:
    """The clock was set back among the samples that became one."""
    gpu = {"index": 0, "uuid": "GPU-0", "state": "ok", "power_draw_watts": 1.0}
    lines = [
        {"time": 5000.0, "samples": 10, "until": 1405.0},
        {"time": 1406.0, "samples": 10, "until": 1415.0},
        {"time": 1416.0},
    ]
    with (tmp_path / GPU_STATS).open("wb") as file:
        for seq, line in enumerate(lines, start=1):
            record = {"event": "gpu", "seq": 10 * seq, "multi_gpu_data": [gpu], "aggregate_stats": {}, **line}
            file.write(orjson.dumps(record, option=JSON_LINE))
    history = read_gpu_history(tmp_path)
    assert (history.num_samples, history.seconds) == (21, 10.0)


@SET
def test_monitor_drops_no_sample(
    simulated_nvml: SimulatedNvml,
    tmp_path: Path,
    set_clock: Callable[[float], None],
    monkeypatch: pytest.MonkeyPatch,
    by: float,
) -> None:
    simulated_nvml.write("gpus 1", "all power 100")
    for name, value in simulated_nvml.environment().items():
        monkeypatch.setenv(name, value)
    with GPUMonitor(0, 0.01, log_dir=tmp_path, quiet=True) as monitor:
        wait_until(lambda: len(monitor.history.snapshots()) >= 3, "three samples")
        set_clock(by)
        count = len(monitor.history.snapshots())
        wait_until(lambda: len(monitor.history.snapshots()) >= count + 3, "three more")
    [path] = tmp_path.glob("gpu_metrics_*.jsonl")
    lines = [orjson.loads(line) for line in path.read_bytes().splitlines()]
    energies = [line["energy_joules"] for line in lines]
    assert len(lines) == len(monitor.history.snapshots())
    assert (energies, monitor.problems) == (sorted(energies), [])
    assert energies[-1] < 100 * 600  # nothing of the hour: a test takes less than ten minutes


def test_samples_from_before_are_not_shown_as_those_of_now(
    tmp_path: Path, set_clock: Callable[[float], None]
) -> None:
    with Run(tmp_path, name="r", project="p", config={}, agent=False):
        stats = GpuStats(tmp_path, GpuMonitorOptions(), run_id="r", attempt=1, started=0.0, host="h")
        stats.append([sample()], time=time.time(), global_step=0)
        set_clock(-HOUR)
        [shown] = Runs(tmp_path).read()
        source = RecordedGpus(tmp_path)
        source.look()
        assert shown.samples(time.time()) == []
        assert "not since" in str(source.problem())
        stats.append([sample()], time=time.time(), global_step=0)
        [shown] = Runs(tmp_path).read()
        source.look()
        assert len(shown.samples(time.time())) == 1
        assert source.problem() is None
        stats.close()


def test_the_beginning_moves_with_the_clock(set_clock: Callable[[float], None]) -> None:
    clock = SteadyClock()
    began = clock.earliest()
    set_clock(-HOUR)
    assert began - HOUR - 600 < clock.earliest() < began - HOUR + 1
    assert clock.at(time.time()) == pytest.approx(began, abs=600)
    set_clock(HOUR)
    assert clock.earliest() == pytest.approx(began, abs=1e-3)
