"""The examples of docs/extending.md: of each kind one file and one Kconfig entry add one thing that works.

The optimizer stands on the page, the others in examples/dropins, at their places in the tree.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from kharness.config.assignment import Origin
from kharness.config.errors import ConfigError
from kharness.config.tree import Tree
from kharness.matrix.launchers import LAUNCHERS, open_launcher
from kharness.report.graphs import GRAPH_MODULES, draw_all
from kharness.report.summary import collect
from kharness.runs.launch import Launch, Slot
from kharness.training.datasets import DATASETS, check_dataset, load_dataset
from kharness.training.optimizers import OPTIMIZERS, build_optimizer
from kharness.training.pruning import PRUNING_METHODS, Pruner, build_pruner
from monitoring.bridge.source import Reported, Watched
from monitoring.bridge.sources import SOURCE_KINDS
from monitoring.dropins import DropIns
from monitoring.errors import UserError
from monitoring.follower import (
    EXPORTERS,
    TRACKERS,
    RunInfo,
    enabled_followers,
    follower_module,
    follower_options,
)
from monitoring.rules import RULES, Finding, enabled_rules, open_rule
from monitoring.samplers import SAMPLERS

from . import test_dropins, test_layers, test_owners, test_words

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "docs/extending.md").read_text()
DROPINS = ROOT / "examples/dropins"
MODULES = dict(re.findall(r"^```python\n# (\S+\.py)\n(.*?)^```", TEXT, flags=re.M | re.S)) | {
    path.relative_to(DROPINS).as_posix(): path.read_text() for path in sorted(DROPINS.rglob("*.py"))
}
if PASTED := [file for file in MODULES if (ROOT / file).exists()]:
    pytest.skip(f"in the tree, and judged with it: {', '.join(PASTED)}", allow_module_level=True)
ENTRY = r"# ([^\n,]+)(, in the choice)?\n(.*)"
ENTRIES = [
    re.fullmatch(ENTRY, text, flags=re.S).groups()  # type: ignore[union-attr]
    for text in (
        *re.findall(r"^```kconfig\n(.*?)^```", TEXT, flags=re.M | re.S),
        *(path.read_text() for path in sorted(DROPINS.rglob("Kconfig"))),
    )
]

# Kind, name, what turns it on, and an option that is not the default.
EXAMPLES: list[tuple[DropIns, str, dict[str, str], dict[str, object]]] = [
    (
        OPTIMIZERS,
        "rmsprop",
        {"OPTIMIZER": "rmsprop", "OPTIMIZER_RMSPROP_ALPHA": "0.5"},
        {"learning_rate": 0.003, "weight_decay": 0.0, "alpha": 0.5},
    ),
    (
        PRUNING_METHODS,
        "relative",
        {"PRUNING": "relative", "PRUNING_EVERY": "7"},
        {
            "sparsity": 0.5,
            "start_fraction": 0.1,
            "end_fraction": 0.75,
            "every": 7,
            "whole_model": True,
            "sparsity_schedule": "cubic",
        },
    ),
    (DATASETS, "noise", {"DATASET": "noise", "DATASET_NOISE_IMAGES": "20"}, {"images": 20}),
    (TRACKERS, "sqlite", {"ENABLE_SQLITE": "y", "TRACKER_SQLITE_FILE": "a.db"}, {"file": "a.db"}),
    (EXPORTERS, "step_file", {"STEP_FILE_EXPORTER": "y", "EXPORTER_STEP_FILE_NAME": "s"}, {"name": "s"}),
    (RULES, "data_wait", {"ALERT_DATA_WAIT": "y", "ALERT_DATA_WAIT_LIMIT": "0.25"}, {"limit": 0.25}),
    (LAUNCHERS, "nice", {"LAUNCHER": "nice", "LAUNCHER_NICE_INCREMENT": "3"}, {"increment": 3}),
]
WITHOUT_ENTRY = [(SAMPLERS, "npu"), (SOURCE_KINDS, "progress_txt"), (GRAPH_MODULES, "test_loss")]

Values = Mapping[str, Any]
Nodes = Callable[[Path], list[Any]]
SOURCES = ("lib", "scripts", *test_layers.MODELS)


@pytest.fixture(scope="module")
def extended_tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """The option tree of a copy of the repository, with every entry and module of the page."""
    root = tmp_path_factory.mktemp("tree")
    kconfigs = [ROOT / "Kconfig", *ROOT.glob("*/Kconfig"), *ROOT.glob("lib/**/Kconfig")]
    modules = [path for folder in SOURCES for path in ROOT.glob(f"{folder}/**/*.py")]
    for path in [*kconfigs, *modules, *ROOT.glob("*/defconfigs/*")]:
        copy = root / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if path in kconfigs:
            shutil.copy(path, copy)
        else:
            copy.symlink_to(path)
    for file, module in MODULES.items():
        (root / file).write_text(module)
    for file, in_choice, text in ENTRIES:
        first, *parts = re.split(r"^# (in config \w+|at the end)\n", text, flags=re.M)
        path = root / file
        kconfig = path.read_text()
        if in_choice:  # before the end of the one that has members of this prefix
            prefix = re.match(r"config ([A-Z]+_)", first)[1]  # type: ignore[index]
            end = kconfig.index("\nendchoice", kconfig.index(f"config {prefix}")) + 1
            kconfig = kconfig[:end] + first.rstrip("\n") + "\n\n" + kconfig[end:]
        else:
            kconfig += f"\n{first}"
        for where, added in zip(parts[::2], parts[1::2], strict=True):
            if where == "at the end":
                kconfig += f"\n{added}"
            else:
                head = f"{where.removeprefix('in ')}\n\tstring\n"
                assert head in kconfig
                kconfig = kconfig.replace(head, head + added.strip("\n") + "\n", 1)
        path.write_text(kconfig)
    return Tree.load(root)


@pytest.fixture
def add(tmp_path: Path) -> Iterator[Callable[[DropIns, str], None]]:
    """Puts the example of a kind into its package while a test runs."""
    done: list[tuple[DropIns, str, Any]] = []

    def put(kind: DropIns, name: str) -> None:
        package = importlib.import_module(kind.package)
        (tmp_path / kind.kind).mkdir()
        file = f"lib/{kind.package.replace('.', '/')}/{name}.py"
        (tmp_path / kind.kind / f"{name}.py").write_text(MODULES[file])
        package.__path__.append(str(tmp_path / kind.kind))
        done.append((kind, name, package))
        vars(kind).pop("_modules", None)
        importlib.invalidate_caches()

    yield put
    for kind, name, package in done:
        package.__path__.remove(str(tmp_path / kind.kind))
        vars(kind).pop("_modules", None)
        sys.modules.pop(f"{kind.package}.{name}", None)
        vars(package).pop(name, None)


@pytest.fixture
def added(add: Callable[[DropIns, str], None], extended_tree: Tree) -> Callable[[DropIns], Values]:
    """Adds the example of a kind, turns it on, and returns the configuration."""

    def configure(kind: DropIns) -> Values:
        name, asked = next((name, asked) for one, name, asked, _ in EXAMPLES if one is kind)
        add(kind, name)
        return configured(extended_tree, asked)

    return configure


def configured(tree: Tree, asked: Mapping[str, str]) -> Values:
    return tree.resolve([a for n, v in asked.items() for a in tree.assignments(n, v, Origin("test"))]).values


@pytest.mark.parametrize(
    ("kind", "name", "asked", "options"), EXAMPLES, ids=[kind.kind for kind, *_ in EXAMPLES]
)
def test_file_and_entry_add_one_thing_with_its_options(
    kind: DropIns,
    name: str,
    asked: dict[str, str],
    options: dict[str, object],
    add: Callable[[DropIns, str], None],
    extended_tree: Tree,
) -> None:
    before = kind.names
    with pytest.raises(UserError, match=f"^unknown {kind.kind} '{name}'$") as unknown:  # without the file
        kind.load(name)
    assert unknown.value.hint == f"known {kind.kind}s: {', '.join(before)}"
    with pytest.raises(ConfigError):  # without the entry
        configured(Tree.load(ROOT), asked)
    add(kind, name)
    assert kind.names == tuple(sorted((*before, name)))
    assert asdict(kind.options(name, configured(extended_tree, asked))) == options


@pytest.mark.parametrize(("kind", "name"), WITHOUT_ENTRY, ids=["sampler", "source", "graph"])
def test_file_alone_adds_what_has_no_options(
    kind: DropIns, name: str, add: Callable[[DropIns, str], None]
) -> None:
    before = kind.names
    add(kind, name)
    assert kind.names == tuple(sorted((*before, name)))


def test_the_page_has_an_example_of_every_kind() -> None:
    kinds = [kind for kind, *_ in EXAMPLES] + [kind for kind, _ in WITHOUT_ENTRY]
    texts = [path.read_text() for path in (ROOT / "lib").rglob("*.py")]
    assert sum(len(re.findall(r"^[A-Z_]+ = DropIns\(", text, flags=re.M)) for text in texts) == len(kinds)
    assert {file.rpartition("/")[0] for file in MODULES} == {
        f"lib/{kind.package.replace('.', '/')}" for kind in kinds
    }
    assert [file for file in MODULES if file not in TEXT] == []


def rules_of_the_tree(root: Path, nodes: Nodes) -> Iterator[tuple[str, Callable[[], None]]]:
    """Each test of layers, owners, drop-ins and words that needs nothing but the source."""
    given: dict[str, Any] = {
        "nodes": nodes,
        "own_imports": test_layers.read_imports(nodes),
        "root": root,
        "sources": test_owners.read_sources(nodes),
    }
    for module in (test_layers, test_owners, test_dropins):
        for name, rule in vars(module).items():
            needs = inspect.signature(rule).parameters if name.startswith("test_") else ["no rule"]
            if given.keys() >= set(needs):
                yield name, partial(rule, **{need: given[need] for need in needs})
    for package in test_layers.FLOORS:
        yield package, partial(test_layers.test_imports_go_down_only, given["own_imports"], package)
    yield "words", test_words.test_docstrings_are_sentences_of_their_own


def broken_rules(root: Path, nodes: Nodes) -> dict[str, str]:
    """Those that do not hold in a tree, each with what its test says."""
    broken = {}
    with pytest.MonkeyPatch.context() as patch:
        for module in (test_layers, test_owners, test_dropins, test_words):
            patch.setattr(module, "ROOT", root)
        patch.setattr(test_owners, "MODELS", [root / model for model in test_layers.MODELS])
        for name, rule in rules_of_the_tree(root, nodes):
            try:
                rule()
            except AssertionError as error:
                broken[name] = str(error)
    return broken


def test_examples_keep_the_rules_of_the_tree(extended_tree: Tree, nodes: Nodes) -> None:
    """Pasted examples break no rule of the tree; its own tests have read the other modules' nodes.

    What the tree itself breaks fails in its own test alone.
    """
    broken = broken_rules(extended_tree.root, lambda path: nodes(path.resolve()))
    of_the_tree = broken_rules(ROOT, nodes) if broken else {}
    assert {name: said for name, said in broken.items() if name not in of_the_tree} == {}


def test_entries_of_the_page_say_what_they_affect(extended_tree: Tree) -> None:
    symbols = {symbol.name for symbol in extended_tree.kconf.unique_defined_syms}
    assert symbols - extended_tree.affects.words.keys() == set()
    assert "LAUNCHER_NICE_INCREMENT" in symbols


def test_added_optimizer_steps(added: Callable[[DropIns], Values]) -> None:
    values = added(OPTIMIZERS)
    optimizer, described = build_optimizer(values["OPTIMIZER"], nn.Linear(2, 1), values)
    assert isinstance(optimizer, torch.optim.RMSprop)
    assert (described["name"], optimizer.param_groups[0]["alpha"]) == ("rmsprop", 0.5)


def test_added_pruning_method_prunes(added: Callable[[DropIns], Values]) -> None:
    values = added(PRUNING_METHODS)
    model = nn.Linear(4, 4)
    pruner = build_pruner(values["PRUNING"], model, torch.optim.SGD(model.parameters()), values, num_steps=4)
    assert isinstance(pruner, Pruner)
    pruner.after_step(3)
    assert pruner.measured() == {"sparsity": 0.5}


def test_added_dataset_is_loaded(added: Callable[[DropIns], Values], tmp_path: Path) -> None:
    values = added(DATASETS)
    check_dataset(values["DATASET"], values, tmp_path)
    digits = load_dataset(values["DATASET"], values, tmp_path)
    assert digits.train_images.shape == (20, 28, 28)


@pytest.mark.parametrize(("kind", "seq"), [(TRACKERS, 2), (EXPORTERS, 0)], ids=["tracker", "exporter"])
def test_added_follower_takes_records(
    kind: DropIns, seq: int, added: Callable[[DropIns], Values], tmp_path: Path
) -> None:
    ((name, options),) = enabled_followers(added(kind)).items()
    run = RunInfo(tmp_path, "0" * 16, "project", "run", None, {})
    follower = follower_module(name).open_follower(run, follower_options(name, options))
    follower.deliver([{"seq": 1, "event": "start"}, {"seq": 2, "event": "step", "global_step": 1}])
    follower.flush()
    assert (tmp_path / next(iter(map(str, options.values())))).exists()
    assert follower.last_seq() == seq
    follower.close("complete")


def test_added_rule_finds(added: Callable[[DropIns], Values]) -> None:
    values = added(RULES)
    assert "data_wait" in enabled_rules(values)
    found = open_rule("data_wait", values).update({"data_seconds": 0.5})
    assert found == [Finding(True, "steps wait over 0.25 s for data", value=0.5)]


def test_added_launcher_runs(added: Callable[[DropIns], Values], tmp_path: Path) -> None:
    values = added(LAUNCHERS)
    (tmp_path / "m").mkdir()
    (tmp_path / "m/train.py").write_text("import os; print(os.nice(0))")
    launcher = open_launcher(values["LAUNCHER"], values)
    job = launcher.submit(Launch("cell", tmp_path, tmp_path, "m", {}), Slot())
    os.waitid(os.P_PID, int(job.id), os.WEXITED | os.WNOWAIT)  # it has ended, and is not yet collected
    ended = launcher.poll(job)
    assert ended is not None
    assert ((tmp_path / "output.log").read_text(), ended.exit_code) == (f"{os.nice(0) + 3}\n", 0)
    launcher.close()


def test_added_sampler_samples(add: Callable[[DropIns, str], None], tmp_path: Path) -> None:
    add(SAMPLERS, "npu")
    (tmp_path / "sys/class/npu/npu0").mkdir(parents=True)
    (tmp_path / "sys/class/npu/npu0/busy_percent").write_text("40\n")
    sampler = SAMPLERS.load("npu").probe(tmp_path)
    assert [(sample.name, sample.utilization_percent) for sample in sampler.sample()] == [("npu0", 40.0)]


def test_added_source_is_found_and_read(add: Callable[[DropIns, str], None], tmp_path: Path) -> None:
    add(SOURCE_KINDS, "progress_txt")
    (tmp_path / "data").mkdir()
    (tmp_path / "data/progress.txt").write_text("Epoch\tLossPi\n0\t-0.5\n1\t-0.25\n2\t-0.1")
    watched = Watched(tmp_path / "run", tmp_path, started=0.0)
    (source,) = SOURCE_KINDS.load("progress_txt").find(watched)
    assert list(source.read(0)) == [
        Reported({"Epoch": 0.0, "LossPi": -0.5}, 1),
        Reported({"Epoch": 1.0, "LossPi": -0.25}, 2),
    ]
    assert list(source.read(2)) == []


def test_added_graph_is_drawn(add: Callable[[DropIns, str], None], tmp_path: Path) -> None:
    add(GRAPH_MODULES, "test_loss")
    shutil.copytree(ROOT / "tests/data/recorded_matrix", tmp_path / "matrix")
    (picture,) = draw_all(collect(tmp_path / "matrix"), ["test_loss"])
    assert picture.with_suffix(".csv").read_text().startswith("run,test_loss\noptimizer-")
