"""Write the smallest model outside of this tree that trains: new_model.py M=dir.

It is examples/mymodel under another name: options, a preset, a page of training and a test.
"""

from __future__ import annotations

import importlib.util
import keyword
import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from kharness.config.errors import ConfigError, run_command
from kharness.config.make import variables as make_variables
from kharness.config.output import say
from kharness.config.places import asked_folder
from kharness.runs.latest import shown

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "mymodel"


def main(argv: Sequence[str]) -> None:
    """Write the folder and say what to type next; ConfigError for one that is not empty."""
    variables = make_variables.given(argv, os.environ, "new-model", root=ROOT)
    asked = variables.get("M", "")
    if not asked:
        raise ConfigError("M is not given", hint="for example make new-model M=~/mymodel")
    folder = asked_folder("M", asked).absolute()
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder} is not empty", hint="name a new folder")
    name = model_name(folder.name)
    files = [
        path for path in sorted(EXAMPLE.rglob("*")) if path.is_file() and "__pycache__" not in path.parts
    ]
    for path in files:
        written = folder / str(path.relative_to(EXAMPLE)).replace("mymodel", name)
        written.parent.mkdir(parents=True, exist_ok=True)
        written.write_text(renamed(path.read_text(), name))
    place = shown(folder)
    names = (str(path.relative_to(EXAMPLE)).replace("mymodel", name) for path in files)
    say(f"{place}: {', '.join(names)}")
    call = f"make M={shlex.quote(place)}"
    print("next:", *(f"{call}{target}" for target in ("", " test_matrix", " check")), sep="\n  ")


def model_name(folder: str) -> str:
    """The package's name and what MODEL is, after that of its folder; ConfigError if it cannot be one."""
    name = re.sub(r"\W+", "_", folder.lower(), flags=re.ASCII).strip("_")
    if not re.match(r"[a-z]", name) or keyword.iskeyword(name):
        raise ConfigError(f"{folder!r} names no Python package", hint="begin the folder's name with a letter")
    if name != "mymodel" and ((ROOT / name).exists() or importlib.util.find_spec(name)):
        raise ConfigError(f"there is a package {name} already", hint="give the folder another name")
    return name


def renamed(text: str, name: str) -> str:
    """A file of the example for a model of this name."""
    if name == "mymodel":
        return text
    title = name.replace("_", " ")
    text = text.replace("mymodel", name).replace("MYMODEL", name.upper())
    return text.replace("My model", title.capitalize()).replace("my model", title)


if __name__ == "__main__":
    run_command(main)
