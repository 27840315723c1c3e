"""The order in which the cells of a matrix run: seed by seed, so that time is not confounded with variants.

A machine's load drifts. Where one variant runs after the other, the drift becomes a difference between
them; where each seed is a block with all variants in it, shuffled, it hits all of them alike. That is the
randomized complete block design (Fisher, The Design of Experiments, 1935, chapter IV).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256

from kharness.matrix.planning.cells import Cell

BLOCKED = "blocked"
BLOCK_AXIS = "SEED"


def run_order(cells: Sequence[Cell], settings: Mapping[str, object]) -> list[str]:
    """The names in the order that MATRIX_ORDER asks for; empty for the order of the axes."""
    return blocked(cells) if settings.get("MATRIX_ORDER") == BLOCKED else []


def blocked(cells: Sequence[Cell]) -> list[str]:
    """Blocks of one seed in the order of the seeds, the cells of each shuffled; all one block without seeds.

    The names alone decide, so that the same cells always come in the same order.
    """
    blocks: dict[str | None, list[str]] = {}
    for cell in cells:
        blocks.setdefault(cell.values.get(BLOCK_AXIS), []).append(cell.name)
    return [name for block in blocks.values() for name in sorted(block, key=_shuffled)]


def _shuffled(name: str) -> str:
    # A hash and no generator: what is shuffled does not change with the version of Python, nor with the cells
    # that a filter leaves out. A name holds its seed, so that every block has an order of its own.
    return sha256(name.encode(errors="surrogatepass")).hexdigest()
