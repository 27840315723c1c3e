"""NVML's C interface as far as it is called past pynvml: types, constants and functions as nvml.h names them.

A call with an argument too few compiles nowhere and crashes the driver; so a function that does not stand in
FUNCTIONS cannot be called here, and a test holds the tables to NVIDIA's header with a C compiler.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import POINTER, c_char_p, c_double, c_int, c_longlong, c_uint, c_ulong, c_ulonglong, c_ushort
from typing import Any

from monitoring.gpu.driver_calls import DriverCalls

# nvmlReturn_t, an enum, so an int to ctypes.
NVML_SUCCESS = 0
NVML_ERROR_INVALID_ARGUMENT = 2
NVML_ERROR_NOT_SUPPORTED = 3
NVML_ERROR_NO_PERMISSION = 4
NVML_ERROR_NOT_FOUND = 6
NVML_ERROR_INSUFFICIENT_SIZE = 7
NVML_ERROR_DRIVER_NOT_LOADED = 9
NVML_ERROR_LIBRARY_NOT_FOUND = 12
NVML_ERROR_FUNCTION_NOT_FOUND = 13
NVML_ERROR_GPU_IS_LOST = 15
NVML_ERROR_RESET_REQUIRED = 16
NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18
NVML_ERROR_NO_DATA = 21
NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25

NVML_VALUE_NOT_AVAILABLE = -1

NVML_CLOCK_SM = 1
NVML_CLOCK_MEM = 2
NVML_TEMPERATURE_GPU = 0

NVML_VALUE_TYPE_DOUBLE = 0
NVML_VALUE_TYPE_UNSIGNED_INT = 1
NVML_VALUE_TYPE_UNSIGNED_LONG = 2
NVML_VALUE_TYPE_UNSIGNED_LONG_LONG = 3
NVML_VALUE_TYPE_SIGNED_LONG_LONG = 4
NVML_VALUE_TYPE_SIGNED_INT = 5
NVML_VALUE_TYPE_UNSIGNED_SHORT = 6

NVML_FI_DEV_ECC_SBE_VOL_TOTAL = 3
NVML_FI_DEV_ECC_DBE_VOL_TOTAL = 4
NVML_FI_DEV_MEMORY_TEMP = 82
NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION = 83
NVML_FI_DEV_PCIE_REPLAY_COUNTER = 94
NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX = 138
NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX = 139
NVML_FI_DEV_REMAPPED_COR = 142
NVML_FI_DEV_REMAPPED_UNC = 143
NVML_FI_DEV_REMAPPED_FAILURE = 145
NVML_FI_DEV_POWER_AVERAGE = 185
NVML_FI_DEV_POWER_INSTANT = 186
NVML_FI_DEV_POWER_CURRENT_LIMIT = 190
NVML_FI_DEV_PCIE_COUNT_TX_BYTES = 197
NVML_FI_DEV_PCIE_COUNT_RX_BYTES = 198

NVML_GPM_METRIC_SM_UTIL = 2
NVML_GPM_METRIC_ANY_TENSOR_UTIL = 5
NVML_GPM_METRIC_DRAM_BW_UTIL = 10

# The structures' versions: the number, and below it the size.
nvmlMemory_v2 = 0x02000028
nvmlTemperature_v1 = 0x0100000C
nvmlMarginTemperature_v1 = 0x01000008
NVML_GPM_METRICS_GET_VERSION = 1

# At least the header's NVML_GPM_METRIC_MAX, which grows: a driver reads no more than `numMetrics`.
GPM_METRIC_ROOM = 512


class nvmlDevice_t(ctypes.c_void_p):
    pass


class nvmlGpmSample_t(ctypes.c_void_p):
    pass


class nvmlClockType_t(c_uint):
    pass


class nvmlTemperatureSensors_t(c_uint):
    pass


class nvmlUtilization_t(ctypes.Structure):
    _fields_ = [("gpu", c_uint), ("memory", c_uint)]


class nvmlMemory_t(ctypes.Structure):
    _fields_ = [("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong)]


class nvmlMemory_v2_t(ctypes.Structure):
    _fields_ = [
        ("version", c_uint),
        ("total", c_ulonglong),
        ("reserved", c_ulonglong),
        ("free", c_ulonglong),
        ("used", c_ulonglong),
    ]


class nvmlProcessInfo_t(ctypes.Structure):
    _fields_ = [
        ("pid", c_uint),
        ("usedGpuMemory", c_ulonglong),
        ("gpuInstanceId", c_uint),
        ("computeInstanceId", c_uint),
    ]


class nvmlProcessUtilizationSample_t(ctypes.Structure):
    _fields_ = [
        ("pid", c_uint),
        ("timeStamp", c_ulonglong),
        ("smUtil", c_uint),
        ("memUtil", c_uint),
        ("encUtil", c_uint),
        ("decUtil", c_uint),
    ]


class nvmlTemperature_t(ctypes.Structure):
    _fields_ = [("version", c_uint), ("sensorType", c_uint), ("temperature", c_int)]


class nvmlMarginTemperature_t(ctypes.Structure):
    _fields_ = [("version", c_uint), ("marginTemperature", c_int)]


class nvmlValue_t(ctypes.Union):
    _fields_ = [
        ("dVal", c_double),
        ("siVal", c_int),
        ("uiVal", c_uint),
        ("ulVal", c_ulong),
        ("ullVal", c_ulonglong),
        ("sllVal", c_longlong),
        ("usVal", c_ushort),
    ]


class nvmlFieldValue_t(ctypes.Structure):
    _fields_ = [
        ("fieldId", c_uint),
        ("scopeId", c_uint),
        ("timestamp", c_longlong),
        ("latencyUsec", c_longlong),
        ("valueType", c_uint),
        ("nvmlReturn", c_uint),
        ("value", nvmlValue_t),
    ]


class MetricInfo(ctypes.Structure):
    """`metricInfo` of nvmlGpmMetric_t, which has no name there."""

    _fields_ = [("shortName", c_char_p), ("longName", c_char_p), ("unit", c_char_p)]


class nvmlGpmMetric_t(ctypes.Structure):
    _fields_ = [
        ("metricId", c_uint),
        ("nvmlReturn", c_uint),
        ("value", c_double),
        ("metricInfo", MetricInfo),
    ]


class nvmlGpmMetricsGet_t(ctypes.Structure):
    _fields_ = [
        ("version", c_uint),
        ("numMetrics", c_uint),
        ("sample1", nvmlGpmSample_t),
        ("sample2", nvmlGpmSample_t),
        ("metrics", nvmlGpmMetric_t * GPM_METRIC_ROOM),
    ]


# Every function that is called past pynvml: its arguments, in order. Each returns a nvmlReturn_t.
FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "nvmlDeviceGetClockInfo": (nvmlDevice_t, nvmlClockType_t, POINTER(c_uint)),
    "nvmlDeviceGetComputeRunningProcesses_v3": (nvmlDevice_t, POINTER(c_uint), POINTER(nvmlProcessInfo_t)),
    "nvmlDeviceGetCurrentClocksEventReasons": (nvmlDevice_t, POINTER(c_ulonglong)),
    "nvmlDeviceGetCurrentClocksThrottleReasons": (nvmlDevice_t, POINTER(c_ulonglong)),
    "nvmlDeviceGetDecoderUtilization": (nvmlDevice_t, POINTER(c_uint), POINTER(c_uint)),
    "nvmlDeviceGetEncoderUtilization": (nvmlDevice_t, POINTER(c_uint), POINTER(c_uint)),
    "nvmlDeviceGetFanSpeed": (nvmlDevice_t, POINTER(c_uint)),
    "nvmlDeviceGetFieldValues": (nvmlDevice_t, c_int, POINTER(nvmlFieldValue_t)),
    "nvmlDeviceGetMarginTemperature": (nvmlDevice_t, POINTER(nvmlMarginTemperature_t)),
    "nvmlDeviceGetMemoryInfo": (nvmlDevice_t, POINTER(nvmlMemory_t)),
    "nvmlDeviceGetMemoryInfo_v2": (nvmlDevice_t, POINTER(nvmlMemory_v2_t)),
    "nvmlDeviceGetPowerUsage": (nvmlDevice_t, POINTER(c_uint)),
    "nvmlDeviceGetProcessUtilization": (
        nvmlDevice_t,
        POINTER(nvmlProcessUtilizationSample_t),
        POINTER(c_uint),
        c_ulonglong,
    ),
    "nvmlDeviceGetTemperature": (nvmlDevice_t, nvmlTemperatureSensors_t, POINTER(c_uint)),
    "nvmlDeviceGetTemperatureV": (nvmlDevice_t, POINTER(nvmlTemperature_t)),
    "nvmlDeviceGetUtilizationRates": (nvmlDevice_t, POINTER(nvmlUtilization_t)),
    "nvmlGpmMetricsGet": (POINTER(nvmlGpmMetricsGet_t),),
    "nvmlGpmSampleAlloc": (POINTER(nvmlGpmSample_t),),
    "nvmlGpmSampleFree": (nvmlGpmSample_t,),
    "nvmlGpmSampleGet": (nvmlDevice_t, nvmlGpmSample_t),
}


# A note, a function and its arguments; who calls it stores the note in `Nvml.words` before. A bare tuple,
# which takes half the time of a named one to take apart.
BoundCall = tuple[int, Callable[..., int], tuple[Any, ...]]


class Nvml:
    """The functions of FUNCTIONS that a driver has, each with its types, noted when it is called."""

    def __init__(self, library: ctypes.CDLL, calls: DriverCalls) -> None:
        """`library` is NVML; what `calls` leaves out counts as one that the driver does not have."""
        self._calls = calls
        self.words = calls.words
        # an object of our own for the same library: pynvml gives its functions other types
        self._library = ctypes.CDLL(library._name, handle=library._handle)

    def find(self, name: str) -> Callable[..., int] | None:
        """Return a function, None if this driver lacks it; KeyError for one whose types are not declared."""
        arguments = FUNCTIONS[name]
        function = self._function(name)
        if function is None:
            return None
        function.argtypes, function.restype = arguments, c_int
        return self._calls.noted(name, function, refuse=_refuse)

    def has(self, name: str) -> bool:
        """Whether there is such a function for the GPU that calls are about."""
        return self._function(name) is not None

    def bound(self, name: str, *arguments: Any) -> BoundCall | None:
        """Return a call that is made again and again with the same arguments; None if `has` says so.

        The arguments are held to their types here, once: ctypes takes as long for that as for the call.
        """
        function = self._function(name)
        if function is None:
            return None
        function.restype = c_int
        prepared = []
        for type_, it in zip(FUNCTIONS[name], arguments, strict=True):
            argument = type_.from_param(it)
            # a handle's address, which stays, is passed faster than the object that has it
            is_handle = isinstance(argument, ctypes.c_void_p)
            prepared.append(type_.from_param(argument.value) if is_handle else argument)
        return self._calls.note(name), function, tuple(prepared)

    def _function(self, name: str) -> Any:
        if self._calls.leaves_out(name):
            return None
        try:
            return self._library[name]  # a new object each time, so the types are set on ours alone
        except AttributeError:
            return None


def _refuse(*arguments: object) -> int:
    return NVML_ERROR_NOT_SUPPORTED


# Stands for a call that there is not, where every GPU has one.
ABSENT: BoundCall = (0, _refuse, ())


def device(handle: Any) -> nvmlDevice_t:
    """Return a handle of pynvml as these functions take it."""
    return nvmlDevice_t(ctypes.cast(handle, ctypes.c_void_p).value)
