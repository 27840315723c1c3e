"""Train many settings, good and bad ones, and keep what alert rules see of each: losses, gradients, step
times.

python -m benchmarks.alert_recordings.record FOLDER [FIRST LAST [MODEL or KIND …]]

One process at a time, each a fork of this one, which has imported torch. FOLDER/NUMBER.json is what a
training has come to; `pack.py` makes tests/data/alerts of them. Recordings that are there already are left.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.alert_recordings.faults import inject
from benchmarks.alert_recordings.settings import Burst, Setting, setting
from kharness.training import opening
from kharness.training.forkserver.forked import run_script
from kharness.training.forkserver.server import preload
from kharness.training.opening import open_run

ROOT = Path(__file__).resolve().parent.parent.parent

COLUMNS = ("train_loss", "grad_norm", "sec_per_step")
DIGITS = 4

# Where the wall clock counts.
TIMES = ("time", "cpu_wait_seconds")


def main(argv: Sequence[str]) -> int:
    """Record the settings FIRST to LAST."""
    folder = Path(argv[0])
    first, last = (int(argv[1]), int(argv[2])) if len(argv) > 2 else (0, 800)
    folder.mkdir(parents=True, exist_ok=True)
    preload()
    for number in range(first, last):
        path = folder / f"{number:04}.json"
        before, wanted = time.monotonic(), setting(number)
        if path.exists() or {wanted.model, wanted.kind}.isdisjoint(argv[3:] or [wanted.model]):
            continue
        work = Path(tempfile.mkdtemp(prefix="alerts-"))  # a TemporaryDirectory is removed by each fork's exit
        with other_work(wanted.bursts):
            status = [trained(wanted, work, steps) for steps in _attempts(wanted)]
        if (work / "run/metrics.jsonl").exists():
            found = recorded(wanted, work, status)
            path.write_text(json.dumps(found))
        else:
            found = {"status": (work / "output.log").read_text()[-2000:], "evals": []}
        shutil.rmtree(work)
        seconds = time.monotonic() - before
        print(
            f"{number} {wanted.kind} {wanted.model} {found['status']} {found['evals'][-1:]} {seconds:.1f} s",
            flush=True,
        )
    return 0


def _attempts(wanted: Setting) -> list[int]:
    """The step after which each attempt ends."""
    return [wanted.steps] if wanted.stops_after is None else [wanted.stops_after, wanted.steps]


def trained(wanted: Setting, work: Path, until: int) -> int:
    """The exit status of an attempt, which a fork of this process makes; its output is WORK/output.log."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    status = 1
    try:
        output = os.open(work / "output.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(ROOT)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        _without_agent()
        clock = inject(wanted.faults, steps=wanted.steps, seed=wanted.number, by_work=not wanted.bursts)
        if until < wanted.steps:
            _stop_after(until)
        flags = [word for name, value in wanted.flags.items() for word in (f"--{name}", value)]
        own = ["--run-dir", str(work / "run"), "--tracker", "none", "--device", "cpu"]
        own += ["--num-threads", str(wanted.threads)]
        status = run_script([f"{wanted.model}/train.py", *flags, *own])
        with (work / "machine").open("a") as file:
            file.writelines(f"{seconds}\n" for seconds in clock.machine)
    except BaseException:  # noqa: BLE001 - a fork must not go on as its parent
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)


@contextmanager
def other_work(bursts: Sequence[Burst]) -> Iterator[None]:
    """Processes that take the processors from a training, in bursts."""
    pids, parent = [], os.getpid()
    for burst in bursts:
        pid = os.fork()
        if not pid:
            time.sleep(burst.begins)
            while os.getppid() == parent:
                until = time.monotonic() + burst.busy
                while time.monotonic() < until:
                    pass
                time.sleep(burst.idle)
            os._exit(0)
        pids.append(pid)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _without_agent() -> None:
    def alone(*given: Any, **named: Any) -> Any:
        return open_run(*given, **{**named, "is_followed": False})

    vars(opening)["open_run"] = alone


def _stop_after(step: int) -> None:
    """Stop the training after this step, as a signal does."""
    from kharness.training.steps.training import Training

    update = Training.update

    def updated(self: Training[Any], *given: Any, **named: Any) -> None:
        update(self, *given, **named)
        if self.step == step:
            os.kill(os.getpid(), signal.SIGTERM)

    Training.update = updated  # type: ignore[method-assign]


def recorded(wanted: Setting, work: Path, status: Sequence[int]) -> dict[str, Any]:
    """The records of a run's journal, as columns."""
    records = [json.loads(line) for line in (work / "run/metrics.jsonl").open()]
    machine = [float(line) for line in (work / "machine").open()]
    steps = [record for record in records if record["event"] == "step"]
    starts = [
        sum(it["event"] == "step" for it in records[:place])
        for place, record in enumerate(records)
        if record["event"] == "start"
    ]
    evals = [
        [it["global_step"], _short(it["val_loss"]), it.get("val_accuracy")]
        for it in records
        if it["event"] == "eval" and "val_loss" in it
    ]
    [end] = [record for record in records if record["event"] == "end"][-1:] or [{}]
    begun = records[0]["time"]
    timed = [{**record, "time": record["time"] - begun} for record in steps] if wanted.bursts else []
    return {
        "number": wanted.number,
        "kind": wanted.kind,
        "model": wanted.model,
        "num_steps": wanted.steps,
        "chance_loss": _short(records[0].get("chance_loss")),
        "rate_factor": _short(wanted.rate_factor),
        "flags": wanted.flags,
        "faults": [vars(fault) for fault in wanted.faults],
        "exits": list(status),
        "status": end.get("status"),
        "starts": starts,
        "step": [record["global_step"] for record in steps],
        "evals": evals,
        **{name: [_short(record.get(name)) for record in steps] for name in COLUMNS},
        **({name: [_short(it[name]) for it in timed] for name in TIMES} if timed else {}),
        "machine": [_short(seconds) for seconds in machine[: len(steps)]],
        "nonfinite": [place for place, record in enumerate(steps) if record.get("nonfinite")],
    }


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{DIGITS}g}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
