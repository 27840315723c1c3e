"""A training with DRY_RUN: checked by one step in a temporary folder, instead of a run of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType

from kharness.config.assignment import Assignment, Layer, Origin
from kharness.config.generate import write_new_config
from kharness.config.places import COMMAND
from kharness.config.presets import starting_layer
from kharness.config.tree import Tree
from kharness.runs.errors import MatrixError
from kharness.runs.launch import Launch
from monitoring.host.libc import ending_with

# A signal that comes just before a wait is handled when that is over.
LONGEST_WAIT = 0.05


def check_model(tree: Tree, output: Path, command_line: Layer) -> int:
    """The exit code of the step; what it prints says what the training would take. Nothing is left."""
    dry = [Assignment("DRY_RUN", "y", Origin("make check-model", "one step"))]
    resolved = tree.resolve(starting_layer(tree, output), command_line, dry)
    model = str(resolved.values["MODEL"])
    if resolved.values.get(COMMAND):
        raise MatrixError(f"{COMMAND} is a program of its own: none of its steps can be tried", hint="run it")
    with tempfile.TemporaryDirectory(prefix="kharness-check-") as folder:
        directory = Path(folder) / "configured"
        write_new_config(resolved, directory, root=tree.root)
        return _exit_code([sys.executable, *Launch("", directory, tree.root, model, {}).program], tree.root)


def _exit_code(command: list[str], root: Path) -> int:
    """Run the command and return its exit code; signals to this process are passed on to it."""
    child = subprocess.Popen(command, cwd=root, preexec_fn=ending_with(os.getpid()))

    def pass_on(number: int, frame: FrameType | None) -> None:
        child.send_signal(number)

    # A terminal's Ctrl-C reaches the child by itself.
    before = {signal.SIGTERM: signal.signal(signal.SIGTERM, pass_on)}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, lambda number, frame: None)
    try:
        while (code := child.poll()) is None:
            time.sleep(LONGEST_WAIT)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 128 - code if code < 0 else code
