"""LeNet-5 as its user meets it: a command."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from monitoring import read_records

from ..few_digits import environment_of
from ..warm_python import WarmPython


@dataclass(frozen=True)
class Trained:
    """A finished `python lenet5/train.py`."""

    code: int
    out: str
    err: str
    results: Path

    @property
    def directory(self) -> Path:
        """The only run directory that it made."""
        (directory,) = (path for path in self.results.iterdir() if not path.is_symlink())
        return directory

    def records(self, event: str) -> list[dict[str, Any]]:
        found = (record for record, _ in read_records(self.directory / "metrics.jsonl"))
        return [record for record in found if record["event"] == event]


# Whatever the checkout's `.config` says, a test trains this, unless it asks for something else.
FIXED = {
    "--dataset": "mnist-subset",
    "--optimizer": "sgd",
    "--tracker": "none",
    "--device": "cpu",
    "--num-threads": "1",
}


@pytest.fixture(scope="session")
def train_command(root: Path) -> Callable[..., list[str]]:
    """The command of a training that makes its run directory in a folder."""

    def command(results: Path, *flags: str, checkout: Path = root) -> list[str]:
        script = str(checkout / "lenet5" / "train.py")
        fixed = [word for flag in FIXED.items() if flag[0] not in flags for word in flag]
        return [sys.executable, script, "--results-dir", str(results), *fixed, *flags]

    return command


@pytest.fixture
def train(
    train_command: Callable[..., list[str]], tmp_path: Path, warm_torch: WarmPython
) -> Callable[..., Trained]:
    """Run a training to its end."""
    results = tmp_path / "results"

    def run(*flags: str, **options: Path) -> Trained:
        command = train_command(results, *flags, **options)
        done = warm_torch.run(command[1:], cwd=tmp_path)
        return Trained(done.returncode, done.stdout, done.stderr, results)

    return run


@pytest.fixture
def train_few(
    train_command: Callable[..., list[str]], few_digits: Path, tmp_path: Path, warm_few: WarmPython
) -> Callable[..., Trained]:
    """The same on few digits, of which 108 are trained on: for tests of steps, and not of what is learned."""
    results, environment = tmp_path / "results", environment_of(few_digits)

    def run(*flags: str) -> Trained:
        command = train_command(results, "--dataset", "few-digits", *flags, checkout=few_digits)
        done = warm_few.run(command[1:], cwd=tmp_path, env=environment)
        return Trained(done.returncode, done.stdout, done.stderr, results)

    return run
