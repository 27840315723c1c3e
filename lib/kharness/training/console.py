"""What a training prints: of use to whoever looks, and never a reason to stop."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout

from kharness.config.output import lasting_text

# Packages that do not follow the root logger but a variable that they read when they are imported.
HAVE_VERBOSITY = ("TRANSFORMERS", "DATASETS", "HF_HUB")


@contextmanager
def lasting_output() -> Iterator[None]:
    """Within it, printing never fails: what cannot be written is dropped.

    The terminal may be closed, the reader of a pipe be gone (`… | head`), the disk below output.log be full:
    the journal has all that counts, and the training continues and ends as it would have.
    """
    before = sys.stdout
    sys.stdout = lasting_text(before, drop_all=True)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stdout = before


@contextmanager
def printing(values: Mapping[str, object]) -> Iterator[None]:
    """Within it, LOG_LEVEL says whether there is standard output, and from here on DEP_LOG_LEVEL what else.

    DRY_RUN and INSPECT_STEP print what they are for, at any level.
    """
    set_dependencies_level(str(values.get("DEP_LOG_LEVEL", "warning")))
    if values.get("LOG_LEVEL", "info") == "info" or values.get("DRY_RUN") or values.get("INSPECT_STEP"):
        yield
        return
    with nothing_printed():
        yield


@contextmanager
def nothing_printed() -> Iterator[None]:
    """Within it, standard output goes nowhere."""
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        yield


def set_dependencies_level(level: str) -> None:
    """What packages log from here on: `debug`, `info`, `warning` or `error`, with all above it."""
    if level == "warning":  # theirs, by default: what somebody has set by TORCH_LOGS stays
        return
    number = logging.getLevelNamesMapping()[level.upper()]
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=number)
    for name, logger in logging.root.manager.loggerDict.items():
        if isinstance(logger, logging.Logger) and "." not in name and logger.level:
            logger.setLevel(number)
    logging.captureWarnings(True)
    for package in HAVE_VERBOSITY:
        os.environ.setdefault(f"{package}_VERBOSITY", level)
