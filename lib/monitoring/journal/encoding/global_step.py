"""Which values can be a record's `global_step`, and how a refused value is shown instead."""

from __future__ import annotations

import numbers
import reprlib
import sys
from typing import Any

from monitoring.journal.encoding.json_form import put
from monitoring.journal.encoding.tensors import host_number, is_tensor
from monitoring.journal.records import Record

# Sinks hold steps as signed 64-bit integers.
FIRST_STEP, LAST_STEP = -(2**63), 2**63 - 1

# Characters that are shown of a value that is refused.
LONGEST_SHOWN = 100


def set_step(record: Record, step: object) -> bool:
    """Set `global_step`, or else `refused_step` to how the value is shown; False if it was refused."""
    number = as_step(step)
    if number is None:
        record.pop("global_step", None)
        put(record, "refused_step", shown(step))
        return False
    record["global_step"] = number
    return True


def as_step(value: Any) -> int | None:
    """Return the integer that a value is: 3, 3.0, np.int64(3), torch.tensor(3.); None for anything else.

    A boolean, text, or a number beyond signed 64 bits is not a step. Never raises, and never waits for a GPU.
    """
    try:
        found = _number(value)
        if isinstance(found, (bool, complex)) or not isinstance(found, numbers.Number):
            return None
        if not FIRST_STEP <= found <= LAST_STEP:  # type: ignore[operator]
            return None
        number = int(found)  # type: ignore[call-overload]
        return number if number == found else None
    except Exception:  # noqa: BLE001 - the value's own methods are called here; it is shown instead
        return None


def whole_step(value: object) -> int | None:
    """Return the step in a value read from a journal, where only JSON's types occur; else as `as_step`."""
    if type(value) is not int:  # nearly all are
        if not isinstance(value, float) or not value.is_integer():
            return None
        value = int(value)
    return value if FIRST_STEP <= value <= LAST_STEP else None


def shown(value: Any) -> str:
    """The repr of a value, cut to LONGEST_SHOWN characters; of a tensor what it is, not what it holds."""
    try:
        if is_tensor(value):
            return f"{type(value).__name__} {value.dtype} {list(value.shape)} on {value.device}"[
                :LONGEST_SHOWN
            ]
        brief = reprlib.Repr()
        brief.maxstring = brief.maxlong = brief.maxother = LONGEST_SHOWN
        return brief.repr(value)[:LONGEST_SHOWN]
    except Exception:  # noqa: BLE001 - the value's own methods are called here; its type is shown instead
        return f"<{type(value).__name__}>"


def _number(value: Any) -> Any:
    """Return the number in an array or tensor of one element; any other value as it is."""
    if is_tensor(value):
        return host_number(value)
    numpy = sys.modules.get("numpy")
    if numpy is not None and issubclass(type(value), (numpy.ndarray, numpy.generic)):
        return value.item() if value.size == 1 else None
    return value
