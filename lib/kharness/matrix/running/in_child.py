"""Do work in a forked child, so that its memory does not stay with the long-running runner."""

from __future__ import annotations

import os
import pickle
import sys
import traceback
from collections.abc import Callable
from typing import BinaryIO, TypeVar

from kharness.config.make.typed import typed_target
from kharness.runs.errors import MatrixError
from monitoring.host import libc

Result = TypeVar("Result")
Say = Callable[[str], None]
"""Prints a line, or several."""


def apart(work: Callable[[Say], Result], say: Say) -> Result:
    """Return or raise the outcome of `work`, run in a fork of this process, which must have no other thread.

    `work` gets a function whose text arrives at `say` in this process immediately. It dies with this process.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    reader, writer = os.pipe()
    end_with_parent = libc.ending_with(os.getpid())
    child = os.fork()
    if child == 0:
        end_with_parent()
        os.close(reader)
        _answer(work, writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        kind, value = _listen(pipe, say)
    _, status = os.waitpid(child, 0)
    if kind == "raised":
        raise value  # type: ignore[misc]
    if kind != "returned":
        code = os.waitstatus_to_exitcode(status)
        raise MatrixError(
            f"the report ended with exit code {code}", hint=f"write it again: {typed_target('summary')}"
        )
    result: Result = value  # type: ignore[assignment]
    return result


def _listen(pipe: BinaryIO, say: Say) -> tuple[str, object]:
    """The child's last message; an empty one if it died before that."""
    while True:
        try:
            kind, value = pickle.load(pipe)
        except (EOFError, pickle.UnpicklingError):
            return "", None
        if kind != "said":
            return kind, value
        say(value)


def _answer(work: Callable[[Say], object], writer: int) -> None:
    """Does not return: the code after it is the parent's."""
    code = 1
    try:
        with os.fdopen(writer, "wb", buffering=0) as pipe:
            try:
                answer = "returned", work(lambda text: _send(pipe, ("said", text)))
            except Exception as error:  # noqa: BLE001 - the parent raises it
                error.add_note(traceback.format_exc())  # which a pickle does not keep
                answer = "raised", error
            _send(pipe, answer)
        sys.stdout.flush()
        code = 0
    except KeyboardInterrupt:
        code = 130
    finally:
        os._exit(code)


def _send(pipe: BinaryIO, message: tuple[str, object]) -> None:
    left = memoryview(pickle.dumps(message))
    while left:  # unbuffered, a write may take a part only
        left = left[pipe.write(left) :]
