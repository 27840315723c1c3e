"""Requirements of a training, checked without torch before a run or a matrix has a directory.

A model's `needs.py` calls `answer` with its checks. It gets the values that all cells have, and those of
each cell by its name, as one JSON object on standard input, and prints one that names the cells that could
not begin, each with its `error` and `hint`.
"""

from __future__ import annotations

import importlib.util
import json
import os
import runpy
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kharness.config.errors import is_launched
from kharness.training.errors import DatasetError, DeviceError, TrainingError

Check = Callable[[Mapping[str, Any]], None]
"""TrainingError for values that cannot be trained with here."""

# Without any of these no GPU has its driver: NVIDIA's, also of its small boards and under Windows, AMD's.
_DRIVER_FILES = ("nvidia*", "nvhost*", "dxg", "kfd")


def answer(checks: Sequence[Check]) -> None:
    """Ask every check about every cell, and print the first refusal of each; with `elsewhere` in the request
    none about this machine.
    """
    asked = json.load(sys.stdin)
    cells = {name: {**asked["common"], **values} for name, values in asked["cells"].items()}
    if asked.get("elsewhere"):
        checks = [check for check in checks if check not in OF_THE_MACHINE]
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


def check_processes(values: Mapping[str, Any], *, devices: Path = Path("/dev")) -> None:
    """DeviceError for NUM_GPUS processes where no GPU can be, unless DEVICE=cpu asks for them on the CPU."""
    several = values.get("NUM_GPUS", 1) > 1 and not is_launched(os.environ)
    if several and values["DEVICE"] == "auto" and not may_have_gpu("auto", devices=devices):
        raise too_few_gpus(values["NUM_GPUS"], 0)


def too_few_gpus(processes: int, found: int) -> DeviceError:
    """The error for more processes than GPUs."""
    seen = {0: "no GPU is", 1: "1 GPU is"}.get(found, f"{found} GPUs are")
    return DeviceError(
        f"NUM_GPUS={processes}: {seen} visible",
        hint=f"train with NUM_GPUS={max(1, found)}, or in {processes} processes on the CPU with DEVICE=cpu",
    )


def check_compiler(values: Mapping[str, Any]) -> None:
    """TrainingError for COMPILE=y without the compiler that inductor calls in the first step."""
    if not values.get("COMPILE") or values.get("COMPILE_BACKEND") != "inductor":
        return
    on_gpu = may_have_gpu(values["DEVICE"])  # Triton builds its launcher in C, inductor its CPU code in C++
    named = os.environ.get("CC" if on_gpu else "CXX", "")
    known = [named] if named else ["gcc", "clang", "cc"] if on_gpu else ["g++"]
    if not any(map(shutil.which, known)):
        raise TrainingError(
            f"COMPILE=y: there is no compiler {' or '.join(known)}",
            hint="install it, or train with COMPILE=n; COMPILE_BACKEND=aot_eager needs none",
        )


def check_numbers(values: Mapping[str, Any]) -> None:
    """TrainingError for numbers that contradict each other, which Kconfig cannot compare."""
    check_length(values)
    check_warmup(values.get("WARMUP_STEPS", 0), values.get("MAX_STEPS", 0))
    momentum = values.get("OPTIMIZER_SGD_MOMENTUM")
    if momentum == 0:
        check_nesterov(nesterov=bool(values.get("OPTIMIZER_SGD_NESTEROV")))
        if values.get("PRUNING") == "taylor":
            raise no_mean_gradient()
    check_fractions(values.get("PRUNING_START_FRACTION", 0.0), values.get("PRUNING_END_FRACTION", 1.0))


def check_length(values: Mapping[str, Any]) -> None:
    """TrainingError where nothing says how long to train."""
    if "NUM_EPOCHS" in values and not any(map(values.get, ("NUM_EPOCHS", "MAX_STEPS", "MAX_TOKENS"))):
        raise TrainingError(
            "NUM_EPOCHS=0: nothing says how long to train", hint="give MAX_STEPS, MAX_TOKENS or NUM_EPOCHS"
        )


def check_warmup(steps: int, num_steps: int) -> None:
    """TrainingError for a warm-up as long as a training of `num_steps`; 0 where that is not known."""
    if steps and num_steps and steps >= num_steps:
        raise TrainingError(
            f"WARMUP_STEPS={steps} is not below the {num_steps} steps of the training",
            hint="warm up for fewer steps, or train for more",
        )


def check_batch(batch_size: int, samples: int) -> None:
    """DatasetError for a batch of more samples than there are."""
    if batch_size > samples:
        raise DatasetError(
            f"BATCH_SIZE={batch_size} is larger than the training set of {samples} samples",
            hint=f"choose BATCH_SIZE of at most {samples}",
        )


def steps_per_epoch(samples: int, batch_size: int) -> int:
    """Every sample is seen: the last batch may be smaller."""
    return -(-samples // batch_size)


def held_out(samples: int, fraction: float) -> int:
    """How many of the samples are kept for validation: at least one."""
    return max(1, round(samples * fraction))


def check_nesterov(*, nesterov: bool) -> None:
    """TrainingError for Nesterov's step without momentum."""
    if nesterov:
        raise TrainingError(
            "OPTIMIZER_SGD_NESTEROV=y needs OPTIMIZER_SGD_MOMENTUM above 0",
            hint="set OPTIMIZER_SGD_NESTEROV=n for plain SGD",
        )


def no_mean_gradient() -> TrainingError:
    """The error for Taylor pruning with SGD that keeps no mean gradient."""
    return TrainingError(
        "PRUNING=taylor needs OPTIMIZER_SGD_MOMENTUM above 0",
        hint="without momentum SGD keeps no mean gradient; PRUNING=magnitude needs none",
    )


def check_fractions(start: float, end: float) -> None:
    """TrainingError for pruning that ends before it starts."""
    if start > end:
        raise TrainingError(
            f"PRUNING_START_FRACTION={start:g} comes after PRUNING_END_FRACTION={end:g}",
            hint="pruning begins before it ends; equal values prune everything at once",
        )


OF_THE_MACHINE: Sequence[Check] = (check_device, check_processes, check_compiler)
"""Checks of the machine that a training runs on."""
COMMON: Sequence[Check] = (*OF_THE_MACHINE, check_numbers)
"""Checks of every model."""


def check_common(values: Mapping[str, Any]) -> None:
    """Raise TrainingError for the first check of COMMON that fails."""
    for check in COMMON:
        check(values)


def may_have_gpu(name: str, *, devices: Path = Path("/dev")) -> bool:
    """Whether choose_device may return a GPU. No driver is called, so a fork can still use CUDA."""
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
