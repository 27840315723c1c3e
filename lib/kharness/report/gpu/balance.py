"""How evenly a run used its GPUs, in words: what could be computed, what not, and what it does not show."""

from __future__ import annotations

from kharness.report.gpu.history import GpuRecording
from monitoring.counts import cut_list, listed
from monitoring.telemetry.load_balance import EVEN, PHASES, WORDS, RankBalance, RankTimes

# Over which values of the GPUs a balance is computed.
BALANCED = ("memory", "utilization", "power")

# A GPU whose mean is so far from that of all is named: of many GPUs the CV hardly shows a single one.
FAR = 0.2
MAX_FAR = 3

DECEIVING = "equal memory or utilization does not show it, as waiting in a collective counts as busy"


def balance_line(history: GpuRecording) -> str:
    """`Balance: memory CV = 0.3% (Excellent), ...`; what no two GPUs report is not known."""
    parts = [f"{quantity} {balance_words(history, quantity)}" for quantity in BALANCED]
    return "Balance: " + ", ".join(parts)


def balance_words(history: GpuRecording, quantity: str) -> str:
    cv, quality = history.balance(quantity)
    if cv is not None:
        return f"CV = {cv:.1f}% ({quality})"
    return f"CV unknown ({_why_no_cv(history, quantity)})"


def _why_no_cv(history: GpuRecording, quantity: str) -> str:
    means = history.means(quantity)
    if len(history.gpus) < 2:
        return "one GPU"
    if not means:
        return "no GPU reports it"
    return "it is 0 on all" if len(means) > 1 else "one GPU reports it"


def far_line(history: GpuRecording) -> str:
    """`Far from the mean: power of GPU 5 (-37%)`; empty where no GPU is."""
    found = []
    for quantity in BALANCED:
        mean = history.mean(quantity)
        if not mean:
            continue
        shares = {
            gpu.label: gpu.spreads[quantity].mean / mean - 1
            for gpu in history.gpus
            if quantity in gpu.spreads
        }
        far = sorted(
            (name for name in shares if abs(shares[name]) >= FAR), key=lambda name: -abs(shares[name])
        )
        if far:
            named = [f"{name} ({100 * shares[name]:+.0f}%)" for name in far]
            found.append(f"{quantity} of {cut_list(named, MAX_FAR)}")
    return f"Far from the mean: {'; '.join(found)}" if found else ""


def rank_lines(history: GpuRecording, ranks: RankBalance | None, why_not: str) -> list[str]:
    """Return how much own work each rank did, or why that is unknown."""
    if ranks is None:
        if len(history.gpus) < 2:
            return [f"Ranks: not computed ({why_not})"]
        return [
            f"Ranks: not computed ({why_not}); so whether one waits for another is not known: {DECEIVING}"
        ]
    lines = [
        f"Ranks: wasted share = {wasted_words(ranks)} (1 - mean/max of the ranks' own work, "
        f"{ranks.num_steps} step records); {verdict(history, ranks)}"
    ]
    for rank in ranks.ranks:
        phases = ", ".join(f"{WORDS[name]} {1000 * value:.2f}" for name, value in rank.phases.items())
        mark = "  <- slowest" if rank is ranks.slow else ""
        waits = f", waits {1000 * wait:.2f}" if (wait := seconds_waited(rank, ranks)) else ""
        lines.append(f"  {rank.name}: {1000 * rank.seconds:.2f} ms per step ({phases}){waits}{mark}")
    return [*lines, *(f"  {PHASES[phase]} left out: {why}" for phase, why in ranks.left_out.items())]


def seconds_waited(rank: RankTimes, ranks: RankBalance) -> float:
    """Seconds of a mean step in which a rank waits for the slowest; 0 where nothing shows that it waits."""
    if ranks.unproven and ranks.slow is None:
        return 0.0
    return max(one.seconds for one in ranks.ranks) - rank.seconds


def wait_for_slow(ranks: RankBalance, slow: RankTimes) -> str:
    """`the others wait 3.40 ms (24%) of each step for rank 1 (host, cuda:1)`; the share is of its work."""
    others = [seconds_waited(rank, ranks) for rank in ranks.ranks if rank is not slow]
    mean = sum(others) / len(others)
    who = "the other rank waits" if len(others) == 1 else "the others wait"
    return f"{who} {1000 * mean:.2f} ms ({100 * mean / slow.seconds:.0f}%) of each step for {slow.name}"


def seconds_lost(ranks: RankBalance) -> float:
    """Seconds of all ranks together that went by in waiting, over the steps that all have recorded."""
    used = ranks.num_steps * sum(rank.seconds for rank in ranks.ranks)
    return used * ranks.wasted_share / (1 - ranks.wasted_share)


def wasted_words(ranks: RankBalance) -> str:
    """The wasted share; a lower bound where waiting may count as a rank's own work, and hides who is slow."""
    least = "at least " if ranks.unproven and ranks.slow is None else ""
    return f"{least}{100 * ranks.wasted_share:.1f}%"


def verdict(history: GpuRecording, ranks: RankBalance) -> str:
    """Whether the ranks are balanced, said by their own work, and where GPU samples say otherwise."""
    if ranks.slow is None:
        return _without_a_slow_one(ranks)
    text = f"not balanced: {wait_for_slow(ranks, ranks.slow)} in {ranks.slow_in}"
    deceiving = [quantity for quantity in BALANCED if history.balance(quantity)[1] in ("Excellent", "Good")]
    look = "looks" if len(deceiving) == 1 else "look"
    return f"{text}, although {listed(deceiving)} {look} even" if deceiving else text


def _without_a_slow_one(ranks: RankBalance) -> str:
    if ranks.unproven:
        return f"not known whether they are evenly loaded: {ranks.unproven}"
    if not ranks.is_even:
        return "not known whether they are evenly loaded: their steps vary more than their means differ"
    if ranks.wasted_share < EVEN:
        return "evenly loaded"
    return "no rank is slower than the others over the run, but steps wait for a late one, each for another"
