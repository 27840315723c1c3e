"""Commands as one types them: `make continue RUN=x` in a checkout, `kharness continue x` elsewhere."""

from __future__ import annotations

import os

FRONT = "KHARNESS_FRONT"
"""Variable by which `kharness TARGET` says so to the script of that make target."""

_front = os.environ.get(FRONT, "make")


def use_kharness() -> None:
    """Show the command `kharness` from here on."""
    global _front
    _front = "kharness"


def typed(target: str, place: object, variable: str = "RUN") -> str:
    """Return the command of a target on a run or matrix; `make` takes its place by that variable."""
    if _front == "kharness":
        return f"kharness {'report' if ' ' in target else target} {place}"
    return f"make {target} {variable}={place}"


def typed_setting(in_make: str, in_kharness: str) -> str:
    """Return how a setting is given."""
    return in_kharness if _front == "kharness" else in_make


def typed_target(target: str) -> str:
    return f"{_front} {target}"


def typed_comparison(a: object, b: object) -> str:
    return f"kharness compare {a} {b}" if _front == "kharness" else f"make compare A={a} B={b}"
