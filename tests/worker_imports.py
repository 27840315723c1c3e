"""Import once, for all workers, the foreign packages that test modules will need.

With warnings as errors, as pytest imports them. Not those whose modules pytest rewrites, such as Hypothesis.
"""

from __future__ import annotations

import importlib
import warnings

with warnings.catch_warnings():
    warnings.simplefilter("error")
    for name in (
        *("jinja2", "kconfiglib", "markdown_it", "matplotlib.backends.backend_agg", "matplotlib.figure"),
        *(
            "optuna",
            "orjson",
            "pandas",
            "PIL.Image",
            "prometheus_client",
            "psutil",
            "pyarrow.parquet",
            "pyte",
        ),
        *("rich.console", "scipy.optimize", "scipy.stats", "yaml"),
        *("tensorboard.backend.event_processing.event_file_loader",),
        *("torch", "torch._dynamo", "torch.distributed.checkpoint", "torch.utils.data"),
    ):
        importlib.import_module(name)
