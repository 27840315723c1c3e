"""Which GPUs are a run's, and what its share of them comes to, by figures worked by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from monitoring.agent.sample_threads.gpu_stats import GpuStats
from monitoring.gpu.masks import Mask
from monitoring.gpu.options import GpuMonitorOptions
from monitoring.gpu.run_devices import RunDevices, Said
from monitoring.gpu.sample import DeviceInfo, GpuSample
from monitoring.journal.rotating_journal import read_rotated

OWN, RANK, OTHER = 100, 101, 900


@dataclass
class Evidence:
    """Evidence about a run whose processes are OWN and RANK."""

    pids_are_ours: bool = True
    said: list[str] = field(default_factory=list)
    mask: Mask | None = None

    def is_own(self, pid: int) -> bool:
        return pid in (OWN, RANK)

    def said_devices(self) -> Sequence[Said]:
        return [Said(device, self.mask) for device in self.said]


def gpus(count: int, *, vendor: Any = "nvidia") -> list[DeviceInfo]:
    return [
        DeviceInfo(index, f"GPU-{index}", "simulated", vendor, visible_index=index) for index in range(count)
    ]


def look(*processes: Sequence[int] | None, joules: float = 0.0, state: Any = "ok") -> list[GpuSample]:
    """A sample of each GPU with the pids on it, None where they are not to be had."""
    return [
        GpuSample(
            index,
            f"GPU-{index}",
            "simulated",
            "nvidia",
            state,
            energy_counter_joules=joules,
            processes=None if pids is None else [{"pid": pid, "name": "x", "memory_mb": 1} for pid in pids],
        )
        for index, pids in enumerate(processes)
    ]


def decided(devices: RunDevices, *processes: Sequence[int] | None) -> tuple[object, dict[int, float]]:
    shares = devices.look(look(*processes))
    return shares.source, dict(shares.of)


def test_gpus_are_those_that_its_processes_are_on() -> None:
    devices = RunDevices(gpus(4), Evidence(said=["cuda:0"]))
    assert decided(devices, [], [OWN, RANK], [OTHER], [OTHER, OWN]) == ("processes", {1: 1.0, 3: 0.5})


def test_run_that_moves_takes_its_sums_along() -> None:
    devices = RunDevices(gpus(3), Evidence())
    assert decided(devices, [OWN], [], []) == ("processes", {0: 1.0})
    assert decided(devices, [OWN], [OWN], [OTHER]) == ("processes", {0: 1.0, 1: 1.0})
    assert decided(devices, [], [OWN], [OTHER]) == ("processes", {1: 1.0})
    # between two processes it keeps what it had, but not the time of others there
    assert decided(devices, [], [], [OTHER]) == ("processes", {1: 1.0})
    assert decided(devices, [], [OTHER], [OTHER]) == ("processes", {1: 0.0})


def test_lost_gpu_stays_the_runs() -> None:
    devices = RunDevices(gpus(2), Evidence())
    decided(devices, [OWN], [RANK])
    assert decided(devices, [OWN], None) == ("processes", {0: 1.0, 1: 1.0})


def failed(samples: list[GpuSample], *places: int, state: Any = "lost") -> list[GpuSample]:
    """The samples, with these GPUs not answering."""
    return [
        sample._replace(state=state, processes=None, energy_counter_joules=None)
        if sample.index in places
        else sample
        for sample in samples
    ]


@pytest.mark.parametrize(
    ("said", "found"), [([], {0: 1.0}), (["cuda:0"], {0: 1.0}), (["cuda:0", "cuda:1"], {0: 1.0, 1: 1.0})]
)
def test_gpu_that_never_answered_is_the_runs_if_it_says_so(said: list[str], found: dict[int, float]) -> None:
    devices = RunDevices(gpus(2), Evidence(said=said))
    assert devices.look(failed(look([OWN], []), 1)) == (found, "processes")


@pytest.mark.parametrize("gone", [(1,), (0, 1, 2)])
def test_gpus_that_fail_charge_no_run_that_is_not_known_to_use_them(
    tmp_path: Path, gone: Sequence[int]
) -> None:
    """One that is lost, and all for a while as when the driver is loaded again, until they are back."""
    with agent(tmp_path, count=3) as run:
        for second in range(6):
            samples = look([], [], [OTHER], joules=360.0 * second)
            run.stats.append(
                failed(samples, *gone, state="error") if 1 < second < 5 else samples,
                time=float(second),
                global_step=0,
            )
        totals: Any = list(read_rotated(tmp_path / "gpu_stats.jsonl"))[-1]["aggregate_stats"]
    names = ("devices", "devices_source", "energy_joules", "energy_source", "gpu_hours", "cost", "gpu_count")
    assert [totals[name] for name in names] == [None, None, None, None, None, None, 0]


def test_gpu_that_fails_keeps_the_share_that_the_run_had_of_it() -> None:
    devices = RunDevices(gpus(1), Evidence())
    assert decided(devices, [OWN, OTHER]) == ("processes", {0: 0.5})
    assert devices.look(failed(look([]), 0)).of == {0: 0.5}
    assert decided(devices, [OWN]) == ("processes", {0: 1.0})


@pytest.mark.parametrize(
    ("own", "other", "share"),
    [(99, 1, 0.99), (1, 99, 0.01), (30, 30, 0.5), (0, 80, 0.0), (0, 0, 0.5), (None, 90, 0.5)],
)
def test_processes_share_a_gpu_by_the_work_of_each(
    own: float | None, other: float | None, share: float
) -> None:
    """Where the driver does not tell that of all, and where none works, equally."""
    [sample] = look([])
    processes: list[dict[str, object]] = [
        {"pid": pid, "name": "x", "memory_mb": 1, "sm_percent": percent}
        for pid, percent in ((OWN, own), (OTHER, other))
    ]
    shares = RunDevices(gpus(1), Evidence()).look([sample._replace(processes=processes)])
    assert shares == ({0: share}, "processes")


@pytest.mark.parametrize(
    ("said", "found"),
    [
        (["cpu (requested)"], {}),
        (["cpu", "cpu"], {}),
        (["cuda:1 (Simulated H100 80GB, found)"], {1: 0.0}),
        (["cuda"], {0: 1.0}),
        (["cuda:0", "cuda:2"], {0: 1.0, 2: 1.0}),
    ],
)
def test_training_that_says_its_device_has_that_one(said: list[str], found: dict[int, float]) -> None:
    """On GPU 1 somebody else computes, and it waits."""
    devices = RunDevices(gpus(3), Evidence(said=said))
    assert decided(devices, [], [OTHER], []) == ("device", found)


@pytest.mark.parametrize("said", [["cuda:9"], ["xpu:0"], ["tpu"], ["cuda:0", "cuda:7"], [""]])
def test_device_that_is_not_certain_says_nothing(said: list[str]) -> None:
    devices = RunDevices(gpus(2), Evidence(said=said))
    assert decided(devices, [], [])[0] is None


@pytest.mark.parametrize(
    ("mask", "said", "found"),
    [
        ("2,0", "cuda:0", [2]),
        ("2,0", "cuda:1", [0]),
        ("GPU-1", "cuda", [1]),
        ("2,0", "cuda:2", None),
        ("", "cuda:0", None),
        ("MIG-1", "cuda:0", None),
        ("2", "cpu", []),
    ],
)
def test_device_of_a_rank_with_a_mask_of_its_own_is_counted_by_it(
    mask: str, said: str, found: list[int] | None
) -> None:
    devices = RunDevices(gpus(3), Evidence(said=[said], mask={"CUDA_VISIBLE_DEVICES": mask}))
    expected = (None, {0: 1.0, 1: 1.0, 2: 1.0}) if found is None else ("device", dict.fromkeys(found, 1.0))
    assert decided(devices, [], [], []) == expected


def test_numbers_of_a_mask_are_not_certain_where_gpus_are_of_several_kinds() -> None:
    devices = [gpu._replace(name=f"kind {gpu.index}") for gpu in gpus(2)]
    evidence = Evidence(said=["cuda:0"], mask={"CUDA_VISIBLE_DEVICES": "1"})
    assert decided(RunDevices(devices, evidence), [], [])[0] is None


def test_gpus_that_no_process_is_on_are_not_the_runs() -> None:
    devices = RunDevices(gpus(2), Evidence())
    assert decided(devices, [], [OTHER])[0] is None
    assert decided(devices, [], [OTHER, OWN]) == ("processes", {1: 0.5})


def test_where_processes_cannot_be_seen_only_what_the_training_says_counts() -> None:
    assert decided(RunDevices(gpus(2, vendor="amd"), Evidence()), None, None)[0] is None
    # the numbers of another namespace are not ours, whatever they look like
    container = Evidence(pids_are_ours=False)
    assert decided(RunDevices(gpus(2), container), [OWN, OTHER], [])[0] is None
    container.said = ["cuda:0"]
    assert decided(RunDevices(gpus(2), container), [OWN, OTHER], []) == ("device", {0: 0.5})


class Recording:
    """One attempt of a run with some GPUs, whose counters both rise by 360 J a second."""

    def __init__(
        self,
        directory: Path,
        evidence: Evidence,
        *,
        attempt: int = 1,
        started: float = 0.0,
        count: int = 2,
    ) -> None:
        self.stats = GpuStats(
            directory,
            GpuMonitorOptions(hour_price=3600.0),
            run_id="0" * 16,
            attempt=attempt,
            started=started,
            host="h",
            devices=RunDevices(gpus(count), evidence),
        )

    def look(self, second: float, *processes: Sequence[int] | None) -> tuple[Any, ...]:
        """The run's devices, energy (J), GPU seconds and cost, at a second of the run's clock."""
        samples = look(*processes, joules=5000 + 360 * second)
        totals: Any = self.stats.append(samples, time=second, global_step=0)["aggregate_stats"]
        hours = totals["gpu_hours"]
        seconds = None if hours is None else round(3600 * hours, 6)
        return totals["devices"], totals["energy_joules"], seconds, totals["cost"]


def test_two_runs_on_one_gpu_share_its_energy_by_time(tmp_path: Path) -> None:
    run = Recording(tmp_path, Evidence())
    assert run.look(0, [OWN], [OTHER]) == ([0], 0, 0, 0)
    assert run.look(1, [OWN], [OTHER]) == ([0], 360, 1, 1)
    assert run.look(2, [OWN, OTHER], [OTHER]) == ([0], 540, 1.5, 1.5)
    assert run.look(3, [OWN, OTHER, 901], [OTHER]) == (
        [0],
        660,
        pytest.approx(1.833333),
        pytest.approx(11 / 6),
    )


def test_start_up_counts_for_the_gpus_that_turn_out_to_be_the_runs(tmp_path: Path) -> None:
    run = Recording(tmp_path, Evidence())
    assert run.look(1, [], []) == (None, None, None, None)
    assert run.look(2, [], []) == (None, None, None, None)
    assert run.look(3, [], [OWN]) == ([1], 720, 3, 3)


def test_cpu_training_has_no_sums_of_gpus(tmp_path: Path) -> None:
    run = Recording(tmp_path, Evidence(said=["cpu (requested)"]))
    for second in range(4):
        assert run.look(second, [], [OTHER]) == ([], None, None, None)


def test_sums_go_on_in_another_agent_and_another_attempt(tmp_path: Path) -> None:
    with agent(tmp_path) as run:
        run.look(0, [OWN], [])
        assert run.look(1, [OWN], []) == ([0], 360, 1, 1)
    with agent(tmp_path) as run:  # the counter has counted meanwhile; no process is left
        assert run.look(4, [], []) == ([0], 1440, 4, 4)
    with agent(tmp_path, attempt=2, started=50.0) as run:
        assert run.look(50, [], []) == (None, 1440, 4, 4)
        assert run.look(51, [], [OWN]) == ([1], 1800, 5, 5)


def test_agent_that_ended_before_anything_was_known_leaves_the_hours(tmp_path: Path) -> None:
    with agent(tmp_path) as run:
        assert run.look(1, [], []) == (None, None, None, None)
    with agent(tmp_path) as run:
        run.look(2, [OWN], [])
        assert run.look(3, [OWN], []) == ([0], 360, 3, 3)


@contextmanager
def agent(directory: Path, **attempt: Any) -> Iterator[Recording]:
    """One of several that write the same file."""
    recording = Recording(directory, Evidence(), **attempt)
    yield recording
    recording.stats.close()
