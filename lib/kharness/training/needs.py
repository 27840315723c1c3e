"""What a training needs of its machine, checked before a matrix begins; without torch, so in no time.

A model's `needs.py` calls `answer` with its checks. It gets the values of cells by name as one JSON object on
standard input, and prints one that names the cells that could not begin, each with its `error` and `hint`.
"""

from __future__ import annotations

import importlib.util
import json
import runpy
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kharness.training.errors import DeviceError, TrainingError

Check = Callable[[Mapping[str, Any]], None]
"""TrainingError for values that cannot be trained with here."""

# Without any of these no GPU has its driver: NVIDIA's, also of its small boards and under Windows, AMD's.
_DRIVER_FILES = ("nvidia*", "nvhost*", "dxg", "kfd")


def answer(checks: Sequence[Check]) -> None:
    """Ask every check about every cell, and print the first refusal of each."""
    cells: Mapping[str, Mapping[str, Any]] = json.load(sys.stdin)
    refused = {name: error for name, values in cells.items() if (error := _refusal(values, checks))}
    answered = {name: {"error": str(error), "hint": error.hint} for name, error in refused.items()}
    json.dump(answered, sys.stdout)


def check_device(values: Mapping[str, Any], *, devices: Path = Path("/dev")) -> None:
    """DeviceError for DEVICE=cuda where torch or this machine has none."""
    if values["DEVICE"] != "cuda":
        return
    build = torch_build()
    if not (build.get("cuda") or build.get("hip")):
        raise no_gpu(f"torch {build['__version__']} is a build without GPU support")
    if not _has_driver(devices):
        raise no_gpu("no GPU is visible")


def may_have_gpu(name: str, *, devices: Path = Path("/dev")) -> bool:
    """Whether choose_device may give a GPU. No driver is asked: a process forked afterwards can use CUDA."""
    build = torch_build() if name != "cpu" else {}
    return bool(build.get("cuda") or build.get("hip")) and _has_driver(devices)


def no_gpu(reason: str) -> DeviceError:
    """The error for DEVICE=cuda without a GPU."""
    return DeviceError(
        f"DEVICE=cuda: {reason}",
        hint="train with DEVICE=auto or DEVICE=cpu, or use an environment with a GPU build of torch: "
        "make PYTHON=/path/to/python VENV=",
    )


def torch_build() -> Mapping[str, Any]:
    """`__version__`, `cuda` and `hip` of the installed torch, from a file of it that imports nothing."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise DeviceError("torch is not installed", hint="run it through make, which installs it")
    return runpy.run_path(str(Path(spec.origin).with_name("version.py")))


def _has_driver(devices: Path) -> bool:
    return sys.platform != "linux" or any(any(devices.glob(pattern)) for pattern in _DRIVER_FILES)


def _refusal(values: Mapping[str, Any], checks: Sequence[Check]) -> TrainingError | None:
    try:
        for check in checks:
            check(values)
    except TrainingError as error:
        return error
    return None
