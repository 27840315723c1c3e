"""Train GPT-2 on text.

    python gpt2/train.py                # .config, or this model's defaults
    python gpt2/train.py --optimizer adamw --max-steps 500 --tracker trackio
    python gpt2/train.py --run-dir DIR  # resume a run, or begin it in DIR
    python gpt2/train.py --run-dir DIR --from-scratch  # begin it anew

Exit codes: 0 complete, 75 stopped on request with a checkpoint, 65 the loss is
not finite, 69 another process is lost, 71 out of memory, 74 a checkpoint
cannot be written, 2 a mistake that you can fix.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from kharness.config.errors import run_command
from kharness.config.options import Options, begin_script

ROOT = begin_script(__file__, __name__, about=__doc__)  # checks flags before torch is imported

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpt2 import data
from gpt2.model import build_model
from gpt2.sample import sample_text
from kharness.training.opening import Training, open_training


def main(argv: Sequence[str]) -> int:
    """Train what the configuration says; kharness.training.steps.training has a step from top to bottom.

    The same lines run for --dry-run and a trial of automatic settings (a few measured steps, then the first
    batch of an evaluation), and for `make inspect-batch` (one step sample by sample, without an update).
    """
    with open_training(argv, root=ROOT, model="gpt2", about=__doc__, prepare=prepare) as training:
        model, splits, options = training.model, training.data, training.options
        if training.evaluation_is_due:  # before the first step
            training.evaluated("val", **evaluate(training))
        for indices in training.steps():
            for part, share in training.micro_batches(indices):
                tokens, targets = training.batch(splits.train, part)
                training.accumulate(cross_entropy(model(tokens), targets), share=share)
            training.update(clip_norm=options.GRADIENT_CLIP or None)
            if training.evaluation_is_due:
                training.evaluated("val", **evaluate(training))
        training.note_samples(sample_text(model, splits, options))
        return training.finish()


def prepare(options: Options, device: torch.device) -> tuple[nn.Module, data.TextSplits]:
    """The model with its first weights, and its text."""
    splits = data.load_splits(options, root=ROOT, device=device)
    if options.GPT2_SAMPLE_TOKENS:
        splits.open_tokenizer().encode(options.GPT2_SAMPLE_PROMPT)  # what fails does so before the training
    return build_model(options, vocabulary=splits.vocabulary, device=device), splits


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean over all tokens, in nats."""
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


@torch.inference_mode()
def evaluate(training: Training[data.TextSplits]) -> dict[str, float]:
    """Mean cross-entropy (nats) over EVAL_SAMPLES batches, the same each time, and its perplexity.

    The processes of a training take turns at the batches.
    """
    model, splits, options = training.models[""].eval(), training.data, training.options
    blocks = len(splits.validation)
    wanted = min(blocks, options.EVAL_SAMPLES * options.EVAL_BATCH_SIZE or blocks)
    indices = torch.arange(wanted) * blocks // wanted
    total = 0.0
    parts = indices.split(options.MICRO_BATCH_SIZE or options.EVAL_BATCH_SIZE)
    for part, counted in training.own_chunks(parts):
        tokens, targets = splits.validation.batch(part)
        total += cross_entropy(model(tokens), targets).item() * counted
    model.train()
    loss = training.world.total(total) / wanted
    return {"loss": loss, "perplexity": math.exp(min(loss, 20))}


if __name__ == "__main__":
    run_command(main)
