"""Intel GPUs, through the files of the kernel's i915 and xe drivers; no library of Intel's is needed.

Power is the difference of the energy counter; utilization is engine time of the processes that we may see.
Documentation/ABI/testing/sysfs-driver-intel-{i915,xe}-hwmon of the kernel has the sensors (microwatts,
microjoules, millidegrees), intel_gt_sysfs_pm.c and xe_gt_throttle.c have the clocks (MHz) and the reasons.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from monitoring.gpu.sample import MIB, SLOT, DeviceInfo, GpuSample
from monitoring.samplers._fdinfo import Clients
from monitoring.samplers._selection import Identity, Visible, visible, visible_to_any
from monitoring.samplers._sysfs import (
    Card,
    KeptFile,
    SysfsGpu,
    SysfsSampler,
    Value,
    cards,
    discrete,
    labeled,
    node,
    text,
)

VENDOR_ID = "0x8086"

VARIABLES = ("ZE_AFFINITY_MASK",)

MICRO, MILLI = 1_000_000, 1000

# Where the graphics part of an Intel processor has its place, since 2004.
INTEGRATED = "0000:00:02.0"

# Where i915 and xe, in this order, show the same. xe's card has one or two tiles, of which the first counts.
ACTUAL_CLOCK = ("gt_act_freq_mhz", "device/tile0/gt0/freq0/act_freq")
THROTTLE = (
    ("gt/gt0", "throttle_reason_status", "throttle_reason_"),
    ("device/tile0/gt0/freq0/throttle", "status", "reason_"),
)


def probe(root: Path = Path("/")) -> IntelSampler | None:
    """Return the Intel GPUs below `root`/sys that have a driver; None without any."""
    found = [card for card in cards(root, VENDOR_ID) if _has_driver(card)]
    if not found:
        return None
    identities = [Identity(None) for _ in found]
    selected = visible_to_any(os.environ, lambda one: visible(identities, VARIABLES, _of_cards(one)))
    return IntelSampler(root, [(one, found[one.place]) for one in selected], num_devices=len(found))


def _of_cards(environment: Mapping[str, str]) -> Mapping[str, str]:
    """oneAPI's mask may name parts of a card (`0.1`); the card counts."""
    if "ZE_AFFINITY_MASK" not in environment:
        return environment
    words = environment["ZE_AFFINITY_MASK"].split(",")
    cards = ",".join(dict.fromkeys(word.partition(".")[0] for word in words))
    return {**environment, "ZE_AFFINITY_MASK": cards}


def _has_driver(card: Card) -> bool:
    return any((card.path / name).exists() for name in ACTUAL_CLOCK)


class IntelSampler(SysfsSampler):
    """The cards, and their clients."""

    def __init__(self, root: Path, selected: Sequence[tuple[Visible, Card]], *, num_devices: int) -> None:
        self._clients = Clients(root)
        gpus = discrete([_gpu(one, card, self._clients) for one, card in selected])
        super().__init__("intel", gpus, num_devices=num_devices)

    def sample(self) -> Sequence[GpuSample]:
        self._clients.look()
        return super().sample()

    def close(self) -> None:
        super().close()
        self._clients.close()


def _gpu(one: Visible, card: Card, clients: Clients) -> SysfsGpu:
    device, hwmon = card.device, card.hwmon
    temperatures, energies = labeled(hwmon, "temp"), labeled(hwmon, "energy")
    energy = energies.get("card") or energies.get("pkg") or energies.get("1")
    limits = [hwmon / f"power{number}_max" for number in (1, 2)] if hwmon is not None else []
    values = [
        *(Value("clock_sm_mhz", card.path / name) for name in ACTUAL_CLOCK),
        Value("energy_counter_joules", energy, MICRO),
        Value("temperature_celsius", temperatures.get("pkg") or temperatures.get("1"), MILLI),
        Value("temperature_memory_celsius", temperatures.get("vram"), MILLI),
        *(Value("power_limit_watts", path, MICRO) for path in limits),  # of the card, else of the package
        Value("memory_total_mb", card.path / "lmem_total_bytes", MIB),
    ]
    name = text(device / "label") or f"Intel GPU {text(device / 'device')}"
    integrated = card.pci_bus_id == INTEGRATED
    info = DeviceInfo(
        one.place,
        None,
        name,
        "intel",
        card.pci_bus_id,
        node(device),
        integrated,
        visible_index=one.number,
    )
    return SysfsGpu(info, card, values, _IntelDerived(card, clients))


class _IntelDerived:
    """The values of Intel's that are made of others, or of other sources."""

    def __init__(self, card: Card, clients: Clients) -> None:
        self._bus_id = card.pci_bus_id
        self._clients = clients
        self._available = KeptFile(card.path / "lmem_avail_bytes")
        self._tiles = _memory_of_tiles(card)
        self._throttled, self._reasons = _throttle_files(card)
        self._energy: tuple[float, float] | None = None

    def __call__(self, values: list[Any]) -> None:
        now = time.monotonic()
        joules = values[SLOT["energy_counter_joules"]]
        if joules is not None:
            # not across a counter that fell: it has begun again
            if self._energy is not None and now > self._energy[1] and joules >= self._energy[0]:
                watts = (joules - self._energy[0]) / (now - self._energy[1])
                values[SLOT["power_draw_watts"]] = values[SLOT["power_average_watts"]] = watts
            self._energy = joules, now
        if values[SLOT["power_limit_watts"]] == 0:  # the limit is disabled
            values[SLOT["power_limit_watts"]] = None
        if values[SLOT["memory_total_mb"]] is None:
            values[SLOT["memory_total_mb"]] = self._tiles
        available, total = self._available.number(), values[SLOT["memory_total_mb"]]
        if available is not None and total is not None:
            values[SLOT["memory_used_mb"]] = total - available / MIB
        throttled = self._throttled.number()
        if throttled is not None:
            names = [name for name, file in self._reasons.items() if file.number()] if throttled else []
            values[SLOT["throttle_reasons"]] = names
        values[SLOT["utilization_percent"]] = self._clients.utilization(self._bus_id)
        values[SLOT["processes"]] = self._clients.processes(self._bus_id)

    def close(self) -> None:
        for file in (self._available, self._throttled, *self._reasons.values()):
            file.close()


def _memory_of_tiles(card: Card) -> float | None:
    """Return the memory that xe reports of each tile (xe_tile_sysfs.c), together; None without any."""
    sizes = [text(path) for path in card.device.glob("tile*/physical_vram_size_bytes")]
    known = [int(size) for size in sizes if size is not None and size.isdigit()]
    return sum(known) / MIB if sum(known) else None


def _throttle_files(card: Card) -> tuple[KeptFile, dict[str, KeptFile]]:
    """Return the file that says whether the clocks are held down, and one per reason."""
    for folder, status, prefix in THROTTLE:
        if (card.path / folder / status).exists():
            paths = [path for path in sorted((card.path / folder).glob(f"{prefix}*")) if path.name != status]
            reasons = {path.name.removeprefix(prefix): KeptFile(path) for path in paths}
            return KeptFile(card.path / folder / status), reasons
    return KeptFile(None), {}
