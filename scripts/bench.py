"""Run the benchmarks, each in a process of its own (`make bench`, `make bench ONLY=log_step`)."""

from __future__ import annotations

import difflib
import os
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "benchmarks"


def main() -> int:
    """0 when every benchmark ran; what they measure is printed and judged by the reader."""
    names = sorted(path.stem for path in FOLDER.glob("*.py"))
    only = os.environ.get("ONLY", "")
    if only and only not in names:
        near = difflib.get_close_matches(only, names, n=1)
        print(f"error: ONLY={only} is not a benchmark", file=sys.stderr)
        print(
            f"hint: {f'did you mean {near[0]}? ' if near else ''}known: {', '.join(names)}", file=sys.stderr
        )
        return 2
    failed = []
    for name in [only] if only else names:
        print(f"== {name}", flush=True)
        if subprocess.run([sys.executable, FOLDER / f"{name}.py"], check=False).returncode != 0:
            failed.append(name)
    if failed:
        print(f"error: failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
