"""The samples of one step of a past run: which they were, what they look like, and the loss of each."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from kharness.runs.files import CHECKPOINTS, INSPECTED
from kharness.training.checkpoint import checkpoint_files, load, position, restore_model
from kharness.training.errors import CheckpointError, TrainingError
from kharness.training.model_check import EnoughMeasured
from kharness.training.setup import DataT, Setup, Split
from kharness.training.steps.training import Training
from monitoring.journal.atomic_file import write_atomically

if TYPE_CHECKING:
    from PIL import Image

COLUMNS = 8
"""Pictures in a row."""

MOST_CHARACTERS = 200
"""Characters of a sample's text that are printed."""


@dataclass(frozen=True)
class Sample:
    """One sample of a step."""

    index: int
    """In the training set."""
    rank: int
    """The process that had it."""
    inputs: Tensor
    targets: Tensor
    loss: float


class InspectedTraining:
    """Takes the step INSPECT_STEP sample by sample, and notes the loss of each; no weight changes.

    All else is what the Training does that it has, whose run is in a folder that nobody keeps.
    """

    evaluation_is_due = False

    def __init__(self, training: Training[Any], setup: Setup[Any], *, ranks: int) -> None:
        """`ranks` is how many processes shared the step."""
        self.samples: list[Sample] = []
        self._training, self._setup, self._ranks = training, setup, ranks
        self._inputs = self._targets = torch.empty(0)
        self._loss = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._training, name)

    def steps(self) -> Iterator[Tensor]:
        batch = step_indices(self._setup, self._setup.options.INSPECT_STEP)
        for rank, part in enumerate(batch.tensor_split(self._ranks)):
            for index in part.split(1):
                self._setup.model.eval()
                self._loss = 0.0
                yield self._training.begin_step(index)
                inputs, targets = self._inputs[0].cpu(), self._targets[0].cpu()
                self.samples.append(Sample(int(index), rank, inputs, targets, self._loss))
        raise EnoughMeasured

    def batch(self, split: Split[tuple[Tensor, Tensor]], indices: Tensor) -> tuple[Tensor, Tensor]:
        self._inputs, self._targets = self._training.batch(split, indices)
        return self._inputs, self._targets

    def accumulate(
        self, loss: Tensor, *, share: float = 1.0, report: Tensor | None = None, **how: object
    ) -> None:
        self._loss += share * (loss if report is None else report).item()

    def update(self, loss: Tensor | None = None, *, report: Tensor | None = None, **how: object) -> None:
        if loss is not None:
            self.accumulate(loss, report=report)

    def update_apart(self, name: str, loss: Tensor, **how: object) -> None: ...


def step_indices(setup: Setup[DataT], step: int) -> Tensor:
    """The samples of a step (from 1), of all ranks: they follow from seed, epoch and step alone."""
    batches = setup.batches
    if not 1 <= step <= setup.schedule.num_steps:
        raise TrainingError(
            f"INSPECT_STEP={step} is outside 1..{setup.schedule.num_steps}", hint="name a step of the run"
        )
    return batches.of_step(step).to(batches.device)


def load_weights(setup: Setup[DataT], run: Path) -> str:
    """Load those of the newest intact checkpoint before INSPECT_STEP, if any; says which these are."""
    for path in checkpoint_files(run / CHECKPOINTS):
        step = position(path)[1]
        if step < setup.options.INSPECT_STEP:
            try:
                restore_model(load(path), setup.model)
            except CheckpointError:
                continue
            return f"those after step {step}, of {path.name}"
    return "the first ones: no checkpoint before this step is left"


def report(
    samples: Sequence[Sample], *, run: Path, step: int, decode: Callable[[list[int]], str] | None
) -> list[str]:
    """Lines about each sample; pictures go into INSPECTED of the run, row by row in the same order."""
    lines = [f"{'place':>5} {'rank':>4} {'index':>8} {'loss':>9}  label or text"]
    for place, sample in enumerate(samples, 1):
        is_label = sample.targets.ndim == 0
        text = str(int(sample.targets)) if is_label else _text(sample.inputs.tolist(), decode)
        lines.append(f"{place:>5} {sample.rank:>4} {sample.index:>8} {sample.loss:>9.4f}  {text}")
    if samples and samples[0].inputs.ndim == 3:
        path = run / INSPECTED / f"step{step:08}.png"
        path.parent.mkdir(exist_ok=True)
        content = io.BytesIO()
        grid([sample.inputs for sample in samples]).save(content, "PNG")
        write_atomically(path, content.getvalue())
        lines.append(f"pictures: {path}, {COLUMNS} in a row")
    return lines


def _text(tokens: list[int], decode: Callable[[list[int]], str] | None) -> str:
    found = repr(decode(tokens) if decode else " ".join(map(str, tokens)))
    return found if len(found) <= MOST_CHARACTERS else f"{found[:MOST_CHARACTERS]}…"


def grid(pictures: Sequence[Tensor]) -> Image.Image:
    """Pictures (1 or 3, height, width) in rows, in RGB, each from its darkest value on."""
    from PIL import Image

    rows, columns = -(-len(pictures) // COLUMNS), min(COLUMNS, len(pictures))
    height, width = pictures[0].shape[1:]
    sheet = Image.new("RGB", (columns * (width + 2), rows * (height + 2)), (128, 128, 128))
    for place, picture in enumerate(pictures):
        low, high = picture.min(), picture.max()
        scaled = ((picture - low) / (high - low).clamp(min=1e-12) * 255).round().byte()
        colored = Image.fromarray(scaled.expand(3, -1, -1).permute(1, 2, 0).contiguous().numpy())
        sheet.paste(colored, (place % COLUMNS * (width + 2) + 1, place // COLUMNS * (height + 2) + 1))
    return sheet
