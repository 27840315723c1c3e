"""The options of a training script: the symbols of the tree as typed attributes and command-line flags."""

from __future__ import annotations

import argparse
import gc
import importlib.util
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any, NoReturn

from kharness.config.affects import Affects
from kharness.config.assignment import (
    AUTO,
    CHOSEN_FOR,
    Assignment,
    Layer,
    Origin,
    Resolved,
    chosen_name,
    value_text,
)
from kharness.config.config_py import is_current, read_config_py, read_values
from kharness.config.describe import Option, options
from kharness.config.dotconfig import CONFIG
from kharness.config.errors import RENDEZVOUS_FILE, ConfigError, exit_code, reported_once
from kharness.config.generate import checked_project_name, config_files, read_files
from kharness.config.places import CONFIG_PY, TRAIN, asked_folder, is_outside, output, shown_from
from kharness.config.record import read_record
from kharness.config.refused import ALIASES, collect, did_you_mean, one_value
from kharness.config.tree import Tree
from kharness.config.values import Value
from kharness.quiet import end_by_interrupt
from monitoring.outside import enter

_UNKNOWN_FLAG = re.compile(r"unrecognized arguments: (?:.* )?--([^\s=]+)")


class Options:
    """Values as attributes named like their symbols: `options.LEARNING_RATE`.

    An option that this configuration does not offer, such as the momentum of another optimizer, is None; a
    name that no Kconfig file has is an AttributeError. TRACKER_PROJECT is expanded, as in `config.py`;
    TRACKER_RUN_NAME stays the template it is.
    """

    values: Mapping[str, Value]
    affects: Affects
    """Words of kharness.config.affects for each option."""

    def __init__(self, resolved: Resolved, *, tree: Tree) -> None:
        self.resolved = resolved
        self.values = {**resolved.values, "TRACKER_PROJECT": checked_project_name(resolved, tree.root)}
        self.affects = resolved.affects
        self._tree = tree

    def files(self) -> Mapping[str, str]:
        """The texts of `.config` and what belongs to it, for `kharness.config.generate.write_files`."""
        return config_files(self.resolved, self._tree.root)

    def undecided(self) -> list[str]:
        """Return the options that the training still has to choose by trials, of CHOSEN_FOR."""
        return [name for name, switch in CHOSEN_FOR.items() if self.values.get(switch)]

    def own_choices(self) -> dict[str, tuple[str, str]]:
        """Return the training's own choices, of this or an earlier attempt: the value and its reason."""
        return _chosen(self._asked(), self.values)

    def with_chosen(self, name: str, value: str, reason: str) -> Options:
        """Return options with a choice, recorded in `.config` as if it had been set by hand."""
        switch = {} if name in self._tree.aliases else {CHOSEN_FOR[name]: "n"}
        return self.with_values({**switch, name: value}, reason)

    def with_values(self, values: Mapping[str, str], reason: str = "a trial") -> Options:
        """These options with other values on top."""
        tree, origin = self._tree, Origin(AUTO, reason)
        layers = [tree.assignments(name, value, origin) for name, value in values.items()]
        return Options(tree.resolve(self._asked(), list(chain(*layers))), tree=tree)

    def notes(self) -> Sequence[str]:
        """Values that were taken though written in another case."""
        return self._tree.notes

    def _asked(self) -> Layer:
        return self.resolved.asked

    def __getattr__(self, name: str) -> Any:
        if not name.isupper():
            raise AttributeError(f"Options has no attribute {name}; options are named like their symbols")
        if name in self.values:
            return self.values[name]
        # A run directory of an earlier version lacks options that were added since: the tree knows them.
        if name in self.affects.words or name in self._tree.kconf.syms:
            return None
        raise AttributeError(f"{name} is not an option: no Kconfig file has it")


class ConfiguredOptions(Options):
    """Options of the `config.py` of a directory alone, which `is_current`: no option tree is loaded."""

    def __init__(self, directory: Path, *, root: Path) -> None:
        self._directory, self._root = directory, root
        read = read_config_py(directory / CONFIG_PY)
        self.values, self.affects = read.values, read.affects

    def files(self) -> Mapping[str, str]:
        return read_files(self._directory)

    def notes(self) -> Sequence[str]:
        return ()

    def own_choices(self) -> dict[str, tuple[str, str]]:
        return _chosen(read_record(self._directory).asked, self.values)

    def _asked(self) -> Layer:
        return self._tree.base(self._directory)

    @cached_property
    def _tree(self) -> Tree:  # type: ignore[override]
        return Tree.load(self._root)


def chosen_in(directory: Path) -> dict[str, tuple[str, str]]:
    """Return the choices a run directory's training made by trials; empty without a configuration."""
    if not (directory / CONFIG_PY).is_file():
        return {}
    return _chosen(read_record(directory).asked, read_values(directory / CONFIG_PY))


def _chosen(asked: Layer, values: Mapping[str, Value]) -> dict[str, tuple[str, str]]:
    found: dict[str, tuple[str, str]] = {}
    for assignment in asked:
        name = chosen_name(assignment.symbol)
        if name and assignment.origin.kind == AUTO and assignment.symbol != CHOSEN_FOR[name]:
            found[name] = value_text(values[name]), assignment.origin.where
    return found


def begin_script(file: str, name: str, *, about: str | None, model: str = "") -> Path:
    """The root of the checkout in which MODEL/train.py lies, by its `__file__`, `__name__` and `__doc__`.

    The model's folder becomes importable as the package it is. As the program that runs (`__main__`) it
    exits here with what is wrong with its flags, or with its help: importing torch takes seconds.

    Of a model outside of the tree it is the checkout of this module; such a folder may have any name, for
    `model` is that of the package, and what MODEL is.
    """
    folder = Path(file).resolve().parent
    model, root = model or folder.name, folder.parent
    if is_outside(folder):
        root = Path(__file__).resolve().parents[3]
        enter(folder)
    _import_package(folder, model)
    if name == "__main__" and "torch" not in sys.modules:
        _check_flags(root=root, model=model, about=about)
        end_by_interrupt()
        gc.disable()  # until open_training: to look through what the imports make, which stays, takes 0.2 s
    return root


def _import_package(folder: Path, model: str) -> None:
    """`python lenet5/train.py` has Python look for modules in lenet5/, not for lenet5 in the folder above it.

    So the package is found here, next to the script: in its own checkout, whatever the environment, also in
    processes that are forked or spawned. A root on PYTHONPATH could be that of another checkout.
    """
    if model in sys.modules:
        return
    spec = importlib.util.spec_from_file_location(
        model, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None
    assert spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules[model] = package
    spec.loader.exec_module(package)


def _check_flags(*, root: Path, model: str, about: str | None) -> None:
    def read(argv: Sequence[str]) -> None:
        with reported_once():
            _read(argv, root=root, model=model, prog=f"{model}/{TRAIN}", description=about)

    code = exit_code(read)
    if code:
        sys.exit(code)


def parse(
    argv: Sequence[str],
    *,
    root: Path,
    model: str,
    prog: str,
    description: str | None,
    is_named: Callable[[Path], bool] = lambda directory: False,
) -> tuple[Options, argparse.Namespace]:
    """The options of one training, flags on top of a configuration; says on stdout which one that is.

    Not of a run directory that `is_named` already, by what started the training, nor as one of the processes
    that NUM_GPUS has started: the one that starts them says it.

    With --run-dir it is that directory's `.config`, if it has one; else the root's, if its MODEL is this one;
    else the model's defaults. ConfigError for whatever cannot be taken.
    """
    found, arguments, source = _read(argv, root=root, model=model, prog=prog, description=description)
    if RENDEZVOUS_FILE in os.environ:
        return found, arguments
    if not (arguments.run_dir and is_named(arguments.run_dir)):
        print(f"configuration: {source}{', then flags' if arguments.assignments else ''}", flush=True)
    for note in found.notes():
        print(f"note: {note}", flush=True)
    return found, arguments


def _read(
    argv: Sequence[str], *, root: Path, model: str, prog: str, description: str | None
) -> tuple[Options, argparse.Namespace, str]:
    """Parse like `parse`, and return the source in words as well. The tree is loaded only if flags need
    checking.
    """
    arguments, flags = _Parser(prog, add_help=False).parse_known_args(argv)
    directory = arguments.run_dir
    # The tree takes much longer to load than a config.py to read, so it is loaded only if flags or edits need
    # it.
    if directory and (directory / CONFIG).exists():
        current = is_current(directory, shown_from(root, directory))
    else:  # it is to be begun
        directory, current = None, not flags and _is_untouched(output(root))
    if current and not flags:
        configured = directory or output(root)
        found = ConfiguredOptions(configured, root=root)
        if found.affects.words and model == found.MODEL:
            return found, arguments, shown_from(root, configured / CONFIG)
    tree = Tree.load(root)
    tree.restore(tree.assignments("MODEL", model, Origin("flag", f"{model}/train.py")))  # for its help
    described = options(tree, choices_here=True)
    parser = _parser(described, tree.trackers(), prog=prog, description=description)
    arguments = parser.parse_args(argv)
    given = arguments.assignments
    parts = (
        partial(one_value, tree, name, value, Origin("flag", flag), also=f"MODEL={model} ")
        for flag, name, value in given
    )
    layer = collect(parts, tree.out_of_range)
    base, source = _base(tree, model, directory)
    return Options(tree.resolve(base, layer), tree=tree), arguments, source


def _is_untouched(root: Path) -> bool:
    """Return `is_current` for a checkout, whose `.config` may be edited by hand: then the tree has to read
    it.
    """
    try:
        return is_current(root, ".")
    except ConfigError:
        return False


def _base(tree: Tree, model: str, run_dir: Path | None) -> tuple[Sequence[Assignment], str]:
    """The layer below the flags, and what it is in words; `run_dir` has a `.config`."""
    directory = run_dir or output(tree.root)
    shown = tree.shown(directory / CONFIG)
    defaults = tree.assignments("MODEL", model, Origin("flag", f"{model}/train.py"))
    if run_dir is None and not (directory / CONFIG).exists():
        return defaults, f"the defaults of {model} (there is no {shown})"
    layer = tree.base(directory)
    # The root's `.config` may be for another model, whose values mean nothing here; a run directory's may
    # not.
    configured = tree.resolve(layer).values["MODEL"]
    if configured == model:
        return layer, shown
    if run_dir:
        raise ConfigError(f"{shown}: MODEL={configured} is not {model}", hint=f"run {configured}/train.py")
    return defaults, f"the defaults of {model} ({shown} is for {configured})"


class _Parser(argparse.ArgumentParser):
    """Takes the flags that are no option's, and reports a wrong one like any other wrong value."""

    def __init__(self, prog: str, **given: Any) -> None:
        super().__init__(prog=prog, allow_abbrev=False, argument_default=argparse.SUPPRESS, **given)
        self.set_defaults(assignments=[], run_dir=None, from_scratch=False)
        self.add_argument(
            "--run-dir",
            type=partial(asked_folder, "--run-dir"),
            metavar="DIR",
            help="resume this run, or begin it in a new directory",
        )
        self.add_argument(
            "--from-scratch", action="store_true", help="train from scratch in --run-dir; what is there stays"
        )

    def error(self, message: str) -> NoReturn:
        raise ConfigError(message, hint=self._meant(message) or f"{self.prog} --help lists every flag")

    def _meant(self, message: str) -> str:
        unknown = _UNKNOWN_FLAG.search(message)
        if unknown is None:
            return ""
        name = unknown[1].upper().replace("-", "_")
        return did_you_mean(f"--{_flag_word(ALIASES.get(name, name))}", self._option_string_actions)


class _Assign(argparse.Action):
    """Collects `(--batch-size 32, BATCH_SIZE, 32)`; a bool's flag stands for y, or n with --no-.

    Of a flag that is given twice the last one counts.
    """

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        flag = option_string or ""
        if self.nargs == 0:
            given = (flag, self.dest, "n" if flag.startswith("--no-") else "y")
        else:
            given = (f"{flag} {values}", self.dest, values)
        others = [one for one in namespace.assignments if one[1] != self.dest]
        namespace.assignments = [*others, given]


def _parser(
    tree_options: Iterable[Option], trackers: Sequence[str], *, prog: str, description: str | None
) -> argparse.ArgumentParser:
    parser = _Parser(
        prog,
        usage="%(prog)s [flags]",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    tracker_names = ", ".join(["none", *trackers, "both"])
    parser.add_argument(
        "--tracker", dest="TRACKER", action=_Assign, metavar="LIST", help=f"{tracker_names}; or several: a,b"
    )
    groups: dict[str, Any] = {}
    for option in tree_options:
        # One without a prompt says which member of a choice is set, or stands for others (an int then).
        settable = option.prompt or option.members or option.type == "int"
        if option.name == "MODEL" or (option.choice and not option.members) or not settable:
            continue
        title = ": ".join(option.menu)
        if title not in groups:
            groups[title] = parser.add_argument_group(title)
        _add_flag(groups[title], option)
    return parser


def _flag_word(name: str) -> str:
    return name.lower().replace("_", "-")


def _add_flag(group: Any, option: Option) -> None:
    word = _flag_word(option.name)
    text = f"{option.explanation} ({option.type_text}; default {option.default_text})".replace("%", "%%")
    if option.type == "bool":
        group.add_argument(f"--{word}", f"--no-{word}", dest=option.name, action=_Assign, nargs=0, help=text)
        return
    metavar = word.rpartition("-")[2].upper()
    group.add_argument(f"--{word}", dest=option.name, action=_Assign, metavar=metavar, help=text)
