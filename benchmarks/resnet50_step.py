"""CPU time of a ResNet-50 training step at 224 pixels: resnet50/train.py's beside a plain loop, paired.

The plain loop has the same model, pictures and optimizer: forward, loss, backward, SGD with momentum,
and nothing else, in torch's default memory format and in channels-last. Ours augments pictures (crop, flip)
and records loss, gradient norm and times of every step in the journal.
"""

from __future__ import annotations

import contextlib
import io
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from kharness.config.options import Options, begin_script
from kharness.training.opening import open_training

ROOT = begin_script(str(Path(__file__).parent.parent / "resnet50/train.py"), __file__, about="")
BATCH, SIDE, PICTURES, PAIRS = 8, 224, 64, 7

Step = Callable[[], None]


def pictures() -> tuple[Tensor, Tensor]:
    """Bytes of noise, as large as ImageNet's are kept, and labels."""
    generator = torch.Generator().manual_seed(1)
    images = torch.randint(256, (PICTURES, 3, 256, 256), dtype=torch.uint8, generator=generator)
    return images, torch.randint(1000, (PICTURES,), generator=generator)


def plain_loop(images: Tensor, labels: Tensor, *, channels_last: bool) -> Step:
    """The loop of a minimal script; its pictures are normalized and cropped already."""
    from resnet50.model import ResNet

    torch.manual_seed(1)
    model = ResNet(1000)
    inputs = images[:, :, 16:240, 16:240].float().div_(255).sub_(0.45).div_(0.23)
    if channels_last:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # not in torch's stubs
        inputs = inputs.contiguous(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, nesterov=True, weight_decay=5e-4)

    def step() -> None:
        chosen = torch.randint(PICTURES, (BATCH,))
        optimizer.zero_grad()
        F.cross_entropy(model(inputs[chosen]), labels[chosen]).backward()
        optimizer.step()

    return step


@contextlib.contextmanager
def our_loop(folder: Path, images: Tensor, labels: Tensor) -> Iterator[Step]:
    """The steps of resnet50/train.py, on the same pictures."""
    from resnet50.augmentation import Augmentation, Normalization, PictureView
    from resnet50.data import HeldPictures, PictureSplits
    from resnet50.model import ResNet

    def prepare(options: Options, device: torch.device) -> tuple[torch.nn.Module, PictureSplits]:
        normalize = Normalization.of((0.45,), (0.23,), device)
        augmentation = Augmentation(size=SIDE, padding=0, flip=True, cutout=0, seed=1, device=device)
        train = HeldPictures(images, labels, PictureView(normalize, SIDE, augmentation))
        held = HeldPictures(images[:8], labels[:8], PictureView(normalize, SIDE))
        names = tuple(map(str, range(1000)))
        splits = PictureSplits(train, held, held, names, "", augmentation, normalize)
        return ResNet(1000).to(memory_format=torch.channels_last), splits  # type: ignore[call-overload]  # as above

    flags = ["--device", "cpu", "--num-threads", "1", "--tracker", "none", "--optimizer", "sgd"]
    flags += ["--batch-size", str(BATCH), "--num-epochs", "1000", "--checkpoint-every", "0"]
    flags += ["--learning-rate", "0.01", "--schedule", "constant", "--run-dir", str(folder)]
    opened = open_training(flags, root=ROOT, model="resnet50", about="", prepare=prepare)
    said = contextlib.redirect_stdout(io.StringIO())
    with said, contextlib.suppress(KeyboardInterrupt), opened as training:
        steps = training.steps()

        def step() -> None:
            found, targets = training.batch(training.data.train, next(steps))
            training.update(F.cross_entropy(training.model(found), targets, label_smoothing=0.1))

        yield step
        raise KeyboardInterrupt  # it ends here, long before its last step


def main() -> int:
    """Print the medians and the median ratio of the pairs."""
    torch.set_num_threads(1)
    images, labels = pictures()
    steps = {
        "plain loop": plain_loop(images, labels, channels_last=False),
        "plain loop, channels-last": plain_loop(images, labels, channels_last=True),
    }
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        our_loop(Path(folder, "run"), images, labels) as ours,
    ):
        steps["resnet50/train.py"] = ours
        seconds = timed(steps)
    print(f"step of {BATCH} pictures, {SIDE} pixels, 1 thread, {PAIRS} pairs, torch {torch.__version__}")
    usual = seconds["plain loop"]
    for name, values in seconds.items():
        ratios = sorted(own / other for own, other in zip(values, usual, strict=True))
        ratio = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        median = statistics.median(values)
        print(f"{name:28} {median:6.2f} s CPU  {BATCH / median:5.2f} images/s  ratio {ratio}")
    return 0


def timed(steps: dict[str, Step]) -> dict[str, list[float]]:
    """CPU time of each, in turns; the first of each warms up."""
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(PAIRS + 1):
        for name, step in steps.items():
            begun = time.process_time()
            step()
            if number:
                seconds[name].append(time.process_time() - begun)
    return seconds


if __name__ == "__main__":
    sys.exit(main())
