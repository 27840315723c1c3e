"""Share the machine among cells: cores for those that train on the CPU, GPUs for the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import KW_ONLY, dataclass, field
from functools import cache
from pathlib import Path

from kharness.config.make.typed import typed_setting
from kharness.config.values import whole
from kharness.matrix.machine.cores import Core, usable_cores
from kharness.matrix.machine.devices import Gpus, find_gpus
from kharness.matrix.machine.gpu_places import GpuPlaces
from kharness.matrix.machine.threads import wants_gpu
from kharness.runs.command import CommandLaunch
from kharness.runs.errors import MatrixError
from kharness.runs.launch import Launch, Occupant, Slot
from monitoring.counts import counted


def open_resources(
    settings: Mapping[str, object], say: Callable[[str], None], *, root: Path = Path("/")
) -> MachineResources:
    """Return the machine's resources under MATRIX_JOBS, MATRIX_GPUS_PER_CELL and MAX_GPU_MEMORY_PERCENT.

    `say` prints a line for the user. MatrixError for more GPUs per cell than there are.
    """
    jobs, per_cell = whole(settings, "MATRIX_JOBS", 1), whole(settings, "MATRIX_GPUS_PER_CELL")
    percent = whole(settings, "MAX_GPU_MEMORY_PERCENT", 90)

    def look() -> tuple[GpuPlaces | None, Mapping[str, str]]:
        gpus = find_gpus(root)
        for problem in gpus.problems:
            say(f"note: {problem}")
        _refuse_too_few(gpus, per_cell)
        places = GpuPlaces(gpus, percent=percent, per_cell=max(1, per_cell), say=say) if gpus.gpus else None
        return places, {gpu.word: gpu.vendor for gpu in gpus.gpus}

    found = MachineResources(
        usable_cores(root), None, {}, jobs=jobs, gpus_per_cell=per_cell, say=say, look=look
    )
    if per_cell > 1:
        found.look_for_gpus()
    return found


def refuse_too_few_gpus(
    launches: Sequence[Launch], settings: Mapping[str, object] | None = None, *, root: Path = Path("/")
) -> None:
    """MatrixError for more GPUs than there are, before anything is written or started.

    A cell of a matrix, which has `settings`, gets MATRIX_GPUS_PER_CELL of them; a single training all.
    """
    per_cell = whole(settings or {}, "MATRIX_GPUS_PER_CELL")
    on_gpus = [launch for launch in launches if wants_gpu(launch.device(per_cell))]
    ours = [launch for launch in on_gpus if not isinstance(launch, CommandLaunch)]
    processes = max((whole(launch.asked, "NUM_GPUS", 1) for launch in ours), default=1)
    of_programs = bool(per_cell) and len(ours) < len(on_gpus)
    # To look for GPUs is to open their driver, so only where the answer matters.
    if max(per_cell, processes) <= 1 and not of_programs:
        return
    with closing(find_gpus(root)) as gpus:
        _refuse_too_few(gpus, per_cell)
        found = len(gpus.gpus)
        if of_programs and not found:
            raise _no_gpu(per_cell)
        if found and processes > found:
            raise MatrixError(
                f"NUM_GPUS={processes}: {found} GPU{'s are' if found > 1 else ' is'} visible",
                hint=f"train with NUM_GPUS={found}, or in {processes} processes on the CPU with DEVICE=cpu",
            )
        if found and settings is not None and processes > per_cell:
            raise MatrixError(
                f"NUM_GPUS={processes}, but a cell gets MATRIX_GPUS_PER_CELL={per_cell}",
                hint=f"give CONFIG_MATRIX_GPUS_PER_CELL={processes}, which NUM_GPUS follows",
            )


@dataclass
class MachineResources:
    """Gives out slots; a slot is given back as the object that it is."""

    cores: Sequence[Core]
    gpus: GpuPlaces | None
    vendors: Mapping[str, str]
    """The vendor of each GPU."""
    _: KW_ONLY
    jobs: int
    """0 for as many as fit."""
    gpus_per_cell: int = 0
    """0: those that do not say what they train on, programs, get none."""
    say: Callable[[str], None]
    look: Callable[[], tuple[GpuPlaces | None, Mapping[str, str]]] | None = None
    """Finds GPUs and vendors for the first cell that wants one: a matrix on the CPU opens no driver."""
    _bound: list[tuple[Slot, Sequence[Core]]] = field(default_factory=list)
    _on_gpus: list[Slot] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._free = list(self.cores)
        self._say_once = cache(self.say)

    def has_room(self, running: Sequence[Occupant]) -> bool:
        """Whether there might be room for one more, whatever it needs."""
        return not running or len(running) < self._most

    def acquire(self, launch: Launch, running: Sequence[Occupant]) -> Slot | None:
        """Room for one more; None if it does not fit next to the running ones now.

        While none is running there is always room, except on GPUs that others fill: then a note says so.
        """
        if not self.has_room(running):
            return None
        if wants_gpu(launch.device(self.gpus_per_cell)):
            self.look_for_gpus()
            if self.gpus is not None:
                return self._on_gpu(self.gpus, launch, running)
            # A training of the tree has been asked; the trials of a search are known only now.
            if self.gpus_per_cell and isinstance(launch, CommandLaunch):
                raise _no_gpu(self.gpus_per_cell)
        return self._on_cores(launch, running)

    def look_for_gpus(self) -> None:
        """Find the GPUs that cells are given, once."""
        if self.look is not None:
            self.gpus, self.vendors = self.look()
            self.look = None

    def release(self, slot: Slot) -> None:
        """Its cell has ended."""
        # By identity, for the slots of two cells may be equal.
        if any(slot is held for held in self._on_gpus):
            assert self.gpus is not None
            self.gpus.release(slot)
            self._on_gpus = [held for held in self._on_gpus if held is not slot]
        for held, cores in self._bound:
            if held is slot:
                # In the machine's order again, so that the next cell gets cores that are neighbors.
                self._free = [core for core in self.cores if core in self._free or core in cores]
        self._bound = [(held, cores) for held, cores in self._bound if held is not slot]

    @property
    def _most(self) -> int:
        """Cells at once. Also on a GPU each keeps a core busy."""
        return self.jobs or max(len(self.cores), len(self.vendors))

    def _on_cores(self, launch: Launch, running: Sequence[Occupant]) -> Slot | None:
        asked, all_cores = whole(launch.asked, "NUM_THREADS"), len(self.cores)
        # The number of threads decides in which parts sums are added up, and so the last bits of results: a
        # cell keeps what the matrix was planned with, whatever would fit better by now.
        planned = 0 if asked else launch.threads
        if planned:
            self._say_what_was_planned(planned)
        if self.jobs > all_cores:
            self._say_once(
                f"note: JOBS={self.jobs} is more than the {_cores(all_cores)} here: cells share cores, "
                "and their times mean little"
            )
            return Slot(threads=0 if asked else planned or 1)
        if self.jobs == 1:
            return Slot(threads=0 if asked else planned or all_cores, cores=())
        if planned * self.jobs > all_cores:
            return Slot(threads=planned)  # unbound, for they share cores
        wanted = min(asked or planned or all_cores // (self.jobs or 1), all_cores)
        if asked > all_cores:
            self._say_once(f"note: NUM_THREADS={asked} is more than the {_cores(all_cores)} here")
        if wanted > len(self._free):
            if len(running) < self.jobs:
                self._say_once(
                    f"note: JOBS={self.jobs}, but {len(running)} at once fill the {_cores(all_cores)} here "
                    f"(NUM_THREADS={wanted})"
                )
            return None
        cores, self._free = self._free[:wanted], self._free[wanted:]
        slot = Slot(
            threads=planned or wanted, cores=sorted(processor for core in cores for processor in core)
        )
        self._bound.append((slot, cores))
        return slot

    def _on_gpu(self, gpus: GpuPlaces, launch: Launch, running: Sequence[Occupant]) -> Slot | None:
        words = gpus.acquire(launch, running)
        if words is None:
            return None
        share = max(1, len(self.cores) // max(self.jobs, len(self.vendors)))
        threads = 0 if whole(launch.asked, "NUM_THREADS") else launch.threads or share
        slot = Slot(threads=threads, gpus=words, gpu_vendor=self.vendors[words[0]])
        gpus.given(slot)
        self._on_gpus.append(slot)
        return slot

    def _say_what_was_planned(self, threads: int) -> None:
        """Where JOBS or the machine would now give another number, which would change the bits of results."""
        jobs, cores = self.jobs, len(self.cores)
        if threads == max(1, cores // (jobs or 1)):
            return
        count = counted(threads, "CPU thread")
        line = f"note: cells keep the {count} that the matrix was planned with"
        if threads * max(1, jobs) > cores:
            line += f", and share the {_cores(cores)} here: their times mean little"
        self._say_once(line)


def _refuse_too_few(gpus: Gpus, per_cell: int) -> None:
    if gpus.gpus and per_cell > len(gpus.gpus):
        option = typed_setting("MATRIX_GPUS_PER_CELL", "--gpus-per-cell")
        raise MatrixError(
            f"{typed_setting(f'{option}=', f'{option} ')}{per_cell}, but only {len(gpus.gpus)} can be seen",
            hint=f"give a smaller {option}, or a longer CUDA_VISIBLE_DEVICES",
        )


def _no_gpu(per_cell: int) -> MatrixError:
    return MatrixError(
        f"--gpus-per-cell {per_cell}, but no GPU can be seen", hint="--gpus-per-cell 0 runs without"
    )


def _cores(number: int) -> str:
    return counted(number, "core")


class Elsewhere:
    """Room without end, or for `most` at once where what runs next depends on what ran before."""

    def __init__(self, most: int = 0) -> None:
        self._most = most

    def has_room(self, running: Sequence[Occupant]) -> bool:
        return not self._most or len(running) < self._most

    def acquire(self, launch: Launch, running: Sequence[Occupant]) -> Slot | None:
        """The slot that the plan has for it; where that is, its job knows."""
        return Slot(threads=launch.threads) if self.has_room(running) else None

    def release(self, slot: Slot) -> None:
        """The scheduler knows."""
