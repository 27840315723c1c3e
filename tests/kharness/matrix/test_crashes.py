"""A real matrix killed at twenty random moments and continued: it ends as if nothing had happened."""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from monitoring.host.process import process_started
from monitoring.journal.lineage import counting
from monitoring.journal.records import Record, read_records

from ...warm_python import StartedPython, WarmPython

CELLS = [f"optimizer-{optimizer}_seed-{seed}" for optimizer in ("sgd", "adamw") for seed in (1, 2)]
# 22 steps an epoch and a checkpoint after each.
OPTIONS = [
    "CONFIG_MATRIX_AXES=OPTIMIZER=sgd|adamw SEED=1|2",
    "CONFIG_BATCH_SIZE=250",
    "CONFIG_NUM_EPOCHS=3",
    "CONFIG_NUM_THREADS=1",
    "CONFIG_CHECKPOINT_EVERY=1",
    "CONFIG_LOG_EVERY=1",
    "TRACKER=none",
]
RUNNING = ["JOBS=2", "RETRIES=9"]
KILLS = 20

# What no two trainings share.
OF_THE_CLOCK = {"training_seconds", "training_cpu_seconds", "sec_per_step", "peak_cpu_memory", "other_work"}


class Matrix:
    """A LeNet-5 matrix in a folder of its own, and who runs it."""

    def __init__(self, root: Path, output: Path, python: WarmPython) -> None:
        self._root = root
        self._python = python
        self.output = output
        self.runner: StartedPython | None = None
        self._known: dict[Path, tuple[int, int]] = {}
        """Size of the journal and the steps in it."""

    def start(self, script: str, *arguments: str) -> None:
        command = [f"scripts/{script}.py", f"O={self.output}", *arguments]
        self.runner = self._python.start(
            command, cwd=self._root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )

    def finish(self) -> str:
        """Wait for the runner and return what it printed."""
        assert self.runner is not None
        output, _ = self.runner.communicate(timeout=240)
        assert self.runner.returncode == 0, output
        return str(output)

    @property
    def runs(self) -> list[Path]:
        return [self.output / "results/latest" / name for name in CELLS]

    def steps(self) -> int:
        """Of all cells together: how far the matrix is."""
        return sum(self._steps_of(run) for run in self.runs)

    def _steps_of(self, run: Path) -> int:
        path = run / "metrics.jsonl"
        size = path.stat().st_size if path.exists() else 0
        if self._known.get(run, (-1, 0))[0] != size:
            self._known[run] = size, len(step_losses(run))
        return self._known[run][1]

    def cells(self) -> list[psutil.Process]:
        """The trainings that run now."""
        found = []
        for run in self.runs:
            status = json.loads((run / "status.json").read_text())
            attempt = status["attempts"][-1] if status["status"] == "running" else None
            if attempt and attempt["pid"] and process_started(attempt["pid"]):
                with contextlib.suppress(psutil.NoSuchProcess):
                    found.append(psutil.Process(attempt["pid"]))
        return found

    def everything(self) -> list[psutil.Process]:
        """Runner, zygote, trainings and the agents of this matrix, also those that have lost their parent."""
        assert self.runner is not None
        own = psutil.Process(self.runner.pid)
        agents = [p for p in psutil.process_iter(["cmdline"]) if str(self.output) in str(p.info["cmdline"])]
        return list({*own.children(recursive=True), *agents, own})

    def kill(self, victim: str, pick: random.Random) -> bool:
        """SIGKILL; returns whether the runner was among the victims."""
        assert self.runner is not None
        if victim == "everything":
            victims = self.everything()
        else:
            cells = self.cells()
            victims = [pick.choice(cells)] if cells and victim != "runner" else []
            victims += [psutil.Process(self.runner.pid)] if victim != "cell" else []
        for process in victims:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        if victim == "cell":
            return False
        self.runner.communicate()
        return True


def journal(run: Path) -> list[Record]:
    return [record for record, _ in read_records(run / "metrics.jsonl")]


def step_losses(run: Path) -> dict[Any, object]:
    """The loss of each step that counts."""
    records = counting(journal(run))
    return {record["global_step"]: record["train_loss"] for record in records if record["event"] == "step"}


def hashes(run: Path) -> object:
    """Of the weights and the optimiser's state at the end."""
    last = [record for record in counting(journal(run)) if record["event"] == "checkpoint"][-1]
    return last["global_step"], last["model_sha256"], last["optimizer_sha256"]


def metrics(matrix: Matrix) -> dict[str, dict[str, float]]:
    """What the summary says about each run, the clock's part left out."""
    summary = json.loads((matrix.output / "results/latest/summary.json").read_text())
    return {
        run["name"]: {name: value for name, value in run["metrics"].items() if name not in OF_THE_CLOCK}
        for run in summary["runs"]
    }


def complete(matrix: Matrix) -> dict[Path, tuple[bytes, bytes]]:
    """The journal and the status of each complete cell: neither may change any more."""
    found = {}
    for run in matrix.runs:
        status = (run / "status.json").read_bytes()
        if json.loads(status)["status"] == "complete":
            found[run] = (run / "metrics.jsonl").read_bytes(), status
    return found


def whole_lines(path: Path) -> bytes:
    return b"".join(line for line in path.read_bytes().splitlines(True) if line.endswith(b"\n"))


def check_resumed(run: Path) -> None:
    """Every attempt went on from the newest checkpoint there was."""
    step = 0
    for record in journal(run):
        if record["event"] == "start":
            origin = record["resumed_from"]
            # One that was on the disk before its record was in the journal does not count.
            assert (origin["global_step"] if isinstance(origin, dict) else 0) >= step, record
        elif record["event"] == "checkpoint":
            step = int(str(record["global_step"]))


@pytest.fixture(scope="module")
def undisturbed(root: Path, tmp_path_factory: pytest.TempPathFactory, warm_torch: WarmPython) -> Matrix:
    matrix = Matrix(root, tmp_path_factory.mktemp("undisturbed"), warm_torch)
    matrix.start("test_matrix", *OPTIONS, *RUNNING)
    matrix.finish()
    return matrix


@pytest.mark.slow
def test_twenty_kills_leave_no_trace_in_the_results(
    root: Path,
    tmp_path: Path,
    undisturbed: Matrix,
    warm_torch: WarmPython,
    wait_until: Callable[[Callable[[], bool]], None],
) -> None:
    pick = random.Random(20)
    matrix = Matrix(root, tmp_path, warm_torch)
    matrix.start("test_matrix", *OPTIONS, *RUNNING)
    assert matrix.runner is not None
    wait_until(lambda: (tmp_path / "results/latest").exists())
    victims = ["cell", "runner", "both", "everything"] * (KILLS // 4)
    pick.shuffle(victims)
    total = undisturbed.steps()
    moments = sorted(pick.randrange(total - 12) for _ in victims)
    seen: dict[Path, tuple[bytes, bytes]] = {}
    for victim, moment in zip(victims, moments, strict=True):
        wait_until(lambda moment=moment: matrix.steps() >= moment)  # type: ignore[misc]
        time.sleep(pick.random() / 20)  # the moment itself: also within a start, a save or an evaluation
        journals = {
            run: whole_lines(run / "metrics.jsonl") for run in matrix.runs if (run / "run.json").exists()
        }
        files = {
            path
            for path in tmp_path.rglob("*")
            if "checkpoints" not in path.parts and "tmp" not in path.suffix
        }
        seen |= complete(matrix)
        if matrix.kill(victim, pick):
            matrix.start("continue", *RUNNING)
        for run, lines in journals.items():
            assert (run / "metrics.jsonl").read_bytes().startswith(lines), f"{run.name} lost records"
        assert [path for path in files if not path.exists()] == []
    output = matrix.finish()

    assert metrics(matrix) == metrics(undisturbed), output
    for run, same in zip(matrix.runs, undisturbed.runs, strict=True):
        assert step_losses(run) == step_losses(same)
        assert hashes(run) == hashes(same)
        check_resumed(run)
    assert {run: before for run, before in complete(matrix).items() if run in seen} == seen
    attempts = [json.loads((run / "status.json").read_text())["attempts"] for run in matrix.runs]
    ends = [attempt["cause"] for one in attempts for attempt in one]
    assert set(ends) == {"signal", "runner_died", None}
    assert ends.count(None) == len(CELLS)
    assert len(ends) >= len(CELLS) + KILLS // 2, "most kills were to hit a training"
