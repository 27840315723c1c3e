"""JOBS=, LAUNCHER= and their like for a matrix that has begun."""

from __future__ import annotations

from pathlib import Path

import pytest

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
