"""`make bench`: which benchmarks there are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_unknown_benchmark_lists_the_known_ones(root: Path) -> None:
    names = sorted(path.stem for path in (root / "benchmarks").glob("*.py"))
    command = [sys.executable, root / "scripts" / "bench.py"]
    environment = {**os.environ, "ONLY": "log_stp"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"error: ONLY=log_stp is not a benchmark\nhint: did you mean log_step? known: {', '.join(names)}\n"
    )
