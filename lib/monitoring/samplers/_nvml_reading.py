"""All values of one NVIDIA GPU in one buffer: the driver writes into it, one `unpack` reads it.

pynvml decodes each value of nvmlDeviceGetFieldValues through a ctypes union, which takes longer than asking
for it. Here the arguments of every call are made once and kept, and so is what to do with the answers, until
a call answers differently.

Numbers of fields, types, answers and reasons are those of nvml.h (docs.nvidia.com/deploy/nvml-api); a test
compares them with pynvml's.
"""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from monitoring.gpu_sample import MIB, SLOT

SUCCESS = 0

# Answers of a GPU that is gone: NVML_ERROR_GPU_IS_LOST, NVML_ERROR_RESET_REQUIRED.
GONE = frozenset({15, 16})

# Answers that say that a value is not to be had, of a GPU that is well: invalid argument, not supported, no
# permission, no function of that name, no data, another version of the structure.
NOT_TO_BE_HAD = frozenset({2, 3, 4, 13, 21, 25})

# nvmlFieldValue_t: field and scope, time, latency, then the type, the error and the value itself.
FIELD = "24xIIQ"
FIELD_SIZE = 40
PREFILL = struct.Struct("II")

VALUE_OFFSET = 32

# nvmlValueType_t -> the bits of the value that count: the type is the driver's choice, and the rest of the
# union holds whatever it held. The fields below are unsigned in the drivers that we know; the other types are
# read one by one.
ALL_BITS = -1
UNSIGNED = {1: 2**32 - 1, 2: 2**64 - 1, 3: 2**64 - 1, 6: 2**16 - 1}
OTHER_TYPES = {0: struct.Struct("<d"), 4: struct.Struct("<q"), 5: struct.Struct("<i")}

ALL_LINKS = 0xFFFFFFFF


class Field(NamedTuple):
    """A value of nvmlDeviceGetFieldValues, and what brings it into our unit."""

    number: int
    key: str
    divisor: int = 0
    """0 leaves it a whole number, times `factor`."""
    factor: int = 1
    scope: int = 0


# NVML_FI_DEV_...: nvml.h has their units.
FIELDS = (
    Field(186, "power_draw_watts", 1000),  # POWER_INSTANT
    Field(185, "power_average_watts", 1000),  # POWER_AVERAGE
    Field(190, "power_limit_watts", 1000),  # POWER_CURRENT_LIMIT
    Field(83, "energy_counter_joules", 1000),  # TOTAL_ENERGY_CONSUMPTION
    Field(82, "temperature_memory_celsius"),  # MEMORY_TEMP
    Field(197, "pcie_tx_bytes"),  # PCIE_COUNT_TX_BYTES
    Field(198, "pcie_rx_bytes"),  # PCIE_COUNT_RX_BYTES
    Field(94, "pcie_replay_count"),  # PCIE_REPLAY_COUNTER
    # NVLINK_THROUGHPUT_DATA_TX, in KiB; a scope of UINT_MAX is the sum over all links
    Field(138, "nvlink_tx_bytes", factor=1024, scope=ALL_LINKS),
    Field(139, "nvlink_rx_bytes", factor=1024, scope=ALL_LINKS),  # NVLINK_THROUGHPUT_DATA_RX
    Field(3, "ecc_corrected"),  # ECC_SBE_VOL_TOTAL
    Field(4, "ecc_uncorrected"),  # ECC_DBE_VOL_TOTAL
    Field(142, "remapped_corrected"),  # REMAPPED_COR
    Field(143, "remapped_uncorrected"),  # REMAPPED_UNC
)


class Call(NamedTuple):
    """A function of its own: the names to try, arguments between handle and answer, layout of the answer."""

    names: tuple[str, ...]
    layout: str
    """Of the struct module; padded to 8 bytes."""
    keys: tuple[str, ...]
    """Names of what the layout holds; one that begins with _ is not used."""
    arguments: tuple[int, ...] = ()
    filled: tuple[int, ...] = ()
    """What stands at the start of the answer before the call."""
    divisor: int = 0


CALLS = (
    Call(("nvmlDeviceGetUtilizationRates",), "II", ("utilization_percent", "memory_utilization_percent")),
    Call(("nvmlDeviceGetClockInfo",), "I4x", ("clock_sm_mhz",), arguments=(1,)),
    Call(("nvmlDeviceGetClockInfo",), "I4x", ("clock_memory_mhz",), arguments=(2,)),
    Call(
        ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"),
        "Q",
        ("throttle_reasons",),
    ),
    Call(
        ("nvmlDeviceGetMarginTemperature",),
        "Ii",
        ("_version", "temperature_margin_celsius"),
        filled=(0x01000008,),
    ),
    Call(("nvmlDeviceGetFanSpeed",), "I4x", ("fan_speed_percent",)),
    Call(("nvmlDeviceGetEncoderUtilization",), "II", ("encoder_percent", "_period")),
    Call(("nvmlDeviceGetDecoderUtilization",), "II", ("decoder_percent", "_period")),
)

# Asked only if the fields above have no power: drivers before 530.
POWER_USAGE = "nvmlDeviceGetPowerUsage"

# The newer function of two where the driver has it: version 2 of the memory does not count what the driver
# itself keeps as used, which is what nvidia-smi shows; the old temperature goes away with CUDA 14.
MEMORY = (
    Call(
        ("nvmlDeviceGetMemoryInfo_v2",),
        "I4xQQQQ",
        ("_version", "memory_total_mb", "_reserved", "_free", "memory_used_mb"),
        filled=(0x02000028,),
        divisor=MIB,
    ),
    Call(("nvmlDeviceGetMemoryInfo",), "QQQ", ("memory_total_mb", "_free", "memory_used_mb"), divisor=MIB),
)
TEMPERATURE = (
    Call(
        ("nvmlDeviceGetTemperatureV",),
        "IIi4x",
        ("_version", "_sensor", "temperature_celsius"),
        filled=(0x0100000C, 0),
    ),
    Call(("nvmlDeviceGetTemperature",), "I4x", ("temperature_celsius",), arguments=(0,)),
)

# nvmlClocksEventReason bits, by the names that nvml.h gives them.
THROTTLE_REASONS = {
    0x001: "gpu_idle",
    0x002: "applications_clocks_setting",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal_slowdown",
    0x040: "hw_thermal_slowdown",
    0x080: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
    0x200: "board_limit",
    0x400: "reliability",
}

MEMORY_USED = SLOT["memory_used_mb"]
MEMORY_TOTAL = SLOT["memory_total_mb"]
MEMORY_PERCENT = SLOT["memory_percent"]
THROTTLE = SLOT["throttle_reasons"]
POWER = SLOT["power_draw_watts"]
POWER_AVERAGE = SLOT["power_average_watts"]
REMAPPED = SLOT["remapped_rows"]
DERIVED = frozenset({"throttle_reasons"})

# Where the unpacked values of the fields end; each is a type, an error and a value.
NUM_FIELD_VALUES = 3 * len(FIELDS)


class Reading:
    """Reads the values of one GPU again and again; the handle is NVML's."""

    def __init__(self, library: Any, handle: Any) -> None:
        """`library` is NVML as a ctypes library; a value whose function it lacks is never had."""
        placed, size = _place(library, handle)
        self._buffer = ctypes.create_string_buffer(size)
        self._unpack = struct.Struct(
            "<" + FIELD * len(FIELDS) + "".join(it.call.layout for it in placed)
        ).unpack
        for number, field in enumerate(FIELDS):
            PREFILL.pack_into(self._buffer, number * FIELD_SIZE, field.number, field.scope)
        for it in placed:
            struct.pack_into(f"<{len(it.call.filled)}I", self._buffer, it.offset, *it.call.filled)
        self._batch = library.nvmlDeviceGetFieldValues
        self._batch_arguments = (handle, ctypes.c_int(len(FIELDS)), ctypes.byref(self._buffer))
        self._calls = [(it.function, it.arguments(handle, self._buffer)) for it in placed]
        self._placed = placed
        self._power_usage = getattr(library, POWER_USAGE, None)
        self._milliwatts = ctypes.c_uint()
        self._answers: tuple[object, ...] = ()
        self._wholes: list[tuple[int, int, int, int]] = []
        self._fractions: list[tuple[int, int, int, int]] = []
        self._others: list[tuple[int, struct.Struct, int, int, int]] = []
        self._places: dict[str, int] = {}
        self._verdict = SUCCESS

    def read(self, values: list[Any]) -> int:
        """Fill the slots of a GpuSample with what the GPU says; SUCCESS, or why there is nothing.

        Slots of values that are not to be had stay as they are.
        """
        batch: int = self._batch(*self._batch_arguments)
        if batch in GONE:
            return batch
        answers = [function(*arguments) for function, arguments in self._calls]
        found = self._unpack(self._buffer)
        told = (batch, answers, found[0:NUM_FIELD_VALUES:3], found[1:NUM_FIELD_VALUES:3])
        if told != self._answers:
            self._decide(batch, answers, found)
            self._answers = told
        for slot, place, mask, factor in self._wholes:
            values[slot] = (found[place] & mask) * factor
        for slot, place, mask, divisor in self._fractions:
            values[slot] = (found[place] & mask) / divisor
        for slot, layout, offset, divisor, factor in self._others:
            number = layout.unpack_from(self._buffer, offset)[0]
            values[slot] = number / divisor if divisor else number * factor
        self._derive(values, found)
        return self._verdict

    def _decide(self, batch: int, answers: Sequence[int], found: Sequence[int]) -> None:
        """Choose what to take from the buffer, for as long as every call and field answers as it did now."""
        self._wholes, self._fractions, self._others, self._places = [], [], [], {}
        errors = [*answers]
        if batch != SUCCESS:
            errors.append(batch)
        else:
            for number, field in enumerate(FIELDS):
                kind, error = found[3 * number], found[3 * number + 1]
                errors.append(error)
                if error == SUCCESS and kind in UNSIGNED:
                    self._take(field.key, 3 * number + 2, UNSIGNED[kind], field.divisor, field.factor)
                elif error == SUCCESS and kind in OTHER_TYPES and field.key in SLOT:
                    offset = number * FIELD_SIZE + VALUE_OFFSET
                    layout = OTHER_TYPES[kind]
                    self._others.append((SLOT[field.key], layout, offset, field.divisor, field.factor))
        place = NUM_FIELD_VALUES
        for answer, it in zip(answers, self._placed, strict=True):
            for offset, key in enumerate(it.call.keys):
                if answer == SUCCESS:
                    self._take(key, place + offset, ALL_BITS, it.call.divisor, 1)
            place += len(it.call.keys)
        self._verdict = _verdict(errors)

    def _take(self, key: str, place: int, mask: int, divisor: int, factor: int) -> None:
        self._places[key] = place
        if key in SLOT and key not in DERIVED:
            if divisor:
                self._fractions.append((SLOT[key], place, mask, divisor))
            else:
                self._wholes.append((SLOT[key], place, mask, factor))

    def _derive(self, values: list[Any], found: Sequence[int]) -> None:
        """The values that are made of others."""
        places = self._places
        if values[MEMORY_TOTAL]:
            values[MEMORY_PERCENT] = 100 * values[MEMORY_USED] / values[MEMORY_TOTAL]
        if "throttle_reasons" in places:
            values[THROTTLE] = throttle_reasons(found[places["throttle_reasons"]])
        if "remapped_corrected" in places and "remapped_uncorrected" in places:
            rows = found[places["remapped_corrected"]], found[places["remapped_uncorrected"]]
            values[REMAPPED] = (rows[0] & 0xFFFFFFFF) + (rows[1] & 0xFFFFFFFF)
        if values[POWER] is None:
            values[POWER] = values[POWER_AVERAGE]
            if values[POWER] is None and self._power_usage is not None:
                handle = self._batch_arguments[0]
                if self._power_usage(handle, ctypes.byref(self._milliwatts)) == SUCCESS:
                    values[POWER] = self._milliwatts.value / 1000


@functools.lru_cache(maxsize=256)
def throttle_reasons(bits: int) -> list[str]:
    """The names of the reasons; a bit without a name is told as its number."""
    named = [name for bit, name in THROTTLE_REASONS.items() if bits & bit]
    rest = bits & ~sum(THROTTLE_REASONS)
    return [*named, *([f"0x{rest:x}"] if rest else [])]


class _Placed(NamedTuple):
    """A call and where in the buffer its answer stands."""

    function: Callable[..., int]
    call: Call
    offset: int

    def arguments(self, handle: Any, buffer: Any) -> tuple[Any, ...]:
        between = [ctypes.c_uint(argument) for argument in self.call.arguments]
        return handle, *between, ctypes.byref(buffer, self.offset)


def _place(library: Any, handle: Any) -> tuple[list[_Placed], int]:
    """The calls that the library has, behind the fields, and the size of the buffer."""
    offset = FIELD_SIZE * len(FIELDS)
    placed = []
    for choice in (MEMORY, TEMPERATURE, *((call,) for call in CALLS)):
        there = [
            _Placed(getattr(library, name), call, offset)
            for call in choice
            for name in call.names
            if hasattr(library, name)
        ]
        if there:
            # a library may have a newer function that this GPU does not answer beside the older that it does
            answering = [it for it in there if len(there) > 1 and _answers(it, handle)]
            placed.append((answering or there)[0])
            offset += struct.calcsize("<" + placed[-1].call.layout)
    return placed, offset


def _answers(it: _Placed, handle: Any) -> bool:
    """Whether the GPU gives the value through this call."""
    size = struct.calcsize("<" + it.call.layout)
    buffer = ctypes.create_string_buffer(size)
    struct.pack_into(f"<{len(it.call.filled)}I", buffer, 0, *it.call.filled)
    return it.function(*it._replace(offset=0).arguments(handle, buffer)) == SUCCESS


def _verdict(errors: Sequence[int]) -> int:
    """One answer out of all: gone if any says so, well if any gave something or none failed strangely."""
    gone = [error for error in errors if error in GONE]
    if gone:
        return gone[0]
    strange = [error for error in errors if error != SUCCESS and error not in NOT_TO_BE_HAD]
    return strange[0] if strange and SUCCESS not in errors else SUCCESS
