"""The name of a host: who says it, and how it stands in a file's name."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from monitoring.host.name import host_name, in_file_names

# What asks the system for the host's name.
ASKING = {"platform.node", "platform.uname", "os.uname", "socket.gethostname"}


def test_environment_gives_a_host_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MONITORING_HOST_NAME", raising=False)
    assert host_name() == os.uname().nodename
    monkeypatch.setenv("MONITORING_HOST_NAME", "node1")
    assert host_name() == "node1"


@pytest.mark.parametrize("name", ["node1", "gpu-03.cluster.example", "ip_10_0_0_7"])
def test_name_that_can_be_a_files_stays(name: str) -> None:
    assert in_file_names(name) == name


def test_other_names_stay_apart_in_file_names() -> None:
    odd = ["a/b", "a_b", "a b", "", "ä", "n" * 65, "n" * 66]
    made = [in_file_names(name) for name in odd]
    assert len(set(made)) == len(odd)
    assert made[:2] == ["a_b-a7e861", "a_b"]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]{1,71}", name) for name in made)


def test_nobody_else_asks_for_the_hosts_name(root: Path, nodes: Callable[[Path], list[Any]]) -> None:
    found = {
        path.name
        for path in (root / "lib" / "monitoring").rglob("*.py")
        for node in nodes(path)
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ASKING
    }
    assert found == {"name.py"}
