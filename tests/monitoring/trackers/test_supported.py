"""Packages whose private interface is used: which releases were tested, and which is another."""

from __future__ import annotations

import importlib.metadata
import tomllib
from pathlib import Path

import pytest

from monitoring.errors import MissingPackage
from monitoring.follower import follower_options
from monitoring.trackers import ANY_VERSION, require_package, trackio, untested_release, wandb

MODULES = {"trackio": trackio, "wandb": wandb}


def test_the_bounds_are_those_of_the_extras(root: Path) -> None:
    extras = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    bounds = {name: extras[name] for name in MODULES}
    assert bounds == {name: [f"{name}{module.SUPPORTED}"] for name, module in MODULES.items()}


@pytest.mark.parametrize("name", MODULES)
def test_the_pinned_release_is_supported(name: str) -> None:
    MODULES[name].check(follower_options(name, {}))


@pytest.mark.parametrize(
    ("version", "tested"),
    [
        ("0.30.9", False),
        ("0.31.0", True),
        ("0.31.12", True),
        ("0.32.0", False),
        ("0.32.0rc1", False),
        ("1.0", False),
    ],
)
def test_another_release_is_known_by_its_version(
    version: str, tested: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = f"wandb-{version}.dist-info"
    (tmp_path / package).mkdir()
    (tmp_path / package / "METADATA").write_text(f"Metadata-Version: 2.1\nName: wandb\nVersion: {version}\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert importlib.metadata.version("wandb") == version
    wandb.check(follower_options("wandb", {}))
    assert untested_release("wandb", wandb.SUPPORTED) == (None if tested else version)
    monkeypatch.setenv(ANY_VERSION, "y")
    assert untested_release("wandb", wandb.SUPPORTED) is None


def test_a_package_that_is_missing_is_named_with_its_bounds() -> None:
    with pytest.raises(MissingPackage) as caught:
        require_package("no_such_package", supported=">=1.2,<1.3")
    assert (str(caught.value), caught.value.hint) == (
        "no_such_package is not installed",
        "pip install 'no_such_package>=1.2,<1.3'",
    )
