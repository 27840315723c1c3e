"""The programs of docs/callbacks.md, and programs of several processes."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from tests.ports import free_port
from tests.warm_python import WarmPython

from ...conftest import OFFLINE


def example(root: Path, name: str) -> str:
    """A program of docs/callbacks.md."""
    blocks = re.findall(r"```python\n# (\S+)\n(.*?)```", (root / "docs/callbacks.md").read_text(), flags=re.S)
    programs: dict[str, str] = dict(blocks)
    return programs[name]


def launch(
    warm: WarmPython,
    arguments: Sequence[object],
    folder: Path,
    framework: str,
    processes: int,
    codes: Sequence[int] = (),
) -> None:
    """Start a program as torchrun does; Lightning starts its processes itself.

    `codes` are the exit codes that are expected, if not all 0.
    """
    environments: list[dict[str, str]] = [{}]
    if framework == "lightning":
        environments = [{"DEVICES": str(processes)}]
    elif processes > 1:
        of_all = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(processes)}
        ranks = map(str, range(processes))
        environments = [{**of_all, "RANK": rank, "LOCAL_RANK": rank} for rank in ranks]
    started = []
    for number, environment in enumerate(environments):
        with (folder / f"output{number}.txt").open("w") as output:
            given = {**os.environ, **OFFLINE, **environment}
            started.append(warm.start(arguments, cwd=folder, env=given, stdout=output, stderr=output))
    ended = [process.wait(600) for process in started]
    last = [(folder / f"output{number}.txt").read_text()[-4000:] for number in range(len(started))]
    assert ended == [*(codes or [0] * len(started))], "\n".join(last)
