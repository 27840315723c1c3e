"""Train ResNet-50 on pictures.

    python resnet50/train.py                # .config, or this model's defaults
    python resnet50/train.py --dataset cifar10 --optimizer sgd --tracker trackio
    python resnet50/train.py --run-dir DIR  # resume a run, or begin it in DIR
    python resnet50/train.py --run-dir DIR --from-scratch  # begin it anew

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
from resnet50 import data
from resnet50.model import build_model


def main(argv: Sequence[str]) -> int:
    """Train what the configuration says; kharness.training.steps.training has a step from top to bottom.

    The same lines run for --dry-run and a trial of automatic settings (a few measured steps, then the first
    batch of an evaluation), and for `make inspect-batch` (one step sample by sample, without an update).
    """
    with open_training(argv, root=ROOT, model="resnet50", about=__doc__, prepare=prepare) as training:
        splits, options, own = training.data, training.options, training.world.own_chunks
        smoothing, chunk = options.RESNET50_LABEL_SMOOTHING, options.MICRO_BATCH_SIZE or options.BATCH_SIZE
        for indices in training.steps():
            for part, share in training.micro_batches(indices):
                pictures, labels = training.batch(splits.train, part)
                loss = F.cross_entropy(training.model(pictures), labels, label_smoothing=smoothing)
                training.accumulate(loss, share=share)
            training.update()
            if training.evaluation_is_due:
                training.evaluated("val", **evaluate(training, splits.validation.chunks(chunk, own)))
        shown = infer(
            training.model,
            splits.test,
            classes=splits.classes,
            undone=splits.normalize.undone,
            batch_sizes=options.RESNET50_LATENCY_BATCHES,
            predictions=options.RESNET50_PREDICTIONS,
        )
        training.inferred(*shown)
        return training.finish(**evaluate(training, splits.test.chunks(chunk, own)))


def prepare(options: Options, device: torch.device) -> tuple[nn.Module, data.PictureSplits]:
    """The model with its first weights, and its pictures."""
    splits = data.load_splits(options, root=ROOT, device=device)
    return build_model(options, classes=len(splits.classes), device=device), splits


@torch.inference_mode()
def evaluate(
    training: Training[data.PictureSplits], chunks: Iterable[tuple[Tensor, Tensor]]
) -> dict[str, float]:
    """Mean cross-entropy (nats), top-1 and top-5 accuracy (0 to 1), of the weights and of their average.

    Over the chunks of all processes.
    """
    models, total = training.models, training.world.total
    sums: dict[str, Tensor] = {}
    count = 0
    for pictures, labels in chunks:
        count += len(labels)
        for prefix, model in models.items():
            logits = model.eval()(pictures)
            loss = F.cross_entropy(logits, labels, reduction="sum")
            right = logits.topk(min(5, logits.shape[1])).indices == labels[:, None]
            sums[prefix] = sums.get(prefix, 0) + torch.stack([loss, right[:, 0].sum(), right.sum()])
    models[""].train()
    samples = total(count)
    names = ("loss", "accuracy", "top5_accuracy")
    return {
        f"{prefix}{name}": total(value) / samples
        for prefix in models
        for name, value in zip(names, sums.get(prefix, torch.zeros(3)).tolist(), strict=True)
    }


if __name__ == "__main__":
    run_command(main)
