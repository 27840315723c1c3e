"""Fixtures shared by all tests: the repository's root, and an environment nobody's settings leak into."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout under test."""
    return ROOT


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """No test sees the developer's tracker logins, matrix variables or Trackio database."""
    for name in (
        "O",
        "TRACKER",
        "GPU_MONITOR",
        "DEFCONFIG",
        "KHARNESS_MAKE_VARS",
        "MAKEFLAGS",
        "MAKELEVEL",
        "WANDB_API_KEY",
        "WANDB_MODE",
    ):
        monkeypatch.delenv(name, raising=False)
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("TRACKIO_DIR", str(home / "trackio"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(home / "wandb-config"))
    monkeypatch.setenv("WANDB_CACHE_DIR", str(home / "wandb-cache"))
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    monkeypatch.setenv("NETRC", str(home / "netrc"))
