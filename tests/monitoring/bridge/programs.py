"""Programs that train for a moment and report as their authors like; none knows the bridge.

`python programs.py KIND STEPS PAUSE [KEPT [SCALE]]`: so many steps with a pause in seconds after each. Every
tenth it notes in the file KEPT, and goes on from there; beside it, in `pid`, its process. Losses are SCALE
times the usual.
"""

from __future__ import annotations

import csv
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

KIND, STEPS, PAUSE = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
KEPT = Path(sys.argv[4]) if len(sys.argv) > 4 else None
SCALE = float(sys.argv[5]) if len(sys.argv) > 5 else 1.0

# Of the tracker's own, of anybody's, secret, and of the run's own.
CONFIG = {
    "_wandb": {"a": 1},
    "lr": 0.5,
    "LR2": 3,
    "model": {"depth": 2, "act": {"name": "relu"}},
    "betas": [0.9, 0.99],
    "amp": True,
    "scheduler": None,
    "api_key": "abc",
    "out": os.environ.get("MONITORING_SPOOL", ""),
    "labels": {str(number): f"label {number}" for number in range(600)},
}


def without(name: str) -> dict[str, object]:
    return {option: CONFIG[option] for option in CONFIG if option != name}


if KEPT:
    KEPT.with_name("pid").write_text(f"{os.getpid()}\n")


def loss(step: int) -> float:
    """A value that no short decimal is."""
    return SCALE * 4 / (step + 1)


def each(log: Callable[[int], object]) -> None:
    first = int(KEPT.read_text()) if KEPT and KEPT.exists() else 0
    for step in range(first, STEPS):
        log(step)
        time.sleep(PAUSE)
        if KEPT and step % 10 == 9:
            new = KEPT.with_name(f"{KEPT.name}.new")
            new.write_text(str(step + 1))
            new.replace(KEPT)


if KIND == "nanogpt":
    each(lambda step: print(f"iter {step}: loss {loss(step):.4f}, time {12.5:.2f}ms, mfu {1.25:.2f}%"))
elif KIND == "torchtitan":
    each(
        lambda step: print(
            f"[titan] \x1b[31mstep: {step:2}  \x1b[32mloss: {loss(step):7.4f}  \x1b[38;2;180;60;0mgrad_norm:"
            f"  1.2500  \x1b[34mmemory: 10.25GiB(10.80%)  \x1b[33mtps: 1,234  "
            f"\x1b[36mtflops: 1.50  mfu: 2.50%\x1b[39m"
        )
    )
elif KIND == "hugging_face":
    each(lambda step: print({"loss": f"{loss(step):.4g}", "learning_rate": "1e-05", "epoch": "0.5"}))
    print({"train_runtime": "4.6", "train_loss": "3.5", "epoch": "0.5"})  # of the whole training
elif KIND == "hugging_face with a bar":  # as its callback prints, with an evaluation
    from tqdm import tqdm

    bar = tqdm(total=2 * STEPS, dynamic_ncols=True)
    for number in range(1, STEPS + 1):
        bar.update(2)
        bar.write(str({"loss": f"{loss(number):.4g}", "epoch": f"{number / STEPS:.4g}"}))
        if number == 3:
            below = tqdm(total=9)
            below.update(5)
            bar.write(str({"eval_loss": "0.5", "epoch": "0.25"}))
            below.close()
        time.sleep(PAUSE)
    bar.close()
    print({"eval_loss": 0.25, "epoch": 1.0})
elif KIND == "own":
    each(lambda step: print(f"it={step:05d} | error {loss(step):.3e}"))
elif KIND == "wandb":
    import wandb

    wandb.init(project="p", mode="offline", config=without("labels"))
    wandb.config.update({"lr": 0.25, "batch": 8}, allow_val_change=True)
    each(lambda step: wandb.log({"train/loss": loss(step), "nested": {"a": step}, "val/acc": step / 7}, step))
    wandb.finish()
elif KIND == "trackio":
    import trackio

    trackio.init(project="p", name="a", config=without("_wandb"))
    each(
        lambda step: trackio.log({"train/loss": loss(step), "nested": {"a": step}, "val/acc": step / 7}, step)
    )
    trackio.finish()
elif KIND in ("tensorboard", "scalars"):
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter("runs/a", flush_secs=1) as writer:
        each(lambda step: [writer.add_scalar(*pair, step) for pair in (("loss", loss(step)), ("lr", 0.5))])
        if KIND == "scalars":
            each(lambda step: writer.add_scalars("acc", {"a": step / 4, "b": step / 8}, step))
            writer.add_hparams({"lr": 0.5, "LR2": 3, "model/act": "relu", "amp": True}, {})
elif KIND == "mlflow":
    import mlflow

    with mlflow.start_run():
        each(lambda step: mlflow.log_metrics({"loss": loss(step), "val_acc": step / 7}, step=step))
        mlflow.log_params(without("labels") | {"name": "007"})
elif KIND == "csv":
    with Path("own.csv").open("w", buffering=1, newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["step", "loss", "note"])
        each(lambda step: rows.writerow([step, loss(step), "a, b"]))
elif KIND == "jsonl":
    with Path("own.jsonl").open("w", buffering=1) as file:
        each(lambda step: file.write(json.dumps({"step": step, "loss": loss(step)}) + "\n"))
elif KIND == "run":
    from monitoring import Run

    with Run("results/own", name="own", project="p", config={"x": 1}) as run:
        run.start(model={"name": "m", "parameters": 3, "architecture": "a"}, training={"num_steps": STEPS})
        each(lambda step: run.log_step(step, train_loss=loss(step)))
        run.log_eval(STEPS, split="val", val_loss=0.5)
elif KIND == "trackio and output":
    import trackio

    trackio.init(project="p", name="a")
    each(
        lambda step: (
            trackio.log({"loss": loss(step)}),
            print(f"iter {step}: loss {loss(step):.4f}, time 9ms"),
        )
    )
    trackio.finish()
elif KIND == "two":
    import trackio
    from torch.utils.tensorboard import SummaryWriter

    trackio.init(project="p", name="a")
    with SummaryWriter("runs/a", flush_secs=1) as writer:
        each(
            lambda step: (
                trackio.log({"train/loss": loss(step)}, step),
                [writer.add_scalar(*pair, step) for pair in (("loss", loss(step)), ("lr", loss(step) / 8))],
                print(f"iter {step}: loss {loss(step):.4f}, time 9ms"),
            )
        )
    trackio.finish()
elif KIND == "both":
    import wandb
    from torch.utils.tensorboard import SummaryWriter

    wandb.init(project="p", mode="offline")
    with SummaryWriter("runs/a", flush_secs=1) as writer:
        each(
            lambda step: (
                wandb.log({"train/loss": loss(step)}, step),  # type: ignore[func-returns-value]
                [writer.add_scalar(*pair, step) for pair in (("loss", loss(step)), ("lr", loss(step) / 8))],
            )
        )
    wandb.finish()
elif KIND == "quiet":
    each(lambda step: print("working", flush=True))
else:
    sys.exit(f"unknown kind {KIND}")
print("done")
