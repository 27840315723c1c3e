"""Runs to export, samples of GPUs that are made up and say so, and scrapes."""

from __future__ import annotations

import contextlib
import os
import re
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from monitoring import Run
from monitoring.exporters._shared_port import PLACE
from monitoring.gpu.aggregates import aggregate
from monitoring.gpu.sample import GpuSample
from monitoring.journal.records import read_records

Scrape = dict[tuple[str, frozenset[tuple[str, str]]], float]


def scrape(address: str, accept: str = "", *, patience: float | None = None) -> str:
    """Text that HOST:PORT answers to a scrape; `patience` is the timeout a Prometheus announces."""
    headers = {"Accept": accept}
    if patience is not None:
        headers["X-Prometheus-Scrape-Timeout-Seconds"] = str(patience)
    request = urllib.request.Request(f"http://{address}/metrics", headers=headers)
    with urllib.request.urlopen(request, timeout=600) as answer:
        return str(answer.read().decode())


def values(text: str, *, without: tuple[str, ...] = ("_bucket",)) -> dict[str, float]:
    """`name{labels}` -> value of each line, without the names that end so."""
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {key: float(value) for key, _, value in lines if not key.partition("{")[0].endswith(without)}


def of(found: dict[str, float], metric: str) -> list[float]:
    """The values of one metric, of whatever labels."""
    return [value for key, value in found.items() if key.partition("{")[0] == metric]


@pytest.fixture(autouse=True)
def _no_shared_ports_left(tmp_path: Path) -> Iterator[None]:
    """Remove the files that killed agents left below /tmp."""
    yield
    for file in PLACE.glob(f"kharness-{os.getuid()}/*/*"):
        with contextlib.suppress(OSError):  # another test's, which has just removed it
            if file.read_text().startswith(str(tmp_path)):
                file.unlink()
                file.parent.rmdir()


def address_of(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


def runs_shown(text: str) -> set[str]:
    return set(re.findall(r'^training_running\{.*run="(.*?)"', text, flags=re.MULTILINE))


def alerts(directory: Path) -> list[object]:
    return [record["message"] for record, _ in read_records(directory / "alerts.jsonl")]


def new_run(directory: Path, name: str = "run 1", **about: Any) -> Run:
    """A run of 40 steps, 20 an epoch, that has begun."""
    run = Run(directory, **{"name": name, "project": "digits", "config": {}, "agent": False, **about})
    run.start(model={"name": "simulated"}, training={"num_steps": 40, "steps_per_epoch": 20})
    return run


def log_steps(run: Run, first: int, last: int, **metrics: Any) -> None:
    for step in range(first, last + 1):
        measured = {"train_loss": 1 / step, "lr": 0.1, "grad_norm": 2.0, "sec_per_step": 0.25, **metrics}
        run.log_step(step, **measured)


def simulated_gpu(index: int, **values: Any) -> GpuSample:
    return GpuSample(
        index,
        f"GPU-{index}",
        "simulated GPU",
        **{"vendor": "nvidia", "state": "ok", "memory_total_mb": 1000.0, **values},
    )


class GpuStats:
    """Writes gpu_stats.jsonl as the sampler does, from samples that are made up."""

    def __init__(self, directory: Path, host: str = "") -> None:
        """`host` is another one than rank 0's."""
        self.path = directory / (f"gpu_stats.{host}.jsonl" if host else "gpu_stats.jsonl")
        self.about = {"host": host} if host else {}
        self.seq = 0

    def add(self, *samples: GpuSample, at: float | None = None, **aggregates: Any) -> None:
        self.seq += 1
        line = {
            "event": "gpu",
            "time": time.time() if at is None else at,
            "seq": self.seq,
            "attempt": 1,
            **self.about,
            "multi_gpu_data": [sample._asdict() for sample in samples],
            "aggregate_stats": {**aggregate(samples), **aggregates},
        }
        with self.path.open("ab") as file:
            file.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
