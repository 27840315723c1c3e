"""How GPUs change their state from one look to the next, in the words of alerts and messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from monitoring.gpu.sample import GpuEvent, GpuSample

WORDS = {"lost": "is lost", "error": "cannot be read"}
"""State of a GPU that does not answer -> its words in a message."""


class DeviceStates:
    """Reports when a GPU is lost, fails or is back, once each."""

    def __init__(self, before: Mapping[str, Any] | None = None) -> None:
        """`before` is the run's last gpu record, by which further agents of a run repeat nothing."""
        gpus = before["multi_gpu_data"] if before is not None else ()
        self._states: dict[int, str] = {gpu["index"]: gpu["state"] for gpu in gpus}

    @property
    def have_failed(self) -> bool:
        """Whether no GPU answered at the last look."""
        return bool(self._states) and "ok" not in self._states.values()

    def changes(self, samples: Sequence[GpuSample], now: float) -> list[GpuEvent]:
        """Return the changes since the last look; a GPU that is seen for the first time was well.

        What happens to all GPUs at once is one event: it is their driver's.
        """
        changed = [sample for sample in samples if self._states.get(sample.index, "ok") != sample.state]
        self._states.update((sample.index, sample.state) for sample in samples)
        alike = len({(sample.state, sample.error) for sample in changed}) == 1
        if alike and 1 < len(changed) == len(samples):
            return [_change(changed[0]._replace(uuid=None), f"all {len(samples)} GPUs", now, many=True)]
        return [_change(sample, gpu_name(sample), now, many=False) for sample in changed]


def _change(sample: GpuSample, name: str, now: float, *, many: bool) -> GpuEvent:
    if sample.state == "ok":
        message = f"{name} answer{'' if many else 's'} again"
        return GpuEvent(now, sample.index, sample.uuid, "back", None, message)
    what = f"{words_of(sample.state, many=many)}: {sample.error}"
    return GpuEvent(now, sample.index, sample.uuid, sample.state, None, f"{name} {what}")


def words_of(state: str, *, many: bool) -> str:
    """Return the words for one GPU in this state, or for several."""
    return "are lost" if many and state == "lost" else WORDS[state]


def gpu_name(sample: GpuSample) -> str:
    """Return its name in messages."""
    return known_as(sample._asdict())


def known_as(gpu: Mapping[str, Any]) -> str:
    """Return the name of a GPU of a record."""
    return f"GPU {gpu.get('index')} ({gpu.get('uuid') or gpu.get('name') or gpu.get('vendor')})"
