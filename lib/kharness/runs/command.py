"""A run whose command is anybody's: its file command.json, and the launch that puts the bridge around it."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from kharness.runs.errors import MatrixError
from kharness.runs.launch import Launch
from monitoring.journal.encoding.json_shape import check_shape, read_json

COMMAND_JSON = "command.json"
BRIDGE = "monitoring.bridge"

_SCRIPT = (".py", ".sh")

# Settings of programs unless GPUs of each were asked for.
TAKES_NO_GPUS = {"MATRIX_GPUS_PER_CELL": 0}

_SHAPE = {
    "argv": [str],
    "cwd": str,
    "environment": {"*": str},
    "follow": [str],
    "patterns": [str],
    "values": dict,
    "project": str,
    "trackers": dict,
    "resume?": [str],
    "hook?": bool,
    "monitors?": [str],
    "settings?": dict,
    "options?": dict,
    "template": {"words": [str], "environment": {"*": str}, "follow": [str], "resume": [str]},
}


@dataclass(frozen=True)
class Command:
    """A command with every placeholder filled in, and how it is followed."""

    argv: Sequence[str]
    cwd: str
    """Where it runs: the folder in which it was given."""
    values: Mapping[str, object]
    """Values that axes gave it, by symbol; with `options` the run's configuration."""
    project: str = "runs"
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that it gets beside those of the runner."""
    follow: Sequence[str] = ()
    patterns: Sequence[str] = ()
    trackers: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    resume: Sequence[str] = ()
    """Words that attempts after the first have in addition."""
    hook: bool = False
    """Whether calls of trackers are recorded in the program itself."""
    monitors: Sequence[str] = ()
    """Monitors that sample meanwhile: `gpu-monitor`, `machine-monitor`."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """Those of the launcher of a single run; none for one on this machine."""
    options: Mapping[str, object] = field(default_factory=dict)
    """Long options of the program in its words, by name; none that an axis gave."""
    template: Mapping[str, Any] = field(default_factory=dict)
    """Words, environment, follow and resume with `{run_dir}` and what else is the run's own in braces."""

    @property
    def shown(self) -> str:
        """The command as one types it."""
        variables = [f"{name}={shlex.quote(value)}" for name, value in self.environment.items()]
        return " ".join([*variables, shlex.join(self.argv)])

    def write(self, directory: Path) -> None:
        """Write DIRECTORY/command.json."""
        (directory / COMMAND_JSON).write_text(json.dumps(asdict(self), indent=2) + "\n")


def read_command(directory: Path) -> Command | None:
    """Return the command of a run; None for a training of the tree. MatrixError for a damaged file."""
    path = directory / COMMAND_JSON
    try:
        content = read_json(path.read_bytes())
        check_shape(content, _SHAPE)
        return Command(**content)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, TypeError) as error:
        raise MatrixError(f"{path} cannot be read: {error}", hint="it is damaged") from error


@dataclass(frozen=True)
class CommandLaunch(Launch):
    """A command to run under the bridge."""

    of: Command = field(default_factory=lambda: Command((), "", {}))

    @property
    def program(self) -> list[str]:
        """Return the bridge's command without the interpreter; the launcher runs it in its own."""
        options = ["--name", self.name, "--project", self.of.project, "--cwd", self.of.cwd]
        config = json.dumps({**self.of.options, **self.of.values})
        options += ["--config", config, "--trackers", json.dumps(self.of.trackers)]
        options += [word for path in self.of.follow for word in ("--follow", path)]
        options += [word for pattern in self.of.patterns for word in ("--pattern", pattern)]
        options += [word for pair in self.of.environment.items() for word in ("--set", "=".join(pair))]
        options += [f"--resume-with={word}" for word in self.of.resume]
        options += ["--hook"] if self.of.hook else []
        options += [f"--{name}" for name in self.of.monitors]
        return ["-m", BRIDGE, str(self.directory), *options, *self.arguments, "--", *self.of.argv]

    def device(self, gpus_per_cell: int) -> object:
        """Return the axis DEVICE, else GPUs if some were requested: the program itself does not say."""
        return self.asked.get("DEVICE", "cuda" if gpus_per_cell else "cpu")

    @property
    def command_line(self) -> str:
        """The user's own command."""
        return self.of.shown


def command_launch(directory: Path, command: Command, *, root: Path | None = None) -> CommandLaunch:
    """Return the launch of a run in its directory; paths are shown from `root`, the folder one is in."""
    return CommandLaunch(
        directory.name,
        directory,
        root or Path.cwd(),
        program_name(command.argv),
        command.values,
        of=command,
    )


def program_name(argv: Sequence[str]) -> str:
    """Return what a command runs, for names of runs and reports: `train` of `python -u train.py --lr 1`."""
    words = [word for word in argv if word and not word.startswith("-")]
    first = Path(words[0]).name if words else "run"
    if first.startswith("python") or first == Path(sys.executable).name or first in _STARTERS:
        modules = [word for before, word in pairwise(argv) if before == "-m" and word not in _STARTERS]
        if modules:
            return modules[0].rpartition(".")[2]
        scripts = [word for word in words[1:] if word.endswith(_SCRIPT)]
        first = Path(scripts[0]).name if scripts else first
    name, ending = os.path.splitext(first)
    return name if ending in _SCRIPT else first


# Programs that start others.
_STARTERS = frozenset(
    {"torchrun", "accelerate", "deepspeed", "uv", "bash", "sh", "env", "nice", "mpirun", "srun"}
    | {"torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch"}
)

_OPTION = re.compile(r"--([A-Za-z][\w.-]*)(?:=(.*))?", re.ASCII | re.DOTALL)
# As Hydra and OmegaConf have them.
_ASSIGNMENT = re.compile(r"\+{0,2}([A-Za-z_][\w./-]*)=(.*)", re.ASCII | re.DOTALL)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)


def options_in(argv: Sequence[str]) -> Mapping[str, str | bool]:
    """Return the program's options by name: `--name value`, `--name=value`, `name=value`; True for a flag.

    Those before the script are its launcher's. Dashes are underscores, as argparse has them, and a name in
    capitals is in small letters: capitals are for axes. The last of a repeated option counts.
    """
    return {name: value for name, value, _ in _parsed(argv) if name}


def words_besides(argv: Sequence[str], recorded: Collection[str]) -> list[str]:
    """Return the words of a command without the options that are recorded under these names, in any case."""
    known = {name.lower() for name in recorded}
    return [word for name, _, words in _parsed(argv) if name.lower() not in known for word in words]


def _parsed(argv: Sequence[str]) -> Iterator[tuple[str, str | bool, Sequence[str]]]:
    """Yield name, value and words of each option, and each other word under an empty name."""
    place = _after_program(argv)
    end = argv.index("--", place) if "--" in argv[place:] else len(argv)
    yield "", True, argv[:place]
    while place < end:
        name, next_place = "", place + 1
        value: str | bool = True
        if match := _OPTION.fullmatch(argv[place]) or _ASSIGNMENT.fullmatch(argv[place]):
            name = match[1].replace("-", "_")
            if match[2] is not None:
                value = match[2]
            elif (next_place := _after_values(argv, next_place, end)) > place + 1:
                value = " ".join(argv[place + 1 : next_place])
        yield name.lower() if name.isupper() else name, value, argv[place:next_place]
        place = next_place
    yield "", True, argv[end:]


def _after_values(argv: Sequence[str], place: int, end: int) -> int:
    """Return the place behind the value of an option: one word, or all numbers of `--betas 0.9 0.999`."""
    first = place
    while place < end and (place == first or _NUMBER.fullmatch(argv[first])):
        is_number = _NUMBER.fullmatch(argv[place]) is not None
        if not is_number and (place > first or argv[place][:1] == "-" or _ASSIGNMENT.fullmatch(argv[place])):
            break
        place += 1
    return place


def _after_program(argv: Sequence[str]) -> int:
    """Return the place behind the script, the module or the code that is run, else behind the program."""
    takes_code = Path(argv[0]).name.startswith(("python", "bash", "sh")) if argv else False
    for place, word in enumerate(argv):
        before = argv[place - 1] if place else ""
        is_module = before == "-m" and word not in _STARTERS
        if is_module or (takes_code and before == "-c") or (word[:1] != "-" and word.endswith(_SCRIPT)):
            return place + 1
    if argv and Path(argv[0]).name in _STARTERS:
        for place, word in enumerate(argv[1:], 1):
            if word[:1] != "-" and not _ASSIGNMENT.fullmatch(word):
                return place + 1
    return min(1, len(argv))
