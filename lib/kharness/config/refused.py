"""What was refused: several values in one error, fixed in one go, and the names that were probably meant."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from kharness.config.assignment import Assignment, Layer
from kharness.config.errors import ConfigError

RENAMED = {"MATRIX_ZYGOTE": "LAUNCHER_LOCAL_ZYGOTE"}
"""Earlier names of symbols: refused, in `.config` and fragments too, with the new name as hint."""

ALIASES = {
    "AXES": "MATRIX_AXES",
    "BATCH": "BATCH_SIZE",
    "EPOCHS": "NUM_EPOCHS",
    "LR": "LEARNING_RATE",
    "SEEDS": "SEED",
    "STEPS": "MAX_STEPS",
    "THREADS": "NUM_THREADS",
}
"""What people call symbols; a hint names the symbol."""

_AS_NEAR = 0.15


def together(errors: Sequence[ConfigError]) -> ConfigError:
    """One error for all, each with its own hint; a single one as it is."""
    if len(errors) == 1:
        return errors[0]
    lines = [str(error) + (f" ({error.hint})" if error.hint else "") for error in errors]
    return ConfigError("\n  ".join([f"{len(errors)} values are refused", *lines]), hint="change all of them")


def collect(
    parts: Iterable[Callable[[], Layer]], also: Callable[[Layer], Sequence[ConfigError]]
) -> list[Assignment]:
    """What all parts give; ConfigError for every one that raises, and for what `also` finds in the others."""
    layer: list[Assignment] = []
    refused: list[ConfigError] = []
    for part in parts:
        try:
            layer.extend(part())
        except ConfigError as error:
            refused.append(error)
    if refused:
        raise together([*refused, *also(layer)])
    return layer


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """At most three known names, the nearest first; of those that are much less alike than it, none."""
    from difflib import SequenceMatcher, get_close_matches  # only a call that fails pays for the import

    near = get_close_matches(name, list(known), n=3)
    alike = [SequenceMatcher(None, one, name).ratio() for one in near]
    return [one for one, ratio in zip(near, alike, strict=True) if ratio >= alike[0] - _AS_NEAR]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A question for a hint; empty where no known name is near."""
    near = nearest(name, known)
    return f"did you mean {' or '.join(near)}?" if near else ""
