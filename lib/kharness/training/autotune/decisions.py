"""Choose the values that options leave to trials or to the machine."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from kharness.config.options import Options, chosen_in
from kharness.training.autotune.search import Choice, Search, largest_micro_batch, quicker
from kharness.training.autotune.trial import TrialFailedError, samples_of_rank
from kharness.training.distributed.model import FSDP
from kharness.training.distributed.world import World
from kharness.training.errors import TrainingError
from kharness.training.needs import may_have_gpu

# Instructions for products in bfloat16 -> whether this processor has them. Without any, torch multiplies such
# matrices element by element.
BF16_UNITS: dict[str, Callable[[], bool]] = {
    "AMX": torch.cpu._is_amx_tile_supported,
    "AVX512_BF16": torch.cpu._is_avx512_bf16_supported,
}

# Where BATCH_SIZE_AUTO has still to choose, steps are timed with micro-batches of at most so many samples.
TIMED_SAMPLES = 8


def decided(options: Options, world: World, *, run_directory: Path | None) -> Search[Options, Options]:
    """The options with what trials have chosen; of a run that is resumed, with what it has chosen before.

    TrainingError for a batch that does not divide, and for what no trial can begin with.
    """
    if not options.undecided():
        return options
    for name, (value, reason) in (chosen_in(run_directory) if run_directory else {}).items():
        if name in options.undecided():
            options = options.with_chosen(name, value, reason)
    if "OPTIMIZER_MUON_BF16" in options.undecided():
        options = _noted(options, "OPTIMIZER_MUON_BF16", _bf16_choice(options.DEVICE))
    try:
        is_shared = options.PARALLEL == FSDP  # a trial has no other process to share with
        if "AMP" in options.undecided() and may_have_gpu(options.DEVICE) and not is_shared:
            options = yield from _precision(options, world)
        if "COMPILE" in options.undecided():
            options = yield from _compilation(options, world)
        if "MICRO_BATCH_SIZE" in options.undecided():
            options = yield from _micro_batch(options, world)
    except TrialFailedError as error:
        raise error.fixable or error from None
    return options


def agreed(options: Options, world: World) -> Options:
    """The same on all ranks: what rank 0 has chosen, and the smallest of their micro-batches."""
    if world.size == 1 or not options.automatic():
        return options
    for name, (value, reason) in world.of_main(options.automatic()).items():
        if name == "MICRO_BATCH_SIZE":
            [least] = world.highest(-options.MICRO_BATCH_SIZE)
            reason = reason if -least == int(value) else f"the least of {world.size} processes"
            value = str(-least)
        options = options.with_chosen(name, value, reason)
    return options


def _precision(options: Options, world: World) -> Search[Options, Options]:
    others = _timed_values(options, world, compile="n")
    found = yield from quicker(
        options.with_values({"AMP": "bf16", **others}),
        options.with_values({"AMP": "none", **others}),
        samples=samples_of_rank(options.BATCH_SIZE, world.size),
        most_seconds=_most_seconds(options),
        names=("bf16", "none"),
    )
    return _noted(options, "AMP", found) if found else options


def _bf16_choice(device: str) -> Choice:
    """Whether bfloat16 pays off for products of matrices, by the instructions of the processor."""
    if may_have_gpu(device):
        return Choice("y", "a GPU orthogonalizes in bfloat16 in any case")
    found = [name for name, has in BF16_UNITS.items() if has()]
    if found:
        return Choice("y", f"this CPU has {found[0]}")
    return Choice("n", f"this CPU has neither {' nor '.join(BF16_UNITS)}")


def _compilation(options: Options, world: World) -> Search[Options, Options]:
    found = yield from quicker(
        options.with_values(_timed_values(options, world, compile="n")),
        options.with_values(_timed_values(options, world, compile="y")),
        samples=samples_of_rank(options.BATCH_SIZE, world.size),
        most_seconds=_most_seconds(options),
        names=("n", "y"),
    )
    return _noted(options, "COMPILE", found or Choice("n", "no step of a trial was possible"))


def _micro_batch(options: Options, world: World) -> Search[Options, Options]:
    batch = options.BATCH_SIZE
    if batch % world.size:
        raise TrainingError(
            f"BATCH_SIZE_AUTO: BATCH_SIZE={batch} is not {world.size} equal parts, one for each process",
            hint=f"choose BATCH_SIZE={max(1, batch // world.size) * world.size}, or set MICRO_BATCH_SIZE",
        )

    def tried(size: int) -> Options:
        return options.with_values({"BATCH_SIZE_AUTO": "n", "MICRO_BATCH_SIZE": str(size)})

    found = yield from largest_micro_batch(samples_of_rank(batch, world.size), tried)
    return _noted(options, "MICRO_BATCH_SIZE", found)


def _timed_values(options: Options, world: World, *, compile: str) -> Mapping[str, str]:
    """Return the other values of a timed trial, so that nothing is left to trials."""
    values = {"COMPILE_AUTO": "n", "COMPILE": compile} if "COMPILE" in options.undecided() else {}
    if "MICRO_BATCH_SIZE" in options.undecided():
        batch = samples_of_rank(options.BATCH_SIZE, world.size)
        size = max(size for size in range(1, min(batch, TIMED_SAMPLES) + 1) if batch % size == 0)
        values |= {"BATCH_SIZE_AUTO": "n", "MICRO_BATCH_SIZE": str(size)}
    return values


def _most_seconds(options: Options) -> float:
    return 60 * options.MAX_TIME or math.inf


def _noted(options: Options, name: str, choice: Choice) -> Options:
    print(f"auto: {name}={choice.value}: {choice.reason}", flush=True)
    return options.with_chosen(name, choice.value, choice.reason)
