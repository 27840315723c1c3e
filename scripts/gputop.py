"""GPUs and a run, live in this terminal: gputop.py [RUN=dir] [THEME=name] [SORT=column] [SIMULATE=n].

RUN is a run or a matrix, shown with the GPUs as it records them, if it does. Without RUN the GPUs are all of
this machine, with the newest run next to them. SIMULATE=4 shows four GPUs that do not exist, and
says so: a simulated driver from tests/ replaces the real one, for this one process and nowhere else. THEME
and SORT are what the keys `t` and `<` `>` choose. `make gputop` calls it.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from kharness.config.errors import ConfigError, run_command
from kharness.config.make import variables as make_variables
from kharness.runs.latest import asked_directory, latest_link
from monitoring import gpu_dashboard
from monitoring.terminal.display.themes import THEMES
from monitoring.terminal.panels.process_table import COLUMNS

ROOT = Path(__file__).resolve().parent.parent
SIMULATION = ROOT / "tests/simulated_nvml/simulated_nvml.py"
MOST_SIMULATED = 64


def main(argv: Sequence[str]) -> int:
    """What the dashboard returns; 2 for what cannot be shown."""
    variables = make_variables.given(argv, os.environ, "gputop", root=ROOT)
    options = shown(variables, make_variables.output_directory(variables, ROOT))
    options += chosen("THEME", variables.get("THEME"), THEMES)
    options += chosen("SORT", variables.get("SORT"), COLUMNS)
    if "SIMULATE" not in variables:
        return gpu_dashboard.main(options)
    import tempfile

    for ending in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(ending, lambda number, frame: sys.exit(128 + number))  # the folder goes, too
    with tempfile.TemporaryDirectory(prefix="gputop-") as folder:
        # for the processes that this one starts: those that ask the driver
        os.environ.update(simulated(number(variables["SIMULATE"]), Path(folder)))
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)  # it is about the GPUs that exist
        return gpu_dashboard.main([*options, "--gpu", "all", "--label", "SIMULATED GPUs"])


def chosen(name: str, value: str | None, known: Collection[str]) -> list[str]:
    """The dashboard's option of that name, if it is given."""
    if value is None:
        return []
    if value not in known:
        raise ConfigError(f"{name}={value} is unknown", hint=f"one of {', '.join(known)}")
    return [f"--{name.lower()}", value]


def shown(variables: Mapping[str, str], output: Path) -> list[str]:
    """The dashboard's options for RUN=, else for this machine and the newest run."""
    if "RUN" in variables:
        return ["--run", str(asked_directory(variables, output))]
    latest = latest_link(variables, output)  # as a link, so that the next matrix is followed, too
    return ["--gpu", "all", *(["--run", str(latest)] if latest.is_dir() else [])]


def number(text: str) -> int:
    """How many GPUs to simulate."""
    if not text.isdecimal() or not 1 <= int(text) <= MOST_SIMULATED:
        raise ConfigError(f"SIMULATE={text} is not a number from 1 to {MOST_SIMULATED}", hint="SIMULATE=4")
    return int(text)


def simulated(num_gpus: int, folder: Path) -> dict[str, str]:
    """Build the simulated driver into a folder; the variables with which a process sees it."""
    import subprocess

    try:
        build = [sys.executable, str(SIMULATION), str(folder)]
        subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
    except (OSError, subprocess.CalledProcessError) as error:
        raise ConfigError(
            "the simulated GPUs cannot be built",
            hint="apt install gcc libc6-dev, and pip install nvidia-nvml-dev-cu12 where VENV= is empty",
        ) from error
    script = folder / "gpus.txt"
    script.write_text("\n".join(script_lines(num_gpus)) + "\n")
    libraries = [str(folder), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    return {"LD_LIBRARY_PATH": os.pathsep.join(libraries), "SIMULATED_NVML": str(script)}


def script_lines(num_gpus: int) -> list[str]:
    """What they do: each works in its own rhythm; of several one is hot, and of many one is lost."""
    lines = [f"gpus {num_gpus}", "all name Simulated GPU", "all memory_total 81920"]
    for gpu in range(num_gpus):
        rhythm = 7 + 3 * gpu % 11
        lines += [
            f"gpu {gpu} utilization {55 + gpu % 3 * 10}~{90 + gpu % 8}/{rhythm}",
            f"gpu {gpu} memory_used {30000 + 1500 * (gpu % 16)}~{61000 + 500 * (gpu % 16)}/{60 + gpu}",
            f"gpu {gpu} temperature {52 + gpu % 5}~{66 + gpu % 7}/40",
            f"gpu {gpu} power {180 + 10 * (gpu % 16)}~{560 + 8 * (gpu % 16)}/{rhythm}",
            f"gpu {gpu} process {4194304 + gpu} {28000 + 1500 * (gpu % 16)} {50 + gpu % 40}",  # no real pid
        ]
    if num_gpus > 1:
        lines += ["gpu 1 temperature 76~86/30", "gpu 1 throttle 32"]
    if num_gpus > 3:
        lines += ["gpu 3 state lost"]
    return lines


if __name__ == "__main__":
    run_command(main)
