"""Import once, for all workers, what test modules need: other packages, ours, and pytest with its plugins.

With warnings as errors, as pytest imports them. It rewrites its plugins, such as Hypothesis: they come last.
"""

from __future__ import annotations

import importlib
import pkgutil
import warnings

from _pytest.config import _prepareconfig

FOREIGN = (
    *("jinja2", "kconfiglib", "markdown_it", "matplotlib.backends.backend_agg", "matplotlib.figure"),
    *("junitparser", "optuna", "orjson", "pandas", "pexpect", "PIL.Image", "prometheus_client.parser"),
    *("psutil", "pyarrow.parquet", "pydoc_data.topics", "pyte", "rich.console", "scipy.optimize"),
    *("scipy.stats", "torch.nn.utils.prune", "torch.utils.flop_counter", "yaml"),
    "tensorboard.backend.event_processing.event_file_loader",
    *("torch", "torch._dynamo", "torch.distributed.checkpoint", "torch.utils.data"),
)
OURS = (
    *("kharness.config", "kharness.matrix", "kharness.pages", "kharness.report", "kharness.runs"),
    *("kharness.training", "monitoring.agent", "monitoring.exporters", "monitoring.rules"),
    *("monitoring.sampler_process", "monitoring.samplers", "monitoring.telemetry", "monitoring.terminal"),
    *("monitoring.verbose_logging", "monitoring.web"),
)


def import_all() -> None:
    for name in FOREIGN:
        importlib.import_module(name)
    for name in OURS:
        for module in pkgutil.walk_packages(importlib.import_module(name).__path__, f"{name}."):
            importlib.import_module(module.name)
    config = _prepareconfig(["--noconftest", "--capture=no"])
    try:
        importlib.import_module("xdist.remote")
        import _hypothesis_globals  # type: ignore[import-untyped]
        from hypothesis.internal.conjecture.providers import _get_local_constants

        # The constants of our modules, which Hypothesis tries. Not before a session starts, it says: here one
        # does.
        _hypothesis_globals.in_initialization -= 1
        _get_local_constants()
        _hypothesis_globals.in_initialization += 1
    finally:
        config._ensure_unconfigure()


with warnings.catch_warnings():
    warnings.simplefilter("error")
    import_all()
