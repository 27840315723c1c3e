"""One table of every Makefile target and the variables that it reads from make's command line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

SHORT = {
    "TRACKER": "TRACKER",
    "GPU_MONITOR": "GPU_MONITOR",
    "BASELINE": "REPORT_BASELINE",
    "DETACH": "MATRIX_DETACH",
    "JOBS": "MATRIX_JOBS",
    "KEEP_GOING": "MATRIX_KEEP_GOING",
    "LAUNCHER": "LAUNCHER",
    "MACHINE_MONITOR": "MACHINE_MONITOR",
    "NUM_GPUS": "NUM_GPUS",
    "RETRIES": "MATRIX_RETRIES",
    "TIMEOUT": "MATRIX_TIMEOUT",
}
"""Short names of symbols, taken without CONFIG_."""


@dataclass(frozen=True)
class Reads:
    """The variables one target reads."""

    names: tuple[str, ...] = ()
    """Variables that set no symbol."""
    symbols: tuple[str, ...] = ()
    """Prefixes of the symbols that it reads, as CONFIG_X or by a short name; `""` stands for all."""
    but: tuple[str, ...] = ()
    """Prefixes of those of them that it does not read."""
    still: tuple[str, ...] = ()
    """Those of them that it reads all the same."""
    of_tree: bool = False
    """Whether it is of this checkout alone, so that no M=DIR joins it."""

    def symbol(self, name: str) -> bool:
        """Whether it reads a symbol."""
        return name.startswith(self.symbols) and (name in self.still or not name.startswith(self.but))

    def variable(self, name: str) -> bool:
        """Whether it reads a variable of make's command line."""
        if name == OUTSIDE:
            return not self.of_tree
        if name in (*EVERYWHERE, *self.names) or name.startswith(ENVIRONMENT):
            return True
        symbol = SHORT.get(name, name.removeprefix("CONFIG_"))
        return (name in SHORT or name.startswith("CONFIG_")) and bool(symbol) and self.symbol(symbol)

    def words(self) -> list[str]:
        """The variables it reads, for a message."""
        short = [name for name, symbol in SHORT.items() if self.symbol(symbol)]
        symbols = [f"CONFIG_{begin}{'…' if begin[-1:] in ('', '_') else ''}" for begin in self.symbols]
        return list(dict.fromkeys([*self.names, *short, *symbols, "O"]))


OUTSIDE = "M"
"""The variable that gives the folder of a model outside of the tree."""

EVERYWHERE = (
    *("O", "V", "PYTHON", "VENV"),
    # make's own
    *("CURDIR", "GNUMAKEFLAGS", "MAKE", "MAKEFILES", "MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS", "SHELL"),
    # of the environment, for programs that make starts
    *("HOME", "LANG", "NO_COLOR", "NO_PROXY", "PATH", "TERM", "TMPDIR", "TZ", "no_proxy"),
    *("ALL_PROXY", "FTP_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "http_proxy", "https_proxy"),
)
"""Variables that every target takes."""

ENVIRONMENT = (
    *("CUDA_", "GPU_DEVICE_ORDINAL", "HIP_", "NCCL_", "NVIDIA_", "ROCR_", "ZE_"),
    *("KMP_", "LC_", "LD_", "MALLOC_", "MKL_", "MPL", "OMP_", "OPENBLAS_"),
    *("GRADIO_", "HF_", "PIP_", "PYTHON", "PYTORCH_", "SSL_", "TORCH", "TRACKIO_", "WANDB_", "XDG_"),
)
"""How variables begin that libraries and drivers below the targets read."""

YES_OR_NO = ("ALL", "ANYWAY", "FOLLOW", "INSTALL", "KEEP", "PAPER", "READ_ONLY")
"""Variables that are y or n, or 1 or 0."""

_NEWEST = ("RESULTS_DIR",)  # where `latest` is
_JUDGED = ("FAIL_ON_REGRESSION", "TOLERANCE")
_SWEEP_ONLY = ("SWEEP_METHOD", "SWEEP_TRIALS", "SWEEP_SEED")
_NOT_OF_ONE = ("LAUNCHER_LOCAL_", "MATRIX_", "MAX_GPU_MEMORY_PERCENT", "SWEEP_")
_OF_MATRICES = ("LAUNCHER", *_NOT_OF_ONE)

_ALL = Reads(symbols=("",))
_NONE = Reads()
_TREE = Reads(of_tree=True)
_MATRIX = Reads((*_JUDGED, "FILTER"), symbols=("",), but=_SWEEP_ONLY)

TARGETS: dict[str, Reads] = {
    "train": Reads(symbols=("",), but=_NOT_OF_ONE, still=("MATRIX_DETACH", "MATRIX_GPUS_PER_CELL")),
    "test_matrix": _MATRIX,
    "test_matrix_dry_run": _MATRIX,
    "sweep": Reads(("RANGE_CONFIG",), symbols=("",), but=("MATRIX_AXES", "MATRIX_EXCLUDE", "MATRIX_INCLUDE")),
    "continue": Reads((*_JUDGED, "FILTER", "RUN"), symbols=("",)),
    "test_rerun": Reads((*_JUDGED, "FILTER", "TARGET"), symbols=("",)),
    "status": Reads(("FILTER", "RUN"), _NEWEST),
    "control": Reads(("CHECKPOINT", "EVALUATE", "LOG_EVERY", "LR_FACTOR", "PROFILE", "RUN", "STOP"), _NEWEST),
    "inspect-batch": Reads(("RUN", "STEP"), _NEWEST),
    "estimate": Reads(("FILTER", "RUN"), (*_NEWEST, "MATRIX_JOBS")),
    "logs": Reads(("CELL", "FOLLOW", "RUN"), _NEWEST),
    "report": Reads(("A", "B", "PAPER", "RUN"), (*_NEWEST, "REPORT_")),
    "summary": Reads((*_JUDGED, "RUN"), (*_NEWEST, "REPORT_")),
    "graphs": Reads(("RUN",), _NEWEST),
    "gpu-report": Reads(("RUN",), _NEWEST),
    "reproduce": Reads(("ANYWAY", "RUN", "TRACKER")),
    "compare": Reads(("A", "B", *_JUDGED), ("REPORT_",)),
    "check-model": Reads(symbols=("",), but=(*_OF_MATRICES, "DRY_RUN")),
    "data": Reads(("DATA_DIR", "MIRROR"), ("DATASET", "DATA_DIR", "MODEL", "TOKENIZER")),
    "menuconfig": _ALL,
    "oldconfig": _ALL,
    "olddefconfig": _ALL,
    "defconfig": Reads(("DEFCONFIG",), symbols=("",)),
    "defconfig-<name>": _ALL,
    "savedefconfig": _ALL,
    "list-defconfigs": _NONE,
    "listnewconfig": _ALL,
    "helpnewconfig": _ALL,
    "allyesconfig": _ALL,
    "allnoconfig": _ALL,
    "alldefconfig": _ALL,
    "randconfig": Reads(("SEED",), symbols=("",)),
    "mergeconfig": Reads(("FRAGMENTS",), symbols=("",)),
    "configwhy": Reads(("SYMBOL",), symbols=("",)),
    "configdiff": Reads(("A", "B")),
    "trackio-view": _ALL,
    "trackio-test": _ALL,
    "wandb-test": _ALL,
    "sync": Reads(("RUN", "TRACKER"), _NEWEST),
    "prometheus": Reads(("RUN",), (*_NEWEST, "PROMETHEUS_")),
    "dashboard": Reads(("HOST", "PORT", "READ_ONLY", "RUN", "SAVE", "VIEW"), _NEWEST),
    "gputop": Reads(("METRIC", "RUN", "SIMULATE", "SORT", "THEME"), _NEWEST),
    "watch": Reads(("METRIC", "RUN", "SIMULATE", "SORT", "THEME"), _NEWEST),
    "new-model": _NONE,
    "check": Reads(("INSTALL",)),
    "quick": _TREE,
    "check-newest": _TREE,
    "release-check": _TREE,
    "bench": Reads(("ONLY",), of_tree=True),
    "docs": _TREE,
    "docs-fields": _TREE,
    "docs-images": _TREE,
    "requirements": Reads(("KEEP",), of_tree=True),
    "clean": _NONE,
    "mrproper": _NONE,
    "distclean": _NONE,
    "help": Reads(("ALL",)),
}
"""Variables by target, in the order of `make help`; tests/test_makefile.py compares it with the Makefile."""


def readers(name: str) -> list[str]:
    """The targets that read a variable which not every one of them takes."""
    if name in EVERYWHERE or name.startswith(ENVIRONMENT):
        return []
    return [target for target, reads in TARGETS.items() if reads.variable(name)]


def reads_of(goals: Iterable[str]) -> list[Reads]:
    """Return the variables that each target of a call reads (a file none); without targets, those of any."""
    return [TARGETS.get(target_of(goal), _NONE) for goal in goals] or list(TARGETS.values())


def target_of(goal: str) -> str:
    """Return the target's name in the table: `defconfig-pruning` is `defconfig-<name>`."""
    return "defconfig-<name>" if goal.startswith("defconfig-") else goal


def words_of(reads: Sequence[Reads]) -> str:
    """Return the variables that several targets read, for a hint."""
    return ", ".join(dict.fromkeys(word for one in reads for word in one.words()))
