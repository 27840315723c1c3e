"""Delivers the backlog of a follower that lags far behind, in a process of its own.

    python -m monitoring.agent.catch_up_process '{"directory": …, "name": …, "options": …, "fd": …, …}'

The followers of a run share one interpreter, in which one of them encodes at a time. A process takes the
records of one follower as far as they have come, and ends; the agent, which has let go of the sink
until then, continues from there. So a sink has one writer: the process dies with the agent that started it,
and holds the agent's lock as long as it lives. It says over a pipe how far it is, in JSON lines.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson

from monitoring.agent.delivery import Delivery
from monitoring.agent.lock import death
from monitoring.agent.process import how_died
from monitoring.agent.progress import DeliveryProgress, read_progress
from monitoring.errors import failure
from monitoring.follower import RunInfo
from monitoring.host import file_locks
from monitoring.journal.alerts import Alerts, Severity


class Apart:
    """Starts a process for a follower that lags far behind; each delivery has a thread that waits."""

    def __init__(self, alerts: Alerts) -> None:
        self._alerts = alerts

    def __call__(
        self,
        run: RunInfo,
        name: str,
        options: Mapping[str, object],
        moved: Callable[[DeliveryProgress, int], None],
    ) -> bool:
        """Return when the follower has caught up; False if its process failed, or could not be started.

        `moved` is called with how far it is, and how many records it has delivered. The agent of one that
        failed continues itself, and fails in the same way.
        """
        import subprocess  # here: few followers lag so far behind

        read, write = os.pipe()
        about = {"directory": str(run.directory), "name": name, "options": dict(options), "fd": write}
        argument = orjson.dumps({**about, "parent": os.getpid()}).decode()
        try:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "monitoring.agent.catch_up_process", argument],
                stdin=subprocess.DEVNULL,
                # the run's lock too, which keeps other agents out until both have ended
                pass_fds=[write, *file_locks.held()],
            )
        except OSError:  # out of processes or memory
            os.close(read)
            return False
        finally:
            # the child has the only copy left, so that reading ends when it does
            os.close(write)
        with open(read, "rb") as lines, process:
            for line in lines:
                self._take(line, moved)
        if process.returncode < 0:
            self._alerts.add("agent", "warning", death(f"{name}, {how_died(process.returncode)}"))
        return process.returncode == 0

    def _take(self, line: bytes, moved: Callable[[DeliveryProgress, int], None]) -> None:
        if not line.endswith(b"\n"):  # it was killed
            return
        told = orjson.loads(line)
        if "alert" in told:
            self._alerts.add(*told["alert"])
        else:
            moved(DeliveryProgress(**told["progress"]), told["delivered"])


class _Teller(Alerts):
    """Alerts that the agent writes: alerts.jsonl has one writer."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def add(self, rule: str, severity: Severity, message: str, **fields: object) -> None:
        self.tell({"alert": [rule, severity, message]})

    def close(self) -> None: ...

    def tell(self, what: Mapping[str, object]) -> None:
        try:
            os.write(self._fd, orjson.dumps(what, option=orjson.OPT_APPEND_NEWLINE))
        except BrokenPipeError:  # the agent is gone
            os._exit(1)


def main(argv: Sequence[str] | None = None) -> int:
    """Catch up with a follower; 0 when that is done, 1 when it failed."""
    from monitoring.host.libc import ending_with  # here: it loads ctypes, which agents do without

    about: dict[str, Any] = orjson.loads((sys.argv[1:] if argv is None else argv)[0])
    # Ctrl-C and a closed terminal are for the training; this process ends with the agent
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    ending_with(about["parent"])()
    run = RunInfo.read(Path(about["directory"]))
    name, teller = about["name"], _Teller(about["fd"])
    saved = read_progress(run.directory).get(name, DeliveryProgress())
    delivery = Delivery(run, name, about["options"], saved=saved, alerts=teller)
    try:
        delivery.bring_up_to_date(
            lambda: teller.tell({"progress": asdict(delivery.progress), "delivered": delivery.delivered})
        )
    except Exception as error:  # noqa: BLE001 - a follower is called here; the failure becomes an alert
        teller.add("follower", "warning", f"{name}: {failure(error)}; its process has ended")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
