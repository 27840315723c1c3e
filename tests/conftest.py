"""Fixtures shared by all tests: the repository's root, and an environment nobody's settings leak into."""

from __future__ import annotations

import ast
import contextlib
import functools
import gc
import importlib
import itertools
import os
import shutil
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from kharness.config.places import OUTPUT

from . import few_digits as few_digits_checkout
from . import order
from .browser import Browser
from .made_once import made_once
from .simulated_nvml.simulated_nvml import LIBRARY, SimulatedNvml, build, header_folder
from .time_limit import pytest_collection_modifyitems as pytest_collection_modifyitems
from .time_limit import pytest_runtest_logreport as pytest_runtest_logreport
from .time_limit import pytest_runtest_protocol as pytest_runtest_protocol
from .time_limit import pytest_sessionfinish as pytest_sessionfinish
from .time_limit import pytest_xdist_node_collection_finished as pytest_xdist_node_collection_finished
from .warm_python import WarmPython

if TYPE_CHECKING:
    from .simulated_cuda import SimulatedCuda

ROOT = Path(__file__).resolve().parent.parent
# What a developer's shell, or the make that runs the suite, may have in its environment.
FOREIGN = (
    "M",
    "O",
    "TRACKER",
    "GPU_MONITOR",
    "CUBLAS_WORKSPACE_CONFIG",
    "DEFCONFIG",
    "KHARNESS_AT_LEAST",
    "KHARNESS_COUNTED",
    "KHARNESS_GOALS",
    "KHARNESS_MAKE_VARS",
    "KHARNESS_OUTSIDE",
    "KHARNESS_UNTIL",
    "MAKEFLAGS",
    "MAKELEVEL",
    "MLFLOW_TRACKING_URI",
    "WANDB_API_KEY",
    "WANDB_MODE",
)
# What scripts and trainings import sooner or later.
OF_SCRIPTS = (
    *("kharness.config.*", "kharness.runs.*", "kharness.matrix.*", "kharness.report.*", "monitoring.run"),
    *("monitoring.agent.*", "monitoring.exporters.csv", "monitoring.sampler_process.*", "monitoring.rules.*"),
    *("monitoring.samplers.*", "kconfiglib", "psutil"),
    *("jinja2", "matplotlib.backends.backend_agg", "matplotlib.figure", "matplotlib.style", "optuna"),
    *("rich.console", "scipy.optimize", "scipy.special"),
    "compiled_page",
)
OF_AGENTS = (
    *("monitoring.agent.*", "monitoring.exporters.csv", "monitoring.rules.*", "monitoring.trackers.*"),
    *("monitoring.sampler_process.*", "monitoring.samplers.*", "psutil"),
)
OF_TRACKERS = (
    *("monitoring.run", *OF_AGENTS, "google_crc32c", "tensorboard.compat.proto.event_pb2", "tensorboard"),
    *("trackio.cli", "wandb.cli.cli", "wandb.sdk.launch"),
)
OF_TRAININGS = (
    "kharness.training.*",
    "torch._dynamo",
    "torch.distributed.checkpoint",
    "torch.utils.data",
    "torch.utils.serialization.config",
)

# What the first Trainer, Lightning's, trl's and Accelerate import, sooner or later.
FRAMEWORKS = (
    *("torch._dynamo", "torch.utils.tensorboard", "transformers.trainer", "trl.trainer.sft_trainer"),
    *("transformers.models.gpt2.modeling_gpt2", "accelerate.tracking", "peft", "lightning.pytorch"),
    *(
        "monitoring.callbacks.hugging_face",
        "monitoring.callbacks.lightning",
        "monitoring.callbacks.accelerate",
    ),
)
# Nothing is looked for on the network.
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "OMP_NUM_THREADS": "1"}

# How long an example takes is the machine's load; what else there is of a profile (CI has one) stays.
hypothesis.settings.register_profile("loaded machine", hypothesis.settings(), deadline=None)
hypothesis.settings.load_profile("loaded machine")

READ_BY_TORCH = ("OMP_", "MKL_", "OPENBLAS_", "TORCH", "CUDA")


def pytest_configure(config: pytest.Config) -> None:
    """Undo settings of the calling shell that every process of the suite would inherit.

    A shell that runs the suite in the background has it ignore SIGINT, nohup SIGHUP; PYTHONDONTWRITEBYTECODE
    makes some hundred processes compile all that they import.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # else threads of a small operation spin for the next one: two thirds of a training's kernel time
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    sys.dont_write_bytecode = False
    config.pluginmanager.register(order)


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Have each worker begin with test modules of its own, so that it finds others' already rewritten.

    To rewrite the assertions of all takes 10 s of CPU time. pytest stores what it has rewritten, but on a
    fresh clone all workers would begin at once with the same module, and rewrite all of them. What fails
    here fails again where it is reported.
    """
    gc.disable()  # nearly all that is made meanwhile stays
    worker, of = os.environ.get("PYTEST_XDIST_WORKER", ""), os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")
    if not worker or session.config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return
    modules = sorted(ROOT.glob("tests/**/test_*.py"))
    first = int(worker.removeprefix("gw")) * len(modules) // int(of)
    for path in [*modules[first:], *modules[:first]]:
        with contextlib.suppress(Exception, pytest.skip.Exception), warnings.catch_warnings():
            warnings.simplefilter("error")
            importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))


def pytest_collection_finish() -> None:
    """Exclude the imported test modules from garbage collection: scanning them took a tenth of the time.

    And look for garbage seldom: tests make little of it, which ends with the process.
    """
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tests marked `gpu` need one; only for them torch is imported here."""
    if item.get_closest_marker("gpu"):
        import torch

        if not torch.cuda.is_available():
            pytest.skip(f"no GPU is visible to torch {torch.__version__}")


@contextlib.contextmanager
def environment_kept() -> Iterator[None]:
    """Restore os.environ after each test: torch names its cache there, an agent the run that it follows."""
    before = dict(os.environb)
    yield
    before[b"PYTEST_CURRENT_TEST"] = os.environb[b"PYTEST_CURRENT_TEST"]
    if dict(os.environb) != before:
        os.environb.clear()
        os.environb.update(before)


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout under test."""
    return ROOT


@pytest.fixture(scope="session")
def few_digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout of which trainings take a hundred digits, which all workers read.

    Run in it with `few_digits.environment_of`, and with results elsewhere.
    """
    return made_once(tmp_path_factory, "few-digits", functools.partial(few_digits_checkout.make, ROOT))


@pytest.fixture(scope="session")
def nodes() -> Callable[[Path], list[Any]]:
    """The nodes of a module, its tree first; tests that read all of the source share them."""

    @functools.cache
    def nodes_of(path: Path) -> list[Any]:
        gc.disable()  # it would look through all trees again and again, and finds nothing
        try:
            return list(ast.walk(ast.parse(path.read_text())))
        finally:
            gc.freeze()
            gc.enable()

    return nodes_of


@pytest.fixture(scope="module")
def without_transformers() -> Iterator[None]:
    """Make transformers look uninstalled: importing it takes many seconds."""
    from monitoring.verbose_logging import callback_class

    callback_class.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "transformers", None)
        patch.delitem(sys.modules, "verbose_logging", raising=False)
        yield
    callback_class.cache_clear()
    sys.modules.pop("verbose_logging", None)


@pytest.fixture(autouse=True)
def priority_stays() -> Iterator[None]:
    """No test lowers the priority of those that follow: nobody can raise it again."""
    before = os.nice(0)
    yield
    assert os.nice(0) == before


@pytest.fixture(autouse=True)
def environment_stays() -> Iterator[None]:
    """Programs that start with another environment than the interpreter behind `warm_python` are no forks."""
    with environment_kept():
        yield


@pytest.fixture(autouse=True)
def signals_stay() -> Iterator[None]:
    """Restore the signal handlers that an agent in the test's process sets: children would inherit them."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)


@pytest.fixture(scope="session", autouse=True)
def nobodys_settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test, and no fixture of a module, sees the developer's logins or what `make check` exports.

    Nor does a training have the `.config` of the checkout, which the first `make test_matrix` writes there.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name in FOREIGN:
            patch.delenv(name, raising=False)
        # as of all workers, who share interpreters that have read it
        patch.setenv("HF_HOME", str(made_once(tmp_path_factory, "hugging-face", lambda folder: None)))
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setenv("TRACKIO_DIR", str(tmp_path_factory.mktemp("trackio")))
        patch.setenv(OUTPUT, str(tmp_path_factory.mktemp("no-configuration")))
        patch.setenv("WANDB_ERROR_REPORTING", "false")
        # the program of runs in this process: of one in the checkout, each would ask git for its state
        program = tmp_path_factory.mktemp("program") / "pytest"
        program.touch()
        patch.setattr(sys, "argv", [str(program), *sys.argv[1:]])
        yield


@pytest.fixture(scope="session")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One folder after the other; to make each would read the names of all before it."""
    folder = tmp_path_factory.mktemp("homes")
    return (folder / str(number) for number in itertools.count())


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, homes: Iterator[Path]) -> None:
    """A Trackio database and a W&B home of each test's own."""
    home = next(homes)
    monkeypatch.setenv("TRACKIO_DIR", str(home / "trackio"))
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(home / "wandb-config"))
    monkeypatch.setenv("WANDB_CACHE_DIR", str(home / "wandb-cache"))
    monkeypatch.setenv("NETRC", str(home / "netrc"))


@pytest.fixture(scope="session")
def nvml_header(root: Path) -> Path:
    """The folder of NVIDIA's nvml.h, where there is a compiler that reads it."""
    if not shutil.which("gcc"):
        pytest.skip("gcc, which builds the simulated NVML, is not installed")
    return header_folder()


@pytest.fixture(scope="session")
def nvml_library(root: Path, nvml_header: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The simulated libnvidia-ml.so.1, compiled once a session."""
    return made_once(tmp_path_factory, "nvml", build) / LIBRARY


@pytest.fixture(scope="session")
def warm_nvml(nvml_library: Path) -> Iterator[WarmPython]:
    """Starts what samples GPUs of the simulated NVML, which the system looks for where a process began."""
    folder = str(nvml_library.parent)
    warm = WarmPython("monitoring.agent.*", "monitoring.samplers.*", "pynvml", LD_LIBRARY_PATH=folder)
    yield warm
    warm.close()


@pytest.fixture(scope="session")
def warm_scripts_nvml(nvml_library: Path) -> Iterator[WarmPython]:
    """Starts our scripts where they see GPUs of the simulated NVML."""
    warm = WarmPython(*OF_SCRIPTS, LD_LIBRARY_PATH=str(nvml_library.parent))
    yield warm
    warm.close()


@pytest.fixture(scope="session")
def simulate_nvml(root: Path, nvml_library: Path) -> Callable[[Path], SimulatedNvml]:
    """A SimulatedNvml (tests/simulated_nvml/) whose script stands in the file that is named."""
    return lambda script: SimulatedNvml(nvml_library, script)


@pytest.fixture
def simulated_nvml(simulate_nvml: Callable[[Path], SimulatedNvml], tmp_path: Path) -> SimulatedNvml:
    """One of this test: `.write("gpus 4", "gpu 2 state lost")`, `.environment()`."""
    return simulate_nvml(tmp_path / "nvml.txt")


@pytest.fixture
def visible_nvml(simulated_nvml: SimulatedNvml, monkeypatch: pytest.MonkeyPatch) -> SimulatedNvml:
    """The same, whose GPUs every process sees that is started from here."""
    for name, value in simulated_nvml.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return simulated_nvml


@pytest.fixture
def simulated_cuda() -> SimulatedCuda:
    """Events of devices that do what a test says."""
    from .simulated_cuda import SimulatedCuda  # it imports torch, which most tests need not

    return SimulatedCuda()


@pytest.fixture(scope="session")
def warm_python() -> Iterator[WarmPython]:
    """Starts our scripts as `subprocess` does, from an interpreter that has imported all but torch."""
    warm = WarmPython(*OF_SCRIPTS)
    yield warm
    warm.close()


@pytest.fixture(scope="session")
def warm_torch(warm_python: WarmPython) -> Iterator[WarmPython]:
    """The same for trainings, and for scripts that start them."""
    warm = WarmPython(*OF_SCRIPTS, *OF_TRAININGS, read=READ_BY_TORCH).forked_from(warm_python)
    yield warm
    warm.close()


@pytest.fixture(scope="session")
def warm_few(few_digits: Path, warm_torch: WarmPython) -> Iterator[WarmPython]:
    """The same in the checkout with few digits; what is started in its environment has its modules."""
    warm = WarmPython(
        *OF_SCRIPTS, *OF_TRAININGS, read=READ_BY_TORCH, PYTHONPATH=str(few_digits / "lib")
    ).forked_from(warm_torch)
    yield warm
    warm.close()


@pytest.fixture(scope="session")
def warm_frameworks(warm_torch: WarmPython) -> Iterator[WarmPython]:
    """The same with the frameworks whose trainings are recorded."""
    warm = WarmPython(*FRAMEWORKS, read=(*READ_BY_TORCH, "HF_"), **OFFLINE).forked_from(warm_torch)
    yield warm
    warm.close()


@pytest.fixture(scope="session")
def warm_bridge(warm_torch: WarmPython) -> Iterator[WarmPython]:
    """All trackers but Trackio, which reads when it is imported where its folder is."""
    trackers = ("torch.utils.tensorboard", "wandb.sdk.launch", "mlflow.store.tracking.sqlalchemy_store")
    warm = WarmPython(
        *("monitoring.run", "monitoring.bridge.*", "compiled_lines", *OF_AGENTS, *trackers),
        MLFLOW_DISABLE_TELEMETRY="true",
        MLFLOW_LOGGING_LEVEL="WARNING",
    ).forked_from(warm_torch)
    yield warm
    warm.close()


@pytest.fixture(scope="session")
def of_trackio() -> dict[str, str]:
    """This process's Trackio directory, which Trackio reads once a process."""
    from trackio.utils import TRACKIO_DIR

    return {"TRACKIO_DIR": str(TRACKIO_DIR), "TRACKIO_SQLITE_SYNCHRONOUS": "off"}  # no test pulls the plug


@pytest.fixture
def shared_trackio(of_trackio: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents write into this process's Trackio directory."""
    for name, value in of_trackio.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="session")
def warm_trackers(of_trackio: dict[str, str]) -> Iterator[WarmPython]:
    """The same for trainers and agents, with the packages of trackers, of a test with `shared_trackio`."""
    warm = WarmPython(*OF_TRACKERS, read=("TRACKIO",), **of_trackio)
    yield warm
    warm.close()


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One for all modules: each that started its own took half a second."""
    started = Browser(tmp_path_factory.mktemp("chromium"))
    yield started
    started.close()


@pytest.fixture(scope="module")
def browser(chromium: Browser) -> Iterator[Browser]:
    yield chromium
    chromium.forget()
