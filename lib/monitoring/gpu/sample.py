"""The values of one GPU at one moment, which every vendor's sampler fills in, and the samplers' protocol.

A value is None where the device, its driver or our rights do not give it; nothing is ever made up. MB are MiB
(2**20 bytes) as in nvidia-smi, byte counts are bytes. docs/gpu-monitoring.md has the source of each value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

# ok; lost: it was there and does not answer any more; error: it is there and gave nothing this time.
State = Literal["ok", "lost", "error"]

MIB = 2**20


class GpuSample(NamedTuple):
    """One GPU at one moment. A tuple, because 64 of them are made each second."""

    index: int  # type: ignore[assignment]  # it hides tuple.index, which a sample has no use for
    """Its number on this machine, whichever GPUs are selected; a further vendor's follow the first's."""
    uuid: str | None
    """The driver's lasting name of the device; None if it has none."""
    name: str | None
    vendor: str
    """Name of its sampler; `simulated` in a demonstration, never of a run."""
    state: State
    error: str | None = None
    """Why the state is not `ok`."""
    utilization_percent: float | None = None
    memory_utilization_percent: float | None = None
    """Share of the time in which the memory was read or written."""
    memory_used_mb: float | None = None
    memory_total_mb: float | None = None
    memory_free_mb: float | None = None
    """Memory neither in use nor reserved by the driver."""
    memory_percent: float | None = None
    temperature_celsius: float | None = None
    temperature_hotspot_celsius: float | None = None
    temperature_memory_celsius: float | None = None
    temperature_margin_celsius: float | None = None
    """Degrees left until the device slows itself down."""
    power_draw_watts: float | None = None
    """Instantaneous where the device reports that, else the mean that it reports."""
    power_average_watts: float | None = None
    power_limit_watts: float | None = None
    energy_joules: float | None = None
    """Energy since measuring began, of all its users (energy.EnergyMeter fills it in)."""
    energy_source: Literal["counter", "integrated"] | None = None
    energy_counter_joules: float | None = None
    """The device's own counter, which began long ago."""
    fan_speed_percent: float | None = None
    clock_sm_mhz: float | None = None
    clock_memory_mhz: float | None = None
    throttle_reasons: list[str] | None = None
    """Why the clocks are lower than requested; empty if they are not."""
    pcie_tx_bytes: int | None = None
    """Bytes sent by the GPU since its driver was loaded; this and the three below are counters."""
    pcie_rx_bytes: int | None = None
    pcie_replay_count: int | None = None
    nvlink_tx_bytes: int | None = None
    nvlink_rx_bytes: int | None = None
    ecc_corrected: int | None = None
    """Errors since the driver was loaded."""
    ecc_uncorrected: int | None = None
    remapped_rows: int | None = None
    """Sum of the two below."""
    remapped_rows_correctable: int | None = None
    remapped_rows_uncorrectable: int | None = None
    row_remap_failure: int | None = None
    """1 if a row could not be replaced, else 0."""
    xid_errors: int | None = None
    """Xids since sampling began; None where the driver reports none for this GPU."""
    xid_last_error: int | None = None
    """The number of the last of them, 0 before the first."""
    encoder_percent: float | None = None
    decoder_percent: float | None = None
    sm_activity_percent: float | None = None
    tensor_activity_percent: float | None = None
    dram_activity_percent: float | None = None
    processes: list[dict[str, object]] | None = None
    """`pid`, `name`, `memory_mb` and `sm_percent` (share of time on its SMs) of each that computes on it."""
    mig: list[dict[str, object]] | None = None
    """The GPU's MIG instances; None if it is not partitioned."""
    numa_node: int | None = None
    run_share: float | None = None
    """Share of its time that is the run's (run_devices has it); None for a GPU that is none of the run's."""


SLOT = {name: place for place, name in enumerate(GpuSample._fields)}
"""The place of a value in a sample."""


class DeviceInfo(NamedTuple):
    """The lasting facts of a GPU."""

    index: int  # type: ignore[assignment]  # it hides tuple.index, which a sample has no use for
    uuid: str | None
    name: str | None
    vendor: str
    pci_bus_id: str | None = None
    """PCI address as in /sys/bus/pci/devices: `0000:3b:00.0`."""
    numa_node: int | None = None
    integrated: bool = False
    """Whether it is a part of the processor; left out where there is any other GPU."""
    visible_index: int | None = None
    """N of `cuda:N` in a process with our environment; None where that is not known."""

    def sample(self, state: State = "ok", error: str | None = None) -> GpuSample:
        """Return a sample of the GPU with no values yet."""
        return GpuSample(
            self.index, self.uuid, self.name, self.vendor, state, error, numa_node=self.numa_node
        )


class GpuEvent(NamedTuple):
    """Something that happened to a GPU between two looks."""

    time: float
    """UTC epoch seconds."""
    index: int  # type: ignore[assignment]  # it hides tuple.index, which a sample has no use for
    uuid: str | None
    kind: Literal["xid", "lost", "back", "error"]
    """A sampler says `back` of a GPU that it could not open, so that it is opened again itself."""
    code: int | None
    """The driver's number of an Xid."""
    message: str
    """A sentence for a person, as alerts hold it."""


class Sampler(Protocol):
    """A source of samples. Any method may raise; one thread calls them."""

    num_devices: int
    """How many GPUs of the vendor the machine has, selected or not."""

    @property
    def vendor(self) -> str:
        """`nvidia`, `amd`, `intel`, or several joined by `+`."""

    def devices(self) -> Sequence[DeviceInfo]:
        """Return the selected GPUs, by rising index."""

    def sample(self) -> Sequence[GpuSample]:
        """One look at each of them, in the same order; a GPU that cannot be read is there, with its state."""

    def events(self) -> Sequence[GpuEvent]:
        """Return the events since the last call, each once."""

    def close(self) -> None:
        """Let go of the driver; a second call does nothing."""


class Snapshot(NamedTuple):
    """One look at the GPUs."""

    time: float
    """UTC epoch seconds."""
    gpus: Sequence[GpuSample]
