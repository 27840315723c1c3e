"""How often the alert rules are right: every rule over the recordings of real trainings in tests/data/alerts.

python benchmarks/alert_rules.py [chosen|held_out] [-v]

Thresholds were chosen on `chosen`; the figures of docs/alerts.md are those of `held_out`, and it says which
rule was changed after a look at these.
"""

from __future__ import annotations

import gzip
import itertools
import json
import math
import random
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scipy.special import bdtri

from monitoring.rules import events_of, open_rule

FOLDER = Path(__file__).resolve().parent.parent / "tests/data/alerts"

Recording = dict[str, Any]
Row = dict[str, Any]

RULES = (
    "diverged",
    "gradient_norm",
    "loss_plateau",
    "loss_spike",
    "memory_leak",
    "nonfinite",
    "overfitting",
    "step_time",
    "vanishing_gradient",
)

MODELS = {"gpt2": "GPT-2", "lenet5": "LeNet-5", "resnet50": "ResNet-50"}

# Step records within which an alert is of the fault that began at one, by rule; others have until the end.
WITHIN = {"gradient_norm": 3, "loss_spike": 3, "nonfinite": 2}

# Where the same computation takes so much longer, by medians of SPAN steps, other programs slow the machine.
SLOWED, SPAN = 1.25, 10

_JUDGED: dict[int, dict[str, Verdict]] = {}
"""Verdicts by the number of a recording: nothing of it changes."""

# Kinds of trainings with good settings, to which nothing was done.
GOOD = ("healthy", "resumed", "pruned")

# Share of what trainings with the same settings learn, by the median, that one has learned that went well.
USUALLY = 0.75

# Seconds of a recording's memory: trainings of 4 to 12 hours.
HOURS = (4.0, 12.0)

# Number of the first recording of those that are all to be healthy: none leaks.
LEAKS_BEFORE = 3500


@dataclass
class Truth:
    """The fault of a recording: where each rule should fire, and where it may."""

    expected: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Rule -> first and last step at which it should."""
    allowed: set[str] = field(default_factory=set)
    """Rules that are not judged here: it is a matter of taste, or another fault's doing."""


@dataclass(frozen=True)
class Verdict:
    """How one rule does on one recording."""

    rule: str
    is_fault: bool
    """Whether it should fire."""
    is_found: bool
    is_healthy: bool
    """Whether it should not."""
    is_false: bool
    """Whether it fires where nothing is, or elsewhere than at the fault."""
    steps: Sequence[float]

    @property
    def is_missed(self) -> bool:
        return self.is_fault and not self.is_found


@dataclass
class Score:
    """Precision and recall of one rule."""

    faults: int = 0
    found: int = 0
    healthy: int = 0
    """Recordings without a fault that it is about."""
    false: int = 0
    """Those in which it fires, or fires elsewhere."""

    def add(self, verdict: Verdict) -> None:
        self.faults += verdict.is_fault
        self.found += verdict.is_found
        self.healthy += verdict.is_healthy
        self.false += verdict.is_false


def read(name: str) -> list[Recording]:
    """The recordings of one part: of `chosen` those of all files that thresholds were chosen on."""
    found: list[Recording] = []
    for path in sorted(FOLDER.glob(f"{name}*.jsonl.gz")):
        with gzip.open(path, "rt") as file:
            found += [json.loads(line) for line in file]
    alike: dict[str, list[float]] = {}
    for recording in found:
        alike.setdefault(_settings(recording), []).append(learned(recording))
    for recording in found:
        recording["usually_learned"] = statistics.median(alike[_settings(recording)])
    return found


def _settings(recording: Recording) -> str:
    """All that it is trained with but the seed."""
    flags = {name: value for name, value in recording["flags"].items() if name != "seed"}
    return json.dumps([recording["model"], flags, recording["num_steps"]], sort_keys=True)


def learned(recording: Recording) -> float:
    """How far below the loss of a guess the last validation loss is; 0 where there is none."""
    if recording["status"] != "complete" or not recording["evals"]:
        return 0.0
    return float(recording["chance_loss"] - recording["evals"][-1][1])


def rows(recording: Recording) -> Iterator[Row]:
    """The records that the rules get: times are those of the steps' work, stretched to hours for memory."""
    starts, evals = set(recording["starts"]), {step: loss for step, loss, _ in recording["evals"]}
    memory, stretch = memory_curve(recording)
    time = 0.0
    chance = {"chance_loss": recording["chance_loss"]}
    for place, step in enumerate(recording["step"]):
        if place in starts:
            resumed = {"resumed_from": {"step": step - 1} if place else None}
            yield {"event": "start", "time": time, "num_steps": recording["num_steps"], **resumed, **chance}
        time += (recording["sec_per_step"][place] or 0.0) * stretch
        if is_loaded(recording):
            time = recording["time"][place]
        columns = {name: recording[name][place] for name in ("train_loss", "grad_norm", "sec_per_step")}
        nonfinite = {"nonfinite": ["train_loss"]} if place in recording["nonfinite"] else {}
        row = {"event": "step", "time": time, "global_step": step, **columns, **nonfinite}
        if is_loaded(recording):
            yield {**row, "cpu_wait_seconds": recording["cpu_wait_seconds"][place]}
        else:
            yield {**row, "cpu_mem_rss_mb": memory(time)}
        if step in evals:
            yield {"event": "eval", "time": time, "global_step": step, "val_loss": evals[step]}
    yield {"event": "end", "time": time, "status": recording["status"], "global_step": step}


def is_loaded(recording: Recording) -> bool:
    """Whether it shared the machine with other work, and has times of the wall clock."""
    return "cpu_wait_seconds" in recording


def leak_of(recording: Recording) -> float | None:
    """Percent an hour that the made-up memory of a recording leaks; None of one that does not."""
    if is_loaded(recording) or recording["number"] >= LEAKS_BEFORE:
        return None
    draw = random.Random(f"leak in {recording['number']}")
    return math.exp(draw.uniform(math.log(2), math.log(30))) if draw.random() < 0.25 else None


def memory_curve(recording: Recording) -> tuple[Any, float]:
    """Megabytes by time, made up, and by what the times of a recording are stretched.

    A cache that is full within some minutes, teeth of a saw, memory that falls to pieces ever more slowly,
    noise; and in a quarter of the recordings a leak.
    """
    draw = random.Random(f"memory in {recording['number']}")
    seconds = sum(value or 0.0 for value in recording["sec_per_step"])
    hours = draw.uniform(*HOURS)
    level, teeth, period = draw.uniform(1000, 20000), draw.uniform(0, 0.1), draw.uniform(60, 3000)
    cache, fills = draw.uniform(0, 0.5), math.exp(draw.uniform(math.log(10), math.log(900)))
    fragments, leak = draw.uniform(0, 0.01), leak_of(recording)

    def memory(time: float) -> float:
        filled = cache * (1 - math.exp(-time / fills)) + fragments * math.log1p(time / 600)
        saw = teeth * (time % period) / period + 0.002 * draw.random()
        return level * (1 + filled + saw + (leak or 0.0) / 100 * time / 3600)

    return memory, 3600 * hours / seconds


def truth_of(recording: Recording) -> Truth:
    """The truth by a recording's settings and outcome, in which no rule has a say."""
    truth, step_of = Truth(), recording["step"]
    for fault in recording["faults"]:
        kind, first = fault["kind"], fault["first"]
        if kind in ("random_labels", "wrong_inputs", "explosion") and first in step_of:
            place = step_of.index(first)
            _leap(recording, place, truth)
        elif kind == "nan":
            truth.expected["nonfinite"] = (first, first + WITHIN["nonfinite"])
        elif kind.startswith("slow"):
            truth.expected["step_time"] = (first, math.inf)
        elif kind == "vanishing":
            truth.expected["vanishing_gradient"] = (first, math.inf)
            truth.allowed |= {"diverged", "overfitting", "loss_plateau"}
    if was_lost(recording) and not has_gone_well(recording):
        truth.allowed.add("diverged")
    if leak_of(recording):
        truth.expected["memory_leak"] = (0, math.inf)
    if is_lost(recording):
        if recording["kind"] != "vanishing":
            truth.expected["diverged"] = (0, math.inf)
        truth.allowed |= {"loss_spike", "gradient_norm", "overfitting", "vanishing_gradient", "nonfinite"}
    elif recording["kind"] in ("rate", "wrong_inputs", "explosion", "random_labels"):
        # these may have lost what they had learned, and learned it again
        truth.allowed |= {"diverged", "overfitting"}
        truth.allowed |= {"loss_spike", "gradient_norm"} if recording["kind"] == "rate" else set()
    if not has_gone_well(recording):
        truth.allowed |= spontaneous(recording)
    if recording["nonfinite"] and recording["kind"] != "nan":
        truth.allowed.add("nonfinite")
    if overfits(recording):
        truth.expected["overfitting"] = (0, math.inf)
    elif recording["kind"] == "overfitting":
        truth.allowed.add("overfitting")
    return truth


def _leap(recording: Recording, place: int, truth: Truth) -> None:
    """Which of the two a spoiled step shows: a loss, or a gradient, of another size than those before it."""
    step = recording["step"][place]
    for rule, name, times in (("loss_spike", "train_loss", 1.5), ("gradient_norm", "grad_norm", 10.0)):
        before = [value for value in recording[name][max(0, place - 50) : place] if value is not None]
        later = [value for value in recording[name][place : place + 3] if value is not None]
        leaps = later and before and max(later) > max(max(before), times * statistics.median(before))
        if leaps and (rule != "gradient_norm" or (max(later) > 20 and _is_harmed(recording, place))):
            truth.expected[rule] = (step, step + WITHIN[rule])
        truth.allowed.add(rule)


def _is_harmed(recording: Recording, place: int) -> bool:
    """Whether a step left the loss higher: small models learn on after many a leap of their gradients."""
    losses = recording["train_loss"]
    before = [value for value in losses[max(0, place - 50) : place] if value is not None]
    later = losses[place : place + 5]
    return None in later or max(later) > 1.5 * statistics.median(before)


def spontaneous(recording: Recording) -> set[str]:
    """The rules of leaps, where a training without a fault leaps: its gradients and soon its loss."""
    norms, losses = recording["grad_norm"], recording["train_loss"]
    for place in range(5, len(norms)):
        norm, loss, before = norms[place], losses[place], slice(max(0, place - 20), place)
        later = [value for value in losses[place : place + 3] if value]
        leaps = norm and norm > 10 and norm > 5 * statistics.median(norms[before])
        if leaps and loss and max(later) > 1.5 * statistics.median(losses[before]):
            return {"gradient_norm", "loss_spike"}
    return set()


def is_lost(recording: Recording) -> bool:
    """Whether the model knows nothing in the end: by its loss, of tokens clearly above that of a guess."""
    if recording["status"] != "complete" or not recording["evals"]:
        return False
    _, loss, accuracy = recording["evals"][-1]
    last = statistics.median([value for value in recording["train_loss"] if value is not None][-30:])
    if accuracy is not None:
        return bool(last > 0.97 * math.log(10))
    return bool(loss > 1.05 * recording["chance_loss"])


def was_lost(recording: Recording) -> bool:
    """Whether a model classifies no better than by chance at two evaluations in a row."""
    found = [accuracy for _, _, accuracy in recording["evals"] if accuracy is not None]
    return any(max(pair) < 0.15 for pair in itertools.pairwise(found))


def overfits(recording: Recording) -> bool:
    """Whether the loss on the validation set ends clearly above its lowest."""
    losses = [loss for _, loss, _ in recording["evals"]]
    return recording["kind"] == "overfitting" and bool(min(losses[-3:]) > 1.1 * min(losses))


def is_slowed(recording: Recording, step: float) -> bool:
    """Whether other programs slowed a step: by the time of the computation that is the same before each."""
    machine = recording["machine"]
    if len(machine) < 2 * SPAN:
        return False
    medians = [statistics.median(machine[place - SPAN : place]) for place in range(SPAN, len(machine) + 1)]
    place = recording["step"].index(step) if step in recording["step"] else len(machine)
    near = medians[max(0, place - 2 * SPAN) : place + 1]
    return bool(max(near) > SLOWED * min(medians))


def alerts_of(rule: str, found: Sequence[Row], options: dict[str, Any]) -> list[tuple[str, float]]:
    """Subject and step of what the rule warns of over these records, once it has held for long enough."""
    opened, events = open_rule(rule, options), events_of(rule)
    holding: dict[str, bool] = {}
    contrary: dict[str, float] = {}
    alerts, step = [], 0.0
    for row in found:
        step = row.get("global_step", step)
        if events is not None and row["event"] not in events:
            continue
        for finding in opened.update(row):
            subject = finding.subject
            if finding.holds == holding.get(subject, False):
                contrary.pop(subject, None)
            elif row["time"] - contrary.setdefault(subject, row["time"]) >= opened.hold:
                holding[subject] = finding.holds
                if finding.holds and finding.severity != "info":
                    alerts.append((subject, step))
    return alerts


def has_gone_well(recording: Recording) -> bool:
    """Whether its settings are good ones, nothing was done to it, and it has learned as is usual with these.

    It is complete, no value was NaN or infinite, it ends better than a guess, and it has learned more than
    USUALLY of what the median training with the same settings has.
    """
    if recording["kind"] not in GOOD or recording["status"] != "complete":
        return False
    if recording["nonfinite"] or is_lost(recording):
        return False
    return learned(recording) > max(0.0, USUALLY * float(recording["usually_learned"]))


def is_healthy(recording: Recording) -> bool:
    """Whether it has gone well, and its memory too: each alert of it is a false one."""
    return has_gone_well(recording) and not leak_of(recording)


def in_span(step: float, span: tuple[float, float] | None) -> bool:
    """Whether a step is in a span of them; in none, it is not."""
    return span is not None and span[0] <= step <= span[1]


def judge(recordings: Sequence[Recording], *, verbose: bool = False) -> dict[str, Score]:
    """Rule -> how often it is right, by recordings."""
    scores = {rule: Score() for rule in RULES}
    for recording in recordings:
        number = recording["number"]
        if number not in _JUDGED:
            _JUDGED[number] = {verdict.rule: verdict for verdict in _verdicts(recording)}
        for rule, verdict in _JUDGED[number].items():
            scores[rule].add(verdict)
            if verbose and (verdict.is_false or verdict.is_missed):
                what = "missed" if verdict.is_missed else "false"
                about = [number, recording["kind"], recording["model"], recording["flags"]["optimizer"]]
                print(f"{rule} {what}: {about} x{recording['rate_factor']:.2g} {verdict.steps[:4]}")
    return scores


def _verdicts(recording: Recording) -> Iterator[Verdict]:
    found, truth = list(rows(recording)), truth_of(recording)
    for rule in RULES:
        span = truth.expected.get(rule)
        alerts = [step for _, step in alerts_of(rule, found, {})]
        is_found = any(in_span(step, span) for step in alerts)
        if rule == "step_time" and not is_found:
            alerts = [step for step in alerts if not is_slowed(recording, step)]
        is_judged = span is not None or rule not in truth.allowed
        is_false = bool(alerts) and not is_found and is_judged
        yield Verdict(rule, span is not None, is_found, is_judged and span is None, is_false, alerts)


def bound(false: int, of: int) -> str:
    """The rate that false alarms have at most, in percent: Clopper and Pearson's one-sided 95% bound."""
    return f"{100 * bdtri(false, of, 0.05):.1f}%" if of > false else "100.0%"


def table(recordings: Sequence[Recording], *, verbose: bool = False) -> list[str]:
    """The lines of docs/alerts.md: by rule its faults and false alarms, and by model the faults found."""
    by_model = {name: [one for one in recordings if one["model"] == model] for model, name in MODELS.items()}
    scores = [judge(found) for found in by_model.values()]
    names = ["rule", "faults", "recall", "precision", "false alarms", *by_model]
    lines = [line(names), line(["---"] * len(names))]
    for rule, score in judge(recordings, verbose=verbose).items():
        recall = f"{100 * score.found / score.faults:.0f}%" if score.faults else ""
        alerts = score.found + score.false
        precision = f"{100 * score.found / alerts:.0f}%" if alerts else ""
        models = [f"{one[rule].found} of {one[rule].faults}" if one[rule].faults else "" for one in scores]
        false = f"{score.false} of {score.healthy}"
        lines.append(line([f"`{rule}`", f"{score.faults}", recall, precision, false, *models]))
    healthy = [[one for one in found if is_healthy(one)] for found in (recordings, *by_model.values())]
    cells = [f"{len(alarmed(found))} of {len(found)}" for found in healthy]
    return [*lines, line(["healthy, with a false alarm", "", "", "", *cells])]


def line(cells: Sequence[str]) -> str:
    """A line of the table."""
    return "".join(f"| {cell} " if cell else "| " for cell in cells) + "|"


def alarmed(recordings: Sequence[Recording]) -> list[Recording]:
    """Those with a false alarm of any rule."""
    return [one for one in recordings if any(score.false for score in judge([one]).values())]


def main(argv: Sequence[str]) -> int:
    """Print the table."""
    part = next((word for word in argv if not word.startswith("-")), "held_out")
    recordings = read(part)
    healthy = [one for one in recordings if is_healthy(one)]
    false, of = len(alarmed(healthy)), len(healthy)
    others = sum(one["kind"] in GOOD and not has_gone_well(one) for one in recordings)
    print(
        f"{part}: {len(recordings)} trainings, of which {of} are healthy: {false} of these have a false alarm"
    )
    print(f"at most {bound(false, of)} (95%); {others} with good settings have not gone well")
    print("\n".join(table(recordings, verbose="-v" in argv)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
