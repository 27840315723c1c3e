"""Launchers: each module of this folder starts runs in one way.

A module defines `Options`, a frozen dataclass given from the settings of the matrix (`zygote` of local.py is
LAUNCHER_LOCAL_ZYGOTE), and `open_launcher(options, say) -> Launcher`; `say` prints a line for the user.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kharness.runs.errors import MatrixError
from kharness.runs.launch import Launcher
from monitoring.dropins import DropIns

LAUNCHERS = DropIns("launcher", "kharness.matrix.launchers", unknown=MatrixError, refused=MatrixError)


def open_launcher(
    name: str, settings: Mapping[str, object], say: Callable[[str], None] = lambda _: None
) -> Launcher:
    """The launcher of that name with its options from `settings`; MatrixError for an unknown one."""
    launcher: Launcher = LAUNCHERS.load(name).open_launcher(LAUNCHERS.options(name, settings), say)
    return launcher
