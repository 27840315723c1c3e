"""A small HTTP server for scrapes: bound at once, answering once there is something to show."""

from __future__ import annotations

import contextlib
import errno
import gzip
import http.client
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import orjson

from monitoring.counts import counted
from monitoring.errors import PortTakenError, refusal
from monitoring.exporters._families import ShownRun, registry, version
from monitoring.exporters._shared_port import SharedPort
from monitoring.host.name import host_name

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

# Where a server says which runs it shows, where others notify it that one of them has ended, and where one
# that can show all requests the port of one that cannot.
ABOUT_PATH = "/about"
ENDED_PATH = "/ended"
YIELD_PATH = "/yield"

# Seconds that a client may take to send its request or to take the answer.
CLIENT_SECONDS = 10.0

# Seconds between two looks whether the end was scraped.
LOOK_EVERY = 0.1

# It leaves a tenth of the text of a scrape; more would take longer than it saves.
GZIP_LEVEL = 3

# With it Prometheus, and what scrapes in its manner, says how many seconds it waits for the answer.
SCRAPE_TIMEOUT = "X-Prometheus-Scrape-Timeout-Seconds"


@dataclass(frozen=True)
class About:
    """A server's description of itself."""

    directory: str | None
    state: Literal["shows", "lingers", "leaves", "yields"]
    """`lingers`: what it shows has ended, and it waits until that was scraped; `leaves`: not any more;
    `yields`: it shows monitors only, and lets the port go to an exporter of runs."""
    shared_port: str = field(default="", compare=False)
    """Identity of the folder whose runs it shows, too (_shared_port); empty if there is none."""

    def shows(self, run: Path, shared: SharedPort | None = None) -> bool:
        """Whether it shows a run: alone, with its matrix, with what else there is, or as a registered one."""
        if self.state in ("leaves", "yields"):
            return False
        run = run.resolve()
        return self.shares(shared) or self.directory in [str(it) for it in (run, *run.parents[:2])]

    def shares(self, shared: SharedPort | None) -> bool:
        """Whether it shows what is registered there."""
        return shared is not None and self.shared_port != "" and self.shared_port == shared.identity()


class MetricsServer:
    """Serves a registry under /metrics, and a page at the root, from `start` to `close`."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        directory: Path | None,
        shared: SharedPort | None = None,
        let_go: Callable[[], None] | None = None,
    ) -> None:
        """Take the port (0: a free one); PortTakenError if that cannot be. `directory`: that of the runs.

        `let_go` is called by a thread of the server when another wants the port; without it none may.
        """
        self._thread: threading.Thread | None = None
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            self._server = _Server(family, (host, port), _Audience(directory, shared, let_go))
        except (OSError, OverflowError) as error:
            raise _cannot_listen(f"{host}:{port}", error) from error
        self.address = f"[{host}]:{self._server.port}" if ":" in host else f"{host}:{self._server.port}"

    def start(self, runs: Callable[[], Sequence[ShownRun]]) -> None:
        """Show what `runs` returns, or close; PortTakenError if another took the port in between.

        It answers once all is read: counters that rose from 0 again would look like a reset.
        """
        try:
            runs()
            self._server.registry, self._server.page = registry(runs, time.time), lambda: landing_page(runs())
            try:
                # only now the port accepts connections (listen(2)): no scrape meets half a registry
                self._server.server_activate()
            except OSError as error:
                raise _cannot_listen(self.address, error) from error
        except BaseException:
            self.close()
            raise
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.25}, name="metrics", daemon=True
        )
        self._thread.start()

    def linger(self, seconds: float, stop: threading.Event) -> None:
        """Return after a Prometheus has scraped the final state, `stop` is set, or so many seconds passed.

        It begins again for each run that is said to have ended meanwhile.
        """
        audience = self._server.audience
        audience.await_scrape()
        while not audience.may_leave(seconds) and not stop.wait(LOOK_EVERY):
            pass

    def close(self) -> None:
        """Let go of the port; a scrape that is being answered gets its answer."""
        if self._thread is not None:
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


class _Audience:
    """Who has connected, and what they are answered; each connection is a thread of its own."""

    def __init__(
        self, directory: Path | None, shared: SharedPort | None, let_go: Callable[[], None] | None
    ) -> None:
        self.let_go = let_go
        self._directory = None if directory is None else str(directory)
        self._shared_port = shared
        self._lock = threading.Lock()
        self._awaited_since: float | None = None  # monotonic, as the next
        self._scraped_at = 0.0
        self._leaves = False

    def await_scrape(self) -> None:
        """Let may_leave count only scrapes that begin after this call."""
        with self._lock:
            self._awaited_since = time.monotonic()

    def may_leave(self, seconds: float) -> bool:
        """Whether that scrape has come, or has not in so many seconds; True is the last word."""
        with self._lock:
            since = self._awaited_since or 0.0
            self._leaves = self._scraped_at >= since or time.monotonic() >= since + seconds
            return self._leaves

    def note_scrape(self, begun: float, patience: str) -> None:
        """An answer was written: it counts if it went to a Prometheus that had not given up waiting by then.

        `patience` is what it said in SCRAPE_TIMEOUT. Half of that is left for what is not measured here, the
        way of the request and of the answer.
        """
        try:
            seconds = float(patience)
        except ValueError:  # no Prometheus, but curl, say
            return
        if time.monotonic() - begun < seconds / 2:
            with self._lock:
                # answers may end in another order than their scrapes began
                self._scraped_at = max(self._scraped_at, begun)

    def about(self, *, ended: bool) -> About:
        """Return the description; `ended`: one of its runs has, so that it lingers for that one, too."""
        identity = "" if self._shared_port is None else self._shared_port.identity()
        if self.let_go is not None:
            return About(self._directory, "yields", identity)
        with self._lock:
            if ended and self._awaited_since is not None and not self._leaves:
                self._awaited_since = time.monotonic()
            if self._leaves:
                return About(self._directory, "leaves", identity)
            return About(self._directory, "shows" if self._awaited_since is None else "lingers", identity)


def about_server(host: str, port: int, *, path: str = ABOUT_PATH) -> About | None:
    """Return the description of the server there, None without one; other paths notify it of something."""
    connection = http.client.HTTPConnection(host, port, timeout=1.0)
    with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
        connection.request("GET", path)
        answer = connection.getresponse()
        if answer.status == 200:
            with contextlib.suppress(orjson.JSONDecodeError, TypeError):
                return About(**orjson.loads(answer.read(8192)))
    return None


def is_listening(host: str, port: int) -> bool:
    """Whether the process that holds the port accepts connections; a starting exporter does not yet."""
    try:
        socket.create_connection((host, port), timeout=1.0).close()
    except OSError:
        return False
    return True


def takes_gzip(accept_encoding: str) -> bool:
    """Whether a client that sends this header takes gzip: not if it gives it a weight of 0."""
    for offer in accept_encoding.split(","):
        coding, _, weight = offer.replace(" ", "").lower().partition(";q=")
        if coding == "gzip":
            return weight.strip("0.") != "" or not weight
    return False


def port_taken(address: str, reason: str) -> PortTakenError:
    """Return the error for an address at which an exporter cannot listen."""
    return PortTakenError(f"{address}: {reason}").options_are(port="PROMETHEUS_PORT", host="PROMETHEUS_HOST")


def _cannot_listen(address: str, error: Exception) -> PortTakenError:
    refused = port_taken(address, refusal(error))
    if isinstance(error, socket.gaierror) or getattr(error, "errno", None) == errno.EADDRNOTAVAIL:
        refused.is_of_host = True
    return refused.options_are(port="PROMETHEUS_PORT", host="PROMETHEUS_HOST")


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # server_close waits for the answers under way
    registry: CollectorRegistry
    page: Callable[[], str]

    def __init__(
        self,
        family: socket.AddressFamily,
        address: tuple[str, int],
        audience: _Audience,
    ) -> None:
        self.address_family = family
        self.audience = audience
        super().__init__(address, _Handler, bind_and_activate=False)
        try:
            self.server_bind()
        except BaseException:
            self.server_close()
            raise

    def server_bind(self) -> None:
        """Bind only: HTTPServer would look the host's name up, which may take long without a network."""
        socketserver.TCPServer.server_bind(self)
        self.port = int(self.socket.getsockname()[1])


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = CLIENT_SECONDS

    def do_GET(self) -> None:
        begun = time.monotonic()
        path = self.path.partition("?")[0]
        if path == "/metrics":
            from prometheus_client.exposition import choose_encoder

            encode, kind = choose_encoder(self.headers.get("Accept", ""))
            self._answer(200, kind, encode(self.server.registry), large=True)
            self.server.audience.note_scrape(begun, self.headers.get(SCRAPE_TIMEOUT, ""))
        elif path == "/":
            self._answer(200, "text/html; charset=utf-8", self.server.page().encode())
        elif path in (ABOUT_PATH, ENDED_PATH, YIELD_PATH):
            audience = self.server.audience
            self._answer(
                200, "application/json", orjson.dumps(asdict(audience.about(ended=path == ENDED_PATH)))
            )
            if path == YIELD_PATH and audience.let_go is not None:
                audience.let_go()
        else:
            self._answer(404, "text/plain; charset=utf-8", b"the metrics are at /metrics\n")

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: a scrape is no news."""

    def _answer(self, status: int, kind: str, body: bytes, *, large: bool = False) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        if large:
            self.send_header("Vary", "Accept-Encoding")
            if takes_gzip(self.headers.get("Accept-Encoding", "")):
                self.send_header("Content-Encoding", "gzip")
                body = gzip.compress(body, GZIP_LEVEL)
        self.send_header("Content-Length", str(len(body)))
        with contextlib.suppress(ConnectionError):  # a scraper that hangs up needs no answer
            self.end_headers()
            self.wfile.write(body)


def landing_page(runs: Sequence[ShownRun]) -> str:
    """Return a page of HTML; names of runs and projects are text in it, whatever they hold."""
    rows = "".join(
        f"<tr><td>{escape(run.name)}<td>{escape(str(run.run['tracking']['project']))}<td>{escape(run.host)}"
        f"<td>{'training' if run.is_running() else 'not training'}\n"
        for run in runs
    )
    return (
        '<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>kharness exporter</title>\n'
        f"<h1>kharness exporter</h1>\n<p>Version {escape(version())} on {escape(host_name())}\n"
        f'<p><a href="/metrics">Metrics</a> for Prometheus, of {counted(len(runs), "run")}\n'
        f"<table><tr><th>run<th>project<th>host<th>state\n{rows}</table>\n"
    )
