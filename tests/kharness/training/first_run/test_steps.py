"""Steps of the first run draw the right conclusions from numbers; a short rehearsal on a CPU runs them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from kharness.training.first_run import trainings
from kharness.training.first_run.devices import compared_energy, differences
from kharness.training.first_run.steps import MINUTES, STEPS
from kharness.training.first_run.timed import RESULTS, StepFailed, StepSkipped
from monitoring.gpu.sample import GpuSample

from ....few_digits import copy, environment_of
from ....warm_python import WarmPython

SMI = {
    "uuid": "GPU-1",
    "name": "NVIDIA H100 80GB HBM3",
    "memory.total": "81559",
    "memory.used": "1024",
    "temperature.gpu": "40",
    "power.draw": "120.5",
    "utilization.gpu": "3",
    "clocks.sm": "1980",
}
OURS = GpuSample(
    0,
    "GPU-1",
    "NVIDIA H100 80GB HBM3",
    "nvidia",
    "ok",
    memory_total_mb=81559.0,
    memory_used_mb=1030.0,
    temperature_celsius=41.0,
    power_draw_watts=131.0,
    utilization_percent=0.0,
    clock_sm_mhz=1965.0,
)


def test_samples_equal_nvidia_smi_within_what_changes_between_looks() -> None:
    later = {**SMI, "temperature.gpu": "41", "power.draw": "[N/A]"}
    assert differences({"GPU-1": SMI}, {"GPU-1": OURS}, {"GPU-1": later}) == []
    wrong = OURS._replace(name="another", memory_total_mb=81920.0, temperature_celsius=None)
    assert differences({"GPU-1": SMI}, {"GPU-1": wrong}, {"GPU-1": later}) == [
        "GPU-1: name another, of nvidia-smi NVIDIA H100 80GB HBM3",
        "GPU 0 memory.total: 81920.0, of nvidia-smi [81559.0, 81559.0]",
        "GPU 0 temperature.gpu: None, of nvidia-smi [40.0, 41.0]",
    ]
    assert differences({"GPU-1": SMI}, {}, {"GPU-1": SMI}) == ["GPUs [], of nvidia-smi ['GPU-1']"]
    absent = {**SMI, "power.draw": "[N/A]"}
    without = OURS._replace(power_draw_watts=None)
    assert differences({"GPU-1": absent}, {"GPU-1": without}, {"GPU-1": absent}) == []


def test_the_counter_of_energy_is_held_to_the_power_that_was_sampled() -> None:
    def samples(joules_per_second: float) -> list[tuple[float, GpuSample]]:
        return [
            (
                at,
                OURS._replace(
                    power_draw_watts=400.0 + 100.0 * (at % 2), energy_counter_joules=joules_per_second * at
                ),
            )
            for at in range(11)
        ]

    assert compared_energy(samples(450.0)) == "counter 4,500 J, power 4,500 J over 10.0 s"
    with pytest.raises(StepFailed, match="counter 9,000 J, power 4,500 J"):
        compared_energy(samples(900.0))
    with pytest.raises(StepSkipped):
        compared_energy([(0.0, OURS), (1.0, OURS)])


def test_a_training_that_ends_before_it_is_killed_shows_no_resume(tmp_path: Path) -> None:
    """Each of the tries has ended already, as one on a fast machine does."""
    for place in range(trainings.TRIES):
        run = tmp_path / f"resumed-{trainings.EPOCHS * 2**place}"
        run.mkdir()
        lines: list[dict[str, object]] = [
            {"event": "checkpoint", "global_step": 85},
            {"event": "end", "status": "complete"},
        ]
        text = [json.dumps({"time": 1.0, "seq": i, "attempt": 1, **it}) for i, it in enumerate(lines, 1)]
        (run / "metrics.jsonl").write_text("".join(f"{line}\n" for line in text))
    with pytest.raises(StepFailed, match="ended 4 times before it could be killed"):
        trainings.bits(tmp_path, "cpu")


def test_all_limits_are_little_more_than_the_time_for_all_steps() -> None:
    assert sum(step.limit for step in STEPS) == pytest.approx(60 * MINUTES, rel=0.01)


@pytest.fixture(scope="module")
def checkout(few_digits: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One whose trainings take a hundred digits unless they are told otherwise."""
    folder = copy(few_digits, tmp_path_factory.mktemp("first-run") / "checkout")
    with (folder / "defconfigs/default").open("a") as preset:
        preset.write("CONFIG_DATASET_FEW_DIGITS=y\n")
    return folder


def test_a_rehearsal_leaves_the_result_of_each_step_and_goes_on_from_there(
    checkout: Path, tmp_path: Path, warm_few: WarmPython
) -> None:
    """The script that begins it is another test's: tests/scripts/test_shell_scripts.py."""
    environment = {
        **environment_of(checkout),
        "DEVICE": "cpu",
        "EPOCHS": "16",
        "OUT": str(tmp_path / "out"),
    }

    def rehearsed(*steps: str) -> subprocess.CompletedProcess[str]:
        command = [checkout / "scripts/gpu_first_run.py", *steps, "--limit", "bits=600"]
        return warm_few.run(command, cwd=checkout, env=environment)

    done = rehearsed("bits", "machine", "peak")
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads((tmp_path / "out" / RESULTS).read_text())["steps"]
    assert [(name, it["result"]) for name, it in results.items()] == [
        ("machine", "ok"),
        ("peak", "skipped"),
        ("bits", "ok"),
    ]
    assert "once killed and resumed after step" in results["bits"]["said"]
    said = rehearsed("bits").stdout
    assert "== bits: ok before" in said
    assert said.splitlines()[-1] == f"nothing failed; runs are in {tmp_path / 'out'}"
