"""`make menuconfig` on a real terminal, driven by keys."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pexpect
import pytest

from kharness.config.config_py import read_values
from kharness.config.tree import Assignment, Origin, Tree

Run = Callable[..., subprocess.CompletedProcess[str]]
Open = Callable[..., "pexpect.spawn[str]"]


@pytest.fixture
def menu(checkout: Path) -> Open:
    """Starts menuconfig in the checkout on a terminal of its own."""

    def start(**variables: str) -> pexpect.spawn[str]:
        environment = {**os.environ, "TERM": "xterm", "LC_ALL": "C.UTF-8"}
        environment.update(variables, KHARNESS_MAKE_VARS=" ".join(variables))
        return pexpect.spawn(
            sys.executable,
            ["scripts/kconfig.py", "menuconfig"],
            cwd=str(checkout),
            env=environment,
            dimensions=(40, 100),
            encoding="utf-8",
            timeout=600,
        )

    return start


def jump_to(screen: pexpect.spawn[str], symbol: str, prompt: str) -> None:
    """Search for a symbol with / and select it."""
    screen.send("/")
    screen.expect("without leaving the dialog")
    screen.send(f"^{symbol}$")
    screen.expect(re.escape(prompt))
    screen.send("\r")
    screen.expect(r"\[Space/Enter\] Toggle/enter")


def finish(screen: pexpect.spawn[str]) -> int:
    screen.expect(pexpect.EOF)
    # Not close() alone, which gives a process that is about to end a tenth of a second before it kills it.
    code: int = screen.wait()
    screen.close()
    return code


def save_and_quit(screen: pexpect.spawn[str]) -> None:
    screen.send("q")
    screen.expect("Save configuration")
    screen.send("y")


def test_menu_saves_all_files_with_origins(checkout: Path, kconfig: Run, menu: Open) -> None:
    kconfig("defconfig", DEFCONFIG="lenet5-mnist", TRACKER="wandb")
    screen = menu()
    screen.expect("Model")
    jump_to(screen, "SEED", "Random seed")
    screen.send("\r")
    screen.expect("Seeds Python|Range: 0-4294967295")
    screen.send("\x7f12\r")
    save_and_quit(screen)
    screen.expect("Configuration saved to .config")
    assert finish(screen) == 0
    assert read_values(checkout / "config.py")["SEED"] == 12
    tree = Tree.load(checkout)
    base = tree.base(checkout)
    assert Assignment("SEED", "12", Origin("menuconfig")) in base
    assert Assignment("BATCH_SIZE", "128", Origin("preset", "lenet5/defconfigs/lenet5-mnist:3")) in base
    assert Assignment("ENABLE_WANDB", "y", Origin("make variable", "TRACKER=wandb")) in base
    assert tree.resolve(base).text == (checkout / ".config").read_text()


def test_defaults_follow_what_is_chosen_in_the_menu(checkout: Path, kconfig: Run, menu: Open) -> None:
    kconfig("defconfig")
    screen = menu()
    screen.expect("Model")
    jump_to(screen, "OPTIMIZER_ADAMW", "AdamW")
    screen.send("\r")
    screen.expect("AdamW options")
    save_and_quit(screen)
    screen.expect("Configuration saved")
    assert finish(screen) == 0
    values = read_values(checkout / "config.py")
    assert (values["OPTIMIZER"], values["LEARNING_RATE"], values["WEIGHT_DECAY"]) == ("adamw", 0.003, 0.01)


def test_value_of_the_wrong_type_cannot_be_saved_and_can_be_mended(
    checkout: Path, kconfig: Run, menu: Open
) -> None:
    kconfig("defconfig")
    before = (checkout / ".config").read_text()
    screen = menu()
    screen.expect("Model")
    jump_to(screen, "LEARNING_RATE", "Peak learning rate")
    screen.send("\r\x7f\x7f\x7fabc\r")
    save_and_quit(screen)
    screen.expect("LEARNING_RATE=abc is not a float")
    assert (checkout / ".config").read_text() == before
    screen.send("\r")
    screen.expect("Save configuration")
    screen.send("c")
    screen.send("\r\x7f\x7f\x7f0.5\r")
    save_and_quit(screen)
    screen.expect("Configuration saved")
    assert finish(screen) == 0
    assert read_values(checkout / "config.py")["LEARNING_RATE"] == 0.5


def test_only_what_the_saved_config_lacks_is_marked_as_new(checkout: Path, kconfig: Run, menu: Open) -> None:
    kconfig("defconfig")
    config = checkout / ".config"

    def shown() -> str:
        screen = menu()
        screen.logfile_read = io.StringIO()
        screen.expect("Model")
        jump_to(screen, "SEED", "Random seed")
        screen.send("q")
        assert finish(screen) == 0
        return screen.logfile_read.getvalue()

    assert "(NEW)" not in shown()
    config.write_text(config.read_text().replace("CONFIG_SEED=1\n", ""))
    assert re.findall(r"(\w+ \w+) \(NEW\)", shown()) == ["Random seed"]


def test_quitting_without_a_change_asks_nothing(checkout: Path, kconfig: Run, menu: Open) -> None:
    kconfig("defconfig")
    screen = menu()
    screen.expect("Model")
    screen.send("q")
    screen.expect("No changes to save")
    assert finish(screen) == 0


def test_menu_without_a_config_starts_from_the_default_preset(checkout: Path, menu: Open) -> None:
    screen = menu(TRACKER="both")
    screen.expect("no .config yet: starting from defconfigs/default")
    screen.expect("Model")
    save_and_quit(screen)
    screen.expect("Configuration saved")
    assert finish(screen) == 0
    values = read_values(checkout / "config.py")
    assert (values["ENABLE_TRACKIO"], values["ENABLE_WANDB"]) == (True, True)


def test_config_that_is_refused_opens_to_be_mended(checkout: Path, kconfig: Run, menu: Open) -> None:
    kconfig("defconfig", CONFIG_SEED="5")
    config = checkout / ".config"
    config.write_text(config.read_text().replace("CONFIG_BATCH_SIZE=64", "CONFIG_BATCH_SIZE=64 # why"))
    assert kconfig("olddefconfig").returncode == 2
    screen = menu()
    screen.expect(r"warning: .config:\d+: BATCH_SIZE=64 # why is followed by an inline comment: fix it")
    screen.expect("Model")
    save_and_quit(screen)
    screen.expect("Configuration saved")
    assert finish(screen) == 0
    values = read_values(checkout / "config.py")
    assert (values["SEED"], values["BATCH_SIZE"]) == (5, 64)
    assert [(str(a), a.origin.kind) for a in Tree.load(checkout).base(checkout)] == [
        ("SEED=5", "make variable"),
        ("ENABLE_TRACKIO=y", "preset"),
    ]
    assert kconfig("olddefconfig").returncode == 0


def test_menu_saves_a_minimal_configuration_and_other_files(checkout: Path, kconfig: Run, menu: Open) -> None:
    kconfig("defconfig", CONFIG_SEED="5")
    screen = menu()
    screen.expect("Model")
    screen.send("d")
    screen.expect("Filename to save minimal configuration to")
    screen.send("\r")
    screen.expect("Minimal configuration saved to defconfig")
    screen.send("\r")
    screen.send("s")
    screen.expect("Filename to save configuration to")
    screen.send("\x15copy\r")
    screen.expect("Configuration saved to copy")
    screen.send("\rq")
    assert finish(screen) == 0
    assert (checkout / "defconfig").read_text() == "CONFIG_SEED=5\nCONFIG_ENABLE_TRACKIO=y\n"
    assert (checkout / "copy").read_text() == (checkout / ".config").read_text()


def test_menu_without_a_terminal_says_so(kconfig: Run) -> None:
    result = kconfig("menuconfig")
    assert (result.returncode, result.stderr) == (
        2,
        "error: menuconfig needs a terminal\n"
        "hint: without one: make olddefconfig CONFIG_SYMBOL=value, or edit .config and make olddefconfig\n",
    )


@pytest.mark.parametrize("term", ["nonsense", ""])
def test_menu_on_an_unknown_terminal_says_so(checkout: Path, kconfig: Run, menu: Open, term: str) -> None:
    kconfig("defconfig")
    screen = menu(TERM=term)
    screen.expect(f"error: menuconfig cannot use this terminal: TERM={term} is unknown\r\n")
    screen.expect("hint: TERM=xterm make menuconfig\r\n")
    assert finish(screen) == 2
