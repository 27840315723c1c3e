"""Xid events, NVIDIA's reports of failures, which a thread of its own waits for."""

from __future__ import annotations

import ctypes
import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from monitoring.gpu.driver_calls import DriverCalls
from monitoring.gpu.sample import DeviceInfo, GpuEvent

# Milliseconds that one wait of the thread takes at most; closing waits as long.
WAIT = 500

# Seconds after a wait that failed, so that a driver that is gone does not keep a core busy.
PAUSE = 1.0

# From NVIDIA's list "Xid Errors" (docs.nvidia.com/deploy/xid-errors), those that trainings meet.
MEANINGS = {
    13: "graphics engine exception, often an illegal access of the program",
    31: "memory page fault, often an illegal access of the program",
    43: "the GPU stopped processing; the program was ended",
    45: "work was cleaned up because its program was ended",
    48: "double-bit ECC error",
    61: "internal micro-controller breakpoint or warning",
    62: "internal micro-controller halt",
    63: "a memory row was remapped",
    64: "a memory row could not be remapped",
    74: "NVLink error",
    79: "the GPU has fallen off the bus",
    92: "high rate of single-bit ECC errors",
    94: "contained memory error; its program was ended",
    95: "uncontained memory error; the GPU needs a reset",
    119: "the GPU's system processor does not answer",
    120: "error of the GPU's system processor",
}


class XidEvents:
    """Collects events of some GPUs; none come from those that do not support it."""

    def __init__(
        self,
        pynvml: Any,
        waiting: Any,
        devices: Mapping[int, DeviceInfo],
        handles: Mapping[int, Any],
        calls: DriverCalls,
    ) -> None:
        """`handles` are NVML's by index; `devices` say what the events call them; `waiting` is pynvml too.

        The thread calls that one, which notes its calls in a place of their own.
        """
        self._pynvml, self._waiting = pynvml, waiting
        self._by_address = {_address(handles[index]): device for index, device in devices.items()}
        self._found: deque[GpuEvent] = deque(maxlen=1000)
        self.seen: dict[int, tuple[int, int]] = {}
        """Index -> how many Xids it has had and the number of the last, 0 before the first; replaced in one
        step. A GPU that reports none is not there."""
        self._stop = threading.Event()
        self._set: Any = None
        self._thread: threading.Thread | None = None
        try:
            self._set = pynvml.nvmlEventSetCreate()
        except pynvml.NVMLError:
            return
        for index in devices:
            calls.about(index)
            if self._register(handles[index]):
                self.seen[index] = 0, 0
        calls.about(None)
        if self.seen:
            self._thread = threading.Thread(target=self._wait, name="xid events", daemon=True)
            self._thread.start()

    def take(self) -> list[GpuEvent]:
        """Return the events since the last call."""
        # As many as there are now: the thread goes on adding.
        return [self._found.popleft() for _ in range(len(self._found))]

    def close(self) -> bool:
        """End the thread; False if it hangs in the driver, which must then not be shut down."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(2 * WAIT / 1000)
            if self._thread.is_alive():
                return False
        if self._set is not None:
            self._pynvml.nvmlEventSetFree(self._set)
            self._set = None
        return True

    def _register(self, handle: Any) -> bool:
        pynvml = self._pynvml
        try:
            if not pynvml.nvmlDeviceGetSupportedEventTypes(handle) & pynvml.nvmlEventTypeXidCriticalError:
                return False
            pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, self._set)
        except pynvml.NVMLError:
            return False
        return True

    def _wait(self) -> None:
        pynvml = self._waiting
        while not self._stop.is_set():
            try:
                event = pynvml.nvmlEventSetWait_v2(self._set, WAIT)
            except pynvml.NVMLError as error:
                if error.value == pynvml.NVML_ERROR_NOT_SUPPORTED:
                    return
                if error.value != pynvml.NVML_ERROR_TIMEOUT:
                    self._stop.wait(PAUSE)
                continue
            device = self._by_address.get(_address(event.device))
            if device is not None and event.eventType == pynvml.nvmlEventTypeXidCriticalError:
                code = int(event.eventData)
                self.seen[device.index] = (self.seen[device.index][0] + 1, code)
                self._found.append(_event(device, code))


def _event(device: DeviceInfo, code: int) -> GpuEvent:
    meaning = MEANINGS.get(code, "see NVIDIA's list of Xid errors")
    message = f"GPU {device.index} ({device.uuid}): Xid {code}: {meaning}"
    return GpuEvent(time.time(), device.index, device.uuid, "xid", code, message)


def _address(handle: Any) -> int | None:
    """Return the address that identifies a handle."""
    return ctypes.cast(handle, ctypes.c_void_p).value
