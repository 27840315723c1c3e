"""Agents and monitors sample by one loop."""

from __future__ import annotations

import re
from pathlib import Path


def test_one_loop_asks_for_samples_and_starts_its_process_again(root: Path) -> None:
    asking = re.compile(r"\bSamplerProcess\(|\bRestarts\(\)")
    found = [
        path.name for path in sorted(root.glob("lib/monitoring/**/*.py")) if asking.search(path.read_text())
    ]
    assert found == ["loop.py"], "use monitoring.sampler_process.loop.SamplingLoop"
