"""This machine's own GPUs: what a sample says beside what nvidia-smi prints between two of them."""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

import pytest

# As `nvidia-smi --help-query-gpu` names it -> the field of a sample.
FIELDS = {
    "uuid": "uuid",
    "name": "name",
    "memory.total": "memory_total_mb",
    "memory.used": "memory_used_mb",
    "temperature.gpu": "temperature_celsius",
    "power.draw.instant": "power_draw_watts",
    "enforced.power.limit": "power_limit_watts",
    "clocks.sm": "clock_sm_mhz",
    "clocks.mem": "clock_memory_mhz",
    "ecc.errors.uncorrected.volatile.total": "ecc_uncorrected",
}


def printed() -> list[dict[str, Any]]:
    """Values of each GPU that nvidia-smi prints, by field; None for those it does not have."""
    query = ["nvidia-smi", f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits"]
    done = subprocess.run(query, check=True, capture_output=True, text=True)
    return [
        dict(zip(FIELDS.values(), map(value_of, line.split(", ")), strict=True))
        for line in done.stdout.splitlines()
    ]


def value_of(text: str) -> Any:
    if text in ("[N/A]", "N/A", "[Not Supported]"):
        return None
    return float(text) if text.replace(".", "").isdigit() else text


def agree(before: Any, between: Any, after: Any) -> bool:
    """A number lies between the two, give or take how it is rounded; what is no number is the same."""
    if isinstance(between, float) and None not in (before, after):
        return bool(min(before, after) - 1 <= between <= max(before, after) + 1)
    return bool(before == between == after)


@pytest.mark.gpu
def test_values_lie_where_nvidia_smi_has_them(real_gpus: Any) -> None:
    """Within a few tries, for a clock or the power may rise and fall between two samples."""
    if not shutil.which("nvidia-smi"):
        pytest.skip("nvidia-smi is not installed")
    rows: list[Any] = []
    missing = set(FIELDS.values())
    for _ in range(20):
        rows = list(zip(real_gpus.sample(), printed(), real_gpus.sample(), strict=True))
        missing -= {name for name in missing if all(agree(*(gpu[name] for gpu in row)) for row in rows)}
        if not missing:
            break
    assert {name: [[gpu[name] for gpu in row] for row in rows] for name in missing} == {}
