"""`make quick`: what a change reaches, in a small repository, and how it stops in time."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts.quick import changed_files, chosen_tests

LOW = """
from pack import low


class TestLow:
    def test_low(self):
        assert low.value() == 1

    def test_long(self): ...


def test_last(): ...
"""
FILES = {
    "lib/pack/__init__.py": "",
    "lib/pack/low.py": "def value():\n    return 1\n",
    "lib/pack/high.py": "from .low import value\n",
    "lib/pack/apart.py": "import json\n",
    "lib/pack/page/look.css": "",
    "lib/plugins/__init__.py": "import importlib\n",
    "lib/plugins/one.py": "",
    "Kconfig": 'source "lib/pack/Kconfig"\n',
    "lib/pack/Kconfig": "",
    "scripts/do.py": "import pack.high\n",
    "docs/guide.md": "",
    "tests/__init__.py": "",
    "tests/conftest.py": "from .helper import help\n",
    "tests/helper.py": "def help(): ...\n",
    "tests/test_low.py": LOW,
    "tests/test_high.py": "def test_high():\n    from pack.high import value\n    assert value() == 1\n",
    "tests/test_script.py": "def test_do(root):\n    run(root / 'scripts' / 'do.py')\n",
    "tests/test_pages.py": "pages = root.glob('docs/*.md')\n",
    "tests/test_menu.py": "read('Kconfig')\n",
    "tests/test_plugins.py": "import plugins\n",
    "tests/test_nothing.py": "def test_nothing(): ...\n",
}


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "init.defaultBranch=main"]
    command = ["git", *who, *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """One with a main of two commits, and a branch of it."""
    folder = tmp_path / "repository"
    write(folder, FILES)
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    git(folder, "switch", "-qc", "branch")
    return folder


ALL = sorted(name for name in FILES if Path(name).name.startswith("test_"))


@pytest.mark.parametrize(
    ("changed", "tests"),
    [
        ("lib/pack/low.py", ["tests/test_low.py", "tests/test_high.py", "tests/test_script.py"]),
        ("lib/pack/high.py", ["tests/test_high.py", "tests/test_script.py"]),
        ("lib/plugins/one.py", ["tests/test_plugins.py"]),
        ("lib/pack/Kconfig", ["tests/test_menu.py"]),
        ("scripts/do.py", ["tests/test_script.py"]),
        ("docs/guide.md", ["tests/test_pages.py"]),
        ("tests/test_nothing.py", ["tests/test_nothing.py"]),
        ("tests/helper.py", ALL),
        # nobody names these: whoever stands beside them may read them
        ("lib/pack/apart.py", ["tests/test_high.py", "tests/test_low.py", "tests/test_script.py"]),
        ("lib/pack/page/look.css", ["tests/test_high.py", "tests/test_low.py", "tests/test_script.py"]),
    ],
)
def test_a_change_reaches_who_imports_or_names_it_the_nearest_first(
    repository: Path, changed: str, tests: list[str]
) -> None:
    assert chosen_tests(repository, [changed], {}) == tests
    assert chosen_tests(repository, [changed], {}) == tests  # by what is kept of the first time


def test_of_equally_near_tests_the_shortest_comes_first(repository: Path) -> None:
    seconds = {name: float(10 - place) for place, name in enumerate(ALL)}
    assert chosen_tests(repository, ["tests/helper.py"], seconds) == ALL[::-1]


def test_what_a_change_is(repository: Path) -> None:
    """Commits since main, what is not committed, new files and those gone; no newer commits of main."""
    first = git(repository, "rev-parse", "HEAD").strip()
    assert changed_files(repository) == (first, [])
    write(repository, {"lib/pack/low.py": "changed = 1\n"})
    git(repository, "commit", "-qam", "second")
    git(repository, "switch", "-q", "main")
    write(repository, {"docs/of main.md": ""})
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "of main")
    git(repository, "switch", "-q", "branch")
    write(repository, {"new file.py": "", "lib/pack/high.py": "changed = 1\n"})
    (repository / "lib/pack/apart.py").unlink()
    changed = ["lib/pack/apart.py", "lib/pack/high.py", "lib/pack/low.py", "new file.py"]
    assert changed_files(repository) == (first, changed)


def test_on_main_a_change_is_what_the_remote_does_not_have(repository: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "-b", "main", str(repository), "clone")
    clone = tmp_path / "clone"
    first = git(clone, "rev-parse", "HEAD").strip()
    write(clone, {"docs/guide.md": "changed\n"})
    git(clone, "commit", "-qam", "second")
    assert changed_files(clone) == (first, ["docs/guide.md"])


def test_without_a_main_it_is_what_is_not_committed(repository: Path) -> None:
    git(repository, "branch", "-D", "main")
    write(repository, {"docs/guide.md": "changed\n"})
    assert changed_files(repository) == ("HEAD", ["docs/guide.md"])


@pytest.fixture
def quick(root: Path, repository: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run it in that repository, which has our hooks."""
    shutil.copy(root / "scripts/quick.py", repository / "scripts")
    shutil.copy(root / "tests/time_limit.py", repository / "tests")
    hooks = "\n".join(
        line for line in (root / "tests/conftest.py").read_text().splitlines() if ".time_limit" in line
    )
    words = "-q --import-mode=importlib -p no:anyio -p no:hydra_pytest -p no:hypothesispytest"
    ini = f"[tool.pytest.ini_options]\npythonpath = ['lib']\naddopts = '{words}'\n"
    left = {name: "" for name in ALL if "high" not in name and "low" not in name}
    ignored = ".gitignore\n.pytest_cache\n.mypy_cache\n.ruff_cache\n__pycache__\n"
    write(repository, {**left, "tests/conftest.py": hooks, "pyproject.toml": ini, ".gitignore": ignored})
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "ready")
    git(repository, "branch", "-f", "main", "HEAD")

    def run() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(repository / "scripts/quick.py")]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)

    return run


def test_it_says_what_ran_and_what_failed(
    quick: Callable[..., subprocess.CompletedProcess[str]], repository: Path
) -> None:
    done = quick()
    assert (done.returncode, done.stdout, done.stderr) == (
        *(0, "quick: nothing has changed since main; make check runs all\n", ""),
    )
    write(repository, {"lib/pack/low.py": "def value() -> int:\n    return 2\n"})
    done = quick()
    said = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (1, "error: failed: pytest\n"), done.stdout
    assert said[0].startswith("quick: 1 files differ from ")
    assert said[0].endswith(", 2 test files can see it")
    assert said[-1].startswith("quick: ran all 4 tests that this change can reach in ")
    assert said[-1].endswith(" s; make check runs all")
    kept = json.loads((repository / ".pytest_cache/v/kharness/seconds").read_text())
    low = "tests/test_low.py"
    assert sorted(kept) == [
        "tests/test_high.py::test_high",
        *(f"{low}::TestLow::test_long", f"{low}::TestLow::test_low", f"{low}::test_last"),
    ]
    # The next time, what took too long before does not begin; what its module shares is ended all the same.
    kept[f"{low}::TestLow::test_long"] = 1e6
    (repository / ".pytest_cache/v/kharness/seconds").write_text(json.dumps(kept))
    write(repository, {"lib/pack/low.py": "def value() -> int:\n    return 1\n\n\nx = 1\n"})
    done = quick()
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert done.stdout.splitlines()[-1].startswith("quick: ran 3 of 4 tests that this change can reach in ")


def test_the_nearest_test_runs_even_where_the_time_is_over(
    quick: Callable[..., subprocess.CompletedProcess[str]], repository: Path
) -> None:
    """A slow machine may have used up its time before the first test."""
    script = repository / "scripts/quick.py"
    script.write_text(script.read_text().replace("SECONDS = 60.0", "SECONDS = 0.0"))
    git(repository, "commit", "-qam", "no time")
    git(repository, "branch", "-f", "main", "HEAD")
    write(repository, {"lib/pack/high.py": "from .low import value\n\nx = value()\n"})
    done = quick()
    assert done.returncode == 0, done.stdout + done.stderr
    ran = "quick: ran all 1 tests that this change can reach in "
    assert done.stdout.splitlines()[-1].startswith(ran), done.stdout
