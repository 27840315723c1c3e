"""Shows a monitor in Prometheus: by a server of its own, or by the exporter that has the port already.

One port per machine shows all. A monitor lives in a training's process and reads no run's files there, so its
server lets the port go to any exporter of runs; while another has the port, the monitor writes down what is
to be shown (_monitor_files), and takes the port back once it is free.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Sequence

from monitoring.errors import PortTakenError
from monitoring.exporters._families import ShownRun
from monitoring.exporters._metrics_server import MetricsServer, about_server, is_listening
from monitoring.exporters._monitor_files import SUFFIX, ShownMonitor, monitors, write_monitor
from monitoring.exporters._shared_port import SharedPort

# Seconds between two looks, and so how old values are that another exporter shows.
LOOK_EVERY = 1.0

# Seconds for which a port that was let go is left to the exporter that wanted it.
LEFT_TO_OTHERS = 5.0


class MonitorPort:
    """Shows a monitor at an address, from construction to `close`."""

    def __init__(self, shown: ShownMonitor, host: str, port: int) -> None:
        """PortTakenError if what has the port does not share it. Port 0 is any free one, and never shared."""
        self._shown = shown
        self._host, self._port = host, port
        self._server: MetricsServer | None = None
        self._stop, self._wanted = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._shared = SharedPort(host, port) if port else None
        if self._shared is None:
            self._open()
            return
        self._file = self._shared.place_for(f"{os.getpid()}-{id(self):x}{SUFFIX}")
        self._write_down()
        try:
            self._open()
        except BaseException:
            self._forget()
            raise
        self._thread = threading.Thread(target=self._keep_shown, name="metrics port", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return self._server.address if self._server is not None else f"{self._host}:{self._port}"

    def close(self) -> None:
        """Let the port go, and have no other exporter show the monitor."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        self._let_go()
        self._forget()

    def _open(self) -> None:
        """Take the port, if no exporter that shares it has it."""
        let_go = self._wanted.set if self._shared is not None else None
        try:
            server = MetricsServer(self._host, self._port, directory=None, shared=self._shared, let_go=let_go)
        except PortTakenError:
            about = about_server(self._host, self._port) if self._shared is not None else None
            is_beginning = about is None and not is_listening(self._host, self._port)
            if about is None and not is_beginning:
                raise
            if about is not None and not about.shares(self._shared):
                raise
            return
        server.start(self._all)
        self._server = server

    def _keep_shown(self) -> None:
        left_until = 0.0
        while not self._stop.wait(LOOK_EVERY):
            if self._wanted.is_set():
                self._write_down()
                self._let_go()
                self._wanted.clear()
                left_until = time.monotonic() + LEFT_TO_OTHERS
            elif self._server is None:
                self._write_down()
                if time.monotonic() > left_until:
                    with contextlib.suppress(PortTakenError):
                        self._open()

    def _all(self) -> Sequence[ShownRun]:
        """This monitor, and those of other processes."""
        if self._shared is None:
            return [self._shown]
        taken = [(self._shown.name, self._shown.host)]
        return [self._shown, *monitors(self._shared, taken, but=self._file)]

    def _write_down(self) -> None:
        assert self._shared is not None
        with contextlib.suppress(OSError):  # a full disk: the next look tries it again
            self._shared.open()
            if self._shared.identity():
                write_monitor(self._file, self._shown, time.time())
                self._shared.add(self._file)

    def _let_go(self) -> None:
        if self._server is not None:
            server, self._server = self._server, None
            server.close()

    def _forget(self) -> None:
        if self._shared is not None:
            self._shared.remove(self._file)
            with contextlib.suppress(OSError):
                self._file.unlink()
