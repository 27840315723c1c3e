"""Launchers: each module of this folder starts runs in one way.

A module defines `Options`, a frozen dataclass whose fields are read from the settings of the matrix
(`zygote` of local.py is LAUNCHER_LOCAL_ZYGOTE), and `open_launcher(options, say) -> Launcher`; `say` prints a
line for the user.
"""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from collections.abc import Callable, Mapping

from kharness.runs.errors import MatrixError
from kharness.runs.launch import Launcher


def launcher_names() -> list[str]:
    """The launchers there are, by file name."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))


def open_launcher(
    name: str, settings: Mapping[str, object], say: Callable[[str], None] = lambda _: None
) -> Launcher:
    """The launcher of that name with its options from `settings`; MatrixError if there is none."""
    if name not in launcher_names():
        raise MatrixError(f"LAUNCHER={name}: there is none", hint=f"one of {', '.join(launcher_names())}")
    module = importlib.import_module(f"{__name__}.{name}")
    own = dataclasses.fields(module.Options)
    fields = {field.name: f"LAUNCHER_{name}_{field.name}".upper() for field in own}
    options = {field: settings[symbol] for field, symbol in fields.items() if symbol in settings}
    launcher: Launcher = module.open_launcher(module.Options(**options), say)
    return launcher
