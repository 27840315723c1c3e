"""A forked process made the same as one that the interpreter has just started on a script."""

from __future__ import annotations

import atexit
import builtins
import contextlib
import ctypes
import io
import os
import signal
import sys
import threading
import warnings
from collections.abc import Mapping, Sequence
from importlib.machinery import SourceFileLoader
from types import CodeType, ModuleType
from typing import Any

import numpy as np
import torch

from monitoring.host import libc

# OpenBLAS starts its threads when it is loaded, so a process that is to be forked loads it with one; later
# this sets their number, under another name in each build.
_SET_BLAS_THREADS = (
    "scipy_openblas_set_num_threads64_",
    "scipy_openblas_set_num_threads",
    "openblas_set_num_threads64_",
    "openblas_set_num_threads",
)
_BLAS_VARIABLES = ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS")

# No exit status of a script: it was ended by Ctrl-C.
_INTERRUPTED = -2


def become(run: Mapping[str, Any], *, log: int, parent: int) -> None:
    """Take on a session and output of one's own, and the environment, directory, cores and threads of a run.

    Its `threads` is the number for tensor operations, 0 for what the parent had. The kernel kills this
    process when `parent` dies. No file of the parent stays open.
    """
    os.setsid()
    os.dup2(log, 1)
    os.dup2(log, 2)
    libc.ending_with(parent)()
    _default_signals()
    _close_files()
    os.environ.clear()
    os.environ.update(run["environment"])
    os.chdir(run["directory"])
    if run["cores"]:
        os.sched_setaffinity(0, run["cores"])
    _set_threads(run["threads"])
    # Copies of the parent's, from which every child would draw the same; random reseeds itself after a fork.
    np.random.seed()
    torch.default_generator.seed()
    libc.name_process(os.path.basename(sys.executable))  # as exec names a fresh process


class CompiledScripts:
    """Compiled scripts by their text, so that forked processes do not compile them again."""

    def __init__(self) -> None:
        self._compiled: dict[str, tuple[bytes, CodeType]] = {}

    def find(self, directory: str, program: str) -> CodeType | None:
        """None for one that cannot be read, or compiled without a warning: its own process reports that."""
        path = os.path.normpath(os.path.join(os.path.realpath(directory), program))
        try:
            with io.open_code(path) as file:
                source = file.read()
            if path not in self._compiled or self._compiled[path][0] != source:
                with warnings.catch_warnings(action="error"):
                    self._compiled[path] = source, compile(source, path, "exec", dont_inherit=True)
        except (OSError, SyntaxError, ValueError):
            return None
        return self._compiled[path][1]


def run_script(program: Sequence[str], code: CodeType | None = None) -> int:
    """Run a script with its arguments as `python SCRIPT ARGUMENT…` does; returns the exit status.

    `code` is what it compiles to, if that is known. What the interpreter does at the end is done: threads are
    waited for, exit functions run, output is flushed. Only the taking apart of all modules is left out, which
    takes 0.2 s with torch.
    """
    path = os.path.abspath(program[0])
    sys.argv = list(program)
    sys.orig_argv = [sys.executable, *program]
    if not os.environ.get("PYTHONSAFEPATH"):
        sys.path.insert(0, os.path.dirname(path))
    main = ModuleType("__main__")
    main.__dict__.update(__file__=path, __cached__=None, __builtins__=builtins)
    main.__loader__ = SourceFileLoader("__main__", path)
    sys.modules["__main__"] = main
    status = _execute(path, main, code)
    with contextlib.suppress(KeyboardInterrupt):
        # as at the end of the interpreter: first other threads, then exit functions, which may rely on their
        # work
        threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    failed = _flush()
    if status == _INTERRUPTED:
        # The parent then sees the signal and not an exit code.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    return failed or status


def _execute(path: str, main: ModuleType, code: CodeType | None) -> int:
    """The exit status that the script asks for, in the interpreter's reading, or _INTERRUPTED."""
    source = b""
    try:
        if code is None:
            with io.open_code(path) as file:
                source = file.read()
    except OSError as error:
        reason = f"[Errno {error.errno}] {error.strerror}"
        print(f"{sys.executable}: can't open file {path!r}: {reason}", file=sys.stderr)
        return 2
    try:
        exec(code or compile(source, path, "exec", dont_inherit=True), main.__dict__)
    except SystemExit as request:
        return _status(request.code)
    except BaseException as error:  # noqa: BLE001 - whatever a script may raise
        # without this function's own frame
        traceback = error.__traceback__.tb_next if error.__traceback__ else None
        sys.excepthook(type(error), error.with_traceback(traceback), traceback)
        return _INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _status(code: Any) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


def _flush() -> int:
    """120 where output could not be written, as the interpreter has it; else 0."""
    failed = 0
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError) as error:
            failed = 120
            if stream is sys.stdout:
                text = f"Exception ignored in: {stream!r}\n{type(error).__name__}: {error}"
                print(text, file=sys.stderr)
    libc.flush_streams()
    return failed


def _default_signals() -> None:
    """Handlers and mask as Python has them when it starts; what was ignored for all stays ignored."""
    # the parent's pipe, which is about to be closed
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _close_files() -> None:
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            with contextlib.suppress(OSError):  # the one that lists
                os.close(int(name))


def _set_threads(threads: int) -> None:
    """Apply OMP_NUM_THREADS and the like, which libraries read only when they are loaded."""
    if threads:
        torch.set_num_threads(threads)
    given = (os.environ.get(name, "") for name in _BLAS_VARIABLES)
    cores = len(os.sched_getaffinity(0))
    wanted = min(cores, next((int(text) for text in given if text.isdigit() and int(text)), cores))
    for library in _loaded("openblas") if wanted > 1 else []:
        for name in _SET_BLAS_THREADS:
            with contextlib.suppress(AttributeError):
                set_threads = library[name]
                set_threads.restype, set_threads.argtypes = None, (ctypes.c_int,)
                set_threads(wanted)
                break


def _loaded(word: str) -> list[ctypes.CDLL]:
    """The shared libraries of this process with this word in their file name."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as file:
        paths = {line.split(maxsplit=5)[5].rstrip("\n") for line in file if word in line}
    return [ctypes.CDLL(path) for path in sorted(paths) if word in os.path.basename(path)]
