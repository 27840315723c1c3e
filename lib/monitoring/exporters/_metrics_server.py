"""A small HTTP server for scrapes: bound at once, answering once there is something to show."""

from __future__ import annotations

import contextlib
import http.client
import socket
import socketserver
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

from monitoring.errors import PortTakenError

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

# Where a server tells which directory it shows.
DIRECTORY_PATH = "/directory"

# Seconds that a client may take to send its request or to take the answer.
CLIENT_SECONDS = 10.0

# The longest wait for a last scrape, in seconds: Prometheus' own scrape interval is usually 15.
LAST_SCRAPE_SECONDS = 20.0


class MetricsServer:
    """Serves a registry under /metrics from `start` to `close`."""

    def __init__(self, host: str, port: int, *, directory: Path) -> None:
        """Take the port (0: a free one); PortTakenError if that cannot be."""
        self._scraped = threading.Condition()
        self._scrapes: list[float] = []  # monotonic times of the last two
        self._thread: threading.Thread | None = None
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            self._server = _Server(family, (host, port), directory, self._note_scrape)
        except (OSError, OverflowError) as error:
            raise _port_taken(f"{host}:{port}", error) from error
        self.address = f"[{host}]:{self._server.port}" if ":" in host else f"{host}:{self._server.port}"

    def start(self, registry: CollectorRegistry) -> None:
        """Answer scrapes from now on; PortTakenError if another took the port in between."""
        self._server.registry = registry
        try:
            self._server.server_activate()
        except OSError as error:
            raise _port_taken(self.address, error) from error
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, name="metrics", daemon=True
        )
        self._thread.start()

    def wait_for_scrape(self, most: float = LAST_SCRAPE_SECONDS) -> None:
        """Wait for the next scrape if somebody scrapes, no longer than scrapes have been apart."""
        with self._scraped:
            if not self._scrapes:
                return
            apart = self._scrapes[-1] - self._scrapes[0] if len(self._scrapes) > 1 else most
            patience = min(most, 1.5 * apart + 1.0)
            seen = self._scrapes[-1]
            until = min(time.monotonic() + patience, seen + 2 * patience)
            self._scraped.wait_for(
                lambda: self._scrapes[-1] != seen, timeout=max(0.0, until - time.monotonic())
            )

    def close(self) -> None:
        """Let go of the port; a scrape that is being answered gets its answer."""
        if self._thread is not None:
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def _note_scrape(self) -> None:
        with self._scraped:
            self._scrapes = [*self._scrapes[-1:], time.monotonic()]
            self._scraped.notify_all()


def shown_directory(host: str, port: int) -> Path | None:
    """The directory that a server at this address shows; None if no such server answers."""
    connection = http.client.HTTPConnection(host, port, timeout=1.0)
    with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
        connection.request("GET", DIRECTORY_PATH)
        answer = connection.getresponse()
        if answer.status == 200:
            return Path(answer.read(4096).decode(errors="replace"))
    return None


def _port_taken(address: str, error: Exception) -> PortTakenError:
    reason = str(getattr(error, "strerror", None) or error).lower()
    return PortTakenError(
        f"{address}: {reason}",
        hint="set PROMETHEUS_PORT to a free port, or show several runs with one `make prometheus`",
    )


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # server_close waits for the answers under way
    registry: CollectorRegistry

    def __init__(
        self,
        family: socket.AddressFamily,
        address: tuple[str, int],
        directory: Path,
        note_scrape: Callable[[], None],
    ) -> None:
        self.address_family = family
        self.directory = directory
        self.note_scrape = note_scrape
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
        path = self.path.partition("?")[0]
        if path == "/metrics":
            from prometheus_client.exposition import choose_encoder

            encode, kind = choose_encoder(self.headers.get("Accept", ""))
            self._answer(200, kind, encode(self.server.registry))
            self.server.note_scrape()
        elif path == DIRECTORY_PATH:
            self._answer(200, "text/plain; charset=utf-8", str(self.server.directory).encode())
        else:
            self._answer(404, "text/plain; charset=utf-8", b"the metrics are at /metrics\n")

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: a scrape is no news."""

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
