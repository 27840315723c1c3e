"""The command `kharness`: run any program, train it in all combinations, continue, compare.

    kharness run -- python train.py --lr 3e-4
    kharness matrix -a lr=1e-3,3e-4 -a seed=1..5 -- python train.py --lr {lr} --seed {seed}
    kharness continue

Words after `--` are the program's, letter for letter.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from kharness.config.errors import run_command
from kharness.runs.errors import MatrixError
from kharness.runs.files import GRAPHS

if TYPE_CHECKING:  # each command imports what it needs: `kharness --help` is there at once
    from kharness.config.values import Value
    from kharness.matrix.commands.planned import Given


class _Commands(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        raise MatrixError(message, hint=f"{self.prog} --help")


# Make targets on runs, which take the same NAME=value; a word without `=` is the run.
TARGETS = {
    "status": "how far a matrix or a run is",
    "logs": "what a run printed: CELL=name",
    "estimate": "how long a running or interrupted matrix still takes",
    "compare": "which of two runs, matrices or variants is better: A B",
    "summary": "write the summary again",
    GRAPHS: "draw the graphs again",
    "gpu-report": "how evenly the GPUs were used",
    "reproduce": "run it again and say whether it is bit-equal",
    "test-rerun": "run cells again from scratch",
    "sync": "bring the trackers up to date",
    "dashboard": "every run, matrix and sweep in a browser, live",
    "gputop": "GPUs and a run, live in this terminal",
    "watch": "gputop, where there is no GPU",
}

# Targets whose script has another name.
SCRIPTS = {"watch": "gputop"}


def main(argv: Sequence[str]) -> int:
    """Return the exit code of the program, or of the matrix: 3 if a run of it is not complete."""
    given = list(argv)
    if given and given[0] in TARGETS:
        return target(given[0], given[1:])
    options, words = parsed(given)
    call: Callable[[argparse.Namespace, Sequence[str]], int] = options.call
    return call(options, words)


def parsed(given: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Return the options and the words after `--`. MatrixError for what is no option."""
    place = given.index("--") if "--" in given else len(given)
    return _parser().parse_args(given[:place]), list(given[place + 1 :])


def run(options: argparse.Namespace, words: Sequence[str]) -> int:
    """Run a program once, recorded."""
    from kharness.matrix.commands.planned import prepare_run
    from kharness.matrix.supervise import supervise_single
    from kharness.runs.latest import shown
    from kharness.runs.lock import RunnerLock

    launch = prepare_run(_given(options, words))
    print(f"run: {shown(launch.directory)}", flush=True)
    with RunnerLock(launch.directory):
        return supervise_single(launch, root=Path.cwd())


def matrix(options: argparse.Namespace, words: Sequence[str]) -> int:
    """Run a program for every combination of the axes, then compare."""
    from kharness.config.output import say
    from kharness.matrix.commands.axes import parse_axis
    from kharness.matrix.commands.planned import prepare_matrix
    from kharness.matrix.planning.matrix_json import Plan, planned_content
    from kharness.matrix.supervise import check_running, expected_seconds, in_order, supervise
    from kharness.report.report import check_judging, told_report
    from kharness.runs.latest import shown
    from kharness.runs.lock import RunnerLock
    from monitoring.counts import counted

    judged = _judged(options)

    def check(plan: Plan) -> None:
        check_running(plan)
        check_judging(plan.directory, judged, planned=planned_content(plan))

    plan = prepare_matrix(
        _given(options, words),
        [parse_axis(text) for text in options.axis],
        _settings(options),
        check=check,
    )
    axes = " ".join(f"{axis.symbol.lower()}={','.join(axis.values)}" for axis in plan.axes)
    head = f"matrix: {counted(len(plan.cells), 'run')} ({axes})\n  in {shown(plan.directory)}"
    say("\n".join([head, *plan.note_lines()]))
    with RunnerLock(plan.directory):
        expected = expected_seconds(plan.launches, plan.directory.parent)
        return supervise(
            plan.directory,
            in_order(plan.launches, plan.settings, expected, order=plan.order),
            plan.settings,
            root=Path.cwd(),
            report=partial(told_report, given=judged),
            num_runs=len(plan.launches),
            expected=expected,
        )


def resume(options: argparse.Namespace, words: Sequence[str]) -> int:
    """Finish what was interrupted."""
    from kharness.matrix.planning.begin import refuse_unplanned
    from kharness.matrix.resume import continue_found
    from kharness.matrix.selected_runs import find
    from kharness.report.report import told_report
    from kharness.runs.files import LATEST
    from kharness.runs.lock import RunnerLock

    directory = options.directory
    if directory is None:
        directory = options.results / LATEST
        refuse_unplanned(directory)
    found = find(directory.resolve(), Path.cwd())
    with RunnerLock(found.directory):
        report = partial(told_report, given={})
        return continue_found(found, found.settings, root=Path.cwd(), report=report)


def report(options: argparse.Namespace, words: Sequence[str]) -> int:
    """Write the report of a run or a matrix again."""
    from kharness.config.output import say
    from kharness.report.report import told_report
    from kharness.runs.files import LATEST

    directory = (options.directory or options.results / LATEST).resolve()
    return told_report(directory, say, _judged(options))


def target(name: str, words: Sequence[str]) -> int:
    """Do what the make target of that name does, on the results in this folder."""
    script = (
        Path(__file__).resolve().parents[2] / "scripts" / f"{SCRIPTS.get(name, name).replace('-', '_')}.py"
    )
    if not script.is_file():
        raise MatrixError(f"kharness {name} needs a checkout", hint="run it in one: make help")
    named = iter(("A", "B") if name == "compare" else ("TARGET",) if name == "test-rerun" else ("RUN",))
    given = []
    for word in words:
        variable = "" if "=" in word else next(named, None)
        if variable is None:
            raise MatrixError(f"{word} is one name too many", hint=f"kharness {name} [NAME=value …]")
        given.append(f"{variable}={word}" if variable else word)
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, str(script), f"O={Path.cwd()}", *given])


def import_(options: argparse.Namespace, words: Sequence[str]) -> int:
    """Make a run of what another tracker has written."""
    from kharness.runs.latest import shown
    from monitoring.bridge.importing import import_run

    directory = options.results.absolute() / (options.name or options.source.resolve().stem)
    count = import_run(options.source, directory, project=Path.cwd().name or "runs")
    print(f"{count} records imported into {shown(directory)}")
    return 0


def _given(options: argparse.Namespace, words: Sequence[str]) -> Given:
    from kharness.matrix.commands.planned import Given
    from kharness.matrix.commands.template import Template

    environment = {}
    for pair in options.env:
        name, equals, value = pair.partition("=")
        if not equals or not name.isidentifier():
            raise MatrixError(f"-e {pair} is not NAME=value", hint="-e LR={lr}")
        environment[name] = value
    return Given(
        Template(words, environment),
        Path.cwd(),
        options.results.absolute(),
        project=options.project,
        follow=options.follow,
        patterns=options.pattern,
        trackers={name: {} for name in options.tracker},
    )


def _settings(options: argparse.Namespace) -> dict[str, Value]:
    asked = {
        "REPORT_BETTER": " ".join(options.better),
        "REPORT_METRIC": options.metric,
        "REPORT_BASELINE": options.baseline,
    }
    return {
        "MATRIX_JOBS": options.jobs,
        "MATRIX_TIMEOUT": options.timeout,
        "MATRIX_RETRIES": options.retries,
        "LAUNCHER": "local",
        "LAUNCHER_LOCAL_ZYGOTE": False,
        **{name: value for name, value in asked.items() if value},
    }


def _judged(options: argparse.Namespace) -> Mapping[str, str]:
    return {}


def _parser() -> argparse.ArgumentParser:
    parser = _Commands(prog="kharness", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=_Commands)
    for name, about in TARGETS.items():
        commands.add_parser(name, help=about)
    for name, call, takes in (
        ("run", run, _takes_command),
        ("matrix", matrix, _takes_matrix),
        ("import", import_, _takes_source),
        ("continue", resume, _takes_directory),
        ("report", report, _takes_directory),
    ):
        one = commands.add_parser(name, help=(call.__doc__ or "").splitlines()[0])
        one.set_defaults(call=call)
        one.add_argument("--results", type=Path, default=Path("results"), help="folder of run directories")
        takes(one)
    return parser


def _takes_source(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source", type=Path, help="a file or folder of W&B, TensorBoard, Trackio, MLflow, a .csv …"
    )
    parser.add_argument("--name", default="", help="of the run; default: the source's")


def _takes_directory(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", type=Path, nargs="?", help="a run or a matrix; default: the newest")


def _takes_command(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--project", default="", help="default: the name of this folder")
    parser.add_argument("-e", "--env", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--follow", action="append", default=[], metavar="PATH",
                        help="a file or folder that the program writes metrics into")  # fmt: skip
    parser.add_argument("--pattern", action="append", default=[], metavar="REGEX",
                        help="metrics in a line of output, one named group each")  # fmt: skip
    parser.add_argument("--tracker", action="append", default=[], help="deliver to wandb, trackio, …")


def _takes_matrix(parser: argparse.ArgumentParser) -> None:
    _takes_command(parser)
    parser.add_argument("-a", "--axis", action="append", default=[], metavar="NAME=V,V")
    parser.add_argument("--jobs", type=int, default=1, help="runs at once")
    parser.add_argument("--timeout", type=int, default=0, help="seconds per attempt; 0: none")
    parser.add_argument("--retries", type=int, default=1)
    parser.add_argument("--metric", default="", help="what decides")
    parser.add_argument("--better", action="append", default=[], metavar="METRIC=up|down")
    parser.add_argument("--baseline", default="", help="the variant that others are compared with")


def entry() -> NoReturn:
    """Run the command of this process."""
    run_command(main)
