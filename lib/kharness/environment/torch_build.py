"""Choose the build of torch for an environment: TORCH=auto|cpu|cuda, TORCH_INDEX=url."""

from __future__ import annotations

import ctypes.util
import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kharness.environment.installer import Installer, line_of, say
from kharness.environment.locks import (
    FOLDER,
    InstallError,
    about,
    installed,
    lacking,
    lock_of,
    pinned,
    site_packages,
    sizes,
)

Kind = Literal["cpu", "gpu"]
CHOICES = ("auto", "cpu", "cuda")

# The builds that the default index has not are in one that PyTorch's page names.
CPU_INDEX = 'TORCH_INDEX= the address that pytorch.org, "Start locally", has for CPU'

# Many a company network reaches an index of its own, but not the one from which uv has each build.
OF_UV = "uv gets none from download.pytorch.org"


@dataclass(frozen=True)
class Build:
    """The build of torch to install."""

    kind: Kind | None
    """None if only the index knows."""
    arguments: tuple[str, ...]
    with_cuda_lock: bool
    """Whether requirements/cuda.txt has what it brings."""
    reason: str


class TorchChoice:
    """The build requested for an environment, now or when it was made."""

    def __init__(self, venv: Path, environ: Mapping[str, str]) -> None:
        """Read the request from `environ`, else from the environment; raise InstallError for an invalid TORCH
        or TORCH_INDEX.
        """
        self._venv, self._file = venv, venv / ".torch"
        before = json.loads(self._file.read_text()) if self._file.is_file() else {}
        self.is_new = bool(environ.get("TORCH") or environ.get("TORCH_INDEX"))
        self.chosen: str = environ.get("TORCH") or ("auto" if self.is_new else before.get("TORCH", "auto"))
        self.index: str = environ.get("TORCH_INDEX") or ("" if self.is_new else before.get("TORCH_INDEX", ""))
        self._had_index: str = before.get("TORCH_INDEX", "")
        self._had = before.get("TORCH", "")
        if self.chosen not in CHOICES:
            raise InstallError(
                f"TORCH={self.chosen!r:.80} is not one of {', '.join(CHOICES)}",
                hint="auto takes the build for a CPU where there is no driver of a GPU",
            )
        if self.index and not re.match(r"(https?|file)://\S+$", self.index):
            raise InstallError("TORCH_INDEX is no address of an index", hint=f"for example {CPU_INDEX}")
        self.version = pinned(lock_of("torch"))["torch"]

    def is_installed(self) -> bool:
        """Whether the environment's torch is what is wanted."""
        version = installed(self._venv).get("torch", "")
        if version.partition("+")[0] != self.version:
            return False
        if not self.is_new:
            return True
        if self.index != self._had_index:
            return False
        kind = self.wanted()
        # an index without a build for the CPU gave another one, and would again
        is_best = kind == "cpu" and self.chosen == self._had
        return bool(self.index) or is_best or kind == build_in(self._venv)

    def wanted(self) -> Kind:
        if self.chosen == "auto":
            return "gpu" if gpu_driver() else "cpu"
        return "cpu" if self.chosen == "cpu" else "gpu"

    def build(self, installer: Installer) -> Build:
        """Choose the build; raise InstallError if no index has one for the CPU."""
        kind, plain = self.wanted(), f"torch=={self.version}"
        why = "TORCH=" + self.chosen
        if self.chosen == "auto":
            driver = gpu_driver()
            why = f"the driver of an {driver} GPU is there" if driver else "no driver of a GPU is there"
        if self.index:
            known: Kind | None = "cpu" if self.index.rstrip("/").endswith("/cpu") else None
            option = "--index" if installer.uv else "--extra-index-url"
            return Build(known, (plain, f"{option}={self.index}"), False, "TORCH_INDEX names its index")
        # exactly this version: one with a label, such as +cpu, is another build
        exactly = f"torch==={self.version}"
        if kind == "cpu":
            if installer.offers("torch", f"{self.version}+cpu"):
                return Build("cpu", (f"{exactly}+cpu",), False, why)
            by_uv = (plain, "--torch-backend=cpu")
            if installer.uv_would_install("--no-deps", *by_uv):
                return Build("cpu", by_uv, False, why)
            nowhere = OF_UV if installer.uv else "pip's indexes have none"
            if self.chosen == "cpu":
                raise InstallError(
                    f"TORCH=cpu: no build of torch {self.version} for a CPU alone: {nowhere}",
                    hint=_how_to_have_it(installer),
                )
            brought = installer.uv_would_install(exactly)
            if brought and not any(name.startswith("nvidia-") for name in brought):
                return Build("cpu", (exactly,), False, why)  # an index may have it without the label
            why += f", but {nowhere} for a CPU alone"
        elif self.chosen == "auto" and installer.uv:
            by_uv = (plain, "--torch-backend=auto")
            if installer.uv_would_install("--no-deps", *by_uv):
                return Build("gpu", by_uv, False, why)
            why += f", but {OF_UV} for it"
        return Build("gpu", (exactly,), True, why)

    def lines(self, build: Build, installer: Installer) -> list[str]:
        """Return what is installed, why, and how large it is."""
        known = sizes()
        names = ["torch+cpu"] if build.kind == "cpu" else ["torch", *pinned(lock_of("cuda"))]
        kind = {"cpu": "for the CPU", "gpu": "with CUDA", None: "of that index"}[build.kind]
        size = about(names, known) if build.kind else "how large, only the index knows"
        found = [f"torch {self.version} {kind}: {size} ({build.reason})"]
        if build.kind == "cpu" and self.chosen == "auto":
            found.append(
                f"TORCH=cuda takes the build with CUDA: {about(['torch', *pinned(lock_of('cuda'))], known)}"
            )
        if build.kind == "gpu" and self.wanted() == "cpu":
            found.append(
                f"to have the one for the CPU, {about(['torch+cpu'], known)}: Ctrl-C, then "
                + _how_to_have_it(installer)
            )
        return found

    def install(self, build: Build, installer: Installer) -> None:
        """Another build's packages go first; InstallError where what came has no CUDA and was to have it."""
        there = installed(self._venv)
        if "torch" in there:
            others = {
                "torch",
                *pinned(lock_of("cuda")),
                *(name for name in there if name.startswith("nvidia-")),
            }
            gone = sorted((others & there.keys()) - {"nvidia-ml-py", "nvidia-nvml-dev-cu12"})
            say(f"setup: removing torch {there['torch']} and what only that build uses")
            installer.uninstall(gone)
        if build.with_cuda_lock and lacking(self._venv, ["cuda"]):
            installer.install_locked(FOLDER / "cuda.txt")
        # pip names what was asked for; which build an index gave is known afterwards
        of_index = bool(self.index) and build.kind == "cpu"
        installer.install(build.arguments, "torch", names=not of_index)
        if of_index:
            say(line_of("torch", installed(self._venv)["torch"]))
        if self.chosen == "cuda" and build_in(self._venv) == "cpu":
            raise InstallError(
                f"TORCH=cuda: torch {installed(self._venv).get('torch')} was found, which is built for a CPU",
                hint="name an index that has a build with CUDA: TORCH_INDEX=…",
            )

    def keep(self) -> None:
        """Note the choice: what is installed later follows it."""
        self._file.write_text(json.dumps({"TORCH": self.chosen, "TORCH_INDEX": self.index}) + "\n")


def _how_to_have_it(installer: Installer) -> str:
    return CPU_INDEX if installer.uv else f"{CPU_INDEX}; or install uv, which knows where it is"


def build_in(venv: Path) -> Kind | None:
    """The kind of the environment's torch, by its version.py; None without one."""
    for file in site_packages(venv, "torch/version.py"):
        found = re.findall(r"^(?:cuda|hip|xpu)\b[^=]*= *['\"]", file.read_text(), re.MULTILINE)
        return "gpu" if found else "cpu"
    return None


def gpu_driver(root: Path = Path("/")) -> str | None:
    """`NVIDIA` or `AMD` where such a driver is there; `root` replaces the machine's root directory."""
    nvidia = ("proc/driver/nvidia/version", "dev/nvidiactl", "usr/lib/wsl/lib/libcuda.so.1")
    if any((root / path).exists() for path in nvidia):
        return "NVIDIA"
    if root == Path("/") and (shutil.which("nvidia-smi") or ctypes.util.find_library("cuda")):
        return "NVIDIA"
    return "AMD" if (root / "dev/kfd").exists() else None
