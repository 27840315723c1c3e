"""Trains in forks of one process that has imported torch, and ends most of them by a signal.

    python crashes.py TRAIN_PY DIRECTORY SEED PLAN FLAG…

PLAN is words: `kill` (at a random moment), `save` (SIGKILL in or right after a save), `damage` (a random
SIGKILL, then a flipped bit in the newest checkpoint), and TERM and USR1, once the training has begun.
DIRECTORY/whole is trained undisturbed; DIRECTORY/run-1 is ended as planned and resumed. Where a run completes
before a word's moment comes, the word is for the next one: run-2 and so on. More words `save` follow until
one has ended a run in the middle of a save. One JSON object an ended or complete process says what happened.
This process runs no tensor operation, which its forks would not survive.
"""

from __future__ import annotations

import json
import os
import random
import runpy
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from kharness.training.forkserver.server import preload


def main(program: Path, directory: Path, seed: int, plan: Sequence[str], flags: Sequence[str]) -> None:
    chance = random.Random(seed)
    results = ["--results-dir", str(directory), *flags]
    whole = start(program, [*results, "--tracker-run-name", "whole"], directory / "whole.log")
    finish(whole)
    number, left, lacks_inside = 1, list(plan), "save" in plan
    while left or lacks_inside:
        word = left[0] if left else "save"
        run = directory / f"run-{number}"
        went_on = ["--run-dir", str(run)] if run.exists() else [*results, "--tracker-run-name", run.name]
        child = start(program, went_on, directory / f"{run.name}.log")
        said = end(word, child, run, chance)
        print(json.dumps({"word": word, "run": run.name, **said}), flush=True)
        if said.get("exit_code") == 0:  # it was complete before its moment came
            number += 1
        else:
            lacks_inside = lacks_inside and not said.get("inside")
            left = left[1:]
    run = directory / f"run-{number}"
    if run.exists():
        finish(start(program, ["--run-dir", str(run)], directory / f"{run.name}.log"))


def start(program: Path, arguments: Sequence[str], log: Path) -> int:
    """Run the program in a fork, its output appended to a log."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.path[0] = str(program.parent)
        sys.argv = [str(program), *arguments]
        runpy.run_path(str(program), run_name="__main__")
    except SystemExit as left:
        code = int(left.code or 0)
    finally:
        sys.stdout.flush()
        os._exit(code)


def finish(child: int) -> None:
    _, status = os.waitpid(child, 0)
    assert status == 0, status


def end(word: str, child: int, run: Path, chance: random.Random) -> dict[str, object]:
    """End a training as planned; `exit_code` if it ended by itself or on request."""
    before = lines(run)
    moment: Callable[[], bool]
    if word == "save":
        moment = lambda: bool(unfinished(run, child))  # noqa: E731
    elif word == "kill" and chance.random() < 0.2:
        until = time.monotonic() + chance.random() * 0.3
        moment = lambda: time.monotonic() > until  # noqa: E731
    else:
        wanted = before + chance.randint(1, 12)
        moment = lambda: lines(run) >= wanted  # noqa: E731
    status = None
    while status is None and not moment():
        time.sleep(0.001)
        ended, code = os.waitpid(child, os.WNOHANG)
        status = code if ended else None
    if status is None:
        if word == "save":  # some of it is written, or all of it, or it has its name and no record
            time.sleep(max(0.0, chance.random() - 0.5) * 0.012)
        number = signal.SIGKILL if word in ("kill", "save", "damage") else signal.Signals[f"SIG{word}"]
        os.kill(child, number)
        status = os.waitpid(child, 0)[1]
    said: dict[str, object] = {"lines": lines(run) - before}
    if os.WIFEXITED(status):
        return {**said, "exit_code": os.WEXITSTATUS(status)}
    if os.WTERMSIG(status) != signal.SIGKILL:  # it was complete, and its handlers were gone
        return {**said, "exit_code": 0}
    if word == "save":
        said["inside"] = bool(unfinished(run, child))
    if word == "damage":
        said["damaged"] = damage(run)
    return said


def lines(run: Path) -> int:
    try:
        return (run / "metrics.jsonl").read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0


def unfinished(run: Path, writer: int) -> list[Path]:
    return list((run / "checkpoints").glob(f".attempt*.{writer}.*.tmp"))


def damage(run: Path) -> str | None:
    """Flip a bit in the newest checkpoint, which may have a second name."""
    newest = max((run / "checkpoints").glob("attempt*.pt"), default=None)
    if newest is None:
        return None
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    return newest.name


if __name__ == "__main__":
    torch.set_num_threads(1)
    preload()
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4].split(), sys.argv[5:])
