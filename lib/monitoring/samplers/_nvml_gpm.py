"""Activity of the parts of NVIDIA GPUs (GPM, Hopper and later): shares of the time between two looks."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from monitoring.gpu.driver_calls import SAMPLING, DriverCalls
from monitoring.samplers import _nvml
from monitoring.samplers._nvml import ABSENT, NVML_SUCCESS, BoundCall, Nvml

# The metrics and the names that a sample has for them, all from 0 to 100.
METRICS = {
    _nvml.NVML_GPM_METRIC_SM_UTIL: "sm_activity_percent",
    _nvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL: "tensor_activity_percent",
    _nvml.NVML_GPM_METRIC_DRAM_BW_UTIL: "dram_activity_percent",
}

# nvmlGpmMetric_t: its number, which is known, error, value, three texts; and all of a question's.
METRIC = "4xId24x"
HEAD = _nvml.nvmlGpmMetricsGet_t.metrics.offset
REST = ctypes.sizeof(_nvml.nvmlGpmMetricsGet_t) - HEAD - len(METRICS) * struct.calcsize("<" + METRIC)
QUESTION = f"{HEAD}x{METRIC * len(METRICS)}{REST}x"


class Activity:
    """The activity of some GPUs since the last look."""

    def __init__(self, pynvml: Any, nvml: Nvml, calls: DriverCalls, handles: Mapping[int, Any]) -> None:
        """`handles` are pynvml's, of the GPUs by their index; those without GPM have no activity."""
        self._words = nvml.words
        self._indices = list(handles)
        self._free = nvml.find("nvmlGpmSampleFree")
        # two samples of each GPU to compare, each of which takes the place of the other in turn
        pairs: list[list[_nvml.nvmlGpmSample_t]] = []
        self._last, self._next = _Turn(len(handles)), _Turn(len(handles))
        for place, (index, handle) in enumerate(handles.items()):
            calls.about(index)
            pairs.append(self._allocated(pynvml, nvml, handle))
            if pairs[-1]:
                self._last.bind(nvml, place, _nvml.device(handle), *pairs[-1])
                self._next.bind(nvml, place, _nvml.device(handle), *reversed(pairs[-1]))
        calls.about(None)
        self._samples = [sample for pair in pairs for sample in pair]
        self._unpack = struct.Struct("<" + QUESTION * len(handles)).unpack_from
        self._well = (NVML_SUCCESS,) * len(METRICS) * len(handles)
        self._looked = self._look(self._last.looks)

    @property
    def is_known(self) -> bool:
        """Whether any of the GPUs has GPM."""
        return bool(self._samples)

    @property
    def calls(self) -> list[BoundCall]:
        """Those of a look."""
        return [call for call in (*self._next.looks, *self._next.asks) if call is not ABSENT]

    def look(self, failed: Collection[int]) -> Sequence[float | None]:
        """The metrics of one GPU after the other; None for what it does not have, or not this time.

        Of the GPUs `failed`, by index, nothing is asked.
        """
        words, turn = self._words, self._next
        looks = turn.looks
        if failed:
            there = zip(self._indices, looks, strict=True)
            looks = [ABSENT if index in failed else look for index, look in there]
        before, self._looked = self._looked, self._look(looks)
        answers: list[int] = []
        for words[SAMPLING], function, arguments in turn.asks:
            place = len(answers)
            # a sample that was not taken is that of an earlier look, or of none
            answers.append(before[place] or self._looked[place] or function(*arguments))
        self._last, self._next = turn, self._last
        found = self._unpack(turn.questions)
        errors, shares = found[0::2], found[1::2]
        if errors == self._well and not any(answers):
            return shares
        each = [answer for answer in answers for _ in METRICS]
        return [
            None if answer or error else share
            for answer, error, share in zip(each, errors, shares, strict=True)
        ]

    def close(self) -> None:
        """Give the samples back."""
        while self._free is not None and self._samples:
            self._free(self._samples.pop())

    def _look(self, looks: Sequence[BoundCall]) -> list[int]:
        words = self._words
        return [function(*arguments) for words[SAMPLING], function, arguments in looks]

    def _allocated(self, pynvml: Any, nvml: Nvml, handle: Any) -> list[_nvml.nvmlGpmSample_t]:
        """Two samples; none for a GPU, or a driver, that has no GPM."""
        try:
            if not pynvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
                return []
        except (pynvml.NVMLError, AttributeError):  # AttributeError: a pynvml without GPM
            return []
        alloc, free = nvml.find("nvmlGpmSampleAlloc"), self._free
        is_complete = nvml.has("nvmlGpmMetricsGet") and nvml.has("nvmlGpmSampleGet")
        if alloc is None or free is None or not is_complete:
            return []
        samples = [_nvml.nvmlGpmSample_t(), _nvml.nvmlGpmSample_t()]
        had = [sample for sample in samples if alloc(ctypes.byref(sample)) == NVML_SUCCESS]
        if len(had) < 2:
            for sample in had:
                free(sample)
            return []
        return samples


class _Turn:
    """Taking one of the two samples of each GPU, and comparing it with the other."""

    def __init__(self, num_gpus: int) -> None:
        self.looks, self.asks = [ABSENT] * num_gpus, [ABSENT] * num_gpus
        self.questions = (_nvml.nvmlGpmMetricsGet_t * num_gpus)()

    def bind(
        self,
        nvml: Nvml,
        place: int,
        handle: _nvml.nvmlDevice_t,
        sample: _nvml.nvmlGpmSample_t,
        before: _nvml.nvmlGpmSample_t,
    ) -> None:
        """Prepare the calls about the GPU at this place."""
        question = self.questions[place]
        question.version = _nvml.NVML_GPM_METRICS_GET_VERSION
        question.numMetrics = len(METRICS)
        for number, metric in enumerate(METRICS):
            question.metrics[number].metricId = metric
        question.sample1, question.sample2 = before, sample
        look = nvml.bound("nvmlGpmSampleGet", handle, sample)
        ask = nvml.bound("nvmlGpmMetricsGet", ctypes.byref(question))
        assert look is not None
        assert ask is not None
        self.looks[place], self.asks[place] = look, ask
