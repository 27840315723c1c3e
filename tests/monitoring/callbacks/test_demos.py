"""Lightning's own demonstration, which logs nothing itself, with our logger and no other change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from monitoring import read_records
from tests.warm_python import WarmPython

from .conftest import launch

# What it would read from the network has other words here.
PROGRAM = """
import os, torch, lightning
from lightning.pytorch.demos import transformer
from monitoring.callbacks import LightningLogger


class Words(torch.utils.data.Dataset):
    def __init__(self, download=False):
        self.words = torch.randint(0, 50, (8, 13), generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return len(self.words)

    def __getitem__(self, index):
        return self.words[index, :-1], self.words[index, 1:]


transformer.WikiText2 = Words
lightning.Trainer(
    max_steps=3, accelerator="cpu", devices=int(os.environ["DEVICES"]), log_every_n_steps=1,
    strategy=os.environ.get("STRATEGY", "auto"), logger=LightningLogger("results/demo", agent=False),
    enable_checkpointing=False, enable_progress_bar=False,
).fit(transformer.LightningTransformer(vocab_size=50))
"""


@pytest.mark.parametrize(("processes", "strategy"), [(1, "auto"), (2, "auto"), (2, "ddp_fork")])
def test_a_demonstration_that_logs_nothing_has_its_pace(
    results: Path,
    warm_frameworks: WarmPython,
    monkeypatch: pytest.MonkeyPatch,
    processes: int,
    strategy: str,
) -> None:
    """Also in processes that are forked with a copy of the logger, and that skip Python's own exit."""
    monkeypatch.setenv("STRATEGY", strategy)
    (results / "program.py").write_text(PROGRAM)
    launch(warm_frameworks, [results / "program.py"], results, "lightning", processes)
    journals = sorted((results / "results/demo").glob("metrics*.jsonl"))
    assert len(journals) == processes
    for journal in journals:
        found: list[dict[str, Any]] = [dict(record) for record, _ in read_records(journal)]
        steps = [record for record in found if record["event"] == "step"]
        assert [record["global_step"] for record in steps] == [1, 2, 3]
        ratios = [record["tokens_per_second"] / record["samples_per_sec"] for record in steps]
        assert ratios == pytest.approx([12] * 3)
        assert all(record["grad_norm"] > 0 and record["step_mfu"] is None for record in steps)
        assert found[0]["model"]["name"] == "LightningTransformer"
        assert found[-1]["status"] == "complete"
