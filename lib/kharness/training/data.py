"""Data as tensors on the device, visited in batches of indices: no Python per sample."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kharness.training.distributed.world import ALONE, World
from kharness.training.needs import check_batch, held_out, steps_per_epoch
from kharness.training.seeds import derived_seed

OwnChunks = Callable[[Iterable[Any]], Iterator[Any]]
"""Which chunks this process looks at, of those that all look at together (World.own_chunks)."""


@dataclass(frozen=True)
class LabeledImages:
    """Images (n, channels, height, width) and their labels (n), on one device."""

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Images and labels of the given indices."""
        return self.images.index_select(0, indices), self.labels.index_select(0, indices)

    def chunks(self, size: int, own: OwnChunks = iter) -> Iterator[tuple[Tensor, Tensor]]:
        """All images in order, without copying them; of several processes each has its `own`."""
        return own(zip(torch.split(self.images, size), torch.split(self.labels, size), strict=True))


def entropy(drawn: Tensor) -> float:
    """Entropy (nats) of classes or tokens (n): the cross-entropy of the best guess that sees no input."""
    share = drawn.bincount().double() / len(drawn)
    return float(torch.special.entr(share).sum())


class Batches:
    """Endless batches of indices: each epoch is a new permutation, each batch a slice of it.

    The order of an epoch depends on the seed and the epoch alone, so epoch and position are all that a
    checkpoint needs. The last batch of an epoch may be smaller, so that every sample is seen.
    """

    def __init__(
        self,
        num_samples: int,
        batch_size: int,
        *,
        seed: int,
        device: torch.device,
        world: World = ALONE,
    ) -> None:
        check_batch(batch_size, num_samples)
        self.num_samples = num_samples
        self.batch_size = batch_size
        self.steps_per_epoch = steps_per_epoch(num_samples, batch_size)
        self.epoch = 0
        """Epochs completed."""
        self.position = 0
        """Batches taken from the current epoch."""
        self.device = device
        """Where the indices are."""
        self.upcoming: Callable[[Tensor], None] | None = None
        """Called with each batch while the one before it is taken; not with the first of an epoch."""
        self.world = world
        """The processes that share each batch."""
        self.num_taken = 0
        """Samples of the batch that was taken last, of all processes."""
        self.draws: SampleDraws | None = None
        """Random numbers for the samples of each batch."""
        self._seed = seed

    @property
    def taken(self) -> int:
        """Batches of all epochs that were taken."""
        return self.epoch * self.steps_per_epoch + self.position

    def __iter__(self) -> Iterator[Tensor]:
        """Batches without end, from the next one on."""
        while True:
            yield from self.rest_of_epoch()

    def rest_of_epoch(self) -> Iterator[Tensor]:
        """The batches of the current epoch that were not taken yet; all of them in a new one."""
        order, size = self.order(self.epoch), self.batch_size
        # Position before yield: a checkpoint made in the body of the loop then resumes with the next batch.
        for first in range(self.position * size, self.num_samples, size):
            indices, following = order[first : first + size], order[first + size : first + 2 * size]
            if self.upcoming and len(following):
                self.upcoming(self.world.own_part(following))
            self.position, self.num_taken = self.position + 1, len(indices)
            if self.position == self.steps_per_epoch:
                self.epoch, self.position = self.epoch + 1, 0
            yield indices

    def ahead(self) -> Iterator[tuple[int, Tensor]]:
        """This process's part of the batch taken last and of all that follow, without taking them.

        Each with the epoch (from 0) that it belongs to.
        """
        # A copy shares the seed and the size, and moves its own position.
        others = copy(self)
        others.upcoming = None
        taken = self.taken - 1
        others.epoch, others.position = divmod(taken, self.steps_per_epoch)
        for number, batch in enumerate(others, taken):
            yield number // self.steps_per_epoch, self.world.own_part(batch)

    def of_step(self, step: int) -> Tensor:
        """The batch of a step (from 1) on the CPU, of all processes: it follows from seed, epoch and step."""
        epoch, place = divmod(step - 1, self.steps_per_epoch)
        return self._shuffled(epoch)[place * self.batch_size : (place + 1) * self.batch_size]

    def order(self, epoch: int) -> Tensor:
        """The permutation of an epoch (from 0): the same on every device, for it is made on the CPU."""
        return self._shuffled(epoch).to(self.device)

    def _shuffled(self, epoch: int) -> Tensor:
        generator = torch.Generator().manual_seed(derived_seed(self._seed, "order", epoch))
        return torch.randperm(self.num_samples, generator=generator)

    def state_dict(self) -> dict[str, Any]:
        """Return the state with which `load_state_dict` continues at the next batch."""
        drawn = self.draws.shared_state() if self.draws else None
        return {"epoch": self.epoch, "position": self.position, **({} if drawn is None else {"draws": drawn})}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue after the batch at which the state was taken."""
        self.epoch, self.position = state["epoch"], state["position"]
        if self.draws and "draws" in state:
            self.draws.share(state["draws"])


class SampleDraws:
    """Random numbers for samples, the same whatever processes and micro-batches share a batch.

    They are drawn for all samples of a batch, and each process and micro-batch uses those of its own: the
    generator is in each process where that of one without micro-batches would be.
    """

    def __init__(self, device: torch.device, generator: torch.Generator | None = None) -> None:
        """Without a generator by torch's; several processes share a copy of the first one's."""
        self._device, self._generator = device, generator
        self._batches: Batches | None = None
        self._is_alike, self._is_shared = generator is not None, False
        self._own = slice(0, 0)
        self._taken, self._place, self._end = 0, 0, 0
        self._drawn: list[Tensor] | None = None

    def follow(self, batches: Batches) -> None:
        """Learn which batches are taken; before that each draw is for itself."""
        self._batches, batches.draws = batches, self

    def shared_state(self) -> Tensor | None:
        """Where the generator is that processes share, for a checkpoint; None where they share none."""
        return self._generator.get_state() if self._generator and self._is_shared else None

    def share(self, state: Tensor) -> None:
        """Draw from that state on, in each process alike; torch's generators there draw for the model."""
        self._generator = torch.Generator(self._device)
        self._generator.set_state(state)
        self._is_alike = self._is_shared = True

    def begin(self, count: int) -> None:
        """The draws that follow are for the next `count` samples of this process."""
        batches, self._place = self._batches, 0
        # An inspection looks at samples before any step has taken a batch.
        if (
            batches is None
            or batches.num_taken == 0
            or (batches.num_taken == count and batches.world.size == 1)
        ):
            self._drawn = None
            return
        if batches.taken != self._taken or self._drawn is None:
            own = batches.world.own_part(torch.arange(batches.num_taken)).tolist() or [0]
            self._taken, self._drawn = batches.taken, []
            self._own, self._end = slice(own[0], own[0]), own[-1] + 1
        self._own = slice(self._own.stop, self._own.stop + count)
        if self._own.stop > self._end:  # other samples than those of the batch, as an inspection looks at
            self._drawn = None

    def below(self, high: int, count: int, rows: int = 1) -> Tensor:
        """Integers from 0 to below `high`, (rows, count), for the samples of `begin`."""
        if self._drawn is None:
            return self._random(high, rows, count)
        assert self._batches is not None
        if self._place == len(self._drawn):
            self._drawn.append(self._random(high, rows, self._batches.num_taken))
        self._place += 1
        return self._drawn[self._place - 1][:, self._own]

    def _random(self, high: int, rows: int, count: int) -> Tensor:
        batches = self._batches
        if not self._is_alike and batches is not None and batches.world.size > 1:
            is_gpu = self._device.type == "cuda"
            own = torch.cuda.get_rng_state(self._device) if is_gpu else torch.get_rng_state()
            self.share(batches.world.of_main(own))
        return torch.randint(high, (rows, count), generator=self._generator, device=self._device)


def evenly_spaced(num_samples: int, fraction: float) -> Tensor:
    """Sorted indices of a fixed part of a set, at least one: every tenth for 0.1.

    It depends on nothing but the two numbers, so every seed, version and machine holds out the same samples.
    """
    count = held_out(num_samples, fraction)
    return (torch.arange(count) * num_samples) // count
