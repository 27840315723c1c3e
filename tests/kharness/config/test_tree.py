"""Layers on the option tree: who wins, what is set aside, what a `.config` asks for."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kharness.config.errors import ConfigError
from kharness.config.generate import write_config
from kharness.config.tree import Assignment, Origin, Tree

FLAG = Origin("flag", "--x")

NAMES = """
config TRACKER_PROJECT
	string
	default "p"

config TRACKER_RUN_NAME
	string
	default "r"
"""

FEATURES = """
config LIMIT
	bool "Limit"
	default y

config NUMBER
	int "Number"
	range 1 10 if LIMIT
	range 1 100
	default 5

config DETAIL
	string "Detail"
	default "a"
	depends on LIMIT

config HELPER
	bool "Helper"

config NEEDS_HELPER
	bool "Needs helper"
	select HELPER
"""


def asked(tree: Tree, *words: str, kind: str = "flag") -> list[Assignment]:
    found: list[Assignment] = []
    for word in words:
        name, value = word.split("=", 1)
        found += tree.assignments(name, value, Origin(kind, word))
    return found


def test_values_are_typed_by_kconfig(tree: Tree) -> None:
    values = tree.resolve(asked(tree, "OPTIMIZER=adam", "LEARNING_RATE=1e-2")).values
    assert {name: values[name] for name in ("OPTIMIZER", "LEARNING_RATE", "OPTIMIZER_ADAM_BETAS")} == {
        "OPTIMIZER": "adam",
        "LEARNING_RATE": 0.01,
        "OPTIMIZER_ADAM_BETAS": [0.9, 0.999],
    }
    assert (values["SEED"], values["GPU_MONITOR"], values["WANDB_ENTITY"]) == (1, False, "")
    assert "OPTIMIZER_SGD_MOMENTUM" not in values
    assert values["OPTIMIZER_SGD_NESTEROV"] is False


@pytest.mark.parametrize(
    ("bare", "quoted"),
    [
        ("CONFIG_LEARNING_RATE=0.2", 'CONFIG_LEARNING_RATE="0.2"'),
        (
            "CONFIG_OPTIMIZER_ADAM=y\nCONFIG_OPTIMIZER_ADAM_BETAS=0.8 0.9",
            'CONFIG_OPTIMIZER_ADAM=y\nCONFIG_OPTIMIZER_ADAM_BETAS="0.8 0.9"',
        ),
    ],
)
def test_numbers_need_no_quotes_in_a_fragment_and_get_them(tree: Tree, bare: str, quoted: str) -> None:
    resolved = tree.resolve(tree.parse(bare, "f", "fragment"))
    assert resolved == tree.resolve(tree.parse(quoted, "f", "fragment"))
    assert quoted.splitlines()[-1] in resolved.text.splitlines()
    assert resolved.minimal == f"{quoted}\n"


def test_alias_of_a_choice_sets_its_member(tree: Tree) -> None:
    assert tree.assignments("CONFIG_OPTIMIZER", "adamw", FLAG) == [Assignment("OPTIMIZER_ADAMW", "y", FLAG)]
    assert set(tree.aliases) == {"MODEL", "DATASET", "DEVICE", "OPTIMIZER", "SCHEDULE"}


@pytest.mark.parametrize(
    ("value", "enabled"),
    [
        ("none", set()),
        ("trackio", {"ENABLE_TRACKIO"}),
        ("wandb", {"ENABLE_WANDB"}),
        ("both", {"ENABLE_TRACKIO", "ENABLE_WANDB"}),
        ("wandb,trackio", {"ENABLE_TRACKIO", "ENABLE_WANDB"}),
        ("tensorboard,wandb", {"ENABLE_TENSORBOARD", "ENABLE_WANDB"}),
        ("both,tensorboard", {"ENABLE_TENSORBOARD", "ENABLE_TRACKIO", "ENABLE_WANDB"}),
    ],
)
def test_tracker_list_enables_exactly_what_it_names(tree: Tree, value: str, enabled: set[str]) -> None:
    preset = tree.read(tree.root / "defconfigs" / "default", "preset")
    values = tree.resolve(preset, tree.assignments("TRACKER", value, FLAG)).values
    assert {name for name in values if name.startswith("ENABLE_") and values[name]} == enabled


def test_later_layer_wins_and_defaults_follow(tree: Tree) -> None:
    resolved = tree.resolve(asked(tree, "OPTIMIZER=adam", "SEED=2"), asked(tree, "OPTIMIZER=sgd"))
    assert (resolved.values["OPTIMIZER"], resolved.values["LEARNING_RATE"]) == ("sgd", 0.1)
    assert resolved.values["SEED"] == 2


def test_assignment_is_set_aside_when_a_later_layer_takes_its_ground_away(tree: Tree) -> None:
    preset = asked(tree, "OPTIMIZER=adam", "OPTIMIZER_ADAM_EPS=1e-3", kind="preset")
    resolved = tree.resolve(preset, asked(tree, "OPTIMIZER=sgd"))
    assert [str(a) for a in resolved.set_aside] == ["OPTIMIZER_ADAM=y", "OPTIMIZER_ADAM_EPS=1e-3"]
    assert [str(a) for a in resolved.asked] == ["OPTIMIZER_SGD=y"]


def test_assignment_that_took_only_between_two_layers_is_set_aside(tree: Tree) -> None:
    eps = asked(tree, "OPTIMIZER_ADAM_EPS=1e-3")
    adam, sgd = asked(tree, "OPTIMIZER=adam"), asked(tree, "OPTIMIZER=sgd")
    assert tree.resolve(eps, adam).values["OPTIMIZER_ADAM_EPS"] == 0.001
    assert [str(a) for a in tree.resolve(eps, adam, sgd).set_aside] == [
        "OPTIMIZER_ADAM_EPS=1e-3",
        "OPTIMIZER_ADAM=y",
    ]
    with pytest.raises(ConfigError, match="needs OPTIMIZER_ADAM=y, which is n"):
        tree.resolve(eps, sgd)


def test_conditional_range_is_the_one_in_force(make_tree: Callable[[str], Tree]) -> None:
    tree = make_tree(FEATURES)
    with pytest.raises(ConfigError, match=r"^--x: NUMBER=50 is outside 1..10$"):
        tree.resolve([Assignment("NUMBER", "50", FLAG)])
    assert tree.resolve(asked(tree, "LIMIT=n", "NUMBER=50")).values["NUMBER"] == 50
    narrowed = tree.resolve(asked(tree, "LIMIT=n", "NUMBER=50"), asked(tree, "LIMIT=y"))
    assert ([str(a) for a in narrowed.set_aside], narrowed.values["NUMBER"]) == (["NUMBER=50"], 5)


def test_unsetting_what_another_symbol_selects_is_refused(make_tree: Callable[[str], Tree]) -> None:
    tree = make_tree(FEATURES)
    with pytest.raises(ConfigError) as caught:
        tree.resolve(asked(tree, "NEEDS_HELPER=y", "HELPER=n"))
    assert (str(caught.value), caught.value.hint) == (
        "HELPER=n has no effect: it is selected by NEEDS_HELPER",
        "unset NEEDS_HELPER, or remove this assignment",
    )


def test_one_tree_gives_the_same_answer_whatever_was_resolved_before(tree: Tree) -> None:
    first = tree.resolve([])
    tree.resolve(asked(tree, "OPTIMIZER=adamw", "SCHEDULE=constant", "SEED=9"))
    assert tree.resolve([]) == first


def test_default_that_its_own_type_refuses_is_an_error(make_tree: Callable[[str], Tree]) -> None:
    tree = make_tree('config A\n\tstring "A"\n\tdefault "x"\n\thelp\n\t  Value: float\n')
    with pytest.raises(ConfigError, match=r"^Kconfig:2: the default A=x is not a float$"):
        tree.resolve([])


def test_default_out_of_range_is_an_error(make_tree: Callable[[str], Tree]) -> None:
    tree = make_tree('config A\n\tint "A"\n\trange 1 5\n\tdefault 9\n')
    with pytest.raises(ConfigError, match=r"default value 9 on A .*clamped to 5"):
        tree.resolve([])


def test_environment_of_other_kconfig_projects_is_not_obeyed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"CONFIG_": "FOO_", "srctree": "/nowhere", "KCONFIG_CONFIG_HEADER": "# hi\n"}.items():
        monkeypatch.setenv(name, value)
    text = Tree.load(root).resolve([]).text
    assert text.startswith("#\n# Automatically generated file; DO NOT EDIT.\n")
    assert "\nCONFIG_SEED=1\n" in text


# What a written .config asks for


def test_base_is_what_was_asked_with_its_origins(tree: Tree, tmp_path: Path) -> None:
    preset = tree.read(tree.root / "defconfigs" / "default", "preset")
    layers = [preset, asked(tree, "OPTIMIZER=adamw", "SEED=1", kind="make variable")]
    write_config(tree.resolve(*layers), tmp_path, root=tree.root)
    assert tree.base(tmp_path) == [*preset, *layers[1]]


def test_per_optimizer_default_follows_an_axis_on_top_of_a_base(tree: Tree, tmp_path: Path) -> None:
    write_config(tree.resolve(asked(tree, "OPTIMIZER=adamw")), tmp_path, root=tree.root)
    values = tree.resolve(tree.base(tmp_path), asked(tree, "OPTIMIZER=sgd", kind="matrix axis")).values
    assert (values["LEARNING_RATE"], values["WEIGHT_DECAY"]) == (0.1, 0.0005)


def test_value_asked_for_stays_even_where_it_equals_the_default(tree: Tree, tmp_path: Path) -> None:
    write_config(tree.resolve(asked(tree, "LEARNING_RATE=0.1")), tmp_path, root=tree.root)
    values = tree.resolve(tree.base(tmp_path), asked(tree, "OPTIMIZER=adam")).values
    assert values["LEARNING_RATE"] == 0.1


def test_config_edited_by_hand_is_taken_literally(tree: Tree, tmp_path: Path) -> None:
    write_config(tree.resolve(asked(tree, "SEED=3")), tmp_path, root=tree.root)
    config = tmp_path / ".config"
    text = config.read_text()
    text = text.replace("CONFIG_OPTIMIZER_SGD=y", "# CONFIG_OPTIMIZER_SGD is not set")
    config.write_text(text.replace("# CONFIG_OPTIMIZER_ADAM is not set", "CONFIG_OPTIMIZER_ADAM=y"))
    base = tree.base(tmp_path)
    line = text.splitlines().index("# CONFIG_OPTIMIZER_ADAM is not set") + 1
    assert Assignment("OPTIMIZER_ADAM", "y", Origin("config file", f"{config}:{line}")) in base
    assert Assignment("SEED", "3", Origin("flag", "SEED=3")) in base
    # The file says 0.1 in black and white, so 0.1 it is, and not Adam's default.
    assert tree.resolve(base).values["LEARNING_RATE"] == 0.1


def test_lines_left_over_from_a_hand_edit_yield_to_it(tree: Tree, tmp_path: Path) -> None:
    write_config(
        tree.resolve(asked(tree, "OPTIMIZER=adam", "OPTIMIZER_ADAM_EPS=1e-3")), tmp_path, root=tree.root
    )
    config = tmp_path / ".config"
    text = config.read_text().replace("CONFIG_OPTIMIZER_ADAM=y", "# CONFIG_OPTIMIZER_ADAM is not set")
    config.write_text(text.replace("# CONFIG_OPTIMIZER_ADAMW is not set", "CONFIG_OPTIMIZER_ADAMW=y"))
    # Adam's weight decay of 0 stays: the line was in reach before and after.
    assert [str(a) for a in tree.base(tmp_path)] == ["WEIGHT_DECAY=0", "OPTIMIZER_ADAMW=y"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("CONFIG_OPTIMIZER_ADAM=y", "OPTIMIZER_ADAM=y contradicts OPTIMIZER_ADAM=n"),
        ("CONFIG_SEED=2", "SEED=2 contradicts SEED=1"),
        ('CONFIG_OPTIMIZER_ADAM_EPS="1"', "OPTIMIZER_ADAM_EPS=1 has no effect: needs OPTIMIZER_ADAM=y"),
    ],
)
def test_line_appended_by_hand_is_refused_where_it_contradicts(
    tree: Tree, tmp_path: Path, line: str, message: str
) -> None:
    write_config(tree.resolve([]), tmp_path, root=tree.root)
    with (tmp_path / ".config").open("a") as config:
        config.write(f"{line}\n")
    with pytest.raises(ConfigError, match=message):
        tree.base(tmp_path)


def test_line_deleted_by_hand_means_the_default(tree: Tree, tmp_path: Path) -> None:
    write_config(tree.resolve(asked(tree, "SEED=3", "NUM_EPOCHS=4")), tmp_path, root=tree.root)
    config = tmp_path / ".config"
    config.write_text(config.read_text().replace("CONFIG_SEED=3\n", ""))
    assert [str(a) for a in tree.base(tmp_path)] == ["NUM_EPOCHS=4"]


def test_config_without_a_record_is_taken_literally(tree: Tree, tmp_path: Path) -> None:
    resolved = tree.resolve(asked(tree, "OPTIMIZER=adam", "LEARNING_RATE=0.1"))
    (tmp_path / ".config").write_text(resolved.text)
    base = tree.base(tmp_path)
    assert [str(a) for a in base] == ["OPTIMIZER_ADAM=y", "LEARNING_RATE=0.1"]
    assert tree.resolve(base).text == resolved.text


_NUMBER = (
    '{"asked": [{"symbol": "SEED", "value": 3, "kind": "flag", "where": "x"}], "written": {"SEED": "3"}}'
)


@pytest.mark.parametrize(
    "garbage",
    [
        "",
        "{",
        "[]",
        '{"asked": 3}',
        "null",
        "3",
        _NUMBER,
        '{"asked": [], "written": {"SEED": 3}}',
        "\xff",
        "[" * 9999,
    ],
)
def test_torn_record_leaves_the_config_alone_to_decide(tree: Tree, tmp_path: Path, garbage: str) -> None:
    write_config(tree.resolve(asked(tree, "SEED=3")), tmp_path, root=tree.root)
    (tmp_path / ".config.origins.json").write_text(garbage, encoding="latin1")
    assert [str(a) for a in tree.base(tmp_path)] == ["SEED=3"]


def test_follower_that_contradicts_the_file_is_refused(tree: Tree, tmp_path: Path) -> None:
    write_config(tree.resolve([]), tmp_path, root=tree.root)
    config = tmp_path / ".config"
    config.write_text(config.read_text().replace('CONFIG_OPTIMIZER="sgd"', 'CONFIG_OPTIMIZER="adam"'))
    line = config.read_text().splitlines().index('CONFIG_OPTIMIZER="adam"') + 1
    with pytest.raises(ConfigError) as caught:
        tree.base(tmp_path)
    assert (str(caught.value), caught.value.hint) == (
        f"{config}:{line}: OPTIMIZER=adam contradicts the rest of the file, which makes it sgd",
        "remove the line; to change it set CONFIG_OPTIMIZER_ADAM=y",
    )


def test_symbol_gone_from_the_tree_is_dropped_only_on_request(
    make_tree: Callable[[str], Tree], tmp_path: Path
) -> None:
    tree = make_tree(
        'config OLD\n\tint "Old"\n\tdefault 1\n\nconfig KEPT\n\tint "Kept"\n\tdefault 1\n' + NAMES
    )
    write_config(tree.resolve(asked(tree, "OLD=2", "KEPT=3")), tmp_path, root=tree.root)
    newer = make_tree(
        'config KEPT\n\tint "Kept"\n\tdefault 1\n\nconfig NEW\n\tint "New"\n\tdefault 7\n' + NAMES
    )
    with pytest.raises(ConfigError, match="OLD=2: unknown symbol"):
        newer.base(tmp_path)
    dropped: list[str] = []
    values = newer.resolve(newer.base(tmp_path, dropped=dropped)).values
    assert (values["KEPT"], values["NEW"], dropped) == (3, 7, ["OLD"])
    # A line that kharness did not write is a mistake, not history.
    with (tmp_path / ".config").open("a") as config:
        config.write("CONFIG_KPET=4\n")
    with pytest.raises(ConfigError, match="KPET=4: unknown symbol"):
        newer.base(tmp_path, dropped=[])


def test_default_that_changed_in_the_tree_does_not_change_an_existing_config(
    make_tree: Callable[[str], Tree], tmp_path: Path
) -> None:
    tree = make_tree('config A\n\tint "A"\n\tdefault 1\n' + NAMES)
    write_config(tree.resolve([]), tmp_path, root=tmp_path)
    newer = make_tree('config A\n\tint "A"\n\tdefault 2\n' + NAMES)
    assert newer.resolve(newer.base(tmp_path)).values["A"] == 1


# The kconfiglib that is installed


def run_with_module(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(folder)!r})\n{code}"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


LOAD = """
from pathlib import Path
from kharness.config.errors import run_command
from kharness.config.tree import Tree
run_command(lambda argv: Tree.load(Path(".")) and 0)
"""


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "is a package of version None"),
        ("VERSION = (14, 1, 0)", "is a package of version (14, 1, 0)"),
        ("import esp_pylib", "does not load (No module named 'esp_pylib')"),
    ],
)
def test_package_that_shadows_kconfiglib_is_refused(tmp_path: Path, text: str, what: str) -> None:
    (tmp_path / "kconfiglib").mkdir()
    (tmp_path / "kconfiglib" / "__init__.py").write_text(text)
    result = run_with_module(tmp_path, LOAD)
    assert result.returncode == 2
    assert result.stderr == (
        f"error: the installed kconfiglib is not that of kconfiglib 14.1.0: it {what}\n"
        "hint: esp-idf-kconfig installs packages of that name: pip uninstall esp-idf-kconfig, "
        "then pip install --force-reinstall kconfiglib==14.1.0\n"
    )


def test_missing_kconfiglib_says_what_to_install(tmp_path: Path) -> None:
    result = run_with_module(tmp_path, f"sys.modules['kconfiglib'] = None\n{LOAD}")
    assert (result.returncode, result.stderr) == (
        2,
        "error: kconfiglib is not installed\nhint: run it through make, or: pip install kconfiglib==14.1.0\n",
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            'config A\n\tint "A"\n\tdefault B\n',
            "the int symbol A (defined at Kconfig:2) has a non-int default B",
        ),
        ("config A\n\tbanana\n", "Kconfig:3: error: couldn't parse 'banana': syntax error"),
        ('source "missing"\n', "Kconfig:2: 'missing' not found (in 'source \"missing\"')."),
        (
            'config A\n\tstring "A"\n\thelp\n\t  Value: number\n',
            "Kconfig:2: A: cannot read 'Value: number'",
        ),
    ],
)
def test_tree_that_cannot_be_read_is_an_error(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "Kconfig").write_text(f'mainmenu "small"\n{text}')
    result = run_with_module(tmp_path, LOAD)
    assert result.returncode == 2
    assert result.stderr.startswith(f"error: {message}")


EXPERT = (
    'config EXPERT\n\tbool "expert"\n\n'
    'config WAIT\n\tint "wait" if EXPERT\n\tdefault 3\n\trange 1 9\n\n'
    'config DEEP\n\tbool "deep" if EXPERT\n\n'
)


def test_a_value_for_an_option_that_expert_shows_sets_expert(make_tree: Callable[[str], Tree]) -> None:
    tree = make_tree(EXPERT)
    flag = Origin("flag", "--wait 5")
    resolved = tree.resolve(tree.assignments("WAIT", "5", flag))
    assert resolved.values == {"EXPERT": True, "WAIT": 5, "DEEP": False}
    assert resolved.origins["EXPERT"] == flag
    assert tree.resolve(resolved.asked).text == resolved.text
    # Its default needs none, nor does a bool that is n anyway.
    same = [*tree.assignments("WAIT", "3", flag), *tree.assignments("DEEP", "n", flag)]
    assert tree.resolve(same).values == {"EXPERT": False, "WAIT": 3, "DEEP": False}


def test_expert_that_is_off_by_request_stays_off(make_tree: Callable[[str], Tree]) -> None:
    tree = make_tree(EXPERT)
    off = tree.assignments("EXPERT", "n", Origin("preset", "p:1"))
    with pytest.raises(ConfigError) as caught:
        tree.resolve(off, tree.assignments("WAIT", "5", Origin("flag", "--wait 5")))
    assert (str(caught.value), caught.value.hint) == (
        "--wait 5: WAIT=5 has no effect: needs EXPERT=y, which is n",
        "set CONFIG_EXPERT=y, or remove this assignment",
    )
    with pytest.raises(ConfigError, match=r"is outside 1\.\.9"):
        tree.resolve(tree.assignments("WAIT", "12", Origin("flag")))


def test_an_expert_option_edited_by_hand_takes_effect(
    make_tree: Callable[[str], Tree], tmp_path: Path
) -> None:
    tree = make_tree(EXPERT)
    text = tree.resolve([]).text
    assert "# CONFIG_EXPERT is not set\nCONFIG_WAIT=3\n" in text
    (tmp_path / ".config").write_text(text.replace("CONFIG_WAIT=3", "CONFIG_WAIT=5"))
    assert tree.resolve(tree.base(tmp_path)).values == {"EXPERT": True, "WAIT": 5, "DEEP": False}
