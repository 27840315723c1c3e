"""The variables by which a process sees only some of a machine's GPUs, of several processes together.

A launcher may give each rank a mask of its own, and one agent samples for all on its machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import orjson

# The masks of CUDA, HIP, ROCm and oneAPI.
VARIABLES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")

# Where a process that samples gets the masks of others, as JSON.
OTHERS = "MONITORING_OTHER_MASKS"

Mask = Mapping[str, str]


def mask_of(environment: Mapping[str, str]) -> Mask:
    """Return those of the variables that are set."""
    return {name: environment[name] for name in VARIABLES if name in environment}


def with_others(masks: Sequence[Mask]) -> Mapping[str, str]:
    """Return the variable by which a process also samples the GPUs of these masks."""
    return {OTHERS: orjson.dumps(masks).decode()} if masks else {}


def environments(environment: Mapping[str, str]) -> list[Mapping[str, str]]:
    """Return a process's own environment, and one for each further mask."""
    rest = {name: value for name, value in environment.items() if name not in VARIABLES}
    return [environment, *({**rest, **mask} for mask in orjson.loads(environment.get(OTHERS, "[]")))]
