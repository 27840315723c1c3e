"""Forks one process per run from a process that has imported torch, so that no run waits for the import.

    python -P -m kharness.training.forkserver.server FD

It imports and does nothing else: no operation, no device, no thread, for a child of a process that has used
torch hangs in its first parallel operation. That is checked before every fork. FD is one end of a socket pair
to the launcher; each line is a JSON object.

    request                                        answer
    {"fork": {"program", "directory", "log",       {"forked": PID, "started"}, {"refused": reason},
              "environment", "cores", "threads"}}  {"unsafe": reason}
    {"signal": PID, "number": N}
    {"kill": PID}                                  {"ended": PID, "status", "time"}, whenever one has

`started` is the process's start as the system counts it, `status` that of waitpid, `time` in UTC epoch
seconds. {"ready": true}, or {"unsafe": reason}, says that the imports are done. A child that has ended takes
the rest of its process group along. When the launcher closes its end, or dies, all children are killed.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import pkgutil
import platform
import select
import signal
import socket
import sys
import time
import traceback
import weakref
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NoReturn

import torch

import kharness.training
from kharness.config.dotconfig import CONFIG, assigned
from kharness.training.forkserver.forked import CompiledScripts, become, run_script
from monitoring.errors import refusal
from monitoring.host.process import process_started

# What a training imports beyond kharness.training; the first checkpoint imports torch.utils.serialization.
PRELOADED = (
    "torch.utils.data",
    "torch.utils.serialization.config",
    "kconfiglib",
    "kharness.config.options",
    "monitoring.run",
)

# What a model that is compiled imports besides, which takes as long as all of that.
COMPILER = "torch._dynamo"

_DEVICE_FILES = ("/dev/nvidia", "/dev/kfd", "/dev/dri", "/dev/accel", "/dev/davinci")


def main(argv: Sequence[str]) -> int:
    """Serve until the launcher closes its end."""
    preload()
    server = ForkServer(socket.socket(fileno=int(argv[0])))
    server.serve()
    return 0


def preload() -> None:
    """Import what trainings import, and keep collector and exit functions from touching it.

    So children share its memory. torch has 174 finalizers that take operators out of its tables at the exit;
    in a child, whose copy of the tables ends anyway, that would take 30 ms.
    """
    for module in pkgutil.walk_packages(kharness.training.__path__, f"{kharness.training.__name__}."):
        importlib.import_module(module.name)
    for name in PRELOADED:
        importlib.import_module(name)
    platform.platform()  # starts a process, and knows its answer from then on
    for finalizer in list(weakref.finalize._registry):  # type: ignore[attr-defined]
        finalizer.atexit = False
    # A collection in a child would write to the headers of all objects and so copy every shared page; frozen
    # ones it skips.
    gc.collect()
    gc.freeze()


def why_unsafe() -> str:
    """Why a child of this process might not work; empty if it would."""
    threads = len(os.listdir("/proc/self/task"))
    if threads != 1:
        return f"the process that has imported torch has {threads} threads"
    if torch.cuda.is_initialized():
        return "the process that has imported torch has initialized a GPU"
    opened = [path for path in _open_files() if path.startswith(_DEVICE_FILES)]
    if opened:
        return f"the process that has imported torch has opened {opened[0]}"
    return ""


def _ignore_in(pid: int, number: int, frame: FrameType | None) -> None:
    """Do nothing in this process; a child that has just been forked is ended by its signal."""
    if os.getpid() != pid:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


class ForkServer:
    """Answers the launcher and looks after the children; one thread, for it forks."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._received = b""
        self._to_send = b""
        self._children: set[int] = set()
        self._scripts = CompiledScripts()
        channel.setblocking(False)
        # Requests to stop are the launcher's to pass on, also where all processes of a job get them: the
        # children, which save, die with this one. A child's end only wakes the select below.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, partial(_ignore_in, os.getpid()))
        signal.signal(signal.SIGCHLD, lambda *_: None)
        # A select goes on after a signal (PEP 475): so that a child's end wakes it, the interpreter writes
        # each signal's number into this pipe.
        self._wakeup, write_end = os.pipe()
        os.set_blocking(self._wakeup, False)
        os.set_blocking(write_end, False)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)

    def serve(self) -> None:
        """Serve until the launcher is gone, then end all children."""
        reason = why_unsafe()
        self._send({"unsafe": reason} if reason else {"ready": True})
        try:
            while True:
                channel = self._channel.fileno()
                writable = [channel] if self._to_send else []
                ready, _, _ = select.select([channel, self._wakeup], writable, [])
                if self._wakeup in ready:
                    os.read(self._wakeup, 65536)
                    self._collect()
                if channel in ready:
                    for request in self._requests():
                        self._answer(request)
                self._flush()
        except (EOFError, BrokenPipeError, ConnectionResetError):
            pass
        finally:
            for pid in list(self._children):
                self._kill(pid)
                os.waitpid(pid, 0)

    def _answer(self, request: Mapping[str, Any]) -> None:
        if "fork" in request:
            self._send(self._fork(request["fork"]))
        elif "signal" in request and request["signal"] in self._children:
            os.kill(request["signal"], request["number"])
        elif "kill" in request and request["kill"] in self._children:
            self._kill(request["kill"])

    def _fork(self, run: Mapping[str, Any]) -> dict[str, object]:
        if _is_compiled(run):
            importlib.import_module(COMPILER)
            gc.freeze()
        reason = why_unsafe()
        if reason:
            # Refused here, since the child could not tell: its first parallel operation would hang with locks
            # held by threads that fork does not copy.
            return {"unsafe": reason}
        parent = os.getpid()
        try:
            log = os.open(run["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        except OSError as error:
            return {"refused": f"{run['log']}: {refusal(error)}"}
        code = self._scripts.find(run["directory"], run["program"][0])
        try:
            pid = os.fork()
        except OSError as error:  # too many processes, too little memory
            return {"refused": refusal(error)}
        if pid == 0:
            _child(run, code, log=log, parent=parent)
        os.close(log)
        self._children.add(pid)
        return {"forked": pid, "started": process_started(pid)}

    def _collect(self) -> None:
        """Report the children that have ended, each with what is left of its process group killed."""
        for pid in sorted(self._children):
            # Looked at without collecting it: until then nobody else can get its id, so its group is its own.
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                continue
            self._kill(pid)
            _, status = os.waitpid(pid, 0)
            self._children.discard(pid)
            self._send({"ended": pid, "status": status, "time": time.time()})

    def _kill(self, pid: int) -> None:
        """End a child that has not been collected, and its group; the group is there after its setsid."""
        for end in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError):
                end(pid, signal.SIGKILL)

    def _requests(self) -> Iterator[dict[str, Any]]:
        """The complete lines that have come; EOFError when the launcher is gone."""
        received = self._channel.recv(1 << 20)
        if not received:
            raise EOFError
        *lines, self._received = (self._received + received).split(b"\n")
        yield from map(json.loads, lines)

    def _send(self, message: Mapping[str, object]) -> None:
        """Queued, so that a launcher that is busy never blocks the collecting."""
        self._to_send += json.dumps(message).encode() + b"\n"
        self._flush()

    def _flush(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._to_send:
                self._to_send = self._to_send[self._channel.send(self._to_send) :]


def _child(run: Mapping[str, Any], code: CodeType | None, *, log: int, parent: int) -> NoReturn:
    """Run the forked process from the fork to its end; nothing returns into the loop above."""
    try:
        become(run, log=log, parent=parent)
        os._exit(run_script(run["program"], code))
    except BaseException:  # noqa: BLE001 - it must not return into the parent's loop
        traceback.print_exc()
    finally:
        os._exit(1)


def _is_compiled(run: Mapping[str, Any]) -> bool:
    """Whether the configuration beside its log says so, or has it found out."""
    try:
        text = Path(run["log"]).with_name(CONFIG).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return not {("COMPILE", "y"), ("COMPILE_AUTO", "y")}.isdisjoint(assigned(text))


def _open_files() -> Iterator[str]:
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the one that lists
            yield os.readlink(f"/proc/self/fd/{fd}")


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)  # the launcher waits for it, and to take torch apart takes 0.2 s
