"""A run on two hosts in a scrape: each host's GPUs and machine by its name."""

from __future__ import annotations

import platform
import time
from contextlib import closing
from pathlib import Path

import orjson

from monitoring import Run
from monitoring.exporters.prometheus import Exporter

from .conftest import GpuStats, new_run, scrape, simulated_gpu, values

HOST = platform.node()


def test_gpus_and_machines_of_all_hosts_are_shown(run_dir: Path) -> None:
    run = new_run(run_dir)
    run.log_step(1, train_loss=1.0)
    with Run(run_dir, name="n", project="p", config={}, rank=1, agent=False) as other:
        other.start(model={}, training={})
    start = (run_dir / "metrics.rank0001.jsonl").read_bytes()
    of_rank_1 = orjson.loads(start.splitlines()[0])
    (run_dir / "metrics.rank0001.jsonl").write_bytes(start.replace(f'"{HOST}"'.encode(), b'"node1"'))
    with closing(Exporter(run_dir, host="127.0.0.1", port=0)) as exporter:
        scrape(exporter.server.address)
        pid = [{"pid": of_rank_1["pid"]}]
        GpuStats(run_dir).add(simulated_gpu(0, memory_used_mb=1.0), energy_joules=7.0)
        second = GpuStats(run_dir, "node1")
        second.add(simulated_gpu(0, memory_used_mb=2.0, processes=pid, run_share=1.0), energy_joules=9.0)
        for host, cpu in ((HOST, 10.0), ("node1", 20.0)):
            name = "system_stats.jsonl" if host == HOST else f"system_stats.{host}.jsonl"
            line = {"event": "system", "time": time.time(), "host": host}
            (run_dir / name).write_bytes(orjson.dumps({**line, "seq": 1, "cpu_usage_percent": cpu}) + b"\n")
        found = values(scrape(exporter.server.address))
    labels = {
        host: f'gpu="0",host="{host}",modelName="simulated GPU",uuid="GPU-0"' for host in (HOST, "node1")
    }
    expected = {
        f"gpu_memory_used_mb{{{labels[HOST]}}}": 1.0,
        f"gpu_memory_used_mb{{{labels['node1']}}}": 2.0,
        f'training_energy_joules_total{{host="{HOST}",run="run 1"}}': 7.0,
        'training_energy_joules_total{host="node1",run="run 1"}': 9.0,
        'kharness_run_info{gpu="0",host="node1",project="digits",rank="1",run="run 1",uuid="GPU-0"}': 1.0,
        f'system_cpu_percent{{host="{HOST}"}}': 10.0,
        'system_cpu_percent{host="node1"}': 20.0,
    }
    names = {key.partition("{")[0] for key in expected}
    assert {key: value for key, value in found.items() if key.partition("{")[0] in names} == expected
