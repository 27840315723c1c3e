"""The newest step of a run, for whoever samples beside it."""

from __future__ import annotations

import os
import re
from pathlib import Path

# How far back from the journal's end its last step is looked for.
TAIL_BYTES = 8192


class LastStep:
    """The newest `global_step` of a journal, from its end alone."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._size = -1
        self._step = 0

    def read(self) -> int:
        """0 before the first step; of a torn last line the step counts as soon as it can be read."""
        size = os.fstat(self._fd).st_size
        if size != self._size:
            self._size = size
            tail = os.pread(self._fd, TAIL_BYTES, max(0, size - TAIL_BYTES))
            steps = re.findall(rb'"global_step":(\d+)[,}]', tail)
            self._step = int(steps[-1]) if steps else self._step
        return self._step

    def close(self) -> None:
        os.close(self._fd)
