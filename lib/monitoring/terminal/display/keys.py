"""Keys and the mouse of a person at a terminal, decoded from the bytes that the terminal sends.

The bytes are those of xterm, which other terminals and multiplexers send as well (its ctlseqs document); of
the mouse those of its SGR mode, 1006.
"""

from __future__ import annotations

import codecs
import re
from typing import NamedTuple


class KeyPress(NamedTuple):
    """A key: a printable sign, or a name such as `up`, `enter`, `ctrl+c`."""

    name: str


class MouseEvent(NamedTuple):
    """A button that was pressed, or a wheel that was turned."""

    what: str
    """`left`, `wheel_up` or `wheel_down`."""
    x: int
    y: int
    """Cells from the upper left one, which is 0, 0."""


Event = KeyPress | MouseEvent

_CONTROL = {"\r": "enter", "\n": "enter", "\t": "tab", "\x7f": "backspace", "\x08": "backspace"}
_FINAL = {"A": "up", "B": "down", "C": "right", "D": "left", "H": "home", "F": "end", "Z": "back_tab"}
_NUMBERED = {
    "1": "home",
    "4": "end",
    "5": "page_up",
    "6": "page_down",
    "7": "home",
    "8": "end",
    "3": "delete",
}
# The left button, and from 64 on those of the wheel.
_WHEEL = 64
_BUTTONS = {0: "left", _WHEEL: "wheel_up", _WHEEL + 1: "wheel_down"}

_SEQUENCE = re.compile(
    r"\x1b(?:\[(?P<parameters>[<=>?0-9;]*)[ -/]*(?P<final>[@-~])|O(?P<single>.))", re.DOTALL
)
_BEGUN = re.compile(r"\x1b(?:\[[<=>?0-9;]*[ -/]*|O)?")


class Decoder:
    """Turns bytes, in pieces as they come, into events."""

    def __init__(self) -> None:
        self._text = ""
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    @property
    def is_waiting(self) -> bool:
        """Whether the last bytes may begin a longer sequence; if no more come, `flush` decides."""
        return bool(self._text)

    def feed(self, data: bytes) -> list[Event]:
        """Return the events that are complete."""
        self._text += self._utf8.decode(data)
        return self._events(final=False)

    def flush(self) -> list[Event]:
        """Return the events of bytes after which nothing came: a lone Escape is the key."""
        return self._events(final=True)

    def _events(self, *, final: bool) -> list[Event]:
        found: list[Event] = []
        while self._text:
            match = _SEQUENCE.match(self._text)
            if match:
                event = _of_sequence(match)
                self._text = self._text[match.end() :]
                found += [event] if event is not None else []
                continue
            sign = self._text[0]
            # the rest may still come: a slow line delivers a sequence in pieces
            if sign == "\x1b" and not final and _BEGUN.fullmatch(self._text):
                break
            self._text = self._text[1:]
            found.append(KeyPress(_name(sign)))
        return found


def _of_sequence(match: re.Match[str]) -> Event | None:
    """Return the event of a sequence; None for one that no key or button of ours sends."""
    parameters, final = match["parameters"] or "", match["final"] or match["single"]
    if parameters.startswith("<"):
        return _mouse(parameters[1:].split(";"), is_press=final == "M")
    if final == "~":
        name = _NUMBERED.get(parameters.partition(";")[0])
    else:
        name = _FINAL.get(final)
    return KeyPress(name) if name else None


def _mouse(numbers: list[str], *, is_press: bool) -> MouseEvent | None:
    if len(numbers) != 3 or not all(number.isdecimal() for number in numbers):
        return None
    button, x, y = map(int, numbers)
    what = _BUTTONS.get(button & ~0b11100)  # without Shift, Alt and Ctrl
    return MouseEvent(what, x - 1, y - 1) if what and is_press else None


def _name(sign: str) -> str:
    if sign == "\x1b":
        return "escape"
    if sign in _CONTROL:
        return _CONTROL[sign]
    return f"ctrl+{chr(ord(sign) + 96)}" if ord(sign) < 32 else sign
