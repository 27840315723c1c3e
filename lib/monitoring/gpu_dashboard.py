"""GPUs and a run, live in a terminal; docs/gpu-monitoring.md shows it.

    python -m monitoring.gpu_dashboard [--gpu all] [--interval 0.5] [--run results/latest]

With a run that records GPU samples those are shown, wherever it trains; else this machine's GPUs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from monitoring.errors import MonitoringError
from monitoring.gpu_monitor_command import gpu_indices, seconds
from monitoring.run_view import find_run
from monitoring.trackers import require_package


def main(argv: Sequence[str] | None = None) -> int:
    """0 after `q`, 2 for a directory without a run."""
    parser = argparse.ArgumentParser(prog="python -m monitoring.gpu_dashboard", description="Watch GPUs.")
    parser.add_argument("--gpu", type=gpu_indices, metavar="N|N,N|all", help="of this machine; default: all")
    parser.add_argument("--interval", type=seconds, default=0.5, help="seconds between two pictures")
    parser.add_argument("--run", type=Path, metavar="DIR", help="a run, or a matrix: the cell that trains")
    parser.add_argument("--save-dir", type=Path, default=Path("gpu_logs"), help="where `s` writes")
    parser.add_argument("--label", default="", help="shown beside the title")
    given = parser.parse_args(argv)
    try:
        require_package("textual")
        if given.run is not None:
            find_run(given.run)
    except MonitoringError as error:
        print(f"error: {error}", file=sys.stderr)
        print(f"hint: {error.hint}", file=sys.stderr)
        return error.exit_code
    from monitoring.dashboard_app import Dashboard

    Dashboard(given.gpu, given.interval, run=given.run, save_dir=given.save_dir, label=given.label).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
