"""clean.py clean|mrproper|distclean: remove what tools, configuring and setup left.

clean      caches of Python, tests and linters
mrproper   and the configuration: .config and its companions (those in O=dir, or of M=dir)
distclean  and .venv and .venv-3.13 and so on, those that are virtual environments

Results and downloaded data are the user's; nothing here touches them. Standard library only, so that it runs
before anything is installed.
"""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

CACHES = ("__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis")
CONFIGURATION = (".config", ".config.old", ".config.lock", ".config.origins.json", "config.py", "defconfig")
TEMPORARY = tuple(f".{name}.*.tmp" for name in CONFIGURATION)
KEPT = (".git", ".venv", "data", "results", "wandb")


def caches(root: Path) -> Iterator[Path]:
    """Cache folders below the root, outside what is kept and never through a link."""
    for folder, names, _ in os.walk(root):
        yield from (Path(folder, name) for name in names if name in CACHES or name.endswith(".egg-info"))
        names[:] = [n for n in names if n not in (*CACHES, *KEPT) and not n.startswith(".venv-")]


def configuration(directory: Path) -> Iterator[Path]:
    """The files that the configuration targets write, and what a killed one left half-written."""
    for pattern in (*CONFIGURATION, *TEMPORARY):
        yield from directory.glob(pattern)


def environments(root: Path) -> Iterator[Path]:
    """The virtual environments that setup made; a folder that only has such a name stays."""
    for venv in (root / ".venv", *sorted(root.glob(".venv-[0-9].*"))):
        if (venv / "pyvenv.cfg").is_file() and not venv.is_symlink():
            yield venv


def given(*names: str) -> list[Path]:
    """The folders that make's command line gives by these variables."""
    known = os.environ.get("KHARNESS_MAKE_VARS", "").split()
    return [Path(os.environ[name]).absolute() for name in names if name in known and os.environ.get(name)]


def main(argv: list[str], root: Path) -> int:
    """Remove what the target stands for and say what went."""
    if len(argv) != 1 or argv[0] not in ("clean", "mrproper", "distclean"):
        print("error: one of clean, mrproper, distclean is needed", file=sys.stderr)
        return 2
    folders = [root, *given("M")]
    if not all(folder.is_dir() for folder in folders):
        print(f"error: {folders[-1]} is not a folder\nhint: write its path without ~", file=sys.stderr)
        return 2
    found = [path for folder in folders for path in caches(folder) if not path.is_symlink()]
    found = [path for path in dict.fromkeys(found) if not path.name.endswith(".egg-info")]
    if argv[0] != "clean":
        found += configuration([*given("O", "M"), root][0])
    if argv[0] == "distclean":
        found += [path for path in caches(root) if path.name.endswith(".egg-info")]
        found += environments(root)
    for path in found:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
        if path.name not in CACHES:
            print(f"removed {path.relative_to(root) if path.is_relative_to(root) else path}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path(__file__).resolve().parent.parent))
