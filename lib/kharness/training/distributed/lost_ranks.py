"""One message where a rank fails, is killed or hangs: which one, on which host, and why.

The rank that fails first notes its error in the store over which the ranks met, and reports it as any
training does. The others lose their connection to it, wait for that note, and end without a word. Where no
note comes, the first of them reports who was lost: the ranks of this host whose processes are gone, which is
seen at once, or else those that have not answered in some time.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store

from kharness.training.errors import LostRankError, NonFiniteError
from monitoring.errors import UserError
from monitoring.host.name import host_name
from monitoring.host.process import process_started

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
    """How and why ranks ended, shared through the training's store."""

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
        first = (str(error).splitlines() or [type(error).__name__])[0]
        if self._name(self._rank) in str(error):
            return  # named within
        with suppress(RuntimeError):  # the store is gone with the rank that served it
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
