"""Inference with a trained model: its speed and accuracy, and its predictions for some pictures."""

from __future__ import annotations

import io
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from kharness.training.data import evenly_spaced

# Batches of each size that are timed; of the first ones memory and kernels are chosen.
TIMED, WARM_UP = 20, 2

# Pictures that the accuracy is of, if there are so many.
JUDGED = 1000

# Pixels of a picture on the sheet, and of the line below it; pictures in a row.
TILE, LINE, COLUMNS = 96, 16, 8


class HeldOutPictures(Protocol):
    """Pictures and labels that the model has not seen."""

    def __len__(self) -> int: ...

    def batch(self, indices: Tensor, /) -> tuple[Tensor, Tensor]:
        """Return the model's input (n, channels, height, width), and the labels."""

    def chunks(self, size: int) -> Iterable[tuple[Tensor, Tensor]]:
        """All of them in order."""


@torch.inference_mode()
def infer(
    model: nn.Module,
    test: HeldOutPictures,
    *,
    classes: Sequence[str],
    undone: Callable[[Tensor], Tensor],
    batch_sizes: Iterable[int],
    predictions: int,
) -> tuple[dict[str, float], list[dict[str, object]], bytes | None]:
    """Latency and accuracy by batch size, some predictions, and a PNG of these; nothing of none.

    `classes` are the names of the labels; `undone` gives bytes (n, 3, height, width) of what the
    model takes. A model of several outputs has its logits first, or by the name `logits`; where there are
    none, a note says so, and nothing is measured: a training that is done shall not fail for that.
    """
    model.eval()
    batch_sizes = list(batch_sizes)
    if batch_sizes or predictions:
        output = model(test.batch(torch.arange(1))[0])
        if _logits(output) is None:
            print(
                f"note: latency and predictions need logits, and the model returns a {type(output).__name__}"
            )
            return {}, [], None
    measured: dict[str, float] = {}
    for size in batch_sizes:
        measured |= measure(model, test, size)
    count = min(predictions, len(test))
    if count == 0:
        return measured, [], None
    pictures, labels = test.batch(evenly_spaced(len(test), count / len(test))[:count])
    logits = _logits(model(pictures))
    assert logits is not None
    chances, guesses = logits.softmax(1).max(1)
    found: list[dict[str, object]] = [
        {"label": classes[label], "predicted": classes[guess], "probability": chance}
        for label, guess, chance in zip(labels.tolist(), guesses.tolist(), chances.tolist(), strict=True)
    ]
    return measured, found, sheet(undone(pictures).cpu(), found)


def measure(model: nn.Module, split: HeldOutPictures, size: int) -> dict[str, float]:
    """Median time from a batch on the device to its logits, in 20 batches, and the share that is right.

    That is of the same pictures for every size, so that it differs only where the size changes the logits.
    """
    seconds: list[float] = []
    right, count = 0, 0
    for number, (pictures, labels) in enumerate(split.chunks(size)):
        is_timed = number < WARM_UP + TIMED
        if not is_timed and count >= JUDGED:
            break
        _wait(pictures)
        begun = time.perf_counter()
        logits = _logits(model(pictures))
        assert logits is not None
        _wait(logits)
        seconds += [time.perf_counter() - begun] if is_timed and len(labels) == size else []
        judged = (logits.argmax(1) == labels)[: JUDGED - count]
        right, count = right + int(judged.sum()), count + len(judged)
    timed = seconds[WARM_UP:] or seconds
    if not timed:  # there are fewer pictures
        return {}
    latency = statistics.median(timed)
    return {
        f"batch_{size}_latency_seconds": latency,
        f"batch_{size}_samples_per_sec": size / latency,
        f"batch_{size}_accuracy": right / count,
    }


def _logits(output: object) -> Tensor | None:
    """The output itself, the first of several, or the one of that name; None where that is no tensor."""
    if isinstance(output, Mapping):
        output = output.get("logits")
    elif isinstance(output, Sequence):
        output = output[0]
    return output if isinstance(output, Tensor) else None


def _wait(tensor: Tensor) -> None:
    if tensor.is_cuda:
        torch.cuda.synchronize(tensor.device)


def sheet(pictures: Tensor, predictions: Sequence[dict[str, object]]) -> bytes:
    """A PNG of pictures (n, 3, height, width), bytes, with what was predicted; what is wrong is red."""
    from PIL import Image, ImageDraw, ImageFont

    rows = -(-len(predictions) // COLUMNS)
    columns = min(COLUMNS, len(predictions))
    image = Image.new("RGB", (columns * TILE, rows * (TILE + 2 * LINE)), "white")
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(LINE - 4)
    for number, (picture, found) in enumerate(zip(pictures, predictions, strict=True)):
        left, top = number % COLUMNS * TILE, number // COLUMNS * (TILE + 2 * LINE)
        tile = Image.fromarray(picture.permute(1, 2, 0).contiguous().numpy())
        image.paste(tile.resize((TILE - 2, TILE - 2)), (left, top))
        is_right = found["predicted"] == found["label"]
        texts = [
            f"{found['predicted']} {found['probability']:.0%}",
            "" if is_right else f"is {found['label']}",
        ]
        for line, text in enumerate(texts):
            place = (left + 2, top + TILE + line * LINE)
            draw.text(place, text[:16], fill="#222222" if is_right else "#A23B00", font=font)
    buffer = io.BytesIO()
    image.save(buffer, "PNG", dpi=(96, 96))
    return buffer.getvalue()
