"""A command line as it was given, and the directory of a run of it, there as a whole or not at all."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kharness.config.places import CONFIG_PY
from kharness.matrix.planning.begin import Planning
from kharness.matrix.planning.template import RUN_DIR, RUN_NAME, Template
from kharness.runs.command import Command, CommandLaunch, command_launch, options_in, program_name
from kharness.runs.errors import MatrixError
from kharness.runs.files import RENDERED, STATUS_JSON
from kharness.runs.rundir import stamp
from kharness.runs.status import PENDING, RunStatus, status_text

if TYPE_CHECKING:
    from kharness.matrix.planning.axes import Axis
    from kharness.matrix.sweep.ranges import Range


@dataclass(frozen=True)
class Given:
    """A command line: what to run, where, and how it is followed."""

    template: Template
    cwd: Path
    results: Path
    """The folder of run directories."""
    project: str = ""
    follow: Sequence[str] = ()
    patterns: Sequence[str] = ()
    trackers: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    hook: bool = False
    monitors: Sequence[str] = ()
    render: Sequence[str] = ()
    """The paths of the template's files as they were given."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """Those of the launcher of a single run."""
    name: str = ""
    """Name of a single run; empty for its program and the time."""
    judging: Mapping[str, str] = field(default_factory=dict)
    """Settings that judge a single run, kept among its values; a matrix has them for all of its runs."""

    @classmethod
    def of(cls, content: Mapping[str, Any], results: Path) -> Given:
        """Return the command line stored in `content`."""
        template = Template(content["words"], content["environment"], content["files"], content["resume"])
        named = ("project", "follow", "patterns", "trackers", "hook", "monitors", "render")
        said = {name: content[name] for name in named if name in content}
        return cls(template, Path(content["cwd"]), results, **said)

    def content(self) -> dict[str, Any]:
        """Return the part of matrix.json that more runs of it are made from."""
        return {
            "words": list(self.template.words),
            "environment": dict(self.template.environment),
            "files": dict(self.template.files),
            "render": list(self.render),
            "resume": list(self.template.resume),
            "cwd": str(self.cwd),
            "project": self.project,
            "follow": list(self.follow),
            "patterns": list(self.patterns),
            "hook": self.hook,
            "monitors": list(self.monitors),
            "trackers": {name: dict(options) for name, options in self.trackers.items()},
        }

    def computing(self) -> list[str]:
        """Return what two runs must share to be the same: words, variables, texts of files."""
        content = self.content()
        return [json.dumps([content[name] for name in ("words", "environment", "files")], sort_keys=True)]

    @property
    def program(self) -> str:
        """The program that it runs, for names."""
        return program_name(self.template.words)

    def check(self, axes: Sequence[Axis | Range]) -> None:
        """MatrixError for a command that could not be run with these axes, and for an axis given twice."""
        names = [axis.symbol.lower() for axis in axes]
        for name in names:
            if names.count(name) > 1:
                raise MatrixError(
                    f"the axis {name} is given twice", hint=f"give all values at once: -a {name}=value,value"
                )
        # a placeholder of --follow that is misspelled would stand for nothing
        replace(self.template, resume=[*self.template.resume, *self.follow]).check(names, self.cwd)

    def command(self, name: str, directory: Path, values: Mapping[str, str]) -> Command:
        """Return the command of one run; `values` are by symbol."""
        of_axes = {symbol.lower(): value for symbol, value in values.items()}
        known = own_values(directory, self.template.files, of_axes, name=name)
        of_run = self.template.with_values(known)
        words, environment = self.template.filled(known)
        return Command(
            words,
            str(self.cwd),
            {**{symbol: typed(value) for symbol, value in values.items()}, **self.judging},
            project=self.project or self.cwd.name or "runs",
            environment=environment,
            follow=[self.template.filled_in(path, known) for path in self.follow],
            patterns=list(self.patterns),
            trackers=self.trackers,
            resume=self.template.resumed(known),
            hook=self.hook,
            monitors=list(self.monitors),
            settings=self.settings,
            options=self._options(of_axes),
            template={
                "words": of_run.words,
                "environment": of_run.environment,
                "follow": [self.template.left_open(path, known) for path in self.follow],
                "resume": of_run.resume,
            },
        )

    def _options(self, axes: Collection[str]) -> dict[str, object]:
        """Return the program's options that are not an axis or of one run's own, numbers as numbers.

        Secrets are left out: trackers and pages show a configuration.
        """
        found: dict[str, object] = {}
        for name, value in options_in(self.template.words).items():
            if name.lower() in axes:
                continue
            if isinstance(value, bool):
                found[name] = value
            elif not self.template.is_open(value):
                # here, for a command without options waits for none of its patterns
                from monitoring.secrets import is_secret_option

                text = self.template.filled_in(value, {})
                if not is_secret_option(name, text):
                    found[name] = typed(text)
        return found

    def write_run(self, command: Command, directory: Path, values: Mapping[str, str]) -> None:
        """Make the directory of a run: its values, command, files and status; not flushed to the disk."""
        of_axes = {symbol.lower(): value for symbol, value in values.items()}
        write_command_run(command, directory, self.template.rendered(of_axes))


def write_command_run(command: Command, directory: Path, rendered: Mapping[str, str]) -> None:
    """Make the directory of a run of a command, with the texts of its `rendered` files by name."""
    directory.mkdir()
    lines = [f"{symbol} = {value!r}" for symbol, value in command.values.items()]
    (directory / CONFIG_PY).write_text(
        "\n".join(["# The values of a command, see command.json.", *lines, ""])
    )
    command.write(directory)
    if rendered:
        (directory / RENDERED).mkdir()
    for name, text in rendered.items():
        (directory / RENDERED / name).write_text(text)
    (directory / STATUS_JSON).write_text(status_text(RunStatus(PENDING)))


def own_values(
    directory: Path, files: Iterable[str], of_axes: Mapping[str, str] = {}, *, name: str
) -> Mapping[str, str]:
    """Return what placeholders of a run stand for: values of axes, copies of files, its place and name."""
    copies = {file: str(directory / RENDERED / file) for file in files}
    return _Cased({**of_axes, **copies, RUN_DIR: str(directory), RUN_NAME: name})


class _Cased(dict[str, str]):
    """Placeholders in any case: `{LR}` is the axis `lr`."""

    def __missing__(self, name: str) -> str:
        return self[name.lower()] if name != name.lower() else ""


def prepare_run(given: Given, *, durable: bool = True) -> CommandLaunch:
    """Make the directory of a single run: RESULTS/NAME, or RESULTS/PROGRAM_TIME.

    MatrixError before anything is written. One that is not `durable` is for a caller who flushes the folder,
    once the program has begun.
    """
    given.check(())
    planning = _begun(given)
    command = given.command(planning.place.name, planning.place, {})
    with planning:
        given.write_run(command, planning.directory, {})
        planning.publish(durable=durable)
    return command_launch(planning.place, command, root=given.cwd)


def _begun(given: Given) -> Planning:
    """Begin the directory of a single run; MatrixError where another one is called so."""
    if not given.name:
        return Planning.begin_numbered(given.results, f"{given.program}_{stamp()}")
    planning = Planning.begin(given.results, given.name)
    if planning is None:
        from kharness.runs.latest import shown  # a program that is started does not wait for it

        place = shown(given.results / given.name)
        hint = f"give another --name, or: kharness continue {shlex.quote(place)}"
        raise MatrixError(f"{place} exists already", hint=hint)
    return planning


def preview_run(given: Given) -> list[CommandLaunch]:
    """Return the run that `prepare_run` would make, and write nothing."""
    given.check(())
    directory = given.results / (given.name or f"{given.program}_{stamp()}")
    return [command_launch(directory, given.command(directory.name, directory, {}), root=given.cwd)]


def typed(text: str) -> object:
    """Return the number that a value is, if the journal has it to the last digit; else the text."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if isinstance(value, float):
        return value if math.isfinite(value) else text
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63 else text
