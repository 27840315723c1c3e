"""Pin requirements/*.txt again from the .in files, in a fresh environment (`make requirements`)."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Collection
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "requirements"
# CUDA builds of torch bring these; which ones depends on the build, so torch's own metadata decides.
OF_A_TORCH_BUILD = re.compile(r"^(nvidia-|triton|cuda-|pytorch-triton)", re.IGNORECASE)


def main() -> int:
    """Install, freeze and write; pip's own message and exit code when it fails."""
    with tempfile.TemporaryDirectory() as venv:
        python = Path(venv) / "bin" / "python"
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        run = pinned(python, FOLDER / "run.in")
        header = "# Everything the make targets use, pinned; made from run.in by `make requirements`."
        write(FOLDER / "run.txt", [header, *run])
        test = pinned(python, FOLDER / "test.in")
        header = "# What `make check` adds, pinned; made from test.in by `make requirements`."
        write(FOLDER / "test.txt", [header, "-r run.txt", *(line for line in test if line not in set(run))])
    return 0


def pinned(python: Path, requirements: Path) -> list[str]:
    """Install a requirements file and list everything installed as NAME==VERSION."""
    pip = [str(python), "-m", "pip", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--quiet", "-r", str(requirements)], check=True)
    # --all keeps setuptools, which builds the editable install.
    frozen = subprocess.run([*pip, "freeze", "--all"], check=True, text=True, capture_output=True).stdout
    lines = (line.split("+")[0] for line in frozen.splitlines() if "==" in line)
    return sorted((line for line in lines if keep(line, named_in(requirements))), key=str.lower)


def named_in(requirements: Path) -> set[str]:
    """The packages that a requirements file names itself."""
    lines = requirements.read_text().splitlines()
    return {re.split(r"[=<>~! ;\[]", line)[0] for line in lines if line and line[0] not in "#-"}


def keep(line: str, named: Collection[str]) -> bool:
    """Whether a frozen line is pinned; what a build of torch brings is, if it is named."""
    package = line.partition("==")[0]
    return package in named or not (OF_A_TORCH_BUILD.match(line) or package in ("pip", "wheel"))


def write(path: Path, lines: list[str]) -> None:
    path.write_text("\n".join(lines) + "\n")
    print(f"wrote {path.relative_to(FOLDER.parent)}: {len(lines) - 1} lines")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:
        print(f"error: {' '.join(error.cmd)} failed\nhint: read its message above", file=sys.stderr)
        sys.exit(2)
