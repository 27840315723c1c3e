"""Install packages with uv if it is on PATH, else with the environment's pip; progress on a terminal."""

from __future__ import annotations

import collections
import fcntl
import importlib.util
import os
import pty
import re
import select
import subprocess
import sys
import sysconfig
import tempfile
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from kharness.config.output import fitted
from kharness.environment.locks import InstallError, normalized, rounded, site_packages, sizes
from kharness.environment.pip_settings import pip_settings

HINT = (
    "read the message above; behind a proxy set HTTPS_PROXY, then type the same command again; to work "
    "offline later, run make quick while there is a network: it installs every part"
)

# Lines of an installer that are shown where it fails and nobody watched it.
LAST_LINES = 20

# How they name what they install: pip by `Collecting numpy==2.4.6 (from …)`, or by
# `Processing /folder/numpy-2.4.6-….whl`; uv by ` + numpy==2.4.6`.
NAMED = re.compile(
    r"(?:Collecting| \+) ([^\s=]+)={2,3}([^\s(]+)|Processing (?:\S*/)?([^\s/-]+)-([^\s-]+)-\S+\.whl"
)

# How far a download is, in the bar that pip draws on a terminal.
FETCHED = re.compile(r"[\d.]+/[\d.]+ [kMG]?B\b.*")
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
UNPACKS = "Installing collected packages: "

# Shown while it is found out which build of torch there is.
LOOKS = "looking for torch"

# What pip says of each package that is there, and of each try at an index that does not answer.
SATISFIED, RETRIES = "Requirement already satisfied", "WARNING: Retrying "
NO_ANSWER = "the index does not answer"

# Where uv is told an index by its user, it needs none of pip's.
OF_UV = (
    "UV_CONFIG_FILE",
    "UV_DEFAULT_INDEX",
    "UV_FIND_LINKS",
    "UV_INDEX",
    "UV_INDEX_URL",
    "UV_EXTRA_INDEX_URL",
)


class Installer:
    """Installs into one environment."""

    def __init__(self, venv: Path, uv: str | None) -> None:
        """`uv` is its path, None for pip."""
        self.uv = uv
        self.name = "uv" if uv else "pip"
        self._venv = venv
        self._python = str((venv / "bin" / "python").absolute())
        # PYTHONPATH has our own modules, which no installer needs
        self._environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def make_environment(self) -> None:
        """A new environment of this Python, without pip, which takes longest: see `add_pip`."""
        command = [sys.executable, "-m", "venv", "--without-pip", str(self._venv)]
        self._run(command, f"could not make {self._venv}", _venv_hint())

    def add_pip(self) -> None:
        """Add pip, for packages that its user adds."""
        if self._has_pip():
            return
        command = [self._python, "-m", "ensurepip"]
        if (runner := _pip_runner()) and (wheel := _wheel_of_pip()):
            # ensurepip compiles all of it, and has setuptools too: seconds for what hardly anybody calls
            command = ["env", f"PIP_CONFIG_FILE={os.devnull}", self._python, str(runner), "--isolated"]
            command += ["install", "--no-compile", "--no-index", "--no-deps", str(wheel)]
        self._run(command, f"{self._venv} gets no pip", _venv_hint(), names=False)

    def install_locked(self, lock: Path) -> None:
        """All that a lock file pins; a file of another hash is refused."""
        # the lock is complete, so nothing else is looked for
        alone = ["--require-hashes", "--no-deps", "--only-binary", ":all:"]
        self.install([*alone, "-r", str(lock)], lock.name)

    def install_one(self, lock: Path, package: str) -> None:
        """One package of a lock file, by the same hashes."""
        with tempfile.TemporaryDirectory() as folder:
            own = Path(folder, lock.name)
            pins = re.findall(rf"^{package}==.*(?:\n +--.*)*\n", lock.read_text(), re.MULTILINE)
            own.write_text("".join(pins))
            self.install_locked(own)

    def install_project(self, root: Path) -> None:
        """lib/ where it lies, built with the pinned setuptools, so that nothing unpinned is fetched."""
        self.install(["--no-deps", "--no-build-isolation", "-e", str(root)], "kharness", names=False)

    def install(self, arguments: Sequence[str], what: str, *, names: bool = True, hint: str = HINT) -> None:
        """InstallError with what the installer said where it fails."""
        if self.uv:
            command = [self.uv, "pip", "install", "--python", self._python, *self._index()]
        else:
            command = [*self._pip(), "install", "--no-compile"]
        self._run([*command, *arguments], f"{self.name} could not install {what}", hint, names=names)

    def uninstall(self, names: Sequence[str]) -> None:
        command = (
            [self.uv, "pip", "uninstall", "--python", self._python]
            if self.uv
            else [*self._pip(), "uninstall", "-y"]
        )
        self._run([*command, *names], f"{self.name} could not remove {', '.join(names)}", HINT)

    def offers(self, name: str, version: str) -> bool:
        """Whether the configured indexes and folders have exactly this version, local label included."""
        if self.uv:
            return bool(self.uv_would_install("--no-deps", f"{name}==={version}"))
        command = [*self._pip(), "index", "versions", name]
        done = watched(command, self._environment, LOOKS)
        listed = re.search(r"^Available versions: (.*)$", done.stdout, re.MULTILINE)
        return bool(listed) and version in re.split(r", *", listed[1] if listed else "")

    def uv_would_install(self, *arguments: str) -> list[str]:
        """Packages by name; none without uv, or where it does not find them or reach their index."""
        if not self.uv:
            return []
        command = [self.uv, "pip", "install", "--dry-run", "--reinstall", "--color=never"]
        command += ["--python", self._python, *self._index(), *arguments]
        done = watched(command, self._for_installer(), LOOKS)
        return [] if done.returncode else re.findall(r"^ [+~] ([^\s=]+)==", done.stderr, re.MULTILINE)

    def _pip(self) -> list[str]:
        """pip with its options: that of the environment, else this Python's, run by the environment's."""
        if not self._has_pip():
            # as `pip --python` does, which takes a Python more for each command
            if runner := _pip_runner():
                return [self._python, str(runner), "--disable-pip-version-check"]
            self.add_pip()
        return [self._python, "-m", "pip", "--disable-pip-version-check"]

    def _has_pip(self) -> bool:
        return any(site_packages(self._venv, "pip/__main__.py"))

    def _index(self) -> list[str]:
        """Options that give uv the indexes and folders that pip is configured with; it reads none of that."""
        if any(os.environ.get(name) for name in OF_UV):
            return []
        settings = pip_settings()
        options = [f"--default-index={settings['index-url']}"] if "index-url" in settings else []
        options += [f"--index={url}" for url in settings.get("extra-index-url", "").split()]
        options += [f"--find-links={place}" for place in settings.get("find-links", "").split()]
        options += ["--no-index"] if settings.get("no-index", "false") not in ("0", "false") else []
        return options

    def _for_installer(self) -> dict[str, str]:
        if not self.uv:
            return self._environment
        # pip takes the best version of all indexes, uv otherwise that of the first one with the package
        added = {"UV_INDEX_STRATEGY": "unsafe-best-match"}
        if cert := pip_settings().get("cert"):
            added["SSL_CERT_FILE"] = cert
        return {**added, **self._environment}

    def _run(self, command: Sequence[str], failure: str, hint: str, *, names: bool = True) -> None:
        """Print a line per package; on a terminal also how far pip is, or all that uv shows there."""
        terminal = sys.stdout.isatty() and sys.stderr.isatty()
        if terminal and self.uv:
            if subprocess.run(command, check=False, env=self._for_installer()).returncode != 0:
                raise InstallError(failure, hint=hint)
            return
        last: collections.deque[str] = collections.deque(maxlen=LAST_LINES)
        # on a terminal of its own pip draws its bar, and would wait for an answer to a question nobody sees
        reader, writer = _terminal_like_ours() if terminal else os.pipe()
        environment = {**self._for_installer(), "PIP_NO_INPUT": "1"}
        with subprocess.Popen(command, stdout=writer, stderr=writer, env=environment) as running:
            # the installer has the only one left, so that reading ends when it does
            os.close(writer)
            state, since = "", time.monotonic()
            for line in _parts(reader):
                if not line:
                    _show(state, since)
                    continue
                if FETCHED.search(line):
                    _show(FETCHED.findall(line)[0] if terminal else "")
                    continue
                if line.startswith(SATISFIED):
                    continue
                if line.startswith(RETRIES):
                    state = f"{NO_ANSWER}; trying again"
                    # of tries in a row the last one says all, and the lines are few that are shown in the end
                    if last and last[-1].startswith(RETRIES):
                        last.pop()
                last.append(f"{line}\n")
                if names and (named := NAMED.match(line)):
                    _show("")
                    say(line_of(named[1] or named[3], named[2] or named[4]))
                    state = ""
                elif names and line.startswith(UNPACKS):
                    state = f"unpacking {len(line.split(','))} packages" if "," in line else "unpacking"
                else:
                    continue
                since = time.monotonic()
                _show(state)
            _show("")
        if running.returncode != 0:
            sys.stderr.writelines(last)
            why = f": {NO_ANSWER}" if any(line.startswith(RETRIES) for line in last) else ""
            raise InstallError(f"{failure}{why}", hint=hint)


def _pip_runner() -> Path | None:
    """Return the script that runs this Python's pip in another Python; None without pip, or of an old one."""
    own = importlib.util.find_spec("pip")
    runner = Path(own.origin).with_name("__pip-runner__.py") if own and own.origin else None
    return runner if runner and runner.is_file() else None


def _wheel_of_pip() -> Path | None:
    """Return the wheel that ensurepip installs, of this Python or of its distribution."""
    folders = [sysconfig.get_config_var("WHEEL_PKG_DIR")]
    if (own := importlib.util.find_spec("ensurepip")) and own.origin:
        folders.append(Path(own.origin).with_name("_bundled"))
    return next((wheel for folder in folders if folder for wheel in Path(folder).glob("pip-*.whl")), None)


def _terminal_like_ours() -> tuple[int, int]:
    """Descriptors (reader, writer) of a new terminal of the size of that of standard output."""
    reader, writer = pty.openpty()
    size = fcntl.ioctl(sys.stdout.fileno(), termios.TIOCGWINSZ, bytes(8))
    fcntl.ioctl(writer, termios.TIOCSWINSZ, size)
    return reader, writer


def _parts(reader: int) -> Iterator[str]:
    """Return lines, and the states of a bar that is drawn over itself, without colors; closes `reader`.

    An empty one for each second that nothing comes.
    """
    left = ""
    with open(reader, "rb", buffering=0) as source:
        while True:
            if not select.select([source], [], [], 1)[0]:
                yield ""
                continue
            try:
                content = source.read(65536)
            except OSError:  # a terminal ends so where a pipe is empty
                content = b""
            *parts, left = re.split(r"[\r\n]+", left + content.decode(errors="replace"))
            yield from filter(None, (ESCAPES.sub("", part) for part in parts))
            if not content:
                break
    if left:
        yield ESCAPES.sub("", left)


def watched(
    command: Sequence[Any], environment: Mapping[str, str] | None, state: str
) -> subprocess.CompletedProcess[str]:
    """Run it with all that it prints kept; a terminal shows the state and its seconds."""
    since = time.monotonic()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as running:
        while True:
            try:
                output, errors = running.communicate(timeout=1)
                break
            except subprocess.TimeoutExpired:
                _show(state, since)
    _show("")
    return subprocess.CompletedProcess(command, running.returncode, output, errors)


def _show(state: str, since: float | None = None) -> None:
    """Have it, and the seconds since then, in the last line of a terminal until the next line comes."""
    if sys.stdout.isatty():
        seconds = f"{time.monotonic() - since:.0f} s" if since is not None else ""
        shown = ", ".join(filter(None, (state, seconds)))
        sys.stdout.write(f"\r\x1b[2K  {shown}" if shown else "\r\x1b[2K")
        sys.stdout.flush()


def _venv_hint() -> str:
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    hint = f"on Debian and Ubuntu: apt-get install python{version}-venv"
    return f"{hint}; or make PYTHON=/path/to/another/python"


def line_of(name: str, version: str) -> str:
    """`setup: numpy 2.4.6 (17 MB)`, the size where it is known."""
    name, version = normalized(name), unquote(version)
    size = sizes().get(f"{name}+cpu" if version.endswith("+cpu") else name)
    return f"setup: {name} {version}" + (f" ({rounded(size[0])})" if size else "")


def say(line: str) -> None:
    """Print, fitted to the terminal; a reader that left, or a closed terminal, stops no set-up."""
    try:
        print(fitted(line), flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
