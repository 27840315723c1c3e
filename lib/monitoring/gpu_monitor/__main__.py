"""`python -m monitoring.gpu_monitor`: a line for each GPU of each sample, until Ctrl-C."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from monitoring.errors import MonitoringError, PortTakenError, report_error
from monitoring.gpu_monitor.arguments import gpu_indices, seconds
from monitoring.gpu_monitor.monitor import GPUMonitor, sample_line
from monitoring.journal.structured_log import timestamp


def main(argv: Sequence[str] | None = None) -> int:
    """0 when it was ended, 2 when there is no GPU or the port is taken."""
    parser = argparse.ArgumentParser(prog="python -m monitoring.gpu_monitor", description="Watch GPUs.")
    parser.add_argument("--gpu", type=gpu_indices, default=[0], metavar="N|N,N|all", help="default: 0")
    parser.add_argument("--interval", type=seconds, default=1.0, help="seconds between two samples")
    parser.add_argument("--prometheus-port", type=int, help="answer scrapes there; 0: any free one")
    parser.add_argument("--prometheus-host", default="127.0.0.1", help="0.0.0.0 shows it to the network")
    parser.add_argument("--log-dir", type=Path, default=Path("gpu_logs"), help="where the JSONL files go")
    parser.add_argument("--samples", type=int, default=0, help="end after so many (default: at Ctrl-C)")
    given = parser.parse_args(argv)
    monitor = GPUMonitor(given.gpu, given.interval, log_dir=given.log_dir)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if given.prometheus_port is not None:
            monitor.metrics.serve(given.prometheus_host, given.prometheus_port)
            print(f"http://{monitor.prometheus_address}/metrics answers scrapes", flush=True)
        with contextlib.suppress(KeyboardInterrupt), monitor:
            show(monitor, given.samples)
        for line in [*statistics_lines(monitor), *monitor.gpu_files]:
            print(line, flush=True)
    except PortTakenError as error:
        return report_error(error.options_are(port="--prometheus-port", host="--prometheus-host"))
    except MonitoringError as error:
        return report_error(error)
    except BrokenPipeError:  # its reader has seen enough, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0 if monitor.latest is not None and monitor.latest.gpus else 2


def show(monitor: GPUMonitor, most: int) -> None:
    """Print samples as they come; returns after `most` (0: never), or when there will be none."""
    monitor.ready.wait()
    seen, count = 0.0, 0
    while monitor.latest is not None and monitor.latest.gpus:
        latest = monitor.latest
        if latest.time != seen:
            seen, count = latest.time, count + 1
            for sample in latest.gpus:
                print(f"{timestamp(seen)}  {sample_line(sample)}", flush=True)
            if count == most:
                return
        time.sleep(min(0.1, monitor.sample_interval / 4))


def statistics_lines(monitor: GPUMonitor) -> list[str]:
    """Mean, least and most of each metric over the history, for a person."""
    lines = []
    for index, metrics in monitor.statistics().items():
        if not metrics:
            lines.append(f"GPU {index} reported nothing")
            continue
        lines.append(f"GPU {index:<28} mean        min        max")
        lines += [
            f"  {name:26} {found.mean:10.1f} {found.min:10.1f} {found.max:10.1f}"
            for name, found in metrics.items()
        ]
    return lines


if __name__ == "__main__":
    sys.exit(main())
