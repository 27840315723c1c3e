"""How many addresses an agent takes, which may be limited (`ulimit -v`) where memory is not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from monitoring.agent.progress import DeliveryProgress, read_progress

from ...waiting import wait_until
from ..conftest import agent_of

# A training that ends when its standard input does.
TRAINING = """
import sys
from monitoring import Run
run = Run(sys.argv[1], trackers={"trackio": {}})
run.log(loss=1.0)
sys.stdin.read()
run.finish()
"""

# In MiB: it took 230, with an arena for each thread 281, and with numpy's threads for two cores 320.
MOST = 255


def test_an_agent_with_a_tracker_takes_few_addresses(run_dir: Path) -> None:
    environment = {**os.environ, "TRACKIO_DIR": str(run_dir.parent / "trackio")}
    with subprocess.Popen(
        [sys.executable, "-c", TRAINING, run_dir], env=environment, stdin=subprocess.PIPE
    ) as training:
        wait_until(
            lambda: read_progress(run_dir).get("trackio", DeliveryProgress()).seq == 2, "its first records"
        )
        status = Path(f"/proc/{agent_of(run_dir).pid}/status").read_text()
        training.communicate()
    told = dict(line.split(":\t", 1) for line in status.splitlines())
    assert int(told["VmPeak"].split()[0]) / 1024 < MOST
