"""Steps of the first run that train nothing: what is there, and whether its numbers are right.

Torch is imported by the steps that need it, for to look at GPUs needs none.
"""

from __future__ import annotations

import csv
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kharness.training.first_run.timed import StepFailed, StepSkipped
from kharness.training.first_run.trainings import ROOT
from monitoring.gpu.sample import GpuSample, Sampler
from monitoring.samplers import probe_all
from monitoring.telemetry.device_peaks import device_peak
from monitoring.telemetry.device_pool import POOL

if TYPE_CHECKING:
    import torch

# Rows and columns of the matrices that a GPU is loaded with, and how long.
SIZE = 8192
PRODUCTS = 30
LOAD_SECONDS = 15.0

# Of the power that was integrated, the counter of energy may differ by so much.
ENERGY_TOLERANCE = 0.1


class SmiValue(NamedTuple):
    """A value of nvidia-smi and ours."""

    query: str
    """Name for nvidia-smi --query-gpu."""
    own: Callable[[GpuSample], float | None]
    tolerance: float
    """Accepted change between two readings, in its unit, beyond those before and after ours."""


VALUES = (
    SmiValue("memory.total", lambda sample: sample.memory_total_mb, 1),
    SmiValue("memory.used", lambda sample: sample.memory_used_mb, 64),
    SmiValue("temperature.gpu", lambda sample: sample.temperature_celsius, 2),
    SmiValue("power.draw", lambda sample: sample.power_draw_watts, 30),
    SmiValue("utilization.gpu", lambda sample: sample.utilization_percent, 10),
    SmiValue("clocks.sm", lambda sample: sample.clock_sm_mhz, 200),
)


def machine(folder: Path, device: str) -> str:
    """Which GPUs, driver and versions; each GPU multiplies two matrices."""
    import torch

    from kharness.training.determinism import Numerics

    if device == "cuda":
        subprocess.run(["nvidia-smi"], check=False)
    versions = f"torch {torch.__version__}, CUDA {torch.version.cuda}"
    if device == "cpu":
        return f"{versions}; a rehearsal on the CPU"
    if not torch.cuda.is_available():
        raise StepFailed(f"torch sees no GPU: {versions}")
    names = []
    for index in range(torch.cuda.device_count()):
        ones = torch.ones(256, 256, device=f"cuda:{index}")
        if (ones @ ones).unique().tolist() != [256.0]:
            raise StepFailed(f"cuda:{index} multiplies matrices of ones wrongly")
        names.append(f"{torch.cuda.get_device_name(index)} {torch.cuda.get_device_capability(index)}")
    numerics = Numerics.of(torch.device("cuda", 0))
    return f"{versions}, cuDNN {numerics.cudnn}, driver {numerics.driver}; {', '.join(names)}"


def equal(folder: Path, device: str) -> str:
    """Our samples beside nvidia-smi's, asked before and after them."""
    sampler = _sampler()
    sampler.sample()  # the first one fills in what is a mean over some time
    before = asked_of_nvidia_smi()
    ours = {sample.uuid: sample for sample in sampler.sample() if sample.vendor == "nvidia"}
    after = asked_of_nvidia_smi()
    wrong = differences(before, ours, after)
    if wrong:
        raise StepFailed("; ".join(wrong))
    return f"{len(VALUES)} values of {len(ours)} GPUs are those of nvidia-smi"


def asked_of_nvidia_smi() -> Mapping[str, Mapping[str, str]]:
    """Its values by UUID and name."""
    names = ["uuid", "name", *(value.query for value in VALUES)]
    command = ["nvidia-smi", f"--query-gpu={','.join(names)}", "--format=csv,noheader,nounits"]
    try:
        text = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise StepFailed(f"nvidia-smi: {error}") from None
    rows = csv.reader(text.splitlines(), skipinitialspace=True)
    return {row[0]: dict(zip(names, row, strict=True)) for row in rows}


def differences(
    before: Mapping[str, Mapping[str, str]],
    ours: Mapping[str | None, GpuSample],
    after: Mapping[str, Mapping[str, str]],
) -> list[str]:
    """Return the values on which nvidia-smi and our sampler disagree; print both."""
    wrong = (
        [f"GPUs {sorted(map(str, ours))}, of nvidia-smi {sorted(before)}"] if set(ours) != set(before) else []
    )
    for uuid in [uuid for uuid in before if uuid in ours and uuid in after]:
        sample = ours[uuid]
        if sample.name != before[uuid]["name"]:
            wrong.append(f"{uuid}: name {sample.name}, of nvidia-smi {before[uuid]['name']}")
        for value in VALUES:
            theirs = [_number(look[uuid][value.query]) for look in (before, after)]
            own, known = value.own(sample), [it for it in theirs if it is not None]
            print(f"GPU {sample.index} {value.query}: {own}, of nvidia-smi {theirs[0]} and {theirs[1]}")
            if own is None or not known:
                is_right = own is None and not known
            else:
                # Power and clocks move: ours, asked between two looks of nvidia-smi, lies between those two,
                # up to rounding.
                is_right = min(known) - value.tolerance <= own <= max(known) + value.tolerance
            if not is_right:
                wrong.append(f"GPU {sample.index} {value.query}: {own}, of nvidia-smi {theirs}")
    return wrong


def sampler(folder: Path, device: str) -> str:
    """Every GPU sampled six times; a crash of the driver's library is named."""
    if device == "cpu" and probe_all()[0] is None:
        raise StepSkipped("there is no GPU to sample, and DEVICE is cpu")
    command = ["-X", "faulthandler", "-m", "monitoring.gpu_monitor", "--gpu", "all", "--interval", "0.2"]
    logs = folder / "gpu_logs"
    code = subprocess.run(
        [sys.executable, *command, "--samples", "6", "--log-dir", str(logs)], cwd=ROOT, check=False
    ).returncode
    if code:
        raise StepFailed(f"python -m monitoring.gpu_monitor ended with {code}")
    return f"six samples of every GPU, in {logs}"


def peak(folder: Path, device: str) -> str:
    """How fast matrices are multiplied beside the table of peaks, which MFU goes by."""
    import torch

    from kharness.training.determinism import set_tf32

    name = torch.cuda.get_device_name(0)
    known = device_peak(name)
    found, wrong = [], []
    for called, dtype in (("bfloat16", torch.bfloat16), ("tf32", torch.float32), ("float32", torch.float32)):
        set_tf32(torch.device("cuda", 0), called == "tf32")
        rate = _products_per_second(dtype) * 2 * SIZE**3
        highest = known.flops.get(called) if known is not None else None
        share = "" if highest is None else f" ({rate / highest:.0%} of {highest / 1e12:g})"
        found.append(f"{called} {rate / 1e12:.1f} TFLOP/s{share}")
        if highest is not None and rate > highest:
            wrong.append(f"{called} is faster than the table says")
    if wrong:
        raise StepFailed(f"{name}: {'; '.join(wrong)}: {', '.join(found)}")
    return f"{name}: {', '.join(found)}" + ("" if known is not None else "; not in the table")


def energy(folder: Path, device: str) -> str:
    """The counter of energy beside the power that was sampled, of a GPU that multiplies matrices."""
    import torch

    source, over = _sampler(), threading.Event()
    first = torch.cuda.get_device_properties(0).uuid
    samples: list[tuple[float, GpuSample]] = []

    def sample() -> None:
        while not over.wait(0.1):
            own = [it for it in source.sample() if str(first) in str(it.uuid)]
            samples.extend((time.monotonic(), it) for it in own)

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    until = time.monotonic() + LOAD_SECONDS
    while time.monotonic() < until:
        _products_per_second(torch.bfloat16)
    over.set()
    thread.join()
    return compared_energy(samples)


def compared_energy(samples: Sequence[tuple[float, GpuSample]]) -> str:
    """Compare the rise of the energy counter with the power integrated by the trapezoidal rule; samples with
    seconds.
    """
    counted = [it.energy_counter_joules for _, it in samples if it.energy_counter_joules is not None]
    powers = [(at, it.power_draw_watts) for at, it in samples if it.power_draw_watts is not None]
    if len(counted) < 2 or len(powers) < 2:
        raise StepSkipped("the driver reports no counter of energy, or no power")
    joules = counted[-1] - counted[0]
    integral = sum((b - a) * (x + y) / 2 for (a, x), (b, y) in pairwise(powers))
    said = f"counter {joules:,.0f} J, power {integral:,.0f} J over {powers[-1][0] - powers[0][0]:.1f} s"
    if abs(joules - integral) > ENERGY_TOLERANCE * integral:
        raise StepFailed(said)
    return said


def tests(folder: Path, device: str) -> str:
    """Every test that needs a GPU; it says why it skipped one."""
    said = _tested(folder, "tests", "-n", "0", "-m", "gpu", "-rs")
    if device == "cuda" and "passed" not in said:
        raise StepFailed(f"no test ran: {said}")
    return said


def suite(folder: Path, device: str) -> str:
    """All other tests."""
    if device == "cpu":
        raise StepSkipped("a rehearsal does not repeat make check")
    return _tested(folder, "suite", "-m", "not gpu")


def _tested(folder: Path, name: str, *flags: str) -> str:
    output = folder / f"{name}.out"
    command = [sys.executable, "-m", "pytest", *flags, "tests"]
    with output.open("w") as file:
        code = subprocess.run(command, cwd=ROOT, stdout=file, stderr=file, check=False).returncode
    text = output.read_text()
    print(text)
    last = next((line for line in reversed(text.splitlines()) if " in " in line), "no summary")
    if code:
        raise StepFailed(f"pytest ended with {code}: {last}")
    return last.strip("= ")


def _sampler() -> Sampler:
    found, problems = probe_all()
    if found is None:
        raise StepFailed("no GPU can be sampled: " + "; ".join(problems))
    return found


def _products_per_second(dtype: torch.dtype) -> float:
    """Return the seconds of a product of two square matrices of SIZE, by the first GPU's own clock."""
    import torch

    one, other = (torch.randn(SIZE, SIZE, device="cuda:0", dtype=dtype) for _ in range(2))
    seconds = 0.0
    for count in (3, PRODUCTS):  # the first ones warm up
        begin = POOL.mark("cuda:0", timing=True)
        for _ in range(count):
            torch.mm(one, other)
        end = POOL.mark("cuda:0", timing=True)
        end.wait()
        seconds = begin.seconds_until(end)
    return PRODUCTS / seconds


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:  # [N/A], [Not Supported]
        return None
