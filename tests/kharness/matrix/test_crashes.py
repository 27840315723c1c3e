"""A real matrix killed at twenty random moments and continued: it ends as if nothing had happened."""

from __future__ import annotations

import contextlib
import json
import random
import signal
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

from ...few_digits import environment_of
from ...processes import kill_process, naming
from ...waiting import wait_until
from ...warm_python import StartedPython, WarmPython

WaitUntil = Callable[[Callable[[], bool]], None]

CELLS = [f"optimizer-{optimizer}_seed-{seed}" for optimizer in ("sgd", "adamw") for seed in (1, 2)]
# 22 steps an epoch and a checkpoint after each.
OPTIONS = [
    "CONFIG_MATRIX_AXES=OPTIMIZER=sgd|adamw SEED=1|2",
    "CONFIG_DATASET_FEW_DIGITS=y",
    "CONFIG_BATCH_SIZE=5",
    "CONFIG_NUM_EPOCHS=3",
    "CONFIG_NUM_THREADS=1",
    "CONFIG_CHECKPOINT_EVERY=1",
    "CONFIG_LOG_EVERY=1",
    "CONFIG_REPORT_GRAPHS=n",
    "TRACKER=none",
]
RUNNING = ["JOBS=2", "RETRIES=9"]
KILLS = 20

# What no two trainings share.
OF_THE_CLOCK = {"training_seconds", "training_cpu_seconds", "sec_per_step", "peak_cpu_memory", "other_work"}


class Matrix:
    """A LeNet-5 matrix in a folder of its own, and who runs it."""

    def __init__(self, checkout: Path, output: Path, python: WarmPython) -> None:
        self._checkout = checkout
        self._python = python
        self.output = output
        self.runner: StartedPython | None = None
        self._printed: str | None = None
        """Output of the runner, once it has ended."""
        self._known: dict[Path, tuple[int, int]] = {}
        """Size of the journal and the steps in it."""

    def start(self, script: str, *arguments: str) -> None:
        command = [f"scripts/{script}.py", f"O={self.output}", *arguments]
        self._printed = None
        self.runner = self._python.start(
            command,
            cwd=self._checkout,
            env=environment_of(self._checkout),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def finish(self) -> str:
        """Wait for the runner and return what it printed."""
        assert self.runner is not None
        self._read_to_the_end()
        assert self.runner.returncode == 0, self._printed
        return str(self._printed)

    def _read_to_the_end(self) -> None:
        if self.runner is not None and self._printed is None:
            self._printed, _ = self.runner.communicate(timeout=900)

    @property
    def runs(self) -> list[Path]:
        return [self.output / "results/latest" / name for name in CELLS]

    def steps(self) -> int:
        """Steps done by all cells together."""
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
        """Runner, fork server, trainings and agents of this matrix, also those that lost their parent."""
        assert self.runner is not None
        own = psutil.Process(self.runner.pid)
        return list({*own.children(recursive=True), *naming(str(self.output)), own})

    def has_ended(self) -> bool:
        """Whether the runner has."""
        assert self.runner is not None
        return self.runner.poll() is not None

    def kill(self, victim: str, pick: random.Random) -> bool:
        """SIGKILL; False where the runner had ended by itself before that."""
        assert self.runner is not None
        victims: list[psutil.Process] = []
        if victim == "everything":
            with contextlib.suppress(psutil.NoSuchProcess):
                victims = self.everything()
        elif victim == "cell":  # a moment between two cells has none to kill
            found = wait_until(lambda: self.cells() or self.has_ended())
            victims = [pick.choice(found)] if isinstance(found, list) else []
        elif victim == "both" and (cells := self.cells()):
            victims = [pick.choice(cells)]
        for process in victims:
            kill_process(process)
        if victim == "cell":
            return not self.has_ended()
        self.runner.kill()
        self._read_to_the_end()
        return self.runner.returncode == -signal.SIGKILL


def journal(run: Path) -> list[Record]:
    return [record for record, _ in read_records(run / "metrics.jsonl")]


def step_losses(run: Path) -> dict[Any, object]:
    """The loss of each step that counts."""
    records = counting(journal(run))
    return {record["global_step"]: record["train_loss"] for record in records if record["event"] == "step"}


def hashes(run: Path) -> object:
    """Step and hashes of the last checkpoint: weights and optimizer state."""
    last = [record for record in counting(journal(run)) if record["event"] == "checkpoint"][-1]
    return last["global_step"], last["model_sha256"], last["optimizer_sha256"]


def metrics(matrix: Matrix) -> dict[str, dict[str, float]]:
    """Metrics of each run in the summary, without those that depend on the clock."""
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
def undisturbed(few_digits: Path, tmp_path_factory: pytest.TempPathFactory, warm_few: WarmPython) -> Matrix:
    matrix = Matrix(few_digits, tmp_path_factory.mktemp("undisturbed"), warm_few)
    matrix.start("test_matrix", *OPTIONS, *RUNNING)
    matrix.finish()
    return matrix


@pytest.mark.slow
def test_twenty_kills_leave_no_trace_in_the_results(
    few_digits: Path,
    tmp_path: Path,
    undisturbed: Matrix,
    warm_few: WarmPython,
    wait_until: WaitUntil,
) -> None:
    pick = random.Random(20)
    victims = ["cell", "runner", "both", "everything"] * (KILLS // 4)
    pick.shuffle(victims)
    moments = sorted(pick.randrange(undisturbed.steps() - 12) for _ in victims)
    left = list(zip(victims, moments, strict=True))
    attempts, num_matrices = [], 0
    while left:  # a matrix may be complete before its last moment comes
        num_matrices += 1
        matrix = Matrix(few_digits, tmp_path / str(num_matrices), warm_few)
        matrix.start("test_matrix", *OPTIONS, *RUNNING)
        wait_until(lambda matrix=matrix: (matrix.output / "results/latest").exists())  # type: ignore[misc]
        seen: dict[Path, tuple[bytes, bytes]] = {}
        while left and kill_at(matrix, *left[0], pick, seen, wait_until):
            del left[0]
        assert_same_end(matrix, undisturbed, seen)
        statuses = [json.loads((run / "status.json").read_text()) for run in matrix.runs]
        attempts += [attempt["cause"] for status in statuses for attempt in status["attempts"]]
    assert set(attempts) == {"signal", "runner_died", None}
    assert attempts.count(None) == len(CELLS) * num_matrices
    assert len(attempts) - attempts.count(None) >= KILLS // 2, "most kills were to hit a training"


def kill_at(
    matrix: Matrix,
    victim: str,
    moment: int,
    pick: random.Random,
    seen: dict[Path, tuple[bytes, bytes]],
    wait_until: WaitUntil,
) -> bool:
    """Kill at a step of all, and a bit later, and go on; False where the matrix was complete before that."""
    wait_until(lambda: matrix.steps() >= moment or matrix.has_ended())
    time.sleep(pick.random() / 20)  # the moment itself: also within a start, a save or an evaluation
    journals = {run: whole_lines(run / "metrics.jsonl") for run in matrix.runs if (run / "run.json").exists()}
    files = {
        path
        for path in matrix.output.rglob("*")
        if "checkpoints" not in path.parts and "tmp" not in path.suffix
    }
    seen |= complete(matrix)
    killed = matrix.kill(victim, pick)
    if killed and victim != "cell":
        matrix.start("continue", *RUNNING)
    for run, lines in journals.items():
        assert (run / "metrics.jsonl").read_bytes().startswith(lines), f"{run.name} lost records"
    assert [path for path in files if not path.exists()] == []
    return killed


def assert_same_end(matrix: Matrix, undisturbed: Matrix, seen: dict[Path, tuple[bytes, bytes]]) -> None:
    """Its results are those of the undisturbed one; what was complete has not changed any more."""
    output = matrix.finish()
    assert metrics(matrix) == metrics(undisturbed), output
    for run, same in zip(matrix.runs, undisturbed.runs, strict=True):
        assert step_losses(run) == step_losses(same)
        assert hashes(run) == hashes(same)
        check_resumed(run)
    assert {run: before for run, before in complete(matrix).items() if run in seen} == seen
