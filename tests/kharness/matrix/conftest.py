"""A checkout in small: the real scripts and Kconfig files around a model that only pretends to train."""

from __future__ import annotations

import copy
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pytest

from kharness.runs.journal_tail import JournalTail

from ...waiting import wait_until
from ...warm_python import StartedPython, WarmPython

KCONFIG = """\
mainmenu "a small checkout"

choice
    prompt "Model"
    default MODEL_PRETENDER

config MODEL_PRETENDER
    bool "Pretends to train"

config MODEL_ABSENT
    bool "Has no train.py"

endchoice

# Whose defaults the Kconfig files of lib/ name.
config MODEL_GPT2
    bool

config MODEL
    string
    default "pretender" if MODEL_PRETENDER
    default "absent" if MODEL_ABSENT

choice
    prompt "Optimizer"
    default OPTIMIZER_SGD

config OPTIMIZER_ADAM
    bool "Adam"

config OPTIMIZER_SGD
    bool "SGD"

endchoice

config OPTIMIZER
    string
    default "adam" if OPTIMIZER_ADAM
    default "sgd" if OPTIMIZER_SGD

config LEARNING_RATE
    string "Learning rate"
    default "0.1" if OPTIMIZER_SGD
    default "0.003"
    help
      Value: float, 0 < x

config ADAM_BETAS
    string "Betas"
    default "0.9 0.999"
    depends on OPTIMIZER_ADAM
    help
      Value: list of 2 floats, 0 <= x < 1

config SEED
    int "Seed"
    default 1
    range 0 100
    help
        Affects: results

config NUM_STEPS
    int "Steps"
    default 3

config BEHAVIOR
    string "What becomes of the training"
    default "good"

config DEVICE
    string "Device"
    default "cpu"

config GPU_MONITOR
    bool "Sample GPUs"
    help
        Affects: reporting

config EXPERT
    bool "Show options that hardly anybody changes"
    help
        Affects: matrix

source "lib/monitoring/trackers/Kconfig"

source "lib/kharness/matrix/Kconfig"

source "lib/kharness/report/Kconfig"
"""

TRAIN = '''\
"""Writes a journal like a training; BEHAVIOR says what goes wrong: `what`, `what@seed` for one seed, and
`once-what` for the first attempt only. It goes on from the last step that it noted in `checkpoint`."""

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from kharness.config.config_py import read_values
from monitoring.journal.lineage import Lineage
from monitoring.run import Run

directory = Path(sys.argv[sys.argv.index("--run-dir") + 1])
values = read_values(directory / "config.py")
what, _, seed = values["BEHAVIOR"].partition("@")
behavior = what if seed in ("", str(values["SEED"])) else "good"
if behavior.startswith("once-"):
    behavior = "good" if (directory / "once").exists() else behavior.removeprefix("once-")
    (directory / "once").touch()
stopping = []
signal.signal(signal.SIGINT, lambda *_: stopping.append(1))
signal.signal(signal.SIGTERM, lambda *_: stopping.append(1))
print("training with", values["OPTIMIZER"], values["LEARNING_RATE"], "in", os.getcwd())
if "CUDA_VISIBLE_DEVICES" in os.environ:
    print("on", os.environ["CUDA_VISIBLE_DEVICES"])
if behavior == "no-journal":
    sys.exit(0)
if behavior == "crash":
    raise RuntimeError("the loss is a banana")
if behavior == "cuda-memory":
    raise RuntimeError("CUDA out of memory. Tried to allocate 20.00 MiB")
if behavior == "cuda-error":
    raise RuntimeError("CUDA error: an illegal memory access was encountered")
if behavior == "no-space":
    raise OSError(28, "No space left on device")
if behavior == "refused":
    print("error: DATA_DIR=data holds no \\x1b[31mimages\\nhint: make data", file=sys.stderr)
    sys.exit(2)
if behavior.startswith("exit-"):
    sys.exit(int(behavior.removeprefix("exit-")))
if behavior == "lie":
    values["LEARNING_RATE"] = 0.5
checkpoint = directory / "checkpoint"
lineage = Lineage.read(directory / "metrics.jsonl")
done, resumed_from, supersedes = 0, None, None
if lineage.last_seq:
    supersedes = {"first_seq": 1, "last_seq": lineage.last_seq}
if checkpoint.exists() and "--from-scratch" not in sys.argv:
    resumed_from = json.loads(checkpoint.read_text())
    done = resumed_from["global_step"]
    supersedes["first_seq"] = resumed_from["journal_seq"] + 1
run = Run(
    directory,
    name=values["TRACKER_RUN_NAME"],
    project="p",
    config=values,
    gpu_monitor=values["GPU_MONITOR"],
    agent=behavior != "no-agent",
)
num_steps = values["NUM_STEPS"]
run.start(
    model={"name": "pretender"},
    training={"num_steps": num_steps},
    resumed_from=resumed_from,
    supersedes=supersedes,
)
rate = 0.5 if values["OPTIMIZER"] == "sgd" else 0.25
if behavior == "forks":
    child = subprocess.Popen(["sleep", "600"])
    (directory / "grandchild").write_text(str(child.pid))
    behavior = "deaf"
for step in range(done + 1, num_steps + 1):
    loss = 2.0 * (1 - rate) ** step + values["SEED"] / 100
    memory = {"gpu_mem_reserved": 20.0} if behavior == "gpu" else {}
    run.log_step(step, train_loss=loss, sec_per_step=0.001 * step, **memory)
    state = {"checkpoint": "c", "attempt": run.attempt, "global_step": step, "journal_seq": run.last_seq()}
    (directory / "checkpoint.tmp").write_text(json.dumps(state))
    os.replace(directory / "checkpoint.tmp", checkpoint)
    if behavior == "slow":
        time.sleep(0.01)
    if behavior == "gpu":  # keeps its memory until everybody is let go
        run.log_eval(step, split="val", val_loss=loss)
        while not Path("let-go").exists():
            time.sleep(0.01)
    if behavior.startswith("meet-"):  # until so many of the checkout are there
        Path(f"met-{values['SEED']}").touch()
        while not stopping and len(list(Path().glob("met-*"))) < int(behavior.removeprefix("meet-")):
            time.sleep(0.01)
    if behavior == "held":  # until it is let go or stopped
        while not stopping and not Path("let-go").exists():
            time.sleep(0.01)
    while behavior == "deaf":
        time.sleep(0.5)
    if behavior == "hang":
        while not stopping:
            time.sleep(0.01)
    if behavior == "sigkill":
        os.kill(os.getpid(), signal.SIGKILL)
    if behavior == "vanish":
        directory.rename("vanished")  # in one step: its agent may just write another file there
        sys.exit(0)
    if behavior == "non-finite":
        run.log_step(step + 1, train_loss=float("nan"))
        run.finish("failed", error="NonFiniteError: step 2: loss nan", cause="non_finite")
        sys.exit(65)
    if stopping:
        print("saving")
        run.finish("interrupted", steps_done=step)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as a training that is stopped: see StopOnSignal
        sys.exit(75)
val_loss = 2.0 * (1 - rate) ** num_steps
if behavior == "bowl":  # with its bottom at a learning rate of 0.01
    val_loss = (math.log10(values["LEARNING_RATE"]) + 2) ** 2
run.log_eval(num_steps, split="val", val_accuracy=rate, val_loss=val_loss)
if behavior == "no-end":
    os._exit(0)
run.finish(test_accuracy=rate + values["SEED"] / 100, training_seconds=num_steps / 2, steps_done=num_steps)
'''

PRESET = """\
CONFIG_MATRIX_AXES="OPTIMIZER=sgd|adam SEED=1|2"
CONFIG_MATRIX_ORDER_LISTED=y
# CONFIG_LAUNCHER_LOCAL_FORK_SERVER is not set
# CONFIG_REPORT_GRAPHS is not set
"""


SET_FORWARD = """
import os, runpy, sys, time
right, later = time.monotonic, os.path.abspath("later")
time.monotonic = lambda: right() + 7200 * os.path.exists(later)
sys.argv = sys.argv[1:]
sys.path[0] = os.path.dirname(sys.argv[0])
runpy.run_path(sys.argv[0], run_name="__main__")
"""


class Checkout:
    """Runs the scripts of a small checkout as make does."""

    def __init__(self, root: Path, repository: Path, python: WarmPython) -> None:
        self.root = root
        self._python = python
        for folder in ("lib/monitoring/trackers", "lib/kharness/matrix", "lib/kharness/report"):
            (root / folder).mkdir(parents=True)
            shutil.copy(repository / folder / "Kconfig", root / folder / "Kconfig")
        uncompiled = shutil.ignore_patterns("__pycache__")
        shutil.copytree(repository / "scripts", root / "scripts", ignore=uncompiled)
        (root / "Kconfig").write_text(KCONFIG)
        (root / "pretender").mkdir()
        (root / "pretender" / "train.py").write_text(TRAIN)
        (root / "defconfigs").mkdir()
        (root / "defconfigs" / "default").write_text(PRESET)

    def command(self, script: str, *arguments: str) -> list[str]:
        """In an interpreter of its own."""
        return [sys.executable, str(self.root / "scripts" / f"{script}.py"), *arguments]

    def start(self, script: str, *arguments: str, **kwargs: Any) -> StartedPython:
        defaults = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "cwd": self.root}
        command = [self.root / "scripts" / f"{script}.py", *arguments]
        return self._python.start(command, **{**defaults, **kwargs})

    def start_set_forward(self, script: str, *arguments: str, **kwargs: Any) -> StartedPython:
        """One whose clock goes two hours forward when there is a file `later` in the checkout."""
        command = ["-c", SET_FORWARD, self.root / "scripts" / f"{script}.py", *arguments]
        defaults = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "cwd": self.root}
        return self._python.start(command, **{**defaults, **kwargs})

    def run(self, script: str, *arguments: str, environment: dict[str, str] | None = None) -> tuple[int, str]:
        """Exit code and everything printed."""
        process = self.start(script, *arguments, env={**os.environ, **(environment or {})})
        output, _ = process.communicate(timeout=600)
        return process.wait(), output

    def copy(self, root: Path) -> Checkout:
        """One with the same files, results included."""
        shutil.copytree(self.root, root, symlinks=True)
        twin = copy.copy(self)
        twin.root = root
        return twin

    @property
    def latest(self) -> Path:
        return (self.root / "results" / "latest").resolve()

    def statuses(self) -> dict[str, str]:
        return {
            path.parent.name: json.loads(path.read_text())["status"]
            for path in sorted(self.latest.glob("*/status.json"))
        }


@pytest.fixture(scope="module")
def make_checkout(
    tmp_path_factory: pytest.TempPathFactory, root: Path, warm_python: WarmPython
) -> Callable[[], Checkout]:
    """For tests that share one."""
    return lambda: Checkout(tmp_path_factory.mktemp("shared") / "checkout", root, warm_python)


@pytest.fixture
def checkout(tmp_path: Path, root: Path, warm_python: WarmPython) -> Checkout:
    return Checkout(tmp_path / "checkout", root, warm_python)


Command = Callable[..., subprocess.CompletedProcess[str]]
Begin = Callable[..., StartedPython]


@pytest.fixture(scope="session")
def kharness(warm_python: WarmPython) -> Command:
    """Run the command with these words in a folder, to its end.

    A matrix draws no pictures: they take as long as all else that it does, and nobody looks at them.
    """

    def run(folder: Path, *words: object, **options: Any) -> subprocess.CompletedProcess[str]:
        command, *others = words
        without = ["--no-graphs"] * (command == "matrix" and "--" in others)
        return warm_python.run(["-m", "kharness", command, *without, *others], cwd=folder, **options)

    return run


@pytest.fixture(scope="session")
def begin_kharness(warm_python: WarmPython) -> Begin:
    """Start the command with these words in a folder; what it prints is lost."""
    lost: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return lambda folder, *words: warm_python.start(["-m", "kharness", *words], cwd=folder, **lost)


@pytest.fixture(name="wait_until")
def until() -> Callable[[Callable[[], bool]], object]:
    return wait_until


def printed(process: StartedPython) -> IO[str]:
    """Output of a process, readable while it is written."""
    assert process.stdout is not None
    return process.stdout


def behavior(what: str) -> str:
    """The variable that tells the pretending model what to do."""
    return f"CONFIG_BEHAVIOR={what}"


SLOW = behavior("slow")


def status(run: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((run / "status.json").read_text())
    return content


def attempts(run: Path, *fields: str) -> list[tuple[Any, ...]]:
    """Some fields of each attempt."""
    return [tuple(attempt[field] for field in fields) for attempt in status(run)["attempts"]]


def records(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def tail(directory: Path, *records: dict[str, Any]) -> JournalTail:
    """A journal of these records, read to its end."""
    lines = [json.dumps({"time": 10.0 + i, "seq": i + 1, "attempt": 1, **r}) for i, r in enumerate(records)]
    (directory / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))
    made = JournalTail(directory)
    made.read()
    return made
