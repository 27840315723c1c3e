"""One module per GPU vendor, which defines `probe(root: Path) -> Sampler | None`; here they work together.

`machine` samples the rest of the machine, and finds no GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from monitoring.dropins import DropIns
from monitoring.errors import MonitoringError
from monitoring.gpu.sample import DeviceInfo, GpuEvent, GpuSample, Sampler

SAMPLERS = DropIns("sampler", "monitoring.samplers")

# The order in which vendors get their indices; a further module comes after them.
FIRST = ("nvidia", "amd", "intel")

UNSELECTED = "is selected"


def sampler_names() -> list[str]:
    """Return the vendors in the order of their indices."""
    return sorted(SAMPLERS.names, key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST))


def probe_all(root: Path = Path("/"), *, simulated: int = 0) -> tuple[Sampler | None, list[str]]:
    """Return the selected GPUs of all vendors as one sampler, None without any; and what went wrong.

    `root` replaces the machine's root directory; `simulated` GPUs that do not exist replace all that do.
    """
    if simulated:
        from monitoring.samplers._simulated import SimulatedSampler

        return SimulatedSampler(simulated), []
    found: list[Sampler] = []
    problems: list[str] = []
    for name in sampler_names():
        try:
            sampler: Sampler | None = SAMPLERS.load(name).probe(root)
            _ = sampler.devices() if sampler is not None else ()  # one that fails here would fail below
        except MonitoringError as error:
            problems.append(f"{error} ({error.hint})" if error.hint else str(error))
            continue
        except Exception as error:  # noqa: BLE001 - a sampler is called here; the others still count
            problems.append(f"{name}: {type(error).__name__}: {error}")
            continue
        if sampler is not None:
            found.append(sampler)
    if any(not device.integrated for sampler in found for device in sampler.devices()):
        # next to a GPU that trains, one that draws the desktop would only blur the totals
        for sampler in [sampler for sampler in found if _is_integrated(sampler)]:
            found.remove(sampler)
            sampler.close()
    if not any(sampler.devices() for sampler in found):
        problems += [_why_none(sampler) for sampler in found]
        for sampler in found:
            sampler.close()
        return None, problems
    return (found[0] if len(found) == 1 else Joined(found)), problems


def _why_none(sampler: Sampler) -> str:
    if not sampler.num_devices:
        return f"the {sampler.vendor} driver is loaded, and has no GPU"
    return f"none of {sampler.num_devices} {sampler.vendor} GPUs {UNSELECTED}"


def are_unselected(problems: Sequence[str]) -> bool:
    """Whether there are GPUs, but visibility masks hide all of them."""
    return bool(problems) and all(problem.endswith(UNSELECTED) for problem in problems)


def _is_integrated(sampler: Sampler) -> bool:
    return bool(sampler.devices()) and all(device.integrated for device in sampler.devices())


def _sample(sampler: Sampler) -> Sequence[GpuSample]:
    """One look at a vendor's GPUs; if all of it fails, they are in error, the other vendors' are not."""
    try:
        return sampler.sample()
    except Exception as failure:  # noqa: BLE001 - a sampler is called here; the failure is in the samples
        error = f"{type(failure).__name__}: {failure}"
        return [device.sample("error", error) for device in sampler.devices()]


class Joined:
    """Several vendors' GPUs in one row: the indices of the second begin where those of the first end."""

    def __init__(self, samplers: Sequence[Sampler]) -> None:
        self._samplers = samplers
        self.vendor = "+".join(sampler.vendor for sampler in samplers)
        self.num_devices = sum(sampler.num_devices for sampler in samplers)
        self._first = [
            sum(sampler.num_devices for sampler in samplers[:place]) for place in range(len(samplers))
        ]

    def devices(self) -> Sequence[DeviceInfo]:
        return [
            device._replace(index=first + device.index)
            for first, sampler in zip(self._first, self._samplers, strict=True)
            for device in sampler.devices()
        ]

    def sample(self) -> Sequence[GpuSample]:
        return [
            sample._replace(index=first + sample.index)
            for first, sampler in zip(self._first, self._samplers, strict=True)
            for sample in _sample(sampler)
        ]

    def events(self) -> Sequence[GpuEvent]:
        return [
            event._replace(index=first + event.index)
            for first, sampler in zip(self._first, self._samplers, strict=True)
            for event in sampler.events()
        ]

    def close(self) -> None:
        for sampler in self._samplers:
            sampler.close()
