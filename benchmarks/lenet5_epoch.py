"""CPU time of a LeNet-5 epoch at batch 64: lenet5/train.py beside the usual DataLoader script, paired.

The usual script is pytorch/examples' mnist/main.py with torchvision's own per-sample steps written out
(Image.fromarray, ToTensor, Normalize; torchvision 0.20): the same images, model, optimizer and thread.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from kharness.config.options import begin_script
from kharness.training.datasets import load_dataset
from kharness.training.opening import open_training

ROOT = begin_script(str(Path(__file__).parent.parent / "lenet5/train.py"), __file__, about="")
BATCH, PAIRS = 64, 9
STEPS = -(-5400 // BATCH)


class UsualDataset(Dataset[tuple[Tensor, int]]):
    """torchvision.datasets.MNIST with Compose([ToTensor(), Normalize((0.1307,), (0.3081,))])."""

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        self.data, self.targets = images, labels

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image, target = self.data[index], int(self.targets[index])
        return normalize(to_tensor(Image.fromarray(image.numpy()))), target


def to_tensor(picture: Image.Image) -> Tensor:
    """transforms.functional.to_tensor of a grayscale picture."""
    image = torch.from_numpy(np.array(picture, np.uint8, copy=True))
    image = image.view(picture.size[1], picture.size[0], 1).permute((2, 0, 1)).contiguous()
    return image.to(dtype=torch.get_default_dtype()).div(255)


def normalize(image: Tensor) -> Tensor:
    """transforms.functional.normalize."""
    image = image.clone()
    mean = torch.as_tensor((0.1307,), dtype=image.dtype, device=image.device)
    std = torch.as_tensor((0.3081,), dtype=image.dtype, device=image.device)
    if (std == 0).any():
        raise ValueError("std evaluated to zero")
    return image.sub_(mean.view(-1, 1, 1)).div_(std.view(-1, 1, 1))


class UsualLeNet(nn.Module):
    """The same 61,706 parameters, drawn as usual: ReLU, then pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = torch.flatten(x, 1)
        scores: Tensor = self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))
        return scores


def usual_epoch(images: Tensor, labels: Tensor) -> Callable[[], None]:
    """pytorch/examples mnist/main.py's train(), logging to nothing every 10 batches."""
    torch.manual_seed(1)
    loader = DataLoader(UsualDataset(images, labels), batch_size=BATCH, shuffle=True)
    model = UsualLeNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, nesterov=True, weight_decay=5e-4)

    def epoch() -> None:
        model.train()
        for number, (data, target) in enumerate(loader):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(data), target)
            loss.backward()
            optimizer.step()
            if number % 10 == 0:
                loss.item()

    return epoch


@contextlib.contextmanager
def our_epoch(folder: Path, *flags: str) -> Iterator[Callable[[], None]]:
    """The loop of lenet5/train.py: gradient norm, learning rate and a journal record every step."""
    from lenet5.train import prepare

    fixed = ["--dataset", "mnist-subset", "--optimizer", "sgd", "--device", "cpu", "--num-threads", "1"]
    fixed += ["--batch-size", str(BATCH), "--tracker", "none", "--learning-rate", "0.01"]
    fixed += ["--num-epochs", "1000", "--checkpoint-every", "0", "--run-dir", str(folder)]
    opened = open_training([*fixed, *flags], root=ROOT, model="lenet5", about="", prepare=prepare)
    said = contextlib.redirect_stdout(io.StringIO())
    with said, contextlib.suppress(KeyboardInterrupt), opened as training:
        steps = training.steps()

        def epoch() -> None:
            for indices in itertools.islice(steps, STEPS):
                images, labels = training.batch(training.data.train, indices)
                training.update(F.cross_entropy(training.model(images), labels))

        yield epoch
        raise KeyboardInterrupt  # it ends here, long before its last step


def main() -> int:
    """Print the medians and the median ratio of the pairs."""
    digits = load_dataset("mnist-subset", {}, ROOT)
    kept = [index for index in range(6000) if index % 10]  # the validation images are left out, as ours are
    images = torch.tensor(list(digits.train_images.rows(kept).data), dtype=torch.uint8).reshape(-1, 28, 28)
    labels = torch.tensor(list(digits.train_labels.rows(kept).data))
    shift = "--lenet5-shift"
    ours = {
        "lenet5/train.py": (shift, "0"),
        "lenet5/train.py, not channels-last": (shift, "0", "--no-channels-last"),
        "lenet5/train.py, shifting images": (shift, "2"),
    }
    epochs = {"usual DataLoader script": usual_epoch(images, labels)}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, contextlib.ExitStack() as opened:
        for number, (name, flags) in enumerate(ours.items()):
            epochs[name] = opened.enter_context(our_epoch(Path(folder, str(number)), *flags))
        seconds: dict[str, list[float]] = {name: [] for name in epochs}
        for number in range(PAIRS + 1):
            for name, epoch in epochs.items():
                begun = time.process_time()
                epoch()
                if number:  # the first of each warms up
                    seconds[name].append(time.process_time() - begun)
    report(seconds)
    return 0


def report(seconds: dict[str, list[float]]) -> None:
    """One line each: median CPU time, and the median of its ratios to the usual script's epoch beside it."""
    usual = next(iter(seconds.values()))
    print(f"epoch of 5,400 images, batch {BATCH}, 1 thread, {PAIRS} pairs, torch {torch.__version__}")
    for name, values in seconds.items():
        ratios = sorted(own / other for own, other in zip(values, usual, strict=True))
        ratio = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        print(f"{name:36} {statistics.median(values):6.3f} s CPU  ratio {ratio}")


if __name__ == "__main__":
    sys.exit(main())
