"""Serve the page of runs: python -m monitoring.web [FOLDER …] [--port N] [--host ADDRESS] [--read-only].

With --save FILE a view of it is written as one HTML file that works without a server.

FOLDER is a folder of results, a matrix or a run (default: results); several are shown together.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import os
import socket
import sys
import time
import webbrowser
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from monitoring.errors import (
    MissingPackage,
    MonitoringError,
    PortTakenError,
    UserError,
    refusal,
    report_error,
    unwritable,
)
from monitoring.host.libc import keep_large_blocks_apart
from monitoring.host.name import host_name
from monitoring.journal.atomic_file import write_atomically
from monitoring.web.guard import AccessGuard, kept_token, own_names

if TYPE_CHECKING:
    from monitoring.web.app import Addition
    from monitoring.web.guard import App

PORT = 8501
HOST = "127.0.0.1"

# Ports that are tried after a taken one.
MOST_PORTS = 100

# Connections that are served at once; of 100 slow ones and 50 open pages none stands in the others' way.
MOST_CONNECTIONS = 1000
SHUTDOWN_SECONDS = 1

# Seconds between two looks at whether all folders were read.
LOOK_EVERY = 0.05


def main(argv: Sequence[str]) -> int:
    """Serve until Ctrl-C; 2 where that cannot be."""
    parser = argparse.ArgumentParser(
        prog="python -m monitoring.web", description=__doc__.partition("\n\n")[2]
    )
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER", help="folders of results")
    parser.add_argument("--port", type=int, help=f"default: {PORT}, or the next free one; 0: any free one")
    parser.add_argument("--host", default=HOST, help=f"address to listen at (default: {HOST})")
    parser.add_argument("--read-only", action="store_true", help="send no requests to trainings")
    parser.add_argument("--save", type=Path, metavar="FILE", help="write a view as one HTML file, and end")
    parser.add_argument(
        "--view", default="", metavar="ADDRESS", help="view to save: what the page's address has from # on"
    )
    parser.add_argument("--no-browser", action="store_true", help="open no browser")
    given = parser.parse_args(argv)
    folders = given.folders or [Path("results")]
    try:
        if given.save:
            return save(folders, given.save, given.view)
        return serve(
            folders,
            host=given.host,
            port=given.port,
            read_only=given.read_only,
            browser=not given.no_browser,
        )
    except UserError as error:
        return report_error(error)


def serve(
    folders: Sequence[Path],
    *,
    host: str = HOST,
    port: int | None = None,
    read_only: bool = False,
    browser: bool = True,
    additions: Callable[[], Sequence[Addition]] = tuple,
) -> int:
    """Print the address at once and serve the page until Ctrl-C; PortTakenError, MissingPackage.

    The socket accepts connections before the server is imported: whoever is quicker waits a moment.
    `additions` makes the pages of other packages once that is so.
    """
    check_folders(folders)
    listening = listen(host, port)
    own_port = int(listening.getsockname()[1])
    token = kept_token()
    for line in lines(host, own_port, token, os.environ, wanted=PORT if port is None else port):
        print(line, flush=True)
    try:
        import uvicorn

        from monitoring.web.app import Answers
        from monitoring.web.folders import RunIndex
    except ImportError as error:
        raise _missing(error) from error
    keep_large_blocks_apart()  # of ten runs of a million steps the server has 145 MB rather than 175
    pages = additions()
    index = RunIndex(folders, pages)
    answers = Answers(index, read_only=read_only, additions=pages)
    guard: App = AccessGuard(answers.app(), token=token, port=own_port, hosts=own_names(host))
    config = uvicorn.Config(
        guard,
        log_level="warning",
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
    )
    if browser and is_desktop(os.environ):
        webbrowser.open(address(host, own_port, token))
    with contextlib.suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[listening])
    index.close()
    return 0


def save(
    folders: Sequence[Path],
    file: Path,
    view: str,
    *,
    additions: Callable[[], Sequence[Addition]] = tuple,
) -> int:
    """Write a view of the page, by its address from # on, as one file that works without a server."""
    check_folders(folders)
    try:
        from monitoring.web.app import Answers
        from monitoring.web.folders import RunIndex
        from monitoring.web.kept_view import KeptView
    except ImportError as error:
        raise _missing(error) from error
    pages = additions()
    index = RunIndex(folders, pages)
    while not index.is_complete:
        time.sleep(LOOK_EVERY)
    answers = Answers(index, read_only=True, additions=pages)
    data = answers.page_alone(KeptView(answers, view.partition("#")[2] if "#" in view else view))
    index.close()
    try:
        write_atomically(file, data)
    except OSError as error:
        raise unwritable(file, error) from error
    print(f"{file}: {len(index.rows)} runs, {len(data) / 1e6:.1f} MB, works without a server")
    return 0


def _missing(error: ImportError) -> MissingPackage:
    return MissingPackage(f"the page needs {error.name}", hint="pip install starlette uvicorn")


def check_folders(folders: Sequence[Path]) -> None:
    """Raise MonitoringError for a folder that is a file; one that is not there yet may come."""
    for folder in folders:
        if folder.exists() and not folder.is_dir():
            raise MonitoringError(
                f"{folder} is not a folder", hint="name a folder of results, a matrix or a run"
            )


def listen(host: str, port: int | None) -> socket.socket:
    """Return a socket that listens; without a port at the first free one from PORT on."""
    ports = [port] if port is not None else [*range(PORT, PORT + MOST_PORTS), 0]
    for one in ports:
        try:
            found = socket.getaddrinfo(host, one, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
            listening = socket.socket(found[0], socket.SOCK_STREAM)
        except (OSError, OverflowError) as error:
            raise _cannot_listen(f"{host}:{one}", error) from error
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(found[4])
            listening.listen(512)
            return listening
        except (OSError, OverflowError) as error:
            listening.close()
            taken = isinstance(error, OSError) and error.errno in (errno.EADDRINUSE, errno.EACCES)
            if not taken or one == ports[-1]:
                raise _cannot_listen(f"{host}:{one}", error) from error
    raise AssertionError("there is a last port")


def _cannot_listen(where: str, error: Exception) -> PortTakenError:
    found = PortTakenError(f"{where}: {refusal(error)}")
    code = getattr(error, "errno", None)
    found.is_of_host = isinstance(error, socket.gaierror) or code == errno.EADDRNOTAVAIL
    return found.options_are(port="--port", host="--host")


def address(host: str, port: int, token: str) -> str:
    """Return the address that opens the page, with its token."""
    shown = {"0.0.0.0": host_name(), "::": host_name()}.get(host, host)
    shown = f"[{shown}]" if ":" in shown else shown
    return f"http://{shown}:{port}/?token={token}"


def lines(host: str, port: int, token: str, environ: Mapping[str, str], *, wanted: int) -> list[str]:
    """Return the lines for the terminal: the address, and how to reach it from another machine."""
    said = [f"port {wanted} is taken; the next free one is {port}"] if wanted not in (0, port) else []
    said.append(f"dashboard: {address(host, port, token)}")
    if environ.get("SSH_CONNECTION") and host in (HOST, "localhost", "::1"):
        user, here = environ.get("USER") or "USER", environ["SSH_CONNECTION"].split()
        server = here[2] if len(here) == 4 else host_name()
        said.append(f"from your own machine: ssh -L {port}:127.0.0.1:{port} {user}@{server}")
    if host not in (HOST, "localhost", "::1"):
        said.append(
            "it is reached from other machines, unencrypted: whoever has the token may read and steer"
        )
    return [*said, "Ctrl-C ends it"]


def is_desktop(environ: Mapping[str, str]) -> bool:
    """Whether a browser opened here is seen by who asked for it: a desktop, not a login over SSH."""
    if environ.get("SSH_CONNECTION") or not sys.stdout.isatty():
        return False
    return sys.platform == "darwin" or bool(environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY"))
