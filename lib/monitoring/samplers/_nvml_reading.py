"""All values of one NVIDIA GPU in one buffer: the driver writes into it, one `unpack` reads it.

pynvml decodes each value of nvmlDeviceGetFieldValues through a ctypes union, which takes longer than asking
for it. Here the arguments of every call are made once and kept, and so is what to do with the answers, until
a call answers differently. Types and numbers are those of _nvml.py.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from monitoring.gpu.driver_calls import SAMPLING
from monitoring.gpu.sample import MIB, SLOT
from monitoring.gpu.throttling import reasons_of
from monitoring.samplers import _nvml
from monitoring.samplers._nvml import FUNCTIONS, Nvml, nvmlFieldValue_t

SUCCESS = _nvml.NVML_SUCCESS

DENIED = _nvml.NVML_ERROR_NO_PERMISSION

# Answers of a GPU that is gone.
GONE = frozenset({_nvml.NVML_ERROR_GPU_IS_LOST, _nvml.NVML_ERROR_RESET_REQUIRED})

# Answers that say that a value is not to be had, of a GPU that is well.
NOT_TO_BE_HAD = frozenset(
    {
        _nvml.NVML_ERROR_INVALID_ARGUMENT,
        _nvml.NVML_ERROR_NOT_SUPPORTED,
        _nvml.NVML_ERROR_NO_PERMISSION,
        _nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        _nvml.NVML_ERROR_NO_DATA,
        _nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
    }
)

# nvmlFieldValue_t: field and scope, time, latency, then the type, the error and the value itself.
FIELD = "24xIIQ"
FIELD_SIZE = ctypes.sizeof(nvmlFieldValue_t)
PREFILL = struct.Struct("II")

VALUE_OFFSET = nvmlFieldValue_t.value.offset

# nvmlValueType_t -> the bits of the value that count: the type is the driver's choice, and the rest of the
# union holds whatever it held. The fields below are unsigned in the drivers that we know; the other types are
# read one by one.
ALL_BITS = -1
UNSIGNED = {
    _nvml.NVML_VALUE_TYPE_UNSIGNED_INT: 2**32 - 1,
    _nvml.NVML_VALUE_TYPE_UNSIGNED_LONG: 2**64 - 1,
    _nvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: 2**64 - 1,
    _nvml.NVML_VALUE_TYPE_UNSIGNED_SHORT: 2**16 - 1,
}
OTHER_TYPES = {
    _nvml.NVML_VALUE_TYPE_DOUBLE: struct.Struct("<d"),
    _nvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: struct.Struct("<q"),
    _nvml.NVML_VALUE_TYPE_SIGNED_INT: struct.Struct("<i"),
}

ALL_LINKS = 0xFFFFFFFF


class Field(NamedTuple):
    """A value of nvmlDeviceGetFieldValues, and what brings it into our unit."""

    number: int
    key: str
    divisor: int = 0
    """0 leaves it an integer, times `factor`."""
    factor: int = 1
    scope: int = 0


# nvml.h has their units.
FIELDS = (
    Field(_nvml.NVML_FI_DEV_POWER_INSTANT, "power_draw_watts", 1000),
    Field(_nvml.NVML_FI_DEV_POWER_AVERAGE, "power_average_watts", 1000),
    Field(_nvml.NVML_FI_DEV_POWER_CURRENT_LIMIT, "power_limit_watts", 1000),
    Field(_nvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION, "energy_counter_joules", 1000),
    Field(_nvml.NVML_FI_DEV_MEMORY_TEMP, "temperature_memory_celsius"),
    Field(_nvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES, "pcie_tx_bytes"),
    Field(_nvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES, "pcie_rx_bytes"),
    Field(_nvml.NVML_FI_DEV_PCIE_REPLAY_COUNTER, "pcie_replay_count"),
    # NVLink's are in KiB; a scope of UINT_MAX is the sum over all links
    Field(_nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, "nvlink_tx_bytes", factor=1024, scope=ALL_LINKS),
    Field(_nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, "nvlink_rx_bytes", factor=1024, scope=ALL_LINKS),
    Field(_nvml.NVML_FI_DEV_ECC_SBE_VOL_TOTAL, "ecc_corrected"),
    Field(_nvml.NVML_FI_DEV_ECC_DBE_VOL_TOTAL, "ecc_uncorrected"),
    Field(_nvml.NVML_FI_DEV_REMAPPED_COR, "remapped_rows_correctable"),
    Field(_nvml.NVML_FI_DEV_REMAPPED_UNC, "remapped_rows_uncorrectable"),
    Field(_nvml.NVML_FI_DEV_REMAPPED_FAILURE, "row_remap_failure"),
)


class Call(NamedTuple):
    """A function of its own for one or more values, which it writes through its pointers."""

    names: tuple[str, ...]
    """The functions to try."""
    keys: tuple[str, ...]
    """Names of what the pointers point to, in order; one that begins with _ is not used."""
    arguments: tuple[int, ...] = ()
    """What is neither the handle nor a pointer."""
    filled: tuple[int, ...] = ()
    """The start of the answer, set before the call."""
    divisor: int = 0


CALLS = (
    Call(("nvmlDeviceGetUtilizationRates",), ("utilization_percent", "memory_utilization_percent")),
    Call(("nvmlDeviceGetClockInfo",), ("clock_sm_mhz",), arguments=(_nvml.NVML_CLOCK_SM,)),
    Call(("nvmlDeviceGetClockInfo",), ("clock_memory_mhz",), arguments=(_nvml.NVML_CLOCK_MEM,)),
    Call(
        ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"),
        ("throttle_reasons",),
    ),
    Call(
        ("nvmlDeviceGetMarginTemperature",),
        ("_version", "temperature_margin_celsius"),
        filled=(_nvml.nvmlMarginTemperature_v1,),
    ),
    Call(("nvmlDeviceGetFanSpeed",), ("fan_speed_percent",)),
    Call(("nvmlDeviceGetEncoderUtilization",), ("encoder_percent", "_period")),
    Call(("nvmlDeviceGetDecoderUtilization",), ("decoder_percent", "_period")),
)

# Read only if the fields above have no power: drivers before 530.
POWER_USAGE = "nvmlDeviceGetPowerUsage"

# The newer function of two where the driver has it: version 2 of the memory does not count what the driver
# itself keeps as used, which is what nvidia-smi shows; the old temperature goes away with CUDA 14.
MEMORY = (
    Call(
        ("nvmlDeviceGetMemoryInfo_v2",),
        ("_version", "memory_total_mb", "_reserved", "memory_free_mb", "memory_used_mb"),
        filled=(_nvml.nvmlMemory_v2,),
        divisor=MIB,
    ),
    Call(("nvmlDeviceGetMemoryInfo",), ("memory_total_mb", "memory_free_mb", "memory_used_mb"), divisor=MIB),
)
TEMPERATURE = (
    Call(
        ("nvmlDeviceGetTemperatureV",),
        ("_version", "_sensor", "temperature_celsius"),
        filled=(_nvml.nvmlTemperature_v1, _nvml.NVML_TEMPERATURE_GPU),
    ),
    Call(("nvmlDeviceGetTemperature",), ("temperature_celsius",), arguments=(_nvml.NVML_TEMPERATURE_GPU,)),
)

MEMORY_USED = SLOT["memory_used_mb"]
MEMORY_TOTAL = SLOT["memory_total_mb"]
MEMORY_PERCENT = SLOT["memory_percent"]
THROTTLE = SLOT["throttle_reasons"]
POWER = SLOT["power_draw_watts"]
POWER_AVERAGE = SLOT["power_average_watts"]
REMAPPED = SLOT["remapped_rows"]
REMAPPED_CORRECTABLE = SLOT["remapped_rows_correctable"]
REMAPPED_UNCORRECTABLE = SLOT["remapped_rows_uncorrectable"]
DERIVED = frozenset({"throttle_reasons"})

# Where the unpacked values of the fields end; each is a type, an error and a value.
NUM_FIELD_VALUES = 3 * len(FIELDS)


class Reading:
    """Reads the values of one GPU again and again; the handle is NVML's."""

    def __init__(self, nvml: Nvml, handle: Any) -> None:
        """A value whose function the driver lacks is never had."""
        handle = _nvml.device(handle)
        placed, size = _place(nvml, handle)
        self._buffer = ctypes.create_string_buffer(size)
        self._unpack = struct.Struct("<" + FIELD * len(FIELDS) + "".join(it.layout for it in placed)).unpack
        for number, field in enumerate(FIELDS):
            PREFILL.pack_into(self._buffer, number * FIELD_SIZE, field.number, field.scope)
        for it in placed:
            struct.pack_into(f"<{len(it.call.filled)}I", self._buffer, it.offset, *it.call.filled)
        fields = (nvmlFieldValue_t * len(FIELDS)).from_buffer(self._buffer)
        self._batch: Callable[..., int]
        self._batch, self._batch_number = nvml.bare("nvmlDeviceGetFieldValues") or (_not_supported, 0)
        self._words = nvml.words
        self._batch_arguments = (handle, len(FIELDS), fields)
        self._calls = [(it.number, it.function, it.arguments(handle, self._buffer)) for it in placed]
        self._placed = placed
        self._power_usage = None if nvml.bare(POWER_USAGE) is None else nvml.find(POWER_USAGE)
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
        words, answers = self._words, []
        words[SAMPLING] = self._batch_number
        batch: int = self._batch(*self._batch_arguments)
        if batch in GONE:
            return batch
        for number, function, arguments in self._calls:
            words[SAMPLING] = number
            answers.append(function(*arguments))
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
            values[THROTTLE] = reasons_of(found[places["throttle_reasons"]])
        correctable, uncorrectable = values[REMAPPED_CORRECTABLE], values[REMAPPED_UNCORRECTABLE]
        if correctable is not None and uncorrectable is not None:
            values[REMAPPED] = correctable + uncorrectable
        if values[POWER] is None:
            values[POWER] = values[POWER_AVERAGE]
            if values[POWER] is None and self._power_usage is not None:
                handle = self._batch_arguments[0]
                if self._power_usage(handle, ctypes.byref(self._milliwatts)) == SUCCESS:
                    values[POWER] = self._milliwatts.value / 1000


class _Placed(NamedTuple):
    """A call and where in the buffer its answer stands."""

    function: Callable[..., int]
    number: int
    """By which its calls are noted."""
    types: tuple[Any, ...]
    """Of its arguments."""
    call: Call
    offset: int

    @property
    def answers(self) -> list[Any]:
        """The types that its pointers point to."""
        return [type_._type_ for type_ in self.types if _is_pointer(type_)]

    @property
    def layout(self) -> str:
        """Of the answers, in the words of the struct module; padded to 8 bytes."""
        layout = "".join(map(layout_of, self.answers))
        return f"{layout}{-struct.calcsize('<' + layout) % 8}x"

    def arguments(self, handle: Any, buffer: Any) -> tuple[Any, ...]:
        """The handle, values, and pointers into the buffer, each in its place."""
        values, offset = iter(self.call.arguments), self.offset
        arguments: list[Any] = [handle]
        for type_ in self.types[1:]:
            if _is_pointer(type_):
                arguments.append(ctypes.byref(type_._type_.from_buffer(buffer, offset)))
                offset += ctypes.sizeof(type_._type_)
            else:
                arguments.append(type_(next(values)))
        return tuple(arguments)


def _is_pointer(type_: Any) -> bool:
    return issubclass(type_, ctypes._Pointer)


# c_ulonglong is c_ulong where that has 64 bits; to the struct module an L has 32 everywhere.
STANDARD = {"L": "Q", "l": "q"}


def layout_of(type_: Any) -> str:
    """How the struct module reads a number, or a structure of numbers, with its gaps."""
    if not issubclass(type_, ctypes.Structure):
        letter: str = type_._type_
        return STANDARD.get(letter, letter)
    layout, end = "", 0
    for name, member in type_._fields_:
        place = getattr(type_, name)
        layout += f"{place.offset - end}x{layout_of(member)}"
        end = place.offset + place.size
    return f"{layout}{ctypes.sizeof(type_) - end}x"


def _place(nvml: Nvml, handle: Any) -> tuple[list[_Placed], int]:
    """The calls that the library has, placed after the fields, and the size of the buffer."""
    offset = FIELD_SIZE * len(FIELDS)
    placed = []
    for choice in (MEMORY, TEMPERATURE, *((call,) for call in CALLS)):
        there = [
            _Placed(*found, FUNCTIONS[name], call, offset)
            for call in choice
            for name in call.names
            if (found := nvml.bare(name)) is not None
        ]
        if there:
            # a library may have a newer function that this GPU does not answer, and the older one
            answering = [it for it in there if len(there) > 1 and _answers(nvml, it, handle)]
            placed.append((answering or there)[0])
            offset += struct.calcsize("<" + placed[-1].layout)
    return placed, offset


def _answers(nvml: Nvml, it: _Placed, handle: Any) -> bool:
    """Whether the GPU gives the value through this call."""
    nvml.words[SAMPLING] = it.number
    buffer = ctypes.create_string_buffer(struct.calcsize("<" + it.layout))
    struct.pack_into(f"<{len(it.call.filled)}I", buffer, 0, *it.call.filled)
    return it.function(*it._replace(offset=0).arguments(handle, buffer)) == SUCCESS


def _not_supported(*arguments: object) -> int:
    return _nvml.NVML_ERROR_NOT_SUPPORTED


def _verdict(errors: Sequence[int]) -> int:
    """One answer out of all: lost if any says so; well if any gave something, or if all is unsupported."""
    gone = [error for error in errors if error in GONE]
    if gone:
        return gone[0]
    if SUCCESS in errors:
        return SUCCESS
    strange = [error for error in errors if error not in NOT_TO_BE_HAD]
    return strange[0] if strange else DENIED if DENIED in errors else SUCCESS
