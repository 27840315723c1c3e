"""Make tests/data/alerts of the recordings in a folder: those to choose thresholds on, and those to judge by.

python -m benchmarks.alert_recordings.pack FOLDER CHOSEN

Rules that are changed after a look at how they do on held_out.jsonl.gz need others to be judged by: rename it
to chosen_NAME.jsonl.gz, record further numbers, and name the file of those to choose on CHOSEN.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Sequence
from pathlib import Path

DIGITS = {"sec_per_step": 3, "cpu_wait_seconds": 3, "machine": 2, "train_loss": 4, "grad_norm": 3}

TARGET = Path(__file__).resolve().parent.parent.parent / "tests/data/alerts"

# Every third round of the kinds is to choose on; all kinds and models are in both parts, and no seed is.
ROUND = 32


def main(argv: Sequence[str]) -> int:
    """Two files; the same bytes for the same recordings."""
    chosen = argv[1]
    parts: dict[str, list[str]] = {chosen: [], "held_out": []}
    for path in sorted(Path(argv[0]).glob("*.json")):
        found = json.loads(path.read_text())
        part = "held_out" if found["number"] // ROUND % 3 else chosen
        found |= {
            name: [value and float(f"{value:.{digits}g}") for value in found[name]]
            for name, digits in DIGITS.items()
            if name in found
        }
        parts[part].append(json.dumps(found, separators=(",", ":"), sort_keys=True))
    TARGET.mkdir(exist_ok=True)
    for name, lines in parts.items():
        text = "".join(f"{line}\n" for line in lines).encode()
        (TARGET / f"{name}.jsonl.gz").write_bytes(gzip.compress(text, 9, mtime=0))
        print(f"{name}: {len(lines)} trainings, {len(text) / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
