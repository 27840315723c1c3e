"""The names of monitoring's files in a run directory, each spelled only here.

A tracker that keeps its own data with the run (`wandb/`, `tensorboard/`) names it in its one module.
"""

from __future__ import annotations

import os
from pathlib import Path

JOURNAL = "metrics.jsonl"
GPU_STATS = "gpu_stats.jsonl"
SYSTEM_STATS = "system_stats.jsonl"
SAMPLES = {"gpu": GPU_STATS, "system": SYSTEM_STATS}
"""Event of an agent's sample -> its journal; the training's own records are in JOURNAL."""

ALERTS = "alerts.jsonl"
OF_AGENT = {**SAMPLES, "alert": ALERTS}
"""Event of a record that the agent writes -> its journal."""

RUN_JSON = "run.json"
NOTES_JSON = "notes.json"
"""Tags and a note that a person has given the run (monitoring.notes)."""
ENVIRONMENT_JSON = "environment.json"
FOLLOWERS_JSON = "followers.json"
METRICS_CSV = "metrics.csv"
PROMETHEUS_JSON = "prometheus.json"
CONTROL_JSON = "control.json"
REQUESTS = "requests"
"""Folder of requests to the training, each a file of its own (monitoring.control)."""
PROFILER = "profiler"
"""Folder of traces and tables (monitoring.telemetry.profiler)."""
ARTIFACTS = "artifacts"
"""Folder of texts, pictures, tables and files by their content, and the field that names them."""
AGENT_LOG = "agent.log"
OUTPUT_LOG = "output.log"
"""Output of the process, written by who started it."""
BRIDGE_JSON = "bridge.json"
STORES = "stores"
"""Folder of the local stores of a program's own trackers (monitoring.bridge)."""
AGENT_LOCK = ".agent.lock"
FIRST_RANK_LOCK = ".first_rank.lock"

TELEMETRY = "telemetry"
"""The folder of what TelemetryCallback writes."""
TELEMETRY_ALL_RANKS = "telemetry_callback_all_ranks.json"
TELEMETRY_TEMPERATURES = "telemetry_callback_gpu_temperature_summary.json"
TELEMETRY_SUMMARIES = "telemetry_callback_rank*.json"
"""Glob of the summaries of all ranks."""

RANK_JOURNALS = "metrics.rank*.jsonl"
"""Glob of the journals of all ranks but 0."""


CODE_DIFFS = "code.*.diff"
"""Glob of what `git diff` said of each code that differed from its revision."""


def code_diff_name(sha256: str) -> str:
    """Return the file of a difference, by the hash that the git state of a start record has."""
    return CODE_DIFFS.replace("*", sha256[:16])


def journal_name(rank: int) -> str:
    """metrics.jsonl of rank 0, metrics.rank0001.jsonl and so on of the others."""
    return JOURNAL if rank == 0 else RANK_JOURNALS.replace("*", f"{rank:04}")


def rank_of(name: str) -> int | None:
    """Return the rank above 0 that writes this journal; None for any other file."""
    before, after = RANK_JOURNALS.split("*")
    digits = name.removeprefix(before).removesuffix(after)
    return int(digits) if digits.isdecimal() and name == f"{before}{digits}{after}" else None


def telemetry_name(kind: str, rank: int) -> str:
    """telemetry_callback_rank0000.json; of the kind `metrics` telemetry_callback_metrics_rank0000.json."""
    return f"telemetry_callback_{f'{kind}_' if kind else ''}rank{rank:04}.json"


def of_host(name: str, host: str) -> str:
    """Return another host's name for a file of rank 0's host: gpu_stats.HOST.jsonl; `*` makes it a glob.

    `host` is as monitoring.host.name.in_file_names has it.
    """
    stem, _, ending = name.rpartition(".")
    return f"{stem}.{host}.{ending}"


def host_of(name: str, kind: str) -> str | None:
    """Return the host in `of_host(kind, HOST)`, empty in `kind` itself; None of another kind of file."""
    if name == kind:
        return ""
    before, after = of_host(kind, "*").split("*")
    host = name.removeprefix(before).removesuffix(after)
    return host if host and name == f"{before}{host}{after}" else None


def names_in(folder: Path) -> list[str]:
    """Return the names in a folder, none if it cannot be read; Path.glob compiles a pattern each time."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


class HostFiles:
    """The files that one host's agent writes, and whose steps it reads; by default rank 0's host."""

    def __init__(self, host: str = "", rank: int = 0) -> None:
        self.host = host
        """The host as monitoring.host.name.in_file_names writes it; empty for rank 0's."""
        self.rank = rank
        """The first rank of that host, which starts its agent."""

    def name(self, kind: str) -> str:
        """Return this host's name for a kind of file."""
        return of_host(kind, self.host) if self.host else kind

    @property
    def journal(self) -> str:
        return journal_name(self.rank)


OF_RANK_0 = HostFiles()


def sample_event(journal: str) -> str:
    """`gpu` of gpu_stats.jsonl, `gpu@HOST` of another host's; empty of a journal that has no samples.

    Followers get samples under these events: with the `seq` they name one record of a run.
    """
    for event, kind in SAMPLES.items():
        if (host := host_of(journal, kind)) is not None:
            return f"{event}@{host}" if host else event
    return ""


def kind_and_host(event: str) -> tuple[str, str]:
    """`gpu` and HOST of the event `gpu@HOST`; the event itself and an empty text of any other."""
    kind, _, host = event.partition("@")
    return kind, host


def journal_of_event(event: str) -> str:
    """Return the journal whose records a follower gets under this event."""
    kind, host = kind_and_host(event)
    name = OF_AGENT.get(kind, JOURNAL)
    return of_host(name, host) if host else name


ALL_SAMPLES = (*SAMPLES.values(), *(of_host(name, "*") for name in SAMPLES.values()))
"""The journals that a follower of all hosts' samples reads; a glob stands for the other hosts'."""
