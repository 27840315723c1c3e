"""Train LeNet-5 on handwritten digits.

    python lenet5/train.py                # .config, or this model's defaults
    python lenet5/train.py --optimizer adamw --num-epochs 5 --tracker trackio
    python lenet5/train.py --run-dir DIR  # resume a run, or begin it in DIR
    python lenet5/train.py --run-dir DIR --from-scratch  # begin it anew

Exit codes: 0 complete, 75 stopped on request with a checkpoint, 65 the loss is
not finite, 69 another process is lost, 71 out of memory, 74 a checkpoint
cannot be written, 2 a mistake that you can fix.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kharness.config.errors import run_command
from kharness.config.options import Options, begin_script

ROOT = begin_script(__file__, __name__, about=__doc__)  # checks flags before torch is imported

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kharness.training.inference.predictions import infer
from kharness.training.opening import Training, open_training
from lenet5 import data
from lenet5.model import LeNet5


def main(argv: Sequence[str]) -> int:
    """Train what the configuration says; kharness.training.steps.training has a step from top to bottom.

    The same lines run for --dry-run and a trial of automatic settings (a few measured steps, then the first
    batch of an evaluation), and for `make inspect-batch` (one step sample by sample, without an update).
    """
    with open_training(argv, root=ROOT, model="lenet5", about=__doc__, prepare=prepare) as training:
        splits, own = training.data, training.world.own_chunks
        for indices in training.steps():
            images, labels = training.batch(splits.train, indices)
            loss = F.cross_entropy(training.model(images), labels)
            training.update(loss)
            if training.evaluation_is_due:
                training.evaluated("val", **evaluate(training, splits.validation.chunks(1000, own)))
        shown = infer(
            training.model,
            splits.test,
            classes=splits.pictures.classes,
            undone=splits.undone,
            batch_sizes=training.options.LENET5_LATENCY_BATCHES,
            predictions=training.options.LENET5_PREDICTIONS,
        )
        training.inferred(*shown)
        return training.finish(**evaluate(training, splits.test.chunks(1000, own)))


def prepare(options: Options, device: torch.device) -> tuple[nn.Module, data.Splits]:
    """The model with its first weights, and all images as tensors on the device."""
    splits = data.load_splits(options, root=ROOT, device=device)
    model: nn.Module = LeNet5().to(device)
    if options.CHANNELS_LAST:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # not in torch's stubs
    return model, splits


@torch.inference_mode()
def evaluate(training: Training[data.Splits], chunks: Iterable[tuple[Tensor, Tensor]]) -> dict[str, float]:
    """Mean cross-entropy (nats) and accuracy (0 to 1), over the chunks of all processes."""
    model, total = training.models[""].eval(), training.world.total
    loss, correct, count = torch.zeros(()), torch.zeros(()), 0
    for images, labels in chunks:
        logits = model(images)
        loss = loss + F.cross_entropy(logits, labels, reduction="sum")
        correct = correct + (logits.argmax(1) == labels).sum()
        count += len(labels)
    model.train()
    samples = total(count)
    return {"loss": total(loss.item()) / samples, "accuracy": total(correct.item()) / samples}


if __name__ == "__main__":
    run_command(main)
