"""Set-up by the real pip and the real uv, of tiny packages from a folder: what it says, does and leaves."""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import termios
import threading
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pip
import pytest

from monitoring.errors import folded

from ...made_once import made_once

UV = Path(sys.executable).with_name("uv")
WITH_UV = pytest.mark.skipif(not UV.exists(), reason="uv is not installed")
BY = ["pip", pytest.param("uv", marks=WITH_UV)]

# What ensurepip installs.
OWN = ("pip", "setuptools")

# Builds the editable install as setuptools does, without being fetched.
BACKEND = """\
import zipfile
from pathlib import Path

def build_editable(folder, config_settings=None, metadata_directory=None):
    name = "kharness-0.1.0-py3-none-any.whl"
    info = "kharness-0.1.0.dist-info"
    with zipfile.ZipFile(Path(folder) / name, "w") as wheel:
        wheel.writestr("__editable__.kharness-0.1.0.pth", str(Path("lib").absolute()))
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\\nName: kharness\\nVersion: 0.1.0\\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(f"{info}/RECORD", "")
    return name
"""
PROJECT = """\
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "kharness"
dynamic = ["version"]
"""


@dataclass
class Clone:
    """A checkout whose requirements are tiny, and the folder that stands for an index."""

    root: Path
    wheels: Path

    @property
    def venv(self) -> Path:
        return self.root / ".venv"

    def wheel(self, name: str, version: str, files: Mapping[str, str] = {}, needs: str = "") -> str:
        """Make one, which may need another; its hash."""
        path = self.wheels / f"{name}-{version}-py3-none-any.whl"
        info = f"{name}-{version}.dist-info"
        requires = f"Requires-Dist: {needs}\n" if needs else ""
        content = {
            f"{name}/__init__.py": "",
            **files,
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requires}",
            f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        }
        lines = []
        with zipfile.ZipFile(path, "w") as wheel:
            for file, text in content.items():
                entry = zipfile.ZipInfo(file)
                entry.external_attr = (0o100755 if ".data/scripts/" in file else 0o100644) << 16
                wheel.writestr(entry, text)
                digest = (
                    base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
                )
                lines.append(f"{file},sha256={digest},{len(text)}\n")
            wheel.writestr(f"{info}/RECORD", "".join([*lines, f"{info}/RECORD,,\n"]))
        return hashlib.sha256(path.read_bytes()).hexdigest()

    def torch(self, version: str, cuda: str) -> None:
        needs = "" if cuda == "None" else "nvidia_cublas==13.1"
        self.wheel("torch", version, {"torch/version.py": f"cuda: str | None = {cuda}\n"}, needs)

    def lock(self, part: str, *packages: tuple[str, str]) -> None:
        """Pin packages, made here, as a part; a version may have a marker behind it."""
        lines = [
            f"{name}=={version} \\\n    --hash=sha256:{self.wheel(name, version.partition(' ; ')[0])}"
            for name, version in packages
        ]
        (self.root / "requirements" / f"{part}.txt").write_text("\n".join(["# a part", *lines]) + "\n")
        (self.root / "requirements" / f"{part}.in").write_text("\n".join(name for name, _ in packages) + "\n")

    def environment(self, by: str, **variables: str) -> dict[str, str]:
        """Nothing but the folder is looked in, whatever pip and uv are configured with here."""
        kept = {name: value for name, value in os.environ.items() if not re.match("(PIP|UV|TORCH)", name)}
        programs = self.root / f"bin-{by}"
        programs.mkdir(exist_ok=True)
        if by == "uv" and not (programs / "uv").exists():
            (programs / "uv").symlink_to(UV)
        own = {
            "PATH": f"{programs}:/usr/bin:/bin",
            "PYTHONPATH": "lib",
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.wheels),
            "UV_NO_CONFIG": "1",
        }
        return {**kept, **own, **variables}

    def create(
        self, stamp: str, *parts: str, by: str = "pip", **variables: str
    ) -> tuple[int, list[str], str]:
        """Exit code, lines and errors of scripts/environment.py."""
        command = [sys.executable, "scripts/environment.py", "create", f".venv/{stamp}", *parts]
        environment = self.environment(by, **variables)
        done = subprocess.run(
            command, cwd=self.root, env=environment, capture_output=True, text=True, timeout=600, check=False
        )
        return done.returncode, done.stdout.splitlines(), done.stderr

    def has_pip(self) -> None:
        """Make the environment with the pip of the tests; ensurepip, which sets one up, takes seconds."""
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", self.venv], check=True)
        for packages in self.venv.glob("lib/*/site-packages"):
            (packages / "pip").symlink_to(Path(pip.__file__).parent)

    def versions(self) -> dict[str, str]:
        found = (
            path.name.removesuffix(".dist-info") for path in self.venv.glob("lib/*/site-packages/*.dist-info")
        )
        return {
            name: version for name, _, version in (text.rpartition("-") for text in found) if name not in OWN
        }


@pytest.fixture(scope="session")
def library(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of lib/, with what of it is compiled; each clone has links of it."""

    def make(folder: Path) -> None:
        ignored = shutil.ignore_patterns("*.pyc.*", "*.json", "*.csv")  # the first is being written
        shutil.copytree(root / "lib", folder, ignore=ignored, dirs_exist_ok=True)
        (folder / "VERSION").write_text("0.1.0\n")

    return made_once(tmp_path_factory, "library", make)


@pytest.fixture
def clone(root: Path, library: Path, tmp_path: Path) -> Clone:
    ours = tmp_path / "clone"
    shutil.copytree(library, ours / "lib", copy_function=os.link)
    for folder in ("scripts", "requirements"):
        (ours / folder).mkdir()
    shutil.copy(root / "scripts/environment.py", ours / "scripts")
    (ours / "pyproject.toml").write_text(PROJECT)
    (ours / "backend.py").write_text(BACKEND)
    (tmp_path / "wheels").mkdir()
    made = Clone(ours, tmp_path / "wheels")
    (ours / "requirements/torch.txt").write_text("torch==2.13.0\n")
    made.torch("2.13.0+cpu", "None")
    made.torch("2.13.0", '"13.0"')
    made.lock("config", ("menu_maker", "1.0"))
    of_others = ("for_older", "1.0 ; python_full_version < '3.11'")
    made.lock("run", ("menu_maker", "1.0"), ("number_cruncher", "2.1 ; python_version >= '3.11'"), of_others)
    made.lock("cuda", ("nvidia_cublas", "13.1"))
    made.lock("wandb", ("wandb", "0.31.0"), ("wandb_core", "1.2"))
    sizes = {"menu-maker": [146_000, 507_000], "number-cruncher": [90_000_000, 300_000_000]}
    sizes |= {"torch": [527_000_000, 1_095_000_000], "torch+cpu": [192_000_000, 699_000_000]}
    sizes |= {"nvidia-cublas": [2_204_000_000, 3_628_000_000], "wandb": [27_000_000, 77_000_000]}
    (ours / "requirements/sizes.json").write_text(json.dumps(sizes))
    return made


@pytest.mark.parametrize("by", BY)
def test_set_up_says_what_it_brings_and_how_large_before_it_begins(clone: Clone, by: str) -> None:
    """A part, then all of it but what is for other Pythons; the first takes no pip of its own."""
    assert clone.create(".ready-config", "config", by=by) == (
        0,
        [
            f"setup: making .venv with {sys.executable}",
            f"setup: {by} brings menu-maker into .venv: about 146 KB to fetch, 507 KB on the disk",
            "setup: menu-maker 1.0 (146 KB)",
            "setup: .venv is ready",
        ],
        "",
    )
    on_cpu = [
        "setup: torch 2.13.0 for the CPU: about 192 MB to fetch, 699 MB on the disk (TORCH=cpu)",
        "setup: torch 2.13.0+cpu (192 MB)",
        "setup: importing torch for the first time",
        "setup: .venv is ready",
    ]
    code, lines, errors = clone.create(".ready", "run", by=by, TORCH="cpu", PYTHONDONTWRITEBYTECODE="")
    assert (code, errors) == (0, "")
    assert len(list(clone.venv.glob("lib/*/site-packages/torch/__pycache__/__init__.*.pyc"))) == 1
    crunching = f"setup: {by} brings number-cruncher into .venv: about 90 MB to fetch, 300 MB on the disk"
    assert lines == [crunching, on_cpu[0], "setup: number-cruncher 2.1 (90 MB)", *on_cpu[1:]]
    everything = {"menu_maker": "1.0", "number_cruncher": "2.1", "kharness": "0.1.0"}
    assert clone.versions() == {**everything, "torch": "2.13.0+cpu"}

    assert clone.create(".ready", "run", by=by) == (0, [], "")


def test_on_a_terminal_pip_shows_how_far_it_is_and_leaves_a_line_per_package(
    clone: Clone, tmp_path: Path
) -> None:
    noise = base64.b85encode(random.Random(1).randbytes(800_000)).decode()
    sha256 = clone.wheel("menu_maker", "1.0", {"menu_maker/noise.txt": noise})
    (clone.root / "requirements/config.txt").write_text(f"menu_maker==1.0 --hash=sha256:{sha256}\n")
    # what this folder's links point at is fetched: a file of it would be read where it lies
    links = "".join(f'<a href="{path.name}">{path.name}</a>' for path in clone.wheels.iterdir())
    (clone.wheels / "links.html").write_text(f"<!DOCTYPE html><html><body>{links}</body></html>")
    with served(clone.wheels) as address:
        command = [sys.executable, "scripts/environment.py", "create", ".venv/.ready-config", "config"]
        environment = clone.environment("pip", PIP_FIND_LINKS=f"{address}/links.html", TERM="xterm")
        raw = on_terminal(command, clone.root, environment, columns=60)
    shown = re.sub(r"[^\n]*\r\x1b\[2K", "", raw.replace("\r\n", "\n")).splitlines()
    lines = [
        f"setup: making .venv with {sys.executable}",
        "setup: pip brings menu-maker into .venv: about 146 KB to fetch, 507 KB on the disk",
        "setup: menu-maker 1.0 (146 KB)",
        "setup: .venv is ready",
    ]
    assert shown == [part for line in lines for part in folded(line, 60)]
    assert re.search(r"\x1b\[2K  [\d.]+/[\d.]+ [kM]B \S", raw)
    assert "\x1b[2K  unpacking\r" in raw


def test_what_stops_set_up_is_as_wide_as_the_terminal(clone: Clone) -> None:
    command = [sys.executable, "scripts/environment.py", "create", ".venv/.ready", "run"]
    environment = clone.environment("pip", TORCH_INDEX="--help")
    raw = on_terminal(command, clone.root, environment, columns=30, code=2)
    assert raw.splitlines()[:2] == ["error: TORCH_INDEX is no", "  address of an index"]


def on_terminal(
    command: list[str], root: Path, environment: dict[str, str], *, columns: int, code: int = 0
) -> str:
    """All that a command, which ends with this code, writes to a terminal."""
    master, slave = os.openpty()
    termios.tcsetwinsize(slave, (24, columns))
    written = b""
    with subprocess.Popen(
        command, cwd=root, env=environment, stdin=slave, stdout=slave, stderr=slave
    ) as process:
        os.close(slave)
        with contextlib.suppress(OSError):  # how a terminal ends
            while content := os.read(master, 65536):
                written += content
    os.close(master)
    assert process.returncode == code, written
    return written.decode()


def test_an_environment_that_was_there_finds_the_library(clone: Clone) -> None:
    clone.has_pip()
    assert clone.create(".ready-config", "config")[0] == 0
    command = [str(clone.venv / "bin/python"), "-I", "-c", "import kharness; print(kharness.__file__)"]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert found == f"{clone.root}/lib/kharness/__init__.py\n"


@pytest.mark.parametrize("by", BY)
def test_a_clone_that_was_moved_and_copied_runs_what_is_in_it(clone: Clone, tmp_path: Path, by: str) -> None:
    """Programs and library are those beside them, and nothing is fetched."""
    assert clone.create(".ready-config", "config", by=by)[0] == 0
    hello = clone.venv / "bin/hello"
    hello.write_text(f"#!{clone.venv}/bin/python\nimport kharness as k\nprint(k.__file__)\n")
    hello.chmod(0o755)
    for target, move in ((tmp_path / "mein Projekt ü", shutil.move), (tmp_path / "copy", copy_all)):
        before = clone.root
        move(str(before), str(target))
        clone.root = target
        told = f"setup: .venv was made in {before}; it is told where it is now"
        found = clone.create(".ready-config", "config", by=by)
        assert found == (0, [told, "setup: .venv is ready"], "")
        own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run([clone.venv / "bin/hello"], env=own, capture_output=True, text=True, check=True)
        assert done.stdout == f"{target}/lib/kharness/__init__.py\n"
        assert clone.create(".ready-config", "config", by=by) == (0, [], "")


def copy_all(source: str, target: str) -> None:
    shutil.copytree(source, target, symlinks=True)


@WITH_UV
def test_another_build_of_torch_replaces_the_one_that_is_there(clone: Clone) -> None:
    on_cpu = [
        "setup: torch 2.13.0 for the CPU: about 192 MB to fetch, 699 MB on the disk (TORCH=cpu)",
        "setup: torch 2.13.0+cpu (192 MB)",
        "setup: .venv is ready",
    ]
    everything = {"menu_maker": "1.0", "number_cruncher": "2.1", "kharness": "0.1.0"}
    by = "uv"
    assert clone.create(".ready", "run", by=by, TORCH="cpu")[0] == 0
    assert clone.create(".ready", "run", by=by, TORCH="cpu") == (0, [], "")
    code, lines, errors = clone.create(".ready", "run", by=by, TORCH="cuda")
    assert (code, errors) == (0, "")
    assert lines == [
        "setup: torch 2.13.0 with CUDA: about 2.7 GB to fetch, 4.7 GB on the disk (TORCH=cuda)",
        "setup: removing torch 2.13.0+cpu and what only that build uses",
        "setup: nvidia-cublas 13.1 (2.2 GB)",
        "setup: torch 2.13.0 (527 MB)",
        "setup: importing torch for the first time",
        "setup: .venv is ready",
    ]
    assert clone.versions() == {**everything, "torch": "2.13.0", "nvidia_cublas": "13.1"}
    assert clone.create(".ready", "run", by=by) == (0, [], ""), "the choice is kept"

    # the tests are the first to import it
    code, lines, errors = clone.create(".ready", "run", by=by, TORCH="cpu", KHARNESS_GOALS="check")
    removing = "setup: removing torch 2.13.0 and what only that build uses"
    assert (code, lines, errors) == (0, [on_cpu[0], removing, *on_cpu[1:]], "")
    assert clone.versions() == {**everything, "torch": "2.13.0+cpu"}


@WITH_UV
def test_a_tracker_is_installed_by_the_first_call_that_needs_it(clone: Clone) -> None:
    by = "uv"
    assert clone.create(".ready", "run", by=by, TORCH="cpu")[0] == 0
    assert brought(clone, by) == [
        f"setup: {by} brings 2 packages into .venv: about 27 MB to fetch, 77 MB on the disk",
        "setup: wandb 0.31.0 (27 MB)",
        "setup: wandb-core 1.2",
        "setup: .venv is ready",
    ]
    assert brought(clone, by) == []
    clone.lock("wandb", ("wandb", "0.31.1"), ("wandb_core", "1.2"))  # pinned anew, as after `git pull`
    assert brought(clone, by)[1:] == ["setup: wandb 0.31.1 (27 MB)", "setup: .venv is ready"]


def brought(clone: Clone, by: str) -> list[str]:
    """Lines that a make call of a configuration with W&B prints."""
    values = {"ENABLE_WANDB": True, "ENABLE_TRACKIO": False}
    code = f"from kharness.environment.parts import bring_for\nbring_for([{values}])"
    environment = clone.environment(by)
    del environment["PYTHONPATH"]  # the environment finds lib/ itself
    command = [str(clone.venv / "bin/python"), "-c", code]
    done = subprocess.run(
        command, cwd=clone.root, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_of_an_index_that_does_not_answer_the_last_try_is_shown(clone: Clone) -> None:
    """Nothing of what is there already."""
    assert clone.create(".ready-config", "config")[0] == 0
    (clone.wheels / "number_cruncher-2.1-py3-none-any.whl").unlink()
    nobody = {"PIP_NO_INDEX": "", "PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "2"}
    code, _, errors = clone.create(".ready", "run", TORCH="cuda", **nobody)
    tries = re.findall(r"^WARNING: Retrying \(Retry\(total=(\d)", errors, re.MULTILINE)
    assert (code, errors.count("Requirement already satisfied"), tries) == (2, 0, ["0"])
    assert errors.splitlines()[-2] == "error: pip could not install run.txt: the index does not answer"


@pytest.mark.parametrize("by", BY)
def test_a_file_of_another_hash_is_refused_and_leaves_no_stamp(clone: Clone, by: str) -> None:
    clone.wheel("menu_maker", "1.0", {"menu_maker/evil.py": "print('hello')"})
    code, lines, errors = clone.create(".ready-config", "config", by=by)
    assert (code, lines[-1].startswith("setup: .venv is ready")) == (2, False)
    said = errors.splitlines()[-2:]
    assert said[0] == f"error: {by} could not install config.txt"
    assert said[1].startswith("hint: read the message above")
    assert re.search("hash", errors, re.IGNORECASE)
    assert not (clone.venv / ".ready-config").exists()
    clone.lock("config", ("menu_maker", "1.0"))
    assert clone.create(".ready-config", "config", by=by)[0] == 0, "the same command takes it up again"


@pytest.mark.parametrize(
    ("program", "said"),
    [
        pytest.param(f'exec "{UV}" "$@"', ["setup: uv brings the others"], marks=WITH_UV, id="uv"),
        pytest.param("exit 2", [], id="a uv that reaches no index"),
    ],
)
def test_the_packages_of_tests_are_brought_by_the_uv_among_them(
    clone: Clone, program: str, said: list[str]
) -> None:
    clone.lock("test", ("judge", "1.0"))
    own = clone.wheel("uv", "0.13.9", {"uv-0.13.9.data/scripts/uv": f"#!/bin/sh\n{program}\n"})
    with (clone.root / "requirements/test.txt").open("a") as lock:
        lock.write(f"uv==0.13.9 \\\n    --hash=sha256:{own}\n")
    clone.has_pip()
    code, lines, errors = clone.create(".ready-for-tests", "test")
    brings = "setup: pip brings 2 packages into .venv: about 1 KB to fetch, 1 KB on the disk"
    ends = ["setup: judge 1.0", "setup: .venv is ready"]
    assert (code, lines, errors) == (0, [brings, "setup: uv 0.13.9", *said, *ends], "")
    assert clone.versions() == {"judge": "1.0", "uv": "0.13.9"}


def test_without_a_cpu_build_set_up_says_how_to_have_one(clone: Clone) -> None:
    (clone.wheels / "torch-2.13.0+cpu-py3-none-any.whl").unlink()
    clone.has_pip()
    code, lines, errors = clone.create(".ready", "run")
    assert (code, errors) == (0, "")
    assert [line for line in lines if "to fetch" in line][1:] == [
        "setup: torch 2.13.0 with CUDA: about 2.7 GB to fetch, 4.7 GB on the disk (no driver of a GPU is "
        "there, but pip's indexes have none for a CPU alone)",
        "setup: to have the one for the CPU, about 192 MB to fetch, 699 MB on the disk: Ctrl-C, then "
        'TORCH_INDEX= the address that pytorch.org, "Start locally", has for CPU; or install uv, which knows '
        "where it is",
    ]
    assert clone.versions()["torch"] == "2.13.0"


# As on many a company network: an index of its own, and nothing beyond.
NO_WAY_OUT = {"HTTPS_PROXY": "http://127.0.0.1:9", "UV_HTTP_RETRIES": "0", "PIP_NO_INDEX": "0"}


@WITH_UV
@pytest.mark.parametrize("has_cuda", [True, False])
def test_where_uv_reaches_no_index_of_pytorch_the_configured_one_has_torch(
    clone: Clone, tmp_path: Path, has_cuda: bool
) -> None:
    (clone.wheels / "torch-2.13.0+cpu-py3-none-any.whl").unlink()
    if not has_cuda:
        clone.torch("2.13.0", "None")
    (tmp_path / "own").mkdir()
    with served(tmp_path / "own") as address:
        code, lines, errors = clone.create(".ready", "run", by="uv", PIP_INDEX_URL=address, **NO_WAY_OUT)
    assert (code, errors) == (0, "")
    with_cuda = [
        "setup: torch 2.13.0 with CUDA: about 2.7 GB to fetch, 4.7 GB on the disk (no driver of a GPU is "
        "there, but uv gets none from download.pytorch.org for a CPU alone)",
        "setup: to have the one for the CPU, about 192 MB to fetch, 699 MB on the disk: Ctrl-C, then "
        'TORCH_INDEX= the address that pytorch.org, "Start locally", has for CPU',
    ]
    on_cpu = [
        "setup: torch 2.13.0 for the CPU: about 192 MB to fetch, 699 MB on the disk (no driver of a GPU is "
        "there)",
        "setup: TORCH=cuda takes the build with CUDA: about 2.7 GB to fetch, 4.7 GB on the disk",
    ]
    assert [line for line in lines if "to fetch" in line][1:] == (with_cuda if has_cuda else on_cpu)
    assert ("nvidia_cublas" in clone.versions(), clone.versions()["torch"]) == (has_cuda, "2.13.0")


@pytest.mark.parametrize(
    ("by", "nowhere", "more"),
    [
        ("pip", "pip's indexes have none", "; or install uv, which knows where it is"),
        pytest.param("uv", "uv gets none from download.pytorch.org", "", marks=WITH_UV),
    ],
)
def test_a_cpu_build_that_no_index_has_is_refused_before_anything_is_fetched(
    clone: Clone, by: str, nowhere: str, more: str
) -> None:
    (clone.wheels / "torch-2.13.0+cpu-py3-none-any.whl").unlink()
    network = NO_WAY_OUT if by == "uv" else {}
    code, _, errors = clone.create(".ready", "run", by=by, TORCH="cpu", **network)
    assert (code, errors.splitlines()) == (
        2,
        [
            f"error: TORCH=cpu: no build of torch 2.13.0 for a CPU alone: {nowhere}",
            f'hint: TORCH_INDEX= the address that pytorch.org, "Start locally", has for CPU{more}',
        ],
    )
    assert clone.versions() == {}


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a folder, on this machine."""
    handler = functools.partial(QuietHandler, directory=folder)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Nothing is logged."""


@pytest.mark.parametrize("by", BY)
def test_torch_comes_from_the_index_that_is_named(clone: Clone, tmp_path: Path, by: str) -> None:
    """It has this one package, as those of pytorch.org; all others are where they always are."""
    (clone.wheels / "torch-2.13.0-py3-none-any.whl").unlink()
    (tmp_path / "pypi").mkdir()
    wheel = tmp_path / "whl/cpu/torch/torch-2.13.0+cpu-py3-none-any.whl"
    wheel.parent.mkdir(parents=True)
    (clone.wheels / wheel.name).rename(wheel)
    sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
    link = f'<a href="{wheel.name.replace("+", "%2B")}#sha256={sha256}">{wheel.name}</a>'
    (wheel.parent / "index.html").write_text(f"<!DOCTYPE html><html><body>{link}</body></html>")
    if by == "pip":
        clone.has_pip()
    with served(tmp_path) as address:
        indexes = {"PIP_NO_INDEX": "0", "PIP_INDEX_URL": f"{address}/pypi"}
        named = {"TORCH_INDEX": f"{address}/whl/cpu", **indexes}
        code, lines, errors = clone.create(".ready", "run", by=by, **named)
        assert (code, errors) == (0, "")
        brought = "torch 2.13.0 for the CPU: about 192 MB to fetch, 699 MB on the disk"
        assert f"setup: {brought} (TORCH_INDEX names its index)" in lines
        assert lines[-3] == "setup: torch 2.13.0+cpu (192 MB)"
        assert clone.versions()["torch"] == "2.13.0+cpu"

        missing = {"TORCH_INDEX": f"{address}/whl/cu999", **indexes}
        code, lines, errors = clone.create(".ready", "run", by=by, **missing)
    assert (code, errors.splitlines()[-2]) == (2, f"error: {by} could not install torch")


@pytest.mark.parametrize(
    ("variables", "error"),
    [
        ({"TORCH": "gpu"}, "TORCH='gpu' is not one of auto, cpu, cuda"),
        ({"TORCH": "$(touch x)"}, "TORCH='$(touch x)' is not one of auto, cpu, cuda"),
        ({"TORCH_INDEX": "--help"}, "TORCH_INDEX is no address of an index"),
    ],
)
def test_a_build_that_is_none_is_refused_before_anything_is_made(
    clone: Clone, variables: dict[str, str], error: str
) -> None:
    code, lines, errors = clone.create(".ready", "run", **variables)
    assert (code, lines, errors.splitlines()[0]) == (2, [], f"error: {error}")
    assert not clone.venv.exists()


def test_a_part_that_does_not_exist_is_refused(clone: Clone) -> None:
    code, lines, errors = clone.create(".ready-tensorbord", "tensorbord")
    assert (code, lines) == (2, [])
    assert errors == "error: unknown part tensorbord\nhint: each part is a file of requirements/\n"
