"""Names of cells, such as `optimizer-adamw_seed-2`: the folder of the run and its name in every report.

The same values give the same name in every matrix with the same axes, whatever is left out, added or
filtered, so that runs of two matrices can be recognized as the same cell.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import sha256

from kharness.matrix.planning.axes import Axis

# A longer symbol loses words from its front, which mostly say what it belongs to: OPTIMIZER_ADAMW_BETAS is
# `adamw-betas`.
LONGEST_SYMBOL = 20
LONGEST_NAME = 100
_SHORT = {"PRUNING_SPARSITY": "sparsity"}
_PLAIN = re.compile(r"[A-Za-z0-9.,+-]{1,40}", re.ASCII)


def varying(axes: Sequence[Axis]) -> list[str]:
    """The symbols that a name holds: of the axes with several values, or of all without any."""
    return [axis.symbol for axis in axes if len(axis.values) > 1] or [axis.symbol for axis in axes]


def cell_name(values: Mapping[str, str], symbols: Sequence[str]) -> str:
    """The values of the symbols, in their order; fit to be a folder's name.

    A value that does not fit into one is cut down and made unique by a hash of the full value; so is a name
    that would become too long.
    """
    words = symbol_words(symbols)
    name = "_".join(f"{words[symbol]}-{_in_name(values[symbol])}" for symbol in symbols)
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 10]}~{_digest(name)}"


def symbol_words(symbols: Sequence[str]) -> dict[str, str]:
    """Return each symbol's word in a name; two that would become the same keep their full names."""
    short = {symbol: _SHORT.get(symbol) or _shortened(symbol) for symbol in symbols}
    count = Counter(short.values())
    return {symbol: word if count[word] == 1 else _whole(symbol) for symbol, word in short.items()}


def _shortened(symbol: str) -> str:
    words = _whole(symbol)
    while len(words) > LONGEST_SYMBOL and "-" in words:
        words = words.partition("-")[2]
    return words


def _whole(symbol: str) -> str:
    return symbol.lower().replace("_", "-")


def _in_name(value: str) -> str:
    # Blanks only separate the values of a list, which hold no commas, so nothing is lost.
    text = value.replace(" ", ",") if "," not in value else value
    if _PLAIN.fullmatch(text) and not text.startswith("."):
        return text
    kept = re.sub(r"[^A-Za-z0-9.,+-]+", "-", text)[:24].strip(".-")
    return f"{kept}~{_digest(value)}"


def _digest(text: str) -> str:
    return sha256(text.encode(errors="surrogatepass")).hexdigest()[:6]
