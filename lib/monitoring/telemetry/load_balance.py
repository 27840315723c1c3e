"""Balance of load between the ranks of a training, from the time that each spends on its own work.

A rank that waits for another one in a collective keeps its GPU 100 % busy and its memory full, so neither
shows who is slow. What shows it is the time of the phases without collectives, which step records may carry:
the wait for data, forward and backward, and the optimizer. gpu_aggregates.py compares the
GPUs' samples.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev

from monitoring.journal.lineage import counting_in
from monitoring.journal.ranks import rank_journals
from monitoring.journal.records import Record

# Field of a step record (seconds per step, collectives left out) -> what it is called.
PHASES = {
    "data_seconds": "data wait",
    "forward_backward_seconds": "forward and backward",
    "optimizer_seconds": "optimizer",
}

# The parts of forward and backward, where a training records them.
PARTS = {"forward_seconds": "forward", "backward_seconds": "backward"}

# Field of the seconds per step that pass in collectives.
COLLECTIVE = "collective_seconds"

# No field of records: what a rank does between its phases or its steps, while the others wait for it.
OUTSIDE = "outside_seconds"

WORDS = PHASES | {OUTSIDE: "work outside these phases"}
"""Phase of RankTimes -> its name in reports."""

# Ranks that wait for less than this part of their time are evenly loaded, as a CV below 5 % is.
EVEN = 0.05

# A rank is slow if its mean is so many standard errors from that of the others: machines waver.
STANDARD_ERRORS = 3.0


@dataclass(frozen=True)
class RankTimes:
    """One rank's own work in a mean step, of the steps that all ranks have."""

    rank: int
    name: str
    phases: Mapping[str, float]
    """Seconds by the name of the field; with OUTSIDE where others wait for that."""
    seconds: float
    """Sum over the phases."""
    best_over_mine: float
    """The fastest rank's seconds by this one's: 1 for the fastest, 0.5 for one that takes twice as long."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """Seconds by PARTS, where all ranks have them."""


@dataclass(frozen=True)
class RankBalance:
    """Balance of the ranks' own work, with the phases that could not be compared."""

    ranks: Sequence[RankTimes]
    """One per rank, in their order."""
    num_steps: int
    """Step records that all ranks have."""
    wasted_share: float
    """1 - mean / max of the ranks' own work in each step, where all wait for the slowest, over all."""
    lasting_share: float
    """`wasted_share` of the ranks' means: less than that of steps where ranks take turns at being slow."""
    left_out: Mapping[str, str]
    """Phase -> why it is in none of these."""
    slow: RankTimes | None = None
    """The slowest rank, if all others wait for it: by EVEN and more, and more than its steps vary."""
    slow_in: str = ""
    """The phase that delays that rank most, in words of PHASES and PARTS."""
    unproven: str = ""
    """Why it is unknown whether waiting in collectives was left out; then ranks may look even and not be."""

    @property
    def is_even(self) -> bool:
        """Whether the means of the ranks are alike, which takes proof that collectives were left out."""
        return not self.unproven and self.lasting_share < EVEN


def wasted_share(seconds: Sequence[float]) -> float:
    """1 - mean / max: what part of the ranks' time goes by in waiting for the slowest; 0 if all are 0."""
    longest = max(seconds)
    return 1 - sum(seconds) / len(seconds) / longest if longest > 0 else 0.0


def rank_balance(directory: Path) -> tuple[RankBalance | None, str]:
    """Return the balance between a run's ranks; else None, and why it is unknown."""
    journals = rank_journals(directory)
    if len(journals) < 2:
        return None, "only one rank wrote a journal"
    read = {rank: _read(rank, path) for rank, path in journals.items()}
    left_out = {}
    for phase in PHASES:
        without = [rank for rank, (_, steps) in read.items() if not any(phase in it for it in steps.values())]
        if without:
            left_out[phase] = f"not recorded by {_ranks(without, len(read))}"
    phases = [phase for phase in PHASES if phase not in left_out]
    if not phases:
        reasons = dict.fromkeys(left_out.values())
        missing = {why: [phase for phase in left_out if left_out[phase] == why] for why in reasons}
        return None, "; ".join(f"{', '.join(names)} {why}" for why, names in missing.items())
    shared = sorted(
        set.intersection(
            *(
                {number for number, step in steps.items() if all(phase in step for phase in phases)}
                for _, steps in read.values()
            )
        )
    )
    if not shared:
        return None, "the ranks have no step record in common"
    return _balance(read, phases, shared, left_out), ""


def _balance(
    read: Mapping[int, tuple[str, Mapping[int, Mapping[str, float]]]],
    phases: Sequence[str],
    shared: Sequence[int],
    left_out: Mapping[str, str],
) -> RankBalance:
    means = {rank: _means(steps, phases, shared) for rank, (_, steps) in read.items()}
    has_parts = all(
        part in steps[number] for part in PARTS for _, steps in read.values() for number in shared
    )
    parts = {rank: _means(steps, PARTS if has_parts else (), shared) for rank, (_, steps) in read.items()}
    without = [
        rank for rank, (_, steps) in read.items() if not all(COLLECTIVE in steps[number] for number in shared)
    ]
    outside = {} if without else _outside(read, phases, shared)
    for rank, seconds in outside.items():
        means[rank][OUTSIDE] = seconds
    totals = {rank: sum(of_phase.values()) for rank, of_phase in means.items()}
    best = min(totals.values())
    each = [
        [
            sum(steps[number][phase] for phase in phases) + outside.get(rank, 0.0)
            for rank, (_, steps) in read.items()
        ]
        for number in shared
    ]
    # in each step all ranks wait for the one that is slowest in it
    longest, used = sum(map(max, each)), sum(sum(own) / len(own) for own in each)
    ranks = [
        RankTimes(
            rank,
            name,
            means[rank],
            totals[rank],
            best / totals[rank] if totals[rank] > 0 else 1.0,
            parts[rank],
        )
        for rank, (name, _) in read.items()
    ]
    lasting = wasted_share(list(totals.values()))
    slowest = max(range(len(ranks)), key=lambda place: ranks[place].seconds)
    slow = ranks[slowest] if lasting >= EVEN and _lags(each, slowest) else None
    # work outside of phases is inferred from mean waits: those of single steps must confirm it
    if slow is not None and slow.rank in outside:
        waits = [[-steps[number][COLLECTIVE] for _, steps in read.values()] for number in shared]
        slow = slow if _lags(waits, slowest) else None
    return RankBalance(
        ranks=ranks,
        num_steps=len(shared),
        wasted_share=1 - used / longest if longest > 0 else 0.0,
        lasting_share=lasting,
        left_out=left_out,
        slow=slow,
        slow_in="" if slow is None else _slow_in(slow, ranks),
        unproven=f"{COLLECTIVE} not recorded by {_ranks(without, len(read))}" if without else "",
    )


def _outside(
    read: Mapping[int, tuple[str, Mapping[int, Mapping[str, float]]]],
    phases: Sequence[str],
    shared: Sequence[int],
) -> dict[int, float]:
    """Return seconds by rank of work that no phase has, where it is EVEN of a step or more: see OUTSIDE.

    Ranks meet in each step, so their steps take equally long. One whose phases and collectives together are
    less than those of the others, and whose collectives are too, was elsewhere while the others waited.
    """
    of_phases = {rank: sum(_means(steps, phases, shared).values()) for rank, (_, steps) in read.items()}
    waits = {rank: _means(steps, (COLLECTIVE,), shared)[COLLECTIVE] for rank, (_, steps) in read.items()}
    longest = max(of_phases[rank] + waits[rank] for rank in read)
    most = max(waits.values())
    found = {rank: min(longest - of_phases[rank] - waits[rank], most - waits[rank]) for rank in read}
    return {rank: seconds for rank, seconds in found.items() if seconds > 0 and seconds >= EVEN * longest}


def _means(
    steps: Mapping[int, Mapping[str, float]], names: Iterable[str], shared: Sequence[int]
) -> dict[str, float]:
    return {name: sum(steps[number][name] for number in shared) / len(shared) for name in names}


def _slow_in(slow: RankTimes, ranks: Sequence[RankTimes]) -> str:
    times = {rank.rank: {**rank.phases, **rank.parts} for rank in ranks}
    return slowest_phase(times.pop(slow.rank), list(times.values()))


def slowest_phase(slow: Mapping[str, float], others: Sequence[Mapping[str, float]]) -> str:
    """Return the phase in which a rank is most behind the mean of the others; a part of it if recorded."""
    words = {name: word for name, word in (WORDS | PARTS).items() if name in slow}
    if PARTS.keys() <= words.keys():
        del words["forward_backward_seconds"]
    return words[max(words, key=lambda name: slow[name] - fmean(other.get(name, 0.0) for other in others))]


def _lags(each: Sequence[Sequence[float]], place: int) -> bool:
    """Whether one rank is slower than the mean of the others by more than its steps vary."""
    if len(each) < 2:
        return False
    lags: list[float] = [own[place] - (sum(own) - own[place]) / (len(own) - 1) for own in each]
    # paired by step, so that what makes a step long for all ranks is in no lag
    return fmean(lags) > STANDARD_ERRORS * stdev(lags) / math.sqrt(len(lags))


def _read(rank: int, path: Path) -> tuple[str, dict[int, dict[str, float]]]:
    """Return a rank's name, and the phases of each of its steps that counts."""
    name, steps = f"rank {rank}", {}
    for record in counting_in(path):
        if record.get("event") == "start":
            name = f"rank {rank}{_place(record)}"
        step = record.get("global_step")
        if record.get("event") == "step" and isinstance(step, int):
            found = {
                name: value
                for name in (*PHASES, *PARTS, COLLECTIVE)
                if isinstance(value := record.get(name), (int, float))
            }
            if found:
                steps[step] = found
    return name, steps


def _place(start: Record) -> str:
    """Return where the rank runs, as its start record has it: ` (host, cuda:1)`."""
    hardware = start.get("hardware")
    host = hardware.get("host") if isinstance(hardware, Mapping) else None
    device = start.get("device")
    words = [str(word).partition(" (")[0] for word in (host, device) if word]
    return f" ({', '.join(words)})" if words else ""


def _ranks(ranks: Sequence[int], of: int) -> str:
    return "any rank" if len(ranks) == of else "rank " + ", ".join(map(str, ranks))
