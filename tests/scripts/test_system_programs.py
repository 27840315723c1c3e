"""`make check` and the system's programs: it names the line that installs them, and types it on request."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from types import ModuleType

import pytest

from kharness.config.errors import ConfigError

LINE = "apt-get install -y --no-install-recommends tmux prometheus"
SKIPPED = [
    "check: skipping the dashboard: tmux is not installed",
    "check: skipping the exporter: prometheus is not installed",
]


@pytest.fixture
def programs(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, on a system that lacks two programs, whose apt-get only notes what it is called with."""
    spec = importlib.util.spec_from_file_location("system_programs", root / "scripts/system_programs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    program(tmp_path / "bin/apt-get", 'echo "$DEBIAN_FRONTEND $0 $*" >> "$NOTED"')
    program(tmp_path / "bin/sudo", 'echo "sudo $*" >> "$NOTED"')
    monkeypatch.setenv("PATH", f"{tmp_path}/bin")
    monkeypatch.setenv("NOTED", str(tmp_path / "noted"))
    monkeypatch.setattr(
        module,
        "SYSTEM_PROGRAMS",
        {"tmux": ("tmux", "the dashboard"), "promtool": ("prometheus", "the exporter")},
    )
    monkeypatch.setattr(module.os, "geteuid", lambda: 0)
    return module


def program(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def noted(tmp_path: Path) -> list[str]:
    file = tmp_path / "noted"
    return file.read_text().replace(f"{tmp_path}/bin/", "").splitlines() if file.exists() else []


@pytest.mark.parametrize("variables", [{}, {"INSTALL": "n"}])
def test_nothing_is_installed_unasked(
    programs: ModuleType, tmp_path: Path, variables: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    environ = {**os.environ, "CI": "false"}
    assert programs.complete(variables, environ) is True
    assert noted(tmp_path) == []
    assert capsys.readouterr().out.splitlines() == [
        *SKIPPED,
        f"check: to test that as well: {LINE}",
        "check: INSTALL=y types that line for you",
    ]


@pytest.mark.parametrize(("variables", "ci"), [({"INSTALL": "y"}, ""), ({}, "true")])
def test_asked_for_it_is_installed(
    programs: ModuleType,
    tmp_path: Path,
    variables: dict[str, str],
    ci: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    environ = {**os.environ, "CI": ci}
    made = [f"{tmp_path}/bin/{name}" for name in programs.SYSTEM_PROGRAMS]
    text = (tmp_path / "bin/apt-get").read_text()
    program(tmp_path / "bin/apt-get", f"{text}\n/bin/cp $0 {made[0]}\n/bin/cp $0 {made[1]}")
    assert programs.complete(variables, environ) is True
    assert noted(tmp_path) == [f"noninteractive {LINE}"]
    assert capsys.readouterr().out.splitlines() == [f"check: {LINE}"]


def test_ci_without_the_programs_is_incomplete(
    programs: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert programs.complete({}, {**os.environ, "CI": "true"}) is False
    assert noted(tmp_path) == [f"noninteractive {LINE}"]
    assert capsys.readouterr().out.splitlines() == [f"check: {LINE}", *SKIPPED]


def test_someone_who_is_not_root_installs_by_sudo(
    programs: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(programs.os, "geteuid", lambda: 1000)
    programs.complete({"INSTALL": "y"}, {**os.environ, "CI": ""})
    assert noted(tmp_path) == [f"sudo {LINE}"]
    assert capsys.readouterr().out.splitlines()[0] == f"check: sudo {LINE}"


def test_a_system_without_apt_get_is_told_so(programs: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "bin/apt-get").unlink()
    with pytest.raises(ConfigError, match="INSTALL=y needs apt-get, and root or sudo") as refused:
        programs.complete({"INSTALL": "y"}, os.environ)
    assert refused.value.hint == "install tmux prometheus by this system's own means"


def test_an_installation_that_fails_ends_the_check(programs: ModuleType, tmp_path: Path) -> None:
    program(tmp_path / "bin/apt-get", f"{(tmp_path / 'bin/apt-get').read_text()}exit 100")
    with pytest.raises(ConfigError, match=f"^{LINE} failed$"):
        programs.complete({"INSTALL": "y"}, {**os.environ, "CI": ""})
    assert noted(tmp_path) == [f"noninteractive {line}" for line in (LINE, "apt-get update", LINE)]
