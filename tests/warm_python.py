"""Python programs started as forks of an interpreter that has imported what they need.

A fresh interpreter takes up to two seconds to import what a script of ours does; a fork has it at once. In
all else it is a process of its own: its id, its environment, its files, its exit status, also by a signal.
What it starts itself are its own children, and forks as well (see warm_server).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, TypeAlias

from .warm_server import GIVEN, READ_LATER, is_followed

SERVER = Path(__file__).with_name("warm_server.py")

# What an interpreter and these modules read when they start: where it differs, a fresh one is started.
READ_AT_THE_START = ("PYTHON", "LC_", "LANG", "LD_", "MPL")


# For the commands and variables of forks, which /proc shows.
ROOM = "." * 8192
# Of a server. One thread: OpenBLAS would start its own when numpy is imported.
OF_SERVER = {"OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": GIVEN, "ROOM": ROOM}

# What the workers of one run of pytest have in common.
SESSION = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))


class WarmPython:
    """One such interpreter, started when it is first needed; workers of one test session share it."""

    def __init__(self, *modules: str, read: tuple[str, ...] = (), **environment: str) -> None:
        """`read` are beginnings of the names of variables that the modules read when they are imported.

        `environment` is what it is started with besides this process's own.
        """
        self._given = environment
        self._base: WarmPython | None = None
        self._modules = modules
        self._read = (*READ_AT_THE_START, *read)
        self._environment: dict[str, str] = {}
        self._channel: socket.socket | None = None

    def forked_from(self, base: WarmPython) -> WarmPython:
        """It is a fork of that one, with other modules of ours: its PYTHONPATH names another checkout."""
        self._base = base
        return self

    def start(self, arguments: Sequence[object], *, leads: bool = False, **options: Any) -> StartedPython:
        """Start Python as `subprocess.Popen([sys.executable, *arguments], **options)` does; output is text.

        One that `leads` has a session of its own, controlled by the terminal that its input is.
        """
        known = {"cwd", "env", "stdin", "stdout", "stderr", "text"}
        environment = dict(options.get("env") or os.environ)
        if self._channel is None:
            self._environment = self._read_of({**os.environ, **self._given})
            self._channel = self._serve()
        alike = self._read_of(environment) == self._environment
        if not (options.keys() <= known and alike and is_followed(environment.get("PYTHONPATH", ""))):
            session = {"start_new_session": True, "preexec_fn": lead_terminal} if leads else {}
            options = {**options, **session, "text": True}
            return subprocess.Popen([sys.executable, *map(str, arguments)], **options)
        options = {**options, "leads": leads}
        return ForkedPython(self._channel, list(map(str, arguments)), environment, self._read, options)

    def run(
        self, arguments: Sequence[object], *, input: str | None = None, timeout: float = 600, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run Python as `subprocess.run` does, with all output captured unless options say where it goes."""
        pipes = {"stdin": subprocess.PIPE} if input is not None else {}
        pipes |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = self.start(arguments, **{**pipes, **options})
        output, errors = process.communicate(input, timeout)
        return subprocess.CompletedProcess(process.args, process.wait(), output, errors)

    def _serve(self) -> socket.socket:
        """A connection to the server of these modules that all workers of a test session share."""
        about = [self._modules, sorted(self._environment.items()), sorted(self._given.items()), GIVEN]
        kind = json.dumps([SESSION, *about])
        address = f"\0warm-python-{hashlib.sha256(kind.encode()).hexdigest()[:32]}"
        began = False
        while True:
            channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with contextlib.suppress(ConnectionError):
                channel.connect(address)
                if channel.recv(1):
                    return channel
            channel.close()  # there is no server, or it was just ending
            assert not began, "the interpreter that was to be forked has ended"
            began = self._begin(address)

    def _begin(self, address: str) -> bool:
        """Start a server; False if another worker has done so. It ends with its last connection."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            try:
                listener.bind(address)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                return False
            listener.listen()
            if self._base is not None:
                began = self._base.start(
                    [SERVER, "0", *self._modules, ""],
                    env={**os.environ, **self._given},
                    stdin=listener.fileno(),
                )
                return began.wait() == 0
            subprocess.run(
                [sys.executable, SERVER, str(listener.fileno()), *self._modules, ROOM],
                env={**os.environ, **self._given, **OF_SERVER},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # whoever reads ours waits for its end
                pass_fds=[listener.fileno()],
                check=True,
            )
        return True

    def close(self) -> None:
        if self._channel:
            self._channel.close()

    def _read_of(self, environment: Mapping[str, str]) -> dict[str, str]:
        read = (name for name in environment if name.startswith(self._read))
        return {name: environment[name] for name in read if not name.startswith(READ_LATER)}


class ForkedPython:
    """A program that runs in a fork; what of `subprocess.Popen` tests use."""

    def __init__(
        self,
        server: socket.socket,
        arguments: list[str],
        environment: dict[str, str],
        read: tuple[str, ...],
        options: Mapping[str, Any],
    ) -> None:
        self.args = [sys.executable, *arguments]
        self.returncode: int | None = None
        self._end, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, contextlib.ExitStack() as opened:
            self.stdin, stdin = _opened(opened, options.get("stdin"), 0, "w")
            self.stdout, stdout = _opened(opened, options.get("stdout"), 1, "r")
            self.stderr, stderr = _opened(opened, options.get("stderr"), 2, "r")
            request = {
                "arguments": arguments,
                "environment": environment,
                "read": read,
                "directory": os.path.abspath(options.get("cwd") or os.getcwd()),
                "leads": options["leads"],
            }
            files = [theirs.fileno(), stdin, stdout, stdout if stderr == subprocess.STDOUT else stderr]
            socket.send_fds(server, [json.dumps(request).encode()], files)
        self.pid = int(self._end.recv(64))

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._end], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            self.returncode = int(self._end.recv(64))
            self._end.close()
        return self.returncode

    def communicate(self, input: str | None = None, timeout: float | None = None) -> tuple[Any, Any]:
        """Give it its input, read its outputs to their ends, and wait for it."""
        until = None if timeout is None else time.monotonic() + timeout
        texts: dict[str, str] = {}

        def read(name: str, stream: IO[str]) -> None:
            texts[name] = stream.read()

        outputs = {name: stream for name in ("stdout", "stderr") if (stream := getattr(self, name))}
        readers = [threading.Thread(target=read, args=one, daemon=True) for one in outputs.items()]
        for reader in readers:
            reader.start()
        if self.stdin:
            with contextlib.suppress(BrokenPipeError), self.stdin:
                self.stdin.write(input or "")
        for reader in readers:
            reader.join(None if until is None else max(0.0, until - time.monotonic()))
            if reader.is_alive():
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        self.wait(None if until is None else max(0.0, until - time.monotonic()))
        for stream in outputs.values():
            stream.close()
        return texts.get("stdout"), texts.get("stderr")

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> ForkedPython:
        return self

    def __exit__(self, *_: object) -> None:
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream:
                stream.close()
        self.wait()


StartedPython: TypeAlias = subprocess.Popen[str] | ForkedPython


def lead_terminal() -> None:
    """Make the terminal that standard input is that of this process's new session."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _opened(
    opened: contextlib.ExitStack, given: IO[Any] | int | None, standard: int, mode: str
) -> tuple[IO[str] | None, int]:
    """Our end of a pipe, if one was asked for, and the descriptor of the child."""
    if given == subprocess.PIPE:
        read, write = os.pipe()
        ours, theirs = (write, read) if mode == "w" else (read, write)
        opened.callback(os.close, theirs)
        return open(ours, mode), theirs
    if given == subprocess.DEVNULL:
        null = os.open(os.devnull, os.O_RDWR)
        opened.callback(os.close, null)
        return None, null
    if given is None:
        return None, standard
    return None, given if isinstance(given, int) else given.fileno()
