"""The median of many measurements in bounded memory: exact for few, by datasketches for many."""

from __future__ import annotations

import base64
import importlib.util
from array import array
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

# Measurements that are kept one by one.
EXACT = 4096

# The k of a KLL sketch (Karnin, Lang, Liberty 2016, arXiv:1603.05346): about 4 kB, 1.33 % of rank error.
SKETCH_SIZE = 200

UNMEASURED = f"not measured of more than {EXACT}: pip install datasketches"


class Quantiles:
    """Takes measurements; its memory does not grow with their number."""

    def __init__(self) -> None:
        self._exact: list[float] | None = []
        """All measurements; None once there are too many."""
        self._sketch: Any = None

    def add(self, values: Sequence[float]) -> None:
        """Add finite numbers."""
        if self._exact is None:
            self._add_to_sketch(values)
            return
        self._exact.extend(values)
        if len(self._exact) > EXACT:
            if importlib.util.find_spec("datasketches"):
                import datasketches

                self._sketch = datasketches.kll_doubles_sketch(SKETCH_SIZE)
                self._add_to_sketch(self._exact)
            self._exact = None

    @property
    def how(self) -> str:
        """Where the median comes from: `exact`, a sketch and its error, or why there is none."""
        if self._exact is not None:
            return "exact"
        if self._sketch is None:
            return UNMEASURED
        return f"KLL sketch, rank error {self._sketch.normalized_rank_error(False):.1%}"

    def median(self) -> float | None:
        """Return the median; None without measurements, or without a sketch of many."""
        if self._exact is not None:
            self._exact.sort()  # where it stays: the next time only what came since is out of order
            return median(self._exact) if self._exact else None
        return float(self._sketch.get_quantile(0.5)) if self._sketch is not None else None

    def state_dict(self) -> dict[str, Any]:
        """Return the state, of JSON types."""
        sketch = base64.b64encode(self._sketch.serialize()).decode() if self._sketch is not None else None
        return {"exact": None if self._exact is None else list(self._exact), "sketch": sketch}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue; a sketch that cannot be read here, without datasketches, is lost, and `how` says so."""
        exact, sketch = state["exact"], state["sketch"]
        self._exact = None if exact is None else list(exact)
        self._sketch = None
        if sketch is not None and importlib.util.find_spec("datasketches"):
            import datasketches

            self._sketch = datasketches.kll_doubles_sketch.deserialize(base64.b64decode(sketch))

    def _add_to_sketch(self, values: Sequence[float]) -> None:
        if self._sketch is not None:
            self._sketch.update(array("d", values))  # in bulk: one at a time would take longer than a timer
