"""GPUMonitor and `make prometheus` join whoever has the port, and the other way round."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest

from monitoring.errors import PortTakenError
from monitoring.exporters._metrics_server import about_server
from monitoring.exporters._monitor_files import SUFFIX, monitors
from monitoring.exporters._shared_port import SharedPort
from monitoring.exporters.prometheus import PrometheusFollower, open_follower
from monitoring.follower import RunInfo, follower_options
from monitoring.gpu_monitor import GPUMonitor, TrainingMonitorCallback

from ...ports import free_port
from ...waiting import wait_until
from .conftest import log_steps, new_run, of, runs_shown, scrape, values


def follower_of(directory: Path, port: int) -> PrometheusFollower:
    return open_follower(RunInfo.read(directory), follower_options("prometheus", {"port": port}))


@contextmanager
def following(directory: Path, port: int) -> Iterator[PrometheusFollower]:
    """A run's exporter, in this process."""
    follower = follower_of(directory, port)
    try:
        yield follower
    finally:
        follower.close(None)


def takes_over(follower: PrometheusFollower) -> bool:
    follower.deliver([])
    return follower._exporter is not None


def trained(monitor: GPUMonitor, loss: float) -> None:
    callback = TrainingMonitorCallback(monitor)
    callback.on_train_begin()
    callback.on_step_begin()
    callback.on_step_end(step=7, loss=loss, grad_norm=float("nan"))


def test_monitor_is_shown_by_the_exporter_that_has_the_port(tmp_path: Path) -> None:
    port = free_port()
    address = f"127.0.0.1:{port}"
    with (
        new_run(tmp_path / "a", "a"),
        following(tmp_path / "a", port) as follower,
        GPUMonitor(log_dir=None, root=tmp_path, quiet=True, prometheus_port=port) as monitor,
    ):
        trained(monitor, 0.25)
        wait_until(lambda: of(values(scrape(address)), "training_loss") == [0.25], "the monitor's loss")
        assert runs_shown(scrape(address)) == {"a", "gpu_monitor"}
        assert [value for value in of(values(scrape(address)), "gradient_norm") if value == value] == []
        assert monitor.prometheus_address == address
        wait_until(lambda: monitor.problems == ["there is no GPU to sample"], "the sampler's answer")
        follower.close(None)
        wait_until(lambda: about_server("127.0.0.1", port), "the monitor's own server")
        assert runs_shown(scrape(address)) == {"gpu_monitor"}
    assert list(SharedPort("127.0.0.1", port).place_for("").glob(f"{os.getpid()}-*{SUFFIX}")) == []


def test_monitor_lets_the_port_go_to_who_shows_runs_too(tmp_path: Path) -> None:
    port = free_port()
    address = f"127.0.0.1:{port}"
    with (
        GPUMonitor(log_dir=None, root=tmp_path, quiet=True, prometheus_port=port) as monitor,
        GPUMonitor(log_dir=None, root=tmp_path, quiet=True, prometheus_port=port) as other,
        new_run(tmp_path / "a", "a"),
    ):
        trained(monitor, 0.25)
        trained(other, 0.5)
        names = {"gpu_monitor", f"gpu_monitor ({other.correlation_id[:8]}, "}
        wait_until(lambda: len(runs_shown(scrape(address))) == 2, "both monitors")
        assert sorted(name[: len(max(names))] for name in runs_shown(scrape(address))) == sorted(names)
        with following(tmp_path / "a", port) as follower:
            wait_until(lambda: takes_over(follower), "the run's exporter")
            wait_until(lambda: len(runs_shown(scrape(address))) == 3, "the run and both monitors")
            assert sorted(of(values(scrape(address)), "training_loss")) == [0.25, 0.5]


def test_monitor_that_was_killed_is_shown_no_more(tmp_path: Path) -> None:
    shared = SharedPort("127.0.0.1", free_port(), place=tmp_path)
    shared.open()
    paths = [tmp_path / f"{name}{SUFFIX}" for name in ("killed", "torn", "absent")]
    process = {"pid": 2**22, "pid_started": 1.0}
    about = {"name": "m", "host": "h", "run": {}, "process": process, "gpus": {}, "trains": True}
    rank: dict[str, object] = {"durations": {}, "gauges": {}}
    paths[0].write_bytes(orjson.dumps({**about, "samples": [], "sampled_at": 0.0, "rank": rank}))
    paths[1].write_bytes(b"{")
    for path in paths:
        shared.add(path)
    assert monitors(shared, []) == []
    assert (list(shared.runs()), paths[0].exists()) == ([], False)


def test_port_of_somebody_else_names_the_argument(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with GPUMonitor(log_dir=None, root=tmp_path, quiet=True, prometheus_port=port) as monitor:
            assert monitor.prometheus_address is None
        with new_run(tmp_path / "a", "a"), pytest.raises(PortTakenError) as refused:
            follower_of(tmp_path / "a", port)
    assert monitor.problems[0] == (
        f"no metrics for Prometheus: 127.0.0.1:{port}: address already in use;"
        " choose a free port with prometheus_port; 0 is any"
    )
    assert refused.value.hint == "choose a free port with PROMETHEUS_PORT; 0 is any"


def test_command_joins_the_exporter_that_has_the_port(tmp_path: Path) -> None:
    port = free_port()
    address = f"127.0.0.1:{port}"
    runs = [new_run(tmp_path / place / name, name) for place, name in (("here", "a"), ("there", "b"))]
    for run in runs:
        log_steps(run, 1, 3)
    command = [sys.executable, "-m", "monitoring.exporters.prometheus", str(tmp_path / "there")]
    with (
        following(runs[0].directory, port) as follower,
        subprocess.Popen(
            [*command, "--port", str(port)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as joined,
    ):
        assert joined.stdout is not None
        assert joined.stderr is not None
        said = f"http://{address}/metrics, of another exporter, shows them too; Ctrl-C ends it\n"
        assert joined.stderr.readline() == said
        wait_until(lambda: runs_shown(scrape(address)) == {"a", "b"}, "both runs")
        follower.close(None)
        assert joined.stdout.readline().startswith(f"http://{address}/metrics shows the runs in")
        assert runs_shown(scrape(address)) == {"a", "b"}
        joined.send_signal(signal.SIGINT)
        assert joined.wait(600) == 0
    for run in runs:
        run.finish()
