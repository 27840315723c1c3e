"""Show every run in a browser until Ctrl-C (`make dashboard [RUN=dir] [PORT=n] [HOST=name] [READ_ONLY=y]`).

RUN is a folder of results, a matrix or a run, or several with `:` between them; the default is RESULTS_DIR.
Runs that begin later are shown, too. SAVE=view.html writes a view as one file that works without a server:
of all runs, or VIEW, which is what the address of the page has from # on.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from kharness.config.errors import ConfigError, run_command
from kharness.config.make import variables as make_variables
from kharness.config.places import asked_path
from kharness.runs.bundle import opened
from kharness.runs.latest import asked_folders, latest_link
from monitoring.errors import PortTakenError
from monitoring.web.command import HOST, save, serve

if TYPE_CHECKING:
    from kharness.pages.addition import MatrixPages

ROOT = Path(__file__).resolve().parent.parent


def main(argv: Sequence[str]) -> int:
    """Serve at HOST and PORT; 2 if that cannot be, or for a folder that is a file."""
    variables = make_variables.given(argv, os.environ, "dashboard", root=ROOT)
    run = variables.get("RUN")
    if run:
        folders = [opened(folder) for folder in asked_folders(run)]
    else:
        folders = [latest_link(variables, make_variables.output_directory(variables, ROOT)).parent]
    if find_spec("starlette") is None or find_spec("uvicorn") is None:
        from kharness.environment.parts import bring  # what is there already need not be looked for

        bring(["web"])
    if file := variables.get("SAVE"):
        return save(folders, asked_path("SAVE", file), variables.get("VIEW") or "", additions=pages)
    host = variables.get("HOST") or HOST
    try:
        return serve(
            folders,
            host=host,
            port=asked_port(variables.get("PORT")),
            read_only=make_variables.is_yes(variables, "READ_ONLY"),
            additions=pages,
        )
    except PortTakenError as error:
        raise error.options_are(port="make dashboard PORT=", host="make dashboard HOST=") from error


def pages() -> list[MatrixPages]:
    """The pages of matrices and sweeps."""
    from kharness.pages.addition import MatrixPages  # once the address is printed

    return [MatrixPages()]


def asked_port(text: str | None) -> int | None:
    """The port to listen at; None for the usual one or the next free one."""
    if not text:
        return None
    if not text.isdecimal() or int(text) > 65535:
        raise ConfigError(f"PORT={text} is no port", hint="PORT=8501, or leave it out for the next free one")
    return int(text)


if __name__ == "__main__":
    run_command(main)
