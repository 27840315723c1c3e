"""Say whether a tag could be cut: version, changelog, a clean tree, archives that build, install and work.

Exit codes: 0 it could, 3 not yet. Nothing is fetched, uploaded or tagged.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

from kharness.config.errors import KharnessError, run_command
from kharness.runs.exit_codes import EXIT_FAILED

ROOT = Path(__file__).resolve().parent.parent
BUILD = "import sys; from setuptools import build_meta as b; getattr(b, 'build_' + sys.argv[1])(sys.argv[2])"
# Without torch, without a network, in an empty folder.
SMOKE = """
import socket, sys

def refuse(*_):
    raise OSError("no network")

socket.socket.connect = refuse
import kharness
with kharness.Run("results/smoke", agent=False) as run:
    run.log(loss=0.5)
    run.log_text("note", "text")
assert [one.last["loss"] for one in kharness.runs("results", where="loss < 1")] == [0.5]
from kharness.cli import main
assert main(["ls", "results", "loss<1"]) == 0
assert main(["bundle", "results/smoke"]) == 0
from monitoring.errors import MissingPackage
try:
    main(["matrix", "-a", "seed=1..3", "--", sys.executable, "-c", "pass", "{seed}"])
    raise AssertionError("a matrix began that cannot be judged")
except MissingPackage as error:
    assert str(error) == "kharness matrix needs numpy"
    assert error.hint == "pip install numpy scipy jinja2 matplotlib pillow"
assert [one.name for one in kharness.runs("results")] == ["smoke"], "something was begun"
assert not {"torch", "numpy", "kconfiglib"} & set(sys.modules), "something heavy was imported"
"""


def main(argv: Sequence[str]) -> int:
    """Print a line per check."""
    with tempfile.TemporaryDirectory(prefix="release-") as name:
        folder = Path(name)
        return report(
            [
                ("version", lambda: version(ROOT)),
                ("changelog", lambda: changelog(ROOT)),
                ("clean tree", lambda: clean_tree(ROOT)),
                ("new tag", lambda: new_tag(ROOT)),
                ("archives", lambda: build(ROOT, folder)),
                ("installed", lambda: install_and_try(folder)),
            ]
        )


def report(checks: Sequence[tuple[str, Callable[[], str]]]) -> int:
    """Print what each check says, all of them; 3 if one fails."""
    failed = 0
    for name, check in checks:
        try:
            print(f"ok      {name}: {check()}", flush=True)
        except KharnessError as error:
            failed += 1
            print(f"not yet {name}: {error}", flush=True)
    return EXIT_FAILED if failed else 0


def version(root: Path) -> str:
    """Return the version of all that is built here, which is no development version."""
    found = written_version(root)
    if not re.fullmatch(r"\d+\.\d+\.\d+", found):
        raise KharnessError(f"{found} is no release: write {found.partition('.dev')[0]}")
    return found


def written_version(root: Path) -> str:
    """Return what the project files take as their version."""
    return (root / "lib/VERSION").read_text().strip()


def changelog(root: Path) -> str:
    """Return the newest release of CHANGELOG.md, which is this version, with a date."""
    wanted = written_version(root).partition(".dev")[0]
    heading = re.search(r"^## (.*)$", (root / "CHANGELOG.md").read_text(), flags=re.M)
    if heading is None or not re.fullmatch(rf"{re.escape(wanted)} \(\d{{4}}-\d\d-\d\d\)", heading[1]):
        said = heading[1] if heading else "nothing"
        raise KharnessError(f"CHANGELOG.md begins with {said}, not {wanted} (YYYY-MM-DD)")
    return heading[1]


def clean_tree(root: Path) -> str:
    """Return the revision that would be tagged."""
    changed = git(root, "status", "--porcelain")
    if changed:
        raise KharnessError(
            f"{len(changed.splitlines())} files are not committed, such as {changed.split()[1]}"
        )
    return git(root, "rev-parse", "--short", "HEAD")


def new_tag(root: Path) -> str:
    """Return the tag, which is not there yet."""
    tag = f"v{written_version(root).partition('.dev')[0]}"
    if git(root, "tag", "--list", tag):
        raise KharnessError(f"{tag} is there already")
    return tag


def build(root: Path, folder: Path) -> str:
    """Build the source archive of a copy of the tree, and of that the wheel, which is then complete."""
    source, archives = folder / "source", folder / "archives"
    archives.mkdir()
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(root / name, source)
    shutil.copytree(root / "lib", source / "lib", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    run([sys.executable, "-c", BUILD, "sdist", str(archives)], source)
    (sdist,) = archives.glob("*.tar.gz")
    shutil.unpack_archive(sdist, folder / "unpacked", filter="data")
    (unpacked,) = (folder / "unpacked").iterdir()
    run([sys.executable, "-c", BUILD, "wheel", str(archives)], unpacked)
    (wheel,) = archives.glob("*.whl")
    missing = sorted(modules(root) - set(zipfile.ZipFile(wheel).namelist()))
    if missing:
        raise KharnessError(f"the wheel lacks {missing[0]}")
    return f"{sdist.name}, {wheel.name} of {wheel.stat().st_size / 1e6:.1f} MB"


def install_and_try(folder: Path) -> str:
    """Install the wheel into an empty environment and use it."""
    wheels = list((folder / "archives").glob("*.whl"))
    if not wheels:
        raise KharnessError("there is no wheel")
    environment = folder / "environment"
    venv.create(environment, with_pip=True, symlinks=True)
    python = environment / "bin/python"
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    run([*pip, "--no-index", "--no-deps", str(wheels[0])], folder)
    (packages,) = environment.glob("lib/*/site-packages")
    for needed in ("orjson", "psutil"):  # as they are here, for nothing is fetched
        place = Path(str(__import__(needed).__file__)).parent
        (packages / place.name).symlink_to(place)
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    (folder / "empty").mkdir()
    run([str(python), "-I", "-c", SMOKE], folder / "empty", alone)
    said = run([str(environment / "bin/kharness"), "ls", "results"], folder / "empty", alone)
    if "smoke" not in said:
        raise KharnessError(f"kharness ls says {said!r}")
    return "works without torch, Kconfig and a network"


def modules(root: Path) -> set[str]:
    """The modules and the Kconfig files that a wheel has."""
    lib = root / "lib"
    return {
        str(path.relative_to(lib))
        for pattern in ("*.py", "py.typed", "Kconfig")
        for path in lib.rglob(pattern)
        if "__pycache__" not in path.parts
    }


def git(root: Path, *arguments: str) -> str:
    return run(["git", *arguments], root).strip()


def run(command: Sequence[str], folder: Path, environment: dict[str, str] | None = None) -> str:
    """Return what a command prints; KharnessError with its last line where it fails."""
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["nothing is said"]
        raise KharnessError(f"{' '.join(command[:3])} … ended with {done.returncode}: {lines[-1]}")
    return done.stdout


if __name__ == "__main__":
    run_command(main)
