"""Numbers with names in a line that a program prints, whatever program: `step 20 loss 0.167`."""

from __future__ import annotations

import re

NUMBER = r"[-+]?(?:\d[\d,]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|inf)"

STEP_NAMES = ("global_step", "step", "iteration", "iter", "it", "update")
# With `:` or `=` behind it any word is a name; with nothing but a space only these are, for `took 3` is none.
MEASURES = r"loss|acc(?:uracy)?(?:@\d+)?|ppl|perplexity|bp[bc]|error|f1|auc|bleu|reward|return|score"
KNOWN = rf"(?:[\w/.-]*[_/])?(?:{MEASURES})|{'|'.join(STEP_NAMES)}|epoch|batch|lr|(?:grad_)?norm|mfu"
SPLITS = {"training": "train", "valid": "val", "validation": "val"}

PAIR = re.compile(
    rf"(?<![\w/.@'\"-])(?:(?P<split>train(?:ing)?|val(?:id(?:ation)?)?|test|eval)\s+)?"
    rf"(?:(?P<name>[a-z_][\w/.@-]*)\s*[:=]\s*|(?P<known>{KNOWN})\s+)"
    rf"\[?\s*(?P<number>(?>{NUMBER}))(?P<of>\s*/\s*\d+)?\]?(?P<inside>\s*[\[(]\s*\d+\s*/\s*\d+)?(?!:\d)",
    re.IGNORECASE,
)
MEASURED = re.compile(rf"(?:^|[_/.-])(?:{MEASURES})$", re.IGNORECASE)

# A bar draws the same numbers again and again, so how often a line comes says nothing of steps.
PROGRESS_BAR = re.compile(r"%\||it/s\b|s/it\b")


def named_numbers(text: str) -> dict[str, str]:
    """Return the numbers of a line that says its step or epoch and a loss or score; {} of any other line.

    `step` is among them where it counts on through the training. It is not where the line counts inside an
    epoch (`Epoch [3/10], Step [100/600]`, `epoch 3 batch 20`, `Epoch: 1 [640/60000]`).
    """
    if PROGRESS_BAR.search(text):
        return {}
    found: dict[str, str] = {}
    is_inside_epoch, step_has_end = False, False
    for match in PAIR.finditer(text):
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
        found.setdefault(name, match["number"].rstrip(","))
    if not any(MEASURED.search(name) for name in found) or not found.keys() & {"step", "epoch"}:
        return {}
    has_whole_epoch = found.get("epoch", ".").isdigit()
    if has_whole_epoch and (is_inside_epoch or ("step" in found and step_has_end)):
        found.pop("step", None)
    elif has_whole_epoch and "step" not in found:
        found["step"] = found["epoch"]
    return found
