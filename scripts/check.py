"""Run lint, types and tests, as CI does (`make check`)."""

from __future__ import annotations

import concurrent.futures
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
# Programs of the system that tests need: program -> (its Debian packages, what is not tested without it).
SYSTEM_PROGRAMS = {
    "gcc": ("gcc libc6-dev", "how GPUs are sampled, on a simulated NVML"),
    "chromium-headless-shell": ("chromium-headless-shell", "that the page of a report works in a browser"),
    "promtool": ("prometheus", "the exporter, the dashboard and the alert rules with a real Prometheus"),
    "tmux": ("tmux", "the dashboard in a real terminal"),
    "kconfig-conf": ("kconfig-frontends-nox", "that C conf and kharness write the same .config"),
}


def main() -> int:
    """0 when all checks pass; the tests come last, so their closing line ends the output."""
    complete = install_system_programs()
    checks: dict[str, list[Path | str]] = {
        "ruff format": [BIN / "ruff", "format", "--check", "--quiet", "."],
        "ruff check": [BIN / "ruff", "check", "--quiet", "."],
        "mypy": [BIN / "mypy"],
    }
    # pytest prints as it goes; the short checks share its first seconds.
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        short = pool.submit(lambda: [timed(name, command) for name, command in checks.items()])
        # Neighbours stay together, so that what a module's tests share is made once. Two workers more than
        # there are cores: a third of the time tests wait for agents, browsers and servers.
        workers = ["-n", str(len(os.sched_getaffinity(0)) + 2), "--dist", "worksteal"]
        tests = subprocess.run(
            [BIN / "pytest", *workers, "-rs", "--durations=10"], cwd=ROOT, check=False
        ).returncode
        failed = [name for name, code in short.result() if code != 0] + (["pytest"] if tests else [])
        failed += [] if complete else ["what the tests need"]
    if failed:
        print(f"error: failed: {', '.join(failed)}", file=sys.stderr)
        return 1
    print("all checks passed: " + ", ".join([*checks, "pytest"]))
    return 0


def missing_programs() -> dict[str, str]:
    """Debian packages of the programs that are not there -> what is not tested without them."""
    return {
        packages: what for program, (packages, what) in SYSTEM_PROGRAMS.items() if not shutil.which(program)
    }


def install_system_programs() -> bool:
    """Install what the tests need where that takes no password, and say what will be skipped.

    False if something is missing in CI, where nothing may be skipped.
    """
    missing = missing_programs()
    if missing and os.geteuid() == 0 and shutil.which("apt-get"):
        packages = " ".join(missing).split()
        print(f"check: installing {', '.join(packages)}", flush=True)
        install = ["install", "-y", "--no-install-recommends", *packages]
        if not apt_get(install):
            apt_get(["update"])  # a new machine has no list of packages yet
            apt_get(install)
        missing = missing_programs()
    for names, what in missing.items():
        print(f"check: without the system's {names} it is not tested {what}", flush=True)
    return not (missing and os.environ.get("CI") == "true")


def apt_get(arguments: list[str]) -> bool:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    command = ["apt-get", "-qq", *arguments]
    return subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=False).returncode == 0


def timed(name: str, command: list[Path | str]) -> tuple[str, int]:
    """Run one check and print its output as one block."""
    start = time.monotonic()
    done = subprocess.run(
        command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    verdict = "passed" if done.returncode == 0 else "FAILED"
    print(f"check: {name} {verdict} in {time.monotonic() - start:.0f} s\n{done.stdout}", end="", flush=True)
    return name, done.returncode


if __name__ == "__main__":
    sys.exit(main())
