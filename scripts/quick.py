"""Run what a change touches, within a minute (`make quick`): the rest is what `make check` is for.

A change is what differs from where the branch left main, with what is not committed yet. It reaches a file
that imports what it touches, and so on; a test that names a file of it (a script that it runs, a preset, a
page), or by a pattern such as docs/*.md or by a folder. The nearest tests run first, and none begins when
the time is over, but for those of the first seconds on a machine that is too busy for any.
"""

from __future__ import annotations

import ast
import contextlib
import fnmatch
import heapq
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
SECONDS = 60.0
# What the tests leave of it: to find out what is reached, and to end what has begun.
TO_END = 8.0
# Of the nearest tests, which run on a machine so busy that the time is over before the first of them.
AT_LEAST = 10.0
# Test files that one call of pytest looks into.
AT_ONCE = 16

# How far one step to whom a file reaches is.
IMPORT, NAMED, BY_NAME, CONFTEST, BESIDE, PATTERN = 1, 1, 2, 2, 3, 3

Edges = dict[str, dict[str, int]]
"""File -> files that it needs -> how far each is."""

Facts = tuple[list[str], list[str]]
"""Names that a Python file imports, and words in its strings."""

# A package that imports one of these finds its modules by their names.
LOADERS = {"importlib", "monitoring.dropins", "pkgutil"}
# Of pytest, which is ignored by git and cleaned by `make clean`.
CACHE = ".pytest_cache/v/kharness"
WORD = re.compile(r"[\w./*?\[\]-]{2,200}")


def git(root: Path, *arguments: str) -> list[str]:
    """The names that a git command prints, each ended by a zero byte; none where it fails."""
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    return [name for name in done.stdout.split("\0") if name] if done.returncode == 0 else []


def base(root: Path) -> str:
    """The newest commit that this branch has in common with a main: a remote's, or the one here."""
    [branch, *_] = [*git(root, "symbolic-ref", "-q", "HEAD"), ""]
    mains = git(root, "for-each-ref", "--format=%(refname)%00", "refs/heads/main", "refs/remotes/*/main")
    found = []
    for main in (name.strip() for name in mains):
        if main and main != branch.strip():
            for commit in git(root, "merge-base", "HEAD", main):
                ahead = git(root, "rev-list", "--count", f"{commit.strip()}..HEAD")
                found.append((int(ahead[0]), commit.strip()))
    return min(found)[1] if found else "HEAD"


def changed_files(root: Path) -> tuple[str, list[str]]:
    """The commit that the change is counted from, and the files of the change, those gone included."""
    since = base(root)
    differ = git(root, "diff", "--name-only", "--no-renames", "-z", since)
    new = git(root, "ls-files", "--others", "--exclude-standard", "-z")
    return since, sorted({*differ, *new})


class Needs:
    """The files of a checkout, and which needs which."""

    def __init__(self, root: Path, files: Iterable[str], facts: dict[str, tuple[str, Facts]]) -> None:
        """Keep `facts` of earlier files, each with a stamp that shows whether it is unchanged."""
        self.root, self.facts = root, facts
        self.files = sorted(files)
        self._known = set(self.files)
        self._modules = {module_of(file): file for file in self.files if file.endswith(".py")}
        self._folders = {str(folder) for file in self.files for folder in PurePosixPath(file).parents}

    def edges(self) -> Edges:
        """Dependencies of each file. A file that no other names is needed by the Python files in its folder
        and above.
        """
        needs: Edges = {file: {} for file in self.files}
        for file in self.files:
            found = needs[file]
            if file.endswith(".py"):
                for needed, distance in self._needs_of(file):
                    found[needed] = min(distance, found.get(needed, distance))
            elif PurePosixPath(file).name.startswith("Kconfig"):
                sourced = re.findall(r'^\s*source\s+"([^"]+)"', self._text(file), re.MULTILINE)
                found.update(dict.fromkeys(self._known & set(sourced), NAMED))
            found.pop(file, None)
        named = {needed for of_file in needs.values() for needed in of_file}
        for file in self._known - named:
            if not is_test(file):
                for user in self._beside(file):
                    needs[user].setdefault(file, BESIDE)
        return needs

    def _text(self, file: str) -> str:
        try:
            return (self.root / file).read_text()
        except (OSError, UnicodeDecodeError):  # gone in this change, or no text
            return ""

    def _beside(self, file: str) -> Iterator[str]:
        for folder in PurePosixPath(file).parents:
            users = [it for it in self.files if it.endswith(".py") and PurePosixPath(it).parent == folder]
            if [it for it in users if it != file]:
                yield from (it for it in users if it != file)
                return

    def _needs_of(self, file: str) -> Iterator[tuple[str, int]]:
        for parent in PurePosixPath(file).parents if file.startswith("tests/") else ():
            conftest = str(parent / "conftest.py")
            if conftest in self._known:
                yield conftest, CONFTEST
        imports, strings = self._facts(file)
        if file.endswith("/__init__.py") and LOADERS & set(imports):
            folder = file.removesuffix("__init__.py")
            inside = (it for it in self.files if it.startswith(folder) and "/" not in it[len(folder) :])
            yield from ((it, BY_NAME) for it in inside if it.endswith(".py"))
        for name in imports:
            yield from self._imported(name)
        for text in strings:
            yield from self._named(text, file)

    def _facts(self, file: str) -> Facts:
        """Return a file's imports and words, from the cache if the file is unchanged."""
        try:
            about = (self.root / file).stat()
        except OSError:  # gone in this change
            return [], []
        stamp = f"{about.st_mtime_ns} {about.st_size}"
        if file not in self.facts or self.facts[file][0] != stamp:
            self.facts[file] = (stamp, facts_of(self._text(file), module_of(file), file))
        return self.facts[file][1]

    def _imported(self, name: str) -> Iterator[tuple[str, int]]:
        """The module of that name and the packages it is in."""
        parts = name.split(".")
        for length in range(1, len(parts) + 1):
            found = self._modules.get(".".join(parts[:length]))
            if found is not None:
                yield found, IMPORT + (length < len(parts))

    def _named(self, text: str, by: str) -> Iterator[tuple[str, int]]:
        """The files that a string of a program names: paths, modules and, in tests, folders and patterns."""
        text = text.strip("/")
        for path in (text, f"{by.rpartition('/')[0]}/{text}"):
            if path in self._known:
                yield path, NAMED
            elif is_test(by) and path in self._folders and path != ".":
                yield from ((it, PATTERN) for it in self.files if it.startswith(f"{path}/"))
        if text in self._modules and "." in text:
            yield self._modules[text], NAMED
        if is_test(by) and "*" in text and re.search(r"[./]", text):
            pattern = re.compile(fnmatch.translate(f"*/{text.replace('**/', '*')}"))
            yield from ((it, PATTERN) for it in self.files if pattern.match(f"/{it}"))


def facts_of(text: str, module: str, file: str) -> Facts:
    """Return the imports and words of a Python file; none on a syntax error, which pytest and ruff report."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return [], []
    imports: set[str] = set()
    strings: set[str] = set()
    package = module.split(".")[: None if file.endswith("__init__.py") else -1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            name = ".".join([*above, *([node.module] if node.module else [])])
            imports.update((name, *(f"{name}.{alias.name}" for alias in node.names)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            strings.add(node.value)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            strings.add(joined(node))
    return sorted(imports), sorted(filter(WORD.fullmatch, strings))


def module_of(file: str) -> str:
    """The name by which a Python file is imported."""
    return file.removeprefix("lib/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def is_test(file: str) -> bool:
    return file.startswith("tests/") and fnmatch.fnmatch(PurePosixPath(file).name, "test_*.py")


def joined(node: ast.expr) -> str:
    """Return the path joined in `root / "scripts" / "train.py"`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        return "/".join(part for part in (joined(node.left), joined(node.right)) if part)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def reached(needs: Edges, changed: Iterable[str]) -> dict[str, int]:
    """Files that need a changed one, by way of others too -> how far the nearest of those is."""
    users: Edges = {}
    for file, needed in needs.items():
        for each, distance in needed.items():
            users.setdefault(each, {})[file] = distance
    far: dict[str, int] = {}
    waiting = [(0, file) for file in changed]
    heapq.heapify(waiting)
    while waiting:
        distance, file = heapq.heappop(waiting)
        if file in far:
            continue
        far[file] = distance
        for user, further in users.get(file, {}).items():
            heapq.heappush(waiting, (distance + further, user))
    return far


def chosen_tests(root: Path, changed: Sequence[str], seconds: Mapping[str, float]) -> list[str]:
    """Test files that the change reaches, the nearest first, and of those the shortest."""
    kept = root / CACHE / "facts"
    facts = {file: (stamp, (of[0], of[1])) for file, (stamp, of) in read_json(kept).items()}
    far = reached(Needs(root, {*git(root, "ls-files", "-z"), *changed}, facts).edges(), changed)
    with contextlib.suppress(OSError):
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(facts))
    tests = [file for file in far if is_test(file) and (root / file).exists()]
    return sorted(tests, key=lambda file: (far[file], seconds.get(file, 0.0), file))


def durations(root: Path) -> dict[str, float]:
    """Seconds of each test file when its tests last ran (tests/time_limit.py keeps those of each test)."""
    found: dict[str, float] = {}
    for test, seconds in read_json(root / CACHE / "seconds").items():
        file = test.partition("::")[0]
        found[file] = found.get(file, 0.0) + seconds
    return found


def read_json(file: Path) -> dict[str, Any]:
    """Return the stored object; empty if the file is missing or damaged."""
    try:
        found = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def main() -> int:
    """0 when nothing that ran has failed; the last line says how much ran."""
    began = time.monotonic()
    since, changed = changed_files(ROOT)
    if not changed:
        print("quick: nothing has changed since main; make check runs all")
        return 0
    tests = chosen_tests(ROOT, changed, durations(ROOT))
    print(
        f"quick: {len(changed)} files differ from {since[:10]}, {len(tests)} test files can see it",
        flush=True,
    )
    python = [file for file in changed if file.endswith(".py") and (ROOT / file).exists()]
    with tempfile.TemporaryDirectory() as folder:
        checks = begin_checks(python, Path(folder)) if python else {}
        ran = run_tests(tests, began + SECONDS - TO_END)
        failed = ["pytest"] if ran.failed else []
        for name, process in checks.items():
            try:
                ended = process.wait(max(0.0, began + SECONDS - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                print(f"quick: {name} was not done in time; it goes on from there the next time")
                continue
            if ended:
                failed.append(name)
                print(f"quick: {name} FAILED\n{(Path(folder) / name).read_text()}", end="")
    which = f"all {ran.begun:,}" if ran.begun == ran.tests else f"{ran.begun:,} of {ran.tests:,}"
    if ran.files < len(tests):
        which = f"{ran.begun:,} of {ran.tests:,} tests in {ran.files} of {len(tests)} test files"
    else:
        which += " tests"
    within = f"{time.monotonic() - began:.0f} s"
    print(f"quick: ran {which} that this change can reach in {within}; make check runs all", flush=True)
    if failed:
        print(f"error: failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def begin_checks(python: Sequence[str], folder: Path) -> dict[str, subprocess.Popen[bytes]]:
    """Those of the files themselves, beside the tests; what each prints is in a file of its name."""
    commands: dict[str, list[str | Path]] = {
        "ruff format": [BIN / "ruff", "format", "--check", "--quiet", *python],
        "ruff check": [BIN / "ruff", "check", "--quiet", *python],
        "mypy": [BIN / "mypy", *python],
    }
    started = {}
    for name, command in commands.items():
        with (folder / name).open("w") as output:
            started[name] = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
    return started


@dataclass
class Ran:
    """How much of the tests ran."""

    begun: int = 0
    tests: int = 0
    """In the files that were looked into."""
    files: int = 0
    failed: bool = False


def run_tests(files: Sequence[str], until: float) -> Ran:
    """Run the tests of these files until then, some files at a time: to look into all takes too long."""
    ran = Ran()
    while ran.files < len(files) and (ran.files == 0 or time.monotonic() + TO_END < until):
        some = files[ran.files : ran.files + AT_ONCE]
        with tempfile.TemporaryDirectory() as folder:
            counted = Path(folder) / "counted.json"
            environment = {**os.environ, "KHARNESS_UNTIL": str(until), "KHARNESS_COUNTED": str(counted)}
            if ran.files == 0:
                environment["KHARNESS_AT_LEAST"] = str(AT_LEAST)
            workers = min(len(os.sched_getaffinity(0)), len(some))
            # In this order, and what a file's tests share is made once.
            order = ["-n", str(workers), "--dist", "loadfile", "--no-loadscope-reorder"]
            command: list[str | Path] = [BIN / "pytest", *order, "-rs", *some]
            code = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
            begun, tests = json.loads(counted.read_text()) if counted.exists() else (0, 0)
        # 5: there was no test
        ran = Ran(
            ran.begun + begun, ran.tests + tests, ran.files + len(some), ran.failed or code not in (0, 5)
        )
    return ran


if __name__ == "__main__":
    sys.exit(main())
