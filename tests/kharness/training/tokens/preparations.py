"""Prepares the tokens of a text in forks of one process, and ends most of them by SIGKILL or by a full disk.

    python preparations.py MODE TEXT FOLDER

MODE is `whole`; `operation`: each fork is killed at an operation on files, one later than the fork before;
`save`: each is killed when it has saved; `full`: files cannot grow beyond 4 KB in the first one; `memory`:
whole, and how much memory it took. Prints one JSON object.
"""

from __future__ import annotations

import itertools
import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from kharness.training.errors import DatasetError
from kharness.training.tokens.manifest import LARGEST_PIECE
from kharness.training.tokens.preparing import Sizes, prepare
from kharness.training.tokens.text_files import TextFiles
from kharness.training.tokens.tokenizers import ByteTokenizer

# Of the standard library's audit events: a file is opened, made, renamed or removed.
OPERATIONS = ("open", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.truncate")
SMALL = Sizes(shard=2000, save=1500)


def quiet(_: str) -> None:
    """Where nobody reads what is said."""


def tokens(
    text: Path,
    folder: Path,
    *,
    piece: int = 500,
    sizes: Sizes = SMALL,
    say: Callable[[str], None] = quiet,
) -> None:
    files = TextFiles.scan(text, say=quiet)
    requested = {"dataset": "text", **files.described()}
    files = replace(files, largest_piece=piece)
    prepare(folder, files, ByteTokenizer(), requested=requested, say=say, sizes=sizes)


def forked(work: Callable[[], None]) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        work()
        code = 0
    except DatasetError as error:
        print(json.dumps({"error": str(error), "hint": error.hint}), flush=True)
        code = 2
    finally:
        os._exit(code)


def ended(child: int) -> int:
    """Its exit code, or -9."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def killed_at(number: int) -> None:
    """Have this process killed at an operation on files."""
    left = itertools.count(number, -1)

    def hook(event: str, _: object) -> None:
        if event in OPERATIONS and next(left) == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def by_operation(text: Path, folder: Path) -> int:
    number = 0

    def work() -> None:
        killed_at(number)
        tokens(text, folder)

    while (code := ended(forked(work))) == -signal.SIGKILL:
        number += 1
    assert code == 0, code
    return number


def by_save(text: Path, folder: Path) -> int:
    def killed(line: str) -> None:
        if "continuing" not in line:  # it has saved
            os.kill(os.getpid(), signal.SIGKILL)

    number = 0
    while (code := ended(forked(lambda: tokens(text, folder, say=killed)))) == -signal.SIGKILL:
        number += 1
    assert code == 0, code
    return number


def full_disk(text: Path, folder: Path) -> int:
    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        tokens(text, folder)

    assert (ended(forked(limited)), folder.exists()) == (2, False)
    return ended(forked(lambda: tokens(text, folder)))


def memory(text: Path, folder: Path) -> int:
    """Bytes by which the process grew; on one core, for the cores are kept busy with a piece each."""
    os.sched_setaffinity(0, list(os.sched_getaffinity(0))[:1])
    Path("/proc/self/clear_refs").write_text("5")  # the peak is the present from here on
    before = peak()
    tokens(text, folder, piece=LARGEST_PIECE, sizes=Sizes())
    return peak() - before


def peak() -> int:
    (line,) = (x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def whole(text: Path, folder: Path) -> int:
    return ended(forked(lambda: tokens(text, folder)))


if __name__ == "__main__":
    modes = {"whole": whole, "operation": by_operation, "save": by_save, "full": full_disk, "memory": memory}
    print(json.dumps({"number": modes[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3]))}))
