"""The options that stand in kharness.toml, as the command line has them.

    command = "python train.py --lr {lr} --seed {seed}"
    metric = "val/wer"
    jobs = 2
    [axis]
    lr = [1e-3, 3e-4]
    seed = "1..5"
    [better]
    "val/wer" = "down"

Each key is an option without its dashes; of options that are given several times a key holds a list, and of
NAME=VALUE ones a table. What is typed replaces what the file says of the same name.
"""

from __future__ import annotations

import difflib
import re
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kharness.command_options import OF_PROGRAMS
from kharness.runs.errors import MatrixError

FLAGS = ("detach", "gpu-monitor", "hook", "keep-going", "machine-monitor", "no-graphs", "offline")
SEVERAL = ("exclude", "follow", "include", "launcher-option", "pattern", "render", "tracker")
PAIRS = ("axis", "env", "better")
OPTIONAL = ("early-stopping",)
"""Flags that may have a value."""
COMMAND = "command"
_LONG = {"-a": "--axis", "-e": "--env"}


def read_toml(path: Path) -> tuple[list[str], list[str]]:
    """Return options and the words of the command; MatrixError for an unknown key or a wrong value."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise MatrixError(f"{path.name} cannot be read: {error}", hint="it is a TOML file") from error
    every = dict.fromkeys(option for options in OF_PROGRAMS.values() for option in options)
    known = [COMMAND, *(option.removeprefix("--") for option in every)]
    options: list[str] = []
    for key, value in content.items():
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            raise MatrixError(
                f"{path.name}: {key} is not an option",
                hint=f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}",
            )
        if key != COMMAND:
            options += _options(key, value, path.name)
    return options, _words(content.get(COMMAND, ""), path.name)


def without_given(options: Sequence[str], typed: Sequence[str], *, takes: Sequence[str]) -> list[str]:
    """Return the options of a file that the command `takes`, but for those, of NAME=VALUE ones those names,
    that were typed.
    """
    given = {_name(option) for option in _split(typed)}
    return [one for one in options if one.partition("=")[0] in takes and _name(one) not in given]


def said_of_file(message: str, options: Sequence[str], file: str) -> str:
    """Return what is wrong with one of the options of a file as of that, under its name there."""
    match = re.match(r"(argument )?(?:-\w/)?(--[\w-]+|-[ae])(?:/--[\w-]+)?:? ", message)
    if match is None:
        return message
    option, rest = _LONG.get(match[2], match[2]), message[match.end() :]
    values = [value for name, _, value in (one.partition("=") for one in options) if name == option]
    if values and (match[1] or any(rest.startswith(value) for value in values)):
        return f"{file}: {option[2:]}: {rest}"
    return message


def _options(key: str, value: Any, file: str) -> list[str]:
    if key in PAIRS:
        if not isinstance(value, Mapping):
            raise MatrixError(f"{file}: {key} is no table", hint=f"write [{key}], and NAME = VALUE below it")
        return [f"--{key}={name}={_text(key, one, file)}" for name, one in value.items()]
    if key in FLAGS or (key in OPTIONAL and isinstance(value, bool)):
        if not isinstance(value, bool):
            raise MatrixError(f"{file}: {key} is neither true nor false", hint=f"write {key} = true")
        return [f"--{key}"] if value else []
    if key in SEVERAL:
        return [f"--{key}={_text(key, one, file)}" for one in (value if isinstance(value, list) else [value])]
    return [f"--{key}={_text(key, value, file)}"]


def _text(key: str, value: Any, file: str) -> str:
    if key == "axis" and isinstance(value, list):
        return ",".join(_text(key, one, file) for one in value)
    if isinstance(value, bool):
        return "y" if value else "n"
    if not isinstance(value, str | int | float):
        raise MatrixError(f"{file}: {key} has a value that is neither text nor number", hint="write one")
    return str(value)


def _words(value: Any, file: str) -> list[str]:
    if isinstance(value, str):
        try:
            return shlex.split(value)
        except ValueError as error:  # a quote without its other one
            message = f"{file}: {COMMAND} is not a command line: {str(error).lower()}"
            raise MatrixError(message, hint="a list of words needs no quotes") from error
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        return value
    raise MatrixError(
        f"{file}: {COMMAND} is neither text nor a list of words", hint='command = "python x.py"'
    )


def _name(option: str) -> tuple[str, str]:
    """Return the option, and of a NAME=VALUE one the name, which may be typed in any case."""
    key, _, value = option.partition("=")
    return key, value.partition("=")[0].upper() if key[2:] in PAIRS else ""


def _split(typed: Sequence[str]) -> list[str]:
    """Return typed options in the form `--name=value`, under their long names."""
    found = []
    for place, word in enumerate(typed):
        if word.startswith("-") and len(word) > 1:
            name, equals, value = word.partition("=")
            name = _LONG.get(name, name)
            if not equals and place + 1 < len(typed):
                value = typed[place + 1]
            found.append(f"{name}={value}")
    return found
