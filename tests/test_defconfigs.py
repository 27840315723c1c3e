"""Every shipped preset resolves to exactly what it asks for, and asks for nothing that is so anyway."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kharness.config.generate import config_py
from kharness.config.presets import find_preset, listing, preset_files
from kharness.config.tree import Origin, Tree
from kharness.matrix.planning.cells import Around
from kharness.matrix.planning.plan import draft
from kharness.matrix.sweep.ranges import read_ranges
from kharness.matrix.sweep.sweep import draft_sweep

ROOT = Path(__file__).resolve().parent.parent
PRESETS = preset_files(ROOT)


@pytest.fixture(scope="module")
def tree() -> Tree:
    return Tree.load(ROOT)


@pytest.mark.parametrize("preset", PRESETS, ids=lambda path: path.name)
def test_preset_takes_effect_whole(preset: Path, tree: Tree) -> None:
    layer = tree.read(preset, "preset")
    resolved = tree.resolve(layer)
    assert (resolved.asked, resolved.set_aside) == (layer, [])
    assert [(a.symbol, tree.current(a.symbol)) for a in layer] == [(a.symbol, a.value) for a in layer]
    compile(config_py(resolved, ROOT), "config.py", "exec")


@pytest.mark.parametrize("preset", PRESETS, ids=lambda path: path.name)
def test_preset_is_minimal_and_in_menu_order(preset: Path, tree: Tree) -> None:
    lines = [line for line in preset.read_text().splitlines() if line and not line.startswith("# ")]
    minimal = tree.resolve(tree.read(preset, "preset")).minimal.splitlines()
    assert [line for line in minimal if not line.endswith(" is not set")] == lines
    unset = [line for line in minimal if line.endswith(" is not set")]
    assert all(line in preset.read_text().splitlines() for line in unset)


@pytest.mark.parametrize("preset", PRESETS, ids=lambda path: path.name)
def test_preset_keeps_a_tracker_list_put_on_top(preset: Path, tree: Tree) -> None:
    both = tree.assignments("TRACKER", "both", Origin("make variable", "TRACKER=both"))
    values = tree.resolve(tree.read(preset, "preset"), both).values
    assert (values["ENABLE_TRACKIO"], values["ENABLE_WANDB"], values["ENABLE_TENSORBOARD"]) == (
        True,
        True,
        False,
    )


def test_preset_names_are_unique_and_found_by_name() -> None:
    assert [find_preset(ROOT, path.name) for path in PRESETS] == PRESETS


def test_every_preset_of_a_matrix_plans_what_it_says(tree: Tree) -> None:
    """All optimizers; all pruning methods at three sparsities, but 2:4 and none without; for each seed."""
    optimizers, methods = (len(tree.aliases[name]) for name in ("OPTIMIZER", "PRUNING"))
    pruned = (methods - 2) * 3 + 2
    models = len(list(ROOT.glob("*/model.py")))
    found = {}
    for preset in PRESETS:
        layer = tree.read(preset, "preset")
        if any(assignment.symbol == "MATRIX_AXES" for assignment in layer):
            one_seed = [replace(one, value=one.value.replace("SEED=1..3", "SEED=1")) for one in layer]
            drafted = draft(tree, one_seed, [], Path("test_matrix_stamp"))
            # Pairs that the tree refuses, as each optimizer says what it keeps.
            reasons = [one.reason for one in drafted.refused]
            assert [reason for reason in reasons if " needs OPTIMIZER_" not in reason] == []
            assert bool(drafted.refused) == preset.name.endswith("everything")
            found[preset.name] = len(drafted.cells) + len(drafted.refused)
    expected = {
        "default": 3 * 5,
        "everything": optimizers * pruned * models,
        "optimizers": optimizers * models,
        "pruning": pruned * models,
        "gpt2-optimizers": optimizers,
        "gpt2-pruning": methods,
        "gpt2-recipe": 14 * 5,
        "lenet5-everything": optimizers * pruned,
        "lenet5-mnist-optimizers": 14 * 5,
        "lenet5-mnist-pruning": 6,
        "lenet5-optimizers": optimizers,
        "lenet5-pruning": pruned,
        "resnet50-recipe": 40,
    }
    assert {name: found[name] for name in expected} == expected
    assert min(found.values()) > 1  # also of a model that joins the tree


def test_every_shipped_range_file_plans_what_it_says(tree: Tree) -> None:
    """Six rates of each optimizer that it names by two seeds, an epoch of the preset that the file names."""
    found = {}
    for ranges in sorted(ROOT.glob("*/ranges/*")):
        preset = re.findall(r"`make defconfig-(\S+)` first", ranges.read_text())
        layer = tree.read(find_preset(ROOT, *preset), "preset")
        drafted = draft_sweep(
            tree,
            Around(layer, read_ranges(tree, ranges).fixed, []),
            read_ranges(tree, ranges),
            Path("sweep_stamp"),
        )
        settings = {
            tuple(cell.resolved.values[name] for name in ("DATASET", "NUM_EPOCHS"))
            for cell in drafted.cells
            if cell.resolved
        }
        found[f"{ranges.parent.parent.name}/{ranges.name}"] = (len(drafted.cells), settings)
    assert found == {"lenet5/optimizers": (len(tree.aliases["OPTIMIZER"]) * 6 * 2, {("mnist", 1)})}


def test_every_preset_says_what_it_is_and_needs(tree: Tree) -> None:
    lines = list(listing(tree))
    assert [line for line in lines if len(line) > 80] == []
    starts = [i for i, line in enumerate(lines) if re.match(r"  \S", line)]
    about = {
        lines[i].strip(): " ".join(line.strip() for line in lines[i + 1 : end] if line.startswith("   "))
        for i, end in zip(starts, [*starts[1:], len(lines)], strict=True)
    }
    assert sorted(about) == sorted(path.name for path in PRESETS)
    assert [
        name for name, text in about.items() if not re.match(r"[A-Z].+\. Needs: a CPU|.+a GPU|.+GPUs", text)
    ] == []
    always_there = ("mnist-subset", "digits", "pydoc-topics", "imagefolder")
    for path in PRESETS:
        resolved = tree.resolve(tree.read(path, "preset"))
        fetched = resolved.values.get("DATASET") not in (None, *always_there)
        assert ("`make data`" in about[path.name]) == fetched, path
        axes = resolved.values["MATRIX_AXES"] != tree.kconf.syms["MATRIX_AXES"].orig_defaults[0][0].str_value
        assert ("`make test_matrix`" in about[path.name]) == (axes or " seeds" in about[path.name]), path


def test_the_default_preset_tracks_nothing(tree: Tree) -> None:
    values = tree.resolve(tree.read(find_preset(ROOT, "default"), "preset")).values
    assert {name: value for name, value in values.items() if name.startswith("ENABLE_") and value} == {}


def titles(node: Any) -> list[str]:
    """Titles of a menu's entries: menus, choices and options, without the entries below them."""
    found = []
    child = node.list
    while child:
        found += [child.prompt[0]] if child.prompt else []
        child = child.next
    return found


def test_the_menu_asks_in_the_order_in_which_people_do(tree: Tree) -> None:
    assert titles(tree.kconf.top_node) == [
        *("What to train", "Optimizer", "Schedule", "Pruning", "Device and precision"),
        *("Checkpoints and evaluation", "Tracking", "Monitoring", "Matrix and report", "Advanced"),
    ]
    what, optimizer, schedule, *_ = (node for node in tree.kconf.menus if not node.parent.parent)
    asked = ["Model", "Dataset", "Epochs", "Batch size", "Random seed"]
    assert [title for title in titles(what) if title in asked] == asked
    assert titles(optimizer)[:3] == ["Optimizer", "Peak learning rate", "Weight decay"]
    assert titles(schedule)[0] == "Learning rate schedule"


def test_expert_options_are_hidden_and_keep_their_values(tree: Tree) -> None:
    plain, expert = tree.resolve([]), tree.resolve(tree.assignments("EXPERT", "y", Origin("test")))
    assert {**plain.values, "EXPERT": True} == expert.values
    tree.resolve([])
    hidden = {name for name in plain.values if not tree.reachable(name)}
    tree.resolve(tree.assignments("EXPERT", "y", Origin("test")))
    assert {name for name in hidden if tree.reachable(name)} == {
        *(
            "CUDA_SYNC_CHECK",
            "DDP_FIND_UNUSED",
            "INSPECT_STEP",
            "LAUNCHER_LOCAL_FORK_SERVER",
            "PROMETHEUS_LINGER",
            "RANK_TIMEOUT",
        ),
        *("REPORT_OTHER_WORK_LIMIT", "REPORT_TIME_TOLERANCE", "SWEEP_SEED"),
    }


@pytest.mark.parametrize(
    ("name", "sets"),
    [
        ("EVALUATE_EVERY_STEPS", {"EVAL_INTERVAL": 7}),
        ("CHECKPOINT_EVERY_STEPS", {"CHECKPOINT_EVERY": 7, "CHECKPOINT_UNIT": "steps"}),
    ],
)
def test_a_name_that_stands_for_others_sets_them(name: str, sets: dict[str, object], tree: Tree) -> None:
    values = tree.resolve(tree.assignments(name, "7", Origin("flag"))).values
    assert {name: values[name] for name in [*sets, name]} == {**sets, name: 7}
    assert not any(node.prompt for node in tree.kconf.syms[name].nodes)


def test_every_entry_fits_a_terminal_of_80_columns(tree: Tree) -> None:
    """With the longest value that comes without typing: of a choice each member, of others the default."""
    wide = []
    for node in tree.kconf.node_iter():
        if not node.prompt:
            continue
        chosen = [m.nodes[0].prompt[0] for m in getattr(node.item, "syms", ())]
        shown = [f"    {node.prompt[0]} ({one})  --->" for one in chosen] or [f"    {node.prompt[0]}  --->"]
        wide += [line for line in shown if len(line) > 80]
    assert wide == []


def test_another_model_has_its_own_length_and_not_that_of_the_first_matrix(tree: Tree) -> None:
    preset = tree.read(find_preset(ROOT, "default"), "preset")

    def length(name: str = "SEED", value: str = "1") -> tuple[object, object, list[str]]:
        resolved = tree.resolve(preset, tree.assignments(name, value, Origin("make variable", name)))
        aside = [assignment.symbol for assignment in resolved.set_aside]
        return resolved.values["NUM_EPOCHS"], resolved.values["EVAL_INTERVAL"], aside

    assert length() == (2, 34, [])
    assert length("NUM_EPOCHS", "3") == (3, 34, [])
    assert length("MODEL_GPT2", "y") == (5, 100, ["LENET5_QUICK"])
    assert length("MODEL_RESNET50", "y") == (15, 0, ["LENET5_QUICK"])
    assert length("DATASET", "mnist") == (15, 0, ["LENET5_QUICK"])


def test_model_chosen_in_the_menu_has_its_own_length(tree: Tree) -> None:
    tree.resolve(tree.read(find_preset(ROOT, "default"), "preset"))
    tree.symbol("MODEL_GPT2").set_value(2)
    assert (tree.current("NUM_EPOCHS"), tree.current("EVAL_INTERVAL")) == ("5", "100")
    assert "LENET5_QUICK" not in dict(tree.set_by_user())
