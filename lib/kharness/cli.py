"""Run any program, train it in all combinations, continue, compare.

    kharness run -- python train.py --lr 3e-4
    kharness matrix -a lr=1e-3,3e-4 -a seed=1..5 -- \\
        python train.py --lr {lr} --seed {seed}
    kharness continue

Words after `--` are the program's, letter for letter.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from kharness.command_options import (
    JUDGES,
    OF_PROGRAMS,
    command_parser,
    judging_options,
    places_of,
    target_help,
)
from kharness.config.errors import run_command
from kharness.config.make.typed import FRONT, use_kharness
from kharness.runs.bundle import opened
from kharness.runs.errors import MatrixError
from kharness.runs.files import GRAPHS
from monitoring.errors import UserError, folded, naming_package

if TYPE_CHECKING:  # each command imports what it needs: `kharness --help` is there at once
    from kharness.runs.launch import Launch


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

KHARNESS_TOML = "kharness.toml"
CHECKOUT = Path(__file__).resolve().parents[2]

# Columns of `kharness ls` where nothing says how many there are: in a pipe, or a log.
WIDTH_OF_A_LOG = 120

# Targets whose script has another name.
SCRIPTS = {"watch": "gputop"}


def main(argv: Sequence[str]) -> int:
    """Return the exit code of the program, or of the matrix: 3 if a run of it is not complete."""
    given = list(argv)
    if given and given[0] in TARGETS:
        return about(given[0]) if {"-h", "--help"} & {*given} else target(given[0], given[1:])
    if given and given[0] not in CALLS and not given[0].startswith("-"):
        if given[0] not in make_targets():
            raise _no_command(given)
        make(given)
    if not (given and given[0] in OF_PROGRAMS and os.path.exists(KHARNESS_TOML)):
        return _call(given)
    from kharness.toml_file import read_toml, said_of_file, without_given

    options, words = _split(given)
    known, command = read_toml(Path(KHARNESS_TOML))
    known = without_given(known, options[1:], takes=OF_PROGRAMS[options[0]])
    try:
        return _call([options[0], *known, *options[1:], "--", *(words or command)])
    except UserError as error:
        error.args = (said_of_file(error.message, known, KHARNESS_TOML),)
        raise


def _split(given: Sequence[str]) -> tuple[list[str], list[str]]:
    place = given.index("--") if "--" in given else len(given)
    return list(given[:place]), list(given[place + 1 :])


def _call(given: Sequence[str]) -> int:
    options, words = parsed(given)
    call: Callable[[argparse.Namespace, Sequence[str]], int] = options.call
    with naming_package(f"kharness {given[0]}"):
        return call(options, words)


def parsed(given: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Return the options and the words after `--`. MatrixError for what is not an option."""
    options, words = _split(given)
    if "--early-stopping" in options[:-1]:  # whose number may be missing
        place = options.index("--early-stopping")
        if not options[place + 1].isdecimal():
            options[place] = "--early-stopping=1"
    if "--resume-with" in options[:-1]:  # whose words begin with dashes, as those of no option else
        place = options.index("--resume-with")
        options[place : place + 2] = [f"--resume-with={options[place + 1]}"]
    has_help = bool({"-h", "--help"}.intersection(options))
    parser = command_parser(__doc__, CALLS, TARGETS, "".join(options[:1]), has_help=has_help)
    found, unknown = parser.parse_known_args(options)
    if unknown:
        raise _unrecognized(options, unknown, has_command=bool(words))
    return found, words


def _no_command(given: Sequence[str]) -> MatrixError:
    """Return the error for a first word that is no command: a misspelled one, or that of a program."""
    from kharness.config.refused import did_you_mean
    from monitoring.bridge.interpreter import found_program

    near = did_you_mean(given[0], [*CALLS, *TARGETS, *make_targets()])
    is_program = os.path.exists(given[0]) or found_program(given[0], Path(), os.environ)
    hint = f"kharness run -- {_as_typed(given)}" if is_program and not near else near
    return MatrixError(f"unknown command {given[0]!r}", hint=hint or "kharness --help")


def _unrecognized(options: Sequence[str], unknown: Sequence[str], *, has_command: bool) -> MatrixError:
    """Return the error for words that are no option: most likely a program without `--` before it."""
    hint = f"kharness {options[0]} --help"
    if options[0] in OF_PROGRAMS and not has_command and not unknown[0].startswith("-"):
        place = options.index(unknown[0])
        hint = f"-- before the program: kharness {_as_typed(options[:place])} -- {_as_typed(options[place:])}"
    return MatrixError(f"unrecognized arguments: {' '.join(unknown)}", hint=hint)


def _as_typed(words: Sequence[str]) -> str:
    """Return words as a shell takes them, placeholders without quotes."""
    return " ".join(word if re.fullmatch(r"[\w@%+=:,./{}-]+", word) else shlex.quote(word) for word in words)


def run(options: argparse.Namespace, words: Sequence[str]) -> int:
    """Run a program once, recorded."""
    from kharness.matrix.commands.command_line import given_of, judging_of, settings_of_job
    from kharness.matrix.commands.early import EarlyBridge

    settings = settings_of_job(options)
    bridge = None if options.dry_run or settings else EarlyBridge()
    from kharness.matrix.commands.given import prepare_run, preview_run
    from kharness.runs.latest import shown
    from kharness.runs.lock import RunnerLock

    given = given_of(options, words, settings, judging_of(options))
    if options.dry_run:
        return dry_run(preview_run(given))
    if bridge is None:
        from kharness.matrix.commands.planned import launcher_words, prepare_job
        from kharness.matrix.supervise_single import next_lines, supervise_single

        launch = prepare_job(given)
        print(f"run: {shown(launch.directory)}", flush=True)
        with RunnerLock(launch.directory):
            told = partial(next_lines, launch, None, launcher_words(settings))
            return supervise_single(launch, root=Path.cwd(), settings=settings, complete=told)
    launch = prepare_run(given, durable=False)  # the program would wait for the disk
    print(f"run: {shown(launch.directory)}", flush=True)
    from kharness.matrix.running.signals import Signals

    with RunnerLock(launch.directory), Signals() as signals:
        status = bridge.begin(launch)
        from kharness.config.output import say
        from kharness.matrix.commands.forked import LocalForked  # the program starts, and waits for nothing
        from kharness.matrix.launchers import Guarded
        from kharness.matrix.supervise_single import next_lines, supervise_single
        from monitoring.journal.atomic_file import sync_folder

        sync_folder(launch.directory.parent)
        return supervise_single(
            launch,
            root=Path.cwd(),
            adopted=status,
            launcher=Guarded(LocalForked(bridge), say),
            signals=signals,
            complete=lambda: next_lines(launch, None),
        )


def matrix(options: argparse.Namespace, words: Sequence[str]) -> int:
    """Run a program for every combination of the axes, then compare."""
    from kharness.config.output import say
    from kharness.matrix.commands.axes import parse_axis
    from kharness.matrix.commands.command_line import given_of, settings_of
    from kharness.matrix.commands.planned import prepare_matrix
    from kharness.matrix.planning.matrix_json import Plan, planned_content
    from kharness.matrix.supervise import check_running, supervise_matrix
    from kharness.report.judging.baseline import baseline_line
    from kharness.report.report import check_judging, told_report
    from kharness.report.summary import Summary
    from kharness.runs.latest import shown
    from monitoring.counts import counted

    judged: list[Summary] = []

    def check(plan: Plan) -> None:
        check_running(plan)
        judged.append(check_judging(plan.directory, {}, planned=planned_content(plan)))

    plan = prepare_matrix(
        given_of(options, words),
        [parse_axis(text) for text in options.axis],
        settings_of(options),
        check=check,
        write=not options.dry_run,
    )
    if options.dry_run:
        return dry_run(plan.launches, plan.note_lines())
    axes = " ".join(f"{axis.symbol.lower()}={','.join(axis.values)}" for axis in plan.axes)
    head = f"matrix: {counted(len(plan.cells), 'run')} ({axes})\n  in {shown(plan.directory)}"
    baseline = baseline_line(judged[-1])
    say("\n".join([head, *[f"  {baseline}"] * bool(baseline), *plan.note_lines()]))
    return supervise_matrix(plan, root=Path.cwd(), report=partial(told_report, given={}))


def sweep(options: argparse.Namespace, words: Sequence[str]) -> int:
    """Run a program over ranges of its options, the best first in the end."""
    from kharness.config.output import say
    from kharness.matrix.commands.command_line import given_of, settings_of
    from kharness.matrix.commands.sweep import CommandSpace, parse_range, prepare_sweep, searched
    from kharness.matrix.supervise import check_running, supervise_sweep
    from kharness.matrix.sweep.sweep import opening

    ranges = [parse_range(text) for text in options.axis]
    settings = {
        **settings_of(options),
        "SWEEP_METHOD": options.method or ("tpe" if searched(ranges) else "grid"),
        "SWEEP_METRIC": options.metric or "val_loss",
        "SWEEP_TRIALS": options.trials,
        "SWEEP_SEED": options.search_seed,
    }
    given = given_of(options, words)
    plan = prepare_sweep(given, ranges, settings, check=check_running, write=not options.dry_run)
    if options.dry_run:
        say("\n".join(opening(plan)[:1]))
        return dry_run(plan.launches)
    say("\n".join(opening(plan)))
    return supervise_sweep(plan, partial(CommandSpace.of, plan), root=Path.cwd())


def resume(options: argparse.Namespace, words: Sequence[str]) -> int:
    """Finish what was interrupted, or add seeds to a matrix."""
    from kharness.matrix.commands.command_line import early_stopping_of, running_of
    from kharness.matrix.more_seeds import asked_in, with_more_seeds
    from kharness.matrix.planning.begin import refuse_unplanned
    from kharness.matrix.planning.plan import quarantine_entries
    from kharness.matrix.resume import continue_found
    from kharness.matrix.selected_runs import find, locate
    from kharness.matrix.sweep.sweep import replace_quarantine
    from kharness.report.report import told_report
    from kharness.runs.files import LATEST
    from kharness.runs.latest import shown
    from kharness.runs.lock import RunnerLock

    directory = options.directory
    if directory is None:
        directory = options.results / LATEST
        refuse_unplanned(directory)
    directory = opened(directory).resolve()
    seeds = asked_in(options.axis, locate(directory)) if options.axis else []
    found = find(directory, Path.cwd())
    if (options.early_stopping or options.quarantine) and not found.is_matrix:
        raise MatrixError(
            f"{shown(directory)} is a single run, which loses against none and has no known failures",
            hint="--early-stopping and --quarantine are of a matrix or a sweep",
        )
    known_failures = quarantine_entries(Path.cwd(), options.quarantine, "--quarantine")
    with RunnerLock(found.directory):
        report = partial(told_report, given={})
        # whoever continues watches on
        typed = running_of(options, is_program="template" in found.code)
        metric = found.settings.get("SWEEP_METRIC") or found.settings.get("REPORT_METRIC")
        settings = {
            **found.settings,
            "MATRIX_DETACH": False,
            **typed,
            **early_stopping_of(options, metric),
        }
        if seeds:
            with_more_seeds(found.directory, seeds, Path.cwd(), settings)
        if options.quarantine:
            replace_quarantine(found.directory, os.path.abspath(options.quarantine), known_failures)
        if seeds or options.quarantine:
            found = find(directory, Path.cwd())
        return continue_found(found, settings, root=Path.cwd(), report=report)


def report(options: argparse.Namespace, words: Sequence[str]) -> int:
    """Write the report of a run or a matrix again, or the page that compares two of them."""
    from kharness.config.output import say
    from kharness.matrix.commands.command_line import judging_of
    from kharness.report.compare_page import write_comparison
    from kharness.report.report import told_report
    from kharness.runs.latest import shown

    given = {f"CONFIG_{name}": value for name, value in judging_of(options).items()}
    if options.other:
        say(shown(write_comparison(str(options.directory), options.other, given)))
        return 0
    return told_report(_asked(options), say, given, of_sweep=_told_leaderboard)


def _told_leaderboard(directory: Path, say: Callable[[str], None]) -> int:
    from kharness.matrix.sweep.leaderboard import told_leaderboard  # reports of other runs do not wait for it

    return told_leaderboard(directory, say)


def _asked(options: argparse.Namespace) -> Path:
    """Return the run or matrix that was named, else the newest."""
    from kharness.runs.latest import asked_directory

    named = {"RUN": str(options.directory)} if options.directory else {}
    return asked_directory({**named, "CONFIG_RESULTS_DIR": str(options.results)}, Path.cwd())


def about(name: str) -> int:
    """Print the options and variables of a target."""
    import ast  # programs do not wait for it
    import shutil

    from kharness.config.make.known_variables import SHORT, TARGETS, YES_OR_NO

    # make has one name with an underscore, commands have dashes
    reads = TARGETS[name if name in TARGETS else name.replace("-", "_")]
    short = [word for word, symbol in SHORT.items() if name not in JUDGES and reads.symbol(symbol)]
    words = [f"{word}={'y' if word in YES_OR_NO else '…'}" for word in dict.fromkeys((*reads.names, *short))]
    text = ast.get_docstring(ast.parse(_script(name).read_text(encoding="utf-8"))) or ""
    print(target_help(name, text, words, shutil.get_terminal_size().columns - 2))
    return 0


def _script(name: str) -> Path:
    script = CHECKOUT / "scripts" / f"{SCRIPTS.get(name, name).replace('-', '_')}.py"
    if not script.is_file() and name != "reproduce":
        raise MatrixError(f"kharness {name} needs a checkout", hint="run it in one: make help")
    return script


def target(name: str, words: Sequence[str]) -> int:
    """Do what the make target of that name does, on the results in this folder."""
    from kharness.matrix.commands.command_line import judging_of

    script = _script(name)
    named = iter(places_of(name))
    options, words = judging_options(name, words)
    given = [f"CONFIG_{symbol}={value}" for symbol, value in judging_of(options).items()] if options else []
    for word in words:
        # results/latest:lr=0.1 is a place
        is_variable = "=" in word and word.partition("=")[0].isidentifier()
        if word.startswith("-"):
            raise MatrixError(f"unrecognized argument: {word}", hint=f"kharness {name} --help")
        variable = "" if is_variable else next(named, None)
        if variable is None:
            raise MatrixError(f"{word} is one name too many", hint=f"kharness {name} --help")
        given.append(f"{variable}={word}" if variable else word)
    if script.is_file():
        sys.stdout.flush()
        environment = {**os.environ, FRONT: "kharness"}
        os.execve(sys.executable, [sys.executable, str(script), *_folder(given), *given], environment)
    from kharness.matrix.commands.reproduce import reproduce_asked  # of a program, which needs no checkout

    return reproduce_asked(given)


def make_targets() -> list[str]:
    """Return the targets of the Makefile; none outside of a checkout."""
    try:
        text = (CHECKOUT / "Makefile").read_text(encoding="utf-8")
    except OSError:
        return []
    lines = re.findall(r"^([a-z][a-z0-9_ -]*):(?!=).*##", text, re.MULTILINE)
    return [name for line in lines for name in line.split()]


def make(words: Sequence[str]) -> NoReturn:
    """Make a target of the checkout, on the configuration and the results in this folder."""
    command = ["make", "--no-print-directory", "-C", str(CHECKOUT), *words]
    if Path.cwd() != CHECKOUT:
        command += _folder(words)
    try:
        os.execvp("make", command)
    except OSError as error:
        raise MatrixError(f"make cannot be run: {error.strerror}", hint="install make") from error


def _folder(words: Sequence[str]) -> list[str]:
    """Have a target use the configuration and the results of this folder; with M=DIR it uses those of DIR."""
    return [] if any(word.startswith("M=") for word in words) else [f"O={Path.cwd()}"]


def import_(options: argparse.Namespace, words: Sequence[str]) -> int:
    """Import the metrics another tracker has stored as a new run."""
    from kharness.matrix.commands.command_line import checked_name
    from kharness.runs.latest import shown
    from monitoring.bridge.importing import import_run, place_for
    from monitoring.counts import counted

    results, name = options.results.absolute(), checked_name(options.name)
    directory = results / name if name else place_for(options.source, results)
    count = import_run(options.source, directory, project=Path.cwd().name or "runs")
    print(f"{counted(count, 'record')} imported into {shown(directory)}")
    return 0


def bundle(options: argparse.Namespace, words: Sequence[str]) -> int:
    """Write a run or a matrix into one archive."""
    from kharness.config.output import say
    from kharness.runs.bundle.archive import write_bundle
    from kharness.runs.latest import shown
    from monitoring.counts import counted

    written = write_bundle(_asked(options), options.output, weights=options.weights)
    left = f"; without {counted(written.left_out, 'file')} of weights (--weights)" if written.left_out else ""
    say(f"{shown(written.path)}: {counted(written.files, 'file')}, {written.bytes / 1e6:.1f} MB{left}")
    return 0


def note(options: argparse.Namespace, words: Sequence[str]) -> int:
    """Give a run tags and a note, which ls, conditions and the page know."""
    from kharness.config.output import say
    from kharness.runs.latest import asked_directory, shown
    from monitoring.notes import changed, read_notes, write_notes

    directory = asked_directory({"RUN": str(options.directory)}, Path.cwd())
    notes = read_notes(directory)
    kept = changed(notes, add=options.tag, remove=options.untag, text=options.message)
    write_notes(directory, kept)
    say(f"{shown(directory)}: {', '.join(kept.tags) or 'no tag'}{f'; {kept.text}' if kept.text else ''}")
    return 0


def ls(options: argparse.Namespace, words: Sequence[str]) -> int:
    """List the runs below a folder, and those that fulfill a condition."""
    import shutil

    from kharness.config.output import say
    from kharness.runs.query.listing import Listing, in_order, json_lines
    from kharness.runs.query.selection import select
    from monitoring.where import parse_where

    folder, where = options.folder or options.results, list(options.where)
    if options.folder is not None and not folder.exists() and set("<>=~ ") & set(str(folder)):
        # A condition comes first: then the folder comes last, or it is a condition alone.
        last = where.pop() if where and Path(where[-1]).is_dir() else options.results
        folder, where = Path(last), [str(folder), *where]
    condition = " ".join(where)
    found = select(folder, where=condition)
    if options.sort:
        found = in_order(found, options.sort, reverse=options.reverse)
    if options.json:
        for line in json_lines(found, best=options.best):
            say(line)
        return 0
    width = shutil.get_terminal_size((WIDTH_OF_A_LOG, 0)).columns
    columns = [name.strip() for name in options.columns.split(",") if name.strip()]
    asked = {*parse_where(condition).fields, *filter(None, [options.sort])}
    *table, last = Listing(found, columns, width, options.best, asked).lines()
    say("\n".join([*table, *folded(last, width)]))
    return 0


def dry_run(launches: Sequence[Launch], notes: Sequence[str] = ()) -> int:
    """Print what would be run."""
    from kharness.config.output import say

    width = max((len(launch.name) for launch in launches), default=0)
    rows = [f"  {launch.name:{width}}  {launch.command_line}" for launch in launches]
    say("\n".join([*rows, *notes, "nothing was started or written"]))
    return 0


CALLS = {
    "run": run,
    "matrix": matrix,
    "sweep": sweep,
    "continue": resume,
    "report": report,
    "ls": ls,
    "note": note,
    "import": import_,
    "bundle": bundle,
}


def entry() -> NoReturn:
    """Run the command of this process."""
    use_kharness()
    run_command(main)
