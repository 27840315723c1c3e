"""The methods of a Run that log no numbers: records of the split `media` that name files of its directory."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from monitoring.journal.files import ARTIFACTS
from monitoring.journal.journal import say
from monitoring.journal.records import PICTURES

SPLIT = "media"
BINS = 64

Fields = Mapping[str, object]


class RunMedia:
    """The methods of a Run that keep texts, pictures, histograms, tables and files.

    None of them raises: what cannot be kept is a line on stderr and a record's `refused`.
    """

    directory: Path

    def log_text(self, name: str, text: str, *, step: int | None = None) -> None:
        """Keep a text: a sample that the model wrote, a prompt, a note."""
        self._keep(
            name, step, lambda: self._content(name, f"{name}.txt", str(text).encode("utf-8", "replace"))
        )

    def log_image(self, name: str, image: Any, *, step: int | None = None) -> None:
        """Keep a picture, which trackers show.

        A PNG (path or bytes), a figure of matplotlib, an image of Pillow, an array of height x width (x
        channels), or a tensor of (channels x) height x width; of bytes, or numbers from 0 to 1.
        """
        self._keep(name, step, lambda: self._picture(name, png_of(image)))

    def log_histogram(self, name: str, values: Any, *, bins: int = BINS, step: int | None = None) -> None:
        """Keep how values are distributed: counts, edges, a picture, and NAME/min, /max, /mean, /std."""
        self._keep(name, step, lambda: self._histogram(name, values, bins))

    def log_table(
        self, name: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, step: int | None = None
    ) -> None:
        """Keep a table as CSV."""

        def table() -> Fields:
            import csv
            import io

            text = io.StringIO()
            csv.writer(text, lineterminator="\n").writerows([columns, *rows])
            return self._content(name, f"{name}.csv", text.getvalue().encode("utf-8", "replace"))

        self._keep(name, step, table)

    def log_file(self, name: str, path: Path | str, *, step: int | None = None) -> None:
        """Keep a file by its SHA-256; runs in one folder share the content on the disk.

        It is read and copied before the call returns. `damaged_files` tells whether it is still the same.
        """
        self._keep(name, step, lambda: self._file(name, Path(path)))

    def _keep(self, name: str, step: int | None, make: Callable[[], Fields]) -> None:
        if self._is_over():
            return
        try:
            fields = make()
        except Exception as error:  # noqa: BLE001 - the caller's own objects are asked; a training goes on
            reason = f"{type(error).__name__}: {error}"
            say(f"warning: {name} is not kept: {reason}")
            fields = {"refused": {name: reason}}
        self._log_media(step, {"split": SPLIT, **fields})

    def _is_over(self) -> bool:
        raise NotImplementedError

    def _log_media(self, step: int | None, fields: Fields) -> None:
        raise NotImplementedError

    # what follows imports when it is called: most trainings log numbers alone
    def _file(self, name: str, path: Path) -> Fields:
        from monitoring.media.kept_files import as_record, keep_file

        return {ARTIFACTS: {name: as_record(keep_file(self.directory, name, path))}}

    def _content(self, name: str, file: str, content: bytes) -> Fields:
        from monitoring.media.kept_files import as_record, keep_bytes

        return {ARTIFACTS: {name: as_record(keep_bytes(self.directory, file, content))}}

    def _picture(self, name: str, content: bytes) -> Fields:
        from monitoring.media.kept_files import as_record, keep_bytes

        kept = keep_bytes(self.directory, f"{name}.png", content)
        return {PICTURES: {name: kept.file}, ARTIFACTS: {name: as_record(kept)}}

    def _histogram(self, name: str, values: Any, bins: int) -> Fields:
        from monitoring.media.kept_files import as_record, keep_bytes

        counts, edges, about = _distribution(values, bins)
        content = json.dumps({"counts": counts, "edges": edges, **about}).encode()
        kept = keep_bytes(self.directory, f"{name}.json", content)
        picture = keep_bytes(self.directory, f"{name}.png", bars(counts))
        numbers = {f"{name}/{what}": value for what, value in about.items()}
        return {**numbers, PICTURES: {name: picture.file}, ARTIFACTS: {name: as_record(kept)}}


def _distribution(values: Any, bins: int) -> tuple[list[int], list[float], dict[str, float | int]]:
    """Counts, edges, and sums of the finite values, std by their number; ValueError without any."""
    if hasattr(values, "detach"):  # a tensor
        values = values.detach().float().cpu().numpy()
    numpy = sys.modules.get("numpy")
    if numpy is not None and hasattr(values, "ravel"):
        flat = values.ravel().astype("float64")
        finite = flat[numpy.isfinite(flat)]
        if not len(finite):
            raise ValueError("no value is finite")
        found, its_edges = numpy.histogram(finite, bins)
        sums = (float(finite.min()), float(finite.max()), float(finite.mean()), float(finite.std()))
        return found.tolist(), its_edges.tolist(), _about(len(flat), len(finite), sums)
    numbers = [float(value) for value in values]
    kept = [value for value in numbers if math.isfinite(value)]
    if not kept:
        raise ValueError("no value is finite")
    low, high, mean = min(kept), max(kept), math.fsum(kept) / len(kept)
    # as numpy.histogram does where all are equal
    first, last = (low - 0.5, high + 0.5) if low == high else (low, high)
    counts = [0] * bins
    for value in kept:
        counts[min(bins - 1, int((value - first) / (last - first) * bins))] += 1
    edges = [first + (last - first) * edge / bins for edge in range(bins + 1)]
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in kept) / len(kept))
    return counts, edges, _about(len(numbers), len(kept), (low, high, mean, deviation))


def _about(num: int, num_finite: int, sums: tuple[float, float, float, float]) -> dict[str, float | int]:
    return {**dict(zip(("min", "max", "mean", "std"), sums, strict=True)), "count": num_finite,
            "nonfinite": num - num_finite}  # fmt: skip


SIGNATURE = b"\x89PNG\r\n\x1a\n"
# Channels -> PNG's kind of pixels: gray, gray and alpha, RGB, RGBA (w3.org/TR/png-3, 11.2.1).
KINDS = {1: 0, 2: 4, 3: 2, 4: 6}
# Pixels of a histogram's picture.
HEIGHT, BAR, GAP = 96, 6, 1


def png_of(image: Any) -> bytes:
    """Return an image object as PNG; ValueError if it is not one.

    It may be a PNG (its path or its bytes), a figure (`savefig`), an image (`save`), or an array or a tensor
    of height x width, x channels behind (array) or before (tensor), of bytes or of numbers from 0 to 1.
    """
    if isinstance(image, (str, Path)):
        image = Path(image).read_bytes()
    if isinstance(image, bytes):
        if not image.startswith(SIGNATURE):
            raise ValueError("it is not a PNG")
        return image
    for method in ("savefig", "save"):  # of matplotlib, and of Pillow
        if hasattr(image, method):
            import io

            written = io.BytesIO()
            getattr(image, method)(written, format="png")
            return written.getvalue()
    return _of_array(image)


def bars(counts: Sequence[int]) -> bytes:
    """Return a PNG of a histogram's counts, the highest as high as the picture."""
    most = max(counts, default=0) or 1
    heights = [round(count / most * HEIGHT) for count in counts]
    rows = [
        b"".join(
            (b"\x30" * BAR if HEIGHT - row <= height else b"\xff" * BAR) + b"\xff" * GAP for height in heights
        )
        for row in range(HEIGHT)
    ]
    return encoded(b"".join(rows), (BAR + GAP) * len(heights), HEIGHT, 1)


def encoded(pixels: bytes, width: int, height: int, channels: int) -> bytes:
    """Return a PNG of bytes, row by row."""
    import struct
    import zlib

    length = width * channels
    # each row begins with the number of its filter: none
    rows = b"".join(b"\0" + pixels[row * length : (row + 1) * length] for row in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, KINDS[channels], 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows, 3)), (b"IEND", b""))
    return SIGNATURE + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )


def _of_array(image: Any) -> bytes:
    if hasattr(image, "detach"):  # a tensor
        image = image.detach().cpu().numpy()
        if image.ndim == 3:
            image = image.transpose(1, 2, 0)
    if not hasattr(image, "astype") or image.ndim not in (2, 3):
        raise ValueError(f"a {type(image).__name__} shows no picture")
    if image.ndim == 2:
        image = image.reshape(*image.shape, 1)
    height, width, channels = image.shape
    if channels not in KINDS or not height or not width:
        raise ValueError(f"an array of {height} x {width} x {channels} shows no picture")
    if str(image.dtype) != "uint8":
        image = (image.astype("float64").clip(0, 1) * 255).round().astype("uint8")
    return encoded(image.tobytes(), width, height, channels)
