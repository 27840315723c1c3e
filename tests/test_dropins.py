"""One file adds one thing, and one Kconfig entry: a test fails if either is missing."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kharness.config.assignment import CHOSEN_FOR, Origin
from kharness.config.tree import Tree
from kharness.matrix.launchers import LAUNCHERS
from kharness.training.datasets import DATASETS
from kharness.training.optimizers import OPTIMIZERS
from kharness.training.pruning import PRUNING_METHODS
from monitoring.dropins import DropIns
from monitoring.follower import EXPORTERS, TRACKERS, exporter_switch
from monitoring.rules import RULES

ROOT = Path(__file__).resolve().parent.parent


def modules(folder: Path) -> set[str]:
    return {path.stem for path in folder.glob("*.py") if not path.stem.startswith("_")}


def options(kconfig: Path, prefix: str, kind: str = "bool") -> set[str]:
    found = re.findall(rf"^config {prefix}(\w+)\n\t{kind} \"", kconfig.read_text(), flags=re.M)
    return {name.lower() for name in found}


def members(kconfig: Path, prefix: str) -> set[str]:
    """Members of the choice whose symbols begin with the prefix; options of a member are not."""
    choices = re.findall(r"^choice\b[^\n]*\n.*?^endchoice", kconfig.read_text(), flags=re.M | re.S)
    return {
        name.lower() for text in choices for name in re.findall(rf"^config {prefix}(\w+)", text, flags=re.M)
    }


def test_every_optimizer_has_a_module_and_a_choice_entry(root: Path) -> None:
    folder = root / "lib/kharness/training/optimizers"
    assert modules(folder) == members(folder / "Kconfig", "OPTIMIZER_")


def test_every_pruning_method_has_a_module_and_a_choice_entry(root: Path) -> None:
    folder = root / "lib/kharness/training/pruning"
    assert modules(folder) | {"none"} == members(folder / "Kconfig", "PRUNING_")


def test_every_tracker_has_a_module_and_an_enable_entry(root: Path) -> None:
    folder = root / "lib/monitoring/trackers"
    assert modules(folder) == options(folder / "Kconfig", "ENABLE_")


def test_every_exporter_has_a_module_and_an_entry(root: Path) -> None:
    """metrics.csv is always written, so it has no entry. A choice's members are no switches."""
    folder = root / "lib/monitoring/exporters"
    text = re.sub(r"^choice\b[^\n]*\n.*?^endchoice", "", (folder / "Kconfig").read_text(), flags=re.M | re.S)
    entries = re.findall(r'^config (\w+)\n\tbool "', text, flags=re.M)
    assert sorted(entries) == sorted(exporter_switch(name) for name in modules(folder) - {"csv"})


def test_every_alert_rule_has_a_module_and_an_entry(root: Path) -> None:
    folder = root / "lib/monitoring/rules"
    assert modules(folder) | modules(folder / "gpu") == options(folder / "Kconfig", "ALERT_")


def test_every_launcher_has_a_module_and_a_choice_entry(root: Path) -> None:
    folder = root / "lib/kharness/matrix"
    assert modules(folder / "launchers") == members(folder / "Kconfig", "LAUNCHER_")


def test_every_dataset_has_a_module_and_an_entry_in_a_models_choice(root: Path) -> None:
    entries = set().union(*(members(path, "DATASET_") for path in root.glob("*/Kconfig")))
    assert modules(root / "lib/kharness/training/datasets") == entries


def test_every_model_has_a_folder_with_its_files_and_a_choice_entry(root: Path) -> None:
    folders = {path.parent.name for path in root.glob("*/model.py")}
    assert folders == members(root / "lib/kharness/Kconfig", "MODEL_")
    needed = ["Kconfig", "data.py", "train.py", "defconfigs"]
    assert [
        f"{name}/{file}" for name in folders for file in needed if not (root / name / file).exists()
    ] == []


def defined(path: Path) -> set[str]:
    """The functions, classes and values that a module itself defines, not those that it imports."""
    body = ast.parse(path.read_text()).body
    named = {node.name for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    targets = [target for node in body if isinstance(node, ast.Assign) for target in node.targets]
    return named | {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}


@pytest.mark.parametrize(
    ("folder", "names"),
    [
        ("lib/kharness/training/optimizers", ("Options", "build")),
        ("lib/kharness/training/pruning", ("Options", "score")),
        ("lib/kharness/training/datasets", ("Options", "fetch", "check", "load")),
        ("lib/monitoring/exporters", ("Options", "open_follower")),
        ("lib/monitoring/bridge/sources", ("RICHNESS", "find")),
        ("lib/monitoring/rules", ("Options", "Rule")),
        ("lib/monitoring/rules/gpu", ("Options", "Rule")),
        ("lib/monitoring/samplers", ("probe",)),
        ("lib/monitoring/trackers", ("Options", "open_follower")),
        ("lib/kharness/report/graphs", ("numbers", "draw")),
        ("lib/kharness/matrix/launchers", ("Options", "open_launcher")),
    ],
)
def test_every_module_of_a_folder_defines_its_interface(
    root: Path, folder: str, names: tuple[str, ...]
) -> None:
    missing = []
    for path in sorted((root / folder).glob("*.py")):
        if not path.stem.startswith("_"):
            missing += [f"{path.name}: {name}" for name in names if name not in defined(path)]
    assert missing == []
    assert modules(root / folder) != set()


def test_nobody_else_finds_or_loads_drop_ins(nodes: Callable[[Path], list[Any]]) -> None:
    """Lazy names of a package's face and the process that imports everything beforehand are no drop-ins."""
    allowed = {"lib/monitoring/dropins.py", "lib/kharness/training/forkserver/server.py"}
    found = []
    for path in [*ROOT.glob("lib/**/*.py"), *ROOT.glob("scripts/*.py"), *ROOT.glob("*/train.py")]:
        found_in = nodes(path)
        faces = [
            node for node in found_in[0].body if getattr(node, "name", "") in ("__getattr__", "_imported")
        ]
        lazy = {id(inner) for face in faces for inner in ast.walk(face)}
        for node in found_in:
            called = isinstance(node, ast.Attribute | ast.Name) and id(node) not in lazy
            word = (node.attr if isinstance(node, ast.Attribute) else node.id) if called else ""
            if word in ("iter_modules", "walk_packages", "import_module"):
                found.append((str(path.relative_to(ROOT)), word))
    assert sorted({path for path, _ in found} - allowed) == [], "use monitoring.dropins"


@pytest.mark.parametrize(
    "kind",
    [DATASETS, EXPORTERS, LAUNCHERS, OPTIMIZERS, PRUNING_METHODS, RULES, TRACKERS],
    ids=lambda kind: kind.kind,
)
def test_symbols_and_fields_of_options_belong_together(kind: DropIns, root: Path) -> None:
    """A field has its symbol, where its default stands alone; a symbol of a drop-in has its field."""
    known = {symbol.name for symbol in Tree.load(root).kconf.unique_defined_syms}
    fields = [(name, own) for name in kind.names for own in dataclasses.fields(kind.load(name).Options)]
    needed = {kind.symbol(name, own.name) for name, own in fields if own.default is dataclasses.MISSING}
    assert sorted(needed - known) == []
    second = [(name, own.name) for name, own in fields if own.default is not dataclasses.MISSING]
    twice = {f"{name}.{option}" for name, option in second if kind.symbol(name, option) in known}
    # Of four weights, 2:4 prunes two: there is no other sparsity, so none to set.
    assert twice == ({"semi_structured.sparsity"} if kind is PRUNING_METHODS else set())
    prefixes = tuple(kind.symbol(name, "") for name in kind.names)
    switches = {kind.symbol(name, "").rstrip("_") for name in kind.names}
    symbols = {kind.symbol(name, own.name) for name, own in fields}
    automatic = set(CHOSEN_FOR.values())  # they have another symbol chosen
    assert sorted(s for s in known - switches - symbols - automatic if s.startswith(prefixes)) == []


@pytest.mark.parametrize("kind", [EXPORTERS, LAUNCHERS, RULES, TRACKERS], ids=lambda kind: kind.kind)
def test_options_without_a_configuration_are_those_of_kconfig(kind: DropIns, root: Path) -> None:
    """A script without Kconfig gets kconfiglib's values of a tree in which everything is enabled."""
    tree = Tree.load(root)
    on = [symbol for symbol in tree.kconf.unique_defined_syms if symbol.name.endswith("_EXPORTER")]
    switches = [*(symbol.name for symbol in on), *(f"ENABLE_{name.upper()}" for name in TRACKERS.names)]
    switches += ["USE_VERBOSE_LOGGING", *(f"ALERT_{name.upper()}" for name in RULES.names)]
    values = tree.resolve(
        [a for name in switches for a in tree.assignments(name, "y", Origin("test"))]
    ).values
    for name in kind.names:
        assert kind.made(name, {}) == kind.options(name, values)
