"""Shared by the rules about single GPUs: their samples, limits and states."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from monitoring.gpu.aggregates import runs_gpus
from monitoring.gpu.device_states import known_as, words_of
from monitoring.journal.alerts import Severity
from monitoring.journal.records import Record
from monitoring.rules import Finding, RuleDefaults, host_of
from monitoring.rules._measures.limits import LimitRule


def gpus(record: Record) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each of the run's GPUs that answered, with its subject in alerts: its UUID, else its index."""
    if record.get("event") != "gpu" or not isinstance(record.get("multi_gpu_data"), list):
        return
    for sample in runs_gpus(record):
        if sample.get("state") == "ok":
            yield sample.get("uuid") or str(sample.get("index")), sample


class GpuLimitRule(LimitRule):
    """A limit for each of the run's GPUs that answered."""

    def samples(self, record: Record) -> Iterable[tuple[str, str, Mapping[str, Any]]]:
        """Return each GPU's subject, its name in messages (`GPU 3`) and its values."""
        return [(subject, f"GPU {sample.get('index')}", sample) for subject, sample in gpus(record)]


class StateRule(RuleDefaults):
    """Reports each GPU in the state that a rule is about, until it is not; all of a host are one alert."""

    state: str
    """The state, as in the samples."""
    severity: Severity = "error"

    def __init__(self, options: object) -> None: ...

    def update(self, record: Record) -> Sequence[Finding]:
        return _in_state(record, self.state)


def _in_state(record: Record, state: str) -> Sequence[Finding]:
    """Return findings on the GPUs of a sample in this state, whether they are the run's or not.

    What happens to all of a host at once is one finding, of the host: it is their driver's.
    """
    samples: Any = record.get("multi_gpu_data")
    if not isinstance(samples, list) or not samples:
        return ()
    host, those = host_of(record), [gpu for gpu in samples if gpu.get("state") == state]
    if 1 < len(those) == len(samples) and len({gpu.get("error") for gpu in those}) == 1:
        what = f"all {len(samples)} GPUs {words_of(state, many=True)}: {those[0].get('error')}"
        return [Finding(True, what, host)]
    what = words_of(state, many=False)
    found = [Finding(False, f"a GPU {what}", host)]
    for gpu in samples:
        message, holds = f"{known_as(gpu)} {what}", gpu.get("state") == state
        uuid, place = gpu.get("uuid"), f"GPU {gpu.get('index')} of {host}"
        found.append(Finding(holds, f"{message}: {gpu.get('error')}" if holds else message, uuid or place))
        if uuid:  # which is not known of one that is lost before its first answer
            found.append(Finding(False, message, place))
    return found
