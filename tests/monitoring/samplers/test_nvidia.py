"""The real pynvml on a simulated NVML: every value, and all that goes wrong with one GPU of several."""

from __future__ import annotations

import ctypes
import json
import os
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from monitoring.gpu.throttling import THROTTLE_REASONS
from monitoring.samplers import _nvml
from monitoring.samplers._nvml_gpm import METRIC
from monitoring.samplers._nvml_reading import layout_of

from ...simulated_nvml.simulated_nvml import SimulatedNvml
from ...waiting import wait_until
from ...warm_python import WarmPython
from .conftest import UUIDS, Sampling

# By its names in the simulation.
WHOLE_GPU = {
    "utilization": 87,
    "memory_utilization": 40,
    "memory_total": 81559,
    "memory_used": 40779.5,
    "memory_reserved": 500,
    "temperature": 66,
    "memory_temperature": 81,
    "margin": -2,
    "power": 612.345,
    "power_average": 600.5,
    "power_limit": 700,
    "energy": 123456.789,
    "fan": 30,
    "sm_clock": 1980,
    "memory_clock": 2619,
    "throttle": 0x4 + 0x40 + 0x100000,
    "pcie_tx": 5_000_000_000_000,
    "pcie_rx": 6_000_000_000_000,
    "pcie_replay": 3,
    "nvlink_tx": 7_000_000_000,
    "nvlink_rx": 8_000_000_000,
    "ecc_corrected": 9,
    "ecc_uncorrected": 1,
    "remapped_corrected": 2,
    "remapped_uncorrected": 4,
    "remap_failure": 1,
    "encoder": 5,
    "decoder": 6,
    "sm_activity": 71.5,
    "tensor_activity": 55.25,
    "dram_activity": 33.5,
}


def test_sample_has_every_value_of_a_gpu(sampling: Callable[..., Sampling]) -> None:
    script = [f"gpu 0 {key} {value}" for key, value in WHOLE_GPU.items()]
    process = sampling(*script, f"gpu 0 process {os.getpid()} 2048", "gpu 0 pci 00000000:3B:00.0")
    process.sample()
    [sample] = process.sample()

    name = os.path.realpath(sys.executable).rpartition("/")[2]
    assert sample == {
        "index": 0,
        "uuid": UUIDS[0],
        "name": "Simulated H100 80GB",
        "vendor": "nvidia",
        "state": "ok",
        "error": None,
        "utilization_percent": 87,
        "memory_utilization_percent": 40,
        "memory_used_mb": 40779.5,
        "memory_total_mb": 81559,
        "memory_free_mb": 81559 - 40779.5 - 500,
        "memory_percent": 50,
        "temperature_celsius": 66,
        "temperature_hotspot_celsius": None,
        "temperature_memory_celsius": 81,
        "temperature_margin_celsius": -2,
        "power_draw_watts": 612.345,
        "power_average_watts": 600.5,
        "power_limit_watts": 700,
        "energy_joules": None,
        "energy_source": None,
        "energy_counter_joules": 123456.789,
        "fan_speed_percent": 30,
        "clock_sm_mhz": 1980,
        "clock_memory_mhz": 2619,
        "throttle_reasons": ["sw_power_cap", "hw_thermal_slowdown", "0x100000"],
        "pcie_tx_bytes": 5_000_000_000_000,
        "pcie_rx_bytes": 6_000_000_000_000,
        "pcie_replay_count": 3,
        "nvlink_tx_bytes": 7_000_000_000 * 1024,
        "nvlink_rx_bytes": 8_000_000_000 * 1024,
        "ecc_corrected": 9,
        "ecc_uncorrected": 1,
        "remapped_rows": 6,
        "remapped_rows_correctable": 2,
        "remapped_rows_uncorrectable": 4,
        "row_remap_failure": 1,
        "xid_errors": 0,
        "xid_last_error": 0,
        "encoder_percent": 5,
        "decoder_percent": 6,
        "sm_activity_percent": 71.5,
        "tensor_activity_percent": 55.25,
        "dram_activity_percent": 33.5,
        "processes": [{"pid": os.getpid(), "name": name, "memory_mb": 2048, "sm_percent": 0}],
        "mig": None,
        "numa_node": None,
        "run_share": None,
    }
    assert process.end() == 0


def test_gpus_of_one_sample_have_what_each_has_alone(sampling: Callable[..., Sampling]) -> None:
    """Each value differs from GPU to GPU, and each lacks another one."""
    lacking = ["fan", "power", "memory_total", "remapped_corrected", "throttle", "nvlink_tx"]
    script = [f"gpus {len(lacking)}", "gpu 3 architecture 7"]
    for gpu, lacks in enumerate(lacking):
        script += [f"gpu {gpu} {key} {value + gpu}" for key, value in WHOLE_GPU.items()]
        script += [f"gpu {gpu} process {4242424 + gpu} {100 + gpu}", f"gpu {gpu} {lacks} unsupported"]
    script += ["gpu 4 power_average unsupported", "gpu 4 power unsupported", "gpu 4 power_usage 333.5"]
    found = []
    for shown in ("0,1,2,3,4,5", *map(str, range(len(lacking)))):
        process = sampling(*script, CUDA_VISIBLE_DEVICES=shown)
        process.sample()  # activity is that since the sample before
        found.append(process.sample())
    together, *alone = found
    assert together == [sample for [sample] in alone]


# All values that the simulation can refuse, by its names.
VALUES = (
    *("utilization", "memory_total", "temperature", "memory_temperature", "margin", "power", "power_average"),
    *(
        "power_usage",
        "power_limit",
        "energy",
        "fan",
        "sm_clock",
        "memory_clock",
        "throttle",
        "pcie_tx",
        "pcie_rx",
    ),
    *("pcie_replay", "nvlink_tx", "nvlink_rx", "ecc_corrected", "ecc_uncorrected", "remapped_corrected"),
    *("remapped_uncorrected", "remap_failure", "encoder", "decoder", "processes", "events"),
    *("sm_activity", "tensor_activity", "dram_activity"),
)

# nvmlValueType_t -> a value that a driver may give in it.
TYPES = {0: 612345.5, 1: 4_294_967_295, 2: 2**40, 3: 2**41, 4: -(2**42), 5: -44000, 6: 65_535}

# Asks for one field of each GPU with pynvml alone, and decodes the union by nvml.h's nvmlValueType_t.
DECODED = """
import pynvml
pynvml.nvmlInit()
members = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}
for index in range(pynvml.nvmlDeviceGetCount()):
    [field] = pynvml.nvmlDeviceGetFieldValues(pynvml.nvmlDeviceGetHandleByIndex(index), [197])
    print(field.valueType, getattr(field.value, members[field.valueType]))
"""


def test_value_of_every_type_is_decoded_as_pynvml_does(
    sampling: Callable[..., Sampling], simulated_nvml: SimulatedNvml, warm_nvml: WarmPython
) -> None:
    """One GPU a type; the bytes of the union that a type does not have are not 0."""
    script = [f"gpu {kind} type 197 {kind}" for kind in TYPES]
    script += [f"gpu {kind} pcie_tx {value}" for kind, value in TYPES.items()]
    found = [sample["pcie_tx_bytes"] for sample in sampling("gpus 7", *script).sample()]
    assert found == list(TYPES.values())
    decoded = warm_nvml.run(["-c", DECODED], env={**os.environ, **simulated_nvml.environment()})
    assert decoded.stdout.splitlines() == [f"{kind} {value}" for kind, value in TYPES.items()]


def test_value_whose_type_changes_is_decoded_anew(
    sampling: Callable[..., Sampling], simulated_nvml: SimulatedNvml
) -> None:
    process = sampling("gpus 1", "gpu 0 power 300")
    assert process.sample()[0]["power_draw_watts"] == 300
    simulated_nvml.add("gpu 0 type 186 0", "gpu 0 power 300.5")
    wait_until(lambda: process.sample()[0]["power_draw_watts"] == 300.5, "the power")
    simulated_nvml.add("gpu 0 type 186 7")  # none that nvml.h has
    wait_until(
        lambda: process.sample()[0]["power_draw_watts"] == 70, "less power"
    )  # the mean, which has its own field


def test_reasons_have_the_names_that_pynvml_gives_them() -> None:
    """Two of them do not stand in nvml.h."""
    import pynvml

    for bit, name in THROTTLE_REASONS.items():
        camel = "".join(word.capitalize() for word in name.split("_"))
        assert getattr(pynvml, f"nvmlClocksThrottleReason{camel}") == bit


def test_answers_are_unpacked_as_their_structures_have_them() -> None:
    class Mixed(ctypes.Structure):
        _fields_ = [
            ("a", ctypes.c_uint),
            ("b", ctypes.c_ulonglong),
            ("c", ctypes.c_int),
            ("d", ctypes.c_ushort),
        ]

    answer = Mixed(7, 2**63, -5, 65535)
    assert struct.unpack("<" + layout_of(Mixed), bytes(answer)) == (7, 2**63, -5, 65535)
    metric = _nvml.nvmlGpmMetric_t(metricId=2, nvmlReturn=3, value=71.5)
    assert struct.unpack("<" + METRIC, bytes(metric)) == (3, 71.5)


# Asks for what our sampler reads past pynvml with pynvml's own functions.
ANOTHER_CLIENT = """
import json, pynvml as nvml
nvml.nvmlInit()
gpu = nvml.nvmlDeviceGetHandleByIndex(0)
memory = nvml.nvmlDeviceGetMemoryInfo(gpu, version=nvml.nvmlMemory_v2)
rates = nvml.nvmlDeviceGetUtilizationRates(gpu)
print(json.dumps({
    "utilization_percent": rates.gpu,
    "memory_utilization_percent": rates.memory,
    "memory_used_mb": memory.used / 2**20,
    "memory_total_mb": memory.total / 2**20,
    "temperature_celsius": nvml.nvmlDeviceGetTemperatureV(gpu, nvml.NVML_TEMPERATURE_GPU),
    "temperature_margin_celsius": nvml.nvmlDeviceGetMarginTemperature(gpu),
    "power_average_watts": nvml.nvmlDeviceGetPowerUsage(gpu) / 1000,
    "fan_speed_percent": nvml.nvmlDeviceGetFanSpeed(gpu),
    "clock_sm_mhz": nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),
    "clock_memory_mhz": nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM),
    "encoder_percent": nvml.nvmlDeviceGetEncoderUtilization(gpu)[0],
    "decoder_percent": nvml.nvmlDeviceGetDecoderUtilization(gpu)[0],
}))
"""


def test_values_are_those_that_pynvml_reads(
    sampling: Callable[..., Sampling], simulated_nvml: SimulatedNvml
) -> None:
    [sample] = sampling(*(f"gpu 0 {key} {value}" for key, value in WHOLE_GPU.items())).sample()
    done = subprocess.run(
        [sys.executable, "-c", ANOTHER_CLIENT],
        env={**os.environ, **simulated_nvml.environment(), "SIMULATED_NVML_STRICT": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    read = json.loads(done.stdout)
    assert {name: sample[name] for name in read} == read
    assert (read["encoder_percent"], read["decoder_percent"]) == (5, 6)


def test_older_function_is_asked_where_the_newer_one_is_not_supported(
    sampling: Callable[..., Sampling],
) -> None:
    """The older one counts what the driver itself keeps as used."""
    script = ["gpus 2", "all memory_used 1000", "all memory_reserved 500", "all temperature 66"]
    older, newer = sampling(*script, "gpu 0 newer unsupported").sample()
    assert (older["memory_used_mb"], older["temperature_celsius"]) == (1500, 66)
    assert (newer["memory_used_mb"], newer["temperature_celsius"]) == (1000, 66)


def test_devices_tell_what_stays_the_same(
    sampling: Callable[..., Sampling], tmp_path: Path, simulated_nvml: SimulatedNvml
) -> None:
    """Another root stands in for the machine, its NVML included."""
    (tmp_path / "usr/lib").mkdir(parents=True)
    (tmp_path / "usr/lib/libnvidia-ml.so.1").symlink_to(simulated_nvml.library)
    (tmp_path / "sys/bus/pci/devices/0000:3b:00.0").mkdir(parents=True)
    (tmp_path / "sys/bus/pci/devices/0000:3b:00.0/numa_node").write_text("1\n")
    process = sampling("gpu 0 pci 00000000:3B:00.0", root=tmp_path, LD_LIBRARY_PATH="")
    assert process.devices == [
        {
            "index": 0,
            "uuid": UUIDS[0],
            "name": "Simulated H100 80GB",
            "vendor": "nvidia",
            "pci_bus_id": "0000:3b:00.0",
            "numa_node": 1,
            "integrated": False,
            "visible_index": 0,
        }
    ]
    assert [sample["numa_node"] for sample in process.sample()] == [1]


def test_value_that_is_not_supported_or_not_permitted_is_null(sampling: Callable[..., Sampling]) -> None:
    process = sampling(
        "gpus 2",
        "gpu 0 fan unsupported",
        "gpu 0 power unsupported",
        "gpu 0 power_usage 60",  # asked only where there is no mean either
        "gpu 0 energy unsupported",
        "gpu 0 memory_temperature unsupported",
        "gpu 0 nvlink_tx unsupported",
        "gpu 0 utilization denied",
        "gpu 0 processes denied",
        "gpu 0 architecture 7",
    )
    process.sample()
    cut, whole = process.sample()
    assert (cut["state"], whole["state"]) == ("ok", "ok")
    # its power is the mean where it tells no other
    assert (cut["power_draw_watts"], cut["power_average_watts"]) == (70, 70)
    assert {name for name in cut if cut[name] is None and whole[name] is not None} == {
        "fan_speed_percent",
        "energy_counter_joules",
        "temperature_memory_celsius",
        "nvlink_tx_bytes",
        "utilization_percent",
        "memory_utilization_percent",
        "processes",
        "sm_activity_percent",  # these three come with Hopper
        "tensor_activity_percent",
        "dram_activity_percent",
    }


def test_gpu_that_gives_no_value_is_well(sampling: Callable[..., Sampling]) -> None:
    """A device that supports none of the values has null in each, and no failure."""
    process = sampling("gpus 1", *(f"gpu 0 {name} unsupported" for name in VALUES))
    process.sample()
    [sample] = process.sample()
    told = {name: value for name, value in sample.items() if value is not None}
    assert told == {
        "index": 0,
        "uuid": UUIDS[0],
        "name": "Simulated H100 80GB",
        "vendor": "nvidia",
        "state": "ok",
    }


def test_gpu_of_which_every_value_is_refused_is_in_error(sampling: Callable[..., Sampling]) -> None:
    """A container without rights refuses every value; unsupported ones among them are no answer either."""
    words = ["unsupported", "denied"]
    script = [f"gpu 0 {name} {words[place % 2]}" for place, name in enumerate(VALUES)]
    first, second = sampling("gpus 2", *script).sample()
    assert (first["state"], first["error"]) == ("error", "Insufficient Permissions")
    assert second["state"] == "ok"


def test_gpu_of_which_every_value_fails_is_in_error(sampling: Callable[..., Sampling]) -> None:
    """Its handle is good, and so is the call that asks for many fields."""
    first, second = sampling("gpus 2", *(f"gpu 0 {name} unknown" for name in VALUES)).sample()
    assert (first["state"], first["error"], first["uuid"]) == ("error", "Unknown Error", UUIDS[0])
    assert second["state"] == "ok"


def test_value_that_fails_leaves_the_others(sampling: Callable[..., Sampling]) -> None:
    process = sampling("gpus 1", "gpu 0 fan unknown", "gpu 0 power_limit unknown", "gpu 0 utilization 50")
    [sample] = process.sample()
    assert (sample["state"], sample["utilization_percent"]) == ("ok", 50)
    assert (sample["fan_speed_percent"], sample["power_limit_watts"]) == (None, None)


def test_activity_is_that_since_the_sample_before(
    sampling: Callable[..., Sampling], simulated_nvml: SimulatedNvml
) -> None:
    process = sampling("gpus 1", "gpu 0 tensor_activity 80")
    assert process.sample()[0]["tensor_activity_percent"] == 80
    simulated_nvml.add("gpu 0 tensor_activity 20")
    found = [80.0]
    while found[-2:] != [20, 20]:
        found.append(process.sample()[0]["tensor_activity_percent"])
        time.sleep(0.01)
    assert [value for value in found if value not in (80, 20)] == [50]


def test_power_of_drivers_before_530_is_told(sampling: Callable[..., Sampling]) -> None:
    """They have one function, and no field."""
    script = ["gpu 0 power unsupported", "gpu 0 power_average unsupported", "gpu 0 power_usage 333.5"]
    [sample] = sampling("gpus 1", *script).sample()
    assert (sample["power_draw_watts"], sample["power_average_watts"]) == (333.5, None)


def test_lost_gpu_is_told_as_lost_and_the_others_stay_up(
    sampling: Callable[..., Sampling], simulated_nvml: SimulatedNvml
) -> None:
    process = sampling("gpus 3", "all utilization 50")
    assert [sample["state"] for sample in process.sample()] == ["ok", "ok", "ok"]
    simulated_nvml.add("gpu 1 state lost", "gpu 2 state unknown")
    wait_until(lambda: process.sample()[1]["state"] == "lost", "the loss")

    well, lost, failing = process.sample()
    assert (well["state"], well["error"], well["utilization_percent"]) == ("ok", None, 50)
    assert (lost["state"], lost["error"], lost["utilization_percent"]) == ("lost", "GPU is lost", None)
    assert (lost["index"], lost["uuid"], lost["name"]) == (1, UUIDS[1], "Simulated H100 80GB")
    assert (failing["state"], failing["error"], failing["uuid"]) == ("error", "Unknown Error", UUIDS[2])

    simulated_nvml.write("gpus 3", "all utilization 50", "all tensor_activity 30")
    wait_until(lambda: process.sample()[1]["state"] == "ok", "its return")
    process.sample()
    back = [(sample["utilization_percent"], sample["tensor_activity_percent"]) for sample in process.sample()]
    assert back == [(50, 30)] * 3


def test_activity_that_one_gpu_does_not_give_leaves_the_others(
    sampling: Callable[..., Sampling], simulated_nvml: SimulatedNvml
) -> None:
    """One has none, and another fails for a while."""
    parts = [f"gpu {gpu} tensor_activity {10 * gpu}" for gpu in range(1, 5)]
    process = sampling("gpus 5", *parts, "gpu 1 architecture 7", "gpu 2 tensor_activity unknown")

    def seen() -> list[float | None]:
        return [sample["tensor_activity_percent"] for sample in process.sample()]

    assert [seen(), seen()] == [[0, None, None, 30, 40]] * 2
    simulated_nvml.write("gpus 5", *parts, "gpu 1 architecture 7")
    wait_until(lambda: seen() == [0, None, 20, 30, 40], "the activity")


@pytest.mark.parametrize(("word", "error"), [("lost", "GPU is lost"), ("reset", "GPU requires restart")])
def test_gpu_is_lost_in_the_midst_of_a_sample(
    sampling: Callable[..., Sampling], word: str, error: str
) -> None:
    """Some calls still answer: those before the GPU was gone."""
    process = sampling("gpus 1", f"gpu 0 decoder {word}", "gpu 0 utilization 50")
    [sample] = process.sample()
    assert (sample["state"], sample["error"], sample["utilization_percent"]) == ("lost", error, None)


@pytest.mark.parametrize(
    ("word", "state", "error"),
    [("lost", "lost", "GPU is lost"), ("denied", "error", "Insufficient Permissions")],
)
def test_gpu_that_cannot_be_had_when_sampling_begins(
    sampling: Callable[..., Sampling], word: str, state: str, error: str
) -> None:
    process = sampling("gpus 2", f"gpu 0 state {word}")
    lost, well = process.sample()
    assert (lost["index"], lost["uuid"], lost["state"], lost["error"]) == (0, None, state, error)
    assert (well["index"], well["uuid"], well["state"]) == (1, UUIDS[1], "ok")
    assert process.end() == 0


def test_xid_event_is_told_once_with_its_meaning(
    sampling: Callable[..., Sampling], simulated_nvml: SimulatedNvml
) -> None:
    process = sampling("gpus 2", "gpu 0 events unsupported")
    assert process.events() == []
    simulated_nvml.add("xid 1 79 1", "xid 1 999 2", "xid 0 31 3")  # the last one is not registered
    events = wait_until(process.events, "an event")
    while len(events) < 2:
        events += wait_until(process.events, "an event")
    assert [(event["kind"], event["index"], event["code"], event["message"]) for event in events] == [
        ("xid", 1, 79, f"GPU 1 ({UUIDS[1]}): Xid 79: the GPU has fallen off the bus"),
        ("xid", 1, 999, f"GPU 1 ({UUIDS[1]}): Xid 999: see NVIDIA's list of Xid errors"),
    ]
    unsupported, told = process.sample()
    assert (unsupported["xid_errors"], unsupported["xid_last_error"]) == (None, None)
    assert (told["xid_errors"], told["xid_last_error"]) == (2, 999)
    assert process.events() == []
    simulated_nvml.add("gpu 1 state lost")
    [lost] = wait_until(lambda: [it for it in process.sample() if it["state"] == "lost"], "the loss")
    assert (lost["xid_errors"], lost["xid_last_error"]) == (2, 999)
    assert process.end() == 0


def test_processes_that_come_and_go_are_seen_later(
    sampling: Callable[..., Sampling], simulated_nvml: SimulatedNvml, monkeypatch: Any
) -> None:
    process = sampling("gpu 0 process 4242424 100", "gpu 0 process 4242425 -1")
    assert process.sample()[0]["processes"] == [
        {"pid": 4242424, "name": "simulated", "memory_mb": 100, "sm_percent": 0},
        {"pid": 4242425, "name": "simulated", "memory_mb": None, "sm_percent": 0},
    ]
    simulated_nvml.write("gpus 1")
    wait_until(lambda: process.sample()[0]["processes"] == [], "the end of the process")


def test_utilization_of_each_process(
    sampling: Callable[..., Sampling], simulated_nvml: SimulatedNvml
) -> None:
    def seen() -> list[list[tuple[int, float | None]]]:
        return [
            [(found["pid"], found["sm_percent"]) for found in sample["processes"]]
            for sample in process.sample()
        ]

    many = [f"gpu 1 process {pid} 10 {pid - 100}" for pid in range(101, 141)]
    busy = ["gpu 0 process 11 10 73", "gpu 0 process 12 10", *many, "gpu 2 process 11 10 50"]
    process = sampling("gpus 3", *busy, "gpu 2 process_utilization unsupported")
    assert seen() == [[(11, 73), (12, 0)], [(pid, pid - 100) for pid in range(101, 141)], [(11, None)]]
    simulated_nvml.write("gpus 3", "gpu 0 process 11 10", "gpu 2 process 11 10 50")
    # what the driver reported last holds for a while
    wait_until(lambda: seen() == [[(11, 0)], [], [(11, 50)]], "an idle process")


def test_xid_events_are_waited_for_on_a_thread_of_their_own(sampling: Callable[..., Sampling]) -> None:
    waiting, without = sampling("gpus 1"), sampling("gpus 1", "gpu 0 events unsupported")
    for process in (waiting, without):
        process.sample()
    assert (waiting.num_threads, without.num_threads) == (2, 1)


def test_no_call_holds_up_the_sampling(
    sampling: Callable[..., Sampling], simulated_nvml: SimulatedNvml
) -> None:
    process = sampling("gpus 4")
    for _ in range(3):
        process.sample()
    assert simulated_nvml.blocking_calls == []
