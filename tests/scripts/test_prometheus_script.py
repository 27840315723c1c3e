"""`make prometheus`: all runs of a directory on the configured port."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

from monitoring import Run


def command(root: Path, *variables: str) -> list[str]:
    return [sys.executable, str(root / "scripts/prometheus.py"), *variables]


def test_prometheus_shows_the_runs_of_a_directory_until_it_is_ended(root: Path, tmp_path: Path) -> None:
    with Run(tmp_path / "run", name="r", project="p", config={}, agent=False) as run:
        run.log_step(1, train_loss=0.5)
    asked = command(root, f"RUN={tmp_path}", "CONFIG_PROMETHEUS_PORT=0")
    with subprocess.Popen(asked, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = next(line for line in process.stdout if line.startswith("http")).split()[0]
        with urllib.request.urlopen(url, timeout=600) as answer:
            lines = answer.read().decode().splitlines()
        assert [line.split()[-1] for line in lines if line.startswith("training_loss{")] == ["0.5"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(600) == 0


def test_prometheus_refuses_a_taken_port(root: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        asked = command(root, f"RUN={tmp_path}", f"CONFIG_PROMETHEUS_PORT={port}")
        done = subprocess.run(asked, capture_output=True, text=True, timeout=600, check=False)
    assert (done.returncode, done.stderr) == (
        2,
        f"error: 127.0.0.1:{port}: address already in use\n"
        "hint: choose a free port with make prometheus CONFIG_PROMETHEUS_PORT=; 0 is any\n",
    )
