"""Ports to listen on, which nobody else gets between their choice and their use."""

from __future__ import annotations

import errno
import itertools
import os
import socket

# Below those that the kernel gives to whoever asks for any port, and to every connection that goes out.
FIRST = 10_000
NUM_PORTS = 15_000

_tried = itertools.count(os.getpid() * 97)
_reserved: list[socket.socket] = []


def free_port() -> int:
    """One of this machine that nobody listens on, and that no other process of the tests is given."""
    while True:
        port = FIRST + next(_tried) % NUM_PORTS
        reservation = socket.socket(socket.AF_UNIX)
        try:
            reservation.bind(f"\0kharness-test-port-{port}")
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError as error:
            reservation.close()
            if error.errno != errno.EADDRINUSE:
                raise
            continue
        _reserved.append(reservation)  # until this process ends
        return port
