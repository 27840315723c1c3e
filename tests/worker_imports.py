"""Import once, for all workers, what test modules need: packages of others, and ours.

With warnings as errors, as pytest imports them. Not those whose modules pytest rewrites, such as Hypothesis.
"""

from __future__ import annotations

import importlib
import pkgutil
import warnings

FOREIGN = (
    *("jinja2", "junitparser", "kconfiglib", "markdown_it", "matplotlib.backends.backend_agg"),
    *("matplotlib.figure", "optuna", "orjson", "pandas", "pexpect", "PIL.Image", "prometheus_client.parser"),
    *("psutil", "pyarrow.parquet", "pydoc_data.topics", "pyte", "rich.console", "scipy.optimize"),
    *("scipy.stats", "tensorboard.backend.event_processing.event_file_loader", "yaml"),
    *("torch", "torch._dynamo", "torch.distributed.checkpoint", "torch.nn.utils.prune", "torch.utils.data"),
    "torch.utils.flop_counter",
)
OURS = (
    *("kharness.config", "kharness.matrix", "kharness.pages", "kharness.report", "kharness.runs"),
    *("kharness.training", "monitoring.agent", "monitoring.exporters", "monitoring.rules"),
    *("monitoring.sampler_process", "monitoring.samplers", "monitoring.telemetry", "monitoring.terminal"),
    *("monitoring.verbose_logging", "monitoring.web"),
)

with warnings.catch_warnings():
    warnings.simplefilter("error")
    for name in FOREIGN:
        importlib.import_module(name)
    for name in OURS:
        for module in pkgutil.walk_packages(importlib.import_module(name).__path__, f"{name}."):
            importlib.import_module(module.name)
