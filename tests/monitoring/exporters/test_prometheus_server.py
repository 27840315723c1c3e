"""Debian's Prometheus scrapes trainings: every panel shows data, every alert fires and resolves.

One training is real (LeNet-5 on the CPU) and its agent samples two GPUs of the simulated NVML; what only a
training on a GPU has comes from a run that is made up and says so.
"""

from __future__ import annotations

import json
import math
import os
import platform
import re
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from monitoring.exporters.prometheus import Exporter
from monitoring.journal.records import read_records

from ...ports import free_port
from ...simulated_nvml.simulated_nvml import SimulatedNvml
from ...waiting import wait_until
from ...warm_python import WarmPython
from .conftest import GpuStats, log_steps, new_run, scrape, simulated_gpu

pytestmark = pytest.mark.skipif(
    not (shutil.which("prometheus") and shutil.which("promtool")), reason="prometheus is not installed"
)

# A static program keeps the real clock where tests/another_clock.py moves that of all others.
same_clock = pytest.mark.skipif("FAKETIME" in os.environ, reason="Prometheus has another clock")

RULES, RECORDED_RULES = "gpu-training.rules.yml", "gpu-training-recorded.rules.yml"
# The panel that needs what neither this machine nor a simulated NVML has: a GPU that PyTorch computes on.
CUDA_PANEL = "Memory that PyTorch has given out"

# What promtool says of the label modelName, which is dcgm-exporter's.
CAMEL = " should be written in 'snake_case' not 'camelCase'"

# Seconds between two scrapes. To look more often finds nothing new, and takes a core.
SCRAPES = 1

# Runs a script, which leaves the core to others most of the time: it trains until every panel has data. The
# agent that it starts finds the simulated NVML in a folder.
TRAIN = """
import os, runpy, signal, sys, time
_, os.environ["LD_LIBRARY_PATH"], *sys.argv = sys.argv
signal.signal(signal.SIGALRM, lambda *_: time.sleep(0.07))
signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
runpy.run_path(sys.argv[0], run_name="__main__")
"""

# The exit code of a training that was asked to stop.
STOPPED = 75

REAL, RECORDED = "lenet5, real", "CUDA figures, made up"


@dataclass(frozen=True)
class Prometheus:
    """A running Prometheus."""

    url: str

    def get(self, path: str, **parameters: object) -> Any:
        """The data of an API call; a refused query is an error with Prometheus' words."""
        url = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=600) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{path} {parameters}: {error.read().decode()}") from error

    def recent(self, query: str) -> list[dict[str, Any]]:
        """The series of a query over the last five minutes that have a number."""
        now = time.time()
        data = self.get("query_range", query=query, start=now - 300, end=now, step=0.5)
        return [one for one in data["result"] if any(not math.isnan(float(v)) for _, v in one["values"])]

    def firing(self) -> set[tuple[str, str]]:
        """(alert, run, GPU or exporter) of each that fires now."""
        firing = [alert["labels"] for alert in self.get("alerts")["alerts"] if alert["state"] == "firing"]
        return {
            (labels["alertname"], labels.get("run") or labels.get("gpu") or labels["instance"])
            for labels in firing
        }


@pytest.fixture
def prometheus(request: pytest.FixtureRequest, root: Path, tmp_path: Path) -> Iterator[Prometheus]:
    """Prometheus by the shipped configuration, but every second, of `targets` and by rules in short time."""
    grafana, port = root / "lib/monitoring/grafana", free_port()
    targets: list[str] = request.getfixturevalue("targets")
    for rules in (RULES, RECORDED_RULES):
        (tmp_path / rules).write_text(in_short_time((grafana / rules).read_text()))
    config = (grafana / "prometheus.yml").read_text()
    config = config.replace("15s\n", f"{SCRAPES}s\n").replace('["127.0.0.1:9090"]', json.dumps(targets))
    (tmp_path / "prometheus.yml").write_text(config)
    command = [
        "prometheus",
        f"--config.file={tmp_path / 'prometheus.yml'}",
        f"--storage.tsdb.path={tmp_path / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
    ]
    with (tmp_path / "prometheus.log").open("wb") as log, subprocess.Popen(command, stderr=log) as process:
        try:
            server = Prometheus(f"http://127.0.0.1:{port}")
            wait_until(
                lambda: urllib.request.urlopen(f"{server.url}/-/ready", timeout=5), "the server"
            ).close()
            yield server
        finally:
            process.terminate()


@pytest.fixture
def targets() -> list[str]:
    """Where this test's exporters listen."""
    return [f"127.0.0.1:{free_port()}" for _ in range(2)]


def in_short_time(rules: str) -> str:
    """The rules with 2 s for a minute, and at most 4 s."""
    shorter = re.sub(r"\b(\d+)m\b", lambda match: f"{min(int(match[1]), 2) * 2}s", rules)
    return shorter.replace("offset 4s == 1", "offset 8s == 1").replace("> 300", "> 4")


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


@same_clock
def test_every_panel_shows_a_training_to_its_end(
    root: Path,
    tmp_path: Path,
    prometheus: Prometheus,
    targets: list[str],
    simulated_nvml: SimulatedNvml,
    warm_torch: WarmPython,
) -> None:
    simulated_nvml.write("gpus 2", "all utilization 80~100/1", "gpu 1 memory_used 900", "all fan 40")
    flags = ["--tracker", "none", "--tracker-run-name", REAL, "--max-steps", "1000000", "--log-every", "2"]
    monitoring = ["--gpu-monitor", "--gpu-monitor-interval", "0.2", "--gpu-hour-price", "2"]
    exporter = ["--prometheus-exporter", "--prometheus-port", str(port_of(targets[0]))]
    found = simulated_nvml.environment()
    command = ["-c", TRAIN, found.pop("LD_LIBRARY_PATH"), "lenet5/train.py", *flags, *monitoring, *exporter]
    dashboard = json.loads(
        (root / "lib/monitoring/grafana/dashboards/gpu-training-dashboard.json").read_text()
    )
    with (
        warm_torch.start(
            [*command, "--results-dir", tmp_path / "real"],
            cwd=root,
            env={**os.environ, **found, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL,
        ) as training,
        closing(Exporter(tmp_path / "recorded", host="127.0.0.1", port=port_of(targets[1]))),
        new_run(tmp_path / "recorded", RECORDED) as recorded,
    ):
        simulated_nvml.add(*(f"gpu {index} process {training.pid} 900" for index in (0, 1)))
        step, waiting = 0, [panel for panel in dashboard["panels"] if panel["type"] != "row"]

        def lacking() -> list[str]:
            """The panels of which a query shows nothing yet, or not the real training."""
            nonlocal step, waiting
            assert training.poll() is None
            step += 1
            log_steps(recorded, step, step, gpu_mem_allocated=0.5, samples_per_sec=100.0)
            waiting = [panel for panel in waiting if not is_shown(panel, prometheus)]
            return [panel["title"] for panel in waiting]

        try:
            wait_until(lambda: not lacking(), "data in every panel", every=SCRAPES)
            offered = {"run": {REAL, RECORDED}, "host": {platform.node()}, "gpu": {"0", "1"}}
            assert variables(dashboard, prometheus) == offered
            infos = [info["metric"] for info in prometheus.recent("kharness_run_info")]
            assert {(info["run"], info["gpu"], info["rank"]) for info in infos} == {
                (REAL, "0", "0"),
                (REAL, "1", "0"),
            }
            documented = (
                (root / "docs/prometheus.md").read_text().partition("```promql\n")[2].partition("```")[0]
            )
            queries = [line.partition("  #")[0] for line in documented.splitlines()]
            assert [len(prometheus.recent(query)) for query in queries] == [2, 1, 2]
            complaints = {line for target in targets for line in lint(scrape(target))}
        finally:
            training.terminate()
        assert training.wait(600) == STOPPED
    # names that the exporter's users know; everything else is as Prometheus recommends
    assert {line for line in complaints if not line.endswith("label names" + CAMEL)} == {
        "DCGM_FI_DEV_PCIE_REPLAY_COUNTER metric name should not include type 'counter'",
        *(
            f"{name} metric names should not contain abbreviated units"
            for name in (
                *(f"gpu_memory_{which}_mb" for which in ("free", "total", "used")),
                "memory_allocation_mb",
            )
        ),
    }
    runs = (tmp_path / "real").glob("*/run.json")
    [run] = (path for path in runs if not path.parent.is_symlink())
    ended = f'min_over_time(training_running{{run="{REAL}"}}[1h]) == 0'
    end = f"max_over_time(training_steps_total[1h]) and on (run) {ended}"
    [series] = wait_until(lambda: prometheus.get("query", query=end)["result"], "the scrape of the end")
    journal = [record for record, _ in read_records(run.parent / "metrics.jsonl")]
    assert series["value"][1] == str([it["global_step"] for it in journal if it["event"] == "step"][-1])
    alerts = read_records(run.parent / "alerts.jsonl")
    assert [alert for alert, _ in alerts if alert["rule"] == "follower"] == []


def variables(dashboard: dict[str, Any], prometheus: Prometheus) -> dict[str, set[str]]:
    """Values that the template variables offer."""
    offered = {}
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            match = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
            assert match is not None
            selector = re.sub(r"\$\w+", ".*", match[1])
            offered[variable["name"]] = set(
                prometheus.get(f"label/{match[2]}/values", **{"match[]": selector})
            )
    return offered


def is_shown(panel: dict[str, Any], prometheus: Prometheus) -> bool:
    """Whether each of its queries shows something, and one the real training or what belongs to no run."""
    runs: list[set[str]] = []
    for target in panel["targets"]:
        query = target["expr"].replace("$__rate_interval", "4s")
        series = prometheus.recent(re.sub(r"\$(run|host|gpu)\b", ".*", query))
        runs.append({one["metric"].get("run", REAL) for one in series})
    return all(runs) and (panel["title"] == CUDA_PANEL or REAL in set().union(*runs))


def lint(metrics: str) -> list[str]:
    """Complaints of promtool about a scrape."""
    done = subprocess.run(
        ["promtool", "check", "metrics"],
        input=metrics,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    return (done.stdout + done.stderr).splitlines()


@same_clock
def test_every_alert_fires_and_resolves(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, prometheus: Prometheus, targets: list[str]
) -> None:
    bad, hung = new_run(tmp_path / "bad", "bad"), new_run(tmp_path / "hung", "hung")
    stats, step = GpuStats(tmp_path / "bad"), 0
    away = tmp_path_factory.mktemp("away")
    gone, elsewhere = new_run(away, "gone"), Exporter(away, host="127.0.0.1", port=port_of(targets[1]))
    here = Exporter(tmp_path, host="127.0.0.1", port=port_of(targets[0]))
    with closing(here), closing(elsewhere), bad, hung, gone:
        hung.log_step(1, train_loss=float("nan"))

        def ailing() -> bool:
            nonlocal step
            step += 1
            log_steps(bad, step, step, train_loss=1.0, grad_norm=min(50.0 * 2.0**step, 1e300))
            errors = {"xid_errors": step, "xid_last_error": 79, "ecc_uncorrected": step}
            sick = {"temperature_celsius": 95.0, "memory_used_mb": 990.0, "utilization_percent": 1.0}
            slow = {"throttle_reasons": ["hw_slowdown"], "processes": [{"pid": os.getpid()}]}
            stats.add(simulated_gpu(0, **sick, **errors, **slow), simulated_gpu(1, state="lost"))
            if prometheus.recent('training_running{run="gone"}'):
                elsewhere.close()
            return len(prometheus.firing()) >= 12

        def healed() -> bool:
            nonlocal step
            step += 1
            log_steps(bad, step, step, train_loss=1 / step, grad_norm=1.0)
            for run in (hung, gone):
                log_steps(run, step, step, train_loss=1 / step, grad_norm=1.0)
            fine: dict[str, Any] = {
                "temperature_celsius": 50.0,
                "memory_used_mb": 500.0,
                "utilization_percent": 99.0,
            }
            fine |= {"xid_errors": 0, "xid_last_error": 0, "ecc_uncorrected": 0, "throttle_reasons": []}
            stats.add(simulated_gpu(0, **fine), simulated_gpu(1, **fine))
            return not prometheus.firing()

        wait_until(ailing, "the firing of all alerts", every=SCRAPES / 4)
        assert prometheus.firing() == {
            ("GpuHot", "0"),
            ("GpuMemoryNearlyFull", "0"),
            ("GpuLost", "1"),
            ("GpuIdle", "0"),
            ("GpuXid", "0"),
            ("GpuEccUncorrected", "0"),
            ("GpuThrottled", "0"),
            ("ExporterVanished", targets[1]),
            ("LossNotDecreasing", "bad"),
            ("GradientExplosion", "bad"),
            ("TrainingStalled", "hung"),
            ("LossNotFinite", "hung"),
        }
        with closing(Exporter(away, host="127.0.0.1", port=port_of(targets[1]))):
            wait_until(healed, "the resolving of all alerts", every=SCRAPES / 4)


def test_shipped_rules_and_configuration_are_clean(root: Path) -> None:
    grafana = root / "lib/monitoring/grafana"
    counts = {RULES: "12 rules found", RECORDED_RULES: "5 rules found"}
    for check, file in (("rules", RULES), ("rules", RECORDED_RULES), ("config", "prometheus.yml")):
        command: list[str | Path] = ["promtool", "check", check, grafana / file]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        found = [counts[file]] if file in counts else list(counts.values())
        assert re.findall(r"\d+ rules found", done.stdout) == found


@pytest.mark.parametrize("rules", [RULES, RECORDED_RULES])
def test_rules_pass_their_unit_tests(root: Path, tmp_path: Path, rules: str) -> None:
    shutil.copy(root / "lib/monitoring/grafana" / rules, tmp_path)
    tests = shutil.copy(root / "tests/data/prometheus" / rules.replace(".yml", ".test.yml"), tmp_path)
    done = subprocess.run(
        ["promtool", "test", "rules", tests], capture_output=True, text=True, timeout=600, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
