"""A queue in a folder: NAME.job is run, NAME.stop and NAME.kill are requests, NAME.ended tells the end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TypedDict


def main(folder: Path) -> None:
    running: dict[str, subprocess.Popen[bytes]] = {}
    while True:
        for path in folder.glob("*.job"):
            running[path.stem] = start(json.loads(path.read_text()))
            path.unlink()
        for name, process in list(running.items()):
            for request, number in (("stop", signal.SIGTERM), ("kill", signal.SIGKILL)):
                if (folder / f"{name}.{request}").exists():
                    (folder / f"{name}.{request}").unlink()
                    os.killpg(process.pid, number)
            code = process.poll()
            if code is not None:
                del running[name]
                new = folder / f"{name}.new"
                new.write_text(json.dumps({"code": code, "time": time.time()}))
                new.rename(folder / f"{name}.ended")
        time.sleep(0.02)


class Job(TypedDict):
    command: list[str]
    directory: str
    environment: dict[str, str]
    log: str


def start(job: Job) -> subprocess.Popen[bytes]:
    with open(job["log"], "ab") as log:
        return subprocess.Popen(
            job["command"],
            cwd=job["directory"],
            env={**os.environ, **job["environment"]},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
