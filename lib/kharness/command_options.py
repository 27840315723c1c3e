"""The options of the command `kharness`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from kharness.runs.budget import COUNTS
from kharness.runs.errors import MatrixError

Call = Callable[[argparse.Namespace, Sequence[str]], int]

# Options of `run`, `matrix` and `sweep`: kharness.toml has them all.
OF_RUN = (
    *("--detach", "--env", "--follow", "--hook", "--launcher", "--launcher-option", "--offline"),
    *("--pattern", "--project", "--render", "--resume-with", "--tracker"),
)
OF_MATRIX = (
    *("--axis", "--baseline", "--better", "--budget", "--jobs", "--keep-going", "--metric", "--retries"),
    "--timeout",
)
OF_SWEEP = ("--method", "--search-seed", "--trials")
OF_PROGRAMS = {
    "run": OF_RUN,
    "matrix": (*OF_RUN, *OF_MATRIX, "--exclude", "--include"),
    "sweep": (*OF_RUN, *OF_MATRIX, *OF_SWEEP),
}


class _Commands(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        raise MatrixError(message, hint=f"{self.prog} --help")


def command_parser(
    about: str, calls: Mapping[str, Call], targets: Mapping[str, str], asked: str
) -> argparse.ArgumentParser:
    """Return the parser of these commands; of the targets of make it knows the names alone, and of the
    commands but for the `asked` one too: to make all options takes longer than the rest.
    """
    parser = _Commands(prog="kharness", description=about, formatter_class=argparse.RawTextHelpFormatter)
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=_Commands)
    for name, text in targets.items():
        commands.add_parser(name, help=text)
    for name, call in calls.items():
        one = commands.add_parser(name, help=(call.__doc__ or "").splitlines()[0])
        one.set_defaults(call=call)
        one.add_argument("--results", type=Path, default=Path("results"), help="folder of run directories")
        if name == asked:
            _TAKES[name](one)
    return parser


def _takes_condition(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, nargs="?", help="default: results")
    parser.add_argument("where", nargs="*", metavar="CONDITION", help="model=gpt2 and lr>1e-4")
    parser.add_argument(
        "--columns", default="", metavar="NAME,NAME", help="options, last.METRIC, best.METRIC"
    )
    parser.add_argument("--sort", default="", metavar="NAME", help="by an option, best.METRIC, status …")
    parser.add_argument(
        "--best", action="store_true", help="best values of however many runs; reads all of each"
    )
    parser.add_argument("--json", action="store_true", help="a line of JSON a run, with all that is known")


def _takes_source(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source", type=Path, help="a file or folder of W&B, TensorBoard, Trackio, MLflow, a .csv …"
    )
    parser.add_argument("--name", default="", help="of the run; default: the source's")


def _takes_directory(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", type=Path, nargs="?", help="a run or a matrix; default: the newest")


def _takes_bundle(parser: argparse.ArgumentParser) -> None:
    _takes_directory(parser)
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="default: NAME.kharness.zip, here")
    parser.add_argument("--weights", action="store_true", help="with checkpoints and weights")


def _takes_command(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--project", default="", help="default: the name of this folder")
    parser.add_argument("-e", "--env", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--follow", action="append", default=[], metavar="PATH",
                        help="a file or folder that the program writes metrics into")  # fmt: skip
    parser.add_argument("--pattern", action="append", default=[], metavar="REGEX",
                        help="metrics in a line of output, one named group each")  # fmt: skip
    parser.add_argument("--tracker", action="append", default=[], help="deliver to wandb, trackio, …")
    parser.add_argument("--render", type=Path, action="append", default=[], metavar="FILE",
                        help="a file with placeholders: each run has a copy, {NAME} is its path")  # fmt: skip
    parser.add_argument("--resume-with", default="", metavar="WORDS",
                        help="of later attempts: '--resume {run_dir}/ckpt.pt'")  # fmt: skip
    parser.add_argument("--offline", action="store_true", help="W&B keeps the program's runs on this disk")
    parser.add_argument("--hook", action="store_true",
                        help="record calls of wandb, trackio and others in the program")  # fmt: skip
    parser.add_argument("--launcher", default="local", metavar="NAME", help="slurm: each run is a job of it")
    parser.add_argument("--launcher-option", action="append", default=[], metavar="NAME=VALUE",
                        help="partition=gpu, time_limit=2:00:00 …")  # fmt: skip
    parser.add_argument("--detach", action="store_true", help="leave once a cluster has all of it")
    parser.add_argument("--dry-run", action="store_true", help="print the commands, run and write nothing")


def _takes_matrix(parser: argparse.ArgumentParser) -> None:
    _takes_command(parser)
    parser.add_argument("-a", "--axis", action="append", default=[], metavar="NAME=V,V")
    _takes_running(parser, "1, in a queue all", "none", "1")
    _takes_judging(parser)


def _takes_running(parser: argparse.ArgumentParser, jobs: str, timeout: str, retries: str) -> None:
    parser.add_argument("--jobs", type=_whole, help=f"runs at once, 0 for as many as fit; default: {jobs}")
    parser.add_argument("--timeout", type=_whole, help=f"seconds per attempt, 0 for none; default: {timeout}")
    parser.add_argument("--retries", type=_whole, help=f"after a kill or a lost device; default: {retries}")
    parser.add_argument("--keep-going", action="store_true",
                        help="start all, also where the first ones fail alike")  # fmt: skip


def _takes_judging(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--metric", default="", help="what decides")
    parser.add_argument("--better", action="append", default=[], metavar="METRIC=up|down")
    parser.add_argument("--baseline", default="", help="the variant that others are compared with")
    parser.add_argument(
        "--budget", choices=("auto", *COUNTS, "time"), default="", help="what is equal of all"
    )


def _takes_directories(parser: argparse.ArgumentParser) -> None:
    _takes_directory(parser)
    _takes_judging(parser)
    parser.add_argument(
        "other", nargs="?", metavar="B", help="compare it with the first, on a page in its directory"
    )


def _takes_more_seeds(parser: argparse.ArgumentParser) -> None:
    _takes_directory(parser)
    parser.add_argument("-a", "--axis", action="append", default=[], metavar="seed=V,V",
                        help="add seeds to a matrix: seed=1..10 keeps those that it has")  # fmt: skip
    _takes_running(parser, *("as it began",) * 3)


def _takes_note(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", type=Path, metavar="RUN")
    parser.add_argument("-m", "--message", metavar="TEXT", help="the note; '' takes it away")
    parser.add_argument("--tag", action="append", default=[], metavar="TAG")
    parser.add_argument("--untag", action="append", default=[], metavar="TAG")


def _takes_grid(parser: argparse.ArgumentParser) -> None:
    _takes_matrix(parser)
    parser.add_argument("--include", action="append", default=[], metavar="'NAME=V NAME=V'",
                        help="further runs; an axis that it does not name has all its values")  # fmt: skip
    parser.add_argument("--exclude", action="append", default=[], metavar="'NAME=V NAME=V'",
                        help="combinations that are left out")  # fmt: skip


def _takes_sweep(parser: argparse.ArgumentParser) -> None:
    _takes_matrix(parser)
    parser.add_argument("--method", choices=("grid", "random", "tpe"), default="",
                        help="default: tpe where a range has no grid, else grid")  # fmt: skip
    parser.add_argument("--trials", type=_count, default=20, help="of a search")
    parser.add_argument("--search-seed", type=int, default=0, help="of the search itself")


def _whole(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text} is no number from 0 on")
    return int(text)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is no number of trials")
    return int(text)


_TAKES: Mapping[str, Callable[[argparse.ArgumentParser], None]] = {
    "run": _takes_command,
    "matrix": _takes_grid,
    "sweep": _takes_sweep,
    "ls": _takes_condition,
    "bundle": _takes_bundle,
    "import": _takes_source,
    "note": _takes_note,
    "continue": _takes_more_seeds,
    "report": _takes_directories,
}
