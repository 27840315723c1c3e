"""The small shell scripts answer as the experiment tracking document says, by exact tokens."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kharness.config.project_name import checksum

from ..simulated_nvml.simulated_nvml import SimulatedNvml


def run(root: Path, script: str, *argv: str, **environment: str) -> tuple[int, str]:
    result = subprocess.run(
        [root / "scripts" / script, *argv],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return result.returncode, result.stdout


@pytest.mark.parametrize(
    ("name", "trackers", "answer"),
    [
        ("wandb", "wandb", "y"),
        ("wandb", "both", "y"),
        ("trackio", "both", "y"),
        ("tensorboard", "both", "n"),
        ("tensorboard", "both,tensorboard", "y"),
        ("wandb", "tensorboard,both", "y"),
        ("wandb", "bothx", "n"),
        ("wandb", "wandb,trackio", "y"),
        ("trackio", "wandb,trackio", "y"),
        ("wandb", "none", "n"),
        ("wandb", "", "n"),
        ("wandb", "wandbx", "n"),
        ("wandb", "mywandb", "n"),
        ("wand", "wandb", "n"),
        ("wan*", "wandb", "n"),
        ("wandb", "*", "n"),
        ("wandb", "x; touch f", "n"),
    ],
)
def test_tracker_is_enabled_only_by_its_exact_name(root: Path, name: str, trackers: str, answer: str) -> None:
    assert run(root, "check-tracker-enabled.sh", name, trackers) == (0, f"{answer}\n")


def test_tracker_without_a_list_is_not_enabled(root: Path) -> None:
    assert run(root, "check-tracker-enabled.sh", "wandb") == (0, "n\n")


@pytest.mark.parametrize("argv", [[], [""], ["a,b", "a,b"], ["a", "b", "c"]])
def test_tracker_question_that_is_none_is_refused(root: Path, argv: list[str]) -> None:
    assert run(root, "check-tracker-enabled.sh", *argv) == (2, "")


@pytest.mark.parametrize(
    ("environment", "answer"),
    [
        ({"KHARNESS_MAKE_VARS": "TRACKER O", "TRACKER": "wandb"}, "y"),
        ({"KHARNESS_MAKE_VARS": "O TRACKER", "TRACKER": ""}, "y"),
        ({"KHARNESS_MAKE_VARS": "TRACKERS MY_TRACKER", "TRACKER": "wandb"}, "n"),
        ({"KHARNESS_MAKE_VARS": "", "TRACKER": "wandb"}, "n"),
        ({"TRACKER": "wandb"}, "y"),
        ({"TRACKER": ""}, "n"),
        ({}, "n"),
    ],
)
def test_variable_counts_as_set_on_the_command_line(
    root: Path, environment: dict[str, str], answer: str
) -> None:
    assert run(root, "check-cli-set-var.sh", "TRACKER", **environment) == (0, f"{answer}\n")


@pytest.mark.parametrize("argv", [[], ["A B"], ["$(touch f)"], ["-x"]])
def test_variable_name_that_is_none_is_refused(root: Path, argv: list[str]) -> None:
    assert run(root, "check-cli-set-var.sh", *argv) == (2, "")


def test_project_name_is_the_one_that_configurations_get(root: Path) -> None:
    code, out = run(root, "generate-project-name.sh", "gpt2", "tracking")
    assert (code, out) == (0, f"gpt2-{checksum(root)}\n")
    assert re.fullmatch(r"gpt2-[0-9a-f]{5}\n", out)
    assert run(root, "generate-project-name.sh", "resnet50") == (0, f"resnet50-{checksum(root)}\n")


@pytest.mark.parametrize("argv", [[], [""], ["gpt2", "nonsense"], ["a", "tracking", "b"]])
def test_project_name_without_a_model_is_refused(root: Path, argv: list[str]) -> None:
    assert run(root, "generate-project-name.sh", *argv) == (2, "")


def test_first_run_on_a_gpu_machine_samples_its_gpus(
    root: Path, tmp_path: Path, simulated_nvml: SimulatedNvml
) -> None:
    simulated_nvml.write("gpus 2")
    about = {**simulated_nvml.environment(), "PYTHON": sys.executable, "OUT": str(tmp_path)}

    def sampled() -> tuple[int, str]:
        return run(root, "gpu_first_run.sh", "sampler", **about)

    code, said = sampled()
    assert (code, said.splitlines()[1], said.splitlines()[-1]) == (
        *(0, "== sampler (at most 60 s)", f"nothing failed; runs are in {tmp_path}"),
    )
    assert said.count("GPU 1 Simulated H100 80GB ") == 6
    (tmp_path / "results.json").unlink()  # else it goes on after the step that held
    simulated_nvml.write("gpus 0")
    code, said = sampled()
    assert (code, said.splitlines()[-1]) == (1, "did not hold: sampler")


def test_first_run_refuses_a_step_that_it_does_not_have(root: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [root / "scripts/gpu_first_run.sh", "machine", "bit"],
        env={**os.environ, "PYTHON": sys.executable, "OUT": str(tmp_path / "out")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr, (tmp_path / "out").exists()) == (
        2,
        "",
        "error: unknown step bit\n"
        "hint: one of machine equal sampler peak energy bits waits pace faults views matrix tests suite\n",
        False,
    )
