"""Work that would make a long-running process large, done by a child that is gone afterwards."""

from __future__ import annotations

import os
import pickle
import sys
import traceback
from collections.abc import Callable
from typing import TypeVar

from kharness.matrix.errors import MatrixError

Result = TypeVar("Result")


def apart(work: Callable[[], Result]) -> Result:
    """What `work` returns or raises, from a fork of this process, which must have no other thread."""
    sys.stdout.flush()
    sys.stderr.flush()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _answer(work, writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    if not answer:
        code = os.waitstatus_to_exitcode(status)
        raise MatrixError(f"the report ended with exit code {code}", hint="write it again: make summary")
    succeeded, value = pickle.loads(answer)
    if not succeeded:
        raise value
    result: Result = value
    return result


def _answer(work: Callable[[], object], writer: int) -> None:
    """Does not return: what stands behind it is the parent's."""
    code = 1
    try:
        try:
            answer = pickle.dumps((True, work()))
        except Exception as error:  # noqa: BLE001 - the parent raises it
            error.add_note(traceback.format_exc())  # which a pickle does not keep
            answer = pickle.dumps((False, error))
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(answer)
        sys.stdout.flush()
        code = 0
    except KeyboardInterrupt:
        code = 130
    finally:
        os._exit(code)
