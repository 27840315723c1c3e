"""Records left of a training whose tracker's server is away from some step on, and comes back later.

python benchmarks/tracker_down.py [RECORDS]

W&B's own client, online, and kharness with W&B as its tracker, each a training of RECORDS (1,000) records in
a process of its own, against a server on loopback that answers as W&B's does: once it is away before the
training starts, and once from its first record on. The training ends, or is killed after PATIENCE seconds;
the server comes back, and the records are counted that it has after `wandb sync` or `make sync`. Trackio and
TensorBoard write files on this machine and have no server to lose.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PATIENCE = 150.0
"""Seconds that a training may take, all of it but milliseconds spent waiting for the server."""

# A server of the tests; it prints what it holds of the only run when its input ends.
SERVER = """
import sys, threading
from tests.monitoring.trackers import conftest
class Server(conftest.WandbServer):
    allow_reuse_address = True
    def __init__(self, port):
        conftest.ThreadingHTTPServer.__init__(self, ("127.0.0.1", port), conftest._Handler)
        self.runs, self.lock, self.requests, self.alerts, self.files = {}, threading.Lock(), 0, [], {}
server = Server(int(sys.argv[1]))
threading.Thread(target=server.serve_forever, daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
print(sum("train_loss" in row for run in server.runs.values() for row in run.rows()))
"""

WANDB = """
import sys, time, wandb
folder, records = sys.argv[1], int(sys.argv[2])
run = wandb.init(project="away", dir=folder, settings=wandb.Settings(silent=True, x_disable_stats=True))
print("started", flush=True)
sys.stdin.readline()
for step in range(1, records + 1):
    run.log({"train_loss": 1 / step})
print("trained", flush=True)
run.finish()
"""

KHARNESS = """
import sys
from monitoring import Run
folder, records = sys.argv[1], int(sys.argv[2])
run = Run(folder + "/run", name="away", project="away", config={}, trackers={"wandb": {}})
run.start(model={"name": "none"}, training={"num_steps": records})
print("started", flush=True)
sys.stdin.readline()
for step in range(1, records + 1):
    run.log_step(step, train_loss=1 / step)
print("trained", flush=True)
run.finish("complete")
"""

TRAININGS = {"W&B's client": WANDB, "kharness": KHARNESS}


def later(name: str, folder: Path) -> list[str]:
    """The command that brings the server up to date."""
    if name == "kharness":
        return [sys.executable, str(ROOT / "scripts/sync.py"), "RUN=run"]
    runs = [str(path) for path in folder.glob("wandb/*run-*")]
    return [str(Path(sys.executable).with_name("wandb")), "sync", "--include-online", *runs]


class Server:
    """A process that answers at a port as W&B does, while it is up."""

    def __init__(self, port: int) -> None:
        command = [sys.executable, "-c", SERVER, str(port)]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def end(self) -> int:
        """The records that it holds."""
        return int(self._process.communicate()[0])


def main(argv: list[str]) -> int:
    """Print a line for each."""
    records = int(argv[0]) if argv else 1000
    print(f"{'the server is away':<38}{'training':>16}{'seconds':>9}{f'of {records:,} later':>15}")
    for name in TRAININGS:
        for begin in (False, True):
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
                ended, seconds, found = away(name, records, Path(folder), begin=begin)
            when = "from the first record on" if begin else "from before the start"
            print(f"{name + ', ' + when:<38}{ended:>16}{seconds:>9.0f}{found:>15,}", flush=True)
    return 0


def away(name: str, records: int, folder: Path, *, begin: bool) -> tuple[str, float, int]:
    """How the training ended, after how many seconds, and the records that the server has at last."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    environment = {
        **os.environ,
        "WANDB_BASE_URL": f"http://127.0.0.1:{port}",
        "WANDB_API_KEY": "0" * 40,
        "WANDB_SILENT": "true",
        "WANDB_ERROR_REPORTING": "false",
        "WANDB_DIR": str(folder),
        "HOME": str(folder),
    }
    server = Server(port) if begin else None
    start = time.monotonic()
    command = [sys.executable, "-c", TRAININGS[name], str(folder), str(records)]
    with (folder / "output").open("w") as output:
        training = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output, text=True
        )
    assert training.stdin is not None
    assert training.stdout is not None
    lines = training.stdout.readline()
    if server:
        server.end()
    try:
        lines += training.communicate("\n", timeout=PATIENCE)[0]
        ended = "complete" if training.returncode == 0 else "does not start" if not lines else "failed"
    except subprocess.TimeoutExpired:
        training.kill()
        training.communicate()
        ended = "killed, waiting"
    seconds = time.monotonic() - start
    server = Server(port)
    subprocess.run(
        later(name, folder), env=environment, cwd=folder, capture_output=True, timeout=600, check=False
    )
    return ended, seconds, server.end()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
