"""Where programs report their metrics: one kind of store per module.

Each has `VARIABLES(watched)`, environment variables that the program gets unless it has them, and
`find(watched)`, which yields its sources as far as they exist.
"""

from __future__ import annotations

# By richness: of two sources that report one metric the first counts.
KINDS = ("spool", "wandb", "trackio", "tensorboard", "mlflow", "jsonl", "csv", "output")
