"""Scrapes over HTTP show runs from their files; restarts and further attempts bend no counter."""

from __future__ import annotations

import gzip
import os
import platform
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from html.parser import HTMLParser
from importlib import metadata
from math import nan
from pathlib import Path

import orjson
import psutil
import pytest
from prometheus_client.exposition import gzip_accepted
from prometheus_client.parser import text_string_to_metric_families

from monitoring.agent.follow import undelivered
from monitoring.exporters._metrics_server import About, about_server
from monitoring.exporters.prometheus import Exporter
from monitoring.gpu.throttling import THROTTLE_REASONS
from monitoring.journal.fields import prometheus_rows, rows_at
from monitoring.journal.fields.row import OF_GPU, SYSTEM
from monitoring.journal.records import read_records

from ...ports import free_port
from ...waiting import wait_until
from ..conftest import agent_of, agents_of
from .conftest import (
    GpuStats,
    address_of,
    alerts,
    log_steps,
    new_run,
    of,
    scrape,
    simulated_gpu,
    values,
)

pytestmark = pytest.mark.usefixtures("forked_agents")

HOST = platform.node()
VERSION = metadata.version("torch-kharness")

DCGM_NAMES = tuple(row.dcgm for row in rows_at(OF_GPU) if row.dcgm)

# What dcgm-exporter shows by default and we do not: rates and labels, and what is not sampled.
NOT_OF_DCGM = {
    *("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "DCGM_FI_PROF_PCIE_TX_BYTES", "DCGM_FI_PROF_PCIE_RX_BYTES"),
    *("DCGM_FI_DRIVER_VERSION", "DCGM_FI_DEV_FB_RESERVED", "DCGM_FI_DEV_VGPU_LICENSE_STATUS"),
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
}


MEASURED = {
    "utilization_percent": 87.0,
    "memory_utilization_percent": 40.0,
    "memory_used_mb": 499.5,
    "memory_free_mb": 500.5,
    "temperature_celsius": 66.0,
    "temperature_memory_celsius": 81.0,
    "power_draw_watts": 612.5,
    "energy_counter_joules": 123.5,
    "clock_sm_mhz": 1980.0,
    "clock_memory_mhz": 2619.0,
    "throttle_reasons": ["sw_power_cap", "0x100000"],
    "pcie_replay_count": 3,
    "ecc_corrected": 9,
    "ecc_uncorrected": 1,
    "remapped_rows_correctable": 2,
    "remapped_rows_uncorrectable": 4,
    "row_remap_failure": 1,
    "xid_errors": 2,
    "xid_last_error": 79,
    "encoder_percent": 5.0,
    "decoder_percent": 6.0,
    "sm_activity_percent": 71.5,
    "tensor_activity_percent": 55.0,
    "dram_activity_percent": 33.5,
}

IN_DCGMS_UNITS = """
DEV_GPU_UTIL 87  DEV_MEM_COPY_UTIL 40  DEV_FB_USED 499.5  DEV_FB_FREE 500.5  DEV_GPU_TEMP 66
DEV_MEMORY_TEMP 81  DEV_POWER_USAGE 612.5  DEV_TOTAL_ENERGY_CONSUMPTION 123500  DEV_SM_CLOCK 1980
DEV_MEM_CLOCK 2619  DEV_CLOCKS_EVENT_REASONS 1048580  DEV_PCIE_REPLAY_COUNTER 3  DEV_ECC_SBE_VOL_TOTAL 9
DEV_ECC_DBE_VOL_TOTAL 1  DEV_CORRECTABLE_REMAPPED_ROWS 2  DEV_UNCORRECTABLE_REMAPPED_ROWS 4
DEV_ROW_REMAP_FAILURE 1  DEV_XID_ERRORS 79  DEV_ENC_UTIL 5  DEV_DEC_UTIL 6  PROF_SM_ACTIVE 0.715
PROF_PIPE_TENSOR_ACTIVE 0.55  PROF_DRAM_ACTIVE 0.335
"""


@contextmanager
def shown(directory: Path) -> Iterator[str]:
    """The address at which an exporter in this process shows a directory."""
    with closing(Exporter(directory, host="127.0.0.1", port=0)) as exporter:
        yield exporter.server.address


def test_scrape_shows_every_metric_of_a_run(run_dir: Path) -> None:
    run = new_run(run_dir)
    log_steps(run, 1, 10, gpu_mem_allocated=1.048576, samples_per_sec=64.0)  # GB; 1000 MiB
    run.log_eval(10, split="val", val_loss=0.5, val_accuracy=0.875)
    run.log_step(11, train_loss=nan, lr=0.2, grad_norm=4.0, samples_per_sec=None, sec_per_step=70.0)
    stats = GpuStats(run_dir)
    stats.add(
        simulated_gpu(0, memory_used_mb=250.0, utilization_percent=50.0, clock_sm_mhz=1.5),
        simulated_gpu(1, memory_used_mb=750.0, temperature_celsius=81.0, processes=[{"pid": os.getpid()}]),
        simulated_gpu(2, state="lost", memory_total_mb=None),
        cost=0.25,
        energy_joules=7.0,
    )
    with shown(run_dir) as address:
        found = values(scrape(address), without=("_bucket", *DCGM_NAMES))
    last = [record for record, _ in read_records(run_dir / "metrics.jsonl")][-1]
    rank = f'{{host="{HOST}",rank="0",run="run 1"}}'
    one = f'{{host="{HOST}",run="run 1"}}'
    gpus = [f'{{gpu="{i}",host="{HOST}",modelName="simulated GPU",uuid="GPU-{i}"}}' for i in range(3)]
    computes = f'{{gpu="1",host="{HOST}",project="digits",rank="0",run="run 1",uuid="GPU-1"}}'
    balance = f'gpu_load_balance_cv_percent{{host="{HOST}",quantity="memory",run="run 1"}}'
    build = f'kharness_build_info{{python_version="{platform.python_version()}",version="{VERSION}"}}'
    info = f'{{group="",host="{HOST}",project="digits",run="run 1",run_id="{run.run_id}"}}'
    assert str(found.pop(f"training_loss{rank}")) == "nan"
    assert found == {
        f"training_step{rank}": 11,
        f"training_planned_steps{rank}": 40,
        f"training_epoch{rank}": 0.55,
        f"training_last_step_timestamp_seconds{rank}": last["time"],
        f"training_steps_total{rank}": 11,
        f"training_nonfinite_records_total{rank}": 1,
        f"training_step_duration_seconds_count{rank}": 11,
        f"training_step_duration_seconds_sum{rank}": 72.5,
        f"memory_allocation_mb_count{rank}": 10,
        f"memory_allocation_mb_sum{rank}": pytest.approx(10_000),
        f"learning_rate{rank}": 0.2,
        f"gradient_norm{rank}": 4,
        f"validation_loss{rank}": 0.5,
        f"validation_accuracy{rank}": 0.875,
        f"training_running{one}": 1,
        f"training_run_info{info}": 1,
        f"gpu_up{gpus[0]}": 1,
        f"gpu_up{gpus[1]}": 1,
        f"gpu_up{gpus[2]}": 0,
        f"gpu_utilization_percent{gpus[0]}": 50,
        f"gpu_memory_used_mb{gpus[0]}": 250,
        f"gpu_memory_used_mb{gpus[1]}": 750,
        f"gpu_memory_total_mb{gpus[0]}": 1000,
        f"gpu_memory_total_mb{gpus[1]}": 1000,
        f"gpu_temperature_celsius{gpus[1]}": 81,
        f"gpu_clock_sm_hertz{gpus[0]}": 1.5e6,
        build: 1,
        f"training_energy_joules_total{one}": 7,
        f"kharness_run_info{computes}": 1,
        f"gpu_cost_total{one}": 0.25,
        balance: 50,
    }
    run.finish()


def test_every_metric_is_documented_with_its_type(root: Path, run_dir: Path) -> None:
    with new_run(run_dir) as run, shown(run_dir) as address:
        log_steps(run, 1, 1, gpu_mem_allocated=0.5, samples_per_sec=9.0, sparsity=0.5)
        run.log_eval(1, split="val", val_loss=0.5, val_accuracy=0.5)
        held: dict[str, object] = {row.name: 1.0 for row in rows_at(OF_GPU) if row.prometheus}
        held |= {"throttle_reasons": [], "processes": [{"pid": os.getpid()}]}
        GpuStats(run_dir).add(*(simulated_gpu(i, **held) for i in (0, 1)), cost=1.0, energy_joules=1.0)
        system = {row.name: 1.0 for row in rows_at(SYSTEM)} | {"event": "system", "time": time.time()}
        (run_dir / "system_stats.jsonl").write_bytes(orjson.dumps({**system, "seq": 1, "host": HOST}) + b"\n")
        alert = {"event": "alert", "seq": 1, "rule": "gradient_norm", "state": "firing"}
        (run_dir / "alerts.jsonl").write_bytes(orjson.dumps(alert) + b"\n")
        text = scrape(address)
    lines = [line for line in text.splitlines() if line.startswith("# ") and " DCGM_" not in line]
    shown_types = {tuple(line.split()[2:]) for line in lines if line.startswith("# TYPE")}
    assert {(name, row.prometheus_type) for name, row in prometheus_rows().items()} == shown_types
    helps = {line.split(maxsplit=3)[2]: line for line in lines if line.startswith("# HELP")}
    assert helps == {name: f"# HELP {name} {row.help}" for name, row in prometheus_rows().items()}
    rows = re.findall(
        r"^\| (`.*`) \| (\w+) \|", (root / "docs/prometheus.md").read_text(), flags=re.MULTILINE
    )
    documented = {(name, kind) for names, kind in rows for name in re.findall(r"`(\w+)`", names)}
    kinds = ("gauge", "counter", "histogram", "summary")
    assert {one for one in documented if one[1] in kinds} == shown_types


def test_machines_are_shown_once_and_what_trains_on_them_once_a_run(results: Path) -> None:
    """Two runs on one host, of which the newer sample counts; a sample of long ago is shown no more."""
    now = time.time()
    for name, at, busy in (("a", now, 40.0), ("b", now - 5, 99.0), ("c", now - 600, 1.0)):
        new_run(results / name, name)
        values_ = {"cpu_usage_percent": busy, "memory_usage_percent": 50.0, "trainer_cpu_percent": busy / 2}
        record = {"event": "system", "time": at, "seq": 1, "attempt": 1, "host": HOST, **values_}
        (results / name / "system_stats.jsonl").write_bytes(orjson.dumps(record) + b"\n")
    with shown(results) as address:
        found = values(scrape(address))
    host = f'host="{HOST}"'
    assert {key: value for key, value in found.items() if "_percent{" in key} == {
        f"system_cpu_percent{{{host}}}": 40.0,
        f"system_memory_percent{{{host}}}": 50.0,
        f'training_cpu_percent{{{host},run="a"}}': 20.0,
        f'training_cpu_percent{{{host},run="b"}}': 49.5,
    }


def test_dcgms_names_are_those_of_its_own_list(root: Path, run_dir: Path) -> None:
    """DCGM's metrics exist for NVIDIA GPUs only, in DCGM's units; a value that a GPU lacks is left out."""
    full = simulated_gpu(0, **MEASURED)
    stats = GpuStats(run_dir)
    with new_run(run_dir), shown(run_dir) as address:
        stats.add(full, simulated_gpu(1), full._replace(index=2, vendor="amd"))
        families = [it for it in text_string_to_metric_families(scrape(address)) if "DCGM" in it.name]
    recorded = (root / "tests/data/prometheus/dcgm_counters.csv").read_text().splitlines()
    table = [line.split(",") for line in recorded if not line.startswith("#")]
    types = {name: kind for name, kind, *_ in table}
    untyped = {"counter": "unknown"}  # its name does not end in _total
    assert {it.name: it.type for it in families} == {
        name: untyped.get(types[name], types[name]) for name in DCGM_NAMES
    }
    assert {name for name, _, how, _ in table if how == "default"} - {*DCGM_NAMES} == NOT_OF_DCGM
    labels = {"gpu": "0", "uuid": "GPU-0", "host": HOST, "modelName": "simulated GPU"}
    assert [dict(sample.labels) for it in families for sample in it.samples] == [labels] * len(DCGM_NAMES)
    found = {it.name.removeprefix("DCGM_FI_"): it.samples[0].value for it in families}
    words = IN_DCGMS_UNITS.split()
    assert found == pytest.approx(dict(zip(words[::2], map(float, words[1::2]), strict=True)))


def test_gpus_of_several_runs_are_shown_once(tmp_path: Path) -> None:
    """The newest sample counts; what samplers count since they began does not fall with another's."""
    runs = [new_run(tmp_path / name, name) for name in ("a", "b", "c")]
    now, mine = time.time(), [{"pid": os.getpid()}]
    for place, run in enumerate(runs):
        a_gpu = simulated_gpu(
            0,
            power_draw_watts=100.0 + place,
            processes=mine if run.name == "a" else [],
            run_share=0.5 if run.name == "b" else None,
            xid_errors=int(place == 0),
            xid_last_error=79 if place == 0 else 0,
            throttle_reasons=["hw_slowdown"],
        )
        other = simulated_gpu(1, power_draw_watts=50.0, vendor="intel", throttle_reasons=["thermal"])
        GpuStats(run.directory).add(a_gpu, other, at=now - 10 + place)
    with shown(tmp_path) as address:
        families = {it.name: it for it in text_string_to_metric_families(scrape(address))}
        GpuStats(tmp_path / "a").add(simulated_gpu(0, state="lost", processes=None))
        lost = {it.name: it for it in text_string_to_metric_families(scrape(address))}
    for run in runs:
        run.finish()
    assert {name for name, it in families.items() if any("run" in sample.labels for sample in it.samples)} & {
        row.prometheus for row in rows_at(OF_GPU)
    } == set()
    power = {sample.labels["gpu"]: sample.value for sample in families["gpu_power_draw_watts"].samples}
    assert power == {"0": 102, "1": 50}
    assert [sample.value for sample in families["gpu_xid_errors"].samples] == [1]
    assert [sample.value for sample in families["gpu_xid_last_error"].samples] == [79]
    reasons = families["gpu_throttle_reason"].samples
    assert {(it.labels["gpu"], it.labels["reason"]) for it in reasons if it.value} == {
        ("0", "hw_slowdown"),
        ("1", "thermal"),
    }
    assert {it.labels["reason"] for it in reasons if it.labels["gpu"] == "0"} == {*THROTTLE_REASONS.values()}
    for found in (families, lost):
        info = [it.labels for it in found["kharness_run_info"].samples]
        assert [(it["run"], it["rank"], it["gpu"]) for it in info] == [("a", "0", "0"), ("b", "", "0")]


def test_step_durations_are_counted_by_bucket(run_dir: Path) -> None:
    with new_run(run_dir) as run, shown(run_dir) as address:
        for step, seconds in enumerate([0.0005, 0.001, 0.02, 0.02, 61.0], start=1):
            run.log_step(step, sec_per_step=seconds)
        text = scrape(address)
    buckets = {
        key.split('le="')[1].split('"')[0]: count
        for key, count in values(text, without=("_x",)).items()
        if key.startswith("training_step_duration_seconds_bucket")
    }
    assert buckets == {
        **dict.fromkeys(["0.001", "0.0025", "0.005", "0.01"], 2),
        **dict.fromkeys(
            ["0.025", "0.05", "0.1", "0.25", "0.5", "1.0", "2.5", "5.0", "10.0", "30.0", "60.0"], 4
        ),
        "+Inf": 5,
    }


def test_openmetrics_is_served_to_those_that_ask_for_it(run_dir: Path) -> None:
    with new_run(run_dir), shown(run_dir) as address:
        text = scrape(address, accept="application/openmetrics-text; version=1.0.0")
    assert text.endswith("# EOF\n")
    assert "# TYPE training_steps counter" in text


@pytest.mark.parametrize(
    ("header", "zipped"),
    [
        ("gzip", True),
        ("deflate, GZIP;q=0.5", True),
        ("", False),
        ("br, gzip;q=0", False),
        ("gzip; q=0.0", False),
    ],
)
def test_answer_is_compressed_for_those_that_take_it(run_dir: Path, header: str, zipped: bool) -> None:
    with new_run(run_dir), shown(run_dir) as address:
        plain = scrape(address)
        request = urllib.request.Request(f"http://{address}/metrics", headers={"Accept-Encoding": header})
        with urllib.request.urlopen(request, timeout=600) as answer:
            body, headers = answer.read(), answer.headers
    assert (headers["Content-Encoding"], headers["Vary"]) == ("gzip" if zipped else None, "Accept-Encoding")
    assert (gzip.decompress(body) if zipped else body).decode() == plain
    assert gzip_accepted(header) == zipped or "q=0" in header  # which that client does not know


def test_page_at_the_root_names_the_runs(results: Path) -> None:
    name = "<script>alert('&')</script>"
    with new_run(results / "a", name, project="digits & more"), shown(results) as address:
        new_run(results / "b", "over").finish()
        with urllib.request.urlopen(f"http://{address}/", timeout=600) as answer:
            kind, page = answer.headers["Content-Type"], answer.read().decode()
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://{address}/elsewhere", timeout=600)
    assert kind == "text/html; charset=utf-8"
    reader = PageReader()
    reader.feed(page)
    assert reader.links == ["/metrics"]
    assert {"script"} & reader.tags == set()
    assert [line for line in reader.text.splitlines() if line] == [
        "kharness exporter",
        "kharness exporter",
        f"Version {VERSION} on {HOST}",
        "Metrics for Prometheus, of 2 runs",
        "run|project|host|state",
        f"{name}|digits & more|{HOST}|training",
        f"over|digits|{HOST}|not training",
    ]


class PageReader(HTMLParser):
    """The text of a page, cells apart by a bar, and where its links lead."""

    def __init__(self) -> None:
        super().__init__()
        self.text, self.links, self.tags = "", list[str](), set[str]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.links += [value or "" for name, value in attrs if name == "href"]
        if tag in ("td", "th") and not self.text.endswith("\n"):
            self.text += "|"

    def handle_data(self, data: str) -> None:
        self.text += data


def test_gpu_whose_sampling_has_stopped_is_not_shown(run_dir: Path) -> None:
    with new_run(run_dir), shown(run_dir) as address:
        GpuStats(run_dir).add(simulated_gpu(0, utilization_percent=1.0), at=time.time() - 61)
        assert of(values(scrape(address)), "gpu_up") == []


def test_exporter_that_is_started_again_shows_the_same(run_dir: Path) -> None:
    with new_run(run_dir) as run:
        log_steps(run, 1, 30, gpu_mem_allocated=0.5)
        with shown(run_dir) as address:
            before = scrape(address)
        with shown(run_dir) as address:
            assert scrape(address) == before


def test_steps_that_a_resumed_attempt_does_again_count_once(run_dir: Path) -> None:
    with new_run(run_dir) as run:
        log_steps(run, 1, 20)
        run.log_eval(20, split="val", val_loss=0.5)
        log_steps(run, 21, 30)
    seqs = {"first_seq": 23, "last_seq": 32}  # steps 21 to 30; 22 is the evaluation
    with shown(run_dir) as address, new_run(run_dir) as run:
        run.start(
            model={"name": "simulated"},
            training={"num_steps": 40, "steps_per_epoch": 20},
            resumed_from={"global_step": 20},
            supersedes=seqs,
        )
        resumed = values(scrape(address))
        started = [record["time"] for record, _ in read_records(run_dir / "metrics.jsonl")][-1]
        assert of(resumed, "training_last_step_timestamp_seconds") == [started]
        assert of(resumed, "training_steps_total") == [30]
        assert of(resumed, "training_step") == [20]
        assert of(resumed, "training_epoch") == [1]
        assert of(resumed, "training_loss") == []
        assert of(resumed, "validation_loss") == [0.5]
        log_steps(run, 21, 25)
        again = values(scrape(address))
        assert of(again, "training_steps_total") == [30]
        assert of(again, "training_step") == [25]
        assert of(again, "training_step_duration_seconds_count") == [35]
        log_steps(run, 26, 40)
        assert of(values(scrape(address)), "training_steps_total") == [40]


def test_attempt_from_scratch_forgets_what_the_earlier_one_measured(run_dir: Path) -> None:
    with new_run(run_dir) as run:
        log_steps(run, 1, 10)
        run.log_eval(10, split="val", val_loss=0.5)
    with shown(run_dir) as address, new_run(run_dir) as run:
        run.start(
            model={"name": "simulated"},
            training={"num_steps": 40},
            supersedes={"first_seq": 1, "last_seq": 13},
        )
        found = values(scrape(address))
    assert of(found, "validation_loss") == []
    assert of(found, "training_step") == [0]
    assert of(found, "training_steps_total") == [10]


def test_other_ranks_have_series_of_their_own(run_dir: Path) -> None:
    with new_run(run_dir) as run, shown(run_dir) as address:
        log_steps(run, 1, 3)
        (run_dir / "metrics.rank0001.jsonl").write_bytes((run_dir / "metrics.jsonl").read_bytes())
        found = values(scrape(address))
    assert {key: value for key, value in found.items() if key.startswith("training_steps_total")} == {
        f'training_steps_total{{host="{HOST}",rank="{rank}",run="run 1"}}': 3 for rank in (0, 1)
    }


def test_directory_of_runs_shows_those_that_run_or_have_just_ended(tmp_path: Path) -> None:
    with new_run(tmp_path / "old", "old") as run:
        log_steps(run, 1, 2)
    journal = tmp_path / "old" / "metrics.jsonl"
    long_ago = [{**record, "time": 1e9} for record, _ in read_records(journal)]
    journal.write_bytes(b"".join(orjson.dumps(record) + b"\n" for record in long_ago))
    new_run(tmp_path / "matrix" / "ended", "ended").finish()
    (tmp_path / "latest").symlink_to("matrix")
    with shown(tmp_path) as address, new_run(tmp_path / "matrix" / "running", "running"):
        found = values(scrape(address))
    assert {key: value for key, value in found.items() if key.startswith("training_running")} == {
        f'training_running{{host="{HOST}",run="ended"}}': 0,
        f'training_running{{host="{HOST}",run="running"}}': 1,
    }


def test_agent_shows_its_run_on_loopback_until_prometheus_has_scraped_the_end(run_dir: Path) -> None:
    run = new_run(run_dir, agent=True, trackers={"prometheus": {"port": 0}})
    log_steps(run, 1, 5)
    [target] = orjson.loads(wait_until(lambda: (run_dir / "prometheus.json").read_bytes(), "the address"))
    [address] = target["targets"]
    wait_until(lambda: of(values(scrape(address)), "training_steps_total") == [5], "the steps")
    agent = agent_of(run_dir)
    listening = {one.laddr for one in agent.net_connections(kind="tcp") if one.status == "LISTEN"}
    assert {f"{ip}:{port}" for ip, port in listening} == {address}
    scrape(address, patience=10)
    log_steps(run, 6, 7)
    run.finish()
    lingers = About(str(run_dir), "lingers")
    wait_until(lambda: about_server(*address_of(address)) == lingers, "the end of the delivery")
    scrape(address)  # curl
    scrape(address, patience=1e-6)  # a Prometheus that has given up
    assert about_server(*address_of(address)) == lingers
    found = values(scrape(address, patience=10))
    assert (of(found, "training_running"), of(found, "training_steps_total")) == ([0], [7])
    wait_until(lambda: not agents_of(run_dir), "the end of the agent")
    assert (alerts(run_dir), undelivered(run_dir)) == ([], {})
    assert not (run_dir / "prometheus.json").exists()


def test_end_that_nobody_scrapes_is_shown_for_the_configured_time(run_dir: Path) -> None:
    with new_run(run_dir, agent=True, trackers={"prometheus": {"port": 0, "linger": 0}}):
        wait_until((run_dir / "prometheus.json").exists, "the address")
    wait_until(lambda: not agents_of(run_dir), "the end of the agent")
    assert (alerts(run_dir), (run_dir / "prometheus.json").exists()) == ([], False)


def test_agent_that_lingers_ends_when_it_is_told_to(run_dir: Path) -> None:
    with new_run(run_dir, agent=True, trackers={"prometheus": {"port": 0, "linger": 600}}):
        [target] = orjson.loads(wait_until(lambda: (run_dir / "prometheus.json").read_bytes(), "the address"))
    address = address_of(target["targets"][0])
    wait_until(lambda: about_server(*address) == About(str(run_dir), "lingers"), "the end of the delivery")
    agent = agent_of(run_dir)
    agent.terminate()
    wait_until(lambda: not agents_of(run_dir), "the end of the agent")
    assert not (run_dir / "prometheus.json").exists()


def test_end_of_a_killed_training_is_shown(run_dir: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from monitoring import Run\n"
        "shown = {'prometheus': {'port': 0}}\n"
        "run = Run(Path(sys.argv[1]), name='a', project='b', config={}, trackers=shown)\n"
        "run.start(model={'name': 'c'}, training={}); run.log_step(1, train_loss=1.0)\n"
        "print(flush=True); sys.stdin.read()"
    )
    command: list[str | Path] = [sys.executable, "-c", code, run_dir]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as training:
        assert training.stdout is not None
        training.stdout.readline()
        [target] = orjson.loads(wait_until(lambda: (run_dir / "prometheus.json").read_bytes(), "the address"))
        training.kill()
    address = target["targets"][0]
    lingers = About(str(run_dir), "lingers")
    wait_until(lambda: about_server(*address_of(address)) == lingers, "the end of the delivery")
    found = values(scrape(address, patience=10))
    assert (of(found, "training_running"), of(found, "training_steps_total")) == ([0], [1])
    wait_until(lambda: not agents_of(run_dir), "the end of the agent")
    assert alerts(run_dir) == ["the training process is gone and wrote no end record"]


def test_killed_agent_goes_on_without_a_reset(run_dir: Path) -> None:
    port = free_port()
    with new_run(run_dir, agent=True, trackers={"prometheus": {"port": port}}) as run:
        log_steps(run, 1, 20)
        address = f"127.0.0.1:{port}"
        counters = ("training_steps_total", "training_step_duration_seconds_count")

        def twenty_steps() -> str:
            text = scrape(address)
            return text if of(values(text), counters[0]) == [20] else ""

        before = wait_until(twenty_steps, "20")
        agent = agent_of(run_dir)
        agent.kill()
        agent.wait(600)

        def next_agent() -> list[psutil.Process]:
            run._look_around(time.time())
            return agents_of(run_dir)

        wait_until(next_agent, "the next agent")
        after = wait_until(lambda: scrape(address), "the next scrape")
        assert [of(values(after), name) for name in counters] == [
            of(values(before), name) for name in counters
        ]


def test_command_shows_runs_that_begin_later_until_it_is_ended(tmp_path: Path) -> None:
    command: list[str | Path] = [sys.executable, "-m", "monitoring.exporters.prometheus", tmp_path]
    command += ["--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        address = line.split("/")[2]
        assert line == f"http://{address}/metrics shows the runs in {tmp_path} (0 now); Ctrl-C ends it\n"
        with new_run(tmp_path / "run", "later") as run:
            log_steps(run, 1, 4)
            assert of(values(scrape(address)), "training_steps_total") == [4]
        process.send_signal(signal.SIGINT)
        assert process.wait(600) == 0


def test_command_says_what_is_wrong(tmp_path: Path) -> None:
    def fails(*arguments: object) -> tuple[int, str]:
        command = [sys.executable, "-m", "monitoring.exporters.prometheus", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        return done.returncode, done.stderr

    assert fails(tmp_path / "none") == (
        2,
        f"error: {tmp_path / 'none'} is not a directory\nhint: name one that holds runs, such as results\n",
    )
    assert fails(tmp_path, "--host", "192.0.2.1", "--port", 0) == (
        2,
        "error: 192.0.2.1:0: cannot assign requested address\n"
        "hint: set --host to an address of this machine, such as 127.0.0.1\n",
    )
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert fails(tmp_path, "--port", port) == (
            2,
            f"error: 127.0.0.1:{port}: address already in use\n"
            "hint: choose a free port with --port; 0 is any\n",
        )
