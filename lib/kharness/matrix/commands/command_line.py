"""The settings of a matrix or of a run's job, and its program, as a command line of `kharness` gives them."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kharness.config.output import printable
from kharness.runs.errors import MatrixError
from kharness.runs.files import LATEST
from monitoring.errors import refusal

# A name of a file has room for no more than 255 bytes, and the tools that write one add to it.
LONGEST_NAME = 200

if TYPE_CHECKING:  # each function imports what it needs: a program is to start at once
    from kharness.config.values import Value
    from kharness.matrix.commands.given import Given


def settings_of_job(options: argparse.Namespace) -> dict[str, Value]:
    """Return the settings of the launcher of a single run; {} on this machine, where it starts sooner."""
    if options.launcher == "local" and not (options.launcher_option or options.detach):
        return {}
    from kharness.matrix.commands.planned import launcher_settings

    return launcher_settings(options.launcher, options.launcher_option, detach=options.detach)


def checked_name(name: str) -> str:
    """Return what a run is to be called, if anything; MatrixError for what is no name of a directory."""
    if "/" in name or name[:1] == "." or name == LATEST or not name.isprintable() or len(name) > LONGEST_NAME:
        raise MatrixError(f"--name {printable(name)} is no name of a run", hint="--name baseline")
    return name


def given_of(
    options: argparse.Namespace,
    words: Sequence[str],
    settings: Mapping[str, Value] | None = None,
    judging: Mapping[str, str] | None = None,
) -> Given:
    from kharness.matrix.commands.given import Given
    from kharness.matrix.planning.template import Template

    _refuse_bytes(
        [*words, *(text for texts in vars(options).values() if isinstance(texts, list) for text in texts)]
    )
    environment = {}
    for pair in options.env:
        name, equals, value = pair.partition("=")
        if not equals or not name.isidentifier():
            raise MatrixError(f"-e {printable(pair)} is not NAME=value", hint="-e LR={lr}")
        environment[name] = value
    if options.pattern:
        from monitoring.bridge.printed_line import check_patterns

        check_patterns(options.pattern)
    if options.tracker:
        from monitoring.follower import checked_follower

        for name in options.tracker:  # the bridge would find out beside the program
            checked_follower(name, {})
    if options.offline:
        environment.setdefault("WANDB_MODE", "offline")
    return Given(
        Template(words, environment, _texts(options.render), _resume_words(options.resume_with)),
        Path.cwd(),
        options.results.absolute(),
        project=options.project,
        follow=options.follow,
        patterns=options.pattern,
        trackers={name: {} for name in options.tracker},
        hook=options.hook,
        monitors=["gpu-monitor", "machine-monitor"]
        if options.gpu_monitor
        else ["machine-monitor"] * options.machine_monitor,
        render=[str(path) for path in options.render],
        settings=settings or {},
        judging=judging or {},
        name=checked_name(getattr(options, "name", "")),
    )


def _refuse_bytes(texts: Sequence[object]) -> None:
    """MatrixError for a word in another encoding: plans and journals are UTF-8; or with a NUL byte, which
    kharness.toml may hold and no program can be given.
    """
    for text in map(str, texts):
        if "\0" in text:
            raise MatrixError(f"{text} holds a NUL byte", hint="leave it out: no program can be given it")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise MatrixError(
                f"{text!a} is not UTF-8", hint="rename what it names, or write it in UTF-8"
            ) from error


def _resume_words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:  # a quote without its other one
        raise MatrixError(
            f"--resume-with {text}: {str(error).lower()}", hint="--resume-with '--resume {run_dir}/ckpt.pt'"
        ) from error


def _texts(paths: Sequence[Path]) -> dict[str, str]:
    """Return the text of each file by its name."""
    found = {}
    for path in paths:
        if path.name in found:
            raise MatrixError(f"--render {path}: there is another {path.name}", hint="rename one of them")
        try:
            found[path.name] = path.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise MatrixError(
                f"--render {path}: it cannot be read: {_why(error)}", hint="give a text file"
            ) from error
    return found


def _why(error: OSError | ValueError) -> str:
    return refusal(error) if isinstance(error, OSError) else str(error)


def settings_of(options: argparse.Namespace) -> dict[str, Value]:
    from kharness.matrix.commands.axes import GROUPS
    from kharness.matrix.commands.planned import launcher_settings

    texts = {
        "MATRIX_INCLUDE": GROUPS.join(getattr(options, "include", ())),
        "MATRIX_EXCLUDE": GROUPS.join(getattr(options, "exclude", ())),
        "MATRIX_QUARANTINE": options.quarantine,
    }
    return {
        **launcher_settings(options.launcher, options.launcher_option, detach=options.detach),
        "MATRIX_ORDER": "blocked",
        "MATRIX_TIMEOUT": 0,
        "MATRIX_RETRIES": 1,
        **running_of(options, is_program=True),
        **early_stopping_of(options, options.metric),
        **judging_of(options),
        **({"REPORT_GRAPHS": False} if getattr(options, "no_graphs", False) else {}),
        **{name: value for name, value in texts.items() if value},
    }


def running_of(options: argparse.Namespace, *, is_program: bool) -> dict[str, Value]:
    """Return the settings of how runs are started that were typed, and whether first failures stop all."""
    asked = {
        "JOBS": options.jobs,
        "TIMEOUT": options.timeout,
        "RETRIES": options.retries,
        "GPUS_PER_CELL": options.gpus_per_cell,
    }
    found: dict[str, Value] = {f"MATRIX_{name}": value for name, value in asked.items() if value is not None}
    if is_program:
        from kharness.matrix.running.alike import FIRST

        found["MATRIX_ALIKE"] = 0 if options.keep_going else FIRST
    return found


def early_stopping_of(options: argparse.Namespace, metric: object) -> dict[str, Value]:
    """Return the settings by which runs that lose are stopped; {} where that was not typed."""
    if not options.early_stopping:
        return {}
    return {
        "MATRIX_EARLY_STOPPING": True,
        "MATRIX_HALVING_FACTOR": 3,
        "MATRIX_HALVING_MIN_EPOCHS": options.early_stopping,
        "SWEEP_METRIC": str(metric or "val_loss"),
    }


def judging_of(options: argparse.Namespace) -> dict[str, str]:
    """Return the settings of the report that were typed. MatrixError for no direction of a metric."""
    from monitoring.journal.fields.directions import read_directions

    for text in options.better:
        try:
            read_directions(text)
        except ValueError as error:
            raise MatrixError(
                f"--better {text} does not say which way a metric is better",
                hint="--better wer=down, or up; once for each metric",
            ) from error
    asked = {
        "REPORT_BETTER": "; ".join(options.better),
        "REPORT_METRIC": options.metric,
        "REPORT_BASELINE": options.baseline,
        "REPORT_BUDGET_UNIT": options.budget,
    }
    return {name: value for name, value in asked.items() if value}
