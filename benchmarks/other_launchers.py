"""Launching beside other tools: from the command to the program, and what a run of several costs.

python benchmarks/other_launchers.py [PAIRS] [RUNS]

In turns: the program alone, `kharness run` and `matrix`; and those of these that are named: Guild AI's
`guild` (GUILD=path of the command), Hydra with its own and joblib's launcher (HYDRA=path of a Python that
has hydra-core and hydra-joblib-launcher), `wandb agent` (WANDB=path of a Python that has wandb), which takes
its runs from a server: one of this process, that answers what an agent asks. Medians of PAIRS (5):
milliseconds from the command to the program's first line, and the CPU milliseconds that each of RUNS (8)
runs, one at a time, adds to those of one, the program's own among them.
"""

from __future__ import annotations

import http.server
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

PAIRS, RUNS = 5, 8
SWEEP = "entity/project/sweep"

PROGRAM = """
import argparse, os, time
with open(os.environ["STARTED"], "a") as file:
    file.write(f"{time.time()}\\n")
parser = argparse.ArgumentParser()
parser.add_argument("--x", type=int, default=0)
print("step 1 loss", 1 + parser.parse_args().x)
"""
OF_HYDRA = """
import os, time, hydra

@hydra.main(version_base=None, config_path=None)
def main(config):
    with open(os.environ["STARTED"], "a") as file:
        file.write(f"{time.time()}\\n")
    print("step 1 loss", 1 + config.x)

main()
"""


def main(arguments: Sequence[str]) -> None:
    """Print a row per tool."""
    pairs, runs = (*map(int, arguments), *(PAIRS, RUNS)[len(arguments) :])[:2]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        place = Path(folder)
        (place / "program.py").write_text(PROGRAM)
        (place / "of_hydra.py").write_text(OF_HYDRA)
        (place / "guild").mkdir()
        if os.environ.get("WANDB"):
            serve_sweep()
        rows = commands(runs)
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in rows}
        for _ in range(pairs):
            for name, (one, many) in rows.items():
                first, cpu = launched(one, place)
                each = (launched(many, place)[1] - cpu) / (runs - 1) if many else cpu
                found[name].append((first, each))
        print(f"{'':16}  ms to the program  CPU ms per run")
        for name, measured in found.items():
            first, each = (1000 * statistics.median(column) for column in zip(*measured, strict=True))
            print(f"{name:16}  {first:17.0f}  {each:14.0f}")
        for name in ("GUILD", "HYDRA", "WANDB"):
            if not os.environ.get(name):
                print(f"not measured: {name}= names none")


def commands(runs: int) -> dict[str, tuple[list[str], list[str]]]:
    """Return the command of one run and that of several, by the name of the tool."""
    program = [sys.executable, "program.py"]
    kharness = [sys.executable, "-m", "kharness"]
    values = ",".join(map(str, range(1, runs + 1)))
    filled = ["--", *program, "--x", "{x}"]
    rows: dict[str, tuple[list[str], list[str]]] = {
        "alone": (program, []),
        "kharness run": ([*kharness, "run", "--", *program], []),
        "kharness matrix": (
            [*kharness, "matrix", "-a", "x=1", *filled],
            [*kharness, "matrix", "-a", f"x={values}", *filled],
        ),
    }
    if guild := os.environ.get("GUILD"):
        run = [guild, "run", "-y", "program.py"]
        rows["guild run"] = ([*run, "x=1"], [*run, f"x=[{values}]"])
    if hydra := os.environ.get("HYDRA"):
        run = [hydra, "of_hydra.py", "--multirun"]
        for name in ("basic", "joblib"):
            of = [*run, f"hydra/launcher={name}", *(["hydra.launcher.n_jobs=1"] if name == "joblib" else [])]
            rows[f"hydra {name}"] = ([*of, "+x=1"], [*of, f"+x={values}"])
    if wandb := os.environ.get("WANDB"):
        agent = [wandb, "-m", "wandb", "agent", "--count"]
        rows["wandb agent"] = ([*agent, "1", SWEEP], [*agent, str(runs), SWEEP])
    return rows


def serve_sweep() -> None:
    """Be the server of an agent of W&B that is started from here."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), SweepServer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    os.environ |= {"WANDB_BASE_URL": f"http://127.0.0.1:{server.server_port}", "WANDB_API_KEY": "0" * 40}
    os.environ["WANDB_ERROR_REPORTING"] = "false"


class SweepServer(http.server.BaseHTTPRequestHandler):
    """Answers an agent of W&B (GraphQL over HTTP): a run whenever it has none."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        agent = {"id": "agent"}
        if "createAgent" in asked["query"]:
            answer: dict[str, object] = {"createAgent": {"agent": agent}}
        elif "agentHeartbeat" in asked["query"]:
            run = {"type": "run", "run_id": "run", "args": {"x": {"value": 1}}, "program": "program.py"}
            commands = [run] if asked["variables"]["runState"] == "{}" else []
            answer = {"agentHeartbeat": {"agent": agent, "commands": json.dumps(commands)}}
        elif "sweep(" in asked["query"]:
            answer = {"project": {"sweep": {"id": "sweep", "config": "{}", "runs": {"edges": []}}}}
        else:
            answer = {"viewer": {"id": "user", "entity": "e", "username": "e", "teams": {"edges": []}}}
        data = json.dumps({"data": answer}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def launched(command: Sequence[str], place: Path) -> tuple[float, float]:
    """Seconds from a command to the first line of its program, and CPU seconds of both."""
    started = place / "started"
    started.unlink(missing_ok=True)
    compiled = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment = {**compiled, "STARTED": str(started), "GUILD_HOME": str(place / "guild")}
    begun = time.time()
    process = subprocess.Popen(
        command, cwd=place, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode in (0, 3), command
    first = float(started.read_text().splitlines()[0])
    return first - begun, used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main(sys.argv[1:])
