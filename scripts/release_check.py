"""Say whether a tag could be cut: version, changelog, a clean tree, archives that build, install and work.

Exit codes: 0 it could, 3 not yet. Nothing is uploaded or tagged, and only orjson and psutil are fetched, for
a Python that has no environment in this checkout.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from kharness.config.errors import KharnessError, run_command
from kharness.runs.exit_codes import EXIT_FAILED

ROOT = Path(__file__).resolve().parent.parent
PYTHONS = tuple(f"3.{minor}" for minor in range(11, 15))
HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
NEEDED = ("orjson", "psutil")
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


class NotTried(KharnessError):
    """A check that this machine cannot do."""


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
                *((f"Python {name}", partial(install_and_try, folder, name)) for name in PYTHONS),
            ]
        )


def report(checks: Sequence[tuple[str, Callable[[], str]]]) -> int:
    """Print what each check says, all of them; 3 if one fails."""
    failed = 0
    for name, check in checks:
        try:
            print(f"ok      {name}: {check()}", flush=True)
        except NotTried as why:
            print(f"skipped {name}: {why}", flush=True)
        except KharnessError as error:
            failed += 1
            print(f"not yet {name}: {error}", flush=True)
    return EXIT_FAILED if failed else 0


def version(root: Path) -> str:
    """Return the version of all that is built here, which is no development version."""
    found = written_version(root)
    if not re.fullmatch(r"\d+\.\d+\.\d+", found):
        raise KharnessError(f"{found} is not a release: write {found.partition('.dev')[0]}")
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
    with tarfile.open(sdist) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.4 and newer have it
        archive.extractall(folder / "unpacked")
    (unpacked,) = (folder / "unpacked").iterdir()
    run([sys.executable, "-c", BUILD, "wheel", str(archives)], unpacked)
    (wheel,) = archives.glob("*.whl")
    missing = sorted(modules(root) - set(zipfile.ZipFile(wheel).namelist()))
    if missing:
        raise KharnessError(f"the wheel lacks {missing[0]}")
    return f"{sdist.name}, {wheel.name} of {wheel.stat().st_size / 1e6:.1f} MB"


def install_and_try(folder: Path, name: str = HERE) -> str:
    """Install each archive into an empty environment of a Python, and use it without torch and a network."""
    archives = sorted((folder / "archives").iterdir())
    if not archives:
        raise KharnessError("there are no archives")
    if (python := interpreter(name)) is None:
        raise NotTried(f"python{name} is not installed")
    for archive in archives:
        place = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=folder))
        environment = installed(python, archive, place, packages(name))
        alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        empty = place / "empty"
        empty.mkdir()
        run([str(environment / "bin/python"), "-I", "-c", SMOKE], empty, alone)
        said = run([str(environment / "bin/kharness"), "ls", "results"], empty, alone)
        if "smoke" not in said:
            raise KharnessError(f"kharness ls says {said!r}")
    return "both archives work without torch, Kconfig and a network"


def interpreter(name: str) -> Path | None:
    """Return this Python, or one of that version that is installed; None without one that runs."""
    if name == HERE:
        return Path(sys.executable)
    known = [*Path.home().glob(f".pyenv/versions/{name}.*/bin/python")]
    if (first := shutil.which(f"python{name}")) is not None:
        known.insert(0, Path(first))
    version = "import sys; print('%d.%d' % sys.version_info[:2])"
    for path in known:
        done = subprocess.run([path, "-I", "-c", version], capture_output=True, text=True, check=False)
        if done.stdout.strip() == name:  # pyenv has programs of versions that are not chosen, which fail
            return path
    return None


def packages(name: str) -> Path | None:
    """Return the folder of this checkout that has orjson and psutil for a Python; None without one."""
    place = site_of("orjson") if name == HERE else ROOT / f".venv-{name}/lib/python{name}/site-packages"
    return place if all((place / needed).is_dir() for needed in NEEDED) else None


def site_of(package: str) -> Path:
    """Return the folder that a package of this Python is in."""
    return Path(str(find_spec(package).origin)).parents[1]  # type: ignore[union-attr] # set-up has it


def installed(python: Path, archive: Path, place: Path, known: Path | None) -> Path:
    """Return a new environment with an archive in it, and what it needs as it is `known`, else fetched."""
    environment = place / "environment"
    run([str(python), "-m", "venv", "--without-pip", str(environment)], place)
    pip = [sys.executable, "-m", "pip", "--python", str(environment / "bin/python")]
    pip += ["--disable-pip-version-check", "install", "--quiet", "--no-compile"]
    if known is None:
        run([*pip, str(archive)], place)
        return environment
    (site,) = environment.glob("lib/*/site-packages")
    for needed in NEEDED:
        (site / needed).symlink_to(known / needed)
    builder = {**os.environ, "PYTHONPATH": str(site_of("setuptools"))}
    run([*pip, "--no-index", "--no-deps", "--no-build-isolation", str(archive)], place, builder)
    return environment


def modules(root: Path) -> set[str]:
    """The modules and the Kconfig files that a wheel has; lib/setup.py builds one, and is in none."""
    lib = root / "lib"
    return {
        str(path.relative_to(lib))
        for pattern in ("*.py", "py.typed", "Kconfig")
        for path in lib.rglob(pattern)
        if "__pycache__" not in path.parts and path != lib / "setup.py"
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
