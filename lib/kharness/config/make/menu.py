"""`make menuconfig`: kconfiglib's menu on a terminal, with our reading, checking and writing around it."""

from __future__ import annotations

import errno
import os
import signal
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kharness.config.assignment import Assignment, Layer, Origin, Resolved
from kharness.config.errors import ConfigError, shadowed
from kharness.config.generate import write_config, write_file
from kharness.config.make.questions import mentioned_symbols
from kharness.config.record import read_record
from kharness.config.refused import ALIASES
from kharness.config.tree import CONFIG, Tree

ORIGIN = Origin("menuconfig")

# What else people type into the search: names in PyTorch and other trainers. A choice goes by a member.
FOUND_BY = {
    "AMP_AUTO": "autocast fp16",
    "CHECKPOINT_EVERY": "resume_from_checkpoint save_steps save_strategy",
    "CHECKPOINT_KEEP": "save_top_k",
    "DETERMINISTIC": "reproducible reproducibility cudnn",
    "DEVICE_AUTO": "accelerator",
    "EMA_DECAY": "exponential average",
    "ENABLE_TENSORBOARD": "report_to logger",
    "ENABLE_WANDB": "report_to logger",
    "EVAL_INTERVAL": "val_check_interval check_val_every_n_epoch eval_steps",
    "GRADIENT_CLIP": "clip_grad_norm",
    "LENET5_SHIFT": "augmentation",
    "LOG_EVERY": "log_interval",
    "MATMUL_TF32": "allow_tf32 float32_matmul_precision",
    "MATRIX_EARLY_STOPPING": "patience pruner",
    "MICRO_BATCH_SIZE": "gradient accumulation accumulate_grad_batches per_device_train_batch_size",
    "NUM_GPUS": "world_size nproc_per_node multi-gpu",
    "PARALLEL_DDP": "strategy distributed sharded",
    "RESNET50_FLIP": "augmentation",
    "RESNET50_READERS": "dataloader num_workers",
    "RESNET50_RESIZED_CROP": "augmentation",
    "SCHEDULE_COSINE": "lr_scheduler",
    "SEED": "manual_seed seed_everything",
}


def open_menu(tree: Tree, directory: Path, base: Layer | ConfigError, *, unsaved: bool = False) -> None:
    """Let the user edit `directory/.config` from `base` on; a file that was refused opens to be fixed.

    With `unsaved`, base is already more than the file says. ConfigError without a terminal for the menu.
    """
    _check_terminal()
    import menuconfig

    if hasattr(menuconfig, "__path__"):
        raise shadowed("menuconfig", "is a package")
    session = _Session(tree, directory, base, unsaved)
    os.environ["KCONFIG_CONFIG"] = str(directory / CONFIG)
    # Its own test wants every symbol assigned; we assign only what was requested, so that defaults follow.
    menuconfig._needs_save = session.needs_save
    # Its mark for a symbol that was not assigned would then mark nearly every one of a saved file.
    marked = menuconfig._node_str
    menuconfig._node_str = lambda node: session.unmarked(node, marked(node))
    for name, words in [*FOUND_BY.items(), *((name, alias) for alias, name in ALIASES.items())]:
        if symbol := tree.kconf.syms.get(name):  # a tree of somebody else's may have others
            for node in (symbol.choice or symbol).nodes:
                node.prompt = node.prompt and (_Found(node.prompt[0], words), node.prompt[1])
    # It knows numbers and ranges of Kconfig only: floats, lists and paths would be refused at saving.
    is_well_formed = menuconfig._check_valid
    menuconfig._check_valid = lambda symbol, text: (
        is_well_formed(symbol, text) and _is_allowed(tree, symbol.name, text, menuconfig._error)
    )
    # It asks a terminal that is gone for the next key for ever.
    next_key = menuconfig._getch_compat
    menuconfig._getch_compat = lambda window: _key_of_a_terminal(next_key(window))
    if isinstance(base, ConfigError):
        print(f"warning: {base}: fix it in the menu and save", file=sys.stderr)
    menuconfig.menuconfig(session)


def _is_allowed(tree: Tree, name: str, text: str, show: Callable[[str], object]) -> bool:
    """Whether an option may have what was typed for it; where not, why is shown."""
    try:
        tree.assignments(name, text, ORIGIN)
    except ConfigError as error:
        show(f"{error}\n\n{error.hint}")
        return False
    return True


def _key_of_a_terminal(key: int | str) -> int | str:
    """Return the key that was read; where the terminal has hung up, end as by the signal of that."""
    if key == -1:
        try:
            termios.tcgetattr(sys.stdin.fileno())
        except termios.error:
            signal.signal(signal.SIGHUP, signal.SIG_DFL)
            signal.raise_signal(signal.SIGHUP)
    return key


class _Found(str):
    """A prompt that the menu's search, which looks into it in lower case, finds by other words as well."""

    _words: str

    def __new__(cls, prompt: str, word: str) -> _Found:
        found = super().__new__(cls, prompt)
        found._words = f"{prompt.lower()} {word.lower()}"
        return found

    def lower(self) -> str:
        return self._words


class _Session:
    """Stands for the Kconfig object inside menuconfig: the same tree, read and written by our rules."""

    def __init__(self, tree: Tree, directory: Path, base: Layer | ConfigError, unsaved: bool) -> None:
        self._tree = tree
        self._path = directory / CONFIG
        self._base = base
        self._outdated = unsaved
        self._saved = _saved_symbols(directory)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tree.kconf, name)

    def needs_save(self) -> bool:
        """Whether the loaded configuration differs from the file."""
        return self._outdated

    def unmarked(self, node: Any, text: str) -> str:
        """An entry, not marked as new where the saved file holds its symbol or nothing was saved yet."""
        is_saved = not self._saved or getattr(node.item, "name", None) in self._saved
        return text.replace(" (NEW)", "", 1) if is_saved else text

    def load_config(self, filename: str | None = None) -> str:
        """At the start the base, later the file that the user names; menuconfig shows an OSError."""
        if filename is not None and Path(filename) != self._path:
            with _shown_by_menu(filename):
                self._base = self._tree.read(Path(filename), "fragment")
                self._tree.resolve(self._base)
            self._outdated = True
            return f"Loaded {filename}"
        if isinstance(self._base, ConfigError):
            self._outdated = True
            self._tree.restore([])
            return str(self._tree.kconf.load_config(str(self._path)))
        self._tree.resolve(self._base)
        if not self._path.exists():
            self._outdated = True
            return "nothing is saved yet"
        return f"Loaded {self._tree.shown(self._path)}"

    def write_config(self, filename: str) -> str:
        """Write all files of the configuration, or one `.config` where the user names another path."""
        resolved = self._resolved(filename)
        path = Path(filename).absolute()
        with _shown_by_menu(filename):
            if path == self._path:
                write_config(resolved, path.parent, root=self._tree.root)
                self._saved = _saved_symbols(path.parent)
            else:
                write_file(path, resolved.text.encode())
        return f"Configuration saved to {self._tree.shown(path)}"

    def write_min_config(self, filename: str) -> str:
        """Write only what differs from the defaults."""
        resolved = self._resolved(filename)
        with _shown_by_menu(filename):
            write_file(Path(filename).absolute(), resolved.minimal.encode())
        return f"Minimal configuration saved to {filename}"

    def _resolved(self, filename: str) -> Resolved:
        """Return the menu's current values, checked like any other layer, with earlier origins kept."""
        mended = isinstance(self._base, ConfigError)
        known = read_record(self._path.parent).asked if isinstance(self._base, ConfigError) else self._base
        before = {(a.symbol, a.value): a for a in known}
        asked = [before.get((s, v), Assignment(s, v, ORIGIN)) for s, v in self._tree.set_by_user()]
        try:
            with _shown_by_menu(filename):
                resolved = self._tree.resolve(asked)
                if mended:
                    # Every line of the file was set; what is as by default is not kept as requested.
                    needed = resolved.beyond_defaults()
                    asked = [a for a in asked if a.symbol in needed or (a.symbol, a.value) in before]
                    resolved = self._tree.resolve(asked)
        finally:
            # resolve() leaves its own state; after a refusal the user's must still be there to fix.
            self._tree.restore(asked)
        self._base = asked
        return resolved


def _saved_symbols(directory: Path) -> set[str]:
    """Return the symbols that the `.config` mentions; none if it is missing or refused."""
    try:
        return mentioned_symbols(directory)
    except ConfigError:
        return set()


@contextmanager
def _shown_by_menu(filename: str) -> Iterator[None]:
    """Make an OSError, which menuconfig shows, of what is refused within it."""
    try:
        yield
    except ConfigError as error:
        raise OSError(errno.EINVAL, f"{error}\n{error.hint}", filename) from error


def _check_terminal() -> None:
    """ConfigError unless stdin and stdout are a terminal that curses knows."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ConfigError(
            "menuconfig needs a terminal",
            hint="without one: make olddefconfig CONFIG_SYMBOL=value, or edit .config and make olddefconfig",
        )
    try:
        import curses

        curses.setupterm()
    except ImportError as error:
        raise ConfigError(
            "this Python has no curses", hint="use one that has, with make PYTHON=/path/to/python"
        ) from error
    except curses.error as error:
        raise ConfigError(
            f"menuconfig cannot use this terminal: TERM={os.environ.get('TERM', '')} is unknown",
            hint="TERM=xterm make menuconfig",
        ) from error
