"""The rule for a rank that the others wait for, over the journals of all ranks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from .test_rules import look, messages, told, write


def ranks(directory: Path, *own: Mapping[str, float], steps: int = 40, first: int = 1) -> None:
    """Append the step records of a training whose ranks have these phases in every step."""
    for rank, phases in enumerate(own):
        start = {"event": "start", "world_size": len(own)}
        name = "metrics.jsonl" if rank == 0 else f"metrics.rank{rank:04}.jsonl"
        found = [
            {"event": "step", "global_step": step, "optimizer_seconds": 1.0, **phases}
            for step in range(first, first + steps)
        ]
        write(directory / name, [*([start] if first == 1 else []), *found])


def test_a_straggler_is_named_with_its_phase_until_it_is_none(tmp_path: Path) -> None:
    quick, slow = {"data_seconds": 1.0}, {"data_seconds": 1.0, "optimizer_seconds": 3.0}
    ranks(tmp_path, quick, slow, quick)
    ranks(tmp_path, quick, quick, quick, first=41)
    look(tmp_path)
    expected = [
        ("straggler", "firing", "rank 1, optimizer", 50.0, 21),
        ("straggler", "resolved", "rank 1, optimizer", None, 61),
    ]
    assert told(tmp_path) == expected
    look(tmp_path)
    assert told(tmp_path) == expected
    assert messages(tmp_path) == [
        "rank 1 is slow in optimizer: the others wait for it: 50% at step 20, limit 10%",
        "no longer: rank 1 is slow in optimizer: the others wait for it: at step 60",
    ]


def test_ranks_that_take_turns_or_differ_little_are_no_stragglers(tmp_path: Path) -> None:
    for name in ("little", "turns"):
        (tmp_path / name).mkdir()
    ranks(tmp_path / "little", {"data_seconds": 1.0}, {"data_seconds": 1.2})
    for block in range(8):  # ten steps, of which one rank is slow in the first half, then the other
        slow, quick = {"data_seconds": 3.0}, {"data_seconds": 1.0}
        both = (slow, quick) if block % 2 else (quick, slow)
        ranks(tmp_path / "turns", *both, steps=10, first=1 + 10 * block)
    for name in ("little", "turns"):
        look(tmp_path / name)
        assert told(tmp_path / name) == []
