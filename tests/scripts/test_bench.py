"""`make bench`: which benchmarks there are."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path


def test_unknown_benchmark_lists_the_known_ones(root: Path) -> None:
    names = sorted(path.stem for path in (root / "benchmarks").glob("*.py"))
    command = [sys.executable, str(root / "scripts" / "bench.py")]
    environment = {**os.environ, "ONLY": "log_stp"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"error: ONLY=log_stp is not a benchmark\nhint: did you mean log_step? known: {', '.join(names)}\n"
    )


def test_a_reader_that_leaves_ends_no_benchmark(root: Path, tmp_path: Path) -> None:
    """`make bench | head -1`: what is measured may be written somewhere, too."""
    for folder in ("scripts", "benchmarks"):
        (tmp_path / folder).mkdir()
    shutil.copy(root / "scripts/bench.py", tmp_path / "scripts")
    written = "for _ in range(9):\n    print('x' * 80, flush=True)\nopen('measured', 'w').close()\n"
    (tmp_path / "benchmarks/some.py").write_text(written)
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, tmp_path / "scripts/bench.py"], stdout=write, stderr=write, cwd=tmp_path, check=False
    )
    os.close(write)
    assert (done.returncode, (tmp_path / "measured").exists()) == (0, True)


def test_the_statistics_of_a_benchmark_are_the_standard_library_s(root: Path) -> None:
    """A script's folder comes first on its path, and one of these is called statistics.py."""
    code = "import statistics; print(statistics.fmean([1, 2]), statistics.__file__)"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=root / "benchmarks", capture_output=True, text=True, check=True)
    mean, path = done.stdout.split(maxsplit=1)
    assert (mean, Path(path.strip()).parent) == ("1.5", Path(os.__file__).parent)
