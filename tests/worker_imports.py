"""Import once, for all workers, the test modules, and before them the foreign packages that they need.

With warnings as errors, as pytest imports them. Those whose modules pytest rewrites, such as Hypothesis, come
with the test modules.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


class Imports:
    """Imports the test modules while pytest rewrites what they assert, and leaves it at that.

    What fails here fails again in the workers, which report it.
    """

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> bool:
        modules = [*ROOT.glob("tests/**/conftest.py"), *ROOT.glob("tests/**/test_*.py")]
        for path in sorted(modules):
            with contextlib.suppress(Exception, pytest.skip.Exception), warnings.catch_warnings():
                warnings.simplefilter("error")
                importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
        return True


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

pytest.main(["-c", os.fspath(ROOT / "pyproject.toml"), "-p", "no:cacheprovider", "-s"], plugins=[Imports()])
