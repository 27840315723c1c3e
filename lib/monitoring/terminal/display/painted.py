"""A terminal that one program paints entirely, and gives back as it was, however the program ends."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import termios
import tty
from collections.abc import Callable
from types import TracebackType
from typing import Self

from monitoring.terminal.display.keys import Decoder, Event

KEYBOARD, PICTURE = 0, 2

# xterm's private modes: another screen (1049), a cursor (25), lines that wrap (7); the mouse's buttons (1000)
# in its form SGR (1006).
BEGIN = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"
MOUSE_ON, MOUSE_OFF = "\x1b[?1000h\x1b[?1006h", "\x1b[?1006l\x1b[?1000l"
END = f"{MOUSE_OFF}\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"

# Reads until the program lets go of the pipe: after a word all is well, else it was killed or crashed.
GUARD = """\
trap '' HUP INT QUIT TERM TSTP TTIN TTOU
exec 3>&2 2>/dev/null
read word || { stty sane <&3; printf '%b' "$1" >&3; }"""

# Seconds after which an Escape that nothing follows is the key.
ESCAPE_SECONDS = 0.05


class TerminalGone(Exception):
    """The terminal was closed."""


class PaintedTerminal:
    """Keys come from standard input and the picture goes to standard error; both are the terminal."""

    def __init__(self, *, mouse: bool = True) -> None:
        self.mouse = mouse
        self._modes: list[object] = []
        self._guard, self._guard_pid = -1, 0
        self._decoder = Decoder()
        self._wake, self._woken = os.pipe()
        for end in (self._wake, self._woken):
            os.set_blocking(end, False)
        self._shown: list[str] = []
        self._size = (0, 0)
        self._restore: list[Callable[[], object]] = []
        self.ending: int | None = None
        """The signal that ends the program, once one has come."""

    def __enter__(self) -> Self:
        self._modes = termios.tcgetattr(KEYBOARD)
        self._start_guard()
        # the guard first: a SIGKILL from here on must still leave the terminal as it was
        self._begin()
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            self._handle(number, self._end)
        self._handle(signal.SIGWINCH, lambda number, frame: None)
        # a signal makes the select() in `wait` return, also one that comes just before it
        old = signal.set_wakeup_fd(self._woken, warn_on_full_buffer=False)
        self._restore.append(lambda: signal.set_wakeup_fd(old))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for restore in reversed(self._restore):
            restore()
        with contextlib.suppress(OSError, TerminalGone, termios.error):
            self._give_back()
        with contextlib.suppress(OSError):
            os.write(self._guard, b"done\n")
        os.close(self._guard)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._guard_pid, 0)
        os.close(self._wake)
        os.close(self._woken)

    @property
    def ending_status(self) -> int:
        """The program's exit status: 0, or 128 and the signal, as a shell has it."""
        return 0 if self.ending is None else 128 + self.ending

    def size(self) -> tuple[int, int]:
        """Width and height in cells."""
        try:
            return os.get_terminal_size(PICTURE)
        except OSError as error:
            raise TerminalGone from error

    def show(self, lines: list[str]) -> None:
        """Paint what differs from the last picture; each line ends in the terminal's own style."""
        size = self.size()
        parts = []
        if size != self._size:
            self._size, self._shown = size, []
            parts.append("\x1b[2J")
        for y, line in enumerate(lines):
            if y >= len(self._shown) or line != self._shown[y]:
                # to the line, which is counted from 1, and clear it (ECMA-48: CUP, EL)
                parts.append(f"\x1b[{y + 1};1H\x1b[2K{line}")
        self._shown = lines
        if parts:
            self._write("".join(parts))

    def set_mouse(self, on: bool) -> None:
        """Turn the mouse on or off; with it a terminal selects text only while Shift is held."""
        self.mouse = on
        self._write(MOUSE_ON if on else MOUSE_OFF)

    def wake(self) -> None:
        """Have `wait` return; any thread may call it."""
        with contextlib.suppress(OSError):  # it is full, or closed by now
            os.write(self._woken, b"\0")

    def wait(self, seconds: float) -> list[Event]:
        """Return what was typed, as soon as it is; nothing after so many seconds, a signal or `wake`."""
        seconds = min(seconds, ESCAPE_SECONDS) if self._decoder.is_waiting else seconds
        ready, _, _ = select.select([KEYBOARD, self._wake], [], [], max(0.0, seconds))
        if self._wake in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake, 4096)
        if KEYBOARD in ready:
            try:
                data = os.read(KEYBOARD, 4096)
            except OSError as error:
                raise TerminalGone from error
            if not data:
                raise TerminalGone
            return self._decoder.feed(data)
        return [] if ready else self._decoder.flush()

    def stop(self) -> None:
        """Give the terminal back until the shell continues this job, as Ctrl-Z does elsewhere."""
        self._give_back()
        # to the whole job, as the terminal sends it
        os.kill(0, signal.SIGTSTP)
        self._begin()
        self._shown = []

    def _begin(self) -> None:
        tty.setraw(KEYBOARD, termios.TCSADRAIN)
        self._write(BEGIN + (MOUSE_ON if self.mouse else ""))

    def _give_back(self) -> None:
        self._write(END)
        termios.tcsetattr(KEYBOARD, termios.TCSADRAIN, self._modes)  # type: ignore[arg-type]  # it is what tcgetattr returned

    def _write(self, text: str) -> None:
        data = text.encode(errors="replace")
        while data:
            try:
                data = data[os.write(PICTURE, data) :]
            except OSError as error:
                raise TerminalGone from error

    def _handle(self, number: int, handler: Callable[..., object]) -> None:
        old = signal.signal(number, handler)
        self._restore.append(lambda: signal.signal(number, old))

    def _end(self, number: int, frame: object) -> None:
        self.ending = number

    def _start_guard(self) -> None:
        """Start the guard, a shell of one megabyte: Python would take as much time as the first picture."""
        theirs, self._guard = os.pipe()
        self._guard_pid = os.posix_spawn(
            "/bin/sh",
            ["sh", "-c", GUARD, "sh", END.replace("\x1b", "\\033")],
            os.environ,
            file_actions=[(os.POSIX_SPAWN_DUP2, theirs, 0)],
        )
        os.close(theirs)
