"""A run on two hosts in a report: a row for each host's GPUs, and totals over all of them."""

from __future__ import annotations

from pathlib import Path

import orjson

from kharness.report.gpu.history import read_gpu_history
from kharness.report.writing.gpu_tables import per_gpu
from monitoring.gpu.aggregates import aggregate
from monitoring.gpu.sample import GpuSample


def sampled(path: Path, host: str, watts: float, *, begins: float, attempts: int = 3) -> None:
    """Two GPUs of a host, once a second, that have drawn so many watts each."""
    lines = b""
    for number in range(attempts):
        gpus = [
            GpuSample(
                index, f"{host}-{index}", "simulated GPU", "nvidia", state="ok", memory_total_mb=1000.0,
                memory_used_mb=100.0 * (index + 1), power_draw_watts=watts, temperature_celsius=40.0 + index,
                run_share=1.0, energy_joules=watts * number,
            )
            for index in (0, 1)
        ]  # fmt: skip
        used = {"energy_joules": 2 * watts * number, "energy_source": "counter", "cost": 0.5}
        about = {"event": "gpu", "time": begins + number, "seq": number + 1, "attempt": 1, "host": host}
        together = {**aggregate(gpus), **used, "devices_source": "processes"}
        line = {**about, "multi_gpu_data": [gpu._asdict() for gpu in gpus], "aggregate_stats": together}
        lines += orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)
    path.write_bytes(lines)


def test_report_has_the_gpus_of_all_hosts(tmp_path: Path) -> None:
    sampled(tmp_path / "gpu_stats.jsonl", "node0", 50.0, begins=1000.0)
    alone = read_gpu_history(tmp_path)
    sampled(tmp_path / "gpu_stats.node1.jsonl", "node1", 70.0, begins=1000.5)
    found = read_gpu_history(tmp_path)
    assert [gpu.label for gpu in alone.gpus] == ["GPU 0", "GPU 1"]
    assert (alone.energy_joules, alone.cost, alone.num_samples, alone.seconds) == (200.0, 0.5, 3, 2.0)
    rows = per_gpu(found.gpus).plain().splitlines()[1:]
    assert [" ".join(row.split()) for row in rows if "GPU" in row] == [
        "GPU 0 on node0 simulated GPU ok 100.0 (±0.0) 100.0 10.0 - 40 50.0 100",
        "GPU 1 on node0 simulated GPU ok 200.0 (±0.0) 200.0 20.0 - 41 50.0 100",
        "GPU 0 on node1 simulated GPU ok 100.0 (±0.0) 100.0 10.0 - 40 70.0 140",
        "GPU 1 on node1 simulated GPU ok 200.0 (±0.0) 200.0 20.0 - 41 70.0 140",
    ]
    assert (found.energy_joules, found.energy_source, found.cost) == (480.0, "counter", 1.0)
    assert (found.num_samples, found.seconds, found.peak_memory_mb) == (3, 2.5, 600.0)
    assert found.totals == {"memory": (600.0, 4), "power": (240.0, 4)}
    assert found.balance("power")[0] == 100 / 6
    assert list(found.together["power"].means) == [100.0, 240.0, 240.0, 240.0, 240.0, 240.0]
    assert found.devices_source == "processes"


def test_host_that_samples_no_longer_is_in_no_sum(tmp_path: Path) -> None:
    """A host that a resume on fewer hosts left out adds nothing to later sums."""
    sampled(tmp_path / "gpu_stats.node1.jsonl", "node1", 70.0, begins=1000.0)
    sampled(tmp_path / "gpu_stats.jsonl", "node0", 50.0, begins=2000.0)
    found = read_gpu_history(tmp_path)
    assert list(found.together["power"].peaks)[-3:] == [100.0, 100.0, 100.0]
    assert (found.energy_joules, found.peak_memory_mb) == (480.0, 300.0)


def test_hosts_other_than_the_first_may_have_the_only_gpus(tmp_path: Path) -> None:
    sampled(tmp_path / "gpu_stats.node1.jsonl", "node1", 70.0, begins=1000.5)
    assert [(gpu.host, gpu.label) for gpu in read_gpu_history(tmp_path).gpus] == [
        ("node1", "GPU 0"),
        ("node1", "GPU 1"),
    ]
