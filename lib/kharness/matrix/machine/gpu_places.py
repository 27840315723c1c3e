"""Choose the GPU of a cell: cells are packed by the memory that similar cells were seen to need.

What a cell needs is measured, not guessed: the first cell of a kind has its GPU to itself until it has
evaluated once or ended, for then torch's allocator has grown to what it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kharness.config.affects import Affects
from kharness.config.config_py import read_affects
from kharness.matrix.machine.devices import Gpus, Memory
from kharness.runs.journal_tail import end_offset
from kharness.runs.launch import Launch, Occupant, Slot
from monitoring.gpu.sample import MIB
from monitoring.journal.files import JOURNAL
from monitoring.journal.records import read_records

# What a process holds on top of torch's own memory (MiB): context, kernels, library handles. An allowance,
# for where the driver does not report what each process holds.
CONTEXT_MB = 600.0

Kind = tuple[tuple[str, str], ...]


def kind_of(asked: Mapping[str, object], affects: Affects) -> Kind:
    """Return the key of cells that need the same memory: every option that shapes a training except seeds and
    fractions.
    """
    # sizes and numbers of layers are whole numbers; a learning rate or a share of dropout changes no memory
    names = affects.names(asked, "results", "speed")
    return tuple(
        sorted(
            (name, repr(asked[name])) for name in names if name != "SEED" and not _is_fractional(asked[name])
        )
    )


@dataclass
class _Held:
    """A place that a cell has."""

    words: Sequence[str]
    kind: Kind
    journal: _JournalMemory
    slot: Slot | None = None


class GpuPlaces:
    """The GPUs, shared out; one thread calls it."""

    def __init__(self, gpus: Gpus, *, percent: float, per_cell: int, say: Callable[[str], None]) -> None:
        """A GPU is filled up to `percent` of its memory, other users' share included."""
        self._gpus = gpus
        self._percent = percent
        self._per_cell = per_cell
        self._say = say
        self._affects: Affects | None = None
        self._held: list[_Held] = []
        self._needs: dict[Kind, float] = {}
        """MiB, the most that was seen."""
        self._settled: set[Kind] = set()
        """Kinds whose need is known."""
        self._before: dict[str, float] = {}
        """MiB in use on each GPU when it had no cell of ours."""
        self._said: set[str] = set()

    def acquire(self, launch: Launch, running: Sequence[Occupant]) -> Sequence[str] | None:
        """The words of the GPUs for a cell; None if it does not fit next to the running ones now."""
        memory = self._gpus.look()
        self._observe(memory, running)
        if self._affects is None:  # the same for all cells of a matrix
            self._affects = read_affects(launch.directory)
        kind = kind_of(launch.asked, self._affects)
        words = self._choose(kind, memory)
        if words is None:
            if not self._held:
                self._say_once("waiting", f"note: waiting for a GPU: {self._shown(memory)}")
            return None
        self._held.append(_Held(words, kind, _JournalMemory(launch)))
        return words

    def given(self, slot: Slot) -> None:
        """The slot in which the last place that was acquired went out."""
        self._held[-1].slot = slot

    def release(self, slot: Slot) -> None:
        held = next(held for held in self._held if held.slot is slot)
        held.journal.update()
        self._note(held, held.journal.footprint_mb)
        # Only now has a run of this kind shown its peak, and others of the kind may share a GPU.
        if held.kind in self._needs:
            self._settled.add(held.kind)
        self._held.remove(held)

    def _choose(self, kind: Kind, memory: Mapping[str, Memory | None]) -> Sequence[str] | None:
        """The emptiest GPUs that will do."""
        free = [word for word in memory if self._is_free(word, memory[word])]
        if self._per_cell > 1:
            return free[: self._per_cell] if len(free) >= self._per_cell else None
        if any(found is None for found in memory.values()):
            self._say_once("unread", "note: the memory of the GPUs cannot be read: one cell per GPU")
        known = kind in self._settled
        shared = [word for word in memory if self._on(word) and known and self._fits(word, kind, memory)]
        best = min((*free, *shared), key=lambda word: self._load(word, memory), default=None)
        return None if best is None else [best]

    def _is_free(self, word: str, memory: Memory | None) -> bool:
        """Whether no cell of ours is on it, and others leave room."""
        return not self._on(word) and (memory is None or memory.used_mb < self._limit(memory))

    def _fits(self, word: str, kind: Kind, memory: Mapping[str, Memory | None]) -> bool:
        found = memory[word]
        if found is None or any(held.kind not in self._settled for held in self._on(word)):
            return False
        return self._expected(word, found) + self._needs[kind] <= self._limit(found)

    def _expected(self, word: str, memory: Memory) -> float:
        """MiB in use once the cells there have all they need; they may just have started."""
        needs = sum(self._needs.get(held.kind, 0.0) for held in self._on(word))
        return max(memory.used_mb, self._before.get(word, 0.0) + needs)

    def _load(self, word: str, memory: Mapping[str, Memory | None]) -> tuple[int, float]:
        found = memory[word]
        return len(self._on(word)), 0.0 if found is None else self._expected(word, found) / found.total_mb

    def _limit(self, memory: Memory) -> float:
        return memory.total_mb * self._percent / 100

    def _on(self, word: str) -> list[_Held]:
        return [held for held in self._held if word in held.words]

    def _observe(self, memory: Mapping[str, Memory | None], running: Sequence[Occupant]) -> None:
        """Record the memory that running cells hold, and the memory others hold."""
        pids = {id(run.slot): run.job.pid for run in running}
        for word, found in memory.items():
            if found is not None and not self._on(word):
                self._before[word] = found.used_mb
        for held in self._held:
            held.journal.update()
            pid = pids.get(id(held.slot))
            found = memory[held.words[0]]
            by_driver = found.by_pid.get(pid, 0.0) if found and pid else 0.0
            # the most exact that is known: the driver's number of this process, torch's with an allowance,
            # the difference to before
            self._note(held, by_driver or held.journal.footprint_mb or self._difference(held, found))
            if held.journal.settled and held.kind in self._needs:
                self._settled.add(held.kind)

    def _difference(self, held: _Held, found: Memory | None) -> float:
        """Return the memory added to a GPU since it was given to a cell that has it alone, in MiB."""
        if found is None or len(self._on(held.words[0])) > 1:
            return 0.0
        return max(0.0, found.used_mb - self._before.get(held.words[0], found.used_mb))

    def _note(self, held: _Held, footprint: float) -> None:
        if footprint:
            self._needs[held.kind] = max(footprint, self._needs.get(held.kind, 0.0))

    def _shown(self, memory: Mapping[str, Memory | None]) -> str:
        texts = [
            f"{gpu.shown} has {found.used_mb / 1024:.1f} of {found.total_mb / 1024:.1f} GiB in use"
            for gpu in self._gpus.gpus
            if (found := memory[gpu.word])
        ]
        return ", ".join(texts) + f"; MAX_GPU_MEMORY_PERCENT={self._percent:g}"

    def _say_once(self, what: str, line: str) -> None:
        if what not in self._said:
            self._said.add(what)
            self._say(line)


@dataclass
class _JournalMemory:
    """`gpu_mem_reserved` of a cell's journal, from its launch on."""

    launch: Launch
    reserved_mb: float = 0.0
    settled: bool = False
    """Whether it has trained and evaluated, so that its memory will not grow any more."""
    _offset: int = field(init=False)

    def __post_init__(self) -> None:
        self._offset = end_offset(self.launch.directory)

    @property
    def footprint_mb(self) -> float:
        """Memory of a process with its context; 0 while nothing is known."""
        return self.reserved_mb + CONTEXT_MB if self.reserved_mb else 0.0

    def update(self) -> None:
        for record, offset in read_records(self.launch.directory / JOURNAL, self._offset):
            self._offset = offset
            reserved = record.get("gpu_mem_reserved")  # in GB of 1e9 bytes
            if isinstance(reserved, (int, float)):
                self.reserved_mb = max(self.reserved_mb, reserved * 1e9 / MIB)
            self.settled = self.settled or record.get("event") in ("eval", "epoch")


def _is_fractional(value: object) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_is_fractional, value))
    return isinstance(value, float)
