"""GPUs and a run, live in a terminal; docs/gpu-dashboard.md shows it.

    python -m monitoring.gpu_dashboard [--gpu all] [--interval 0.5] [--run results/latest]

With a run that records GPU samples those are shown, wherever it trains; with --gpu, or without such a
run, this machine's GPUs.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from monitoring.errors import MonitoringError, NoTerminal, RunDirectoryError, report_error
from monitoring.gpu_monitor.command import gpu_indices, seconds
from monitoring.trackers import require_package

HINT = "name a run or a matrix, such as results/latest"
PLAIN = "python -m monitoring.gpu_monitor prints lines"


def main(argv: Sequence[str] | None = None) -> int:
    """0 after `q`; 2 without a terminal, and for a directory that is not there."""
    parser = argparse.ArgumentParser(prog="python -m monitoring.gpu_dashboard", description="Watch GPUs.")
    parser.add_argument("--gpu", type=gpu_indices, metavar="N|N,N|all", help="of this machine; default: all")
    parser.add_argument("--interval", type=seconds, default=0.5, help="seconds between two pictures")
    parser.add_argument("--run", type=Path, metavar="DIR", help="a run, or a matrix: the cells that train")
    parser.add_argument("--save-dir", type=Path, default=Path("gpu_logs"), help="where `s` writes")
    parser.add_argument("--label", default="", help="shown next to the title")
    given = parser.parse_args(argv)
    try:
        require_package("textual")
        _require_terminal()
        if given.run is not None and not given.run.is_dir():
            raise RunDirectoryError(f"{given.run} is not a directory", hint=HINT)
    except MonitoringError as error:
        return report_error(error)
    from monitoring.terminal.app import Dashboard

    for name in ("COLUMNS", "LINES"):  # of the shell, and of its size then; the terminal knows its own
        os.environ.pop(name, None)
    app = Dashboard(given.gpu, given.interval, run=given.run, save_dir=given.save_dir, label=given.label)
    app.run(mouse=False)  # it needs none, and so the terminal can select text
    return 0


def _require_terminal() -> None:
    """The picture goes to stderr and keys come from stdin; where one is none, nobody would see it."""
    kind = os.environ.get("TERM", "")
    if kind in ("dumb", "unknown"):
        raise NoTerminal(f"the dashboard needs a terminal that can place text: TERM is {kind}", hint=PLAIN)
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise NoTerminal("the dashboard needs a terminal", hint=PLAIN)


if __name__ == "__main__":
    sys.exit(main())
