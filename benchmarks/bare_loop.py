"""How much longer a step of each train.py is than one of a bare loop, paired, on a GPU or the CPU.

    python benchmarks/bare_loop.py [DEVICE [PAIRS]]      # cuda where there is a GPU; 9

The bare loop has a copy of the model, the same batches and torch's own optimizer, and does nothing else:
zero_grad, forward, loss, backward, and clipping where train.py clips. Ours has a record of every step, or of
every 50th; with everything it has GPU and machine monitoring, timers and counted FLOPs as well. Windows of
STEPS steps by turns, each until the device is done; the losses of the first window are compared.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import io
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kharness.config.options import begin_script
from kharness.training.opening import open_training

ROOT = begin_script(str(Path(__file__).parent.parent / "lenet5/train.py"), __file__, about="")
sys.path.insert(0, str(ROOT))

PAIRS, STEPS, WARM_UP = 9, 40, 2
RATE = 0.001
EVERYWHERE = [
    "--schedule",
    "constant",
    "--learning-rate",
    str(RATE),
    "--weight-decay",
    "0",
    "--tracker",
    "none",
]
EVERYWHERE += ["--checkpoint-every", "0", "--eval-interval", "1000000", "--max-steps", "1000000"]


def sgd(weights: Iterable[Tensor]) -> torch.optim.Optimizer:
    return torch.optim.SGD(weights, lr=RATE, momentum=0.9, nesterov=True)


def adamw(weights: Iterable[Tensor]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(weights, lr=RATE, betas=(0.9, 0.95), weight_decay=0, fused=True)


class Compared(NamedTuple):
    """One training, and what its bare loop is made of."""

    model: str
    flags: Sequence[str]
    optimizer: Callable[[Iterable[Tensor]], torch.optim.Optimizer]
    clip_norm: float | None = None


TRAININGS = {
    "LeNet-5, 64 digits": Compared(
        "lenet5", ["--optimizer", "sgd", "--dataset", "mnist-subset", "--batch-size", "64"], sgd
    ),
    "ResNet-50, 64 digits": Compared(
        "resnet50",
        ["--optimizer", "sgd", "--batch-size", "64", "--resnet50-label-smoothing", "0"],
        sgd,
    ),
    "GPT-2 tiny, 16 x 64 tokens": Compared(
        "gpt2", ["--optimizer", "adamw", "--batch-size", "16"], adamw, 1.0
    ),
    "GPT-2 124m, 16 x 1,024 tokens": Compared(
        "gpt2",
        ["--optimizer", "adamw", "--gpt2-size", "124m", "--batch-size", "16", "--micro-batch-size", "16"],
        adamw,
        1.0,
    ),
}
WATCHERS = ["--gpu-monitor", "--machine-monitor", "--include-performance-metrics", "--include-timer-metrics"]
OURS = {
    "a record of each 50th step": ["--log-every", "50"],
    "a record of each step": ["--log-every", "1"],
    "with everything": ["--log-every", "1", *WATCHERS],
}

Window = Callable[[], float]
"""Trains STEPS steps and returns the last loss."""


@contextlib.contextmanager
def our_window(
    compared: Compared, folder: Path, flags: Sequence[str]
) -> Iterator[tuple[Window, Any, list[Tensor]]]:
    """The loop of a train.py, its training, and the indices of the batches of the last window."""
    train = importlib.import_module(f"{compared.model}.train")
    given = [*compared.flags, *EVERYWHERE, *flags, "--run-dir", str(folder)]
    opened = open_training(given, root=ROOT, model=compared.model, about="", prepare=train.prepare)
    said = contextlib.redirect_stdout(io.StringIO())
    with said, contextlib.suppress(KeyboardInterrupt), opened as training:
        steps, used = training.steps(), list[Tensor]()

        def window() -> float:
            used.clear()
            for indices in itertools.islice(steps, STEPS):
                used.append(indices)
                for part, share in training.micro_batches(indices):
                    inputs, targets = training.batch(training.data.train, part)
                    loss = cross_entropy(training.model(inputs), targets)
                    training.accumulate(loss, share=share)
                training.update(clip_norm=compared.clip_norm)
            return loss.item()

        yield window, training, used
        raise KeyboardInterrupt  # it ends here, long before its last step


def bare_window(compared: Compared, training: Any, used: Sequence[Tensor]) -> Window:
    """A loop over the same batches that does nothing else."""
    model = copy.deepcopy(training.model)
    optimizer = compared.optimizer(model.parameters())
    data = training.data.train

    def window() -> float:
        for indices in used:
            inputs, targets = data.batch(indices)
            optimizer.zero_grad()
            loss = cross_entropy(model(inputs), targets)
            loss.backward()
            if compared.clip_norm:
                nn.utils.clip_grad_norm_(model.parameters(), compared.clip_norm)
            optimizer.step()
        return loss.item()

    return window


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten())


def in_turns(ours: Window, bare: Window, pairs: int, device: torch.device) -> tuple[list[float], list[float]]:
    """Seconds per step of each; ours goes first, for it draws the batches."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for number in range(WARM_UP + pairs):
        losses = []
        for window, found in zip((ours, bare), seconds, strict=True):
            if device.type == "cuda":
                torch.cuda.synchronize()
            began = time.perf_counter()
            losses.append(window())
            if number >= WARM_UP:
                found.append((time.perf_counter() - began) / STEPS)
        if not number:
            torch.testing.assert_close(*losses, rtol=0.05, atol=0.02)
    return seconds


def main(argv: Sequence[str]) -> int:
    """Print the medians and the median ratio of the pairs."""
    default = "cuda" if torch.cuda.is_available() else "cpu"
    device, pairs = torch.device(argv[0] if argv else default), int(argv[1]) if argv[1:] else PAIRS
    torch.set_num_threads(1)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "one thread"
    print(f"{name}, {pairs} pairs of {STEPS} steps, torch {torch.__version__}")
    for title, compared in TRAININGS.items():
        for way, flags in OURS.items():
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
                there = ["--device", device.type, "--num-threads", "1"]
                with our_window(compared, Path(folder, "run"), [*flags, *there]) as (ours, training, used):
                    seconds = in_turns(ours, bare_window(compared, training, used), pairs, device)
            ratios = sorted(one / other for one, other in zip(*seconds, strict=True))
            own, bare = (1000 * statistics.median(found) for found in seconds)
            print(
                f"{title:30} {way:27} {own:8.3f} ms, bare {bare:8.3f} ms, ratio"
                f" {statistics.median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
