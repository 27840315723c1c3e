"""Packages whose private interface is used: which releases, and what another one is answered."""

from __future__ import annotations

import importlib.metadata
import tomllib
from pathlib import Path

import pytest

from monitoring.errors import MissingPackage
from monitoring.trackers import ANY_VERSION, require_package, trackio, wandb

MODULES = {"trackio": trackio, "wandb": wandb}


def test_the_bounds_are_those_of_the_extras(root: Path) -> None:
    extras = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    bounds = {name: extras[name] for name in MODULES}
    assert bounds == {name: [f"{name}{module.SUPPORTED}"] for name, module in MODULES.items()}


@pytest.mark.parametrize("name", MODULES)
def test_the_pinned_release_is_supported(name: str) -> None:
    MODULES[name].check(MODULES[name].Options())


@pytest.mark.parametrize("version", ["0.30.9", "0.32.0", "0.32.0rc1", "1.0"])
def test_another_release_is_refused_with_what_to_install(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = f"wandb-{version}.dist-info"
    (tmp_path / package).mkdir()
    (tmp_path / package / "METADATA").write_text(f"Metadata-Version: 2.1\nName: wandb\nVersion: {version}\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert importlib.metadata.version("wandb") == version
    with pytest.raises(MissingPackage) as caught:
        wandb.check(wandb.Options())
    assert str(caught.value) == (
        f"wandb {version} is not supported: kharness uses what may change between its releases"
    )
    assert (
        caught.value.hint == "pip install 'wandb>=0.31,<0.32'; MONITORING_ANY_VERSION=y tries it all the same"
    )
    monkeypatch.setenv(ANY_VERSION, "y")
    wandb.check(wandb.Options())


def test_a_package_that_is_missing_is_named_with_its_bounds() -> None:
    with pytest.raises(MissingPackage) as caught:
        require_package("no_such_package", supported=">=1.2,<1.3")
    assert (str(caught.value), caught.value.hint) == (
        "no_such_package is not installed",
        "pip install 'no_such_package>=1.2,<1.3'",
    )
