"""Builds the simulated NVML and writes the file that says what its GPUs do.

    python tests/simulated_nvml/simulated_nvml.py FOLDER     builds FOLDER/libnvidia-ml.so.1

A process sees it with LD_LIBRARY_PATH=FOLDER and SIMULATED_NVML=SCRIPT; simulated_nvml.c has the language of
the script. Needs gcc, and NVIDIA's nvml.h (the package nvidia-nvml-dev-cu12), which it is compiled against.
"""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

LIBRARY = "libnvidia-ml.so.1"
SOURCE = Path(__file__).with_suffix(".c")


# The package with nvml.h; requirements/test.txt pins it.
HEADER_PACKAGE = "nvidia-nvml-dev-cu12"


def header_folder() -> Path:
    """Where nvml.h lies; PackageNotFoundError without its package."""
    files = importlib.metadata.files(HEADER_PACKAGE) or []
    [header] = [file for file in files if file.name == "nvml.h"]
    return Path(str(header.locate())).parent


def build(folder: Path) -> Path:
    """Compile the library into the folder and return its path; CalledProcessError shows what gcc said."""
    library = folder / LIBRARY
    options = ["-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-Wl,-soname,{LIBRARY}"]
    # a function that the header does not declare would be one that no driver has
    options += ["-Wmissing-prototypes", "-Wstrict-prototypes", f"-I{header_folder()}"]
    subprocess.run(["gcc", *options, "-o", library, SOURCE, "-lm", "-lpthread", "-ldl"], check=True)
    return library


class SimulatedNvml:
    """A built library and a script; the processes started with `environment()` see the GPUs of the script."""

    def __init__(self, library: Path, script: Path) -> None:
        self.library = library
        self.script = script
        self.write("gpus 1")

    def write(self, *lines: str) -> None:
        """Replace the script in one step; processes that sample see it within 5 ms."""
        temporary = self.script.with_suffix(".new")
        temporary.write_text("\n".join(lines) + "\n")
        os.replace(temporary, self.script)

    def add(self, *lines: str) -> None:
        """Add to the script: a later line about the same value counts."""
        self.write(*self.script.read_text().splitlines(), *lines)

    def environment(self) -> dict[str, str]:
        """The variables that a process needs to see these GPUs and no others."""
        return {"LD_LIBRARY_PATH": str(self.library.parent), "SIMULATED_NVML": str(self.script)}

    @property
    def blocking_calls(self) -> list[str]:
        """The calls made so far that hold up their caller for 20 ms."""
        noted = self.script.with_name(self.script.name + ".blocked")
        return noted.read_text().split() if noted.exists() else []


def main(arguments: Sequence[str]) -> int:
    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    print(build(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
