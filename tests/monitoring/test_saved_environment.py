"""environment.json: every installed package, and no secret, of a trainer that never waits for it."""

from __future__ import annotations

import json
import re
import sys
from importlib import metadata
from pathlib import Path

import pytest

from monitoring import Run
from monitoring.bridge.interpreter import interpreter_of
from monitoring.saved_environment import Installed, installed_packages, save_environment

from .conftest import wait_for_delivery


def test_packages_are_those_that_their_metadata_say() -> None:
    """Among several distributions of one name the first counts, as in an import."""
    said: dict[str, str] = {}
    for package in metadata.distributions():
        said.setdefault(re.sub(r"[-_.]+", "-", package.name).lower(), package.version)
    found = installed_packages(sys.path)
    assert found == said
    assert found["torch"] == metadata.version("torch")


def test_agent_writes_what_its_trainer_has(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MONITORING_HOST_NAME", "node0")
    monkeypatch.setenv("OF_THE_TRAINER", "1")
    monkeypatch.setenv("MY_TOKEN", "hunter2")
    with Run(run_dir, name="n", project="p", config={}):
        pass
    wait_for_delivery(run_dir)
    text = (run_dir / "environment.json").read_text()
    found = json.loads(text)
    assert [found[name] for name in ("attempt", "host", "executable")] == [1, "node0", sys.executable]
    assert found["packages"] == installed_packages(sys.path)
    assert (found["variables"]["OF_THE_TRAINER"], "MY_TOKEN" in found["left_out"]) == ("1", True)
    assert "hunter2" not in text


def test_file_is_of_the_newest_attempt_and_written_once_each(tmp_path: Path) -> None:
    path = tmp_path / "environment.json"
    written = []
    for attempt in (1, 1, 2):
        save_environment(tmp_path, {"attempt": attempt})
        written.append((json.loads(path.read_bytes())["attempt"], path.stat().st_ino))
    assert [attempt for attempt, _ in written] == [1, 1, 2]
    assert written[0] == written[1] != written[2]
    path.write_text("{")
    save_environment(tmp_path, {"attempt": 2})
    assert json.loads(path.read_bytes())["attempt"] == 2


def test_a_program_has_the_packages_of_the_python_that_runs_it(tmp_path: Path) -> None:
    (tmp_path / "site/Some_package-1.5.dist-info").mkdir(parents=True)
    texts = {
        "python3": f"""#!/bin/sh\necho '["3.99", "/the/python", ["{tmp_path}/site"]]'\n""",
        "torchrun": f"#!{tmp_path}/python3\n",
        "train": "#!/usr/bin/env -S python3 -u\n",
        "train.sh": "#!/bin/sh\nexit 1\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    commands = [["python3", "x.py"], ["torchrun", "x.py"], ["./train"], ["./train.sh"], ["none"]]
    python = str(tmp_path / "python3")
    found = [interpreter_of(command, tmp_path, environment) for command in commands]
    assert found == [python, python, python, None, None]
    save_environment(tmp_path, {"attempt": 1, "interpreter": python, "cwd": str(tmp_path)})
    saved = json.loads((tmp_path / "environment.json").read_bytes())
    assert {name: saved[name] for name in ("python", "executable", "packages")} == {
        "python": "3.99",
        "executable": "/the/python",
        "packages": {"some-package": "1.5"},
    }
    assert Installed.of(None, str(tmp_path)) == (None, None, {})
    assert Installed.of(str(tmp_path / "train.sh"), str(tmp_path)) == (None, str(tmp_path / "train.sh"), {})
