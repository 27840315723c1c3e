"""Programs of the system that the tests need: which are missing, and how they are installed on request."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from kharness.config.errors import ConfigError, run_command
from kharness.config.make import variables as make_variables

ROOT = Path(__file__).resolve().parent.parent

# program -> (its Debian packages, what is not tested without it).
SYSTEM_PROGRAMS = {
    "gcc": ("gcc libc6-dev", "how GPUs are sampled, on a simulated NVML"),
    "chromium-headless-shell": ("chromium-headless-shell", "that the page of a report works in a browser"),
    "node": ("nodejs", "that pyright reads the types of the public names as mypy does"),
    "promtool": ("prometheus", "the exporter, the dashboard and the alert rules with a real Prometheus"),
    "tmux": ("tmux", "the dashboard in a real terminal"),
    "sbatch": ("slurm-wlm munge", "matrices on a real Slurm cluster"),
    "slurmdbd": ("slurmdbd mariadb-server-core", "matrices on a Slurm cluster that keeps accounts"),
    "pdflatex": ("texlive-latex-recommended", "that what is written for papers compiles"),
    "kconfig-conf": ("kconfig-frontends-nox", "that C conf and kharness write the same .config"),
}
INSTALL = ["apt-get", "install", "-y", "--no-install-recommends"]


def main(argv: Sequence[str]) -> int:
    """3 where CI lacks a program, else 0; 2 for an installation that was asked for and fails."""
    variables = make_variables.given(argv, os.environ, "check", root=ROOT)
    return 0 if complete(variables, os.environ) else 3


def complete(variables: Mapping[str, str], environ: Mapping[str, str]) -> bool:
    """Print what is missing, and install it with INSTALL=y or in CI, where nothing may be skipped.

    False if something is still missing in CI. ConfigError for an INSTALL that fails.
    """
    asked = make_variables.is_yes(variables, "INSTALL")
    in_ci = environ.get("CI") == "true"
    missing = missing_programs()
    if missing and (asked or in_ci):
        install(missing, environ, must=asked)
        missing = missing_programs()
    for packages, what in missing.items():
        say(f"check: skipping {what}: {packages} is not installed")
    if missing and not in_ci:
        say(f"check: to test that as well: {shlex.join([*as_root(), *INSTALL, *names(missing)])}")
        say("check: INSTALL=y types that line for you")
    return not (missing and in_ci)


def missing_programs() -> dict[str, str]:
    """Debian packages of the programs that are not there -> what is not tested without them."""
    return {
        packages: what for program, (packages, what) in SYSTEM_PROGRAMS.items() if not shutil.which(program)
    }


def install(missing: Mapping[str, str], environ: Mapping[str, str], *, must: bool) -> None:
    """Run the line that is printed; ConfigError with `must` where it fails or this system has no apt-get."""
    if not shutil.which("apt-get") or (as_root() and not shutil.which("sudo")):
        if must:
            raise ConfigError(
                "INSTALL=y needs apt-get, and root or sudo",
                hint=f"install {' '.join(names(missing))} by this system's own means",
            )
        return
    command = [*as_root(), *INSTALL, *names(missing)]
    say(f"check: {shlex.join(command)}")
    if not quietly(command, environ):
        quietly([*as_root(), "apt-get", "update"], environ)  # a new machine has no list of packages yet
        if not quietly(command, environ) and must:
            raise ConfigError(f"{shlex.join(command)} failed", hint="read its message above")


def names(missing: Mapping[str, str]) -> list[str]:
    return " ".join(missing).split()


def as_root() -> list[str]:
    """Return the prefix of installation commands: sudo unless this is root."""
    return [] if os.geteuid() == 0 else ["sudo"]


def quietly(command: list[str], environ: Mapping[str, str]) -> bool:
    """Whether it went well; its errors are shown, its progress is not."""
    environment = {**environ, "DEBIAN_FRONTEND": "noninteractive"}
    return subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=False).returncode == 0


def say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    run_command(main)
