"""Settings of a report without a config.py."""

from __future__ import annotations

from pathlib import Path

from kharness.config.tree import Tree
from kharness.report.settings import SYMBOLS, ReportSettings, read_settings


def test_defaults_are_those_of_the_option_tree(root: Path, tmp_path: Path) -> None:
    """A wheel has no Kconfig, and a foreign run no config.py: the report of both is judged by these."""
    symbols = Tree.load(root).kconf.syms
    stored = {name: symbols[name].str_value for name in SYMBOLS}
    assert read_settings(tmp_path, {"settings": stored}, {}) == ReportSettings()
