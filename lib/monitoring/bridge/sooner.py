"""Lets a process that a program waits for start sooner."""

from __future__ import annotations

import gc
import importlib.util
import sys
import threading

# Modules that others of the standard library import and hardly ever use: dataclasses (which orjson imports)
# the first one, which imports what reads Python itself; pathlib the other one.
LATER = ("inspect", "ipaddress")


def before_start() -> None:
    """Collect no garbage, as all that is made before the program runs stays; have LATER wait for a use."""
    gc.disable()
    for name in LATER:
        if name not in sys.modules:
            _import_later(name)


def after_start() -> None:
    """Collect garbage again, but look through nothing that is there."""
    gc.freeze()
    gc.enable()


def _import_later(name: str) -> None:
    """Have a module run its code when something in it is looked up.

    That of importlib.util.LazyLoader does so when another one imports it: the statement looks up `__spec__`.
    """
    spec = importlib.util.find_spec(name)
    if spec is None or spec.loader is None:
        return
    loader, module, once = spec.loader, importlib.util.module_from_spec(spec), threading.RLock()

    def look_up(attribute: str) -> object:
        with once:
            if vars(module).pop("__getattr__", None):
                loader.exec_module(module)
        return getattr(module, attribute)

    vars(module)["__getattr__"] = look_up
    sys.modules[name] = module
