"""The agent of a host that rank 0 is not on: it samples the host until its first rank has ended.

    python -m monitoring.agent RUN_DIR --host JSON

It follows no journal and delivers nothing: the agent on rank 0's host does, and reads what this one
writes. Its own alerts are in alerts.HOST.jsonl.
"""

from __future__ import annotations

import contextlib
import threading
from dataclasses import asdict
from pathlib import Path

from monitoring.agent.ending import has_ended, is_running, set_signals
from monitoring.agent.hosts.first_rank import FirstRank
from monitoring.agent.lock import LOOK_EVERY, death, only_agent
from monitoring.agent.sample_threads.samplings import samplings
from monitoring.journal.alerts import Alerts
from monitoring.journal.files import AGENT_LOG, ALERTS
from monitoring.journal.run_json import read_run_json
from monitoring.saved_environment import save_environment


def sample_host(directory: Path, first: FirstRank) -> None:
    """Sample until the rank has recorded its end or its process is gone, and once more.

    Waits for another agent of the host to end first; one that saw the end has left nothing to do.
    """
    stop, ending = threading.Event(), threading.Event()
    set_signals(stop, ending)
    own, about = first.files, asdict(first)
    with only_agent(directory, wait=float("inf"), stop=stop, own=own) as died:
        if has_ended(directory / own.journal, about) and not is_running(about):
            return
        run = read_run_json(directory)
        run = {**run, "attempts": [about]}
        with contextlib.closing(
            Alerts(
                directory,
                shared={"correlation_id": run["run_id"], "host": first.host},
                name=own.name(ALERTS),
            )
        ) as alerts:
            if died:
                alerts.add("agent", "warning", death(log=own.name(AGENT_LOG)))
            sampling = samplings(directory, run, alerts, own)
            sampling.start()
            with contextlib.suppress(OSError):  # a full disk: the next agent writes it
                save_environment(directory, {"attempt": first.attempt}, own)
            while not sampling.done.wait(LOOK_EVERY):
                if ending.is_set() or not is_running(about) or has_ended(directory / own.journal, about):
                    sampling.end()
                sampling.watch()
