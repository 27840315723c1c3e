"""pip's configuration, which is read without pip, is what pip takes it for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

# The options that uv is given, as the command that pip is would parse them.
BY_PIP = """\
import json
from pip._internal.commands import create_command
taken = create_command("install").parser.get_default_values()
words = {"index-url": taken.index_url, "cert": taken.cert, "find-links": " ".join(taken.find_links)}
print(json.dumps({**words, "extra-index-url": " ".join(taken.extra_index_urls), "no-index": taken.no_index}))
"""
BY_US = """\
import json
from kharness.environment.pip_settings import pip_settings
print(json.dumps(pip_settings()))
"""


@pytest.mark.parametrize("names_a_file", [False, True])
def test_they_are_those_that_pip_takes(root: Path, tmp_path: Path, names_a_file: bool) -> None:
    """Every place says what another says too."""
    files = {
        "site/a/pip/pip.conf": "[install]\nindex-url = http://a\n[global]\ncert = /a\nno-index = no",
        "site/b/pip/pip.conf": "[global]\nindex-url = http://global.b\nextra_index_url =\n  http://b.1\n  http://b.2",
        ".pip/pip.conf": "[global]\nfind-links = /home/a /home/b\ncert = /home",
        "config/pip/pip.conf": "[freeze]\ncert = /freeze\n[install]\n--CERT = /config\nextra-index-url = http://c",
        "named.conf": "[global]\nextra-index-url = http://named\nno-index = yes",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "XDG_"))}
    environment = {
        **kept,
        "HOME": str(tmp_path),
        "XDG_CONFIG_DIRS": f"{tmp_path}/site/a:{tmp_path}/site/b:{tmp_path}/none",
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "PIP_FIND_LINKS": "/variable",
        "PIP_INDEX_URL": "",
        "PYTHONPATH": str(root / "lib"),
    }
    if names_a_file:
        environment["PIP_CONFIG_FILE"] = str(tmp_path / "named.conf")
    taken, ours = (
        json.loads(
            subprocess.run(
                [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
            ).stdout
        )
        for code in (BY_PIP, BY_US)
    )
    read = {name: " ".join(ours.get(name, "").split()) for name in taken}
    assert read | {"no-index": read["no-index"] == "yes"} == taken
    expected = "http://named" if names_a_file else "http://c"
    assert (read["index-url"], read["extra-index-url"]) == ("http://a", expected)
