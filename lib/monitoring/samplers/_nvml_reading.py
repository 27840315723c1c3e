"""All values of some NVIDIA GPUs in one buffer: the driver writes into it, two `unpack` read it.

pynvml decodes each value of nvmlDeviceGetFieldValues through a ctypes union, which takes longer than asking
for it. Here the arguments of every call are made once and kept, and so is what to do with the answers, until
a call answers differently. Types and numbers are those of _nvml.py.
"""

from __future__ import annotations

import ctypes
import itertools
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter, truediv
from typing import Any, NamedTuple

from monitoring.gpu.driver_calls import SAMPLING, DriverCalls
from monitoring.gpu.sample import MIB, SLOT
from monitoring.gpu.throttling import reasons_of
from monitoring.samplers import _nvml
from monitoring.samplers._nvml import ABSENT, FUNCTIONS, BoundCall, Nvml, nvmlFieldValue_t

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
STATUS_OFFSET = nvmlFieldValue_t.valueType.offset
STATUS = struct.Struct("II")
# type and error are two neighboring numbers of 32 bits, which are compared as one of 64
STATUS_WORDS = slice(STATUS_OFFSET // 8, None, FIELD_SIZE // 8)
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


FIELDS_SIZE = FIELD_SIZE * len(FIELDS)

# States of all answers that are remembered: a value that comes and goes is not decided on at each look.
MOST_PLANS = 8


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


class Readings:
    """Reads the values of some GPUs again and again: first all calls, then what the driver has written."""

    def __init__(self, nvml: Nvml, calls: DriverCalls, handles: Mapping[int, Any]) -> None:
        """`handles` are NVML's, by index. A value whose function the driver lacks is never had."""
        self._gpus: list[_Gpu] = []
        end = FIELDS_SIZE * len(handles)  # the fields of all GPUs stand first
        for index, handle in handles.items():
            calls.about(index)
            self._gpus.append(_Gpu(nvml, index, _nvml.device(handle), end))
            end = self._gpus[-1].end
        self._buffer = ctypes.create_string_buffer(end)
        for place, gpu in enumerate(self._gpus):
            calls.about(gpu.index)
            gpu.bind(nvml, self._buffer, place * FIELDS_SIZE)
        calls.about(None)
        # type and error of each field as one number, looked at where the driver writes them
        fields = memoryview(self._buffer)[: FIELDS_SIZE * len(handles)]
        self._statuses = fields.cast("B").cast("Q")[STATUS_WORDS]
        self._known_statuses: memoryview | None = None
        self._words = nvml.words
        self._batches = [gpu.batch for gpu in self._gpus]
        self._batch_answers: list[int] = []
        self._calls: list[BoundCall] = []
        self._answers: list[int] = []
        self._plan = _Plan([], {}, [])
        self._plans: dict[tuple[object, ...], _Plan] = {}

    @property
    def failed(self) -> Mapping[int, int]:
        """Indices of the GPUs that gave nothing at the last `ask`, and NVML's error for each."""
        return self._plan.failed

    @property
    def calls(self) -> list[BoundCall]:
        """Those of a look."""
        return [call for gpu in self._gpus for call in (gpu.batch, *gpu.calls)]

    def ask(self) -> None:
        """Make the calls; of a GPU that is gone nothing more is asked."""
        words = self._words
        # each call is noted by the loop's own assignment
        batches = [function(*arguments) for words[SAMPLING], function, arguments in self._batches]
        if batches != self._batch_answers:
            self._batch_answers, self._known_statuses = batches, None
            there = [gpu for gpu, batch in zip(self._gpus, batches, strict=True) if batch not in GONE]
            self._calls = [call for gpu in there for call in gpu.calls]
        answers = [function(*arguments) for words[SAMPLING], function, arguments in self._calls]
        # As long as every call and field answers as before, the plan holds, and no status is looked at one by
        # one.
        if answers != self._answers or self._statuses != self._known_statuses:
            self._decide(answers)

    def values(self, others: Sequence[Any]) -> list[tuple[Any, ...]]:
        """The values of a GpuSample of each GPU that has not failed; what is not read here is of `others`.

        These are such values of all GPUs, one GPU after the other.
        """
        buffer, plan = self._buffer, self._plan
        found = [*others, *map(truediv, plan.divided(buffer), plan.divisors), *plan.whole(buffer)]
        found += [found[place] * factor for place, factor in plan.factors]
        found += [reasons_of(found[place]) for place in plan.throttles]
        found += [100 * found[used] / found[total] if found[total] else None for used, total in plan.memories]
        found += [found[one] + found[other] for one, other in plan.remapped]
        found += [gpu.power_usage(self._words) for gpu in plan.without_power]
        return [sample(found) for sample in plan.samples]

    def _decide(self, answers: list[int]) -> None:
        """Choose what to take from the buffer, for as long as every call and field answers as it did now."""
        self._answers = answers
        # a copy: the driver writes the next look's into the same place
        statuses = self._statuses.tobytes()
        self._known_statuses = memoryview(statuses).cast("Q")
        state = (*self._batch_answers, *answers, statuses)
        if state not in self._plans:
            if len(self._plans) == MOST_PLANS:
                self._plans.clear()
            self._plans[state] = self._planned(answers)
        self._plan = self._plans[state]

    def _planned(self, answers: list[int]) -> _Plan:
        left = iter(answers)
        found: list[_Value] = []
        failed: dict[int, int] = {}
        for gpu, batch in zip(self._gpus, self._batch_answers, strict=True):
            own = [] if batch in GONE else [next(left) for _ in gpu.calls]
            values, errors = gpu.found(self._buffer, batch, own)
            if verdict := _verdict(errors):
                failed[gpu.index] = verdict
            else:
                found += values
        return _Plan(found, failed, self._gpus)


class _Gpu:
    """The calls about one GPU, which write into a buffer."""

    def __init__(self, nvml: Nvml, index: int, handle: _nvml.nvmlDevice_t, start: int) -> None:
        """All answers but the fields stand from `start` to `end`."""
        self.index, self._handle = index, handle
        self._placed, self.end = _place(nvml, handle, start)
        self.batch: BoundCall = ABSENT
        self.calls: list[BoundCall] = []
        self._at_fields = 0
        self._milliwatts = ctypes.c_uint()
        self._power_usage: BoundCall | None = None

    def bind(self, nvml: Nvml, buffer: Any, at_fields: int) -> None:
        """Prepare the calls, of which that for fields writes at `at_fields`."""
        self._at_fields = at_fields
        for number, field in enumerate(FIELDS):
            PREFILL.pack_into(buffer, at_fields + number * FIELD_SIZE, field.number, field.scope)
        for it in self._placed:
            struct.pack_into(f"<{len(it.call.filled)}I", buffer, it.offset, *it.call.filled)
        # not a copy: the driver writes into the buffer itself
        fields = (nvmlFieldValue_t * len(FIELDS)).from_buffer(buffer, at_fields)
        self.batch = nvml.bound("nvmlDeviceGetFieldValues", self._handle, len(FIELDS), fields) or ABSENT
        self.calls = [it.bound(nvml, self._handle, buffer) for it in self._placed]
        self._power_usage = nvml.bound(POWER_USAGE, self._handle, ctypes.byref(self._milliwatts))

    def found(self, buffer: Any, batch: int, answers: Sequence[int]) -> tuple[list[_Value], list[int]]:
        """Return the values that it has given, and the answers of all its calls and fields."""
        if batch in GONE:
            return [], [batch]
        found: list[_Value] = []
        errors = [*answers]
        if batch != SUCCESS:
            errors.append(batch)
        else:
            for number, field in enumerate(FIELDS):
                start = self._at_fields + number * FIELD_SIZE
                kind, error = STATUS.unpack_from(buffer, start + STATUS_OFFSET)
                errors.append(error)
                if error == SUCCESS and kind in VALUE_TYPES:
                    where = start + VALUE_OFFSET, VALUE_TYPES[kind]
                    found.append(_Value(*where, self.index, field.key, field.divisor, field.factor))
        for answer, it in zip(answers, self._placed, strict=True):
            for (offset, letter), key in zip(_numbers_in(it.layout), it.call.keys, strict=True):
                if answer == SUCCESS and key in SLOT:
                    found.append(_Value(it.offset + offset, letter, self.index, key, it.call.divisor, 1))
        return found, errors

    def power_usage(self, words: memoryview) -> float | None:
        """Ask for the power in watts as drivers before 530 tell it."""
        if self._power_usage is None:
            return None
        words[SAMPLING], function, arguments = self._power_usage
        return self._milliwatts.value / 1000 if function(*arguments) == SUCCESS else None


class _Value(NamedTuple):
    """A value in the buffer, and what brings it into our unit."""

    offset: int
    letter: str
    """How the struct module reads it."""
    gpu: int
    key: str
    divisor: int
    factor: int


class _Plan:
    """How samples come of the buffer: by a list of values given, divided, taken whole, and computed of these.

    Numbers are places in this list, to which each of the attributes from `factors` on adds.
    """

    def __init__(self, found: Sequence[_Value], failed: Mapping[int, int], gpus: Sequence[_Gpu]) -> None:
        """`failed` are indices of GPUs that get no sample, and why."""
        self.failed = failed
        # by offset, which is a value's first field: `_reader` skips from one to the next
        divided = sorted(value for value in found if value.divisor)
        whole = sorted(value for value in found if not value.divisor)
        self.divided, self.whole = _reader(divided), _reader(whole)
        self.divisors = [value.divisor for value in divided]
        # Places are given in the order in which `Readings.values` appends: what is given, divided, taken
        # whole, then each computed value. Who changes one order changes the other.
        places = itertools.count(len(SLOT) * len(gpus))
        each: dict[int, dict[str, int]] = {gpu.index: {} for gpu in gpus if gpu.index not in failed}
        for value in (*divided, *whole):
            each[value.gpu][value.key] = next(places)

        def computed(key: str, *keys: str) -> list[list[int]]:
            """The places from which a value is computed, of each GPU that has these."""
            having = [at for at in each.values() if all(one in at for one in keys)]
            # before the new places: a value may replace the one of its own name that it is computed from
            sources = [[at[one] for one in keys] for at in having]
            for at in having:
                at[key] = next(places)
            return sources

        self.factors = [
            (place, field.factor)
            for field in FIELDS
            if field.factor != 1
            for [place] in computed(field.key, field.key)
        ]
        self.throttles = [place for [place] in computed("throttle_reasons", "throttle_reasons")]
        self.memories = computed("memory_percent", "memory_used_mb", "memory_total_mb")
        self.remapped = computed("remapped_rows", "remapped_rows_correctable", "remapped_rows_uncorrectable")
        self.without_power: list[_Gpu] = []
        self.samples: list[Callable[[list[Any]], tuple[Any, ...]]] = []
        for number, gpu in enumerate(gpus):
            if gpu.index in failed:
                continue
            at = each[gpu.index]
            if "power_draw_watts" not in at and "power_average_watts" in at:
                # a driver without the power of the moment has its average over a second, which is better than
                # none
                at["power_draw_watts"] = at["power_average_watts"]
            elif "power_draw_watts" not in at:
                at["power_draw_watts"] = next(places)
                self.without_power.append(gpu)
            given = number * len(SLOT)
            self.samples.append(itemgetter(*(at.get(key, given + slot) for key, slot in SLOT.items())))


def _reader(values: Sequence[_Value]) -> Callable[[Any], tuple[Any, ...]]:
    """Return what takes values from the buffer, by rising offset."""
    layout, end = "<", 0
    for value in values:
        layout += f"{value.offset - end}x{value.letter}"
        end = value.offset + struct.calcsize("<" + value.letter)
    return struct.Struct(layout).unpack_from


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
        """The call with the handle, values, and pointers into the buffer, each in its place."""
        values, offset = iter(self.call.arguments), self.offset
        arguments: list[Any] = [handle]
        for type_ in FUNCTIONS[self.name][1:]:
            if _is_pointer(type_):
                arguments.append(ctypes.byref(type_._type_.from_buffer(buffer, offset)))
                offset += ctypes.sizeof(type_._type_)
            else:
                arguments.append(next(values))
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


def _place(nvml: Nvml, handle: Any, offset: int) -> tuple[list[_Placed], int]:
    """Return the calls that the library has, in their places from `offset` on, and the end of these."""
    placed: list[_Placed] = []
    for choice in (MEMORY, TEMPERATURE, *((call,) for call in CALLS)):
        there = [_Placed(name, call, offset) for call in choice for name in call.names if nvml.has(name)]
        if there:
            # a library may have a newer function that this GPU does not answer, and the older one
            answering = [it for it in there if len(there) > 1 and _answers(nvml, it, handle)]
            placed.append((answering or there)[0])
            offset += struct.calcsize("<" + placed[-1].layout)
    return placed, offset


def _answers(nvml: Nvml, it: _Placed, handle: Any) -> bool:
    """Whether the GPU gives the value through this call."""
    buffer = ctypes.create_string_buffer(struct.calcsize("<" + it.layout))
    struct.pack_into(f"<{len(it.call.filled)}I", buffer, 0, *it.call.filled)
    nvml.words[SAMPLING], function, arguments = it._replace(offset=0).bound(nvml, handle, buffer)
    return function(*arguments) == SUCCESS


def _verdict(errors: Sequence[int]) -> int:
    """One answer out of all: lost if any says so; well if any gave something, or if all is unsupported."""
    gone = [error for error in errors if error in GONE]
    if gone:
        return gone[0]
    if SUCCESS in errors:
        return SUCCESS
    strange = [error for error in errors if error not in NOT_TO_BE_HAD]
    return strange[0] if strange else DENIED if DENIED in errors else SUCCESS
