"""The names of monitoring's files in a run directory; nobody else spells one.

A tracker that keeps its own data with the run (`wandb/`, `tensorboard/`) names it in its one module.
"""

from __future__ import annotations

JOURNAL = "metrics.jsonl"
GPU_STATS = "gpu_stats.jsonl"
SYSTEM_STATS = "system_stats.jsonl"
SAMPLES = {"gpu": GPU_STATS, "system": SYSTEM_STATS}
"""Event of an agent's sample -> the journal of such; those of a training's own records are in JOURNAL."""

ALERTS = "alerts.jsonl"
OF_AGENT = {**SAMPLES, "alert": ALERTS}
"""Event of a record that the agent writes -> the journal of such."""

RUN_JSON = "run.json"
FOLLOWERS_JSON = "followers.json"
METRICS_CSV = "metrics.csv"
PROMETHEUS_JSON = "prometheus.json"
CONTROL_JSON = "control.json"
PROFILER = "profiler"
"""Folder of traces and tables (monitoring.telemetry.profiler)."""
AGENT_LOG = "agent.log"
AGENT_LOCK = ".agent.lock"

TELEMETRY = "telemetry"
"""The folder of what TelemetryCallback writes."""
TELEMETRY_ALL_RANKS = "telemetry_callback_all_ranks.json"
TELEMETRY_TEMPERATURES = "telemetry_callback_gpu_temperature_summary.json"
TELEMETRY_SUMMARIES = "telemetry_callback_rank*.json"
"""Of all ranks, as a glob."""

RANK_JOURNALS = "metrics.rank*.jsonl"
"""Of all ranks but 0, as a glob."""


def journal_name(rank: int) -> str:
    """metrics.jsonl of rank 0, metrics.rank0001.jsonl and so on of the others."""
    return JOURNAL if rank == 0 else RANK_JOURNALS.replace("*", f"{rank:04}")


def rank_of(name: str) -> int | None:
    """The rank whose journal has this name; None if it is no rank's but 0's."""
    before, after = RANK_JOURNALS.split("*")
    digits = name.removeprefix(before).removesuffix(after)
    return int(digits) if digits.isdecimal() and name == f"{before}{digits}{after}" else None


def telemetry_name(kind: str, rank: int) -> str:
    """telemetry_callback_rank0000.json; of the kind `metrics` telemetry_callback_metrics_rank0000.json."""
    return f"telemetry_callback_{f'{kind}_' if kind else ''}rank{rank:04}.json"
