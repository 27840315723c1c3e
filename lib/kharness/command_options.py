"""The options of the command `kharness`, and what its help says."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn

from kharness.runs.errors import MatrixError

Call = Callable[[argparse.Namespace, Sequence[str]], int]

# Options of `run`, `matrix` and `sweep`: kharness.toml has them all.
OF_RUN = (
    *("--detach", "--env", "--follow", "--gpu-monitor", "--hook", "--launcher", "--launcher-option"),
    *("--machine-monitor", "--offline", "--pattern", "--project", "--render", "--resume-with", "--tracker"),
)
OF_DECIDING = ("--better", "--metric")
OF_MATRIX = (
    *OF_DECIDING,
    *("--axis", "--baseline", "--budget", "--early-stopping", "--gpus-per-cell", "--jobs", "--keep-going"),
    *("--quarantine", "--retries", "--timeout"),
)
MOST_TRIALS = 100_000
MOST_DIGITS = 9
# Targets of make that judge.
JUDGES = ("compare", "summary")
OF_SWEEP = ("--method", "--search-seed", "--trials")
OF_PROGRAMS = {
    "run": (*OF_RUN, *OF_DECIDING),
    "matrix": (*OF_RUN, *OF_MATRIX, "--exclude", "--include", "--no-graphs"),
    "sweep": (*OF_RUN, *OF_MATRIX, *OF_SWEEP),
}


class _Commands(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        raise MatrixError(message, hint=f"{self.prog} --help")


# One that looks for the terminal's width is made for each option.
_UNSEEN = partial(argparse.HelpFormatter, width=80)


def command_parser(
    about: str, calls: Mapping[str, Call], targets: Mapping[str, str], asked: str, *, has_help: bool = True
) -> argparse.ArgumentParser:
    """Return the parser of these commands; of the targets of make it knows the names alone.

    Of an `asked` command it has that one, for help only if it `has_help`: a program waits for it, and all of
    them take longer than the rest.
    """
    texts = {name: (call.__doc__ or "").splitlines()[0] for name, call in calls.items()}
    told = {**{name: f"{text[0].lower()}{text[1:-1]}" for name, text in texts.items()}, **targets}
    parser = _Commands(
        prog="kharness",
        usage="kharness COMMAND …, kharness COMMAND --help",
        description=about,
        epilog=None if asked in calls else _table("commands:", told),
        formatter_class=argparse.RawDescriptionHelpFormatter if has_help else _UNSEEN,
    )
    commands = parser.add_subparsers(
        required=True, prog="kharness", metavar="COMMAND", help=argparse.SUPPRESS, parser_class=_Commands
    )
    for name in () if asked in calls else targets:
        commands.add_parser(name)
    for name, call in ({asked: calls[asked]} if asked in calls else calls).items():
        usage = f"kharness {name} [options] -- PROGRAM …" if name in OF_PROGRAMS else None
        formatter = argparse.HelpFormatter if has_help else _UNSEEN
        one = commands.add_parser(name, description=texts[name], usage=usage, formatter_class=formatter)
        one.set_defaults(call=call)
        one.add_argument("--results", type=Path, default=Path("results"), metavar="DIR",
                         help="folder of run directories")  # fmt: skip
        if name == asked:
            _TAKES[name](one)
    return parser


def _table(title: str, rows: Mapping[str, str]) -> str:
    """Return the names with their texts beside them; argparse puts the text of a long name below it."""
    import shutil
    import textwrap

    columns, width = shutil.get_terminal_size().columns - 2, max(map(len, rows))
    lines = [
        textwrap.fill(f"{name:{width}}  {text}", columns, initial_indent="  ",
                      subsequent_indent=" " * (width + 4), break_on_hyphens=False)
        for name, text in rows.items()
    ]  # fmt: skip
    return "\n".join([title, *lines])


def places_of(name: str) -> Sequence[str]:
    """Return the variables of a target of make that are given without their names."""
    return {"compare": ("A", "B"), "test-rerun": ("TARGET",)}.get(name, ("RUN",))


def judging_options(name: str, words: Sequence[str]) -> tuple[argparse.Namespace | None, list[str]]:
    """Return the options by which a target of make judges, None for others, and the words that are none."""
    if name not in JUDGES:
        return None, list(words)
    parser = _Commands(prog=f"kharness {name}", add_help=False, allow_abbrev=False)
    _takes_judging(parser)
    return parser.parse_known_args(words)


def target_help(name: str, about: str, variables: Sequence[str], columns: int) -> str:
    """Return the help of a target of make that reads `variables`; `about` is the docstring of its script,
    which begins with how to call that.
    """
    import textwrap

    places = places_of(name)
    words = [place if name == "compare" else f"[{place}]" for place in places]
    if name in JUDGES:
        words += ["[--metric NAME]", "[--better METRIC=up|down]", "[--baseline NAME]", "[--budget UNIT]"]
    words += [f"[{variable}]" for variable in variables if variable.partition("=")[0] not in places]
    first, *rest = (" ".join(part.split()) for part in about.split("\n\n"))
    sentence = re.split(r"\.$|: \w+\.py| \(`make", first)[0]
    if "RUN" in places and "RUN" not in " ".join(rest):
        rest.insert(0, "RUN is a run or a matrix; without it the newest.")
    usage = " ".join([f"usage: kharness {name}", *words])
    wrapped = textwrap.TextWrapper(columns, break_long_words=False, break_on_hyphens=False)
    parts = [wrapped.fill(part) for part in (f"{sentence}.", *rest)]
    wrapped.subsequent_indent = " " * len("usage: ")
    return "\n\n".join([wrapped.fill(usage), *parts])


def _takes_condition(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, nargs="?", help="default: results")
    parser.add_argument("where", nargs="*", metavar="CONDITION", help="model=gpt2 and lr>1e-4")
    parser.add_argument(
        "--columns", default="", metavar="NAME,NAME", help="options, last.METRIC, best.METRIC"
    )
    parser.add_argument("--sort", default="", metavar="NAME", help="by an option, best.METRIC, status …")
    parser.add_argument("--reverse", action="store_true", help="with --sort, the highest first")
    parser.add_argument(
        "--best", action="store_true", help="best values of however many runs; reads all of each"
    )
    parser.add_argument("--json", action="store_true", help="a line of JSON a run, with all that is known")


def _takes_source(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source", type=Path, help="a file or folder of W&B, TensorBoard, Trackio, MLflow, a .csv …"
    )
    parser.add_argument("--name", default="", help="of the run; default: the source's")


def _several(parser: argparse.ArgumentParser, *flags: str, metavar: str, help: str) -> None:
    """Add an option that may be given several times."""
    parser.add_argument(*flags, action="append", default=[], metavar=metavar, help=help)


def _takes_directory(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", type=Path, nargs="?", metavar="RUN",
                        help="a run or a matrix; default: the newest")  # fmt: skip


def _takes_bundle(parser: argparse.ArgumentParser) -> None:
    _takes_directory(parser)
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="default: NAME.kharness.zip, here")
    parser.add_argument("--weights", action="store_true", help="with checkpoints and weights")


def _takes_command(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--project", default="", metavar="NAME", help="default: the name of this folder")
    _several(parser, "-e", "--env", metavar="NAME=VALUE",
             help="an environment variable of the program; {lr} is filled in")  # fmt: skip
    _several(parser, "--follow", metavar="PATH", help="a file or folder that the program writes metrics into")
    _several(parser, "--pattern", metavar="REGEX", help="metrics in a line of output, one named group each")
    _several(parser, "--tracker", metavar="NAME", help="deliver to wandb, trackio, …")
    parser.add_argument("--render", type=Path, action="append", default=[], metavar="FILE",
                        help="a file with placeholders: each run has a copy, {NAME} is its path")  # fmt: skip
    parser.add_argument("--resume-with", default="", metavar="WORDS",
                        help="words of later attempts alone: '--resume {run_dir}/ckpt.pt'")  # fmt: skip
    parser.add_argument("--offline", action="store_true", help="W&B keeps the program's runs on this disk")
    parser.add_argument("--hook", action="store_true",
                        help="record calls of wandb, trackio and others in the program")  # fmt: skip
    parser.add_argument("--gpu-monitor", action="store_true", help="sample GPUs and the machine meanwhile")
    parser.add_argument("--machine-monitor", action="store_true", help="sample the machine alone")
    parser.add_argument("--launcher", default="local", metavar="NAME", help="slurm: each run is a job of it")
    _several(parser, "--launcher-option", metavar="NAME=VALUE", help="partition=gpu, time_limit=2:00:00 …")
    parser.add_argument("--detach", action="store_true", help="leave once a cluster has all of it")
    parser.add_argument("--dry-run", action="store_true", help="print the commands, run and write nothing")


def _takes_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--name", default="", help="of the run, and of its directory; default: the program's and the time"
    )
    _takes_command(parser)
    _takes_deciding(parser)
    parser.set_defaults(baseline="", budget="")


def _takes_matrix(parser: argparse.ArgumentParser) -> None:
    _takes_command(parser)
    _several(parser, "-a", "--axis", metavar="NAME=V,V",
             help="an axis and its values; {NAME} in the command stands for one")  # fmt: skip
    _takes_running(parser, "1, or all of a cluster's queue", "none", "1", "its own choice")
    _takes_judging(parser)


def _takes_running(parser: argparse.ArgumentParser, jobs: str, timeout: str, retries: str, gpus: str) -> None:
    parser.add_argument("--jobs", type=_whole, metavar="N",
                        help=f"runs at once, 0 for as many as fit; default: {jobs}")  # fmt: skip
    parser.add_argument("--timeout", type=_whole, metavar="S",
                        help=f"seconds per attempt, 0 for none; default: {timeout}")  # fmt: skip
    parser.add_argument("--retries", type=_whole, metavar="N",
                        help=f"after a kill or a lost device; default: {retries}")  # fmt: skip
    parser.add_argument("--gpus-per-cell", type=_whole, metavar="N",
                        help=f"GPUs of a run, in CUDA_VISIBLE_DEVICES; default: {gpus}")  # fmt: skip
    parser.add_argument("--keep-going", action="store_true",
                        help="start all, also where the first ones fail alike")  # fmt: skip
    parser.add_argument("--early-stopping", type=_count, nargs="?", const=1, metavar="N",
                        help="stop runs that lose by --metric or val_loss, from validation N on")  # fmt: skip
    parser.add_argument("--quarantine", default="", metavar="FILE",
                        help="names of runs that are known to fail, each with # and why")  # fmt: skip


def _takes_deciding(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--metric", default="", metavar="NAME", help="what decides")
    _several(parser, "--better", metavar="METRIC=up|down", help="which way a metric of your own is better")


def _takes_judging(parser: argparse.ArgumentParser) -> None:
    from kharness.runs.budget import COUNTS  # a single run has none of it

    _takes_deciding(parser)
    parser.add_argument("--baseline", default="", metavar="NAME",
                        help="the variant that others are compared with; default: the first")  # fmt: skip
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
    _several(parser, "-a", "--axis", metavar="seed=V,V",
             help="add seeds to a matrix: seed=1..10 keeps those that it has")  # fmt: skip
    _takes_running(parser, *("as it began",) * 4)


def _takes_note(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", type=Path, metavar="RUN")
    parser.add_argument("-m", "--message", metavar="TEXT", help="the note; '' takes it away")
    _several(parser, "--tag", metavar="TAG", help="give it this tag")
    _several(parser, "--untag", metavar="TAG", help="take this tag away")


def _takes_grid(parser: argparse.ArgumentParser) -> None:
    _takes_matrix(parser)
    parser.add_argument(
        "--no-graphs", action="store_true", help="draw no graphs; kharness graphs draws them later"
    )
    _several(parser, "--include", metavar="'NAME=V NAME=V'",
             help="further runs; an axis that it does not name has all its values")  # fmt: skip
    _several(parser, "--exclude", metavar="'NAME=V NAME=V'", help="combinations that are left out")


def _takes_sweep(parser: argparse.ArgumentParser) -> None:
    _takes_matrix(parser)
    parser.add_argument("--method", choices=("grid", "random", "tpe"), default="",
                        help="default: tpe where a range has no grid, else grid")  # fmt: skip
    parser.add_argument("--trials", type=_trials, default=20, metavar="N", help="of a search; default: 20")
    parser.add_argument("--search-seed", type=int, default=0, metavar="N", help="of the search itself")


def _whole(text: str) -> int:
    if not text.isdecimal() or len(text) > MOST_DIGITS:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 0 on")
    return int(text)


def _count(text: str) -> int:
    if not text.isdecimal() or len(text) > MOST_DIGITS or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 1 on")
    return int(text)


def _trials(text: str) -> int:
    if (count := _count(text)) > MOST_TRIALS:
        raise argparse.ArgumentTypeError(f"{text} is more than {MOST_TRIALS}")
    return count


_TAKES: Mapping[str, Callable[[argparse.ArgumentParser], None]] = {
    "run": _takes_run,
    "matrix": _takes_grid,
    "sweep": _takes_sweep,
    "ls": _takes_condition,
    "bundle": _takes_bundle,
    "import": _takes_source,
    "note": _takes_note,
    "continue": _takes_more_seeds,
    "report": _takes_directories,
}
