"""GPUs and a run, live in a terminal; docs/gpu-dashboard.md shows it.

    python -m monitoring.gpu_dashboard [--gpu all] [--interval 0.5] [--run results/latest]

With a run that records GPU samples those are shown, wherever it trains; with --gpu, or without such a
run, this machine's GPUs.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from monitoring.errors import MonitoringError, NoTerminal, RunDirectoryError, report_error
from monitoring.gpu_monitor.arguments import gpu_indices, seconds
from monitoring.samplers import _simulated
from monitoring.terminal.display.themes import THEMES
from monitoring.terminal.panels.process_table import COLUMNS, DEFAULT_SORT
from monitoring.terminal.source import LiveGpus

HINT = "name a run or a matrix, such as results/latest"
SIMULATED = "SIMULATED GPUs"
MOST_SIMULATED = _simulated.MOST
PLAIN = "python -m monitoring.gpu_monitor prints lines"

# For what a person always wants, in a shell's start-up file.
THEME_VARIABLE, SORT_VARIABLE = "GPUTOP_THEME", "GPUTOP_SORT"


def main(argv: Sequence[str] | None = None) -> int:
    """Show the dashboard: 0 after `q`; 2 without a terminal, and for a directory that is not there."""
    given = _parser().parse_args(argv)
    try:
        _require_terminal()
        if given.run is not None and not given.run.is_dir():
            raise RunDirectoryError(f"{given.run} is not a directory", hint=HINT)
    except MonitoringError as error:
        return report_error(error)
    live = None
    # a driver takes longest, so it begins first
    if given.simulate or given.gpu is not None or given.run is None:
        indices = None if given.gpu in (None, "all") else given.gpu
        live = LiveGpus(indices, given.interval, simulated=given.simulate)
    from monitoring.terminal.app import Dashboard

    for name in ("COLUMNS", "LINES"):  # of the shell, and of its size then; the terminal knows its own
        os.environ.pop(name, None)
    app = Dashboard(
        "all" if given.simulate and given.gpu is None else given.gpu,
        given.interval,
        run=given.run,
        save_dir=given.save_dir,
        label=f"{SIMULATED}  {given.label}".rstrip() if given.simulate else given.label,
        theme=given.theme,
        sort=given.sort,
        metric=given.metric,
        source=live,
    )
    return app.run(mouse=given.mouse)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m monitoring.gpu_dashboard", description="Watch GPUs.")
    parser.add_argument("--gpu", type=gpu_indices, metavar="N|N,N|all", help="of this machine; default: all")
    parser.add_argument("--interval", type=seconds, default=0.5, help="seconds between two pictures")
    parser.add_argument("--run", type=Path, metavar="DIR", help="a run, or a matrix: the cells that train")
    parser.add_argument("--save-dir", type=Path, default=Path("gpu_logs"), help="where `s` writes")
    parser.add_argument(
        "--simulate",
        type=number_of_gpus,
        default=0,
        metavar="N",
        help="show N GPUs that do not exist, labeled so",
    )
    parser.add_argument("--label", default="", help="shown next to the title")
    parser.add_argument(
        "--theme",
        type=_one_of(THEMES),
        default=os.environ.get(THEME_VARIABLE),
        metavar="|".join(THEMES),
        help=f"default: {THEME_VARIABLE}, else by the terminal",
    )
    parser.add_argument(
        "--sort",
        type=_one_of(COLUMNS),
        default=os.environ.get(SORT_VARIABLE, DEFAULT_SORT),
        metavar="COLUMN",
        help=f"of processes: {', '.join(COLUMNS)}; default: {SORT_VARIABLE}, else {DEFAULT_SORT}",
    )
    parser.add_argument("--metric", help="of the run, in its second graph; default: throughput")
    parser.add_argument("--no-mouse", dest="mouse", action="store_false", help="leave it to the terminal")
    return parser


def number_of_gpus(text: str) -> int:
    """Return the number of GPUs to simulate."""
    if not text.isdecimal() or not 1 <= int(text) <= MOST_SIMULATED:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {MOST_SIMULATED}")
    return int(text)


def _one_of(names: Collection[str]) -> Callable[[str], str]:
    def known(text: str) -> str:
        if text not in names:
            raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(names)}")
        return text

    return known


def _require_terminal() -> None:
    """Raise NoTerminal unless the picture (stderr) and the keys (stdin) are at a terminal."""
    kind = os.environ.get("TERM", "")
    if kind in ("dumb", "unknown"):
        raise NoTerminal(f"the dashboard needs a terminal that can place text: TERM is {kind}", hint=PLAIN)
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise NoTerminal("the dashboard needs a terminal", hint=PLAIN)


if __name__ == "__main__":
    sys.exit(main())
