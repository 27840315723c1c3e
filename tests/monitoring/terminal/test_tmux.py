"""The terminal dashboard in real terminals: tmux in two sizes, terminals of other kinds, and none."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyte
import pytest

from monitoring import Run

from ...simulated_nvml.simulated_nvml import SimulatedNvml

DASHBOARD = [sys.executable, "-m", "monitoring.gpu_dashboard"]

needs_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


class Terminal:
    """One tmux session with one program in it."""

    def __init__(self, socket: Path) -> None:
        self.command = ["tmux", "-S", str(socket), "-f", "/dev/null"]
        self._status = socket.with_name("status")

    def start(self, command: list[str], size: tuple[int, int], environment: Mapping[str, str]) -> None:
        width, height = map(str, size)
        variables = [word for name, value in environment.items() for word in ("-e", f"{name}={value}")]
        keep = [";", "set-option", "-g", "remain-on-exit", "on", ";", "set-option", "-g", "status", "off"]
        told = ["sh", "-c", f'"$@"; echo $? > {self._status}', "sh", *command]  # tmux forgets it at times
        self._run("new-session", "-d", "-x", width, "-y", height, *variables, *told, *keep)

    def press(self, *keys: str) -> None:
        self._run("send-keys", *keys)

    def screen(self) -> list[str]:
        """Without what the clock says, and without graphs."""
        shown = self._run("capture-pane", "-p").splitlines()
        text = [re.sub(r"\d\d:\d\d:\d\d", "12:34:56", line) for line in shown]
        return [re.sub("[▁▂▃▄▅▆▇█]", " ", line).rstrip() for line in text]

    def exit_status(self) -> str:
        """Waits for the end of the program."""
        self.wait_for(lambda: self._status.exists() and self._status.read_text())
        return self._status.read_text().strip()

    def wait_for(self, condition: Callable[[], Any]) -> Any:
        """Who has waited long asks less often: each look at the screen is a program."""
        began = time.monotonic()
        while not (found := condition()):
            waited = time.monotonic() - began
            assert waited < 600, "\n".join(self.screen())
            time.sleep(min(max(0.05, waited / 10), 0.5))
        return found

    def close(self) -> None:
        subprocess.run([*self.command, "kill-server"], check=False, stderr=subprocess.DEVNULL)

    def _run(self, *arguments: str) -> str:
        done = subprocess.run(
            [*self.command, *arguments], check=True, capture_output=True, text=True, timeout=600
        )
        return done.stdout


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    with tempfile.TemporaryDirectory() as folder:  # the path of a socket is at most 107 bytes
        terminal = Terminal(Path(folder) / "tmux")
        yield terminal
        terminal.close()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    with Run(tmp_path / "run", name="digits", project="p", config={}, agent=False) as run:
        run.start(model={"name": "none"}, training={"num_steps": 2, "steps_per_epoch": 1})
        run.log_step(1, train_loss=2.0, lr=0.1, grad_norm=3.0, samples_per_sec=64.0)
        run.log_step(2, train_loss=1.0, lr=0.1, grad_norm=3.0, samples_per_sec=64.0)
    return tmp_path / "run"


@needs_tmux
@pytest.mark.parametrize(("name", "size"), [("80x24", (80, 24)), ("200x60", (200, 60))])
def test_dashboard_in_tmux(
    root: Path,
    tmp_path: Path,
    run: Path,
    terminal: Terminal,
    simulated_nvml: SimulatedNvml,
    name: str,
    size: tuple[int, int],
) -> None:
    simulated_nvml.write(
        "gpus 3",
        "all utilization 50",
        "all memory_total 81920",
        "all memory_used 40960",
        "all temperature 60",
        "all energy 1000",
        "gpu 1 temperature 82",
        "gpu 1 process 4194304 2048",
        "gpu 2 state lost",
    )
    options = ["--run", str(run), "--gpu", "all", "--save-dir", str(tmp_path / "saved"), "--interval", "0.1"]
    terminal.start([*DASHBOARD, *options], size, simulated_nvml.environment())
    terminal.wait_for(
        lambda: "82°!" in "".join(terminal.screen()) and " complete " in "".join(terminal.screen())
    )
    machine = r"( GPUs of )\S+(  80 GiB used, 140 W, 0 J) *"
    shown = [re.sub(machine, r"\1HERE\2 ", line) for line in terminal.screen()]
    assert re.fullmatch(
        r" host CPU +(\d+%|–) +RAM [\d./]+ GiB \d+%  load [\d. ]+(  disk \d+ GB free)?", shown.pop(1)
    )
    assert shown == (root / f"tests/data/gpu_dashboard/tmux-{name}.txt").read_text().splitlines()
    terminal.press("s")
    terminal.wait_for(lambda: len(list((tmp_path / "saved").glob("*.jsonl"))) == 2)
    terminal.press("q")
    assert terminal.exit_status() == "0"


@needs_tmux
def test_gputop_simulates_and_says_so(root: Path, run: Path, terminal: Terminal) -> None:
    asked = [sys.executable, str(root / "scripts/gputop.py"), "SIMULATE=4", f"RUN={run}"]
    terminal.start(asked, (80, 24), {})
    terminal.wait_for(lambda: "LOST: GPU is lost" in "".join(terminal.screen()))
    shown = terminal.screen()
    assert "  SIMULATED GPUs   " in shown[0]
    assert [line[:22] for line in shown[3:7]] == [
        "    0 Simulated GPU   ",
        "    1 Simulated GPU   ",
        "    2 Simulated GPU   ",
        "    3 Simulated GPU  L",
    ]
    terminal.press("q")
    assert terminal.exit_status() == "0"


@needs_tmux
def test_driver_that_hangs_is_told_left_out_and_holds_up_no_key(
    terminal: Terminal, simulated_nvml: SimulatedNvml
) -> None:
    simulated_nvml.write("gpus 1", "all utilization hang")
    terminal.start([*DASHBOARD, "--interval", "0.5"], (80, 24), simulated_nvml.environment())
    terminal.wait_for(lambda: "looking for GPUs …" in "".join(terminal.screen()))
    terminal.wait_for(lambda: "nvmlDeviceGetUtilizationRates" in "".join(terminal.screen()))
    terminal.wait_for(lambda: "0.5/79.6" in "".join(terminal.screen()))  # all but what that call gives
    terminal.press("q")
    assert terminal.exit_status() == "0"


# ----------------------------------------------------------------- without tmux


class Pty:
    """A terminal of 80x24 that nobody looks at; its program gets no signal when it is closed."""

    def __init__(self, command: list[str], kind: str, environment: Mapping[str, str] | None = None) -> None:
        self._reader, theirs = os.openpty()
        termios.tcsetwinsize(theirs, (24, 80))
        self.process = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            env={**os.environ, "TERM": kind, **(environment or {})},
        )
        os.close(theirs)

    def until(self, text: bytes) -> bytes:
        """Output up to a text, or up to the program's end if the text never comes."""
        shown = b""
        while text not in shown:
            try:
                shown += os.read(self._reader, 65536)
            except OSError:  # the other end is closed
                break
        return shown

    def read(self) -> bytes:
        return os.read(self._reader, 65536)

    def press(self, key: bytes) -> None:
        os.write(self._reader, key)

    def close(self) -> None:
        """A second call does nothing."""
        if self._reader != -1:
            os.close(self._reader)
            self._reader = -1


@pytest.fixture
def open_pty() -> Iterator[Callable[..., Pty]]:
    """Opens terminals that are closed, and whose programs end, with the test."""
    opened: list[Pty] = []

    def open_pty(*arguments: Any) -> Pty:
        opened.append(Pty(*arguments))
        return opened[-1]

    yield open_pty
    for terminal in opened:
        terminal.close()
        terminal.process.kill()
        terminal.process.wait()


@pytest.mark.parametrize("kind", ["xterm", "screen", "linux"])
def test_dashboard_in_terminals_of_other_kinds(open_pty: Callable[..., Pty], run: Path, kind: str) -> None:
    terminal = open_pty([*DASHBOARD, "--run", str(run)], kind)
    assert b"q quit" in terminal.until(b" run digits")
    terminal.press(b"q")
    terminal.until(b"nothing more")
    assert terminal.process.wait(600) == 0


def test_dashboard_ends_with_its_terminal(open_pty: Callable[..., Pty], run: Path) -> None:
    terminal = open_pty([*DASHBOARD, "--run", str(run), "--interval", "0.1"], "xterm")
    terminal.until(b"q quit")
    terminal.close()
    assert terminal.process.wait(600) == 0


def test_terminal_that_cannot_place_text_is_refused(open_pty: Callable[..., Pty], run: Path) -> None:
    terminal = open_pty([*DASHBOARD, "--run", str(run)], "dumb")
    assert terminal.until(b"nothing more").decode().splitlines() == [
        "error: the dashboard needs a terminal that can place text: TERM is dumb",
        "hint: python -m monitoring.gpu_monitor prints lines",
    ]
    assert terminal.process.wait(600) == 2


def test_no_terminal_is_one_line(run: Path) -> None:
    done = subprocess.run(
        [*DASHBOARD, "--run", str(run)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={**os.environ, "TERM": "xterm"},
    )
    assert (done.returncode, done.stdout, done.stderr.splitlines()[0]) == (
        *(2, "", "error: the dashboard needs a terminal"),
    )


def test_directory_that_is_not_there_is_refused(open_pty: Callable[..., Pty], tmp_path: Path) -> None:
    terminal = open_pty([*DASHBOARD, "--run", str(tmp_path / "nothing")], "xterm")
    said = terminal.until(b"nothing more").decode().splitlines()
    assert " ".join(" ".join(said).split()) == (  # lines as long as the terminal is wide
        f"error: {tmp_path / 'nothing'} is not a directory "
        "hint: name a run or a matrix, such as results/latest"
    )
    assert terminal.process.wait(600) == 2


def test_example_shows_the_dashboard(
    open_pty: Callable[..., Pty], root: Path, simulated_nvml: SimulatedNvml
) -> None:
    simulated_nvml.write("gpus 1", "all utilization 95")
    example = [sys.executable, str(root / "scripts/monitor_training_example.py"), "--mode", "dashboard"]
    terminal = open_pty(example, "xterm", simulated_nvml.environment())
    assert b" GPUs of " in terminal.until(b"95%")
    terminal.press(b"q")
    terminal.until(b"nothing more")
    assert terminal.process.wait(600) == 0


# ----------------------------------------------------------------- the mouse

MOUSE_ON, MOUSE_OFF = b"\x1b[?1000h\x1b[?1006h", b"\x1b[?1006l\x1b[?1000l"
GIVEN_BACK = MOUSE_OFF + b"\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"


COOKED = termios.ECHO | termios.ICANON


def is_cooked(terminal: Pty) -> bool:
    """Whether the terminal echoes what is typed, and waits for whole lines."""
    flags: int = termios.tcgetattr(terminal._reader)[3]
    return flags & COOKED == COOKED


def test_mouse_selects_scrolls_and_sorts(open_pty: Callable[..., Pty], simulated_nvml: SimulatedNvml) -> None:
    simulated_nvml.write("gpus 2", "gpu 1 process 4194304 2048 50")
    screen = pyte.Screen(80, 24)
    stream = pyte.ByteStream(screen)
    terminal = open_pty([*DASHBOARD, "--interval", "0.1"], "xterm", simulated_nvml.environment())

    def seen(text: str) -> tuple[int, int]:
        """Where a text is on the screen, as the mouse counts; waits for it."""
        while True:
            for y, line in enumerate(screen.display, 1):
                if text in line:
                    return line.index(text) + 1, y
            stream.feed(terminal.read())

    def mouse(button: int, at: tuple[int, int]) -> None:
        terminal.press(f"\x1b[<{button};{at[0]};{at[1]}M\x1b[<{button};{at[0]};{at[1]}m".encode())

    seen(" simulated")
    mouse(0, seen("  1 Simulated"))
    seen("GPU 1: util")
    mouse(65, seen("  1 Simulated"))
    seen("all GPUs: util")
    mouse(0, seen("SM%"))
    mouse(0, seen("SM%▾"))
    seen("SM%▴")
    mouse(65, seen("-1 min"))
    seen("-5 min")
    mouse(0, seen("4194304"))
    terminal.press(b"K")
    seen("pid 4194304 cannot be seen here: no signal is sent")
    terminal.press(b"m")
    assert MOUSE_OFF in terminal.until(b"mouse off")
    terminal.press(b"m")
    assert MOUSE_ON in terminal.until(b"mouse on")
    terminal.press(b"q")
    terminal.until(b"nothing more")
    assert terminal.process.wait(600) == 0


@needs_tmux
def test_mouse_reaches_the_dashboard_through_tmux(
    open_pty: Callable[..., Pty], terminal: Terminal, simulated_nvml: SimulatedNvml
) -> None:
    simulated_nvml.write("gpus 2")
    terminal.start([*DASHBOARD, "--interval", "0.1"], (80, 24), simulated_nvml.environment())
    terminal.wait_for(lambda: "  1 Simulated" in "".join(terminal.screen()))
    client = open_pty([*terminal.command, "set-option", "-g", "mouse", "on", ";", "attach"], "xterm")
    client.until(b"q quit")
    row = next(place for place, line in enumerate(terminal.screen(), 1) if "  1 Simulated" in line)
    client.press(f"\x1b[<0;9;{row}M\x1b[<0;9;{row}m".encode())
    terminal.wait_for(lambda: "GPU 1: util" in "".join(terminal.screen()))
    assert "GPU 0: util" not in "".join(terminal.screen())


@pytest.mark.parametrize(
    "ending", [b"q", b"\x03", signal.SIGTERM, signal.SIGHUP, signal.SIGKILL, signal.SIGSEGV]
)
def test_terminal_is_given_back_however_the_dashboard_ends(
    open_pty: Callable[..., Pty], run: Path, ending: bytes | signal.Signals
) -> None:
    terminal = open_pty([*DASHBOARD, "--run", str(run)], "xterm")
    assert MOUSE_ON in terminal.until(b" run digits")
    assert not is_cooked(terminal)
    if isinstance(ending, bytes):
        terminal.press(ending)
    else:
        terminal.process.send_signal(ending)
    assert GIVEN_BACK in terminal.until(GIVEN_BACK)
    status = terminal.process.wait(600)
    if isinstance(ending, bytes):
        expected = 0
    else:
        expected = 128 + ending if ending in (signal.SIGTERM, signal.SIGHUP) else -ending
    assert status == expected
    deadline = time.monotonic() + 600
    while not is_cooked(terminal):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_mouse_stays_with_the_terminal_where_that_is_requested(
    open_pty: Callable[..., Pty], run: Path
) -> None:
    options = ["--run", str(run), "--no-mouse", "--theme", "mono"]
    shown = open_pty([*DASHBOARD, *options], "xterm").until(b" run digits")
    assert MOUSE_ON not in shown
    assert re.findall(rb"\x1b\[[\d;]*[34]\dm", shown) == []


@pytest.mark.parametrize(
    ("option", "known"), [("--theme", "dark, light, mono, safe"), ("--sort", "gpu, pid,")]
)
def test_unknown_theme_or_column_is_refused(
    open_pty: Callable[..., Pty], run: Path, option: str, known: str
) -> None:
    variable = {"--theme": "GPUTOP_THEME", "--sort": "GPUTOP_SORT"}[option]
    terminal = open_pty([*DASHBOARD, "--run", str(run)], "xterm", {variable: "pink"})
    said = " ".join(terminal.until(b"nothing more").decode().split())
    assert f"error: argument {option}: 'pink' is none of {known}" in said
    assert terminal.process.wait(600) == 2


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ("SIMULATE=0", "SIMULATE=0 is not a number from 1 to 64"),
        ("SIMULATE=65", "SIMULATE=65 is not a number from 1 to 64"),
        ("SIMULATE=many", "SIMULATE=many is not a number from 1 to 64"),
        ("THEME=pink", "THEME=pink is unknown"),
        ("SORT=age", "SORT=age is unknown"),
    ],
)
def test_gputop_refuses_what_it_does_not_know(root: Path, tmp_path: Path, asked: str, error: str) -> None:
    command = [sys.executable, str(root / "scripts/gputop.py"), asked, f"RUN={tmp_path}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert (done.returncode, done.stderr.splitlines()[0]) == (2, f"error: {error}")
