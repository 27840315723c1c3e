"""Fixtures shared by all tests: the repository's root, and an environment nobody's settings leak into."""

from __future__ import annotations

import importlib.util
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
# What a developer's shell, or the make that runs the suite, may have in its environment.
FOREIGN = (
    "O",
    "TRACKER",
    "GPU_MONITOR",
    "DEFCONFIG",
    "KHARNESS_GOALS",
    "KHARNESS_MAKE_VARS",
    "MAKEFLAGS",
    "MAKELEVEL",
    "WANDB_API_KEY",
    "WANDB_MODE",
)


def pytest_configure() -> None:
    """A shell that runs the suite in the background has it ignore SIGINT, and so would all that it starts."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout under test."""
    return ROOT


@pytest.fixture(scope="session", autouse=True)
def nobodys_settings() -> Iterator[None]:
    """No test, and no fixture of a module, sees the developer's logins or what `make check` exports."""
    with pytest.MonkeyPatch.context() as patch:
        for name in FOREIGN:
            patch.delenv(name, raising=False)
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setenv("WANDB_ERROR_REPORTING", "false")
        yield


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A Trackio database and a W&B home of each test's own."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("TRACKIO_DIR", str(home / "trackio"))
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(home / "wandb-config"))
    monkeypatch.setenv("WANDB_CACHE_DIR", str(home / "wandb-cache"))
    monkeypatch.setenv("NETRC", str(home / "netrc"))


@pytest.fixture(scope="session")
def nvml_header(root: Path) -> Path:
    """The folder of NVIDIA's nvml.h, where there is a compiler that reads it."""
    if not shutil.which("gcc"):
        pytest.skip("gcc, which builds the simulated NVML, is not installed")
    folder: Path = _simulated_nvml(root).header_folder()
    return folder


@pytest.fixture(scope="session")
def nvml_library(root: Path, nvml_header: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The simulated libnvidia-ml.so.1, compiled once a session."""
    library: Path = _simulated_nvml(root).build(tmp_path_factory.mktemp("nvml"))
    return library


@pytest.fixture(scope="session")
def simulate_nvml(root: Path, nvml_library: Path) -> Callable[[Path], Any]:
    """A SimulatedNvml (tests/simulated_nvml/) whose script stands in the file that is named."""
    return lambda script: _simulated_nvml(root).SimulatedNvml(nvml_library, script)


@pytest.fixture
def simulated_nvml(simulate_nvml: Callable[[Path], Any], tmp_path: Path) -> Any:
    """One of this test: `.write("gpus 4", "gpu 2 state lost")`, `.environment()`."""
    return simulate_nvml(tmp_path / "nvml.txt")


def _simulated_nvml(root: Path) -> ModuleType:
    path = root / "tests/simulated_nvml/simulated_nvml.py"
    spec = importlib.util.spec_from_file_location("simulated_nvml", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
