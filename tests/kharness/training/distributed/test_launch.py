"""Ranks that the training starts itself: what a request to stop comes to, also while they start."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from ....processes import is_gone
from ....waiting import wait_until
from ....warm_python import WarmPython

LAUNCHER = """
import sys
from kharness.training.distributed.launch import launch
sys.exit(launch([sys.executable, "-c", sys.argv[1], *sys.argv[2:]], 2))
"""

# Notes that it is there; a rank of those that are to be ready says so, and then takes a request to stop.
RANK = """
import os, signal, sys, time
from pathlib import Path
folder, ready = Path(sys.argv[1]), sys.argv[2]
rank = os.environ["RANK"]
if rank in ready:
    from kharness.training.distributed.launch import note_ready
    signal.signal(signal.SIGTERM, lambda *_: os._exit(75))  # at once: a second one interrupts no exit
    note_ready(os.environ)
if sys.argv[3] == rank:
    (folder / "going").touch()
    sys.exit(1)
(folder / rank).write_text(str(os.getpid()))
while True:
    time.sleep(0.1)
"""


@pytest.mark.parametrize(
    ("ready", "said"),
    [
        ("", "\nSIGTERM: stopped before the first step\n"),
        ("0", "\nSIGTERM: stopped before the first step\n"),
        ("01", ""),
    ],
)
def test_a_request_to_stop_is_none_to_lose_a_rank(
    tmp_path: Path, warm_torch: WarmPython, ready: str, said: str
) -> None:
    """Twice, as where each process of a job gets it and make passes it on."""
    launcher = warm_torch.start(["-c", LAUNCHER, RANK, tmp_path, ready, "-"], stderr=subprocess.PIPE)
    ranks = [tmp_path / rank for rank in "01"]
    processes = [psutil.Process(int(wait_until(rank.read_text, f"rank {rank.name}"))) for rank in ranks]
    for _ in range(2):
        launcher.send_signal(signal.SIGTERM)
    _, errors = launcher.communicate(timeout=600)
    assert (launcher.wait(), errors) == (75, said)
    assert [is_gone(process) for process in processes] == [True, True]


def test_a_rank_that_has_failed_while_it_starts_gives_the_exit_code(
    tmp_path: Path, warm_torch: WarmPython
) -> None:
    launcher = warm_torch.start(["-c", LAUNCHER, RANK, tmp_path, "", "0"])
    pid = int(wait_until((tmp_path / "1").read_text, "rank 1"))
    wait_until((tmp_path / "going").exists, "rank 0")
    os.kill(pid, signal.SIGTERM)
    assert launcher.wait(600) == 1


@pytest.mark.parametrize("processes", [1, 2])
def test_timeout_over_make_saves(root: Path, tmp_path: Path, processes: int) -> None:
    """It signals make, then its whole group with make in it, which passes the signal on: two for one."""
    output, results = tmp_path / "output", tmp_path / "results"
    output.mkdir()
    make = ["make", "--no-print-directory", f"O={output}"]
    words = ("TRACKER_RUN_NAME=run", "NUM_EPOCHS=1000", f"NUM_GPUS={processes}", f"RESULTS_DIR={results}")
    told = [f"CONFIG_{word}" for word in ("DEVICE_CPU=y", *words)]
    timeout = subprocess.Popen(
        ["timeout", "3600", *make, "train", *told],
        cwd=root,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    wait_until(lambda: '"step"' in (results / "run/metrics.jsonl").read_text(), "the first step")
    timeout.terminate()  # what it gets it sends, as when the time is over
    said, _ = timeout.communicate(timeout=600)
    last = (results / "run/metrics.jsonl").read_text().splitlines()[-1]
    assert '"status":"interrupted"' in last, said
    assert "killing" not in said
    assert list((results / "run/checkpoints").iterdir())
    assert '"status": "interrupted"' in (results / "run/status.json").read_text()
