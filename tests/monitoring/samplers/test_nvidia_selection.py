"""Which NVIDIA GPUs are sampled, under which numbers, on a simulated NVML: CUDA's variables, and MIG."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ...simulated_nvml.simulated_nvml import SimulatedNvml
from ...waiting import wait_until
from .conftest import UUIDS, Sampling


@pytest.mark.parametrize(
    ("text", "indices"),
    [
        ("0,2", [0, 2]),
        ("2,0", [0, 2]),
        (UUIDS[1], [1]),
        (f"{UUIDS[2]}, {UUIDS[0]}", [0, 2]),
        ("GPU-51a10001", [1]),  # the beginning of a UUID
        ("GPU-51a1", []),  # of more than one
        ("1,-1,2", [1]),  # CUDA reads up to the first that is none
        ("1,9,2", [1]),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("1gpu2,2ampere", [1, 2]),  # what strtoul() reads
        ("0-2", [0]),
        ("1,2,1", []),  # a repetition selects nothing
        (f"{UUIDS[0]},GPU-51a10000", []),
        (f"0,{UUIDS[1]}", [0]),  # what the list does not begin with ends it
        (f"{UUIDS[1]},0", [1]),
        (" 2 , 0", [0, 2]),
    ],
)
def test_cuda_visible_devices_selects_the_gpus(
    sampling: Callable[..., Sampling], text: str, indices: list[int]
) -> None:
    process = sampling("gpus 3", CUDA_VISIBLE_DEVICES=text)
    if indices:
        assert process.indices == indices
        assert [(sample["index"], sample["uuid"]) for sample in process.sample()] == [
            (index, UUIDS[index]) for index in indices
        ]
    else:
        assert (process.devices, process.problems) == (None, ["none of 3 nvidia GPUs is selected"])


@pytest.mark.parametrize(
    ("environment", "numbers"),
    [
        ({}, [(0, 0), (1, 1), (2, 2)]),
        ({"CUDA_VISIBLE_DEVICES": "2,0"}, [(0, 1), (2, 0)]),
        ({"CUDA_VISIBLE_DEVICES": f"{UUIDS[2]},{UUIDS[1]}"}, [(1, 1), (2, 0)]),
    ],
)
def test_gpus_have_the_numbers_of_the_training(
    sampling: Callable[..., Sampling], environment: dict[str, str], numbers: list[tuple[int, int]]
) -> None:
    devices = sampling("gpus 3", **environment).devices or []
    assert [(device["index"], device["visible_index"]) for device in devices] == numbers


@pytest.mark.parametrize(
    ("environment", "numbers"),
    [
        ({}, [None, None]),  # the fastest first, whichever that is
        ({"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, [0, 1]),
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, [None, None]),
        ({"CUDA_VISIBLE_DEVICES": f"{UUIDS[1]},{UUIDS[0]}"}, [1, 0]),
    ],
)
def test_unlike_gpus_are_numbered_where_the_order_is_known(
    sampling: Callable[..., Sampling], environment: dict[str, str], numbers: list[int | None]
) -> None:
    devices = sampling("gpus 2", "gpu 1 name Simulated T4", **environment).devices or []
    assert [device["visible_index"] for device in devices] == numbers


def test_whole_uuid_means_its_gpu_though_another_begins_so(sampling: Callable[..., Sampling]) -> None:
    process = sampling(
        "gpus 2", "gpu 0 uuid GPU-51a1", "gpu 1 uuid GPU-51a10", CUDA_VISIBLE_DEVICES="GPU-51a1"
    )
    assert process.indices == [0]


def test_mig_instances_stand_with_their_gpu(sampling: Callable[..., Sampling]) -> None:
    script = ["gpus 2", "gpu 1 mig MIG-aaa 9856 1000", "gpu 1 mig MIG-bbb 19968 2000"]
    instances = [
        {
            "uuid": uuid,
            "name": "Simulated H100 80GB MIG",
            "gpu_instance": instance,
            "compute_instance": 0,
            "memory_used_mb": used,
            "memory_total_mb": total,
        }
        for uuid, instance, used, total in [("MIG-aaa", 7, 1000, 9856), ("MIG-bbb", 8, 2000, 19968)]
    ]
    whole, parted = sampling(*script).sample()
    assert (whole["mig"], parted["mig"]) == (None, instances)
    [only] = sampling(*script, CUDA_VISIBLE_DEVICES="MIG-bbb").sample()
    assert (only["index"], only["mig"]) == (1, instances[1:])
    # of several instances CUDA uses the first
    [first] = sampling(*script, CUDA_VISIBLE_DEVICES="MIG-bbb,MIG-aaa").sample()
    assert first["mig"] == instances[1:]


def test_mig_instance_that_is_taken_down_is_left_out(
    sampling: Callable[..., Sampling], simulated_nvml: SimulatedNvml
) -> None:
    process = sampling("gpus 1", "gpu 0 mig MIG-aaa 9856 1000", "gpu 0 utilization 50")
    assert len(process.sample()[0]["mig"]) == 1
    simulated_nvml.add("gpu 0 mig_instances unknown")
    wait_until(lambda: process.sample()[0]["mig"] == [], "the end of MIG")
    assert (process.sample()[0]["state"], process.sample()[0]["utilization_percent"]) == ("ok", 50)
