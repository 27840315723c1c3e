"""gpu_stats.jsonl as it is written: whole records, one cost a sample however long the run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson

from monitoring.agent.sample_threads.gpu_stats import GpuStats
from monitoring.gpu.options import GpuMonitorOptions
from monitoring.gpu.sample import GpuSample
from monitoring.journal.encoding.archive import full_files
from monitoring.journal.rotating_journal import read_rotated

from ...simulated_nvml.simulated_nvml import SimulatedNvml


def opened(directory: Path, *, attempt: int = 1, started: float = 0.0, **options: Any) -> GpuStats:
    return GpuStats(
        directory,
        GpuMonitorOptions(**options),
        run_id="0123456789abcdef",
        attempt=attempt,
        started=started,
        host="node7",
    )


def sample(index: int, *, joules: float, **values: Any) -> GpuSample:
    return GpuSample(
        index,
        f"GPU-{index}",
        "simulated",
        "nvidia",
        "ok",
        power_draw_watts=100.0,
        energy_counter_joules=joules,
        **values,
    )


def test_record_has_every_gpu_and_the_aggregates(tmp_path: Path) -> None:
    stats = opened(tmp_path, hour_price=36.0)
    stats.append([sample(0, joules=10), sample(1, joules=10)], time=0.0, global_step=0)
    stats.append([sample(0, joules=110), sample(1, joules=90)], time=1.0, global_step=4)
    stats.close()

    record = orjson.loads((tmp_path / "gpu_stats.jsonl").read_bytes().splitlines()[1])
    gpus, aggregates = record.pop("multi_gpu_data"), record.pop("aggregate_stats")
    assert record == {
        "event": "gpu",
        "time": 1.0,
        "seq": 2,
        "attempt": 1,
        "global_step": 4,
        "correlation_id": "0123456789abcdef",
        "host": "node7",
    }
    assert [list(gpu) for gpu in gpus] == [list(GpuSample._fields)] * 2
    assert [(gpu["uuid"], gpu["energy_joules"], gpu["fan_speed_percent"]) for gpu in gpus] == [
        ("GPU-0", 100, None),
        ("GPU-1", 80, None),
    ]
    nothing = {"cv": None, "quality": None}
    assert aggregates == {
        "gpu_count": 2,
        "lost": [],
        "total_memory_used_mb": None,
        "total_memory_mb": None,
        "total_memory_percent": None,
        "average_utilization": None,
        "total_power_watts": 200,
        "max_temperature_celsius": None,
        "load_balance": {
            "memory": nothing,
            "utilization": nothing,
            "power": {"cv": 0, "quality": "Excellent"},
        },
        "devices": [0, 1],
        "devices_source": "selection",
        "energy_joules": 180,
        "energy_source": "counter",
        "gpu_hours": 2 / 3600,
        "cost": 36.0 * 2 / 3600,
        "unmeasured_seconds": 0,
    }


def test_value_that_is_no_number_is_one_that_was_not_measured(tmp_path: Path) -> None:
    """A NaN from a driver is recorded as null, as if it had not been measured."""
    stats = opened(tmp_path)
    for activity in (50.0, float("nan")):
        stats.append([sample(0, joules=10, sm_activity_percent=activity)], time=0.0, global_step=0)
    stats.close()
    known, unknown = read_rotated(tmp_path / "gpu_stats.jsonl")
    activities = [record["multi_gpu_data"][0]["sm_activity_percent"] for record in (known, unknown)]  # type: ignore[index]
    assert activities == [50, None]
    assert list(unknown) == list(known)


def test_further_agent_and_attempt_go_on_with_numbers_and_energy(tmp_path: Path) -> None:
    for attempt, started, times in ((1, 0.0, (0, 1)), (1, 0.0, (2, 3)), (2, 500.0, (500, 501))):
        stats = opened(tmp_path, attempt=attempt, started=started)
        for time in times:
            stats.append([sample(0, joules=1000 * time)], time=float(time), global_step=0)
        stats.close()
    records = list(read_rotated(tmp_path / "gpu_stats.jsonl"))
    assert [(record["seq"], record["attempt"]) for record in records] == [
        (1, 1),
        (2, 1),
        (3, 1),
        (4, 1),
        (5, 2),
        (6, 2),
    ]
    energies: list[Any] = [record["aggregate_stats"]["energy_joules"] for record in records]  # type: ignore[index]
    assert energies == [0, 1000, 2000, 3000, 3000, 4000]


def test_sample_costs_the_file_the_same_at_the_end_of_a_long_run(tmp_path: Path) -> None:
    """8 GPUs for three hours of a simulated clock, with rotation; what the kernel counts is compared."""
    stats = opened(tmp_path, file_mb=1, files=3)
    costs = []
    for hour in range(3):
        before = written()
        for second in range(3600 * hour, 3600 * (hour + 1), 3):
            samples = [sample(index, joules=100.0 * second) for index in range(8)]
            stats.append(samples, time=float(second), global_step=second)
        after = written()
        costs.append((after[0] - before[0], after[1] - before[1]))
    stats.close()
    (first_bytes, first_calls), *_, (last_bytes, last_calls) = costs
    assert last_calls == first_calls == 1200
    assert abs(last_bytes - first_bytes) < 0.02 * first_bytes  # figures get a digit longer
    sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    full = [file.path.name for file in full_files(tmp_path / "gpu_stats.jsonl")]
    assert (len(full), sorted(sizes)) == (3, ["gpu_stats.jsonl", *full])
    assert max(sizes.values()) < 2**20 + 20_000


# Samples four GPUs 12,000 times by a simulated clock, looking at their processes far more often than usual;
# tells the memory (KiB) and the descriptors behind 2,000 and at the end.
TEN_THOUSAND = """
import os, re, sys
from pathlib import Path
from monitoring.gpu.options import GpuMonitorOptions
from monitoring.agent.sample_threads.gpu_stats import GpuStats
from monitoring.samplers import nvidia, probe_all

nvidia.SLOW_EVERY = 0.01
sampler, _ = probe_all()
options = GpuMonitorOptions(hour_price=2.0, file_mb=1, files=2)
stats = GpuStats(Path(sys.argv[1]), options, run_id="0" * 16, attempt=1, started=0.0, host="h")
for second in range(1, 12_001):
    stats.append(sampler.sample(), time=float(second), global_step=second)
    sampler.events()
    if second in (2_000, 12_000):
        [rss] = re.findall(r"VmRSS:\\s+(\\d+)", Path("/proc/self/status").read_text())
        print(rss, len(os.listdir("/proc/self/fd")))
sampler.close()
"""


def test_memory_and_descriptors_are_the_same_after_ten_thousand_samples(
    tmp_path: Path, simulated_nvml: SimulatedNvml
) -> None:
    simulated_nvml.write("gpus 4", "all utilization 10~90/2", "gpu 1 process 1 500", "gpu 2 state lost")
    others = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    done = subprocess.run(
        [sys.executable, "-c", TEN_THOUSAND, str(tmp_path)],
        env={**others, **simulated_nvml.environment()},
        capture_output=True,
        text=True,
        check=True,
    )
    [(rss, fds), (last_rss, last_fds)] = [map(int, line.split()) for line in done.stdout.splitlines()]
    assert last_fds == fds
    assert last_rss - rss < 512  # a record kept each time would be 50 MB


def written() -> tuple[int, int]:
    """Bytes and calls with which this thread has written: others of this process report results."""
    lines = Path("/proc/thread-self/io").read_text().splitlines()
    numbers = {name: int(value) for name, value in (line.split(": ") for line in lines)}
    return numbers["wchar"], numbers["syscw"]
