"""JOBS=, LAUNCHER= and their like for a matrix that has begun."""

from __future__ import annotations

from pathlib import Path

import pytest

from kharness.config.errors import ConfigError
from kharness.matrix.planning.settings import with_command_line

KCONFIG = """
choice
	prompt "Launcher"
	help
		Affects: machine, matrix

config LAUNCHER_LOCAL
	bool "Here"

config LAUNCHER_QUEUE
	bool "In a queue"

endchoice

config LAUNCHER
	string
	default "local" if LAUNCHER_LOCAL
	default "queue" if LAUNCHER_QUEUE

config LAUNCHER_LOCAL_FORK_SERVER
	bool "Fork"
	default y
	help
		Affects: machine, matrix

config MATRIX_CELLS_PER_JOB
	int "Cells of a job"
	default 1
	depends on LAUNCHER_QUEUE
	help
		Affects: machine, matrix

config LAUNCHER_QUEUE_GPUS
	int "GPUs of a job of several cells"
	default 0
	depends on LAUNCHER_QUEUE && MATRIX_CELLS_PER_JOB != 1
	help
		Affects: machine, matrix

config LAUNCHER_QUEUE_NAME
	string "Name of the queue"
	default "long"
	depends on LAUNCHER_QUEUE
	help
		Affects: machine, matrix
"""
PLANNED = {"LAUNCHER": "local", "LAUNCHER_LOCAL": True, "LAUNCHER_LOCAL_FORK_SERVER": False, "MATRIX_JOBS": 2}


@pytest.mark.parametrize(
    ("variables", "changed"),
    [
        ({}, {}),
        ({"RUN": "results/latest"}, {}),
        # as Kconfig has them, which the defaults of the launcher's module need not be
        ({"LAUNCHER": "queue"}, {"LAUNCHER_QUEUE_NAME": "long"}),
        (
            {"LAUNCHER": "queue", "CONFIG_LAUNCHER_QUEUE_NAME": "short"},
            {"LAUNCHER_QUEUE_NAME": "short"},
        ),
    ],
)
def test_another_launcher_comes_with_its_options(
    tmp_path: Path, variables: dict[str, str], changed: dict[str, object]
) -> None:
    (tmp_path / "Kconfig").write_text(KCONFIG)
    if changed:
        changed = {**changed, "LAUNCHER": "queue", "LAUNCHER_QUEUE": True}
    assert with_command_line(PLANNED, variables, tmp_path) == {**PLANNED, **changed}


def test_options_of_a_launcher_that_depend_on_others_of_the_matrix(tmp_path: Path) -> None:
    """Several cells of a job are known of the matrix; of another launcher they are nothing."""
    (tmp_path / "Kconfig").write_text(KCONFIG)
    queued = {"LAUNCHER": "queue", "LAUNCHER_QUEUE": True, "MATRIX_JOBS": 2, "MATRIX_CELLS_PER_JOB": 4}
    asked = {"CONFIG_LAUNCHER_QUEUE_GPUS": "2"}
    assert with_command_line(queued, asked, tmp_path) == {**queued, "LAUNCHER_QUEUE_GPUS": 2}
    again = with_command_line(queued, {**asked, "LAUNCHER": "queue"}, tmp_path)
    assert (again["LAUNCHER_QUEUE_GPUS"], again["MATRIX_CELLS_PER_JOB"]) == (2, 4)
    assert with_command_line(queued, {"LAUNCHER": "local"}, tmp_path)["LAUNCHER"] == "local"
    with pytest.raises(ConfigError, match="LAUNCHER_QUEUE_GPUS=2 has no effect"):
        with_command_line({**queued, "MATRIX_CELLS_PER_JOB": 1}, asked, tmp_path)
