"""`make requirements` pinned every package with hashes, each part whole, and its size is known."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from packaging.markers import Marker

from kharness.environment.locks import FOLDER, InstallError, about, is_for, lock_of, normalized, pinned, sizes
from kharness.environment.parts import _named

PARTS = sorted(path.stem for path in Path(__file__).parents[2].glob("requirements/*.in"))


@pytest.mark.parametrize("part", PARTS)
def test_every_named_package_is_pinned(part: str) -> None:
    there = pinned(lock_of(part)).keys() | pinned(lock_of("run")).keys() | pinned(lock_of("torch")).keys()
    if part == "test":  # what all other parts bring is there before
        there |= {name for other in PARTS for name in pinned(lock_of(other))}
    assert _named(part) - there == set()


@pytest.mark.parametrize("part", [*PARTS, "cuda"])
def test_every_pin_has_hashes(part: str) -> None:
    text = lock_of(part).read_text()
    blocks = re.findall(
        r"^(\S+)==(\S+)(?: ; [^\\\n]+)? \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)",
        text,
        re.MULTILINE,
    )
    assert {normalized(name): version for name, version, _ in blocks} == pinned(lock_of(part))


def markers() -> set[str]:
    """Those of all locks."""
    text = "".join(path.read_text() for path in FOLDER.glob("*.txt"))
    return {found.strip() for found in re.findall(r"^\S+==\S+ ; ([^\\\n]+)", text, re.MULTILINE)}


@pytest.mark.parametrize("marker", sorted({*markers(), "python_version >= '3.12'"}))
@pytest.mark.parametrize("minor", range(11, 15))
def test_a_marker_is_read_as_pip_reads_it(marker: str, minor: int) -> None:
    """Set-up, which a bare Python runs, takes for missing what pip would bring."""
    version = {"python_version": f"3.{minor}", "python_full_version": f"3.{minor}.0"}
    assert is_for((3, minor), marker) == Marker(marker).evaluate(version)


def test_a_marker_that_set_up_cannot_read_is_refused() -> None:
    with pytest.raises(InstallError, match="unknown marker: sys_platform == 'win32'"):
        is_for((3, 11), "sys_platform == 'win32'")


def test_parts_agree_on_versions() -> None:
    pins: dict[str, set[str]] = {}
    for part in [*PARTS, "cuda", "torch"]:
        for name, version in pinned(lock_of(part)).items():
            pins.setdefault(name, set()).add(version)
    assert {name: versions for name, versions in pins.items() if len(versions) > 1} == {}


def test_a_tracker_is_in_no_other_part() -> None:
    """The default brings none of them, and the pre-release that one needs comes only with it."""
    default = pinned(lock_of("run")).keys()
    assert {"trackio", "wandb", "tensorboard", "mlflow-skinny", "optuna", "cwevals"} & default == set()
    assert [part for part in PARTS if "cwevals" in pinned(lock_of(part))] == ["wandb"]


def test_every_size_is_known(root: Path) -> None:
    sizes = json.loads((root / "requirements/sizes.json").read_text())
    names = {name for part in [*PARTS, "cuda", "torch"] for name in pinned(lock_of(part))}
    assert names - sizes.keys() == set()
    assert all(0 < fetched <= unpacked for fetched, unpacked in sizes.values())
    assert sizes["torch+cpu"][0] < sizes["torch"][0]


def test_the_documentation_says_how_large_each_part_is(root: Path) -> None:
    page = (root / "docs/environment.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \|.*\| (\d+ [KM]B) \|$", page, re.MULTILINE))
    parts = sorted(set(PARTS) - {"run", "config", "dashboard"})
    assert {part: about(pinned(lock_of(part)), sizes()).split(" to ")[0] for part in parts} == {
        part: f"about {size}" for part, size in sorted(rows.items())
    }
    default = pinned(lock_of("run"))
    assert f"brings {len(default)} packages into .venv: {about(default, sizes())}" in page
    cuda = ["torch", *pinned(lock_of("cuda"))]
    assert about(cuda, sizes()) in page
    assert about(["torch+cpu"], sizes()) in page
