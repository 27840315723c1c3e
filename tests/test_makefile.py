"""The Makefile: one command a recipe, every target phony, nothing of the user's reaches a shell."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def makefile(root: Path) -> str:
    return (root / "Makefile").read_text()


def make(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["make", "--no-print-directory", *arguments]
    return subprocess.run(command, cwd=root, text=True, capture_output=True, check=False)


def database(root: Path) -> dict[str, str]:
    """target -> its paragraph in make's own data base."""
    text = make(root, "-qpRr", "no-such-target").stdout
    body = text[text.index("# Files") :]
    paragraphs = (paragraph.lstrip("\n") for paragraph in body.split("\n\n"))
    return {match[1]: text for text in paragraphs if (match := re.match(r"([\w.%/-]+):", text))}


def test_a_recipe_is_one_command(makefile: str) -> None:
    makefile = makefile.replace("\\\n", " ")
    recipes = re.findall(r"^[^\t\n#].*:.*\n((?:\t.*\n)+)", makefile, flags=re.M)
    assert recipes, "no recipe found"
    long = [recipe for recipe in recipes if recipe.count("\n") != 1 or re.search(r"[;&|`]|\$\$", recipe)]
    assert long == [], "a recipe is one command; put the program into scripts/"


def test_every_target_without_a_file_is_phony(root: Path) -> None:
    stamps = (".ready", ".ready-for-tests")
    targets = {
        name: text
        for name, text in database(root).items()
        if "#  recipe to execute" in text or "#  commands" in text
    }
    assert {"train", "test_matrix", "defconfig", "defconfig-default"} <= set(database(root))
    loose = [
        name
        for name, text in targets.items()
        if Path(name).name not in (*stamps, "Makefile") and "%" not in name and "Phony target" not in text
    ]
    assert loose == [], "a file of this name would disable the target; add it to .PHONY"


def test_every_target_has_a_help_comment(root: Path, makefile: str) -> None:
    documented = set(re.findall(r"^([\w-]+):[^#\n]*##", makefile, flags=re.M))
    phony = {name for name, text in database(root).items() if "Phony target" in text}
    internal = {"FORCE", "verify-environment"} | {name for name in phony if name.startswith("defconfig-")}
    assert phony - internal == documented


def test_scripts_named_in_recipes_exist(root: Path, makefile: str) -> None:
    named = set(re.findall(r"scripts/\w+\.py", makefile))
    assert sorted(name for name in named if not (root / name).is_file()) == []


@pytest.mark.parametrize(
    "variable", ["TRACKER", "MODEL", "DEFCONFIG", "CONFIG_DATA_DIR", "O", "RUN", "SYMBOL"]
)
@pytest.mark.parametrize(
    "value",
    ["x; touch marker", "$(shell touch marker)", "`touch marker`", "$$(touch marker)", "'; touch marker; '"],
)
def test_a_value_never_reaches_a_shell(root: Path, tmp_path: Path, variable: str, value: str) -> None:
    """Make hands the value over letter for letter in the environment of a recipe."""
    probe = tmp_path / "probe.mk"
    text = (root / "Makefile").read_text() + "\n.PHONY: probe\nprobe:\n\t@printenv $(NAME)\n"
    probe.write_text(text)
    done = make(tmp_path, "-f", str(probe), "probe", f"{variable}={value}", f"NAME={variable}")
    assert done.stdout == value + "\n", done.stderr
    assert not (tmp_path / "marker").exists()


@pytest.mark.parametrize("name", ["VENV", "PYTHON"])
def test_a_path_that_is_part_of_a_command_must_be_plain(root: Path, name: str) -> None:
    done = make(root, f"{name}=x; touch marker", "help")
    assert done.returncode == 2
    assert f"{name} must be one path without spaces or shell characters" in done.stderr
    assert not (root / "marker").exists()


@pytest.mark.parametrize(
    ("made_by", "folder"), [("", ".venv-{}"), ("3.9.18", ".venv-{}"), ("{}.99", ".venv")]
)
def test_a_python_has_an_environment_of_its_own(
    root: Path, tmp_path: Path, made_by: str, folder: str
) -> None:
    """PYTHON= leaves the .venv of another version as it is."""
    version = ".".join(map(str, sys.version_info[:2]))
    for name in ("Makefile", "scripts/environment.py", "requirements/run.txt", "requirements/test.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(root / name, tmp_path / name)
    (tmp_path / "pyproject.toml").touch()
    if made_by:
        (tmp_path / ".venv").mkdir()
        (tmp_path / ".venv/pyvenv.cfg").write_text(f"home = /usr\nversion = {made_by.format(version)}\n")
    done = make(tmp_path, "-n", "check", f"PYTHON={sys.executable}")
    venv = folder.format(version)
    assert done.stdout.splitlines() == [
        f"{sys.executable} scripts/environment.py create {venv}/.ready requirements/run.txt",
        f"{sys.executable} scripts/environment.py create {venv}/.ready-for-tests requirements/test.txt",
        f"{venv}/bin/python scripts/check.py",
    ]


def test_a_python_that_is_none_is_refused(root: Path) -> None:
    done = make(root, "check", "PYTHON=/nonexistent/python")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].endswith("PYTHON=/nonexistent/python does not run.  Stop.")
