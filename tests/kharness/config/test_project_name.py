"""Project and run names from their templates."""

from __future__ import annotations

import hashlib
import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kharness.config.project_name import checksum, project_name, run_name

VALUES = {
    "MODEL": "lenet5",
    "OPTIMIZER": "adamw",
    "SEED": 3,
    "TRACKER_PROJECT": "{model}-{checksum}",
    "TRACKER_RUN_NAME": "{model}_{optimizer}_{timestamp}",
}
STARTED = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_checksum_is_five_hex_digits_of_host_address_and_folder(root: Path) -> None:
    host = os.uname().nodename.split(".")[0]
    listed = subprocess.run(["hostname", "-I"], capture_output=True, text=True, check=False).stdout.split()
    expected = {
        hashlib.md5(f"{host} {address} {root.name}".encode()).hexdigest()[:5]
        for address in [*listed, "127.0.0.1"]
    }
    assert checksum(root) in expected


def test_checksum_differs_between_folders(tmp_path: Path) -> None:
    assert checksum(tmp_path / "a") != checksum(tmp_path / "b")


def test_model_part_follows_the_model(root: Path) -> None:
    assert project_name(VALUES, root) == f"lenet5-{checksum(root)}"
    assert project_name({**VALUES, "MODEL": "gpt2"}, root) == f"gpt2-{checksum(root)}"


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("{model}_{optimizer}_{timestamp}", "lenet5_adamw_20260102T030405Z"),
        ("try-{seed}", "try-3"),
        ("plain", "plain"),
        ("{}", None),
        ("{modle}", None),
        ("{model.__class__}", None),
        ("a/b", None),
        ("..", None),
        ("", None),
        ("x" * 200, "x" * 200),
        ("x" * 201, None),
        ("ä" * 101, None),
        ("{model}" * 34, None),
    ],
)
def test_run_name_fills_fields_in_and_is_a_folder_name(root: Path, template: str, name: str | None) -> None:
    values = {**VALUES, "TRACKER_RUN_NAME": template}
    if name is None:
        with pytest.raises(
            ValueError, match=r"unknown field|cannot be the name of a folder|bytes, a run's name at most 200"
        ):
            run_name(values, root, STARTED)
    else:
        assert run_name(values, root, STARTED) == name


def test_braces_that_are_no_field_stay(root: Path) -> None:
    assert project_name({**VALUES, "TRACKER_PROJECT": "a}b{c"}, root) == "a}b{c"
