"""Twelve steps, of which the first attempt does eight: `python checkpoints.py FILE EVERY`."""

from __future__ import annotations

import sys
from pathlib import Path

FILE, EVERY = Path(sys.argv[1]), int(sys.argv[2])

is_first = not FILE.exists()
done = 0 if is_first else int(FILE.read_text())
FILE.write_text(str(done))
print("0 hp_metric=-1")  # as Lightning has it at step 0 of each start
for step in range(done + 1, 13):
    print(f"step {step} loss {1 / step:.4f}", flush=True)
    if step % EVERY == 0:
        FILE.write_text(str(step))
    if is_first and step == 8:
        sys.exit(3)
