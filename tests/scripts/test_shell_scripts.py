"""The small shell scripts answer as the experiment tracking document says, by exact tokens."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from kharness.config.project_name import checksum


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
