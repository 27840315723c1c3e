"""The program of a job on Slurm with several cells, each forked from a process that has imported torch.

python -m kharness.matrix.launchers._slurm_packed LIST.jsonl
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kharness.matrix.launchers._forking import Forking
from kharness.matrix.launchers._processes import FreshProcesses, Holder
from kharness.matrix.launchers.local import environment_of_runs
from kharness.runs.errors import MatrixError
from kharness.runs.jobs import slurm_task
from kharness.runs.launch import Launch, Slot


@dataclass(frozen=True)
class ListedLaunch(Launch):
    """The launch of a cell as the list has it."""

    listed: Sequence[str] = ()

    @property
    def program(self) -> list[str]:
        return list(self.listed)


class PackedTrainings:
    """Starts one training after the other."""

    def __init__(self) -> None:
        self._fresh = FreshProcesses()
        self._forking: Forking | None = None

    def start(self, header: Mapping[str, Any], cell: Mapping[str, Any]) -> PackedTraining:
        if self._forking is None:
            self._forking = Forking(environment_of_runs(Slot()), print, enabled=header["forks"])
        slot = Slot(threads=cell["threads"])
        directory = Path(cell["directory"])
        launch = ListedLaunch(
            cell["name"], directory, Path(header["root"]), "", {}, listed=cell["command"][1:]
        )
        environment = {**environment_of_runs(slot), **self._forking.environment}
        try:
            forked = self._forking.start(launch, slot, environment)
            pid, _ = forked or self._fresh.start(launch, slot, environment)
        except MatrixError as error:
            raise OSError(0, str(error)) from error
        return PackedTraining(pid, self._forking.holder(pid) or self._fresh, self._forking)

    def close(self) -> None:
        if self._forking is not None:
            self._forking.close()


class PackedTraining:
    """A process of its own group, which ends with all that it has started."""

    def __init__(self, pid: int, holder: Holder, forking: Forking) -> None:
        self._pid, self._holder, self._forking = pid, holder, forking

    def wait(self) -> int:
        while (found := self._holder.poll(self._pid)) is None:
            if isinstance(self._holder, FreshProcesses):
                os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOWAIT)
            else:
                select.select(self._forking.filenos(), [], [], 1.0)
        return -found.signal if found.signal is not None else found.exit_code or 0

    def send_signal(self, number: int) -> None:
        self._holder.signal(self._pid, number)

    def kill(self) -> None:
        self._holder.kill(self._pid)


def main(argv: Sequence[str]) -> int:
    task = slurm_task.Task()
    trainings = PackedTrainings()
    try:
        return slurm_task.main(argv, task=task, start=trainings.start)
    finally:
        trainings.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
