"""A training that knows nothing of kharness: `python trains.py --lr X --seed N [--steps N] [--pause S]`.

A larger learning rate is better, by far more than its seeds differ. With `--hold FILE` it waits before step
20 for as long as the file is there.
"""

from __future__ import annotations

import argparse
import os
import random
import time

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, required=True)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--steps", type=int, default=10)
parser.add_argument("--pause", type=float, default=0.0)
parser.add_argument("--hold", default="")
parser.add_argument("--out", default="")
parser.add_argument("--fast", action="store_true")
given = parser.parse_args()

noise = random.Random(f"{given.seed} {given.lr}")
for step in range(1, given.steps + 1):
    while step == 20 and os.path.exists(given.hold):
        time.sleep(0.05)
    loss = 1 / (given.lr * step) + noise.gauss(0, 0.001)
    print(f"iter {step}: loss {loss:.4f}, time 10.00ms", flush=True)
    time.sleep(given.pause)
print(f"step {given.steps}: train loss {loss:.4f}, val loss {loss + 0.1:.4f}")
print(f"out={given.out} fast={given.fast}")
