"""The GPUs that runs may use, and their memory in use, read by `monitoring`'s samplers in a process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from monitoring.errors import SamplerError
from monitoring.gpu.sample import GpuSample, Sampler
from monitoring.sampler_process.process import SamplerProcess

# Whose GPUs DEVICE=cuda can mean.
VENDORS = ("nvidia", "amd")


@dataclass(frozen=True)
class Gpu:
    """A GPU, or a part of one (MIG), that cells can be given."""

    word: str
    """Name in CUDA_VISIBLE_DEVICES: the UUID, or the index of a device that has none."""
    shown: str
    vendor: str


@dataclass(frozen=True)
class Memory:
    """Memory of a GPU, in MiB."""

    used_mb: float
    """Memory in use by all processes."""
    total_mb: float
    by_pid: Mapping[int, float]
    """Memory by process, where the driver reports it; in a container it often does not."""


class Gpus:
    """The selected GPUs of this machine."""

    def __init__(self, sampler: Sampler | None, problems: Sequence[str] = ()) -> None:
        self._sampler = sampler
        self.problems = list(problems)
        """Why GPUs cannot be seen; empty if they can or do not exist."""
        found = [gpu for sample in self._samples() if sample.state != "lost" for gpu, _ in _parts(sample)]
        self.gpus = [gpu for gpu in found if gpu.vendor in VENDORS]

    def look(self) -> dict[str, Memory | None]:
        """The memory of each by its word; None where it cannot be read."""
        found = {gpu.word: memory for sample in self._samples() for gpu, memory in _parts(sample)}
        return {gpu.word: found.get(gpu.word) for gpu in self.gpus}

    def close(self) -> None:
        if self._sampler is not None:
            self._sampler.close()
            self._sampler = None

    def _samples(self) -> Sequence[GpuSample]:
        try:
            return self._sampler.sample() if self._sampler is not None else []
        except SamplerError as error:  # a driver that crashed is not called again
            self.problems.append(str(error))
            self.close()
            return []


def find_gpus(root: Path = Path("/")) -> Gpus:
    """The GPUs that the user's CUDA_VISIBLE_DEVICES (or ROCR_, HIP_VISIBLE_DEVICES) leaves."""
    process = SamplerProcess(root)  # a driver that crashes ends that, and not the matrix
    try:
        sampler, problems = process.open()
    except SamplerError as error:
        sampler, problems = None, [str(error)]
    if sampler is None:
        process.close()
    return Gpus(sampler, problems)


@cache  # reading a package's metadata takes 2 ms, and every cell of a matrix asks
def torch_uses_gpus() -> bool:
    """Whether the installed torch is a build for GPUs, as its version says without an import."""
    from importlib import metadata

    try:
        return not metadata.version("torch").endswith("+cpu")
    except metadata.PackageNotFoundError:
        return False


def _parts(sample: GpuSample) -> list[tuple[Gpu, Memory | None]]:
    """Return what of a GPU cells can be given, with its memory: its MIG devices, or all of it."""
    name = f"GPU {sample.index}" + (f" ({sample.name})" if sample.name else "")
    if sample.mig is not None:
        return [
            (
                Gpu(str(part["uuid"]), f"{name} {part['name'] or 'MIG'}", sample.vendor),
                _memory(part["memory_used_mb"], part["memory_total_mb"], ()),
            )
            for part in sample.mig
        ]
    memory = _memory(sample.memory_used_mb, sample.memory_total_mb, sample.processes or ())
    return [(Gpu(sample.uuid or str(sample.index), name, sample.vendor), memory)]


def _memory(used: object, total: object, processes: Sequence[Mapping[str, object]]) -> Memory | None:
    if not isinstance(used, (int, float)) or not isinstance(total, (int, float)):
        return None
    by_pid: dict[int, float] = {}
    for process in processes:
        pid, memory = process["pid"], process["memory_mb"]
        if isinstance(pid, int) and isinstance(memory, (int, float)):
            by_pid[pid] = by_pid.get(pid, 0.0) + memory
    return Memory(used, total, by_pid)
