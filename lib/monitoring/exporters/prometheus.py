"""Prometheus: a run's metrics at http://HOST:PORT/metrics while it trains; docs/prometheus.md lists them.

    python -m monitoring.exporters.prometheus RESULTS [--port 9090] [--host 127.0.0.1]

shows every run below a directory instead, also those that begin later, until Ctrl-C.

Values are read from the run's files at each scrape and counters are made from all of them, so that a killed
and restarted exporter continues as if nothing had happened. Of a user's agents on one machine, the first
shows all runs that share its address (_shared_port), and the cells of its matrix; the others stand by, and
one takes over within seconds when it ends or is killed. At the end of its run an exporter lingers until that
was scraped, too; another exporter that wants the port stands by meanwhile.
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

from monitoring.errors import MonitoringError, PortTakenError, RunDirectoryError, report_error
from monitoring.exporters._metrics_server import (
    ENDED_PATH,
    YIELD_PATH,
    About,
    MetricsServer,
    about_server,
    is_listening,
    port_taken,
)
from monitoring.exporters._run_files import Runs
from monitoring.exporters._shared_port import SharedPort
from monitoring.follower import RunInfo, follower_options
from monitoring.host.stop_signals import set_by
from monitoring.journal.atomic_file import write_atomically
from monitoring.journal.files import JOURNAL, PROMETHEUS_JSON
from monitoring.journal.records import Record
from monitoring.trackers import require_package

# It keeps nothing of a run that has ended, so there is nothing to catch up with later.
LIVE = True

# Seconds between two readings of the files without scrapes, so that the next scrape has little to do.
READ_EVERY = 5.0

# Seconds between two tries to take the port over.
STAND_BY = 1.0

# Seconds for which a sibling that has the port may not answer: it is busy, or hands over.
UNANSWERED = 5.0

# Seconds for which what has the port may not listen: an exporter first reads the journals of all runs.
BEGINNING = 120.0

# Seconds for which an exporter that has said that it shows the run is not asked again.
TRUSTED = 5.0

# Seconds after which a port that answers nothing is tried once more: its exporter may just have been closing.
CLOSING = 0.3

# Seconds for which `show` waits for exporters that linger: longer than any usually does.
PATIENCE = 60.0


@dataclass(frozen=True)
class Options:
    """Where to listen."""

    port: int
    """The port; 0: any free one, written to prometheus.json."""
    host: str
    linger: float
    """Seconds for which the end of a run is shown at most, until a Prometheus has scraped it."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ValueError(f"port {self.port} is outside 0..65535")
        if not self.host:
            raise ValueError(
                "the host is empty; 127.0.0.1 shows metrics to this machine, 0.0.0.0 to the network"
            )
        if not 0 <= self.linger < float("inf"):
            raise ValueError(f"linger {self.linger:g} is not a number of seconds")


def check(options: Options) -> None:
    """Raise MissingPackage if prometheus_client is not installed."""
    require_package("prometheus_client")


def open_follower(run: RunInfo, options: Options) -> PrometheusFollower:
    """Show the run; PortTakenError if what has the port neither shows the run nor lets the port go soon."""
    check(options)
    return PrometheusFollower(run, options)


class PrometheusFollower:
    """Shows a run, and all others that share the port, from its opening until the scrape after its end.

    While another exporter shows the run already, or lingers on the port, it stands by for the port.
    """

    def __init__(self, run: RunInfo, options: Options) -> None:
        self._run = run
        self._options = options
        in_matrix = run.group is not None and run.directory.absolute().parent.name == run.group
        self._shared = in_matrix and options.port != 0
        self._shared_port = SharedPort(options.host, options.port) if options.port else None
        self._exporter: Exporter | None = None
        self._next_look = 0.0
        self._trusted_until = 0.0
        self._unanswered_since: float | None = None
        self._take_port()

    def last_seq(self, journal: str = JOURNAL) -> int:
        """Return the `seq` of the last record that is shown."""
        return self._exporter.runs.last_seq(self._run.directory) if self._exporter else 0

    def deliver(self, records: Sequence[Record]) -> None:
        """Now and then, whether there are records or not, read the files; while standing by, try the port."""
        now = time.monotonic()
        if now < self._next_look:
            return
        if self._exporter is None:
            self._take_port()
        else:
            self._exporter.runs.read()
            self._next_look = now + READ_EVERY

    def flush(self) -> None:
        """Do nothing: what is shown is read from files."""

    def linger(self, stop: threading.Event) -> None:
        """Show the end until a Prometheus has seen it, so long as the options say, or until `stop`.

        Standing by, it waits as long for the port, unless its holder shows the end.
        """
        until = time.monotonic() + self._options.linger
        while self._exporter is None:
            if self._is_shown_to_its_end():
                return
            if time.monotonic() >= until or stop.wait(STAND_BY):
                self._forget()
                return
            with contextlib.suppress(PortTakenError):
                self._take_port()
        self._exporter.server.linger(self._options.linger, stop)
        self._exporter.runs.forget_ended()

    def close(self, status: str | None) -> None:
        """Let the port go."""
        if self._exporter is None:
            return
        exporter, self._exporter = self._exporter, None
        try:
            path = self._run.directory / PROMETHEUS_JSON
            if path.read_bytes() == _targets(exporter):  # else it is the next attempt's
                path.unlink()
        except FileNotFoundError:  # it was removed, or the run was
            pass
        finally:
            exporter.close()

    def _take_port(self) -> None:
        host, port = self._options.host, self._options.port
        self._next_look = time.monotonic() + STAND_BY
        if self._shared_port is not None:
            # first: the exporter that has the port shows the run from its next scrape on
            self._shared_port.add(self._run.directory.resolve())
        try:
            found = open_exporter(
                self._shown(),
                host=host,
                port=port,
                shared=self._shared_port,
                # the exporter there has just said that it shows this run
                ask=time.monotonic() > self._trusted_until,
            )
        except PortTakenError:
            if not self._is_handed_over():
                self._forget()
                raise
            return
        self._unanswered_since = None
        if isinstance(found, Exporter):
            self._exporter = found
            write_atomically(self._run.directory / PROMETHEUS_JSON, _targets(found), durable=False)
        elif found is not None and found.state == "yields":
            about_server(host, port, path=YIELD_PATH)  # it lets the port go: the next try may have it
        elif found is not None and found.state == "shows":
            if not found.shows(self._run.directory, self._shared_port):
                self._forget()
                raise port_taken(f"{host}:{port}", f"another exporter shows {found.directory} there")
            self._trusted_until = time.monotonic() + TRUSTED

    def _shown(self) -> Path:
        directory = self._run.directory.resolve()
        return directory.parent if self._shared else directory

    def _is_handed_over(self) -> bool:
        """Whether what has the port, and does not answer, is likely to be a sibling's exporter."""
        if self._shared_port is None:
            return False
        now = time.monotonic()
        self._unanswered_since = self._unanswered_since or now
        if not is_listening(self._options.host, self._options.port):
            return now - self._unanswered_since < BEGINNING
        ours = self._run.directory.resolve()
        has_siblings = self._shared or any(run != ours for run in self._shared_port.runs())
        return has_siblings and now - self._unanswered_since < UNANSWERED

    def _is_shown_to_its_end(self) -> bool:
        """Whether what has the port shows this run, and keeps doing so until its end was scraped."""
        other = about_server(self._options.host, self._options.port, path=ENDED_PATH)
        return other is not None and other.shows(self._run.directory, self._shared_port)

    def _forget(self) -> None:
        if self._shared_port is not None:
            self._shared_port.remove(self._run.directory.resolve())


def _targets(exporter: Exporter) -> bytes:
    """Return the content of prometheus.json: its address in the form of Prometheus' file_sd_configs."""
    return orjson.dumps([{"targets": [exporter.server.address], "labels": {}}])


class Exporter:
    """Shows the runs in a directory, from construction to `close`."""

    def __init__(self, directory: Path, *, host: str, port: int, shared: SharedPort | None = None) -> None:
        """PortTakenError if it cannot listen there."""
        self.runs = Runs(directory, shared)
        self.server = MetricsServer(host, port, directory=self.runs.directory, shared=shared)
        self.server.start(self.runs.read)

    def close(self) -> None:
        self.server.close()


def open_exporter(
    directory: Path, *, host: str, port: int, shared: SharedPort | None = None, ask: bool = True
) -> Exporter | About | None:
    """Return an exporter, or the description of the one that has the port; PortTakenError if it gives none.

    None without `ask`: something has the port.
    """
    try:
        return Exporter(directory, host=host, port=port, shared=shared)
    except PortTakenError:
        if not ask:
            return None
        other = about_server(host, port)
    if other is None:
        time.sleep(CLOSING)
        return Exporter(directory, host=host, port=port, shared=shared)
    return other


def show(directory: Path, *, host: str, port: int) -> None:
    """Show the runs in a directory until SIGINT or SIGTERM, and say where."""
    require_package("prometheus_client")
    if not directory.is_dir():
        raise RunDirectoryError(
            f"{directory} is not a directory", hint="name one that holds runs, such as results"
        )
    stop = threading.Event()
    set_by((signal.SIGINT, signal.SIGTERM), stop)
    exporter = _exporter_in_turn(directory, host, port, stop)
    if exporter is None:
        return
    with contextlib.closing(exporter):
        now = len(exporter.runs.read())
        address = f"http://{exporter.server.address}/metrics"
        print(f"{address} shows the runs in {directory} ({now} now); Ctrl-C ends it", flush=True)
        while not stop.wait(READ_EVERY):
            exporter.runs.read()


def _exporter_in_turn(directory: Path, host: str, port: int, stop: threading.Event) -> Exporter | None:
    """Return an exporter, once others let the port go; None if `stop` comes first.

    One that shares the port shows the runs of this directory meanwhile; one that lingers is waited for.
    """
    shared = SharedPort(host, port) if port else None
    if shared is not None:
        shared.open()
    until, said = time.monotonic() + PATIENCE, ""
    with contextlib.closing(_Registered(directory, shared)) as registered:
        while not stop.is_set():
            found = open_exporter(directory, host=host, port=port, shared=shared)
            if found is None or isinstance(found, Exporter):
                return found
            waiting = ""
            if found.state == "yields":
                about_server(host, port, path=YIELD_PATH)
            elif found.state == "shows" and found.shares(shared):
                registered.read()
                waiting = f"http://{host}:{port}/metrics, of another exporter, shows them too; Ctrl-C ends it"
            elif found.state == "shows" or time.monotonic() > until:
                raise port_taken(f"{host}:{port}", f"another exporter shows {found.directory} there")
            else:
                waiting = f"waiting until the end of {found.directory} was scraped"
            if waiting and waiting != said:
                print(waiting, file=sys.stderr, flush=True)
                said = waiting
            stop.wait(STAND_BY)
    return None


class _Registered:
    """The runs of a directory that another exporter shows for us."""

    def __init__(self, directory: Path, shared: SharedPort | None) -> None:
        self._runs = Runs(directory)
        self._shared = shared
        self._added: set[Path] = set()
        self._next_read = 0.0

    def read(self) -> None:
        """Have those shown that are new; an agent that wants the same for its run does it again."""
        if self._shared is None or time.monotonic() < self._next_read:
            return
        self._next_read = time.monotonic() + READ_EVERY
        self._runs.read()
        self._added |= {run for run in self._runs.directories() if self._shared.add(run)}

    def close(self) -> None:
        if self._shared is not None:
            for run in self._added:
                self._shared.remove(run)
            self._shared.leave()


def main(argv: Sequence[str] | None = None) -> int:
    """Serve runs until interrupted, then return 0; 2 if it cannot listen or the directory does not exist."""
    ours = follower_options("prometheus", {})
    parser = argparse.ArgumentParser(
        prog="python -m monitoring.exporters.prometheus", description="Show every run below a directory."
    )
    parser.add_argument(
        "directory", type=Path, metavar="RESULTS", help="a run, a matrix, or a folder of them"
    )
    parser.add_argument("--port", type=int, default=ours.port, help="0: any free one")
    parser.add_argument("--host", default=ours.host, help="0.0.0.0 shows them to the network")
    given = parser.parse_args(argv)
    try:
        show(given.directory, host=given.host, port=given.port)
    except PortTakenError as error:
        return report_error(error.options_are(port="--port", host="--host"))
    except MonitoringError as error:
        return report_error(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
