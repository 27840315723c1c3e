"""Several refused values in one error, so that they can be fixed in one go."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from kharness.config.assignment import Assignment, Layer
from kharness.config.errors import ConfigError

RENAMED = {"MATRIX_ZYGOTE": "LAUNCHER_LOCAL_ZYGOTE"}
"""Earlier names of symbols: refused, in `.config` and fragments too, with the new name as hint."""


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
