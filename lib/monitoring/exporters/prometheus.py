"""Prometheus: a run's metrics at http://HOST:PORT/metrics while it trains; docs/prometheus.md lists them.

    python -m monitoring.exporters.prometheus RESULTS [--port 9090] [--host 127.0.0.1]

shows every run below a directory instead, also those that begin later, until Ctrl-C.

Values are read from the run's files at each scrape and counters are made from all of them, so that a killed
and restarted exporter goes on as if nothing had been. Of the agents of one matrix on one machine, the first
shows all its cells on the one port; the others stand by and take over when it ends.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from monitoring.atomic_file import write_atomically
from monitoring.errors import MonitoringError, PortTakenError, RunDirectoryError
from monitoring.exporters._families import registry
from monitoring.exporters._metrics_server import MetricsServer, shown_directory
from monitoring.exporters._run_files import Runs
from monitoring.follower import JOURNAL, RunInfo
from monitoring.records import Record
from monitoring.trackers import require_package

# It keeps nothing of a run that has ended, so there is nothing to catch up with later.
LIVE = True

# Where a run says at which address it is shown, in the form of Prometheus' file_sd_configs.
PROMETHEUS_JSON = "prometheus.json"

# Seconds between two readings of the files while nobody scrapes, so that the next scrape has little to do.
READ_EVERY = 5.0

# Seconds between two tries to take the port over.
STAND_BY = 1.0

# Seconds for which a sibling that has the port may not answer: it begins, or hands over.
UNANSWERED = 5.0


@dataclass(frozen=True)
class Options:
    """Where to listen."""

    port: int = 9090
    """0: any free one, written to prometheus.json."""
    host: str = "127.0.0.1"

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ValueError(f"port {self.port} is outside 0..65535")
        if not self.host:
            raise ValueError(
                "the host is empty; 127.0.0.1 shows metrics to this machine, 0.0.0.0 to the network"
            )


def check(options: Options) -> None:
    """Raise MissingPackage if prometheus_client is not installed."""
    require_package("prometheus_client")


def open_follower(run: RunInfo, options: Options) -> PrometheusFollower:
    """Show the run; PortTakenError if the port is taken by anything but an exporter of the same matrix."""
    check(options)
    return PrometheusFollower(run, options)


class PrometheusFollower:
    """Shows a run, or the matrix that it is a cell of, from its opening until the scrape after its end."""

    def __init__(self, run: RunInfo, options: Options) -> None:
        self._run = run
        self._options = options
        in_matrix = run.group is not None and run.directory.absolute().parent.name == run.group
        self._shared = in_matrix and options.port != 0
        self._exporter: Exporter | None = None
        self._next_look = 0.0
        self._unanswered_since: float | None = None
        self._take_port()

    def last_seq(self, journal: str = JOURNAL) -> int:
        """The last record that is shown."""
        return self._exporter.runs.last_seq(self._run.directory) if self._exporter else 0

    def deliver(self, records: Sequence[Record]) -> None:
        """Now and then read the files; while standing by, try whether the port is free."""
        now = time.monotonic()
        if now < self._next_look:
            return
        if self._exporter is None:
            self._take_port()
        else:
            self._exporter.runs.read()
            self._next_look = now + READ_EVERY

    def flush(self) -> None:
        """Nothing to do: what is shown is read from files."""

    def close(self, status: str | None) -> None:
        """Let the port go; at the end of the run, after one more scrape if anybody scrapes."""
        if self._exporter is None:
            return
        try:
            if status is not None:
                self._exporter.server.wait_for_scrape()
        finally:
            self._exporter.close()
            self._exporter = None
            (self._run.directory / PROMETHEUS_JSON).unlink(missing_ok=True)

    def _take_port(self) -> None:
        host, port = self._options.host, self._options.port
        directory = self._run.directory.absolute()
        shown = (directory.parent if self._shared else directory).resolve()
        self._next_look = time.monotonic() + STAND_BY
        try:
            self._exporter = Exporter(shown, host=host, port=port)
        except PortTakenError:
            if not self._shared or not self._is_siblings(shown_directory(host, port), shown):
                raise
            return
        targets = [{"targets": [self._exporter.server.address], "labels": {}}]
        write_atomically(directory / PROMETHEUS_JSON, orjson.dumps(targets), durable=False)

    def _is_siblings(self, found: Path | None, ours: Path) -> bool:
        """Whether one of our siblings has the port and so shows this run, too, or will in a moment."""
        now = time.monotonic()
        if found is not None:
            self._unanswered_since = None
            return found == ours
        self._unanswered_since = self._unanswered_since or now
        return now - self._unanswered_since < UNANSWERED


class Exporter:
    """Shows the runs in a directory, from construction to `close`."""

    def __init__(self, directory: Path, *, host: str, port: int) -> None:
        """PortTakenError if it cannot listen there.

        It answers once it has read what there is: counters that rose from 0 again would look like a reset.
        """
        self.runs = Runs(directory)
        self.server = MetricsServer(host, port, directory=self.runs.directory)
        try:
            self.runs.read()
            self.server.start(registry(self.runs.read, time.time))
        except BaseException:
            self.server.close()
            raise

    def close(self) -> None:
        self.server.close()


def show(directory: Path, *, host: str, port: int) -> None:
    """Show the runs in a directory until SIGINT or SIGTERM, and say where."""
    check(Options())
    if not directory.is_dir():
        raise RunDirectoryError(
            f"{directory} is not a directory", hint="name one that holds runs, such as results"
        )
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: stop.set())
    with contextlib.closing(Exporter(directory, host=host, port=port)) as exporter:
        now = len(exporter.runs.read())
        address = f"http://{exporter.server.address}/metrics"
        print(f"{address} shows the runs in {directory} ({now} now); Ctrl-C ends it", flush=True)
        while not stop.wait(READ_EVERY):
            exporter.runs.read()


def main(argv: Sequence[str] | None = None) -> int:
    """The command: 0 when it was ended, 2 when it cannot listen or there is no such directory."""
    parser = argparse.ArgumentParser(
        prog="python -m monitoring.exporters.prometheus", description="Show every run below a directory."
    )
    parser.add_argument(
        "directory", type=Path, metavar="RESULTS", help="a run, a matrix, or a folder of them"
    )
    parser.add_argument("--port", type=int, default=Options.port, help="0: any free one")
    parser.add_argument("--host", default=Options.host, help="0.0.0.0 shows them to the network")
    given = parser.parse_args(argv)
    try:
        show(given.directory, host=given.host, port=given.port)
    except MonitoringError as error:
        print(f"error: {error}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
