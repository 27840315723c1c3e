"""Forks agents from a process that has imported what they need, so that not every short run imports it.

    python -P -m monitoring.agent.starter FD

FD listens for sequenced packets; MONITORING_AGENT_STARTER gives its name to the runs. A trainer sends one
JSON object {"directory", "arguments", "cwd", "environment", "cores"} with the open log, and is answered
{"pid", "started"}, where `started` is the process's start as the system counts it. A trainer that gets no
answer starts its agent itself. The process ends when its standard input does, so with its parent process;
the agents keep running. Linux only.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from monitoring.agent.follow import leave
from monitoring.agent.follow import main as follow_run
from monitoring.agent.process import STARTER, peer_user
from monitoring.follower import ALWAYS, follower_module
from monitoring.host.process import process_started
from monitoring.rules import RULES, open_rule

# Trainers that may wait to be answered; the next one starts its agent itself.
BACKLOG = 128

# Seconds that a trainer which has connected may take to ask.
PATIENCE = 1.0

# More than a socket takes at once.
LARGEST_REQUEST = 1 << 20

# Seconds that a process which is to end may take for it.
LONGEST_END = 5.0


class AgentStarter:
    """One such process, for runs that have `environment` added to theirs; OSError if it cannot be started."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """`environment` is that of the runs."""
        # A name that is no file: nothing is left on disk, whatever ends this process.
        name = f"monitoring-agents-{os.getpid()}-{secrets.token_hex(8)}"
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(f"\0{name}")
            listener.listen(BACKLOG)
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "monitoring.agent.starter", str(listener.fileno())],
                env=dict(environment),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=[listener.fileno()],
                start_new_session=True,
            )
        self.environment = {STARTER: name}

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        """End it once it has started the requested agents."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(LONGEST_END)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def main(argv: Sequence[str]) -> int:
    """Serve until standard input ends, and return 0; in a forked agent, follow the run to its end."""
    preload()
    asked = serve(socket.socket(fileno=int(argv[0])))
    if asked is None:
        return 0
    request, log = asked
    become(request, log)
    return follow_run([request["directory"], *request["arguments"]])


def preload() -> None:
    """Import what an agent without trackers does, and keep the collector from touching it."""
    import monitoring.saved_environment  # noqa: F401 - each agent writes one

    for name in ALWAYS:
        follower_module(name)
    for name in RULES.names:
        with contextlib.suppress(Exception):  # one that is broken: its opening says so
            open_rule(name, {})
    gc.collect()
    # agents share these pages until something writes to them, as a collection does (docs of gc.freeze)
    gc.freeze()


def serve(listener: socket.socket) -> tuple[dict[str, Any], int] | None:
    """Fork an agent per request. Returns request and log in each, and None in this process at the end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # ignored: the kernel then reaps the agents (wait(2))
    while listener in select.select([listener, sys.stdin], [], [])[0]:
        asked = None
        with contextlib.suppress(OSError, ValueError):  # it has died, or is no run of ours; or no room
            asked = _answer(listener)
        if asked is not None:
            listener.close()
            return asked
    return None


def _answer(listener: socket.socket) -> tuple[dict[str, Any], int] | None:
    """Fork an agent for the next trainer, in which this returns request and log; None in this process."""
    connection = listener.accept()[0]
    with connection:
        if peer_user(connection) != os.getuid():
            return None
        connection.settimeout(PATIENCE)
        message, (log,), _, _ = socket.recv_fds(connection, LARGEST_REQUEST, 1)
        pid = -1
        try:
            request: dict[str, Any] = json.loads(message)
            pid = os.fork()
            if pid == 0:
                return request, log
            connection.send(json.dumps({"pid": pid, "started": process_started(pid)}).encode())
        finally:
            if pid:
                os.close(log)
    return None


def become(request: Mapping[str, Any], log: int) -> None:
    """Take on the session, output, environment, folder and cores of an agent that the trainer would start."""
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    null = os.open(os.devnull, os.O_RDONLY)
    for ours, standard in ((null, 0), (log, 1), (log, 2)):
        os.dup2(ours, standard)
    os.close(log)
    os.close(null)
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    with contextlib.suppress(OSError):  # a folder that is gone, cores that are: it runs all the same
        os.chdir(request["cwd"])
        os.sched_setaffinity(0, request["cores"])


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
