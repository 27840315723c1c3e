"""How a model's train.py begins, before it imports torch and the modules beside it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from kharness.config.options import check_flags


def begin_script(file: str, name: str, *, about: str | None) -> Path:
    """The root of the checkout in which MODEL/train.py lies, by its `__file__`, `__name__` and `__doc__`.

    The model's folder becomes importable as the package it is. As the program that runs (`__main__`) it
    exits here with what is wrong with its flags, or with its help: importing torch takes seconds.
    """
    folder = Path(file).resolve().parent
    _import_package(folder)
    if name == "__main__":
        check_flags(root=folder.parent, model=folder.name, about=about)
    return folder.parent


def _import_package(folder: Path) -> None:
    """`python lenet5/train.py` has Python look for modules in lenet5/, not for lenet5 in the folder above it.

    So the package is found here, beside the script: in its own checkout, whatever the environment, also in
    processes that are forked or spawned. A root on PYTHONPATH could be that of another checkout.
    """
    if folder.name in sys.modules:
        return
    spec = importlib.util.spec_from_file_location(
        folder.name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None
    assert spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules[folder.name] = package
    spec.loader.exec_module(package)
