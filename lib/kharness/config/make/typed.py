"""Commands as one types them: `make continue RUN=x` in a checkout, `kharness continue x` elsewhere."""

from __future__ import annotations

import os
import shlex

from monitoring.outside import outside

FRONT = "KHARNESS_FRONT"
"""Variable by which `kharness TARGET` says so to the script of that make target."""

_front = os.environ.get(FRONT, "make")


def use_kharness() -> None:
    """Show the command `kharness` from here on."""
    global _front
    _front = "kharness"


def typed(target: str, place: object, variable: str = "RUN") -> str:
    """Return the command of a target on a run or matrix; `make` takes its place by that variable."""
    place = shlex.quote(str(place))
    if _front == "kharness":
        return f"kharness {'report' if ' ' in target else target.replace('_', '-')} {place}"
    return typed_make(f"{target} {variable}={place}")


def typed_setting(in_make: str, in_kharness: str) -> str:
    """Return how a setting is given."""
    return in_kharness if _front == "kharness" else in_make


def typed_target(target: str) -> str:
    return f"kharness {target}" if _front == "kharness" else typed_make(target)


def typed_comparison(a: object, b: object) -> str:
    a, b = (shlex.quote(str(one)) for one in (a, b))
    return f"kharness compare {a} {b}" if _front == "kharness" else typed_make(f"compare A={a} B={b}")


def typed_make(words: str) -> str:
    """Return a call of make, with `M=DIR` where a model outside of the tree is trained."""
    folder = outside()
    return f"make {f'M={shlex.quote(str(folder))} ' if folder else ''}{words}"
