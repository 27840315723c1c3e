"""TelemetryTracker: what it measures, keeps over a resume, and prints as the document has it."""

from __future__ import annotations

import json
import re
import statistics
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from monitoring.telemetry import TelemetryTracker
from monitoring.telemetry.device_pool import DevicePool
from monitoring.telemetry.measurements import EXACT, UNMEASURED, Measurements
from monitoring.telemetry.summaries import summary_text, timer_statistics
from monitoring.telemetry.timers import MAX_IN_FLIGHT

from ...simulated_cuda import SimulatedCuda
from ...simulated_nvml.simulated_nvml import SimulatedNvml
from ...warm_python import WarmPython

SUMMARY = """\
Telemetry Summary (my-machine):
Total time: 3600.0 seconds

CPU Timers:
    total_training:
        Total: 3600.0s Mean: 3600.0s
        Count: 1 Percentage of total time: 100.00%
    epoch:
        Total: 3590.0s Mean: 897.5s
        Count: 4 Percentage of total time: 99.72%
    backward_pass:
        Total: 720.0s Mean: 0.18s
        Count: 4000 Percentage of total time: 20.00%

CUDA Timers:
    forward_pass:
        Total: 2160.0s Mean: 0.54s
        Count: 4000 Percentage of total time: 60.00%

Peak GPU memory usage: 14.5 GB
GPU temperature: Mean: 72°C Max: 76°C"""

CROSS_RANK = """\
Cross-Rank Statistics:
GPU Temperature:
    max:
        mean: 75.2C
        std_dev: 2.1C
        min: 72.0C
        max: 78.0C
    mean:
        mean: 71.5C
        std_dev: 1.8C
        min: 69.0C
        max: 74.0C

Timers:
    model_forward:
        mean:
            mean: 0.096s
            std_dev: 0.008s
            min: 0.085s
            max: 0.105s
        max:
            mean: 0.125s
            std_dev: 0.010s
            min: 0.115s
            max: 0.142s
    preprocessing:
        mean:
            mean: 0.016s
            std_dev: 0.003s
            min: 0.012s
            max: 0.020s
"""


def measured(*values: float) -> Measurements:
    found = Measurements()
    for value in values:
        found.add(value)
    return found


def of_timer(*values: float) -> dict[str, Any]:
    found = measured(*values)
    return timer_statistics(found.statistics(), found.total, 3600.0)


def test_a_duration_under_a_known_name_makes_nothing_new(monkeypatch: pytest.MonkeyPatch) -> None:
    """A phase of a training ends so in each step."""
    telemetry = TelemetryTracker()
    telemetry.record_time("steps", 1.0)
    monkeypatch.delattr("monitoring.telemetry.tracker.Measurements")
    telemetry.record_time("steps", 3.0)
    found = telemetry.get_summary()["timers"]["steps"]
    assert (found["count"], found["mean"]) == (2, 2.0)


def test_a_summary_is_printed_as_documented() -> None:
    summary = {
        "hostname": "my-machine",
        "rank": 0,
        "total_time": 3600.0,
        "timers": {
            "total_training": of_timer(3600.0),
            "epoch": of_timer(*[897.5] * 4),
            "backward_pass": of_timer(*[0.18] * 4000),
        },
        "cuda_timers": {"forward_pass": of_timer(*[0.54] * 4000)},
        "gpu_memory": {"peak": 14.5},
        "gpu_temperature": measured(68.0, 76.0).statistics(),
    }
    assert summary_text(summary) == SUMMARY


def of_rank(rank: int, temperatures: tuple[float, float], forward: tuple[float, float], other: float) -> Any:
    highest, mean = temperatures
    return {
        "rank": rank,
        "gpu_temperature": {"max": highest, "mean": mean},
        "timers": {
            "model_forward": {"mean": forward[0], "max": forward[1]},
            "preprocessing": {"mean": other},
        },
        "cuda_timers": {},
    }


RANKS = [
    of_rank(0, (75.4, 71.5), (0.103, 0.1215), 0.016),
    of_rank(1, (72.0, 69.0), (0.085, 0.115), 0.012),
    of_rank(2, (75.4, 71.5), (0.091, 0.1215), 0.016),
    of_rank(3, (78.0, 74.0), (0.105, 0.142), 0.020),
]


def test_ranks_are_printed_as_documented_and_named(capsys: pytest.CaptureFixture[str]) -> None:
    """The document explains lines in comments; in their place stands which rank it is."""
    names = {
        "gpu_temperature": ("max", "mean"),
        "timers": {"model_forward": ("mean", "max"), "preprocessing": ("mean",)},
    }
    TelemetryTracker().print_cross_rank_summary(RANKS, measurement_names=names)
    printed = capsys.readouterr().out
    assert re.sub(" *#.*", "", printed) == CROSS_RANK
    assert "        min: 72.0C  # rank 1\n        max: 78.0C  # rank 3\n" in printed
    assert "            max: 0.105s  # rank 3\n" in printed


def test_a_rank_without_a_number_is_named() -> None:
    tracker, without = TelemetryTracker(), {**RANKS[1], "timers": {}, "gpu_temperature": None}
    found = tracker.compute_cross_rank_summaries([RANKS[0], without, RANKS[3]])
    assert found["timers"]["preprocessing"]["mean"] == {
        "mean": pytest.approx(0.018),
        "median": pytest.approx(0.018),
        "std_dev": pytest.approx(0.002),
        "min": 0.016,
        "max": 0.020,
        "min_rank": 0,
        "max_rank": 3,
        "missing_ranks": [1],
    }
    assert found["gpu_temperature"]["max"]["missing_ranks"] == [1]
    nobody = tracker.compute_cross_rank_summaries([without], measurement_names={"timers": {"a": ("mean",)}})
    assert nobody["timers"]["a"]["mean"]["missing_ranks"] == [1]
    assert nobody["timers"]["a"]["mean"]["mean"] is None


def test_timers_measure_blocks_and_functions_also_within_themselves_and_those_that_fail() -> None:
    began = time.perf_counter()
    tracker = TelemetryTracker()

    @tracker.timer("counted")
    def count_down(number: int) -> int:
        """Recurse this many times."""
        return count_down(number - 1) if number else 0

    assert count_down(4) == 0
    assert (count_down.__name__, count_down.__doc__) == ("count_down", "Recurse this many times.")
    with pytest.raises(ZeroDivisionError), tracker.timer("failing"):
        _ = 1 / 0
    found = tracker.get_summary()
    took = time.perf_counter() - began
    assert {name: timer["count"] for name, timer in found["timers"].items()} == {"counted": 5, "failing": 1}
    assert 0 < found["timers"]["counted"]["max"] <= found["total_time"] <= took


def test_threads_lose_no_measurement() -> None:
    tracker = TelemetryTracker()

    def work() -> None:
        for _ in range(5000):
            with tracker.timer("shared"):
                pass

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert tracker.get_summary()["timers"]["shared"]["count"] == 15000


def test_a_disabled_tracker_measures_nothing() -> None:
    tracker = TelemetryTracker(enabled=False)
    with tracker.timer("a"), tracker.cuda_timer("b"):
        pass
    assert tracker.timer("a")(len)("four") == 4
    tracker.record_time("c", 1.0)
    found = tracker.get_summary()
    assert (found["timers"], found["cuda_timers"]) == ({}, {})


def test_a_disabled_timer_runs_no_code_of_ours_and_lets_errors_through() -> None:
    timer = TelemetryTracker(enabled=False).timer
    events: list[str] = []
    timer("a")  # made once
    sys.setprofile(lambda frame, event, argument: events.append(event))
    with timer("a"), timer("a"):
        pass
    sys.setprofile(None)
    assert "call" not in events
    with pytest.raises(LookupError, match="here"), timer("a"):
        raise LookupError("here")


def test_moments_and_median_are_those_of_all_values_in_bounded_memory() -> None:
    pytest.importorskip("datasketches", reason="datasketches is not installed: no wheel for Python 3.14")
    random, found = Random(1), Measurements()
    values = [random.lognormvariate(-3, 1) for _ in range(20_000)]
    for value in values:
        found.add(value)
    got = found.statistics()
    assert got["count"] == 20_000
    assert got["mean"] == pytest.approx(statistics.fmean(values), rel=1e-12)
    assert got["std_dev"] == pytest.approx(statistics.pstdev(values), rel=1e-9)
    assert (got["min"], got["max"]) == (min(values), max(values))
    rank = sum(value < got["median"] for value in values) / len(values)
    assert abs(rank - 0.5) < 0.0133  # of datasketches' normalized_rank_error
    assert got["quantiles"] == "KLL sketch, rank error 1.3%"
    assert len(json.dumps(found.state_dict())) < 10_000


def test_without_datasketches_the_median_of_many_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasketches", None)
    few, many = measured(1.0, 2.0, 4.0), measured(*map(float, range(EXACT + 1025)))
    assert (few.statistics()["median"], few.statistics()["quantiles"]) == (2.0, "exact")
    assert (many.statistics()["median"], many.statistics()["quantiles"]) == (None, UNMEASURED)
    assert many.statistics()["count"] == EXACT + 1025


def test_a_resumed_training_continues_all_times() -> None:
    before, began = TelemetryTracker(), time.perf_counter()
    for number in range(3 * EXACT):
        before.record_time("long", float(number))
    before.record_time("short", 2.0)
    state = json.loads(json.dumps(before.state_dict()))
    state["total_time"] = 1e6
    after = TelemetryTracker()
    with after.timer("gone"):
        pass
    after.load_state_dict(state)
    expected = {name: {**timer, "percentage": 0} for name, timer in before.get_summary()["timers"].items()}
    found = after.get_summary()
    gone = found["timers"].pop("gone")
    assert {name: {**timer, "percentage": 0} for name, timer in found["timers"].items()} == expected
    assert gone["count"] == 0
    assert 1e6 <= found["total_time"] <= 1e6 + time.perf_counter() - began


def test_a_cuda_timer_counts_what_the_device_has_done_and_waits_for_nothing(
    simulated_cuda: SimulatedCuda,
) -> None:
    cuda = simulated_cuda
    tracker = TelemetryTracker(pool=DevicePool(cuda))
    for milliseconds in (10.0, 30.0):
        with tracker.cuda_timer("forward"):
            cuda.queued[0] += milliseconds
    assert tracker.get_summary()["cuda_timers"]["forward"]["count"] == 0
    cuda.done[0] = 10.0
    assert tracker.get_summary()["cuda_timers"]["forward"]["mean"] == pytest.approx(0.010)
    assert cuda.done[0] == 10.0
    for _ in range(10 * MAX_IN_FLIGHT):
        with tracker.cuda_timer("forward"):
            cuda.queued[0] += 1.0
        cuda.done[0] = cuda.queued[0]
    assert tracker.get_summary()["cuda_timers"]["forward"]["total"] == pytest.approx(0.68)
    assert cuda.events_made <= 2 * (MAX_IN_FLIGHT + 2)
    cuda.failed = True
    assert tracker.get_summary()["cuda_timers"]["forward"]["count"] == 2 + 10 * MAX_IN_FLIGHT


def test_a_cuda_timer_is_of_the_rank_s_own_device(simulated_cuda: SimulatedCuda) -> None:
    """Whichever is torch's current one, which is the first unless a script sets it."""
    cuda = simulated_cuda
    own, current = (TelemetryTracker(pool=DevicePool(cuda), device=device) for device in ("cuda:1", None))
    with own.cuda_timer("forward"), current.cuda_timer("forward"):
        cuda.queued[1] += 20.0
        cuda.queued[0] += 1.0
    cuda.current = 1
    with current.cuda_timer("backward"):
        cuda.queued[1] += 5.0
    cuda.done |= {0: 1e9, 1: 1e9}
    means = [
        {name: timer["mean"] for name, timer in found.get_summary()["cuda_timers"].items()}
        for found in (own, current)
    ]
    assert means == [
        {"forward": pytest.approx(0.020)},
        {"forward": pytest.approx(0.001), "backward": pytest.approx(0.005)},
    ]


def test_without_cuda_nothing_is_made_up(capsys: pytest.CaptureFixture[str]) -> None:
    tracker = TelemetryTracker()
    with tracker.cuda_timer("forward_pass"):
        pass
    assert tracker.log_gpu_memory() is None
    found = tracker.get_summary()
    assert (found["cuda_timers"], found["gpu_memory"]) == ({"forward_pass": None}, None)
    tracker.print_summary()
    assert capsys.readouterr().out.endswith(
        "CUDA Timers:\n    forward_pass:\n        not measured: no CUDA device\n"
    )


def test_the_temperature_is_that_of_this_rank_s_gpu(
    simulated_nvml: SimulatedNvml, warm_nvml: WarmPython, tmp_path: Path
) -> None:
    """Simulated GPUs, read by the real pynvml; the second of them that this process may use."""
    simulated_nvml.write("gpus 4", "gpu 3 temperature 71", "gpu 2 temperature 50")
    program = (
        "from monitoring.telemetry import TelemetryTracker; t = TelemetryTracker()\n"
        "print(t.record_gpu_temperature(), t.get_summary()['gpu_temperature']['max'])"
    )
    environment = {**simulated_nvml.environment(), "CUDA_VISIBLE_DEVICES": "2,3", "LOCAL_RANK": "1"}
    found = warm_nvml.run(["-c", program], env={**environment}, cwd=tmp_path)
    assert (found.stdout, found.stderr) == ("71 71\n", "")
    program = program.replace("TelemetryTracker()", "TelemetryTracker(device='cuda:0')")
    found = warm_nvml.run(["-c", program], env={**environment}, cwd=tmp_path)
    assert (found.stdout, found.stderr) == ("50 50\n", "")


def test_without_a_process_group_ranks_are_read_from_their_files(
    tmp_path: Path, made_callback: Callable[..., Any]
) -> None:
    for rank in (2, 1):
        made_callback(tmp_path, rank=rank, world_process_zero_only=False).on_log({"step": rank})
    tracker = TelemetryTracker(directory=tmp_path / "telemetry", rank=0)
    (tmp_path / "telemetry/telemetry_callback_rank0009.json").write_text("{half")
    assert [found["rank"] for found in tracker.get_summaries_from_all_ranks()] == [0, 1, 2]
