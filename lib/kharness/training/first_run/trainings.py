"""Steps of the first run that train: the same bits, no waiting, pace, faults, views and a small matrix."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from kharness.training.first_run.timed import StepFailed
from monitoring import read_records
from monitoring.journal.end_status import COMPLETE
from monitoring.journal.files import GPU_STATS, JOURNAL, METRICS_CSV, PROMETHEUS_JSON

ValueT = TypeVar("ValueT")

ROOT = Path(__file__).resolve().parents[4]

EPOCHS = int(os.environ.get("EPOCHS", "4"))
"""Epochs of a LeNet-5 training on the shipped subset of MNIST."""

# A training to be killed is started again with twice as many epochs while it ends before that.
TRIES = 4
LOOK_EVERY = 0.002

STEPS_WITHOUT_WAITING = 1000

PHASES = ("samples_per_sec", "data_seconds", "forward_backward_seconds", "optimizer_seconds")


def start(
    folder: Path, name: str, device: str, *flags: object, epochs: int = EPOCHS, anew: bool = True
) -> subprocess.Popen[bytes]:
    """A training of LeNet-5 in `folder`/`name`, its output beside it; `anew` deletes what is there first."""
    run = folder / name
    if anew:
        shutil.rmtree(run, ignore_errors=True)
    run.mkdir(parents=True, exist_ok=True)
    config = run / ".config"
    if not config.exists():
        config.write_bytes((ROOT / "defconfigs/default").read_bytes())
    given = ["--device", device, "--num-epochs", epochs, "--tracker", "none", *flags, "--run-dir", run]
    with (folder / f"{name}.out").open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "lenet5/train.py", *map(str, given)], cwd=ROOT, stdout=output, stderr=output
        )


def train(folder: Path, name: str, device: str, *flags: object, epochs: int = EPOCHS) -> Path:
    """The directory of such a training, which has ended; StepFailed if it failed."""
    run = folder / name
    if records(run) and records(run)[-1]["event"] == "end":
        return run  # of a call before, of which the step was not ended
    code = start(folder, name, device, *flags, epochs=epochs, anew=False).wait()
    if code:
        raise StepFailed(f"{name} ended with {code}; its output is in {folder / name}.out")
    return run


def records(run: Path) -> list[dict[str, Any]]:
    return [dict(record) for record, _ in read_records(run / JOURNAL)] if (run / JOURNAL).exists() else []


def waits(folder: Path, device: str) -> str:
    """With every watcher on, steps of which none waits for the GPU (torch.cuda.set_sync_debug_mode)."""
    watchers = ("--gpu-monitor", "--machine-monitor", "--include-performance-metrics")
    logs = ("--include-timer-metrics", "--use-verbose-logging", "--verbosity-level", "ultra")
    run = train(folder, "waits", device, "--cuda-sync-check", *watchers, *logs, epochs=3 * EPOCHS)
    done = sum(record["event"] == "step" for record in records(run))
    if device == "cuda" and done < STEPS_WITHOUT_WAITING:
        raise StepFailed(f"only {done} steps have a record")
    return f"{done} steps on {device} with a record each" + (
        ", of which none waited" if device == "cuda" else "; waiting is checked on a GPU alone"
    )


def bits(folder: Path, device: str) -> str:
    """The same seed twice, and a third time killed and resumed; all end with the same bits."""
    flags = ("--deterministic", "--checkpoint-every-steps", 20)
    epochs = _killed(folder, device, flags)
    resumed = train(folder, f"resumed-{epochs}", device, *flags, epochs=epochs)
    starts = [record for record in records(resumed) if record["event"] == "start"]
    if len(starts) != 2 or not starts[1].get("resumed_from"):
        raise StepFailed("the killed training was not resumed from its checkpoint")
    step: int = starts[1]["resumed_from"]["global_step"]
    found = {
        name: _last_bits(train(folder, f"{name}-{epochs}", device, *flags, epochs=epochs))
        for name in ("once", "again", "resumed")
    }
    for name, own in found.items():
        print(name, *own)
    if len(set(found.values())) > 1:
        raise StepFailed("the bits differ: " + ", ".join(f"{name} {own}" for name, own in found.items()))
    last = found["once"][0]
    if not 0 < step < last:
        raise StepFailed(f"resumed after step {step} of {last}: nothing was left to do")
    return f"the same at step {last}, once killed and resumed after step {step}"


def _killed(folder: Path, device: str, flags: Sequence[object]) -> int:
    """Epochs of a training that was killed after a checkpoint and before its end."""
    for epochs in (EPOCHS << place for place in range(TRIES)):
        run = folder / f"resumed-{epochs}"
        if records(run) and records(run)[-1]["event"] == "end":
            continue
        process = start(folder, run.name, device, *flags, epochs=epochs)
        while process.poll() is None and not _has_checkpoint(run):
            time.sleep(LOOK_EVERY)
        process.send_signal(signal.SIGKILL)
        process.wait()
        left = records(run)
        if not _has_checkpoint(run):
            raise StepFailed(f"no checkpoint was written; the output is in {folder / run.name}.out")
        if left[-1]["event"] != "end":
            print(f"killed after {sum(record['event'] == 'step' for record in left)} steps with a record")
            return epochs
    raise StepFailed(f"the training ended {TRIES} times before it could be killed")


def _has_checkpoint(run: Path) -> bool:
    """Return whether the journal has a checkpoint record, which is written after the file."""
    try:
        return b'"event":"checkpoint"' in (run / JOURNAL).read_bytes()
    except OSError:  # not begun
        return False


def _last_bits(run: Path) -> tuple[int, str, str]:
    """Step, model and optimizer of the last checkpoint."""
    last = [record for record in records(run) if record["event"] == "checkpoint"][-1]
    return last["global_step"], last["model_sha256"][:16], last["optimizer_sha256"][:16]


def pace(folder: Path, device: str) -> str:
    """Samples a second and the phases of a step, with a record each step and each 50th, sampled or not."""
    rates = {}
    for every in (1, 50):
        for sampled in ("no-gpu-monitor", "gpu-monitor"):
            run = train(folder, f"pace-{every}-{sampled}", device, "--log-every", every, f"--{sampled}")
            steps = [record for record in records(run) if record["event"] == "step"]
            values = {name: [step[name] for step in steps if step.get(name) is not None] for name in PHASES}
            medians = {name: statistics.median(found) for name, found in values.items() if found}
            print(run.name, {name: float(f"{value:.4g}") for name, value in medians.items()})
            rates[every, sampled] = medians.get("samples_per_sec")
    if None in rates.values():
        raise StepFailed("records have no samples_per_sec")
    slowest, fastest = min(filter(None, rates.values())), max(filter(None, rates.values()))
    return f"{slowest:,.0f} to {fastest:,.0f} samples per second"


def faults(folder: Path, device: str) -> str:
    """The agent is killed while it follows: the training does not notice, and `make sync` brings the rest."""
    run, epochs = folder / "faults", 2 * EPOCHS
    process = start(folder, run.name, device, "--gpu-monitor", epochs=epochs)
    killed = _wait(lambda: _agents(run) if process.poll() is None else [0])
    for pid in filter(None, killed):
        os.kill(pid, signal.SIGKILL)
    if process.wait():
        raise StepFailed(f"the training ended with {process.returncode} after its agent was killed")
    if not any(killed):
        raise StepFailed("no agent was found while it trained")
    sync = [sys.executable, "scripts/sync.py", f"RUN={run}"]
    if subprocess.run(sync, cwd=ROOT, check=False).returncode:
        raise StepFailed("make sync failed")
    kept = records(run)
    lines = len((run / METRICS_CSV).read_text().splitlines()) - 1
    said = f"agent {killed[0]} killed; {len(kept)} records kept, {lines} rows in {METRICS_CSV}"
    if kept[-1]["event"] != "end" or kept[-1]["status"] != COMPLETE or not lines:
        raise StepFailed(said)
    return said


def _agents(run: Path) -> list[int]:
    """Processes of this machine that follow a run, by /proc."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode(errors="replace").split("\0")
        except OSError:  # it has ended
            continue
        if "monitoring.agent" in words and str(run) in words:
            found.append(int(path.parent.name))
    return found


def views(folder: Path, device: str) -> str:
    """A scrape of a training's Prometheus exporter, which waits for one after a training that was short."""
    # Any that is free now; should another process take it meanwhile, this step fails.
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    exporter = ("--prometheus-exporter", "--prometheus-port", port, "--prometheus-linger", 60)
    process = start(folder, "views", device, "--gpu-monitor", *exporter, epochs=3 * EPOCHS)
    run = folder / "views"

    def scraped() -> str:
        if process.poll():
            return "nothing could be scraped"
        try:
            [shown] = json.loads((run / PROMETHEUS_JSON).read_text())
            with urllib.request.urlopen(f"http://{shown['targets'][0]}/metrics", timeout=5) as answer:
                text: str = answer.read().decode()
        except (OSError, ValueError):
            return ""
        return text if "training_loss" in text and (device == "cpu" or "\ngpu_" in text) else ""

    text = _wait(scraped)
    if process.wait():
        raise StepFailed(f"the training ended with {process.returncode}")
    if "training_loss" not in text:
        raise StepFailed(text)
    (folder / "scraped.txt").write_text(text)
    gpus = [line for line in text.splitlines() if line.startswith("gpu_")]
    said = f"{len(text.splitlines())} lines, {len(gpus)} of GPUs, in {folder / 'scraped.txt'}"
    if device == "cuda" and not gpus:
        raise StepFailed(f"scraped {said}")
    if device == "cuda" and not (run / GPU_STATS).exists():
        raise StepFailed(f"no {GPU_STATS}")
    return said


def matrix(folder: Path, device: str) -> str:
    """A small matrix with energy, and how evenly the GPUs were used."""
    settings = {
        "PYTHON": sys.executable,
        "VENV": "",
        "CONFIG_DEVICE": device,
        "TRACKER": "none",
        "GPU_MONITOR": "y",
        "CONFIG_NUM_EPOCHS": EPOCHS,
        "CONFIG_RESULTS_DIR": folder / "matrix",
    }
    command = ["make", "test_matrix", *(f"{name}={value}" for name, value in settings.items())]
    code = subprocess.run(command, cwd=ROOT, check=False).returncode
    if code:
        raise StepFailed(f"make test_matrix ended with {code}")
    return f"all cells are complete; the report is in {folder / 'matrix'}"


def _wait(look: Callable[[], ValueT]) -> ValueT:
    """Poll until `look` finds something, and return it; the time limit of the step bounds the wait."""
    while not (found := look()):
        time.sleep(0.05)
    return found
