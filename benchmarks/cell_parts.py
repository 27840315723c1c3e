"""The cost of a short forked LeNet-5 cell beyond its training, part by part, in ms of CPU time.

python benchmarks/cell_parts.py [CELLS]

Cells are forked as the fork server does it, one after the other, and timed from within. Other work on the
machine swells CPU time less than wall time, but it does: with both cores shared, by half.
"""

from __future__ import annotations

import functools
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from benchmarks.launch_cells import HUGE_PAGES, ROOT, STEPS, cells
else:  # a script's folder is on its path
    from launch_cells import HUGE_PAGES, ROOT, STEPS, cells

# A cell of a matrix with two jobs has one core, which its agent shares. Where it may move between cores, and
# so away from its caches, its short parts take up to twice the time.
CORE = max(os.sched_getaffinity(0))

PARTS = {
    "fork": "fork, and end, in fork server and kernel",
    "begin": "become a process of its own; import model and data",
    "parse": "options from .config",
    "load_splits": "read, check and normalize the images",
    "prepare": "model, optimizer, plan",
    "run": "run directory, git state, request of the agent",
    "agent": "the agent, a process of its own at low priority",
    "save": "checkpoint at the end",
    "fit": f"{STEPS} steps, with their evaluations",
}
BEYOND = [part for part in PARTS if part not in ("save", "fit")]


def main() -> int:
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    os.environ.update(HUGE_PAGES)
    agents = Agents()  # forked here, before torch is imported, so that they are as light as those of a matrix
    from kharness.training.forkserver import server
    from kharness.training.forkserver.forked import CompiledScripts

    scripts = CompiledScripts()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        server.preload()  # inside: it keeps the end of a fork from removing the folder
        found = [measure(path, scripts, agents) for path in cells(Path(folder), number, STEPS)]
    agents.close()
    medians = {part: statistics.median(cell[part] for cell in found) for part in PARTS}
    print(f"{number} forked cells one by one: ms of CPU, medians")
    for part, what in PARTS.items():
        print(f"{what:52} {medians[part]:6.1f}")
    print(f"{'a cell beyond training and checkpoint':52} {sum(medians[part] for part in BEYOND):6.1f}")
    return 0


def measure(directory: Path, scripts: Any, agents: Agents) -> dict[str, float]:
    """CPU ms of each part of one cell."""
    log = os.open(directory / "output.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    told = directory / "parts.json"
    parent, before = os.getpid(), time.process_time()
    code = scripts.find(str(ROOT), "lenet5/train.py")
    pid = os.fork()
    if pid == 0:
        cell(directory, code, log, parent, told)
    os.close(log)
    forked = 1e3 * (time.process_time() - before)
    agent = agents.follow(directory)
    _, status, used = os.wait4(pid, 0)
    if status:
        sys.exit(f"a cell failed:\n{(directory / 'output.log').read_text()}")
    parts: dict[str, float] = json.loads(told.read_text())
    whole = 1e3 * (used.ru_utime + used.ru_stime)  # with the processes that the cell has waited for
    parts["fork"] = forked + whole - parts.pop("known")
    return {**parts, "agent": agent()}


def cell(directory: Path, code: Any, log: int, parent: int, told: Path) -> NoReturn:
    """In the fork: train as a cell does, with the parts timed, and tell them."""
    try:
        begun = cpu_ms()
        from kharness.config import errors
        from kharness.training import opening
        from kharness.training.forkserver.forked import become, run_script
        from kharness.training.setup import Setup
        from kharness.training.steps.training import Training
        from monitoring.agent.process import AgentProcess

        about: dict[str, Any] = {
            "directory": str(ROOT),
            "environment": dict(os.environ),
            "cores": (CORE,),
            "threads": 1,
        }
        become(about, log=log, parent=parent)
        for name in ("start", "keep_alive"):  # `Agents` does it, which is told what the agent took
            setattr(AgentProcess, name, lambda *_, **__: None)
        parts: dict[str, float] = {}
        inner = [
            *((opening, name, "run") for name in ("write_files", "Run")),
            *((opening, "parse", "parse"), (Setup, "__init__", "prepare"), (Training, "save", "save")),
        ]
        run_command = errors.run_command

        def timed_command(script_main: Callable[..., int]) -> None:
            data = script_main.__globals__["data"]
            data.load_splits = timed(data.load_splits, "load_splits", parts)
            for owner, name, part in inner:
                setattr(owner, name, timed(getattr(owner, name), part, parts))
            parts["begin"] = cpu_ms() - begun
            run_command(timed(script_main, "fit", parts))

        errors.run_command = timed_command  # type: ignore[assignment]
        status = run_script(["lenet5/train.py", "--run-dir", str(directory)], code)
        parts["fit"] -= sum(parts[part] for part in ("parse", "prepare", "run", "save"))
        parts["prepare"] -= parts["load_splits"]
        told.write_text(json.dumps({**parts, "known": sum(parts.values())}))
        os._exit(status)
    finally:
        os._exit(1)


def timed(function: Callable[..., Any], name: str, parts: dict[str, float]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        begun = cpu_ms()
        try:
            return function(*arguments, **named)
        finally:
            parts[name] = parts.get(name, 0.0) + cpu_ms() - begun

    return call


def cpu_ms() -> float:
    """CPU time (ms) of this process and of those that it has waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1e3 * (time.process_time() + children.ru_utime + children.ru_stime)


class Agents:
    """A light process that forks one agent a run, like monitoring.agent.starter, and tells what it took."""

    def __init__(self) -> None:
        from monitoring.agent import starter as agent_starter

        agent_starter.preload()
        asked, self._ask = os.pipe()
        self._told, tell = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._ask)
            with os.fdopen(asked) as lines:
                for line in lines:
                    os.write(tell, b"%f\n" % _agent_ms(Path(line.rstrip("\n"))))
            os._exit(0)
        os.close(asked)
        os.close(tell)

    def follow(self, directory: Path) -> Callable[[], float]:
        """Have the run followed as soon as it is there; returns what waits for the end and tells the ms."""
        os.write(self._ask, f"{directory}\n".encode())
        return lambda: float(os.read(self._told, 100))

    def close(self) -> None:
        os.close(self._ask)
        os.waitpid(self.pid, 0)


def _agent_ms(directory: Path) -> float:
    from monitoring.agent import follow as agent
    from monitoring.agent.process import open_log
    from monitoring.agent.starter import become
    from monitoring.journal.files import AGENT_LOG

    while not (directory / "run.json").exists():
        time.sleep(0.002)
    begun = time.process_time()
    pid = os.fork()
    if pid == 0:
        request = {"cwd": str(ROOT), "environment": dict(os.environ)}
        become({**request, "cores": (CORE,)}, open_log(directory, AGENT_LOG))
        agent.leave(agent.main([str(directory)]))
    forked = time.process_time() - begun
    used = os.wait4(pid, 0)[2]
    return 1e3 * (forked + used.ru_utime + used.ru_stime)


if __name__ == "__main__":
    sys.exit(main())
