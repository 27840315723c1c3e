"""The samplings of one agent: GPUs, the machine, both or none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from monitoring.agent.sample_threads.journal_sampling import AllDone, Sampling
from monitoring.journal.alerts import Alerts
from monitoring.journal.files import OF_RANK_0, HostFiles


class Samplings:
    """All samplings of an agent as one; `done` when all are."""

    def __init__(self, found: Sequence[Sampling]) -> None:
        self._found = found
        self.done = AllDone([sampling.done for sampling in found])

    def start(self) -> None:
        for sampling in self._found:
            sampling.start()

    def watch(self) -> None:
        for sampling in self._found:
            sampling.watch()

    def end(self) -> None:
        for sampling in self._found:
            sampling.end()


def samplings(
    directory: Path, run: Mapping[str, Any], alerts: Alerts, own: HostFiles = OF_RANK_0
) -> Samplings:
    """Return the samplings that run.json requests for the host of `own`; few agents need these imports."""
    found: list[Sampling] = []
    if run.get("gpu_monitor"):
        from monitoring.agent.sample_threads.gpu_sampling import GpuSampling

        found.append(GpuSampling(directory, run, alerts, own))
    if run.get("machine_monitor"):
        from monitoring.agent.sample_threads.machine_sampling import MachineSampling

        found.append(MachineSampling(directory, run, alerts, own))
    if found and not own.host:
        from monitoring.agent.hosts.others import OtherHosts

        found.append(OtherHosts(directory, alerts))
    return Samplings(found)
