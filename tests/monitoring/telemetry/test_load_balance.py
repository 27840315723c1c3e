"""The balance between ranks, from journals with numbers worked out by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from monitoring.journal.ranks import rank_journals
from monitoring.telemetry.load_balance import rank_balance, wasted_share

Phases = tuple[float | None, float | None, float | None]


def journal(
    directory: Path,
    rank: int,
    steps: Sequence[Phases],
    *,
    collectives: float | Sequence[float] | None = 0.5,
    **start: object,
) -> None:
    """A rank's journal: its start record, then a step record for each tuple of phases."""
    records: list[Mapping[str, Any]] = [{"event": "start", **start}]
    names = ("data_seconds", "forward_backward_seconds", "optimizer_seconds")
    for number, phases in enumerate(steps, start=1):
        found = {name: value for name, value in zip(names, phases, strict=True) if value is not None}
        waited = collectives[number - 1] if isinstance(collectives, Sequence) else collectives
        collective = {} if waited is None else {"collective_seconds": waited}
        records.append({"event": "step", "global_step": number, **found, **collective})
    write(directory, rank, records)


def write(directory: Path, rank: int, records: Sequence[Mapping[str, Any]]) -> None:
    name = "metrics.jsonl" if rank == 0 else f"metrics.rank{rank:04}.jsonl"
    lines = [json.dumps({"time": 1.0, "seq": i, "attempt": 1, **it}) for i, it in enumerate(records, start=1)]
    (directory / name).write_text("".join(f"{line}\n" for line in lines))


def test_wasted_share_is_one_minus_mean_over_max() -> None:
    assert wasted_share([1.0, 1.0, 2.0, 4.0]) == pytest.approx(0.5)
    assert wasted_share([3.0, 3.0]) == 0
    assert wasted_share([0.0, 0.0]) == 0


def test_a_rank_that_is_always_slow_is_named(tmp_path: Path) -> None:
    journal(
        tmp_path, 0, [(1.0, 2.0, 1.0), (1.0, 2.0, 1.0)], device="cuda:0 (H100, found)", hardware={"host": "a"}
    )
    journal(tmp_path, 1, [(1.0, 6.0, 1.0), (1.0, 6.0, 1.0)], device="cuda:1", hardware={"host": "b"})
    found, why_not = rank_balance(tmp_path)
    assert found is not None
    assert why_not == ""
    # Own work: 4 and 8 s per step; mean 6, longest 8.
    assert found.wasted_share == pytest.approx(0.25)
    assert found.lasting_share == pytest.approx(0.25)
    assert found.num_steps == 2
    assert [(rank.name, rank.seconds, rank.best_over_mine) for rank in found.ranks] == [
        ("rank 0 (a, cuda:0)", 4.0, 1.0),
        ("rank 1 (b, cuda:1)", 8.0, 0.5),
    ]
    assert found.slow is found.ranks[1]
    assert found.slow.phases == {
        "data_seconds": 1.0,
        "forward_backward_seconds": 6.0,
        "optimizer_seconds": 1.0,
    }


def test_ranks_that_take_turns_waste_as_much_and_none_is_slow(tmp_path: Path) -> None:
    journal(tmp_path, 0, [(0.0, 4.0, 0.0), (0.0, 8.0, 0.0)])
    journal(tmp_path, 1, [(0.0, 8.0, 0.0), (0.0, 4.0, 0.0)])
    found, _ = rank_balance(tmp_path)
    assert found is not None
    assert found.wasted_share == pytest.approx(0.25)
    assert found.lasting_share == 0
    assert (found.slow, found.is_even) == (None, True)
    assert [rank.best_over_mine for rank in found.ranks] == [1.0, 1.0]


def test_equal_ranks_whose_steps_vary_are_even(tmp_path: Path) -> None:
    """Three equal ranks on a busy machine are late in turns, by chance."""
    random = Random(0)
    for rank in range(3):
        steps = [(0.0, 4.0 * random.lognormvariate(0.0, 0.3), 0.0) for _ in range(300)]
        journal(tmp_path, rank, steps)
    found, _ = rank_balance(tmp_path)
    assert found is not None
    assert found.wasted_share > 0.2
    assert (found.slow, found.is_even) == (None, True)


def test_few_steps_that_vary_name_nobody(tmp_path: Path) -> None:
    journal(tmp_path, 0, [(0.0, 4.0, 0.0), (0.0, 4.0, 0.0)])
    journal(tmp_path, 1, [(0.0, 4.0, 0.0), (0.0, 8.0, 0.0)])
    found, _ = rank_balance(tmp_path)
    assert found is not None
    assert found.lasting_share == pytest.approx(1 / 6)
    assert (found.slow, found.is_even) == (None, False)


def test_even_ranks_take_proof_that_collectives_were_left_out(tmp_path: Path) -> None:
    """DistributedDataParallel waits in backward, where every rank then takes as long as the slowest."""
    for rank, collectives in enumerate((0.5, None, None)):
        journal(tmp_path, rank, [(0.0, 4.0, 0.0)] * 3, collectives=collectives)
    found, _ = rank_balance(tmp_path)
    assert found is not None
    assert found.unproven == "collective_seconds not recorded by rank 1, 2"
    assert (found.slow, found.is_even) == (None, False)


def test_only_steps_that_every_rank_has_count(tmp_path: Path) -> None:
    journal(tmp_path, 0, [(1.0, 1.0, 0.0), (1.0, 1.0, 0.0), (9.0, 9.0, 9.0)])
    journal(tmp_path, 1, [(1.0, 3.0, 0.0), (None, 3.0, 0.0)])
    found, _ = rank_balance(tmp_path)
    assert found is not None
    assert (found.num_steps, [rank.seconds for rank in found.ranks]) == (1, [2.0, 4.0])


def test_a_phase_that_a_rank_does_not_record_is_left_out(tmp_path: Path) -> None:
    journal(tmp_path, 0, [(1.0, 2.0, 1.0)])
    journal(tmp_path, 1, [(None, 4.0, None)])
    journal(tmp_path, 2, [(1.0, 2.0, None)])
    found, _ = rank_balance(tmp_path)
    assert found is not None
    assert [rank.seconds for rank in found.ranks] == [2.0, 4.0, 2.0]
    assert found.left_out == {
        "data_seconds": "not recorded by rank 1",
        "optimizer_seconds": "not recorded by rank 1, 2",
    }


def test_steps_that_were_done_again_count_once(tmp_path: Path) -> None:
    step = {"event": "step", "global_step": 1, "data_seconds": 0.0, "optimizer_seconds": 0.0}
    for rank, seconds in ((0, 1.0), (1, 3.0)):
        records: list[dict[str, object]] = [
            {"event": "start"},
            {**step, "forward_backward_seconds": 100.0},
            {"event": "start", "attempt": 2, "supersedes": {"first_seq": 2, "last_seq": 2}},
            {**step, "attempt": 2, "forward_backward_seconds": seconds},
        ]
        write(tmp_path, rank, records)
    found, _ = rank_balance(tmp_path)
    assert found is not None
    assert [rank.seconds for rank in found.ranks] == [1.0, 3.0]


def test_what_cannot_be_told_says_why(tmp_path: Path) -> None:
    assert rank_balance(tmp_path) == (None, "only one rank wrote a journal")
    journal(tmp_path, 0, [(1.0, 1.0, 1.0)])
    assert rank_balance(tmp_path) == (None, "only one rank wrote a journal")
    (tmp_path / "metrics.rank0001.jsonl").write_text("")
    assert rank_balance(tmp_path) == (
        None,
        "data_seconds, forward_backward_seconds, optimizer_seconds not recorded by rank 1",
    )
    write(tmp_path, 1, [{"event": "step", "global_step": 7, "data_seconds": 1.0}])
    assert rank_balance(tmp_path)[1] == "the ranks have no step record in common"


def test_journals_are_those_of_ranks(tmp_path: Path) -> None:
    for name in (
        "metrics.jsonl",
        "metrics.rank0010.jsonl",
        "metrics.rank0002.jsonl",
        "metrics.csv",
        "metrics.rank1",
    ):
        (tmp_path / name).touch()
    assert {rank: path.name for rank, path in rank_journals(tmp_path).items()} == {
        0: "metrics.jsonl",
        2: "metrics.rank0002.jsonl",
        10: "metrics.rank0010.jsonl",
    }


def test_a_rank_that_is_busy_between_its_steps_is_named(tmp_path: Path) -> None:
    """Its phases are those of the others, which wait for it in their collectives."""
    for rank, waits in enumerate(([4.1, 3.9, 4.0], [0.5, 0.4, 0.6], [4.0, 4.1, 3.9])):
        journal(tmp_path, rank, [(1.0, 2.0, 1.0)] * 3, collectives=waits)
    found, _ = rank_balance(tmp_path)
    assert found is not None
    assert found.slow is found.ranks[1]
    assert found.slow_in == "work outside these phases"
    assert found.slow.phases["outside_seconds"] == pytest.approx(3.5)
    # own work 4, 7.5 and 4 s per step
    assert found.wasted_share == pytest.approx(1 - 15.5 / 3 / 7.5)


def test_one_long_wait_outside_of_the_phases_names_nobody_and_proves_nothing_even(tmp_path: Path) -> None:
    """A checkpoint of rank 0 causes such a wait."""
    journal(tmp_path, 0, [(1.0, 2.0, 1.0)] * 4, collectives=[0.5, 0.5, 0.5, 0.5])
    journal(tmp_path, 1, [(1.0, 2.0, 1.0)] * 4, collectives=[0.5, 0.5, 8.5, 0.5])
    found, _ = rank_balance(tmp_path)
    assert found is not None
    assert (found.slow, found.is_even) == (None, False)
    assert found.wasted_share == pytest.approx(1 / 6)


def test_who_waits_outside_of_the_phases_is_not_slow(tmp_path: Path) -> None:
    """The fast rank waits in a barrier between steps; both have the same collectives."""
    journal(tmp_path, 0, [(1.0, 1.0, 0.0)] * 3)
    journal(tmp_path, 1, [(1.0, 3.0, 0.0)] * 3)
    found, _ = rank_balance(tmp_path)
    assert found is not None
    assert found.slow is found.ranks[1]
    assert [rank.seconds for rank in found.ranks] == [2.0, 4.0]
