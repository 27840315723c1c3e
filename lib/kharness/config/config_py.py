"""Reads a `config.py` without running it and without the option tree, and finds out who edited it by hand."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kharness.config.affects import Affects
from kharness.config.dotconfig import CONFIG, ConfigLine, parse_lines, read_text, unquote
from kharness.config.errors import ConfigError
from kharness.config.output import printable
from kharness.config.places import CONFIG_PY
from kharness.config.record import read_record
from kharness.config.values import Value
from monitoring.counts import cut_list

OF_CONFIG = "# sha256 of its .config: "
OF_ITSELF = "# sha256 of the lines below: "

# Filled in when `config.py` is written, so `.config` has a template instead.
_EXPANDED = "TRACKER_PROJECT"

# Before each line at which a statement may begin.
_STATEMENT = re.compile(r"^(?=[^\s}#])", re.MULTILINE)


@dataclass(frozen=True)
class ConfigPy:
    """The contents of a `config.py`."""

    values: Mapping[str, Value]
    affects: Affects
    """Knows no symbol where the file was written by a version that did not say it."""


def read_config_py(path: Path) -> ConfigPy:
    """ConfigError for a file that is missing, or holds more than literals."""
    shown = str(path)
    values: dict[str, Value] = {}
    affects = Affects()
    try:
        for name, value in _assignments(read_text(path, shown)):
            if isinstance(value, Affects):
                affects = value
            else:
                values[name] = list(value) if isinstance(value, list) else value
    except (SyntaxError, ValueError) as error:
        raise ConfigError(
            f"{shown} holds more than literal values", hint="write it again: make olddefconfig"
        ) from error
    return ConfigPy(values, affects)


class ConfigValues(Mapping[str, object]):
    """The values in the config.py of a directory, read at the first look: a large matrix opens at once."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @functools.cached_property
    def _values(self) -> Mapping[str, Value]:
        return read_values(self._directory / CONFIG_PY)

    def __getitem__(self, name: str) -> object:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def _assignments(text: str) -> Sequence[tuple[str, Value | Affects]]:
    """Return the assignments of a file, in order.

    The files of a matrix have nearly all statements in common, which are then parsed once. A statement that
    goes on at the beginning of a line is none by its first part alone: such a file is parsed in one piece.
    """
    try:
        return [assigned for part in _STATEMENT.split(text) for assigned in _parsed(part)]
    except SyntaxError:
        return _parsed(text)


@functools.lru_cache(maxsize=1024)
def _parsed(text: str) -> tuple[tuple[str, Value | Affects], ...]:
    import ast  # takes as long as a look at 200 cells that are complete, and reads none of these

    found: list[tuple[str, Value | Affects]] = []
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and isinstance(target := node.targets[0], ast.Name):
            if target.id.isupper():
                found.append((target.id, ast.literal_eval(node.value)))
            elif target.id == "affects":
                found.append((target.id, Affects.from_groups(ast.literal_eval(node.value))))
    return tuple(found)


def read_values(path: Path) -> Mapping[str, Value]:
    """The values in a `config.py`; TRACKER_PROJECT is expanded."""
    return read_config_py(path).values


def read_affects(directory: Path) -> Affects:
    """Return what the options of a run directory affect; empty if its `config.py` is missing."""
    path = directory / CONFIG_PY
    return read_config_py(path).affects if path.is_file() else Affects()


def is_current(directory: Path, shown: str) -> bool:
    """Whether the `config.py` of a directory has the values of its `.config`, so that no tree is needed.

    False where one of them is missing, and where a crash came between the writing of the two. ConfigError for
    a directory, `shown` to people under that name, in which one of them was edited by hand.
    """
    config, script = directory / CONFIG, directory / CONFIG_PY
    if not (config.is_file() and script.is_file()):
        return False
    text = read_text(config, f"{shown}/{CONFIG}")
    head, _, body = read_text(script, f"{shown}/{CONFIG_PY}").partition(OF_ITSELF)
    own_hash, _, body = body.partition("\n")
    is_its_own = f"{OF_CONFIG}{text_hash(text)}\n" in head
    if is_its_own and own_hash == text_hash(body):
        return True
    lines = list(parse_lines(text, f"{shown}/{CONFIG}"))
    different = list(_different(read_values(script), lines))
    intact = own_hash == text_hash(body)
    written = {line.symbol: line.text or "n" for line in lines}
    if not own_hash and not different:
        return False  # by a version that wrote no hash of its own: the tree reads `.config`
    if intact and not is_its_own and read_record(directory).written == written:
        return False  # a crash: `.config` is as we wrote it, and `config.py` is still the one before
    if intact and not different:
        return True  # comments, blank lines
    raise _edited(shown, different, of_config=intact)


def _edited(shown: str, different: list[tuple[str, str, str]], *, of_config: bool) -> ConfigError:
    """The error for (symbol, text in `.config`, text in `config.py`)."""
    edited, other = (CONFIG, CONFIG_PY) if of_config else (CONFIG_PY, CONFIG)
    texts = [
        f"{name}={ours if of_config else theirs} ({other} has {theirs if of_config else ours})"
        for name, ours, theirs in different
    ]
    what = cut_list(texts, 5) or f"no value of {CONFIG} differs"
    return ConfigError(
        f"{shown}/{edited} was edited by hand: {what}",
        hint=f"undo that, or take the values of {CONFIG}: make olddefconfig O={shown}",
    )


def _different(values: Mapping[str, Value], lines: list[ConfigLine]) -> Iterator[tuple[str, str, str]]:
    """(symbol, text in `.config`, text in `config.py`) where they are not the same."""
    texts = {line.symbol: line.text or "n" for line in lines}
    for name in dict.fromkeys([*values, *texts]):
        value, text = values.get(name), texts.get(name)
        if name != _EXPANDED and not _same(value, text):
            yield name, "nothing" if text is None else printable(text), _text(value)


def _same(value: Value | None, text: str | None) -> bool:
    """Whether `.config` says with a text what the value says; a bool out of reach has no line there."""
    if value is None or text is None:
        return not value and text is None
    if isinstance(value, bool):
        return text == ("y" if value else "n")
    try:
        bare = unquote(text) if text.startswith('"') else text
        if isinstance(value, list):
            return [float(word) for word in bare.split()] == value
        if isinstance(value, int):
            return int(bare, 16 if bare[:2].lower() == "0x" else 10) == value
        return bare == value if isinstance(value, str) else float(bare) == value
    except ValueError:
        return False


def _text(value: Value | None) -> str:
    """A value as `.config` has it."""
    if value is None or isinstance(value, bool):
        return "nothing" if value is None else "y" if value else "n"
    if isinstance(value, list):
        return f'"{" ".join(map(str, value))}"'
    return f'"{printable(value)}"' if isinstance(value, str) else str(value)


def text_hash(text: str) -> str:
    """The SHA-256 of a text, in hex."""
    from hashlib import sha256  # loads OpenSSL, which a reader of values does not need

    return sha256(text.encode()).hexdigest()
