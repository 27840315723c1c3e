"""The process behind `warm_python`: it imports the modules, runs nothing, and forks one child a request.

    python warm_server.py FD MODULE… ROOM      # PACKAGE.* is all modules of a package

FD is a socket that listens; it returns at once, and ends with the last connection. Where /proc has ROOM, a
fork shows its own command.

A child runs a program. Where that starts the interpreter on another one, or becomes another one, that runs at
once instead of being exec'd, which would import everything once more.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import ctypes
import fcntl
import gc
import importlib
import importlib.util
import io
import itertools
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import termios
import threading
import time
import warnings
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parent.parent

# Beginnings of what a fork reads again, though an interpreter reads it when it starts; and of what torchrun
# tells its processes, which is read when they meet.
READ_LATER = (
    *("MKL_NUM_THREADS", "OMP_NUM_THREADS", "PYTHONPATH", "PYTHONUNBUFFERED"),
    *("TORCHELASTIC_", "TORCH_NCCL_ASYNC_ERROR_HANDLING"),
)
# Its threads only wait while it starts its processes: a fork finds no lock held.
TORCHRUN = "torch.distributed.run"

# As the interpreter begins, but for the script's folder and PYTHONPATH; and whose modules every program has.
GIVEN = os.environ.get("PYTHONPATH", "")
PATH = sys.path[1 + len(GIVEN.split(":")) * bool(GIVEN) :]
OF_ALL = (sys.prefix, sys.base_prefix)
OURS = {path.name for path in (ROOT / "lib").iterdir()} | {"__pycache__"}


def main(listener: int, modules: Sequence[str]) -> None:
    """Import, then fork until nobody is left who could ask; a child ends in here."""
    if os.fork():  # whoever began it need not wait for its end
        os._exit(0)
    gc.disable()  # nearly all that is made meanwhile stays: to look through it takes a tenth of the time
    left.extend(room_in_one_piece())
    for name in modules:
        package = importlib.import_module(name.removesuffix(".*"))
        if name.endswith(".*"):
            for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
                importlib.import_module(module.name)
    look_through_modules()
    forget_what_imports_left()
    gc.freeze()
    gc.enable()
    use_large_pages()
    request = serve(socket.socket(fileno=listener))
    if request is not None:
        for standard, file in enumerate(request["files"][1:]):
            os.dup2(file, standard)
        if request["leads"]:
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        os.chdir(request["directory"])
        Children(request["read"], request["environment"])
        become(request["arguments"], request["environment"])


def room_in_one_piece() -> list[bytes]:
    """Have memory for what is imported side by side, which else lies between libraries in pieces of 1 MiB.

    So more of it can be in large pages: a fork and its end take a fifth less. What is returned has to be
    kept, or Python gives the memory back.
    """
    mallopt = ctypes.CDLL(None).mallopt
    for option in (M_MMAP_THRESHOLD, M_TRIM_THRESHOLD):
        mallopt(option, 1 << 30)
    mallopt(M_TOP_PAD, 64 << 20)
    return [bytes(400) for _ in range(OF_OBJECTS // 440)][:: (1 << 20) // 700]


# Bytes of what scripts import; and options of glibc's mallopt(3).
OF_OBJECTS = 60 << 20
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3


def use_large_pages() -> None:
    """Have what was imported in pages of 2 MiB: a fork copies a table of all pages, 10 ms of kernel time.

    Linux before 6.1 refuses, and all stays as it is.
    """
    advise = ctypes.CDLL(None).madvise
    advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for mapping in Path("/proc/self/maps").read_text().splitlines():
        place, access, _, _, _, *name = mapping.split(maxsplit=5)
        if access == "rw-p" and name in ([], ["[heap]"]):
            start, end = (int(address, 16) for address in place.split("-"))
            first, last = -(-start // LARGE) * LARGE, end // LARGE * LARGE
            if first < last:
                advise(first, last - first, MADV_COLLAPSE)


LARGE = 1 << 21
MADV_COLLAPSE = 25


def serve(listener: socket.socket) -> dict[str, Any] | None:
    """The request in each child; None in this process at the end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # it wakes the select below
    wakeup, write_end = os.pipe()
    os.set_blocking(wakeup, False)
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    children: dict[int, socket.socket] = {}
    channels = [connected(listener)]
    while channels:
        waited_for: list[Any] = [listener, wakeup, *channels]
        ready = select.select(waited_for, [], [])[0]
        if wakeup in ready:
            os.read(wakeup, 65536)
            report(children)
        if listener in ready:
            channels.append(connected(listener))
        for channel in [channel for channel in channels if channel in ready]:
            message, files, _, _ = socket.recv_fds(channel, 1 << 20, 4)
            if not message:
                channels.remove(channel)
                channel.close()
                continue
            pid = os.fork()
            if pid == 0:
                signal.signal(signal.SIGINT, signal.SIG_DFL)
                request: dict[str, Any] = {**json.loads(message), "files": files}
                return request
            children[pid] = socket.socket(fileno=files[0])
            children[pid].send(str(pid).encode())
            for file in files[1:]:
                os.close(file)
    return None


def connected(listener: socket.socket) -> socket.socket:
    """A connection; its first byte says that the other end is not lost in a server that ends."""
    channel, _ = listener.accept()
    channel.send(b"!")
    return channel


def report(children: dict[int, socket.socket]) -> None:
    """Say of each child that has ended how it did."""
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        with children.pop(pid) as end, contextlib.suppress(OSError):  # nobody may wait for it
            end.send(str(os.waitstatus_to_exitcode(status)).encode())


def is_followed(python_path: str) -> bool:
    """Whether a fork can take its modules from this PYTHONPATH: it names checkouts of ours, and no others."""
    if python_path == GIVEN:
        return True
    folders = list(map(Path, python_path.split(":"))) if python_path else []
    return all(
        it.is_absolute() and it.is_dir() and {at.name for at in it.iterdir()} <= OURS for it in folders
    )


class Children:
    """Starts the children of a program: Python by a fork that goes on, all else by exec."""

    def __init__(self, read: Sequence[str], environment: Mapping[str, str]) -> None:
        """`read` are beginnings of the names of variables that are read before any program runs."""
        self._read = tuple(read)
        self._environment = self._read_of(environment)
        # a server that is a fork of another starts its children by its own variables alone
        outer: Any = getattr(subprocess._fork_exec, "__self__", None)  # type: ignore[attr-defined]
        if hasattr(outer, "_replace"):
            subprocess._fork_exec, os.posix_spawn = outer._exec, outer._spawn  # type: ignore[attr-defined]
            os.execve = outer._replace
        self._exec, self._spawn = subprocess._fork_exec, os.posix_spawn  # type: ignore[attr-defined]
        self._replace = os.execve
        subprocess._fork_exec = self.fork_exec  # type: ignore[attr-defined]
        os.posix_spawn = self.posix_spawn
        os.execve = self.execve  # type: ignore[assignment]
        os.execv = execv

    def fork_exec(self, *given: Any) -> int:
        """Stand in for `_posixsubprocess.fork_exec`, by which subprocess.Popen starts everything."""
        arguments, executables, _, kept, directory, variables, stdin, _, _, stdout, _, stderr = given[:12]
        _, errors, _, session, group, gid, gids, uid, umask, prepare, *_ = given[12:]
        environment = dict(os.environ)
        if variables is not None:
            environment = dict(os.fsdecode(variable).split("=", 1) for variable in variables)
        as_we_are = (gid, gids, uid, umask) == (None, None, None, -1)
        if not as_we_are or not self._forks(executables[0], arguments, environment, directory):
            started: int = self._exec(*given)
            return started
        with signals_held():
            child = forked()
            if child == 0:
                with telling_failures(errors):
                    for standard, file in enumerate((stdin, stdout, stderr)):
                        if file != -1:
                            os.dup2(file, standard)
                    if directory is not None:
                        os.chdir(directory)
                    if session:
                        os.setsid()
                    if group != -1:
                        os.setpgid(0, group)
                    if prepare is not None:
                        prepared(prepare)
                become(arguments[1:], environment, set(kept) - {errors})
        return child

    def posix_spawn(self, path: Any, arguments: Any, environment: Any, **options: Any) -> int:
        """Stand in for os.posix_spawn, by which agents and samplers are started."""
        known = options.keys() <= {"file_actions", "setsid", "setsigmask", "setsigdef"}
        if not known or not self._forks(path, arguments, dict(environment), None):
            return self._spawn(path, arguments, environment, **options)
        reader, writer = os.pipe()
        with signals_held(options.get("setsigmask")):
            child = forked()
            if child == 0:
                if options.get("setsid"):
                    os.setsid()
                kept = opened(options.get("file_actions", ()))
                os.close(writer)
                become(arguments[1:], dict(environment), kept)
        # As there: a parent that ends at once, and its group with it, does not take the child along.
        os.close(writer)
        os.read(reader, 1)
        os.close(reader)
        return child

    def execve(self, path: Any, arguments: Any, environment: Any) -> NoReturn:
        """Stand in for os.execve, by which the command `kharness` becomes the script of a target.

        What a program leaves open for the next one stays so, as a lock that it holds.
        """
        global mask
        if not self._forks(path, arguments, dict(environment), None):
            self._replace(path, arguments, environment)
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        opened = {int(name) for name in os.listdir("/proc/self/fd")}
        become(arguments[1:], dict(environment), {file for file in opened if is_inherited(file)})

    def _forks(
        self, program: str | bytes, arguments: Sequence[Any], environment: dict[str, str], directory: Any
    ) -> bool:
        """Whether it is an interpreter like this one, and this process has no thread that holds a lock."""
        if os.fsdecode(program) != sys.executable or self._read_of(environment) != self._environment:
            return False
        if not is_followed(environment.get("PYTHONPATH", "")):
            return False
        given = [os.fsdecode(argument) for argument in arguments[1:]]
        given = given[given[:1] == ["-u"] :]
        runs = given[:1] in (["-m"], ["-c"]) or given[:2] == ["-P", "-m"]
        if not runs and not os.path.isfile(os.path.join(os.fsdecode(directory or ""), given[0])):
            return False
        return len(os.listdir("/proc/self/task")) == 1 or TORCHRUN in sys.orig_argv

    def _read_of(self, environment: Mapping[str, str]) -> dict[str, str]:
        read = (name for name in environment if name.startswith(self._read))
        given = {name: environment[name] for name in read if not name.startswith(READ_LATER)}
        if given.get("OPENBLAS_NUM_THREADS") == "1":  # which is how this process was started
            del given["OPENBLAS_NUM_THREADS"]
        return given


def execv(path: Any, arguments: Any) -> NoReturn:
    """Stand in for os.execv, by which what uploads to W&B becomes its command."""
    os.execve(path, arguments, os.environ)


def is_inherited(file: int) -> bool:
    """Whether a program finds a file open that the one before it has left; False for one that is gone."""
    try:
        return os.get_inheritable(file)
    except OSError:
        return False


def opened(actions: Sequence[Sequence[Any]]) -> set[int]:
    """The descriptors that the actions of posix_spawn leave open."""
    found = set()
    for action, file, *rest in actions:
        if action == os.POSIX_SPAWN_OPEN:
            found.add(os.dup2(os.open(*rest), file))
        elif action == os.POSIX_SPAWN_DUP2:
            found.add(os.dup2(file, rest[0]))
        # else it closes files: all that are not found here are closed
    return found


def forked() -> int:
    """Fork, without the warning of newer Pythons where there are threads."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


@contextlib.contextmanager
def signals_held(afterwards: Any = None) -> Iterator[None]:
    """No handler of the parent's runs in a child, which has its mask, or the one that is given."""
    global mask
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    before = mask
    if afterwards is not None:
        mask = set(afterwards)
    yield
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


mask: Any = set()


def prepared(prepare: Any) -> None:
    """Call a function before a child becomes a program, which has the mask that this one leaves."""
    global mask
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    prepare()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())


# How a child says that it cannot enter its folder: newer Pythons tell that from a program that is missing.
_KNOWN = subprocess.Popen._execute_child.__code__.co_consts  # type: ignore[attr-defined]
CHDIR = "noexec:chdir" if "noexec:chdir" in _KNOWN else "noexec"


@contextlib.contextmanager
def telling_failures(errors: int) -> Iterator[None]:
    """Tell the parent that exec failed, in the words of subprocess's own children."""
    try:
        yield
    except OSError as error:
        what = CHDIR if error.filename is not None else "noexec"
        os.write(errors, f"OSError:{error.errno:x}:{what}".encode())
        os._exit(255)
    except Exception:  # noqa: BLE001 - of a function that is called here
        os.write(errors, b"SubprocessError:0:Exception occurred in preexec_fn.")
        os._exit(255)


def become(
    arguments: Sequence[Any], environment: Mapping[str, str], kept: Set[int] = frozenset()
) -> NoReturn:
    """Go on as if the interpreter had just been started with the standard files that there are."""
    gc.freeze()  # what is left of the parent: its files must not be closed once more
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in kept:
            with contextlib.suppress(OSError):  # the one that lists
                os.close(int(name))
    # before `show` writes where its values are: what is not found by its name any more could not be removed
    os.environ.clear()
    show(arguments, environment)
    default_signals()
    forget_what_imports_left()
    subprocess._active.clear()  # type: ignore[attr-defined]
    os.environ.update(environment)
    time.tzset()
    open_standard_files(unbuffered=bool(environment.get("PYTHONUNBUFFERED")) or arguments[0] in ("-u", b"-u"))
    forget_modules()
    set_threads(environment.get("OMP_NUM_THREADS", ""))
    leave(status_of([os.fsdecode(argument) for argument in arguments]))


def show(arguments: Sequence[Any], environment: Mapping[str, str]) -> None:
    """Write where /proc reads the command and the environment, by which others find a process."""
    places = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[45:49]
    begin, end, begin_variables, end_variables = map(int, places)
    words = [sys.executable, *arguments]
    variables = [f"{name}={value}" for name, value in environment.items()]
    for first, last, texts in ((begin, end, words), (begin_variables, end_variables, variables)):
        text = b"".join(os.fsencode(text) + b"\0" for text in texts)
        ctypes.memmove(first, text[: last - first - 1].ljust(last - first, b"\0"), last - first)


def default_signals() -> None:
    """Handlers and mask as Python has them when it starts; what was ignored stays ignored."""
    signal.set_wakeup_fd(-1)
    caught = int(Path("/proc/self/status").read_text().partition("SigCgt:")[2].split()[0], 16)
    # to ask Python about each of 64 takes half a millisecond
    for number in (bit + 1 for bit in range(caught.bit_length()) if caught >> bit & 1):
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) == signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def open_standard_files(*, unbuffered: bool) -> None:
    """Python's own, around the descriptors that there are."""
    left.extend((sys.stdin, sys.stdout, sys.stderr))  # or what they hold would be written here too
    for name, file, mode in (("stdin", 0, "rb"), ("stdout", 1, "wb"), ("stderr", 2, "wb")):
        old = getattr(sys, name)
        binary = open(file, mode, 0 if unbuffered and file else -1, closefd=False)  # noqa: SIM115
        new = io.TextIOWrapper(
            binary,
            encoding=old.encoding,
            errors=old.errors,
            line_buffering=name == "stderr" or binary.isatty(),
            write_through=unbuffered and file > 0,
        )
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)


left: list[Any] = []


def forget_what_imports_left() -> None:
    """Finalizers, which are for the process that made them alone, and lists of folders.

    A server does so, too: in a fork, to look at each of a thousand copies as many pages.
    """
    weakref.finalize._registry.clear()  # type: ignore[attr-defined]
    sys.path_importer_cache.clear()


def look_through_modules() -> None:
    """Once, in the server: in a fork each look at one of two thousand modules copies the page it is on."""
    global last_of_all
    of_checkouts.update(
        (name, file) for name, file in files(reversed(sys.modules)) if not file.startswith(OF_ALL)
    )
    last_of_all = next(name for name in reversed(sys.modules) if name not in of_checkouts)
    lib = library(GIVEN)
    of_others[lib] = {name: file for name, file in of_checkouts.items() if not file.startswith(lib)}


of_checkouts: dict[str, str] = {}
of_others: dict[str, dict[str, str]] = {}
"""Modules of other checkouts by library, without its own: of a name that is read a page is copied, too."""
last_of_all = ""


def library(python_path: str) -> str:
    """The folder of our modules, which a PYTHONPATH begins with."""
    given = python_path.split(":")[0]
    return (os.path.realpath(given) if given else str(ROOT / "lib")) + os.sep


def files(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The modules that have a file, but for the program itself."""
    for name in names:
        file = getattr(sys.modules[name], "__file__", None)
        if name != "__main__" and file:
            yield name, file


def forget_modules() -> None:
    """Those of a checkout, for this process may be of another one."""
    lib = library(os.environ.get("PYTHONPATH", ""))
    newest = list(itertools.takewhile(lambda name: name != last_of_all, reversed(sys.modules)))
    for name, file in {**of_others.get(lib, of_checkouts), **dict(files(newest))}.items():
        if name in sys.modules and not file.startswith((*OF_ALL, lib)):
            left.append(sys.modules.pop(name))


def set_threads(number: str) -> None:
    """Set the number of threads, which torch does itself when it is loaded."""
    if number.isdigit() and "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(int(number))


def run(arguments: Sequence[str]) -> None:
    """Run `SCRIPT ARGUMENT…`, `-m MODULE ARGUMENT…` or `-c CODE ARGUMENT…` as Python does, after -P or -u."""
    sys.orig_argv = [sys.executable, *arguments]
    alone = arguments[0] == "-P"
    first, *rest = arguments[arguments[0] in ("-P", "-u") :]
    given = os.environ.get("PYTHONPATH", "")
    path = [*(given.split(":") if given else ()), *PATH]
    main = ModuleType("__main__")
    left.append(sys.modules["__main__"])
    sys.modules["__main__"] = main
    if first == "-m":
        sys.path[:] = path if alone else [os.getcwd(), *path]
        spec = importlib.util.find_spec(rest[0])
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{rest[0]}.__main__")
        if spec is None:
            sys.exit(f"{sys.executable}: No module named {rest[0]}")
        code: CodeType = spec.loader.get_code(spec.name)  # type: ignore[union-attr]
        main.__dict__.update(__spec__=spec, __package__=spec.parent, __file__=spec.origin)
        sys.argv = [str(spec.origin), *rest[1:]]
    elif first == "-c":
        sys.path[:] = ["", *path]
        code = compile(rest[0], "<string>", "exec", dont_inherit=True)
        sys.argv = ["-c", *rest[1:]]
    else:
        file = os.path.abspath(first)
        sys.path[:] = [os.path.dirname(os.path.realpath(file)), *path]
        code = compile(Path(file).read_bytes(), file, "exec", dont_inherit=True)
        main.__dict__.update(__file__=file)
        sys.argv = [first, *rest]
    main.__dict__.update(__builtins__=builtins)
    exec(code, main.__dict__)


def status_of(arguments: Sequence[str]) -> int:
    """The exit status that a program asks for, in the interpreter's reading; -2 for Ctrl-C."""
    try:
        run(arguments)
    except SystemExit as request:
        if request.code is None or isinstance(request.code, int):
            return (request.code or 0) & 0xFF
        print(request.code, file=sys.stderr)
        return 1
    except BaseException as error:  # noqa: BLE001 - whatever a program may raise
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
        sys.excepthook(type(error), error, error.__traceback__)
        return -2 if isinstance(error, KeyboardInterrupt) else 1
    return 0


def leave(status: int) -> NoReturn:
    """End as the interpreter does, but for taking all modules apart, which nobody sees and takes 0.1 s."""
    with contextlib.suppress(KeyboardInterrupt):
        threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
    except (OSError, ValueError) as error:
        print(f"Exception ignored in: {sys.stdout!r}\n{type(error).__name__}: {error}", file=sys.stderr)
        status = 120
    sys.stderr.flush()
    if status == -2:  # whoever waits is to see the signal and not a code
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(status)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:-1])
