"""Samples the GPUs for another process, so that a driver that crashes ends this one and nothing else.

    python -P -m monitoring.sampler_process.server ROOT PARENT SIMULATED [CALL …]

ROOT replaces the machine's root directory, PARENT is the process that is served, SIMULATED GPUs
that do not exist are sampled in place of those that do (0: none), and the CALLs of drivers
(NAME, or NAME@GPU for one of them) are left out. Standard input is a socket: the first line that goes out
says what was found, and each line that comes in asks for a sample. File 3 is shared with the parent, which
reads there in which call this process died or hangs.
"""

from __future__ import annotations

import gc

if __name__ == "__main__":
    gc.set_threshold(50_000)  # as in monitoring.agent.__main__

import mmap
import os
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

from monitoring.gpu.driver_calls import NOTE_BYTES, DriverCall, DriverCalls, note_driver_calls
from monitoring.host import libc
from monitoring.samplers import are_unselected, probe_all

PAGE_FILE = 3


def main(argv: Sequence[str]) -> int:
    """Answer requests; 0 when the other end of the socket is closed, or when there is nothing to sample."""
    root, parent, simulated, *left_out = argv
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    libc.ending_with(int(parent))()
    calls = DriverCalls(mmap.mmap(PAGE_FILE, NOTE_BYTES), left_out=map(DriverCall.of, left_out))
    note_driver_calls(calls)
    channel = socket.socket(fileno=os.dup(0))
    requests = channel.makefile("r")

    def answer(value: dict[str, Any]) -> None:
        calls.idle()
        channel.sendall(orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE))

    sampler, problems = probe_all(Path(root), simulated=int(simulated))
    if sampler is None:
        answer({"devices": None, "problems": problems, "may_come": not are_unselected(problems)})
        return 0
    answer(
        {
            "devices": list(map(tuple, sampler.devices())),
            "problems": problems,
            "vendor": sampler.vendor,
            "num_devices": sampler.num_devices,
        }
    )
    for _ in requests:
        try:
            samples, events = sampler.sample(), sampler.events()
            answer({"samples": list(map(tuple, samples)), "events": list(map(tuple, events))})
        except Exception as error:  # noqa: BLE001 - a sampler is called here; the client gets it
            answer({"error": f"{type(error).__name__}: {error}"})
    return 0


if __name__ == "__main__":
    status = 1
    try:
        status = main(sys.argv[1:])
    except OSError:  # the other end is gone in the midst of an answer
        status = 0
    finally:
        if status == 1:
            sys.excepthook(*sys.exc_info())
        # without what drivers have registered for the end, which may hang as they do
        os._exit(status)
