"""The last recorded look at a matrix: the verdicts of its summary.json, and how much has come since.

Looking must not cost. A look that counts is recorded when somebody asks for it (`make summary`, the end of a
matrix); a page that would judge at each reload would look a thousand times. So it shows the last one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kharness.runs.files import SUMMARY_JSON
from kharness.runs.status import COMPLETE

# Largest file that is read: 10,000 runs have some 15 MB.
MOST_BYTES = 256 * 2**20

_OF_COMPARISON = (
    *("variant", "baseline", "metric", "verdict", "reason", "difference", "low", "high", "level"),
    *("p_adjusted", "smallest_difference", "more_seeds", "next_look", "shown_at", "method", "failures"),
    "left_out",
)


def read_look(path: Path) -> dict[str, Any]:
    """Return a summary.json with the time it was written at (`recorded`, UTC epoch seconds).

    ValueError for a file that is none.
    """
    status = path.stat()
    if status.st_size > MOST_BYTES:
        raise ValueError(f"{SUMMARY_JSON} has {status.st_size:,} bytes")
    content = json.loads(path.read_bytes())
    if not isinstance(content, dict) or not {"variants", "runs", "comparisons"} <= content.keys():
        raise ValueError(f"{SUMMARY_JSON} is not a summary of runs")
    return {**content, "recorded": status.st_mtime}


def shown_look(
    look: Mapping[str, Any], seeds_of: Mapping[str, Mapping[str, str]], axis: str
) -> dict[str, Any]:
    """Return verdicts with intervals as the report gave them, and how many seeds have come since.

    `seeds_of` maps each variant to its seeds, and these to how their runs stand now. `axis` is the axis of
    seeds.
    """
    metric = str(look.get("decisive_metric") or "")
    then = {run["name"]: run for run in look["runs"]}
    complete_then = sum(run["status"] == COMPLETE for run in then.values())
    complete_now = {
        variant: {seed for seed, status in seeds.items() if status == COMPLETE}
        for variant, seeds in seeds_of.items()
    }
    variants = {
        variant["label"]: {
            "metrics": {
                name: found for name, found in variant["metrics"].items() if found["mean"] is not None
            },
            "num_complete": variant["num_complete"],
            "seeds": [
                then[name]["values"].get(axis, "")
                for name in variant["runs"]
                if name in then and then[name]["status"] == COMPLETE
            ],
        }
        for variant in look["variants"]
    }

    def shown(comparison: Mapping[str, Any]) -> dict[str, Any]:
        sides = [str(comparison[side]) for side in ("variant", "baseline")]
        before = set[str].intersection(*(set(variants.get(side, {}).get("seeds", [])) for side in sides))
        # A comparison is of pairs: only a seed that both sides have completed adds to it.
        now = set[str].intersection(*(complete_now.get(side, set()) for side in sides))
        return {
            **{name: comparison.get(name) for name in _OF_COMPARISON},
            **{name: comparison.get(name) for name in ("sentence", "words", "p_words")},
            "over": comparison.get("over", []),
            "seeds": len(comparison.get("seeds") or []) or min(comparison.get("num_values") or [0]),
            "since": len(now - before),
        }

    return {
        "recorded": look["recorded"],
        "metric": metric,
        "unit": (look.get("metrics") or {}).get(metric, {}).get("unit", ""),
        "baseline": look.get("baseline"),
        "confidence": look.get("confidence"),
        "explanation": look.get("explanation"),
        "comparisons": [shown(one) for one in look["comparisons"]],
        "effects": [shown(one) for one in look.get("main_effects", [])],
        "not_compared": look.get("not_compared", []),
        "variants": variants,
        "numbers": {
            name: value
            for name, run in then.items()
            if (value := (run.get("metrics") or {}).get(metric)) is not None
        },
        "num_complete": complete_then,
        "since": max(0, sum(map(len, complete_now.values())) - complete_then),
    }


def next_look(look: Mapping[str, Any], seeds_now: int) -> int | None:
    """Return the least number of seeds, beyond those of now, at which a verdict falls due; None for none."""
    due = [one["next_look"] for one in look["comparisons"] if one["next_look"]]
    return min((number for number in due if number > seeds_now), default=None)


def headlines(look: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the differences shown, better variants first, for a list of matrices."""
    order = {"better": 0, "the same": 1, "worse": 2}
    found = [one for one in look["comparisons"] if one["verdict"] in order]
    return sorted(found, key=lambda one: order[one["verdict"]])
