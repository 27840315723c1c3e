"""A training with the habits of nanoGPT's train.py: what it prints, its options, when it keeps what.

`python nano.py --out_dir=out --max_iters=100 [--init_from=resume]`. Its checkpoint, which holds the step
at which it goes on, is written after an evaluation, but never after the first; unlike nanoGPT's it is there
as a whole.
"""

from __future__ import annotations

import pickle
import sys
import time
from pathlib import Path

options: dict[str, str] = {
    "out_dir": "out",
    "init_from": "scratch",
    "max_iters": "100",
    "eval_interval": "20",
    "learning_rate": "1",
    "pause": "0",
}
for word in sys.argv[1:]:
    name, _, value = word.removeprefix("--").partition("=")
    assert name in options, f"Unknown config key: {name}"
    print(f"Overriding: {name} = {value}")
    options[name] = value

out = Path(options["out_dir"])
out.mkdir(parents=True, exist_ok=True)
first, weight = 0, 2.0
if options["init_from"] == "resume":
    print(f"Resuming training from {out}")
    with (out / "ckpt.pt").open("rb") as file:
        checkpoint = pickle.load(file)
    first, weight = checkpoint["iter_num"], checkpoint["weight"]
for step in range(first, int(options["max_iters"]) + 1):
    if step % int(options["eval_interval"]) == 0:
        print(f"step {step}: train loss {weight:.4f}, val loss {weight + 0.1:.4f}")
        if step > 0:
            print(f"saving checkpoint to {out}")
            (out / "new").write_bytes(pickle.dumps({"iter_num": step, "weight": weight}))
            (out / "new").replace(out / "ckpt.pt")
    print(f"iter {step}: loss {weight:.4f}, time {1.25:.2f}ms, mfu {-100:.2f}%")
    weight -= 0.01 * weight * float(options["learning_rate"])
    time.sleep(float(options["pause"]))
