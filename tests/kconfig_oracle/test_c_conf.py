"""kharness and C conf (Debian's kconfig-frontends) give the same `.config`, byte for byte."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kharness.config.make.targets import all_bools, random_values
from kharness.config.presets import preset_files
from kharness.config.tree import Assignment, Origin, Tree
from monitoring.outside import enter

CONF = shutil.which("kconfig-conf")
ORIGIN = Origin("test")
ROOT = Path(__file__).resolve().parents[2]
MISSING = "kconfig-conf is not installed (apt-get install kconfig-frontends)"

pytestmark = pytest.mark.skipif(CONF is None and os.environ.get("CI") != "true", reason=MISSING)


@pytest.fixture(scope="module")
def tree() -> Tree:
    return Tree.load(ROOT)


@pytest.fixture
def c_conf(tmp_path: Path, root: Path) -> CConf:
    assert CONF, MISSING
    return CConf(CONF, root, tmp_path)


class CConf:
    """Runs C conf on the shipped tree, with its `.config` in a folder of its own."""

    def __init__(self, program: str, root: Path, folder: Path, top: Path = Path("Kconfig")) -> None:
        self.program, self.root, self.config, self.top = program, root, folder / ".config", top

    def __call__(self, *options: str, seed: int | None = None) -> str:
        environment = {**os.environ, "KCONFIG_CONFIG": str(self.config)}
        if seed is not None:
            environment["KCONFIG_SEED"] = str(seed)
        result = subprocess.run(
            [self.program, *options, self.top],
            cwd=self.root,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
        )
        assert "warning" not in result.stdout + result.stderr
        return self.config.read_text()

    def savedefconfig(self) -> str:
        minimal = self.config.with_name("minimal")
        self(f"--savedefconfig={minimal}")
        return minimal.read_text()


@pytest.mark.parametrize("preset", preset_files(ROOT), ids=lambda path: path.name)
def test_preset_gives_the_same_config(preset: Path, tree: Tree, c_conf: CConf) -> None:
    resolved = tree.resolve(tree.read(preset, "preset"))
    assert resolved.text == c_conf(f"--defconfig={preset}")
    assert resolved.minimal == c_conf.savedefconfig()


def test_a_preset_with_bare_numbers_is_written_so_that_c_conf_reads_it(tree: Tree, c_conf: CConf) -> None:
    resolved = tree.resolve(tree.parse("CONFIG_LEARNING_RATE=0.25\n", "p", "preset"))
    fragment = c_conf.config.with_name("fragment")
    fragment.write_text(resolved.minimal)
    assert c_conf(f"--defconfig={fragment}") == resolved.text
    assert c_conf.savedefconfig() == resolved.minimal == 'CONFIG_LEARNING_RATE="0.25"\n'


@pytest.mark.parametrize("seed", range(50))
def test_random_values_give_the_same_config(seed: int, tree: Tree, c_conf: CConf) -> None:
    resolved = tree.resolve(random_values(tree, Random(seed), ORIGIN))
    fragment = c_conf.config.with_name("fragment")
    fragment.write_text(resolved.minimal)
    assert c_conf(f"--defconfig={fragment}") == resolved.text
    assert c_conf.savedefconfig() == resolved.minimal


@pytest.mark.parametrize("seed", range(50))
def test_random_config_of_c_conf_is_read_back_the_same(seed: int, tree: Tree, c_conf: CConf) -> None:
    c_conf("--randconfig", seed=seed)
    # It leaves lines of a model's choice that it has then not taken, which its own reading drops.
    text = c_conf("--olddefconfig")
    assert tree.resolve(tree.base(c_conf.config.parent)).text == text


@pytest.mark.parametrize(("value", "option"), [("y", "--allyesconfig"), ("n", "--allnoconfig")])
def test_every_bool_on_or_off_is_the_same(value: str, option: str, tree: Tree, c_conf: CConf) -> None:
    assert tree.resolve(all_bools(tree, value, ORIGIN)).text == c_conf(option)


def test_all_defaults_are_the_same(tree: Tree, c_conf: CConf) -> None:
    assert tree.resolve([]).text == c_conf("--alldefconfig")


def test_a_model_outside_of_the_tree_gives_the_same_config(tmp_path: Path) -> None:
    """Its Kconfig is the top, goes on with choices of the tree and adds defaults to its options."""
    assert CONF, MISSING
    folder = ROOT / "examples" / "mymodel"
    c_conf = CConf(CONF, ROOT, tmp_path, folder / "Kconfig")
    enter(folder)
    try:
        tree = Tree.load(ROOT)
        assert tree.resolve([]).text == c_conf("--alldefconfig")
        for seed in range(10):
            resolved = tree.resolve(random_values(tree, Random(seed), ORIGIN))
            fragment = tmp_path / "fragment"
            fragment.write_text(resolved.minimal)
            assert c_conf(f"--defconfig={fragment}") == resolved.text
            assert c_conf.savedefconfig() == resolved.minimal
            assert tree.resolve(tree.base(tmp_path)).text == resolved.text
    finally:
        enter(None)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(value=st.text(st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from("\\\"'$#`\t ")))
def test_every_string_is_escaped_and_read_the_same(value: str, tree: Tree, c_conf: CConf) -> None:
    resolved = tree.resolve([Assignment("DATA_DIR", value, ORIGIN)])
    c_conf.config.write_text(resolved.text)
    assert c_conf("--olddefconfig") == resolved.text
