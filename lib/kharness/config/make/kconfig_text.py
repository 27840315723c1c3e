"""The options as the text of our Kconfig files has them, for what is refused before kconfiglib is installed.

No parser of Kconfig: it knows how our files are written, one entry after another from the first column on,
and leaves others to kconfiglib. tests/kharness/config/make/test_kconfig_text.py compares the two.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kharness.config.refused import KnownOption, KnownOptions, is_tracker
from kharness.config.values import value_type

_BETWEEN = re.compile(r"^(?=\S)", re.MULTILINE)
_HELP = re.compile(r"^\s+help\s*$", re.MULTILINE)
_PROMPT = re.compile(r"^\s+prompt ", re.MULTILINE)
_TYPE = re.compile(r"^\s+(bool|int|hex|string)\b(\s+\")?", re.MULTILINE)
_DEFAULT = re.compile(r"^\s+default +(\S.*?)(?: if (.+?))?\s*$", re.MULTILINE)
_RANGE = re.compile(r"^\s+range +(\S+) +(\S+)( if .+)?$", re.MULTILINE)

# Our way: statements that begin a line, and those that may not stand within an entry.
_STATEMENT = re.compile(
    r"(#.*|(config|menuconfig) \w+\s*|(comment|if|mainmenu|menu) .+|(choice|endchoice|endif|endmenu)\b.*"
    r"|source \"[^$*?\[\"]+\"\s*|)"
)
_NESTED = re.compile(r"^\s+((menu)?config +\w+|(or|o|r)?source +\".*\")\s*$|\\$", re.MULTILINE)

# An option whose entry is written in another way takes any value here: kconfiglib is asked later.
_OTHERWISE = KnownOption(kind="string", has_prompt=True)


@dataclass(frozen=True)
class _Entry:
    text: str
    """Without its help."""
    help: str
    """Help of the choice around it, where there is one."""
    choice: str
    """The text of that choice."""
    filename: str
    linenr: int

    @property
    def has_prompt(self) -> bool:
        return any(quote for _, quote in _TYPE.findall(self.text)) or bool(_PROMPT.search(self.text))

    @property
    def is_limited(self) -> bool:
        """Whether the last of its ranges has no condition of its own."""
        conditions = [condition for _, _, condition in _RANGE.findall(self.text)]
        return bool(conditions) and not conditions[-1]


def read_options(top: Path, root: Path) -> KnownOptions:
    """The options of a Kconfig file and of those that it sources from `root` on, as far as they are there."""
    entries: dict[str, list[_Entry]] = {}
    choice = ""
    for file, line, text in _statements(top, root, set()):
        word, _, rest = text.partition("\n")[0].partition(" ")
        if word in ("choice", "endchoice"):
            choice = text if word == "choice" else ""
        elif word in ("config", "menuconfig"):
            text, *about = _HELP.split(text, maxsplit=1)
            about = _HELP.split(choice, maxsplit=1)[1:] if choice else about
            entry = _Entry(text, "".join(about), choice, file, line)
            entries.setdefault(rest.strip(), []).append(entry)
    choices = {name: found[0].choice for name, found in entries.items() if found[0].choice}
    options = {name: _option(found, choices) for name, found in entries.items()}
    # A choice has no name in Kconfig, but an alias, which it has from its members: their help is that of the
    # choice.
    helps: dict[str, Sequence[_Entry]] = {
        name: next((entries[member] for member in options[name].members.values()), found)
        for name, found in entries.items()
    }
    return KnownOptions(
        options, helps, [name for name in entries if is_tracker(name, entries[name][0].filename)]
    )


def is_read_whole(top: Path, root: Path) -> bool:
    """Whether this module can read a Kconfig file and the files it sources to the last entry."""
    return all(
        _STATEMENT.fullmatch(text.partition("\n")[0]) and not _NESTED.search(text)
        for _, _, text in _statements(top, root, set())
    )


def _statements(file: Path, root: Path, read: set[Path]) -> Iterator[tuple[str, int, str]]:
    """Return (file, line, text) of each statement, what a file sources in its place."""
    read.add(file)
    name, line = str(file.relative_to(root) if file.is_relative_to(root) else file), 1
    for text in _BETWEEN.split(file.read_text(encoding="utf-8") if file.is_file() else ""):
        sourced = re.fullmatch(r'source "(.*)"\s*', text)
        if sourced and (other := root / sourced[1]) not in read:
            yield from _statements(other, root, read)
        yield name, line, text
        line += text.count("\n")


def _option(entries: Sequence[_Entry], choices: dict[str, str]) -> KnownOption:
    types, defaults, ranges = (
        [match for entry in entries for match in pattern.findall(entry.text)]
        for pattern in (_TYPE, _DEFAULT, _RANGE)
    )
    try:
        value_types = [found for entry in entries if (found := value_type(entry.help))]
        limits = [(low, high) for low, high, _ in ranges if int(low, 0) <= int(high, 0)]
        kind = types[0][0]
    except (IndexError, ValueError):
        return _OTHERWISE
    with_prompt = [entry for entry in entries if entry.has_prompt]
    has_prompt = bool(with_prompt)
    is_alias = kind == "string" and not has_prompt
    is_alias &= all(value.startswith('"') and condition in choices for value, condition in defaults)
    return KnownOption(
        kind=kind,
        has_prompt=has_prompt,
        value_type=value_types[0] if value_types else None,
        members={value.strip('"'): condition for value, condition in defaults} if is_alias else {},
        stands_for=defaults[0] if kind == "int" and defaults and not has_prompt else None,
        ranges=limits,
        is_limited=bool(limits) and all(entry.is_limited for entry in with_prompt),
    )
