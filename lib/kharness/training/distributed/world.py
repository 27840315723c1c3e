"""The ranks of a training: the rank of this process, and collective communication between them.

They meet as `torchrun` starts them (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT), or over a file
where NUM_GPUS had this project start them on one host. gloo exchanges tensors of a CPU, NCCL those of GPUs.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import islice
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from kharness.config.errors import RENDEZVOUS_FILE, is_launched
from kharness.training.console import nothing_printed
from kharness.training.determinism import make_deterministic
from kharness.training.device import take_device, uses_gpu
from kharness.training.errors import LostRankError, NonFiniteError, TrainingError, first_line
from monitoring.errors import UserError
from monitoring.host.name import host_name
from monitoring.host.process import process_started

ValueT = TypeVar("ValueT")


@dataclass(frozen=True)
class World:
    """All ranks of a training; of a training in one process, this one alone, and nothing is exchanged."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    """Rank among those of this host, which is the index of its GPU."""
    local_size: int = 1
    ends: LostRanks | None = None

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> World:
        """Read the launcher's variables; raise TrainingError where they contradict each other."""
        if not is_launched(environment):
            return cls()
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
        given = {name: environment[name] for name in names if name in environment}
        shown = ", ".join(f"{name}={value!r}" for name, value in given.items())
        hint = "start the training with torchrun, or with NUM_GPUS"
        if not all(value.isdecimal() for value in given.values()):
            raise TrainingError(f"a rank's variables are not numbers: {shown}", hint=hint)
        numbers = {name: int(value) for name, value in given.items()}
        world = cls(
            rank=numbers.get("RANK", 0),
            size=numbers.get("WORLD_SIZE", 1),
            local_rank=numbers.get("LOCAL_RANK", 0),
            local_size=numbers.get("LOCAL_WORLD_SIZE", 1),
        )
        if not (world.rank < world.size and world.local_rank < world.local_size <= world.size):
            raise TrainingError(f"a rank's variables contradict each other: {shown}", hint=hint)
        return world

    @property
    def is_main(self) -> bool:
        """Whether this rank prints, evaluates for all, and writes checkpoints."""
        return self.rank == 0

    def part(self, batch: Tensor) -> tuple[Tensor, float]:
        """This rank's part of a batch, and the factor of its mean loss.

        Parts are in order, and their sizes differ by at most one. The mean over all ranks of factor x mean
        loss is the mean loss of the batch. A rank for which no sample is left repeats the first, times 0, so
        that it comes to every collective.
        """
        if self.size == 1:
            return batch, 1.0
        part = self.parts(batch)[self.rank]
        return (part, len(part) * self.size / len(batch)) if len(part) else (batch[:1], 0.0)

    def own_part(self, batch: Tensor) -> Tensor:
        """This rank's part of a batch, never empty."""
        return self.part(batch)[0]

    def parts(self, batch: Tensor) -> tuple[Tensor, ...]:
        """Those of all ranks."""
        return batch.tensor_split(self.size)

    def gathered(self, value: Tensor) -> Tensor:
        """The values of all ranks, stacked in their order; on their device, which nothing waits for."""
        if self.size == 1:
            return value.reshape(1)
        values = [torch.empty_like(value) for _ in range(self.size)]
        dist.all_gather(values, value)
        return torch.stack(values)

    def averaged(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The means of tensors over all ranks, on their device, by one collective."""
        if self.size == 1:
            return list(tensors)
        found: list[Tensor] = []
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors]) / self.size
        dist.all_reduce(flat)
        for tensor, mean in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):
            found.append(mean.view_as(tensor).to(tensor.dtype))
        return found

    def own_chunks(self, chunks: Iterable[ValueT]) -> Iterator[ValueT]:
        """This rank's chunks of what all ranks together look at once, as an evaluation."""
        return islice(chunks, self.rank, None, self.size)

    def rounds(self, chunks: Iterable[Tensor]) -> Iterator[tuple[Tensor, int]]:
        """Yield like `own_chunks`, equally often on each rank.

        A rank without a chunk gets another's, of which no sample counts.
        """
        given = list(chunks)
        for first in range(0, len(given), self.size):
            own = given[first + self.rank : first + self.rank + 1]
            yield (own[0], len(own[0])) if own else (given[first], 0)

    def total(self, value: float) -> float:
        """The sum over all ranks, the same bits on each; waits for them."""
        if self.size == 1:
            return value
        found = torch.tensor(value, dtype=torch.float64)
        dist.all_reduce(found)
        return found.item()

    def highest(self, *values: int) -> list[int]:
        """The highest of each value over all ranks; waits for them."""
        if self.size == 1:
            return list(values)
        highest = torch.tensor(values)
        dist.all_reduce(highest, dist.ReduceOp.MAX)
        return highest.tolist()

    def of_main(self, value: ValueT) -> ValueT:
        """The value that rank 0 has, on every rank; any that can be pickled."""
        if self.size == 1:
            return value
        values = [value]
        dist.broadcast_object_list(values)
        return values[0]

    def collected(self, value: ValueT) -> list[ValueT]:
        """The values of all ranks in their order, on rank 0; on the others an empty list."""
        if self.size == 1:
            return [value]
        values: list[Any] | None = [None] * self.size if self.is_main else None
        dist.gather_object(value, values)
        return values or []

    def wait(self) -> None:
        """Until every rank has come here."""
        self.highest(0)

    def named_ends(self) -> AbstractContextManager[None]:
        """Within it an error names its rank, and a lost connection the rank that was lost."""
        return self.ends.named() if self.ends else nullcontext()

    def overwrite(self, tensors: Sequence[Tensor]) -> None:
        """Copy rank 0's values into the tensors of all ranks."""
        if self.size > 1:
            for tensor in tensors:
                dist.broadcast(tensor, 0)


ALONE = World()
"""The world of a training in one process."""


@contextmanager
def joined_world(*, device: str, minutes: float, deterministic: bool = False) -> Iterator[World]:
    """Meet the other ranks, if there are any, and leave them at the end.

    `device` is the value of DEVICE, `minutes` how long a rank waits for another before it gives up
    (LostRankError). `deterministic` is DETERMINISTIC, which has to be set before CUDA is started.
    """
    world = World.of(os.environ)
    if world.size == 1:
        yield world
        return
    store = _store(world, timedelta(minutes=minutes))
    ends = LostRanks(store, rank=world.rank, size=world.size)
    with ends.reported_once(), ends.named():
        if deterministic:
            make_deterministic()
        on_gpu = uses_gpu(device)
        own = take_device(device, world.local_rank).torch if on_gpu else None
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if on_gpu else "gloo",
            store=PrefixStore("training", store),
            rank=world.rank,
            world_size=world.size,
            timeout=timedelta(minutes=minutes),
            device_id=own,  # else NCCL guesses from the rank, and connects within the first step
        )
        try:
            yield replace(world, ends=ends)
        except SystemExit:  # in good order: with errors others may wait for what never comes
            dist.destroy_process_group()
            raise
        dist.destroy_process_group()


@contextmanager
def one_prints(environment: Mapping[str, str]) -> Iterator[None]:
    """Within it, only rank 0 prints on standard output."""
    if World.of(environment).is_main:
        yield
        return
    with nothing_printed():
        yield


def _store(world: World, timeout: timedelta) -> Store:
    """Where the ranks meet; the same in all of them."""
    file = os.environ.get(RENDEZVOUS_FILE)
    place = f"file://{file}" if file else "env://"
    met: tuple[Store, int, int] = next(
        iter(rendezvous(place, rank=world.rank, world_size=world.size, timeout=timeout))
    )
    met[0].set_timeout(timeout)
    return met[0]


# How long ranks that lost another wait for its note, and for a sign of life of the others; and how often they
# look.
NOTE_WITHIN = timedelta(seconds=10)
LOOK_EVERY = 0.05

# Errors of gloo and NCCL, which have no type of their own, where another rank has died or does not answer.
_LOST = (
    "Connection closed by peer",
    "Connection reset by peer",
    "Broken pipe",
    "Timed out waiting",
    "gloo/transport",
    "NCCL",
)


class LostRanks:
    """How and why ranks ended: one message where one fails, is killed or hangs, with its host and the reason.

    The rank that fails first notes its error in the store over which the ranks met, and reports it as any
    training does. The others lose their connection to it, wait for that note, and end without a word. Where
    no note comes, the first of them reports who was lost: the ranks of this host whose processes are gone,
    which is seen at once, or else those that have not answered in some time.
    """

    def __init__(self, store: Store, *, rank: int, size: int) -> None:
        self._store = PrefixStore("ends", store)
        self._rank, self._size = rank, size
        self._store.set(f"host/{rank}", host_name())
        self._store.set(f"process/{rank}", f"{os.getpid()} {process_started(os.getpid())} {_place()}")

    @contextmanager
    def named(self) -> Iterator[None]:
        """Within it, a lost connection becomes a LostRankError, and an error of this rank names the rank."""
        try:
            yield
        except LostRankError:
            raise  # named within
        except Exception as error:
            if not _is_lost_connection(error):
                self._note(error)
                raise
            raise self._lost() from error

    @contextmanager
    def reported_once(self) -> Iterator[None]:
        """Within it, an error that another rank reports ends this process with its exit code alone."""
        try:
            yield
        except UserError as error:
            if getattr(error, "is_reported", False):
                sys.exit(error.exit_code)
            raise

    def _note(self, error: Exception) -> None:
        """The first note counts; the same error on all ranks, as of a wrong option, is one."""
        first = first_line(error)
        if self._name(self._rank) in str(error):
            return  # named within
        with suppress(RuntimeError):  # the store is gone with the rank that served it
            # An empty expected value stands for a key that is not there yet, and the store answers one rank
            # at a time: of several that fail, one is the first (torch.distributed.Store.compare_set).
            noted = self._store.compare_set("first_error", "", f"{self._rank}\n{first}").decode()
            rank, _, said = noted.partition("\n")
            if isinstance(error, UserError):
                error.is_reported = rank != str(self._rank) and said == first  # type: ignore[attr-defined]
            if isinstance(error, UserError) and not isinstance(error, NonFiniteError):  # of all ranks alike
                error.args = (f"{self._name(self._rank)}: {error}", *error.args[1:])
            elif not isinstance(error, UserError):
                error.add_note(f"on {self._name(self._rank)}")

    def _lost(self) -> LostRankError:
        try:
            self._store.set(f"answers/{self._rank}", "")
            lost = self._missing()
            if self._store.check(["first_error"]):
                rank, _, said = self._store.get("first_error").decode().partition("\n")
                return LostRankError(f"{self._name(int(rank))}: {said}", is_reported=True)
            reporter = self._store.compare_set("reported_by", "", str(self._rank)).decode()
            return LostRankError(
                f"{', '.join(map(self._name, lost)) or 'a rank'}: killed, hanging or cut off from the others",
                is_reported=reporter != str(self._rank),
            )
        except RuntimeError:  # the store is gone with the rank that served it
            return LostRankError("rank 0: killed, hanging or cut off from the others", is_reported=False)

    def _missing(self) -> list[int]:
        """The ranks that were lost, once that is known, or once there is the note of one that failed."""
        until = time.monotonic() + NOTE_WITHIN.total_seconds()
        while True:
            missing = [rank for rank in range(self._size) if not self._store.check([f"answers/{rank}"])]
            gone = [rank for rank in missing if self._is_gone(rank)]
            # In this order: a rank notes its error before it ends.
            if gone or not missing or self._store.check(["first_error"]) or time.monotonic() >= until:
                return gone or missing
            time.sleep(LOOK_EVERY)

    def _is_gone(self, rank: int) -> bool:
        """Return whether it is a rank of this host whose process has ended; unknown for other hosts."""
        pid, started, place = self._store.get(f"process/{rank}").decode().split(" ", 2)
        return place == _place() and started != str(process_started(int(pid)))

    def _name(self, rank: int) -> str:
        host = host_name() if rank == self._rank else self._store.get(f"host/{rank}").decode()
        return f"rank {rank} on {host}"


def _place() -> str:
    """The same text for processes that see each other by their ids: of one host and one container."""
    with suppress(OSError):  # a system without such namespaces
        return f"{host_name()} {os.stat('/proc/self/ns/pid').st_ino}"
    return host_name()


def _is_lost_connection(error: Exception) -> bool:
    if isinstance(error, UserError) or not isinstance(error, RuntimeError):
        return False
    return isinstance(error, dist.DistError) or any(text in str(error) for text in _LOST)
