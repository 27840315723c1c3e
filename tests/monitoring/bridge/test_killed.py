"""Programs that are killed at random moments, or their bridges, and continued: every value that their own
stores have kept is recorded once, and each step counts once."""

from __future__ import annotations

import contextlib
import functools
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from monitoring.bridge.recorder import COPY_OF, INSTEAD_OF
from monitoring.journal.lineage import counting
from monitoring.journal.records import Record, read_records

from ...processes import is_gone
from ...waiting import wait_until
from ...warm_python import StartedPython, WarmPython
from .conftest import PROGRAMS
from .stored import Losses, of_event_files, of_mlflow, of_trackio, of_wandb, printed

NANO = Path(__file__).with_name("nano.py")
STEPS = 60


@dataclass(frozen=True)
class Kind:
    """A program; `{here}` in its words is the folder it runs in."""

    words: Sequence[str]
    stored: Callable[[Path], Losses]
    """Losses that its store holds, given the run directory."""
    options: Sequence[str] = ()
    """The bridge's."""


# A program of `sh -c` that notes its process and becomes another one.
NOTES = 'echo $$ > "$0"; exec "$@"'


def ours(kind: str) -> list[str]:
    return [sys.executable, str(PROGRAMS), kind, str(STEPS), "0.01", "{here}/kept"]


def in_runs(run_dir: Path) -> Losses:
    return of_event_files(list(run_dir.parent.glob("runs/a/*tfevents*")), "loss")


KINDS = {
    "C": Kind(
        ["sh", "-c", NOTES, "{here}/pid", "{here}/prints", str(STEPS), "0.01", "{here}/kept"],
        lambda run: printed(run / "output.log"),
    ),
    "mlflow": Kind(ours("mlflow"), lambda run: of_mlflow(run / "stores")),
    "nanogpt": Kind(
        [
            *(
                "sh",
                "-c",
                NOTES,
                "{here}/pid",
                sys.executable,
                str(NANO),
                "--out_dir={here}/run/out",
                f"--max_iters={STEPS - 1}",
            ),
            *("--pause=0.01", "--eval_interval=10"),
        ],
        lambda run: printed(run / "output.log"),
        ["--resume-with", "if:{here}/run/out/ckpt.pt", "--resume-with=--init_from=resume"],
    ),
    "tensorboard": Kind(ours("tensorboard"), in_runs),
    "trackio": Kind(ours("trackio"), lambda run: of_trackio(run / "stores")),
    "wandb": Kind(ours("wandb"), lambda run: of_wandb(run / "stores")),
}


@pytest.mark.parametrize("name", KINDS)
def test_what_its_store_has_kept_is_recorded_once(
    name: str,
    run_dir: Path,
    warm_bridge: WarmPython,
    warm_monitoring: WarmPython,
    request: pytest.FixtureRequest,
) -> None:
    kind, here = KINDS[name], run_dir.parent
    warm = warm_monitoring if name in ("C", "nanogpt") else warm_bridge
    if name == "mlflow":
        (run_dir / "stores").mkdir(parents=True)
        # a program takes seconds to make one
        shutil.copy(request.getfixturevalue("empty_database"), run_dir / "stores" / "mlflow.db")
    if name == "C":
        if shutil.which("gcc") is None:
            pytest.skip("gcc, which compiles the program, is not installed")
        subprocess.run(["gcc", "-o", here / "prints", Path(__file__).with_name("prints.c")], check=True)
    words, options = ([word.format(here=here) for word in given] for given in (kind.words, kind.options))
    moments = random.Random(name)
    for victim in [*moments.sample(["bridge", "program"], 2), None]:
        (here / "pid").unlink(missing_ok=True)
        bridge = warm.start(
            ["-m", "monitoring.bridge", run_dir, *options, "--", *words], cwd=here, stderr=subprocess.DEVNULL
        )
        wait_until(lambda: noted(here / "pid"))
        program = process_of(here)
        if victim:
            wait_for(program, here, moments.randrange(1, STEPS - 10))
        if victim == "bridge":
            bridge.kill()
        elif victim:
            with contextlib.suppress(ProcessLookupError):  # it is through, on a busy machine
                os.kill(program, signal.SIGKILL)
        code = bridge.wait()
        wait_until(functools.partial(has_ended, program))
    assert code == 0, (run_dir / "output.log").read_text()
    journal = [record for record, _ in read_records(run_dir / "metrics.jsonl")]
    assert values(journal, "train_loss") == kind.stored(run_dir)
    count = [r["global_step"] for r in counting(journal) if "train_loss" in r]
    assert count == sorted({step for step, _ in kind.stored(run_dir)})


def test_values_of_two_trackers_at_once_are_recorded_once(run_dir: Path, warm_bridge: WarmPython) -> None:
    """Losses of W&B, which is richer, and learning rates that only TensorBoard has: of both attempts."""
    here = run_dir.parent

    def begin(steps: int) -> StartedPython:
        program = [sys.executable, PROGRAMS, "both", steps, 0.05, here / "kept"]
        command = ["-m", "monitoring.bridge", run_dir, "--", *program]
        return warm_bridge.start(command, cwd=here, stderr=subprocess.DEVNULL)

    def recorded(name: str) -> Losses:
        return values([record for record, _ in read_records(run_dir / "metrics.jsonl")], name)

    bridge = begin(1_000_000)
    wait_until(lambda: recorded("train_loss") and recorded("lr") and (here / "kept").exists())
    os.kill(process_of(here), signal.SIGKILL)
    assert bridge.wait() == 128 + signal.SIGKILL
    steps = int((here / "kept").read_text()) + 20
    assert begin(steps).wait() == 0
    files = list(here.glob("runs/a/*tfevents*"))
    assert recorded("train_loss") == of_wandb(run_dir / "stores")
    assert recorded("lr") == of_event_files(files, "lr")
    assert [len(files), recorded("lr")[-1][0]] == [2, steps - 1]
    journal = [record for record, _ in read_records(run_dir / "metrics.jsonl")]
    count = [int(str(r["global_step"])) for r in counting(journal) if "train_loss" in r]
    assert count == sorted({step for step, _ in [*recorded("train_loss"), *of_event_files(files, "loss")]})


def test_what_two_killed_runs_have_written_into_one_folder_stays_apart(
    results: Path, warm_bridge: WarmPython
) -> None:
    """The first goes on before the second does: whose files those of dead processes are, nobody can see."""
    runs = [results / name for name in ("one", "two")]

    def begin(run: Path) -> StartedPython:
        kept = results / f"of-{run.name}" / "kept"
        kept.parent.mkdir(exist_ok=True)
        program = [sys.executable, PROGRAMS, "tensorboard", STEPS, 0.01, kept, 1 + runs.index(run)]
        command = ["-m", "monitoring.bridge", run, "--", *program]
        return warm_bridge.start(command, cwd=results, stderr=subprocess.DEVNULL)

    bridges = [begin(run) for run in runs]
    notes = [results / f"of-{run.name}" for run in runs]
    wait_until(lambda: all(noted(place / "pid") for place in notes))
    wait_until(lambda: all(noted(run / "stores" / "processes") for run in runs))
    programs = [process_of(place) for place in notes]
    for program, place in zip(programs, notes, strict=True):
        wait_for(program, place, 20)
    for bridge in bridges:
        bridge.kill()
    for bridge, program in zip(bridges, programs, strict=True):
        bridge.wait()
        wait_until(functools.partial(has_ended, program))
    assert [begin(run).wait() for run in runs] == [0, 0]
    files = list(results.glob("runs/a/*tfevents*"))
    for scale, run in enumerate(runs, 1):
        journal = [record for record, _ in read_records(run / "metrics.jsonl")]
        recorded = values(journal, "train_loss")
        stored = of_event_files(files, "loss")
        assert recorded == [(step, loss) for step, loss in stored if round(loss * (step + 1) / 4) == scale]
        count = [r["global_step"] for r in counting(journal) if "train_loss" in r]
        assert count == sorted({int(str(step)) for step, _ in recorded})


def values(journal: Sequence[Record], name: str) -> Losses:
    """The values that sources have reported themselves, none that stands in for what they have lost."""
    return [
        (record["global_step"], record[name])  # type: ignore[misc]
        for record in journal
        if name in record and not {INSTEAD_OF, COPY_OF} & record["reported"].keys()  # type: ignore[attr-defined]
    ]


def process_of(here: Path) -> int:
    """The process that the program has noted."""
    return int((here / "pid").read_text())


def noted(file: Path) -> bool:
    """Whether a process is written there as a whole."""
    return file.exists() and file.read_text().endswith("\n")


def has_ended(program: int) -> bool:
    try:
        return is_gone(psutil.Process(program))
    except psutil.NoSuchProcess:
        return True


def wait_for(program: int, here: Path, step: int) -> None:
    """Until the program has done a step, or is through."""
    wait_until(lambda: has_ended(program) or done(here) >= step)


def done(here: Path) -> int:
    """Steps that the program has noted, or the last that it has printed."""
    if (kept := here / "kept").exists():
        return int(kept.read_text() or 0)
    lines = printed(here / "run" / "output.log")
    return lines[-1][0] if lines else 0
