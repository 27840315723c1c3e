"""All values of one NVIDIA GPU in one buffer: the driver writes into it, two `unpack` read it.

pynvml decodes each value of nvmlDeviceGetFieldValues through a ctypes union, which takes longer than asking
for it. Here the arguments of every call are made once and kept, and so is what to do with the answers, until
a call answers differently. Types and numbers are those of _nvml.py.
"""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Callable, Sequence
from operator import itemgetter, truediv
from typing import Any, NamedTuple

from monitoring.gpu.driver_calls import SAMPLING
from monitoring.gpu.sample import MIB, SLOT
from monitoring.gpu.throttling import reasons_of
from monitoring.samplers import _nvml
from monitoring.samplers._nvml import FUNCTIONS, BoundCall, Nvml, nvmlFieldValue_t

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
FIELD_SIZE = ctypes.sizeof(nvmlFieldValue_t)
STATUS_WORDS = slice(nvmlFieldValue_t.valueType.offset // 8, None, FIELD_SIZE // 8)
PREFILL = struct.Struct("II")

VALUE_OFFSET = nvmlFieldValue_t.value.offset

# nvmlValueType_t -> how the struct module reads it: the type is the driver's choice, and the rest of the
# union holds whatever it held.
VALUE_TYPES = {
    _nvml.NVML_VALUE_TYPE_DOUBLE: "d",
    _nvml.NVML_VALUE_TYPE_UNSIGNED_INT: "I",
    _nvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "Q",
    _nvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "Q",
    _nvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "q",
    _nvml.NVML_VALUE_TYPE_SIGNED_INT: "i",
    _nvml.NVML_VALUE_TYPE_UNSIGNED_SHORT: "H",
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
    """The arguments between the handle and the pointers."""
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

# Where the values stand that are read here; those between them that are not are filled in later.
SECTION = slice(SLOT["utilization_percent"], SLOT["decoder_percent"] + 1)

MEMORY_USED = SLOT["memory_used_mb"]
MEMORY_TOTAL = SLOT["memory_total_mb"]
MEMORY_PERCENT = SLOT["memory_percent"]
THROTTLE = SLOT["throttle_reasons"]
POWER = SLOT["power_draw_watts"]
POWER_AVERAGE = SLOT["power_average_watts"]
REMAPPED = SLOT["remapped_rows"]
REMAPPED_CORRECTABLE = SLOT["remapped_rows_correctable"]
REMAPPED_UNCORRECTABLE = SLOT["remapped_rows_uncorrectable"]


class Reading:
    """Reads the values of one GPU again and again; the handle is NVML's."""

    def __init__(self, nvml: Nvml, handle: Any) -> None:
        """A value whose function the driver lacks is never had."""
        handle = _nvml.device(handle)
        placed, at_fields, size = _place(nvml, handle)
        self._buffer = ctypes.create_string_buffer(size)
        self._at_fields = at_fields
        for number, field in enumerate(FIELDS):
            PREFILL.pack_into(self._buffer, at_fields + number * FIELD_SIZE, field.number, field.scope)
        for it in placed:
            struct.pack_into(f"<{len(it.call.filled)}I", self._buffer, it.offset, *it.call.filled)
        fields = (nvmlFieldValue_t * len(FIELDS)).from_buffer(self._buffer, at_fields)
        # type and error of each field as one number, looked at where the driver writes them
        self._statuses = memoryview(fields).cast("B").cast("Q")[STATUS_WORDS]
        batch = nvml.bound("nvmlDeviceGetFieldValues", handle, len(FIELDS), fields)
        self._batch = batch or (0, _not_supported, ())
        self._words = nvml.words
        self._calls = [it.bound(nvml, handle, self._buffer) for it in placed]
        self._placed = placed
        self._milliwatts = ctypes.c_uint()
        self._power_usage = nvml.bound(POWER_USAGE, handle, ctypes.byref(self._milliwatts))
        self._answers: list[int] = []
        self._batch_answer = SUCCESS
        self._known_statuses: memoryview | None = None
        self._taken = struct.Struct("").unpack_from
        self._merged: Callable[[list[Any]], tuple[Any, ...]] = itemgetter(0)
        self._divisors: list[int] = []
        self._factors: list[tuple[int, int]] = []
        self._verdict = SUCCESS

    @property
    def calls(self) -> list[BoundCall]:
        """Those of a look."""
        return [self._batch, *self._calls]

    def read(self, others: list[Any]) -> list[Any] | int:
        """The values of a GpuSample, or why there are none; those that are not of SECTION are of `others`."""
        words = self._words
        words[SAMPLING], function, arguments = self._batch
        batch = function(*arguments)
        if batch and batch in GONE:
            return batch
        # each call is noted by the loop's own assignment
        answers = [function(*arguments) for words[SAMPLING], function, arguments in self._calls]
        if self._statuses != self._known_statuses or answers != self._answers or batch != self._batch_answer:
            self._decide(batch, answers)
        if self._verdict:
            return self._verdict
        taken = self._taken(self._buffer)
        values = others.copy()
        values[SECTION] = self._merged([None, *map(truediv, taken, self._divisors), *taken])
        for slot, factor in self._factors:
            values[slot] *= factor
        if total := values[MEMORY_TOTAL]:
            values[MEMORY_PERCENT] = 100 * values[MEMORY_USED] / total
        if (reasons := values[THROTTLE]) is not None:
            values[THROTTLE] = reasons_of(reasons)
        correctable, uncorrectable = values[REMAPPED_CORRECTABLE], values[REMAPPED_UNCORRECTABLE]
        if correctable is not None and uncorrectable is not None:
            values[REMAPPED] = correctable + uncorrectable
        if values[POWER] is None and self._power_usage is not None:
            words[SAMPLING], function, arguments = self._power_usage
            if function(*arguments) == SUCCESS:
                values[POWER] = self._milliwatts.value / 1000
        return values

    def _decide(self, batch: int, answers: list[int]) -> None:
        """Choose what to take from the buffer, for as long as every call and field answers as it did now."""
        self._batch_answer, self._answers = batch, answers
        self._known_statuses = memoryview(self._statuses.tobytes()).cast("Q")
        statuses = struct.unpack(f"<{2 * len(FIELDS)}I", self._known_statuses)
        found: list[tuple[int, str, str, int, int]] = []
        errors = [*answers]
        if batch != SUCCESS:
            errors.append(batch)
        else:
            for number, field in enumerate(FIELDS):
                kind, error = statuses[2 * number : 2 * number + 2]
                errors.append(error)
                if error == SUCCESS and kind in VALUE_TYPES:
                    offset = self._at_fields + number * FIELD_SIZE + VALUE_OFFSET
                    found.append((offset, VALUE_TYPES[kind], field.key, field.divisor, field.factor))
        for answer, it in zip(answers, self._placed, strict=True):
            for (offset, letter), key in zip(_numbers_in(it.layout), it.call.keys, strict=True):
                if answer == SUCCESS:
                    found.append((it.offset + offset, letter, key, it.call.divisor, 1))
        self._take(sorted(one for one in found if one[2] in SLOT))
        self._verdict = _verdict(errors)

    def _take(self, found: Sequence[tuple[int, str, str, int, int]]) -> None:
        """Offset, letter, key, divisor and factor of each value, by rising offset; those to divide first."""
        layout, end = "<", 0
        for offset, letter, *_ in found:
            layout += f"{offset - end}x{letter}"
            end = offset + struct.calcsize("<" + letter)
        self._taken = struct.Struct(layout).unpack_from
        self._divisors = [divisor for *_, divisor, _ in found if divisor]
        assert all(divisor for *_, divisor, _ in found[: len(self._divisors)])
        self._factors = [(SLOT[key], factor) for _, _, key, _, factor in found if factor != 1]
        # None stands first, then the quotients, then all that was taken
        order = [0] * len(SLOT)
        for place, (_, _, key, divisor, _) in enumerate(found, 1):
            order[SLOT[key]] = place if divisor else len(self._divisors) + place
        order[POWER] = order[POWER] or order[POWER_AVERAGE]
        self._merged = itemgetter(*order[SECTION])


class _Placed(NamedTuple):
    """A call and where in the buffer its answer stands."""

    name: str
    """The name of the function."""
    call: Call
    offset: int

    @property
    def answers(self) -> list[Any]:
        """The types that its pointers point to."""
        return [type_._type_ for type_ in FUNCTIONS[self.name] if _is_pointer(type_)]

    @property
    def layout(self) -> str:
        """The struct format of the answers, padded to 8 bytes."""
        layout = "".join(map(layout_of, self.answers))
        return f"{layout}{-struct.calcsize('<' + layout) % 8}x"

    def bound(self, nvml: Nvml, handle: Any, buffer: Any) -> BoundCall:
        """With the handle, values, and pointers into the buffer, each in its place."""
        values, offset = iter(self.call.arguments), self.offset
        arguments: list[Any] = [handle]
        for type_ in FUNCTIONS[self.name][1:]:
            if _is_pointer(type_):
                arguments.append(ctypes.byref(type_._type_.from_buffer(buffer, offset)))
                offset += ctypes.sizeof(type_._type_)
            else:
                arguments.append(type_(next(values)))
        found = nvml.bound(self.name, *arguments)
        assert found is not None
        return found


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


def _numbers_in(layout: str) -> list[tuple[int, str]]:
    """The place of each number of a layout, and its letter."""
    found = re.finditer(r"\d*x|([A-Za-z])", layout)
    return [(struct.calcsize("<" + layout[: it.start()]), it[1]) for it in found if it[1]]


def _place(nvml: Nvml, handle: Any) -> tuple[list[_Placed], int, int]:
    """The calls that the library has, in their places, the offset of the fields, and the size of the buffer.

    The fields stand behind the memory, so that all that is to be divided stands side by side.
    """
    offset = at_fields = 0
    placed: list[_Placed] = []
    for choice in (MEMORY, TEMPERATURE, *((call,) for call in CALLS)):
        there = [_Placed(name, call, offset) for call in choice for name in call.names if nvml.has(name)]
        if there:
            # a library may have a newer function that this GPU does not answer, and the older one
            answering = [it for it in there if len(there) > 1 and _answers(nvml, it, handle)]
            placed.append((answering or there)[0])
            offset += struct.calcsize("<" + placed[-1].layout)
        if choice is MEMORY:
            at_fields, offset = offset, offset + FIELD_SIZE * len(FIELDS)
    return placed, at_fields, offset


def _answers(nvml: Nvml, it: _Placed, handle: Any) -> bool:
    """Whether the GPU gives the value through this call."""
    buffer = ctypes.create_string_buffer(struct.calcsize("<" + it.layout))
    struct.pack_into(f"<{len(it.call.filled)}I", buffer, 0, *it.call.filled)
    nvml.words[SAMPLING], function, arguments = it._replace(offset=0).bound(nvml, handle, buffer)
    return function(*arguments) == SUCCESS


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
