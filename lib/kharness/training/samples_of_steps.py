"""Which samples a step had: named where an alert begins with it, and shown by `make inspect-batch`."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from kharness.runs.files import CHECKPOINTS, INSPECTED
from kharness.training.checkpoint import checkpoint_files, load, position, restore_model
from kharness.training.errors import CheckpointError, TrainingError
from kharness.training.setup import DataT, Setup
from monitoring import Run
from monitoring.journal.atomic_file import write_atomically
from monitoring.journal.files import ALERTS
from monitoring.journal.tail import RecordTail

if TYPE_CHECKING:
    from PIL import Image

# Rules whose alerts begin at a step that its samples may explain.
RULES = ("loss_spike", "gradient_norm")

# Seconds between looks for alerts.
LOOK_EVERY = 2.0


class AlertedSteps:
    """Names the samples of steps that an alert begins with in `alert_samples` records, between two steps.

    The agent, which judges records, knows no samples; a training knows those of any step by seed, epoch and
    step alone. So a step costs a look at the clock, and an alert as much as the begin of an epoch.
    """

    def __init__(self, setup: Setup[Any], run: Run) -> None:
        self._run, self._batches, self._world = run, setup.batches, setup.world
        self._tail = RecordTail(run.directory / ALERTS)
        self._next_look = 0.0
        if self._world.is_main:
            for _ in self._tail.new():  # of earlier attempts
                pass

    def look(self, step: int, *, at_once: bool = False) -> None:
        """Record the samples of alerts that are new; `step` steps are done. Nothing but on rank 0."""
        now = time.monotonic()
        if not self._world.is_main or (now < self._next_look and not at_once):
            return
        self._next_look = now + LOOK_EVERY
        try:
            alerts = list(self._tail.new())
        except OSError:  # a disk that does not answer now
            return
        for alert in alerts:
            at = alert.get("global_step")
            if alert.get("state") == "firing" and isinstance(at, int) and 1 <= at <= step:
                self._record(at, str(alert.get("rule")), alert.get("seq"))

    def _record(self, step: int, rule: str, alert_seq: object) -> None:
        if rule not in RULES:
            return
        batch = self._batches.of_step(step)
        self._run.log_alert_samples(
            step,
            rule=rule,
            alert_seq=alert_seq,
            sample_indices=batch.tolist(),
            samples_per_rank=[len(part) for part in self._world.parts(batch)],
        )
        print(f"step {step}: {rule}; make inspect-batch RUN={self._run.directory} STEP={step}", flush=True)


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
