"""`.config`, `config.py` and the record: what is in them, and that no reader meets half of one."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kharness.config.config_py import read_values
from kharness.config.errors import ConfigError
from kharness.config.generate import config_py, load_config, write_config
from kharness.config.project_name import checksum
from kharness.config.tree import Assignment, Layer, Origin, Tree

from ...warm_python import StartedPython, WarmPython

FLAG = Origin("flag", "--x")
NASTY = [
    "__import__('os').system('touch f')",
    "'); import os; os.system('touch f'); ('",
    '"""',
    "\\",
    "\\n",
    "$(touch f)",
    "`touch f`",
    "%s{0}",
    "# comment",
    "tab\there",
    " spaces ",
    "naïve ünïcode 数字  ",
    "'\"\\'\\\"",
]


def data_dir(value: str) -> Layer:
    return [Assignment("DATA_DIR", value, FLAG)]


def test_config_py_is_literals_typed_by_kconfig(tree: Tree, tmp_path: Path) -> None:
    resolved = tree.resolve(tree.assignments("OPTIMIZER", "adam", FLAG))
    write_config(resolved, tmp_path, root=tree.root)
    values = read_values(tmp_path / "config.py")
    assert values == {**resolved.values, "TRACKER_PROJECT": f"lenet5-{checksum(tree.root)}"}
    assert {name: type(value) for name, value in values.items()} == {
        name: type(value) for name, value in resolved.values.items()
    }


def test_config_py_carries_the_hash_of_its_config(tree: Tree, tmp_path: Path) -> None:
    write_config(tree.resolve([]), tmp_path, root=tree.root)
    digest = hashlib.sha256((tmp_path / ".config").read_bytes()).hexdigest()
    assert f"# sha256 of its .config: {digest}\n" in (tmp_path / "config.py").read_text()


def test_config_py_is_the_same_for_the_same_config_however_it_came_about(tree: Tree) -> None:
    by_flag = tree.resolve(tree.assignments("SEED", "007", FLAG))
    by_preset = tree.resolve(
        [Assignment("SEED", "1", FLAG)], [Assignment("SEED", "7", Origin("preset", "p"))]
    )
    assert config_py(by_flag, tree.root) == config_py(by_preset, tree.root)


def test_config_is_imported_the_way_the_documentation_shows(tree: Tree, tmp_path: Path) -> None:
    layer = [*data_dir(NASTY[0]), *tree.assignments("TRACKER", "trackio", FLAG)]
    write_config(tree.resolve(layer), tmp_path, root=tree.root)
    code = (
        "from config import config\n"
        "print(getattr(config, 'ENABLE_TRACKIO', False), getattr(config, 'ENABLE_WANDB', False),\n"
        "      getattr(config, 'TRACKER_PROJECT', 'my-project'), getattr(config, 'WANDB_PROJECT', 'none'),\n"
        "      config.DATA_DIR)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert result.stdout == f"True False lenet5-{checksum(tree.root)} none {NASTY[0]}\n"
    assert not (tmp_path / "f").exists()


@pytest.mark.parametrize("value", NASTY)
def test_nasty_string_arrives_unchanged_and_runs_nothing(tree: Tree, tmp_path: Path, value: str) -> None:
    write_config(tree.resolve(data_dir(value)), tmp_path, root=tree.root)
    assert read_values(tmp_path / "config.py")["DATA_DIR"] == value
    (tmp_path / ".config.origins.json").unlink()
    assert tree.resolve(tree.base(tmp_path)).values["DATA_DIR"] == value


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs", "Cc"])))
def test_every_string_round_trips_through_both_files(tree: Tree, tmp_path: Path, value: str) -> None:
    write_config(tree.resolve(data_dir(value)), tmp_path, root=tree.root)
    assert read_values(tmp_path / "config.py")["DATA_DIR"] == value
    assert tree.resolve(tree.read(tmp_path / ".config", "preset")).values["DATA_DIR"] == value


def test_config_py_with_more_than_literals_is_refused_and_not_run(tmp_path: Path) -> None:
    (tmp_path / "config.py").write_text("SEED = __import__('os').getpid()\n")
    with pytest.raises(ConfigError, match="holds more than literal values"):
        read_values(tmp_path / "config.py")


def test_statement_of_several_lines_is_read_as_one(tmp_path: Path) -> None:
    text = 'A = """\nB = 2\n"""\nC = [1,\n2]\nD = (\n3\n)\nE = "a" \\\n"b"\n'
    (tmp_path / "config.py").write_text(text)
    first = read_values(tmp_path / "config.py")
    assert first == {"A": "\nB = 2\n", "C": [1, 2], "D": 3, "E": "ab"}
    assert isinstance(first["C"], list)
    first["C"].append(4)
    assert read_values(tmp_path / "config.py")["C"] == [1, 2]


def test_unchanged_configuration_is_not_written_again(tree: Tree, tmp_path: Path) -> None:
    assert write_config(tree.resolve([]), tmp_path, root=tree.root)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert not write_config(tree.resolve([]), tmp_path, root=tree.root)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before


def test_config_that_is_replaced_is_kept_as_old(tree: Tree, tmp_path: Path) -> None:
    first = tree.resolve([])
    write_config(first, tmp_path, root=tree.root)
    write_config(tree.resolve(data_dir("other")), tmp_path, root=tree.root)
    assert (tmp_path / ".config.old").read_text() == first.text
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".config",
        ".config.lock",
        ".config.old",
        ".config.origins.json",
        "config.py",
    ]


def test_config_py_follows_a_config_edited_by_hand(tree: Tree, tmp_path: Path) -> None:
    write_config(tree.resolve([]), tmp_path, root=tree.root)
    config = tmp_path / ".config"
    config.write_text(config.read_text().replace("CONFIG_SEED=1", "CONFIG_SEED=5"))
    load_config(tree, tmp_path)
    assert read_values(tmp_path / "config.py")["SEED"] == 5


def test_directory_that_cannot_be_written_is_a_plain_error(tree: Tree, tmp_path: Path) -> None:
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    # root writes anywhere but into the kernel's own file systems
    directory = tmp_path if os.geteuid() else Path("/sys")
    with pytest.raises(ConfigError, match="permission denied"):
        write_config(tree.resolve([]), directory, root=tree.root)


def test_output_directory_that_is_a_file_is_a_plain_error(tree: Tree, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError) as caught:
        write_config(tree.resolve([]), tmp_path / "file", root=tree.root)
    assert (str(caught.value), caught.value.hint) == (
        f"{tmp_path}/file: file exists",
        "choose a directory that you can write to with O=dir",
    )


# Real processes that write at once, or are killed

WRITE_FOREVER = """
import sys
from pathlib import Path
from kharness.config.generate import write_config
from kharness.config.tree import Assignment, Origin, Tree

directory, root = Path(sys.argv[1]), Path(sys.argv[2])
tree = Tree.load(root)
choices = [tree.resolve([Assignment("DATA_DIR", word * 2000, Origin("flag", word))]) for word in sys.argv[3]]
print("ready", flush=True)
while True:
    for resolved in choices:
        write_config(resolved, directory, root=root)
"""


def start_writer(python: WarmPython, tree: Tree, directory: Path, words: str) -> StartedPython:
    writer = python.start(["-c", WRITE_FOREVER, directory, tree.root, words], stdout=subprocess.PIPE)
    assert writer.stdout is not None
    assert writer.stdout.readline() == "ready\n"
    writer.stdout.close()
    return writer


def whole_texts(tree: Tree, words: str) -> Iterator[tuple[str, str, str]]:
    """(word, .config, config.py) for each configuration that the writers alternate between."""
    for word in words:
        resolved = tree.resolve([Assignment("DATA_DIR", word * 2000, Origin("flag", word))])
        yield word, resolved.text, config_py(resolved, tree.root)


def test_writers_at_once_leave_one_consistent_configuration(
    warm_python: WarmPython, tree: Tree, tmp_path: Path
) -> None:
    scripts = {script for _, _, script in whole_texts(tree, "abcd")}
    writers = [start_writer(warm_python, tree, tmp_path, words) for words in ("ab", "cd")]
    unseen, deadline = set(scripts), time.monotonic() + 600
    while unseen and time.monotonic() < deadline:
        if (tmp_path / "config.py").exists():
            script = (tmp_path / "config.py").read_text()
            assert script in scripts
            unseen.discard(script)
    assert not unseen
    for writer in writers:
        writer.terminate()
        writer.wait()
    # What a terminated writer left is mended by the next one; then the three files agree.
    resolved = load_config(tree, tmp_path)
    config, script = (tmp_path / ".config").read_text(), (tmp_path / "config.py").read_text()
    assert (config, script) in [(text, py) for _, text, py in whole_texts(tree, "abcd")]
    assert resolved.text == config


def test_two_makes_at_once_leave_the_result_of_one_of_them(checkout: Path, warm_python: WarmPython) -> None:
    environment = {**os.environ, "KHARNESS_MAKE_VARS": "TRACKER"}
    command = ["scripts/kconfig.py", "defconfig"]
    for _ in range(5):
        running = [
            warm_python.start(
                command, cwd=checkout, env={**environment, "TRACKER": name}, stdout=subprocess.DEVNULL
            )
            for name in ("wandb", "trackio", "both", "none")
        ]
        assert [process.wait() for process in running] == [0, 0, 0, 0]
        digest = hashlib.sha256((checkout / ".config").read_bytes()).hexdigest()
        script = (checkout / "config.py").read_text()
        assert f"# sha256 of its .config: {digest}\n" in script
        tracking = [
            f"ENABLE_{name} = {enabled}" in script for name in ("WANDB", "TRACKIO") for enabled in (True,)
        ]
        record = (checkout / ".config.origins.json").read_text()
        asked = {
            (True, False): "wandb",
            (False, True): "trackio",
            (True, True): "both",
            (False, False): "none",
        }
        assert f'"where": "TRACKER={asked[tracking[0], tracking[1]]}"' in record
    assert not list(checkout.glob(".*.tmp"))


def test_writer_killed_at_any_moment_leaves_each_file_old_or_new(
    warm_python: WarmPython, tree: Tree, tmp_path: Path
) -> None:
    chance = random.Random(7)
    wholes = list(whole_texts(tree, "ab"))
    write_config(
        tree.resolve([Assignment("DATA_DIR", "a" * 2000, Origin("flag", "a"))]), tmp_path, root=tree.root
    )
    for _ in range(20):
        writer = start_writer(warm_python, tree, tmp_path, "ab")
        with pytest.raises(subprocess.TimeoutExpired):
            writer.wait(timeout=chance.uniform(0.001, 0.05))
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        if (tmp_path / ".config").exists():
            config = (tmp_path / ".config").read_text()
            assert config in [text for _, text, _ in wholes]
            resolved = tree.resolve(tree.base(tmp_path))
            assert resolved.text == config
        if (tmp_path / "config.py").exists():
            assert (tmp_path / "config.py").read_text() in [script for _, _, script in wholes]
    load_config(tree, tmp_path)
    assert ((tmp_path / ".config").read_text(), (tmp_path / "config.py").read_text()) in [
        (text, script) for _, text, script in wholes
    ]
