"""The processes of one attempt, as its agent knows them: which they are, and what they compute on."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from monitoring.gpu.masks import Mask, mask_of
from monitoring.gpu.run_devices import Said
from monitoring.host.name import host_name
from monitoring.host.process import ProcessTree, sees_all_pids
from monitoring.journal.ranks import rank_journals
from monitoring.journal.run_state import read_end

# Seconds between looks for what ranks have written.
LOOK_EVERY = 1.0


class RunProcesses:
    """The processes of all ranks on this machine, by run.json and start records, and what they started."""

    def __init__(self, directory: Path, attempt: Mapping[str, Any]) -> None:
        """`attempt` is that of run.json."""
        self.pids_are_ours = sees_all_pids()
        self._directory = directory
        self._attempt: int = attempt["attempt"]
        self._tree = ProcessTree()
        self._roots: dict[int, float] = {}
        self._said: dict[int, Said] = {}  # by rank
        self._masks: list[Mask] = []
        self._found: set[int] = set()
        self._next_look = 0.0
        self._add(0, attempt)

    def is_own(self, pid: int) -> bool:
        self._look()
        return self._tree.has(pid)

    def roots(self) -> Mapping[int, float]:
        """Return the processes of the ranks themselves, each with its `process_started`."""
        self._look()
        return self._roots

    def said_devices(self) -> Sequence[Said]:
        self._look()
        return list(self._said.values())

    def masks(self) -> Sequence[Mask]:
        """Return the GPU masks of ranks here that differ from this process's (rank 0's), once each."""
        self._look()
        return self._masks

    def _look(self) -> None:
        """Take in the start records that are new; each journal is looked at until it has this attempt's."""
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + LOOK_EVERY
        for rank, path in rank_journals(self._directory).items():
            if rank in self._found:
                continue
            start = read_end(path).start
            if start.get("attempt") == self._attempt:
                self._found.add(rank)
                self._add(rank, start)

    def _add(self, rank: int, about: Mapping[str, Any]) -> None:
        """Take in a rank's process, mask and device; rank 0's start record names no process."""
        if about.get("host", host_name()) != host_name():
            return
        if about.get("pid_started") is not None:
            self._tree.add(about["pid"], about["pid_started"])
            self._roots[about["pid"]] = about["pid_started"]
        mask = about.get("visible_devices", {})
        # rank 0 has started this agent, which has its environment
        is_ours = not rank or mask == mask_of(os.environ)
        if not is_ours and mask not in self._masks:
            self._masks = [*self._masks, mask]
        if isinstance(about.get("device"), str):
            self._said[rank] = Said(about["device"], None if is_ours else mask)
