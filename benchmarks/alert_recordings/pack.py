"""Make one file of tests/data/alerts of the recordings in a folder.

python -m benchmarks.alert_recordings.pack FOLDER NAME

`chosen….jsonl.gz` are those that thresholds were chosen on, `held_out.jsonl.gz` those recorded after
the rules were final. Rules that are changed after a look at these need others: rename it to
chosen_NAME.jsonl.gz, and record further numbers.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Sequence
from pathlib import Path

# Significant digits that are kept.
DIGITS = {"sec_per_step": 3, "cpu_wait_seconds": 3, "machine": 2, "train_loss": 4, "grad_norm": 3}

TARGET = Path(__file__).resolve().parent.parent.parent / "tests/data/alerts"


def main(argv: Sequence[str]) -> int:
    """One file; the same bytes for the same recordings."""
    folder, name = argv
    lines = []
    for path in sorted(Path(folder).glob("*.json")):
        found = json.loads(path.read_text())
        found |= {
            name: [value and float(f"{value:.{digits}g}") for value in found[name]]
            for name, digits in DIGITS.items()
            if name in found
        }
        lines.append(json.dumps(found, separators=(",", ":"), sort_keys=True))
    text = "".join(f"{line}\n" for line in lines).encode()
    TARGET.mkdir(exist_ok=True)
    (TARGET / f"{name}.jsonl.gz").write_bytes(gzip.compress(text, 9, mtime=0))
    print(f"{name}: {len(lines)} trainings, {len(text) / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
