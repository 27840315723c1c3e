"""AMD cards from files as amdgpu lays them out, with made-up values."""

from __future__ import annotations

import errno
import os
import shutil

import pytest

from monitoring.gpu.sample import DeviceInfo, GpuSample
from monitoring.samplers import amd

from .conftest import Kernel

UUID = "GPU-8c1d2e3f4a5b6c7d"


def test_sample_has_every_value_of_a_card(kernel: Kernel) -> None:
    kernel.amd()
    sampler = amd.probe(kernel.root)
    assert sampler is not None
    assert sampler.devices() == [DeviceInfo(0, UUID, "AMD GPU 0x74a1", "amd", "0000:03:00.0", 1, False, 0)]
    assert sampler.sample() == [
        GpuSample(
            index=0,
            uuid=UUID,
            name="AMD GPU 0x74a1",
            vendor="amd",
            state="ok",
            utilization_percent=87,
            memory_utilization_percent=40,
            memory_used_mb=48 * 1024,
            memory_total_mb=192 * 1024,
            memory_percent=25,
            temperature_celsius=51,
            temperature_hotspot_celsius=63,
            temperature_memory_celsius=58,
            temperature_margin_celsius=47,
            power_draw_watts=612,
            power_average_watts=600,
            power_limit_watts=750,
            fan_speed_percent=20,
            clock_sm_mhz=2100,
            clock_memory_mhz=1300,
            pcie_replay_count=2,
            numa_node=1,
        )
    ]
    assert sampler.events() == []
    sampler.close()


def test_values_are_read_anew_at_each_sample(kernel: Kernel) -> None:
    device = kernel.amd()
    sampler = amd.probe(kernel.root)
    assert sampler is not None
    sampler.sample()
    kernel.write(device / "gpu_busy_percent", 12)
    kernel.write(device / "hwmon/hwmon3/power1_input", 99000000)
    [sample] = sampler.sample()
    assert (sample.utilization_percent, sample.power_draw_watts) == (12, 99)


def test_what_a_card_does_not_tell_is_null(kernel: Kernel) -> None:
    """A consumer card: no UUID, no junction, only a mean power, one file that holds no number."""
    device = kernel.amd()
    for name in ("unique_id", "hwmon/hwmon3/power1_input", "hwmon/hwmon3/pwm1", "mem_busy_percent"):
        (device / name).unlink()
    for number in (2, 3):
        (device / f"hwmon/hwmon3/temp{number}_input").unlink()
    kernel.write(device / "gpu_busy_percent", "busy")
    (device / "pcie_replay_count").unlink()
    (device / "pcie_replay_count").mkdir()  # can be opened, and not read
    sampler = amd.probe(kernel.root)
    assert sampler is not None
    [sample] = sampler.sample()
    assert (sample.uuid, sample.state, sample.power_draw_watts) == (None, "ok", 600)
    nothing = (
        *("utilization_percent", "memory_utilization_percent", "fan_speed_percent"),
        "pcie_replay_count",
        "temperature_hotspot_celsius",
        "temperature_memory_celsius",
        "temperature_margin_celsius",
    )
    assert {name: getattr(sample, name) for name in nothing} == dict.fromkeys(nothing)


def test_card_without_a_sensor_at_its_edge_tells_its_junction(kernel: Kernel) -> None:
    """MI300 has no temp1, its edge sensor."""
    device = kernel.amd()
    for name in ("temp1_label", "temp1_input"):
        (device / "hwmon/hwmon3" / name).unlink()
    sampler = amd.probe(kernel.root)
    assert sampler is not None
    [sample] = sampler.sample()
    assert (sample.temperature_celsius, sample.temperature_hotspot_celsius) == (63, 63)
    assert sample.temperature_margin_celsius == 47


def test_files_are_opened_once(kernel: Kernel) -> None:
    """A file that takes the place of another is not the one that is open; pcie_bw never is."""
    device = kernel.amd(pcie_bw="1024 2048 256")
    sampler = amd.probe(kernel.root)
    assert sampler is not None
    for name in ("gpu_busy_percent", "hwmon/hwmon3/power1_input"):
        (device / name).unlink()
        kernel.write(device / name, 1)
    [sample] = sampler.sample()
    assert (sample.utilization_percent, sample.power_draw_watts) == (87, 612)
    assert (sample.pcie_tx_bytes, sample.pcie_rx_bytes) == (None, None)
    before = kernel.opened()
    assert device / "mem_info_vram_used" in before
    assert device / "pcie_bw" not in before
    sampler.sample()
    assert kernel.opened() == before
    sampler.close()
    assert kernel.opened() == []


def test_card_of_which_no_file_can_be_read_is_in_error(kernel: Kernel) -> None:
    device = kernel.amd("0000:03:00.0")
    kernel.amd("0000:05:00.0")
    sampler = amd.probe(kernel.root)
    assert sampler is not None
    for path in device.rglob("*"):
        if path.is_file() and path.name != "vendor":
            path.write_text("")  # a read that gives nothing
    dead, well = sampler.sample()
    assert dead == GpuSample(
        0, UUID, "AMD GPU 0x74a1", "amd", "error", error="none of its files gives a value", numa_node=1
    )
    assert (well.state, well.utilization_percent) == ("ok", 87)


def test_card_that_is_gone_is_lost_and_the_others_stay_up(kernel: Kernel) -> None:
    gone = kernel.amd("0000:03:00.0")
    kernel.amd("0000:05:00.0")
    sampler = amd.probe(kernel.root)
    assert sampler is not None
    sampler.sample()
    shutil.rmtree(gone)
    lost, well = sampler.sample()
    assert lost == GpuSample(
        0, UUID, "AMD GPU 0x74a1", "amd", "lost", error="its files are gone", numa_node=1
    )
    assert (well.index, well.state, well.utilization_percent) == (1, "ok", 87)


def test_card_whose_driver_is_gone_is_lost(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel answers so of a file that was open when its device went."""
    kernel.amd()
    sampler = amd.probe(kernel.root)
    assert sampler is not None

    def gone(fd: int, size: int, offset: int) -> bytes:
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))

    monkeypatch.setattr(os, "pread", gone)
    [sample] = sampler.sample()
    assert (sample.state, sample.error, sample.uuid) == ("lost", "No such device", UUID)


def test_graphics_of_a_processor_are_left_out_beside_a_card(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only they have a voltage of the northbridge. Who selects nothing else gets them."""
    left_out = kernel.amd("0000:03:00.0", hwmon__hwmon3__in1_input=800)
    kernel.amd("0000:c1:00.0")
    sampler = amd.probe(kernel.root)
    assert sampler is not None
    assert [(device.index, device.integrated) for device in sampler.devices()] == [(1, False)]
    assert left_out / "gpu_busy_percent" not in kernel.opened()
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "0")
    alone = amd.probe(kernel.root)
    assert alone is not None
    assert [(device.index, device.integrated) for device in alone.devices()] == [(0, True)]


def test_cards_are_in_the_order_of_their_pci_addresses(kernel: Kernel) -> None:
    for place, bus_id in enumerate(["0000:c3:00.0", "0000:03:00.0", "0000:83:00.0"]):
        kernel.amd(bus_id, unique_id=f"{place:016x}")
    sampler = amd.probe(kernel.root)
    assert sampler is not None
    assert [device.pci_bus_id for device in sampler.devices()] == [
        "0000:03:00.0",
        "0000:83:00.0",
        "0000:c3:00.0",
    ]


@pytest.mark.parametrize(
    ("variables", "indices"),
    [
        ({"HIP_VISIBLE_DEVICES": "2,0"}, [0, 2]),
        ({"HIP_VISIBLE_DEVICES": "-1"}, []),
        ({"ROCR_VISIBLE_DEVICES": "GPU-0000000000000002,GPU-0000000000000001"}, [1, 2]),
        # HIP counts in what ROCm left, in its order
        ({"ROCR_VISIBLE_DEVICES": "2,1", "HIP_VISIBLE_DEVICES": "0"}, [2]),
        ({"CUDA_VISIBLE_DEVICES": "1"}, [1]),
        ({"CUDA_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "0"}, [0]),
        ({"CUDA_VISIBLE_DEVICES": ""}, []),
        ({"HIP_VISIBLE_DEVICES": ""}, []),
        ({"ROCR_VISIBLE_DEVICES": ""}, []),
        ({"ROCR_VISIBLE_DEVICES": "-1"}, []),
        # ROCm's own may mix both, and ends where a GPU is named again
        ({"ROCR_VISIBLE_DEVICES": "2,GPU-0000000000000000"}, [0, 2]),
        ({"ROCR_VISIBLE_DEVICES": "2,GPU-0000000000000002,1"}, [2]),
        ({"HIP_VISIBLE_DEVICES": "2,2"}, []),
    ],
)
def test_rocm_variables_select_the_cards(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], indices: list[int]
) -> None:
    for place in range(3):
        kernel.amd(f"0000:{place + 3:02x}:00.0", unique_id=f"{place:016x}")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    sampler = amd.probe(kernel.root)
    assert sampler is not None
    assert [sample.index for sample in sampler.sample()] == indices


def test_machine_without_an_amd_card_has_no_sampler(kernel: Kernel) -> None:
    kernel.xe()
    assert amd.probe(kernel.root) is None
