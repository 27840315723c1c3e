"""The share of a core that a run's agent takes beside a training that writes RATE records per second.

The training is a paced loop of `Run.log_step` with the fields of a GPT-2 step record. Its agent brings them
to the CSV, to every tracker that is installed, to the verbose log and to Prometheus, judges them by all
rules, and samples the machine and GPUS simulated GPUs (tests/simulated_nvml, needs gcc). Shares are CPU time
of each of its threads, and of the processes that it has started, over SECONDS, once every follower has
imported its packages. Then the same beside SPINNERS processes per core that do nothing but compute.

    python benchmarks/agent.py [SECONDS [idle] [busy]]
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

SIMULATED_NVML = Path(__file__).resolve().parent.parent / "tests/simulated_nvml/simulated_nvml.py"

RATE = 15
GPUS = 1
WARM = 10.0
SECONDS = 60.0
SPINNERS = 2.0
"""Per core."""
SPIN = "while True: pass"
LOADS = ("idle", "busy")

TRACKERS: dict[str, dict[str, object]] = {"tensorboard": {}, "trackio": {}, "wandb": {"offline": True}}
EXPORTERS: dict[str, dict[str, object]] = {
    "verbose_log": {"level": "ultra"},
    "prometheus": {"port": 0, "linger": 0},
}

STEP = {
    "train_loss": 5.4321987,
    "lr": 0.0009876,
    "grad_norm": 1.2345678,
    "tokens_per_sec": 18285.714,
    "samples_per_sec": 182.85714,
    "sec_per_step": 0.0635001,
    "sec_data": 0.0012345,
    "epoch_progress": 0.3333333,
    "gpu_mem_allocated": None,
    "gpu_mem_reserved": None,
    "step_mfu": 0.4321,
    "overall_mfu": 0.4123,
    "sparsity": 0.5000001,
}


def main(argv: Sequence[str]) -> None:
    """Print the shares with nothing else running, and beside processes that take every core."""
    seconds, loads = float(argv[0]) if argv else SECONDS, argv[1:] or LOADS
    found = {name: shares(name, seconds) for name in loads}
    titles = {"idle": "nothing else", "busy": f"{SPINNERS:g} spinning per core"}
    print(
        f"{RATE} records/s for {seconds:g} s: % of a core".ljust(44), *(f"{titles[it]:>30}" for it in found)
    )
    names = sorted(
        {name for each in found.values() for name in each}, key=lambda it: -found[loads[0]].get(it, 0)
    )
    for name in names:
        cells = (f"{100 * each.get(name, 0.0):.2f}" for each in found.values())
        print(f"{name:<44}", *(f"{cell:>30}" for cell in cells))
    print(f"{'all':<44}", *(f"{100 * sum(each.values()):>30.2f}" for each in found.values()))


def shares(load: str, seconds: float) -> dict[str, float]:
    """Thread, or process -> CPU seconds per second."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name, spinning(load == "busy"):
        folder = Path(name)
        with_gpus = subprocess.run(
            [sys.executable, SIMULATED_NVML, folder], stdout=subprocess.DEVNULL, check=False
        )
        (folder / "nvml.txt").write_text(f"gpus {GPUS}\nall utilization 97\nall events unsupported\n")
        environment = {
            **os.environ,
            "LD_LIBRARY_PATH": str(folder),
            "SIMULATED_NVML": str(folder / "nvml.txt"),
            "TRACKIO_DIR": str(folder / "trackio"),
            "WANDB_MODE": "offline",
            "WANDB_SILENT": "true",
        }
        if with_gpus.returncode:
            print("no GPUs: the simulated NVML was not built", file=sys.stderr)
        command = [sys.executable, __file__, "train", str(folder / "run"), str(WARM), str(seconds), *TRACKERS]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr[-2000:]}")
        found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return found


@contextlib.contextmanager
def spinning(wanted: bool) -> Iterator[None]:
    """Processes that take every core, if they are wanted."""
    count = round(SPINNERS * len(os.sched_getaffinity(0))) if wanted else 0
    spinners = [subprocess.Popen([sys.executable, "-c", SPIN]) for _ in range(count)]
    try:
        yield
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()


def train(directory: Path, warm: float, seconds: float, names: Sequence[str]) -> None:
    """Log at RATE, with an agent that is this file again; print what it has measured of itself.

    The agent brings the records to those trackers of these names that are installed.
    """
    from monitoring import Run

    trackers = {name: TRACKERS[name] for name in names if importlib.util.find_spec(name)}
    run = Run(
        directory,
        name="bench",
        project="bench",
        config={},
        trackers={**trackers, **EXPORTERS},
        gpu_monitor=True,
        machine_monitor=True,
        agent=False,
    )
    facts = {"num_epochs": 1, "num_steps": 10**6, "steps_per_epoch": 10**6, "batch_size": 16}
    run.start(model={"name": "bench", "parameters": 1, "architecture": ""}, training=facts)
    command = [sys.executable, __file__, "follow", str(directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as agent:
        assert agent.stdout is not None
        first: Mapping[str, float] = {}
        began = at = time.monotonic()
        ends = math.inf
        step = 0
        while at < ends:
            step += 1
            run.log_step(step, **STEP)
            if not first and at >= began + warm and all_follow(directory):
                first, since = used(agent), at
                ends = at + seconds
            time.sleep(max(0.0, began + step / RATE - time.monotonic()))
            at = time.monotonic()
        last = used(agent)
        run.finish()
        agent.stdout.read()
    print(json.dumps({name: (cpu - first.get(name, 0.0)) / (at - since) for name, cpu in last.items()}))


def all_follow(directory: Path) -> bool:
    """Whether every follower has imported what it needs and taken records."""
    from monitoring.agent.progress import read_progress

    found = read_progress(directory)
    return len(found) > len(EXPORTERS) and all(progress.seq for progress in found.values())


def used(agent: subprocess.Popen[str]) -> Mapping[str, float]:
    """CPU seconds of the agent's threads, which it prints when it is asked, and of its children."""
    agent.send_signal(signal.SIGUSR1)
    assert agent.stdout is not None
    found: dict[str, float] = json.loads(agent.stdout.readline())
    children = Path(f"/proc/{agent.pid}/task").glob("*/children")
    for pid in {pid for path in children for pid in path.read_text().split()}:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
        name = next((word for word in words if word.startswith("monitoring.")), words[0])
        found[f"process {name}"] = sum(
            int(path.read_text().split()[0]) / 1e9 for path in Path(f"/proc/{pid}/task").glob("*/schedstat")
        )
    return found


def follow(directory: Path) -> None:
    """The agent, in a process that also says what its threads have used."""
    from monitoring.agent import follow as agent

    signal.signal(signal.SIGUSR1, lambda *_: None)
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)

    def report() -> None:
        while os.read(reader, 1):
            found: dict[str, float] = {}
            for thread in threading.enumerate():
                if thread.ident is not None and thread is not threading.current_thread():
                    clock = time.pthread_getcpuclockid(thread.ident)
                    name = "rules, progress" if thread is threading.main_thread() else thread.name
                    found[name] = found.get(name, 0.0) + time.clock_gettime(clock)
            # threads of libraries that Python does not know
            found["other threads"] = time.process_time() - sum(found.values()) - time.thread_time()
            print(json.dumps(found), flush=True)

    threading.Thread(target=report, daemon=True, name="report").start()
    agent.main([str(directory)])


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["train", folder, warm, duration, *names]:
            train(Path(folder), float(warm), float(duration), names)
        case ["follow", folder]:
            follow(Path(folder))
        case argv:
            main(argv)
