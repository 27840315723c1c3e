"""Run pytest as if it were another time.

python tests/another_clock.py "2026-12-31 23:59:50" UTC [ARGUMENT …]

The clock is libfaketime's (Debian: faketime); the time of day alone is moved, for pytest and what it
starts. A static program such as Prometheus keeps the real one, so tests that compare the two are skipped.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

# libfaketime 0.9.10 subtracts the moved clock from a sleep by the monotonic one, which is not moved, and so
# every time.sleep() fails: the kernel is asked directly.
SLEEP = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_nanosleep(clockid_t clock, int flags, const struct timespec *until, struct timespec *left)
{
	return syscall(SYS_clock_nanosleep, clock, flags, until, left) ? errno : 0;
}
"""


def main(argv: list[str]) -> int:
    """pytest's exit code; 2 with what is missing."""
    if len(argv) < 2:
        print(
            "error: a time and a time zone are needed\nhint: read the first lines of this script",
            file=sys.stderr,
        )
        return 2
    libraries = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    if not libraries:
        print("error: libfaketime is not installed\nhint: apt-get install faketime gcc", file=sys.stderr)
        return 2
    moment = datetime.fromisoformat(argv[0]).replace(tzinfo=ZoneInfo(argv[1])).timestamp()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "sleep.c").write_text(SLEEP)
        sleep = Path(folder) / "sleep.so"
        subprocess.run(["gcc", "-shared", "-fPIC", "-O2", "-o", sleep, Path(folder) / "sleep.c"], check=True)
        environment = {
            **os.environ,
            "TZ": argv[1],
            "FAKETIME": f"{moment - time.time():+.0f}",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "LD_PRELOAD": f"{sleep}:{libraries[0]}",
        }
        command = [sys.executable, "-m", "pytest", *argv[2:]]
        return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
