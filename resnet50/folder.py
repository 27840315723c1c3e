"""Pictures in folders: decoded by worker processes, some batches ahead of the training."""

from __future__ import annotations

import gc
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from kharness.training.data import Batches, OwnChunks
from kharness.training.datasets.imagefolder import FolderPart
from kharness.training.errors import DatasetError
from monitoring.host.libc import ending_with
from resnet50.augmentation import Box, PictureView, ResizedCrops


@dataclass(frozen=True)
class Decoded:
    """A batch from a worker."""

    indices: Tensor
    pictures: Tensor
    """(n, 3, side, side) bytes."""
    labels: Tensor


@dataclass(frozen=True)
class Undecodable:
    """Result of a worker for a file it cannot decode. An exception would carry the worker's traceback as its
    text.
    """

    file: Path
    reason: str


class PictureFiles(Dataset[Decoded | Undecodable]):
    """Decodes files by their number; in arrays, which forked workers share, unlike lists of text."""

    def __init__(
        self, part: FolderPart, kept: Tensor, *, side: int, crops: ResizedCrops | None = None
    ) -> None:
        """`kept` are the numbers of the files in `part` that belong to this split.

        Pictures are `side` high and wide: their middle, or one of the `crops`.
        """
        self._folder = os.fsencode(part.folder)
        names = [os.fsencode(part.names[number]) for number in kept.tolist()]
        self._names = np.array(names)
        self._labels = torch.tensor(part.labels)[kept]
        self._side, self._crops = side, crops

    def __len__(self) -> int:
        return len(self._names)

    def __getitems__(self, wanted: Sequence[tuple[int, int]]) -> Decoded | Undecodable:
        """A batch of (epoch, number), as torch's DataLoader asks for one."""
        from PIL.Image import DecompressionBombError

        pictures = torch.empty(len(wanted), 3, self._side, self._side, dtype=torch.uint8)
        for picture, (epoch, number) in zip(pictures, wanted, strict=True):
            path = os.path.join(self._folder, bytes(self._names[number]))
            try:
                if self._crops is None:
                    found = square(path, self._side)
                else:
                    box = partial(self._crops.box, epoch=epoch, number=number)
                    found = resized(path, self._side, box)
                picture.copy_(torch.from_numpy(found).permute(2, 0, 1))
            except (OSError, SyntaxError, ValueError, DecompressionBombError) as error:
                return Undecodable(Path(os.fsdecode(path)), str(error) or type(error).__name__)
        indices = torch.tensor([number for _, number in wanted])
        return Decoded(indices, pictures, self._labels[indices])


class FolderPictures:
    """A split whose pictures are in files. `follow` makes it read ahead."""

    def __init__(
        self,
        files: PictureFiles,
        view: PictureView,
        *,
        device: torch.device,
        readers: int,
        ahead: int,
    ) -> None:
        """`readers` processes decode up to `ahead` batches each; with 0 the training does it itself."""
        self._files, self._view, self._device = files, view, device
        # A generator that knew this object would keep its workers alive until cycles are collected.
        self._read = partial(decoded, files, readers=readers, ahead=ahead)
        self._batches: Batches | None = None
        self._reading: Iterator[Decoded] = iter(())
        self._rest: Decoded | None = None

    def __len__(self) -> int:
        return len(self._files)

    def follow(self, batches: Batches) -> None:
        """Read what will be requested; from the first request on, for a run may be resumed before."""
        self._batches = batches
        batches.device = torch.device("cpu")  # where files are chosen: no GPU is waited for

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Augmented, where this is a training split; DatasetError for a file that cannot be decoded."""
        pictures, labels = self._on_device(self._next(indices))
        return self._view.of_step(pictures), labels

    def chunks(self, size: int, own: OwnChunks = iter) -> Iterator[tuple[Tensor, Tensor]]:
        """All of them in order, read ahead by workers of their own."""
        for found in self._read((0, part) for part in own(torch.arange(len(self)).split(size))):
            pictures, labels = self._on_device(found)
            yield self._view.middle(pictures), labels

    def _next(self, indices: Tensor) -> Decoded:
        """The pictures of the indices: the next of the batches to come, or a part of it."""
        count = len(indices)
        if self._rest is None or not torch.equal(self._rest.indices[:count], indices):
            # A trial that leaves out the rest of a batch begins with the next one.
            if self._batches is not None:
                self._reading, self._batches = self._read(self._batches.ahead()), None
            follows_nothing = [(0, indices)]
            self._rest = next(self._reading, None) or next(self._read(follows_nothing))
        found = self._rest
        if not torch.equal(found.indices[:count], indices):
            raise RuntimeError("other pictures are requested than those that follow")
        rest = Decoded(found.indices[count:], found.pictures[count:], found.labels[count:])
        self._rest = rest if len(rest.indices) else None
        return Decoded(indices, found.pictures[:count], found.labels[:count])

    def _on_device(self, found: Decoded) -> tuple[Tensor, Tensor]:
        pictures = found.pictures.to(self._device, non_blocking=True)
        return pictures, found.labels.to(self._device, non_blocking=True)


def decoded(
    files: PictureFiles, batches: Iterable[tuple[int, Tensor]], *, readers: int, ahead: int
) -> Iterator[Decoded]:
    """The batches in their order, each decoded by one of the workers; DatasetError for a broken file."""
    with warnings.catch_warnings():
        # Python 3.12 warns that a fork copies the locks of other threads: these children only decode. And
        # torch warns of more workers than cores, with each evaluation again.
        warnings.simplefilter("ignore")
        loader: DataLoader[Decoded | Undecodable] = DataLoader(
            files,
            batch_sampler=([(epoch, number) for number in part.tolist()] for epoch, part in batches),
            num_workers=readers,
            prefetch_factor=ahead if readers else None,
            collate_fn=lambda found: found,
            worker_init_fn=partial(_begin_worker, ending_with(os.getpid())),
            multiprocessing_context="fork" if readers else None,
            generator=torch.Generator(),  # its own: a seed for workers is drawn, which must change no weights
        )
        reading = iter(loader)
    try:
        for found in reading:
            if isinstance(found, Undecodable):
                raise DatasetError(
                    f"{found.file} cannot be decoded: {found.reason}",
                    hint="replace it by an intact copy; a resumed training needs the same files",
                )
            yield found
    finally:
        # Workers end now. When cycles are collected later, they are not notified and waited for in vain.
        del loader, reading


def square(path: bytes, side: int) -> np.ndarray:
    """The middle of a picture with its shorter side scaled to `side`: (side, side, 3) bytes."""
    from PIL import Image

    with Image.open(path) as picture:
        # A JPEG is decoded at half or a quarter of its size where that does.
        picture.draft("RGB", (side, side))
        colored = picture.convert("RGB")
    width, height = colored.size
    short = min(width, height)
    left, top = (width - short) / 2, (height - short) / 2
    box = (left, top, left + short, top + short)
    return np.array(colored.resize((side, side), Image.Resampling.BILINEAR, box))


def resized(path: bytes, side: int, box_of: Callable[[int, int], Box]) -> np.ndarray:
    """The part of a picture that `box_of` gives for its width and height, scaled: (side, side, 3) bytes."""
    from PIL import Image

    with Image.open(path) as picture:
        width, height = picture.size
        left, top, right, bottom = box_of(width, height)
        # So that the part is still as large as what it is scaled to.
        picture.draft("RGB", (width * side // (right - left), height * side // (bottom - top)))
        colored = picture.convert("RGB")
    across, down = colored.width / width, colored.height / height
    box = (left * across, top * down, right * across, bottom * down)
    return np.array(colored.resize((side, side), Image.Resampling.BILINEAR, box))


def _begin_worker(end_with_trainer: Callable[[], None], number: int) -> None:
    """A worker ends with the trainer, and signals to the trainer's group, such as Ctrl-C, do not reach it."""
    end_with_trainer()
    os.setpgid(0, 0)
    gc.freeze()  # what the trainer had is its own to finalize
