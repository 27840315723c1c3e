"""Keys and the mouse from the bytes that xterm sends (its ctlseqs document), in whatever pieces they come."""

from __future__ import annotations

import pytest

from monitoring.terminal.display.keys import Decoder, Event, KeyPress, MouseEvent


def decoded(*pieces: bytes) -> list[Event]:
    decoder = Decoder()
    return [event for piece in pieces for event in decoder.feed(piece)] + decoder.flush()


@pytest.mark.parametrize(
    ("data", "names"),
    [
        (b"q?", ["q", "?"]),
        (b"\x1b[A\x1bOB\x1b[1;5C", ["up", "down", "right"]),
        (b"\x1b[5~\x1b[6~\x1b[H\x1b[4~", ["page_up", "page_down", "home", "end"]),
        (b"\r\t\x7f\x03\x1a", ["enter", "tab", "backspace", "ctrl+c", "ctrl+z"]),
        ("é漢".encode(), ["é", "漢"]),
        (b"\x1b", ["escape"]),
        (b"\x1b[200~a\x1b[?1;2c", ["a"]),
    ],
)
def test_keys_by_their_bytes(data: bytes, names: list[str]) -> None:
    expected = [KeyPress(name) for name in names]
    assert decoded(data) == expected
    assert decoded(*(data[place : place + 1] for place in range(len(data)))) == expected


def test_mouse_by_its_sgr_mode() -> None:
    pressed, released, wheel, shifted = b"\x1b[<0;3;2M", b"\x1b[<0;3;2m", b"\x1b[<65;1;1M", b"\x1b[<4;300;9M"
    assert decoded(pressed, released, wheel[:5], wheel[5:], shifted, b"\x1b[<2;1;1M\x1b[<1;2M") == [
        MouseEvent("left", 2, 1),
        MouseEvent("wheel_down", 0, 0),
        MouseEvent("left", 299, 8),
    ]
