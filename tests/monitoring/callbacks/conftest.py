"""Programs that use other frameworks, started as forks of an interpreter that has imported them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import READ_BY_TORCH
from tests.warm_python import WarmPython

# What the first Trainer, Lightning's and Accelerate import, sooner or later.
FRAMEWORKS = (
    *("torch._dynamo", "transformers.trainer", "transformers.models.gpt2.modeling_gpt2"),
    *("accelerate.tracking", "peft", "lightning.pytorch", "monitoring.callbacks.hugging_face"),
    *("monitoring.callbacks.lightning", "monitoring.callbacks.accelerate"),
)
# Nothing is looked for on the network.
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "OMP_NUM_THREADS": "1"}

RunProgram = Callable[..., str]


@pytest.fixture(scope="session")
def warm_frameworks() -> Iterator[WarmPython]:
    warm = WarmPython(*FRAMEWORKS, read=(*READ_BY_TORCH, "HF_"), **OFFLINE)
    yield warm
    warm.close()


@pytest.fixture
def offline() -> dict[str, str]:
    """The environment of programs that look for nothing on the network."""
    return OFFLINE


def example(root: Path, name: str) -> str:
    """A program of docs/callbacks.md."""
    blocks = re.findall(r"```python\n# (\S+)\n(.*?)```", (root / "docs/callbacks.md").read_text(), flags=re.S)
    programs: dict[str, str] = dict(blocks)
    return programs[name]


@pytest.fixture
def run_program(warm_frameworks: WarmPython, results: Path, forked_agents: None) -> RunProgram:
    """Run the text of a program in the test's folder, to its end; its output."""

    def run(text: str, code: int = 0) -> str:
        program = results / "program.py"
        program.write_text(text)
        done = warm_frameworks.run([program], cwd=results, env={**os.environ, **OFFLINE})
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run
