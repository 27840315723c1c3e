"""Run lint, types and tests, as CI does (`make check`)."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

from kharness.config.errors import run_command
from kharness.config.make import variables as make_variables
from monitoring.errors import print_error
from monitoring.outside import outside

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
# What system_programs.py exits with in CI where a program is missing.
INCOMPLETE = 3
# mypy, less a fifth of its time: it looks for garbage, of which there is next to none, again and again.
MYPY = (
    "import gc; gc.enable = gc.disable; gc.disable(); from mypy.__main__ import console_entry as run; run()"
)
# Seconds that tests have to end what they have started, after a Ctrl-C.
LONGEST_END = 30.0


def main(argv: Sequence[str]) -> int:
    """0 when all checks pass; the tests come last, so their closing line ends the output.

    Of a model outside of the tree its tests are all.
    """
    make_variables.given(argv, os.environ, "check", root=ROOT)
    if folder := outside():
        own = [sys.executable, "-P", "-m", "pytest", "-c", os.devnull, str(folder)]
        return subprocess.run(own, cwd=folder, check=False).returncode
    programs = subprocess.run(
        [sys.executable, ROOT / "scripts" / "system_programs.py"], check=False
    ).returncode
    if programs not in (0, INCOMPLETE):
        return programs
    checks: dict[str, list[Path | str]] = {
        "ruff format": [BIN / "ruff", "format", "--check", "--quiet", "."],
        "ruff check": [BIN / "ruff", "check", "--quiet", "."],
        "mypy": [sys.executable, "-P", "-c", MYPY],
    }
    # In a clone as old as its files git reads all of them whenever it is asked for their state, as each
    # run of a test asks it, until it has noted once that they are as they were.
    subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, stdout=subprocess.DEVNULL, check=False)
    # pytest prints as it goes; the short checks share its first seconds.
    with Beside(checks) as short:
        # Neighbors stay together, so that what a module's tests share is made once. Four workers more than
        # there are cores: a third of the time tests wait for agents, browsers and servers.
        count = len(os.sched_getaffinity(0)) + 4
        worker = [sys.executable, str(ROOT / "tests" / "warm_worker.py"), "worker_imports"]
        workers = ["--tx", f"{count}*popen//python={shlex.join(worker)}", "--dist", "worksteal"]
        tests = ended_by_itself([BIN / "pytest", *workers, "-rs", "--durations=10"])
        failed = short.failed() + (["pytest"] if tests else [])
        failed += [] if programs == 0 else ["what the tests need"]
    if failed:
        print_error(f"failed: {', '.join(failed)}")
        return 1
    print("all checks passed: " + ", ".join([*checks, "pytest"]))
    return 0


def ended_by_itself(command: Sequence[Path | str]) -> int:
    """Exit code of a program; of one that has Ctrl-C as well once it has ended what it had started.

    Tests start daemons, such as Slurm's, which no signal of a terminal reaches.
    """
    with subprocess.Popen(command, cwd=ROOT) as process:
        try:
            return process.wait()
        except KeyboardInterrupt:
            print(f"\ncheck: waiting up to {LONGEST_END:.0f} s for the tests to clean up", file=sys.stderr)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(LONGEST_END)
            process.kill()
            raise


class Beside:
    """Checks that run one after the other, beside what the block does; one that is left early ends them."""

    def __init__(self, checks: Mapping[str, Sequence[Path | str]]) -> None:
        self._checks = checks
        self._process: subprocess.Popen[str] | None = None
        self._ends = False
        self._pool = ThreadPoolExecutor(1)

    def __enter__(self) -> Beside:
        self._names = self._pool.submit(self._run)
        return self

    def failed(self) -> list[str]:
        """The names of those that failed, once all have ended."""
        return self._names.result()

    def __exit__(self, kind: type[BaseException] | None, *_: BaseException | TracebackType | None) -> None:
        self._ends = kind is not None
        # mypy answers Ctrl-C when it has read all files, a minute later in a fresh clone
        if self._ends and self._process:
            self._process.kill()
        self._pool.shutdown()

    def _run(self) -> list[str]:
        """Print the output of each check as one block; the names of those that failed."""
        failed = []
        for name, command in self._checks.items():
            start = time.monotonic()
            with subprocess.Popen(
                command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            ) as self._process:
                if self._ends:  # since it was last looked for what there is to be killed
                    self._process.kill()
                output, _ = self._process.communicate()
            if self._ends:
                break
            verdict = "FAILED" if self._process.returncode else "passed"
            seconds = time.monotonic() - start
            print(f"check: {name} {verdict} in {seconds:.0f} s\n{output}", end="", flush=True)
            failed += [name] if self._process.returncode else []
        return failed


if __name__ == "__main__":
    run_command(main)
