"""The profiler writes its files on schedule and changes no result."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from monitoring.telemetry.profiler import ProfilerError, ProfilerOptions, TorchProfiler, configured_profiler

CPU_KEYS = ("cpu_time_total", "self_cpu_time_total")


def trained(profiler: TorchProfiler | None, steps: int, *, first: int = 1) -> Tensor:
    """The weights after steps of a small model."""
    generator = torch.Generator().manual_seed(1)
    weight = nn.Parameter(torch.randn(8, 8, generator=generator))
    for step in range(first, first + steps):
        if profiler is not None:
            profiler.begin_step(step)
        (torch.randn(4, 8, generator=generator) @ weight).square().mean().backward()
        with torch.no_grad():
            assert weight.grad is not None
            weight.sub_(0.1 * weight.grad)
    if profiler is not None:
        profiler.close()
    return weight.detach()


def written(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir()) if directory.exists() else []


def of_cycle(steps: str, *keys: str, attempt: int = 1, rank: int = 0) -> list[str]:
    stem = f"attempt{attempt:02}_rank{rank:04}_steps{steps}"
    return sorted([f"{stem}.trace.json", *(f"{stem}.{key}.txt" for key in keys or CPU_KEYS)])


def test_each_cycle_of_the_documented_schedule_has_files_of_its_own(tmp_path: Path) -> None:
    """skip_first 5, wait 1, warmup 1, active 3, repeat 2; the weights are those without the profiler."""
    weights = trained(TorchProfiler(tmp_path / "profiler", ProfilerOptions()), 20)
    first, second = of_cycle("00000008-00000010"), of_cycle("00000013-00000015")
    assert written(tmp_path / "profiler") == [*first, *second]
    assert torch.equal(weights, trained(None, 20))
    resumed = TorchProfiler(tmp_path / "profiler", ProfilerOptions(), attempt=2, rank=3)
    trained(resumed, 11, first=4)  # it resumes after step 3, and ends in its second cycle
    third = of_cycle("00000011-00000013", attempt=2, rank=3)
    assert written(tmp_path / "profiler") == [*first, *second, *third]


def test_a_training_that_ends_in_a_cycle_keeps_what_was_recorded(tmp_path: Path) -> None:
    trained(TorchProfiler(tmp_path, ProfilerOptions()), 9)
    assert written(tmp_path) == of_cycle("00000008-00000009")


def test_steps_are_profiled_on_request(tmp_path: Path) -> None:
    """After one to warm up, and after the cycle that is under way."""
    profiler = TorchProfiler(tmp_path)
    trained(profiler, 3)
    assert written(tmp_path) == []
    profiler.request(2)
    trained(profiler, 6, first=10)
    assert written(tmp_path) == of_cycle("00000011-00000012")


def test_without_a_schedule_all_is_one_cycle(tmp_path: Path) -> None:
    trained(TorchProfiler(tmp_path, ProfilerOptions(enable_schedule=False)), 4)
    assert written(tmp_path) == of_cycle("00000001-00000004")


def test_a_trace_is_one_of_the_trace_event_format(tmp_path: Path) -> None:
    """Traces follow the document "Trace Event Format".

    https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU: in its JSON object format
    traceEvents is required; an event has ph, ts in microseconds, pid and tid, a complete one (X) its dur,
    metadata (M) a name and args, flows (s, f) an id.
    """
    options = ProfilerOptions(skip_first=0, wait=0, warmup=1, active=2, repeat=1)
    trained(TorchProfiler(tmp_path, options), 4)
    trace: dict[str, Any] = json.loads((tmp_path / of_cycle("00000002-00000003")[-1]).read_text())
    assert isinstance(trace["traceEvents"], list)
    assert trace.get("displayTimeUnit", "ms") in ("ms", "ns")
    assert [fault for event in trace["traceEvents"] for fault in faults(event)] == []
    steps = [event for event in trace["traceEvents"] if event["name"].startswith("ProfilerStep#")]
    assert [event["ph"] for event in steps] == ["X", "X"]
    names = {event["name"] for event in trace["traceEvents"]}
    assert {"aten::mm", "aten::square"} <= names


NUMBER, NAME = (int, float), (int, float, str)
REQUIRED: dict[str, dict[str, Any]] = {
    "X": {"name": str, "ts": NUMBER, "dur": NUMBER, "pid": NAME, "tid": NAME},
    "i": {"name": str, "ts": NUMBER, "pid": NAME, "tid": NAME, "s": str},
    "M": {"name": str, "pid": NAME, "args": dict},
    "s": {"name": str, "id": NAME, "ts": NUMBER, "pid": NAME, "tid": NAME},
    "f": {"name": str, "id": NAME, "ts": NUMBER, "pid": NAME, "tid": NAME},
}


def faults(event: dict[str, Any]) -> Iterator[str]:
    """Violations of the format in one event, by its phase."""
    fields = REQUIRED.get(event.get("ph", ""))
    if fields is None:
        yield f"unknown phase: {event}"
        return
    for name, kinds in fields.items():
        if not isinstance(event.get(name), kinds):
            yield f"{name}: {event}"
    if event.get("dur", 0) < 0 or not isinstance(event.get("args", {}), dict):
        yield f"{event}"


def test_tables_are_sorted_by_their_key_and_options_add_what_they_say(tmp_path: Path) -> None:
    options = ProfilerOptions(skip_first=0, wait=0, warmup=0, active=1, repeat=1)
    rich = replace(options, profile_memory=True, record_shapes=True, with_flops=True, with_stack=True)
    trained(TorchProfiler(tmp_path / "plain", options), 2)
    trained(TorchProfiler(tmp_path / "rich", rich), 2)
    plain_files = of_cycle("00000001-00000001")
    rich_files = of_cycle("00000001-00000001", *CPU_KEYS, "self_cpu_memory_usage")
    assert [written(tmp_path / "plain"), written(tmp_path / "rich")] == [plain_files, rich_files]
    plain, table = ((tmp_path / name / plain_files[0]).read_text() for name in ("plain", "rich"))
    assert ["Input Shapes" in plain, "Input Shapes" in table] == [False, True]
    assert ["FLOPs" in plain, "FLOPs" in table] == [False, True]
    lines = [re.split(r"\s{2,}", line.strip()) for line in plain.splitlines()]
    assert ["aten::mm" in {line[0] for line in lines}, lines[1][0]] == [True, "Name"]


def test_what_the_device_cannot_do_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProfilerError, match="PROFILER_MEMORY_SNAPSHOT=y: a snapshot is of CUDA's") as error:
        TorchProfiler(tmp_path, ProfilerOptions(memory_snapshot=True), device="cpu")
    assert error.value.hint.startswith("set PROFILER_MEMORY_SNAPSHOT=n")
    with pytest.raises(ProfilerError, match="nothing is left to profile"):
        TorchProfiler(tmp_path, ProfilerOptions(enable_cpu_profiling=False), device="cpu")


def test_a_folder_that_cannot_be_written_is_reported_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "profiler").write_text("a file")
    weights = trained(TorchProfiler(tmp_path / "profiler", ProfilerOptions()), 20)
    [warning] = [line for line in capsys.readouterr().err.splitlines() if "warning" in line]
    assert warning.startswith(f"warning: {tmp_path}/profiler/attempt01_rank0000_steps00000008-00000010.trace")
    assert torch.equal(weights, trained(None, 20))


def test_the_symbols_are_the_documented_options(root: Path) -> None:
    assert configured_profiler({"PROFILER": False, "PROFILER_WAIT": 7}) is None
    assert configured_profiler({"PROFILER": True, "PROFILER_WAIT": 7}) == ProfilerOptions(wait=7)
    assert ProfilerOptions() == ProfilerOptions(
        enable_cpu_profiling=True,
        enable_cuda_profiling=True,
        profile_memory=False,
        record_shapes=False,
        with_stack=False,
        with_flops=False,
        with_modules=False,
        enable_schedule=True,
        skip_first=5,
        wait=1,
        warmup=1,
        active=3,
        repeat=2,
    )
    symbols = dict(
        re.findall(
            r"^config PROFILER_(\w+)\n\t\w+ .*\n\tdefault (\w+)",
            (root / "lib/monitoring/telemetry/Kconfig").read_text(),
            flags=re.M,
        )
    )
    defaults = {name: int(value) if value.isdecimal() else value == "y" for name, value in symbols.items()}
    assert {name.lower(): value for name, value in defaults.items()} == vars(ProfilerOptions())
