"""The newest step of a running training, read from the end of its journal."""

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
        """Return the newest step, 0 before the first; one in a torn line counts as soon as it can be read."""
        size = os.fstat(self._fd).st_size
        if size != self._size:
            self._size = size
            tail = os.pread(self._fd, TAIL_BYTES, max(0, size - TAIL_BYTES))
            # no JSON: the first line of the tail is cut, and a full parse per sample would be for one number
            steps = re.findall(rb'"global_step":(\d+)[,}]', tail)
            self._step = int(steps[-1]) if steps else self._step
        return self._step

    def close(self) -> None:
        os.close(self._fd)
