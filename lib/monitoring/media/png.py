"""Pictures as PNG files: of arrays, figures, images, and of a histogram's counts."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SIGNATURE = b"\x89PNG\r\n\x1a\n"
# Channels -> PNG's kind of pixels: gray, gray and alpha, RGB, RGBA (w3.org/TR/png-3, 11.2.1).
KINDS = {1: 0, 2: 4, 3: 2, 4: 6}
# Pixels of a histogram's picture.
HEIGHT, BAR, GAP = 96, 6, 1


def png_of(image: Any) -> bytes:
    """Return a PNG of what shows a picture; ValueError for what does not.

    It may be a PNG (its path or its bytes), a figure (`savefig`), an image (`save`), or an array or a tensor
    of height x width, x channels behind (array) or before (tensor), of bytes or of numbers from 0 to 1.
    """
    if isinstance(image, (str, Path)):
        image = Path(image).read_bytes()
    if isinstance(image, bytes):
        if not image.startswith(SIGNATURE):
            raise ValueError("it is no PNG")
        return image
    for method in ("savefig", "save"):  # of matplotlib, and of Pillow
        if hasattr(image, method):
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
