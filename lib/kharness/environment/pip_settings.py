"""pip's configuration, which uv reads none of."""

from __future__ import annotations

import configparser
import os
import sys
from collections.abc import Iterator
from pathlib import Path


def pip_settings() -> dict[str, str]:
    """Return what `pip install` is configured with, by option: of its files the later win, then PIP_….

    Read here, not by `pip config list`: a Python may be without pip, which starts for longer than uv takes.
    """
    sections: dict[str, dict[str, str]] = {"global": {}, "install": {}}
    for path in _files():
        parser = configparser.RawConfigParser()
        try:
            parser.read(path)
        except (UnicodeDecodeError, configparser.Error):
            continue  # pip would say so
        for section in sections.keys() & parser:
            sections[section] |= {_option(name): value for name, value in parser.items(section)}
    variables = {_option(name[4:]): value for name, value in os.environ.items() if name.startswith("PIP_")}
    found: dict[str, str] = {}
    for values in (sections["global"], sections["install"], variables):
        found |= {name: value for name, value in values.items() if value}
    return found


def _option(name: str) -> str:
    return name.lower().replace("_", "-").removeprefix("--")


def _files() -> Iterator[Path]:
    """Return those in which pip looks: of the machine, the user and this Python, and PIP_CONFIG_FILE."""
    named = os.environ.get("PIP_CONFIG_FILE")
    if named == os.devnull:
        return
    for place in (os.environ.get("XDG_CONFIG_DIRS", "").strip() or "/etc/xdg").split(os.pathsep):
        yield Path(place, "pip/pip.conf")
    yield Path("/etc/pip.conf")
    if not (named and os.path.exists(named)):
        yield Path.home() / ".pip/pip.conf"
        yield Path(os.environ.get("XDG_CONFIG_HOME", "").strip() or Path.home() / ".config", "pip/pip.conf")
    yield Path(sys.base_prefix, "pip.conf")
    if named:
        yield Path(named)
