"""Metrics in a line that a program prints: a known program's, or any that names its numbers."""

from __future__ import annotations

import itertools
import re
import signal
from collections.abc import Sequence
from types import FrameType

from monitoring.errors import UserError
from monitoring.measures import MEASURED, MEASURES

NUMBER = (
    r"(?>[-+]?(?:(?:[1-9]\d{0,2}(?:,\d{3})++|\d++)(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?"
    r"|[-+]?(?i:nan|inf(?:inity)?))"
)
# What runs on is no number: `0x10`, `1_000`, `0,5`, `1.2.3`, 12:30, 2026-11-29, a file `loss=0.5.pt`.
ENDS = r"(?![A-Za-z0-9_]|[.,:-]\d|\.[A-Za-z])"
# Letters right behind a number that are its unit; those of `1e`, `10k`, `0.5abc` are none.
UNITS = frozenset(
    (
        *("s", "sec", "secs", "seconds", "ms", "us", "\u00b5s", "ns", "min", "mins", "minutes", "h", "hours"),
        *("kb", "mb", "gb", "tb", "kib", "mib", "gib", "tib", "flops", "gflops", "tflops", "pflops"),
        *("mhz", "ghz", "w", "j", "kj", "c", "db", "px", "x", "it", "its", "iters", "steps", "batches"),
        *("tok", "toks", "tokens", "samples", "examples", "seq", "seqs", "img", "imgs", "images", "epochs"),
    )
)

# The patterns are compiled by the first line that may need them, and re keeps them: all take 2 ms, and many
# programs print no metric.

# A terminal's colors and other escapes (ECMA-48).
ESCAPES = r"\x1b\[[0-9;?]*[ -/]*[@-~]"

# Lines of known programs, each behind words that it begins with or has.
KNOWN_LINES = (
    # train.py of github.com/karpathy/nanoGPT
    (
        "iter ",
        rf"^iter (?P<step>\d+): loss (?P<loss>{NUMBER}), time (?P<step_ms>{NUMBER})ms"
        rf"(?:, mfu (?P<mfu_percent>{NUMBER})%)?",
    ),
    (
        "train loss ",
        rf"^step (?P<step>\d+): train loss (?P<estimated_train_loss>{NUMBER}), "
        rf"val loss (?P<val_loss>{NUMBER}){ENDS}",
    ),
    # metrics of github.com/pytorch/torchtitan, components/metrics.py, without its colors
    (
        "step: ",
        rf"\bstep: +(?P<step>\d+) +loss: +(?P<loss>{NUMBER}){ENDS}"
        rf"(?: +grad_norm: +(?P<grad_norm>{NUMBER}){ENDS})?"
        rf"(?: +memory: +(?P<memory_gib>{NUMBER})GiB\([^)]*\))?"
        rf"(?: +tps: +(?P<tokens_per_second>{NUMBER}){ENDS})?"
        rf"(?: +tflops: +(?P<tflops>{NUMBER}){ENDS})?"
        rf"(?: +mfu: +(?P<mfu_percent>{NUMBER})%)?",
    ),
    # mnist/main.py of github.com/pytorch/examples, whose other lines name their numbers
    (
        "Average loss: ",
        rf"^Test set: Average loss: (?P<test__loss>{NUMBER}), Accuracy: \d+/\d+ "
        rf"\((?P<test__accuracy_percent>{NUMBER})%\)",
    ),
)
DICT = r"\{'[\w/]+': .*\}"
EXAMPLE = r"one named group per metric: 'it=(?P<step>\d+) error=(?P<error>\S+)'"
FOUR_DIGITS = "Hugging Face prints 4 digits and no step"
FOUR_DIGITS_AND_BAR = "Hugging Face prints 4 digits; the steps are those of its progress bar"

STEP_NAMES = ("global_step", "step", "iteration", "iter", "it", "update")
# What their names and that of an epoch have in them: in a line without any of these nothing counts.
COUNTING = ("step", "it", "update", "epoch")
# With `:` or `=` behind it any word is a name; with nothing but a space only these are, for `took 3` is none.
KNOWN = rf"(?:[\w/.-]*[_/])?(?:{MEASURES})|{'|'.join(STEP_NAMES)}|epoch|batch|lr|(?:grad_)?norm|mfu"
SPLITS = {"training": "train", "valid": "val", "validation": "val"}

PAIR = (
    rf"(?i)(?<![\w/.@'\"-])(?:(?P<split>train(?:ing)?|val(?:id(?:ation)?)?|test|eval)\s+)?"
    rf"(?:(?P<name>[a-z_][\w/.@-]*)\s*[:=]\s*|(?P<known>{KNOWN})\s+)"
    rf"\[?\s*(?P<number>{NUMBER})(?P<unit>[a-z\u00b5]*){ENDS}"
    r"(?P<of>\s*/\s*\d+)?\]?(?P<inside>\s*[\[(]\s*\d+\s*/\s*\d+)?(?!:\d)"
)

# A line that says what came out on the test set, and nothing else; a step or an epoch it does not name.
# No part of it gives back what it took: a line of ten thousand characters costs no time.
OF_MEASURE = rf"((?>{MEASURES}))(?:\s*+[:=]\s*+|\s++)({NUMBER}){ENDS}"
OF_TEST = (
    r"(?i)(?:final\s++)?test(?:[\s_/-]++set)?+[\s_/:-]++"
    rf"(?:(?:test[\s_/-]++)?+{OF_MEASURE}\s*+%?+[\s,;|/]*+)++"
)

# A bar draws the same numbers again and again, so how often a line comes says nothing of steps.
PROGRESS_BAR = r"%\||it/s\b|s/it\b"


# Seconds of this process that a regular expression of the user's has for one line: programs print thousands.
MOST_SECONDS = 1.0


class SlowPatternError(UserError):
    """A regular expression goes back and forth in a line without an end."""


def check_patterns(patterns: Sequence[str]) -> None:
    """UserError for a regular expression of the user's that is none, or that names no metric."""
    for pattern in patterns:
        try:
            names = re.compile(pattern).groupindex
        except (re.error, OverflowError, RecursionError) as error:
            raise UserError(f"--pattern {pattern} is no regular expression: {error}", hint=EXAMPLE) from error
        if not names.keys() - {"step"}:
            raise UserError(f"--pattern {pattern} names no metric", hint=EXAMPLE)


def printed_values(line: str, patterns: Sequence[str] = ()) -> tuple[dict[str, object], bool]:
    """Return the metrics of a line, and whether they are rounded as Hugging Face prints them.

    `patterns` are regular expressions of the user's, which go before ours. SlowPatternError for one that
    takes too long.
    """
    if not any(character.isdigit() for character in line):
        return {}, False
    text = _without_escapes(line)
    own = ((_number, _search(pattern, text)) for pattern in patterns)
    known = ((_read, re.search(pattern, text)) for words, pattern in KNOWN_LINES if words in text)
    for value_of, match in itertools.chain(own, known):  # each compiles its pattern once
        if match:
            groups = match.groupdict().items()
            return {
                name.replace("__", "/"): value_of(value) for name, value in groups if value is not None
            }, False
    if "loss" in text and (match := re.search(DICT, text)) and "loss" in match[0]:
        # that of a whole training ends it: its mean loss is no step's
        return ({} if "train_runtime" in match[0] else _dict(match[0])), True
    return {name: _read(value) for name, value in named_numbers(text).items()}, False


def _search(pattern: str, text: str) -> re.Match[str] | None:
    """Search as `re.search` does, for MOST_SECONDS at most."""

    def give_up(number: int, frame: FrameType | None) -> None:
        raise SlowPatternError(pattern)

    before = signal.signal(signal.SIGVTALRM, give_up)
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, MOST_SECONDS)
        return re.search(pattern, text)  # which looks for signals all the time
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def values_of_test(line: str) -> dict[str, object]:
    """Return the metrics of a line that says nothing but them, and of the test set: `Test loss: 0.4`."""
    text = _without_escapes(line)
    if not re.fullmatch(OF_TEST, text):
        return {}
    return {
        f"test/{name.lower()}": _read(number) for name, number in re.findall(OF_MEASURE, text, re.IGNORECASE)
    }


def named_numbers(text: str) -> dict[str, str]:
    """Return the numbers of a line that says its step or epoch and a loss or score; {} of any other line.

    `step` is among them where it counts on through the training. It is not where the line counts inside an
    epoch (`Epoch [3/10], Step [100/600]`, `epoch 3 batch 20`, `Epoch: 1 [640/60000]`).
    """
    words = text.lower()
    if not any(name in words for name in COUNTING) or re.search(PROGRESS_BAR, text):
        return {}
    found: dict[str, str] = {}
    is_inside_epoch, step_has_end = False, False
    for match in re.finditer(PAIR, text):
        if not is_unit(match["unit"]):
            continue
        name = (match["name"] or match["known"]).lower()
        if name in STEP_NAMES:
            step_has_end = bool(match["of"])
            name = "step"
        elif match["split"] and name not in ("epoch", "batch"):  # `Train Epoch: 1` counts epochs
            split = match["split"].lower()
            name = f"{SPLITS.get(split, split)}/{name}"
        is_inside_epoch |= name == "batch" or (name == "epoch" and bool(match["inside"]))
        if match["of"] and name not in ("step", "epoch", "batch"):
            continue  # `accuracy: 9812/10000` is a fraction, and its first number alone is no accuracy
        found.setdefault(name, match["number"])
    if not any(re.search(MEASURED, name) for name in found) or not found.keys() & {"step", "epoch"}:
        return {}
    # `Step [100/600]` beside a whole epoch begins anew in each; beside `epoch 1.25` it counts on, as Trainer
    # prints
    has_whole_epoch = found.get("epoch", ".").isdigit()
    if has_whole_epoch and (is_inside_epoch or ("step" in found and step_has_end)):
        found.pop("step", None)
    elif has_whole_epoch and "step" not in found:
        found["step"] = found["epoch"]
    return found


def _without_escapes(line: str) -> str:
    return (re.sub(ESCAPES, "", line) if "\x1b" in line else line).strip()


def _dict(text: str) -> dict[str, object]:
    """Return the numbers of a dict as Python prints it; newer versions print them as text."""
    import ast  # few programs print any

    try:
        found = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return {}
    return {str(name): _number(value) for name, value in found.items()} if isinstance(found, dict) else {}


def _number(value: object) -> object:
    r"""Return the number in a text, or the text. A group `\S+` of the user's takes a comma along."""
    if not isinstance(value, str):
        return value
    found = re.fullmatch(rf"\s*({NUMBER})(?:\s*%|([A-Za-z\u00b5]*)(?:/\w+)?)[,;:|)\]}}\s]*", value)
    return _read(found[1]) if found and is_unit(found[2]) else value


def _read(text: str) -> float:
    """Return the number that a text is, whole ones as such."""
    number = float(text := text.replace(",", ""))
    return int(number) if number.is_integer() and text.lstrip("-+").isdigit() else number


def is_unit(letters: str | None) -> bool:
    """Whether letters that a number runs on into leave it a number."""
    return not letters or letters.lower() in UNITS
