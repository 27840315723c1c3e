"""The names of monitoring's files in a run directory."""

from __future__ import annotations

JOURNAL = "metrics.jsonl"
GPU_STATS = "gpu_stats.jsonl"
