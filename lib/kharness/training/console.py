"""What a training prints: of use to whoever looks, and never a reason to stop."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from kharness.config.output import lasting_text


@contextmanager
def lasting_output() -> Iterator[None]:
    """Within it, printing never fails: what cannot be written is dropped.

    The terminal may be closed, the reader of a pipe be gone (`… | head`), the disk below output.log be full:
    the journal has all that counts, and the training continues and ends as it would have.
    """
    before = sys.stdout
    sys.stdout = lasting_text(before, drop_all=True)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stdout = before
