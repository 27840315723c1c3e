"""Python programs started as forks of an interpreter that has imported what they need.

    python warm_python.py FD MODULE…      # PACKAGE.* is all modules of a package

A fresh interpreter takes up to two seconds to import what a script of ours does; a fork has it at once. In
all else it is a process of its own: its id, its environment, its files, its exit status, also by a signal.
This process imports the modules, runs nothing, and forks one child a request that it reads from FD.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, TypeAlias

# What an interpreter and these modules read when they start: where it differs, a fresh one is started.
READ_AT_THE_START = ("PYTHON", "LC_", "LANG", "LD_", "OMP_", "MKL_", "OPENBLAS_", "MPL", "TORCH", "CUDA")


class WarmPython:
    """One such interpreter, started when it is first needed."""

    def __init__(self, *modules: str, read: tuple[str, ...] = ()) -> None:
        """`read` are beginnings of the names of variables that the modules read when they are imported."""
        self._modules = modules
        self._read = (*READ_AT_THE_START, *read)
        self._environment: dict[str, str] = {}
        self._channel: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, arguments: Sequence[object], **options: Any) -> StartedPython:
        """What `subprocess.Popen([sys.executable, *arguments], **options)` does; output is text."""
        known = {"cwd", "env", "stdin", "stdout", "stderr", "text"}
        environment = dict(options.get("env") or os.environ)
        if self._channel is None:
            self._environment = self._read_of(os.environ)
            self._channel = self._serve()
        if not options.keys() <= known or self._read_of(environment) != self._environment:
            return subprocess.Popen([sys.executable, *map(str, arguments)], **{**options, "text": True})
        return ForkedPython(self._channel, list(map(str, arguments)), environment, options)

    def run(
        self, arguments: Sequence[object], *, input: str | None = None, timeout: float = 120, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """What `subprocess.run` does, with all output captured unless it is said where it goes."""
        pipes = {"stdin": subprocess.PIPE} if input is not None else {}
        pipes |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = self.start(arguments, **{**pipes, **options})
        output, errors = process.communicate(input, timeout)
        return subprocess.CompletedProcess(process.args, process.wait(), output, errors)

    def _serve(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            # One thread: OpenBLAS would start its own when numpy is imported.
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno()), *self._modules],
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        return ours

    def close(self) -> None:
        if self._channel and self._process:
            self._channel.close()
            self._process.wait()

    def _read_of(self, environment: Mapping[str, str]) -> dict[str, str]:
        return {name: value for name, value in environment.items() if name.startswith(self._read)}


class ForkedPython:
    """A program that runs in a fork; what of `subprocess.Popen` tests use."""

    def __init__(
        self,
        server: socket.socket,
        arguments: list[str],
        environment: dict[str, str],
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
                "directory": os.path.abspath(options.get("cwd") or os.getcwd()),
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


def main(channel: int, modules: Sequence[str]) -> None:
    """Import, then fork until nobody is left who could ask; a child ends in here."""
    for name in modules:
        package = importlib.import_module(name.removesuffix(".*"))
        if name.endswith(".*"):
            for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
                importlib.import_module(module.name)
    gc.collect()
    gc.freeze()
    request = serve(socket.socket(fileno=channel))
    if request is not None:
        become(request)
        leave(status_of(request["arguments"]))


def serve(channel: socket.socket) -> dict[str, Any] | None:
    """The request in each child; None in this process at the end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # it wakes the select below
    wakeup, write_end = os.pipe()
    os.set_blocking(wakeup, False)
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    children: dict[int, socket.socket] = {}
    while True:
        ready = select.select([channel.fileno(), wakeup], [], [])[0]
        if wakeup in ready:
            os.read(wakeup, 65536)
            report(children)
        if channel.fileno() in ready:
            message, files, _, _ = socket.recv_fds(channel, 1 << 20, 4)
            if not message:
                return None
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                request: dict[str, Any] = {**json.loads(message), "files": files}
                return request
            children[pid] = socket.socket(fileno=files[0])
            children[pid].send(str(pid).encode())
            for file in files[1:]:
                os.close(file)


def report(children: dict[int, socket.socket]) -> None:
    """Say of each child that has ended how it did."""
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        with children.pop(pid) as end, contextlib.suppress(OSError):  # nobody may wait for it
            end.send(str(os.waitstatus_to_exitcode(status)).encode())


def become(request: Mapping[str, Any]) -> None:
    """Take on files, folder, environment and signals of a process that was just started."""
    for standard, file in enumerate(request["files"][1:]):
        os.dup2(file, standard)
    os.closerange(3, 1 + max(int(name) for name in os.listdir("/proc/self/fd")))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    os.chdir(request["directory"])
    for name, file, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        old = getattr(sys, name)
        kept = {"encoding": old.encoding, "errors": old.errors}
        new = open(file, mode, closefd=False, **kept)  # noqa: SIM115
        assert isinstance(new, io.TextIOWrapper)
        new.reconfigure(line_buffering=name == "stderr" or new.isatty())
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)


def run(arguments: Sequence[str]) -> None:
    """Run `SCRIPT ARGUMENT…`, `-m MODULE ARGUMENT…` or `-c CODE ARGUMENT…` as the interpreter does."""
    sys.orig_argv = [sys.executable, *arguments]
    first, rest = arguments[0], list(arguments[1:])
    if first == "-m":
        sys.argv, sys.path[0] = rest, os.getcwd()
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif first == "-c":
        sys.argv, sys.path[0] = ["-c", *rest[1:]], ""
        exec(compile(rest[0], "<string>", "exec", dont_inherit=True), {"__name__": "__main__"})
    else:
        sys.argv, sys.path[0] = list(arguments), str(Path(first).resolve().parent)
        runpy.run_path(first, run_name="__main__")


def status_of(arguments: Sequence[str]) -> int:
    """The exit status that a program asks for, in the interpreter's reading; -2 for Ctrl-C."""
    try:
        run(arguments)
    except SystemExit as request:
        if request.code is None or isinstance(request.code, int):
            return (request.code or 0) & 0xFF
        print(request.code, file=sys.stderr)
        return 1
    except BaseException as error:  # noqa: BLE001 - whatever a program may raise
        sys.excepthook(type(error), error, error.__traceback__)
        return -2 if isinstance(error, KeyboardInterrupt) else 1
    return 0


def leave(status: int) -> None:
    """End as the interpreter does, but for taking all modules apart, which nobody sees and takes 0.1 s."""
    with contextlib.suppress(KeyboardInterrupt):
        threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
    except (OSError, ValueError) as error:
        print(f"Exception ignored in: {sys.stdout!r}\n{type(error).__name__}: {error}", file=sys.stderr)
        status = 120
    sys.stderr.flush()
    if status == -2:  # whoever waits is to see the signal and not a code
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(status)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
