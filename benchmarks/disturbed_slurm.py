"""A training on Slurm that is preempted, requeued, out of time and loses its node, and one without it all.

python benchmarks/disturbed_slurm.py [STEPS]

LeNet-5 with AdamW on the images of the checkout, on the tests' cluster: three preemptions by a higher
partition, two time limits (Slurm signals up to a minute before one is near), `scontrol requeue` and a node
that crashes. At the end losses, weights and the state of the optimizer are compared with those of a training
on this machine that nothing has disturbed, byte by byte.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from monitoring.journal.lineage import counting  # noqa: E402
from monitoring.journal.records import read_records  # noqa: E402
from tests.slurm_cluster import SlurmCluster, missing  # noqa: E402
from tests.waiting import wait_until  # noqa: E402

WHAT = ("preempted", "preempted", "time limit", "preempted", "requeued", "node lost", "time limit")
NEW_STEPS = 20
"""Steps that each attempt gets at least."""


def main(argv: list[str], what: tuple[str, ...] = WHAT) -> int:
    """Print what each attempt came to and what was compared; 1 where a byte differs."""
    steps = int(argv[0]) if argv else 4000
    if reason := missing():
        print(f"nothing was disturbed: no Slurm here: {reason}")
        return 0
    with (
        tempfile.TemporaryDirectory(dir=ROOT, prefix=".bench-") as output,
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as at,
        contextlib.ExitStack() as at_the_end,
    ):
        cluster = SlurmCluster(Path(at) / "slurm", nodes=2)
        at_the_end.callback(cluster.stop)
        cluster.start()
        asked = [
            *("MODEL=lenet5", "MATRIX_AXES=SEED=1", "OPTIMIZER=adamw", "DEVICE=cpu", "RETRIES=0"),
            *(f"CONFIG_MAX_STEPS={steps}", "CONFIG_NUM_EPOCHS=1000", "CONFIG_NUM_THREADS=1"),
            *("CONFIG_CHECKPOINT_UNIT_STEPS=y", "CONFIG_CHECKPOINT_EVERY=10", "CONFIG_REPORT_GRAPHS=n"),
        ]
        there = {**os.environ, **cluster.environment, "PYTHONPATH": str(ROOT / "lib")}
        limits = ["CONFIG_LAUNCHER_SLURM_TIME_LIMIT=2", "CONFIG_LAUNCHER_SLURM_SIGNAL_SECONDS=20"]
        runner = start("disturbed", output, [*asked, "LAUNCHER=slurm", *limits], there)
        run = Path(output) / "disturbed" / "results" / "latest" / "seed-1"
        for one in what:
            disturb(cluster, run, one)
        runner.wait()
        attempts = json.loads((run / "status.json").read_text())["attempts"]
        print("attempts: " + ", ".join(str(one["cause"] or "complete") for one in attempts))
        start("undisturbed", output, [*asked, "LAUNCHER=local"], there).wait()
        other = Path(output) / "undisturbed" / "results" / "latest" / "seed-1"
        losses = [losses_of(one) for one in (run, other)]
        different = different_tensors(checkpoint(run), checkpoint(other))
        print(f"{len(losses[0])} losses: {'equal' if losses[0] == losses[1] else 'DIFFERENT'}")
        print(f"{count_tensors(checkpoint(run))} tensors: {different or 'equal, byte by byte'}")
        return int(bool(different) or losses[0] != losses[1] or len(attempts) <= len(what))


def start(name: str, output: str, asked: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start a matrix with a folder of its own."""
    folder = Path(output) / name
    folder.mkdir()
    return subprocess.Popen(
        [sys.executable, str(ROOT / "scripts" / "test_matrix.py"), *asked, f"O={folder}"],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.DEVNULL,
    )


def disturb(cluster: SlurmCluster, run: Path, what: str) -> None:
    """Let an attempt train for some steps, hold it, and let it go on with what disturbs it."""
    before = steps_of(run)
    wait_until(lambda: steps_of(run) >= before + NEW_STEPS, f"steps before: {what}")
    begun = starts(run)
    training = held(run)
    if what == "preempted":
        cluster.submit("--partition=urgent", "--exclusive", "--nodes=2", command="true")
        wait_until(lambda: "PreemptTime=20" in cluster.ask("scontrol", "show", "job", begun[-1]["job"]), what)
    elif what == "time limit":
        wait_until(lambda: is_told(run), what)
    elif what == "requeued":
        cluster.ask("scontrol", "requeue", begun[-1]["job"])
    else:
        cluster.crash(begun[-1]["node"])
    with contextlib.suppress(psutil.NoSuchProcess):
        training.send_signal(signal.SIGCONT)
    wait_until(lambda: len(starts(run)) > len(begun), f"the attempt after: {what}")
    if what == "node lost":
        cluster.start_node(begun[-1]["node"])
    print(f"{what} after step {steps_of(run)}", flush=True)


def held(run: Path) -> psutil.Process:
    """The training, which has stopped for the time being."""
    (found,) = [one for one in trainings(run) if "train.py" in " ".join(one.info["cmdline"])]
    found.send_signal(signal.SIGSTOP)
    return found


def trainings(run: Path) -> Iterator[psutil.Process]:
    """Processes that have its directory among their words."""
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if "--run-dir" in words and words[words.index("--run-dir") + 1].endswith(f"{run.resolve()}"[-40:]):
            yield process


def is_told(run: Path) -> bool:
    """Whether its job has passed on to the training, which is held, that it is to end."""
    (found,) = trainings(run)
    facts = Path(f"/proc/{found.pid}/status").read_text().splitlines()
    pending = next(line for line in facts if line.startswith("ShdPnd"))
    return bool(int(pending.split()[1], 16) & 1 << (signal.SIGTERM - 1))


def starts(run: Path) -> list[dict[str, Any]]:
    lines = (run / "job.jsonl").read_text().splitlines() if (run / "job.jsonl").exists() else []
    return [event for event in map(json.loads, lines) if event["event"] == "start"]


def steps_of(run: Path) -> int:
    """How many steps its journal has, over all attempts."""
    journal = run / "metrics.jsonl"
    return journal.read_bytes().count(b'"event":"step"') if journal.exists() else 0


def losses_of(run: Path) -> dict[int, object]:
    journal = [record for record, _ in read_records(run / "metrics.jsonl")]
    steps = [record for record in counting(journal) if record["event"] == "step"]
    return {int(str(record["global_step"])): record["train_loss"] for record in steps}


def checkpoint(run: Path) -> dict[str, Any]:
    """Return the newest checkpoint: weights, the state of the optimizer, generators."""
    newest = max((run / "checkpoints").glob("attempt*.pt"))
    found: dict[str, Any] = torch.load(newest, weights_only=False)
    return found


def tensors(value: object, place: str = "") -> Iterator[tuple[str, bytes]]:
    """Each tensor of a checkpoint with its place in it."""
    if isinstance(value, torch.Tensor):
        yield place, value.detach().cpu().contiguous().numpy().tobytes()
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from tensors(inner, f"{place}/{name}")
    elif isinstance(value, (list, tuple)):
        for number, inner in enumerate(value):
            yield from tensors(inner, f"{place}/{number}")


def different_tensors(one: object, other: object) -> list[str]:
    """Places at which two checkpoints are not the same."""
    first, second = dict(tensors(one)), dict(tensors(other))
    return sorted(place for place in first.keys() | second.keys() if first.get(place) != second.get(place))


def count_tensors(value: object) -> int:
    return sum(1 for _ in tensors(value))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
