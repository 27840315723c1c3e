"""Intel cards from files as i915 and xe lay them out, with made-up values."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from monitoring.gpu.sample import DeviceInfo, GpuSample
from monitoring.samplers import Joined, _fdinfo, amd, intel, probe_all
from monitoring.samplers._sysfs import SysfsSampler

from ...simulated_nvml.simulated_nvml import SimulatedNvml
from .conftest import Kernel, Sampling

BUS = "0000:04:00.0"


def told(sample: Any) -> dict[str, Any]:
    """The values that are not null."""
    return {name: value for name, value in sample._asdict().items() if value is not None}


def test_xe_card_tells_its_values(kernel: Kernel) -> None:
    kernel.xe()
    client = {"drm_total_vram0": "2048 KiB", "drm_engine_capacity_rcs": 0}  # of which there is at least one
    kernel.client(4242, BUS, drm_cycles_rcs=1000, drm_total_cycles_rcs=10000, **client)
    sampler = intel.probe(kernel.root)
    assert sampler is not None
    assert sampler.devices() == [DeviceInfo(0, None, "Intel GPU 0xe20b", "intel", BUS, None, False, 0)]
    sampler.sample()
    # 300 of 400 further cycles
    client["drm_total_vram0"] = "4 MiB"
    kernel.client(4242, BUS, drm_cycles_rcs=1300, drm_total_cycles_rcs=10400, **client)
    [sample] = sampler.sample()
    found = told(sample)
    assert found.pop("power_draw_watts") == found.pop("power_average_watts") == 0
    assert found == {
        "index": 0,
        "name": "Intel GPU 0xe20b",
        "vendor": "intel",
        "state": "ok",
        "utilization_percent": 75,
        "temperature_celsius": 57,
        "temperature_memory_celsius": 60,
        "power_limit_watts": 190,
        "energy_counter_joules": 987.654321,
        "clock_sm_mhz": 2350,
        "throttle_reasons": ["pl1"],
        "processes": [{"pid": 4242, "name": "python3", "memory_mb": 4, "sm_percent": None}],
    }
    sampler.close()


def test_power_is_the_difference_of_the_energy(kernel: Kernel) -> None:
    device = kernel.xe()
    sampler = intel.probe(kernel.root)
    assert sampler is not None
    before = time.monotonic()
    [first] = sampler.sample()
    between = time.monotonic()
    kernel.write(device / "hwmon/hwmon4/energy1_input", 987654321 + 5_000_000)
    time.sleep(0.02)
    later = time.monotonic()
    [second] = sampler.sample()
    after = time.monotonic()
    assert first.power_draw_watts is None
    assert second.energy_counter_joules == 992.654321
    assert second.power_draw_watts is not None
    assert 5 / (after - before) <= second.power_draw_watts <= 5 / (later - between)


def test_counter_that_falls_tells_no_power(kernel: Kernel) -> None:
    """Its driver was loaded again."""
    device = kernel.xe()
    sampler = intel.probe(kernel.root)
    assert sampler is not None
    sampler.sample()
    kernel.write(device / "hwmon/hwmon4/energy1_input", 1_000_000)
    [sample] = sampler.sample()
    assert (sample.energy_counter_joules, sample.power_draw_watts, sample.power_average_watts) == (
        1,
        None,
        None,
    )


def test_engine_time_in_nanoseconds_is_a_share_of_the_time(kernel: Kernel) -> None:
    kernel.xe()
    sampler = intel.probe(kernel.root)
    assert sampler is not None
    kernel.client(4242, BUS, drm_engine_render="1000000 ns")
    before = time.monotonic()
    sampler.sample()
    between = time.monotonic()
    time.sleep(0.02)
    kernel.client(4242, BUS, drm_engine_render="6000000 ns")
    later = time.monotonic()
    [sample] = sampler.sample()
    after = time.monotonic()
    assert sample.utilization_percent is not None
    assert 100 * 0.005 / (after - before) <= sample.utilization_percent <= 100 * 0.005 / (later - between)


def test_files_of_clients_are_let_go_with_them(kernel: Kernel) -> None:
    kernel.xe()
    kernel.client(4242, BUS, drm_cycles_rcs=1, drm_total_cycles_rcs=2)
    sampler = intel.probe(kernel.root)
    assert sampler is not None
    [sample] = sampler.sample()
    assert [process["pid"] for process in sample.processes or ()] == [4242]
    fdinfo = kernel.root / "proc/4242/fdinfo/7"
    assert fdinfo in kernel.opened()
    fdinfo.write_text("pos:\t0\nflags:\t0100002\n")  # it is of another file now
    [sample] = sampler.sample()
    assert sample.processes is None
    assert fdinfo not in kernel.opened()
    sampler.close()
    assert kernel.opened() == []


def test_card_without_a_driver_is_none(kernel: Kernel) -> None:
    kernel.card(BUS, vendor="0x8086", device="0x56a0")
    assert intel.probe(kernel.root) is None


def test_i915_card_tells_its_values(kernel: Kernel) -> None:
    kernel.card(
        BUS,
        vendor="0x8086",
        device="0x56a0",
        hwmon__hwmon5__energy1_input=123456789,
        hwmon__hwmon5__power1_max=150000000,
    )
    card = kernel.root / "sys/class/drm/card0"
    kernel.write(card / "gt_act_freq_mhz", 1950)
    kernel.write(card / "gt/gt0/throttle_reason_status", 0)
    kernel.write(card / "gt/gt0/throttle_reason_thermal", 0)
    kernel.write(card / "lmem_total_bytes", 16 * 2**30)
    kernel.write(card / "lmem_avail_bytes", 12 * 2**30)
    sampler = intel.probe(kernel.root)
    assert sampler is not None
    [sample] = sampler.sample()
    assert told(sample) == {
        "index": 0,
        "name": "Intel GPU 0x56a0",
        "vendor": "intel",
        "state": "ok",
        "memory_used_mb": 4096,
        "memory_total_mb": 16384,
        "memory_percent": 25,
        "power_limit_watts": 150,
        "energy_counter_joules": 123.456789,
        "clock_sm_mhz": 1950,
        "throttle_reasons": [],
    }


def test_sensors_are_those_of_the_whole_card(kernel: Kernel) -> None:
    """i915 has further ones for each part; xe's package stands in where there is none of the card."""
    kernel.card(
        BUS,
        vendor="0x8086",
        device="0x0bd5",
        hwmon__hwmon2__name="i915_gt0",
        hwmon__hwmon2__energy1_input=1_000_000,
        hwmon__hwmon3__name="i915",
        hwmon__hwmon3__energy1_input=7_000_000,
    )
    kernel.write(kernel.root / "sys/class/drm/card0/gt_act_freq_mhz", 1000)
    package = kernel.xe(
        "0000:07:00.0", hwmon__hwmon4__energy2_input=3_000_000, hwmon__hwmon4__power2_max=90_000_000
    )
    kernel.write(package / "hwmon/hwmon4/energy2_label", "pkg")
    for name in ("energy1_input", "energy1_label", "power1_max"):
        (package / "hwmon/hwmon4" / name).unlink()
    sampler = intel.probe(kernel.root)
    assert sampler is not None
    assert [(it.energy_counter_joules, it.power_limit_watts) for it in sampler.sample()] == [
        (7, None),
        (3, 90),
    ]


def test_limit_that_is_disabled_is_null(kernel: Kernel) -> None:
    """The kernel tells 0 then."""
    kernel.xe(hwmon__hwmon4__power1_max=0)
    sampler = intel.probe(kernel.root)
    assert sampler is not None
    assert sampler.sample()[0].power_limit_watts is None


def test_memory_of_all_tiles_of_xe_is_told(kernel: Kernel) -> None:
    kernel.xe(tile0__physical_vram_size_bytes=8 * 2**30, tile1__physical_vram_size_bytes=8 * 2**30)
    sampler = intel.probe(kernel.root)
    assert sampler is not None
    [sample] = sampler.sample()
    assert (sample.memory_total_mb, sample.memory_used_mb, sample.memory_percent) == (16384, None, None)


def test_engine_time_that_falls_back_counts_once(kernel: Kernel) -> None:
    """A driver may do so for a while (docs.kernel.org/gpu/drm-usage-stats.html)."""
    kernel.xe()
    sampler = intel.probe(kernel.root)
    assert sampler is not None
    found = []
    for busy, total in ((1000, 10_000), (1500, 11_000), (900, 12_000), (1600, 13_000)):
        kernel.client(4242, BUS, drm_cycles_rcs=busy, drm_total_cycles_rcs=total)
        found.append(sampler.sample()[0].utilization_percent)
    assert found == [None, 50, 0, 10]


def test_client_counts_once_however_often_it_has_the_card_open(kernel: Kernel) -> None:
    """Two descriptors of one client, and one of another; engines of a kind share its time."""
    kernel.xe()
    sampler = intel.probe(kernel.root)
    assert sampler is not None
    for total in (10_000, 11_000):
        done = total - 10_000
        values = {"drm_total_cycles_ccs": total, "drm_engine_capacity_ccs": 2, "drm_total_vram0": "1 GiB"}
        kernel.client(11, BUS, drm_cycles_ccs=done, **values)
        kernel.client(12, BUS, drm_cycles_ccs=done, **values)
        kernel.client(13, BUS, drm_cycles_ccs=done // 5, **{**values, "drm_client_id": 99})
        [sample] = sampler.sample()
    assert sample.utilization_percent == 60  # (1000 + 200) of 2 * 1000 cycles
    memory = {process["pid"]: process["memory_mb"] for process in sample.processes or ()}
    assert list(memory.values()) == [1024, 1024]
    assert 13 in memory
    sampler.close()
    assert kernel.opened() == []


def test_engine_time_of_i915_is_read_with_its_capacity() -> None:
    """The example of docs.kernel.org/gpu/drm-usage-stats.html and i915's own keys."""
    content = (
        "pos:\t0\nflags:\t0100002\ndrm-driver:\ti915\ndrm-pdev:\t0000:00:02.0\ndrm-client-id:\t7\n"
        "drm-engine-render:\t9288864723 ns\ndrm-engine-copy:\t2035071108 ns\ndrm-engine-video:\t0 ns\n"
        "drm-engine-capacity-video:\t2\ndrm-total-local0:\t8 MiB\ndrm-resident-local0:\t4 MiB\n"
    )
    assert _fdinfo.parse(42, content) == _fdinfo.Usage(
        pid=42,
        pci_bus_id="0000:00:02.0",
        client="7",
        busy={"render": 9288864723, "copy": 2035071108, "video": 0},
        total={},
        capacity={"video": 2},
        memory_bytes=8 * 2**20,
    )
    assert _fdinfo.parse(42, "pos:\t0\nflags:\t0100002\n") is None


def test_affinity_mask_selects_the_cards(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in range(3):
        kernel.xe(f"0000:{place + 3:02x}:00.0")
    monkeypatch.setenv("ZE_AFFINITY_MASK", "2.0,0.1,0.0")
    sampler = intel.probe(kernel.root)
    assert sampler is not None
    assert [sample.index for sample in sampler.sample()] == [0, 2]


def test_vendors_stand_in_one_row(
    sampling: Callable[..., Sampling], kernel: Kernel, simulated_nvml: SimulatedNvml
) -> None:
    """Indices go on behind all GPUs of the vendor before, selected or not."""
    kernel.amd("0000:05:00.0")
    kernel.amd("0000:06:00.0", unique_id="0123456789abcdef")
    kernel.xe("0000:07:00.0")
    (kernel.root / "usr/lib").mkdir(parents=True)
    (kernel.root / "usr/lib/libnvidia-ml.so.1").symlink_to(simulated_nvml.library)
    process = sampling("gpus 3", root=kernel.root, CUDA_VISIBLE_DEVICES="1", HIP_VISIBLE_DEVICES="1")
    assert process.problems == []
    assert [(sample["index"], sample["vendor"]) for sample in process.sample()] == [
        (1, "nvidia"),
        (4, "amd"),
        (5, "intel"),
    ]
    assert process.indices == [1, 4, 5]


def test_vendor_that_cannot_be_looked_for_is_a_problem_of_its_own(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel.xe()
    monkeypatch.setattr(amd, "probe", lambda root: 1 / 0)
    sampler, problems = probe_all(kernel.root)
    assert sampler is not None
    assert [device.vendor for device in sampler.devices()] == ["intel"]
    assert problems == ["amd: ZeroDivisionError: division by zero"]


class Failing(SysfsSampler):
    """A vendor whose driver answers nothing at all."""

    def sample(self) -> Sequence[GpuSample]:
        raise OSError("the driver was taken out")


def test_vendor_that_fails_as_a_whole_leaves_the_others_up(kernel: Kernel) -> None:
    kernel.amd()
    kernel.xe()
    well, other = amd.probe(kernel.root), intel.probe(kernel.root)
    assert well is not None
    assert other is not None
    failing = Failing("intel", other._gpus, num_devices=1)
    first, second = Joined([well, failing]).sample()
    assert (first.index, first.vendor, first.state, first.utilization_percent) == (0, "amd", "ok", 87)
    error = "OSError: the driver was taken out"
    assert second == GpuSample(1, None, "Intel GPU 0xe20b", "intel", "error", error)


def test_processor_graphics_count_only_where_nothing_else_is(kernel: Kernel) -> None:
    kernel.xe("0000:00:02.0")
    alone, _ = probe_all(kernel.root)
    assert alone is not None
    assert [device.integrated for device in alone.devices()] == [True]
    kernel.amd("0000:03:00.0")
    both, _ = probe_all(kernel.root)
    assert both is not None
    assert [(device.index, device.vendor) for device in both.devices()] == [(0, "amd")]
    kernel.xe("0000:07:00.0")
    three, _ = probe_all(kernel.root)
    assert three is not None
    assert [(device.index, device.vendor) for device in three.devices()] == [(0, "amd"), (2, "intel")]
    for sampler in (alone, both, three):
        sampler.close()
    assert kernel.opened() == []
