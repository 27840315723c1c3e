"""Drop-ins of a package made for the test: found without an import, loaded, refused, given their options."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from monitoring.dropins import DropIns
from monitoring.errors import FollowerOptionsError, UnknownFollower

WHEEL = """
from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    size: int
    colors: tuple[str, ...] = ()
    width: float = 1.0

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ValueError("size is negative")
"""


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DropIns]:
    """Two wheels, one of which cannot be imported, and a module that is none."""
    package = tmp_path / "made_for_dropins"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "big_wheel.py").write_text(WHEEL)
    (package / "broken.py").write_text("raise RuntimeError('imported')")
    (package / "_axle.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    yield DropIns("wheel", "made_for_dropins", symbols={"width": "TRACK_WIDTH", "big_wheel_size": "SIZE"})
    for name in ("made_for_dropins", "made_for_dropins.big_wheel"):
        sys.modules.pop(name, None)


def test_names_are_the_modules_and_nothing_is_imported(wheels: DropIns) -> None:
    assert wheels.names == ("big_wheel", "broken")
    assert "made_for_dropins.big_wheel" not in sys.modules


@pytest.mark.parametrize("name", ["small", "_axle", "../big_wheel", ""])
def test_unknown_name_is_refused(wheels: DropIns, name: str) -> None:
    with pytest.raises(UnknownFollower) as caught:
        wheels.load(name)
    assert (str(caught.value), caught.value.hint) == (
        f"unknown wheel {name!r}",
        "known wheels: big_wheel, broken",
    )


def test_a_module_that_is_broken_is_refused(wheels: DropIns) -> None:
    with pytest.raises(FollowerOptionsError) as caught:
        wheels.load("broken")
    assert (str(caught.value), caught.value.hint) == (
        "wheel 'broken' cannot be imported: RuntimeError: imported",
        "python -c 'import made_for_dropins.broken' shows where",
    )


def test_symbols_are_kind_name_option_unless_documented(wheels: DropIns) -> None:
    assert [wheels.symbol("big-wheel", option) for option in ("colors", "width")] == [
        "WHEEL_BIG_WHEEL_COLORS",
        "TRACK_WIDTH",
    ]
    assert wheels.symbol("big_wheel", "size") == "SIZE"


def test_options_come_from_the_configuration(wheels: DropIns) -> None:
    config = {"SIZE": 3, "WHEEL_BIG_WHEEL_COLORS": ["red", "blue"], "OTHER": 1}
    options = wheels.options("big-wheel", config)
    assert vars(options) == {"size": 3, "colors": ("red", "blue"), "width": 1.0}


@pytest.mark.parametrize(
    ("values", "message", "hint"),
    [
        ({"size": 1, "sise": 2}, "big_wheel has no option 'sise'", "its options: size, colors, width"),
        ({}, "SIZE is not configured", "wheel big_wheel needs `config SIZE` in Kconfig"),
        ({"size": -1}, "wheel big_wheel: size is negative", ""),
    ],
)
def test_wrong_options_are_refused(
    wheels: DropIns, values: dict[str, object], message: str, hint: str
) -> None:
    with pytest.raises(FollowerOptionsError) as caught:
        wheels.made("big_wheel", values)
    assert (str(caught.value), caught.value.hint) == (message, hint)
