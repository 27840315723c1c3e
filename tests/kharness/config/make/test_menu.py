"""`make menuconfig` on a real terminal, driven by keys."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pexpect
import pyte
import pytest

from kharness.config.config_py import read_values
from kharness.config.make.menu import FOUND_BY
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


def test_menu_says_that_nothing_is_saved_yet(checkout: Path, menu: Open) -> None:
    screen = menu()
    screen.expect("no .config yet: starting from defconfigs/default\r\nnothing is saved yet\r\n")
    screen.expect("Model")
    screen.send("q")
    screen.expect("Save configuration")
    screen.send("n")
    assert finish(screen) == 0
    assert not (checkout / ".config").exists()


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


@pytest.mark.parametrize(
    ("typed", "refused"), [("abc", "LEARNING_RATE=abc is not a float"), ("-1", "LEARNING_RATE=-1 is outside")]
)
def test_value_that_its_option_cannot_have_is_refused_where_it_is_typed(
    checkout: Path, kconfig: Run, menu: Open, typed: str, refused: str
) -> None:
    kconfig("defconfig")
    screen = menu()
    screen.expect("Model")
    jump_to(screen, "LEARNING_RATE", "Peak learning rate")
    screen.send(f"\r\x15{typed}\r")
    screen.expect(refused)
    screen.expect("its value is: float, 0 < x")
    screen.send("\r\x150.5\r")
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


class Screen:
    """The shipped menu on a terminal of 80x24, as somebody sees it who presses keys."""

    def __init__(self, root: Path, folder: Path) -> None:
        environment = {**os.environ, "TERM": "xterm", "LC_ALL": "C.UTF-8", "KHARNESS_MAKE_VARS": "O"}
        self._process = pexpect.spawn(
            sys.executable,
            ["scripts/kconfig.py", "menuconfig"],
            cwd=str(root),
            env={**environment, "O": str(folder)},
            dimensions=(24, 80),
            encoding="utf-8",
            timeout=600,
        )
        self._window = pyte.Screen(80, 24)
        self._stream = pyte.Stream(self._window)
        self.keys = 0

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self._window.display]

    @property
    def entries(self) -> list[str]:
        """Entries that the menu shows, from its path to the last one."""
        return "\n".join(self.lines[:19]).rstrip().splitlines()

    @property
    def chosen(self) -> str:
        """The entry on which the cursor stands, which is white on blue."""
        rows = range(2, 19)
        return next((self.lines[row] for row in rows if self._window.buffer[row][0].bg == "blue"), "")

    def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._stream.feed(self._process.read_nonblocking(4096, timeout=600))

    def shows(self, *parts: str) -> None:
        """Wait until each of them is on the screen; what is drawn last should be among them."""
        self.until(lambda: all(any(part in line for line in self.lines) for part in parts))

    def press(self, keys: str) -> None:
        self.keys += 1 if keys.startswith("\x1b") else len(keys)
        self._process.send(keys)

    def go_to(self, entry: str) -> None:
        """Down to the entry that begins so, then Enter."""
        while entry not in self.chosen:
            here = self.lines.index(self.chosen)
            self.press("\x1bOB")
            self.until(lambda here=here: self.chosen == self.lines[here + 1])  # type: ignore[misc]
        self.press("\r")

    def finish(self) -> str:
        text: str = self._process.read()
        assert self._process.wait() == 0
        return text


def documented_screens(root: Path) -> list[list[str]]:
    page = (root / "docs/configuration.md").read_text()
    found = re.findall(r"^```text\n(\(Top\).*?)^```", page, flags=re.M | re.S)
    return [text.rstrip().splitlines() for text in found]


def test_a_first_reader_changes_epochs_learning_rate_and_tracker(root: Path, tmp_path: Path) -> None:
    """The walk of docs/configuration.md, read off the screen: in a minute, which is some forty keys."""
    screen = Screen(root, tmp_path)
    screen.shows("What to train", "Advanced", "[D] Save minimal config")
    seen = [screen.entries]
    screen.go_to("What to train")
    screen.shows("→ What to train", "Folder of datasets that are not shipped")
    screen.until(lambda: screen.entries[-1].startswith("(data)"))  # the other menu is wiped away
    seen.append(screen.entries)
    screen.go_to("Epochs")
    screen.shows("Range: 1-100000")
    screen.press("\x7f3\r")
    screen.shows("(3) Epochs", "Folder of datasets")
    screen.press("h")
    screen.shows("Optimizer  --->", "Advanced")
    screen.go_to("Optimizer")
    screen.shows("→ Optimizer", "SGD options")
    screen.go_to("Peak learning rate")
    screen.shows("Peak learning rate (string)")
    screen.press("\x7f1\r")
    screen.shows("(0.01) Peak learning rate", "SGD options")
    screen.press("h")
    screen.shows("Tracking  --->", "Advanced")
    screen.go_to("Tracking")
    screen.shows("→ Tracking", "MLflow's tracking URI")
    screen.go_to("Enable Trackio")
    screen.shows("[*] Enable Trackio")
    screen.press("q")
    screen.shows("(Y)es  (N)o  (C)ancel")
    screen.press("y")
    assert "Configuration saved" in screen.finish()
    values = read_values(tmp_path / "config.py")
    assert [values[name] for name in ("NUM_EPOCHS", "LEARNING_RATE", "ENABLE_TRACKIO")] == [3, 0.01, True]
    assert screen.keys < 40
    assert seen == documented_screens(root)


def test_search_finds_an_option_by_the_short_name_that_people_use(root: Path, tmp_path: Path) -> None:
    screen = Screen(root, tmp_path)
    screen.shows("What to train", "Advanced", "[D] Save minimal config")
    screen.press("/")
    screen.shows("Type text to narrow the search")
    screen.press("lr")
    found = ['LEARNING_RATE(=0.05) "Peak learning rate"', '<choice> "Learning rate schedule"', ""]
    screen.until(lambda: screen.lines[3:6] == found)
    screen.press("\r")
    screen.shows("→ Optimizer", "SGD options")
    screen.until(lambda: screen.chosen == "(0.05) Peak learning rate")
    screen.press("q")
    screen.shows("(Y)es  (N)o  (C)ancel")
    screen.press("n")
    screen.finish()
    assert list(tmp_path.iterdir()) == []


WORDS = {
    "grad accum": 'MICRO_BATCH_SIZE(=) "',
    "scheduler": '<choice> "Learning rate schedule"',
    "num_workers": 'RESNET50_READERS(=) "',
    "autocast": '<choice> "Mixed precision"',
    "max_grad_norm": 'GRADIENT_CLIP(=) "',
}


def test_search_finds_what_other_trainers_call_it(root: Path, tmp_path: Path) -> None:
    screen = Screen(root, tmp_path)
    screen.shows("What to train", "Advanced", "[D] Save minimal config")
    screen.press("/")
    screen.shows("Type text to narrow the search")
    for words, found in WORDS.items():
        screen.press(f"\x15{words}")  # Ctrl-U clears what was typed before
        screen.shows(found)
    screen.press("\x1b")
    screen.shows("What to train", "Advanced", "[D] Save minimal config")
    screen.press("q")
    screen.shows("(Y)es  (N)o  (C)ancel")
    screen.press("n")
    screen.finish()
    assert list(tmp_path.iterdir()) == []


def test_words_that_find_an_option_name_one(root: Path) -> None:
    assert FOUND_BY.keys() - Tree.load(root).kconf.syms.keys() == set()


def test_menu_ends_with_a_terminal_that_is_not_its_own(checkout: Path) -> None:
    """Nothing tells it by SIGHUP that such a terminal is gone."""
    ours, theirs = os.openpty()
    menu = subprocess.Popen(
        [sys.executable, "scripts/kconfig.py", "menuconfig"],
        cwd=checkout,
        env={**os.environ, "TERM": "xterm", "LC_ALL": "C.UTF-8", "KHARNESS_MAKE_VARS": ""},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    shown = b""
    while b"Model" not in shown:
        shown += os.read(ours, 4096)
    os.close(ours)
    assert menu.wait(600) == -signal.SIGHUP
