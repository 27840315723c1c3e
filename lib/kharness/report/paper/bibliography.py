"""BibTeX of methods, optimizers, models and datasets that a report used; entries are in references.bib."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from kharness.report.judging.judgment import Verdict
from kharness.report.summary import Summary

_ENTRIES = Path(__file__).with_name("references.bib")

_OPTIMIZERS = {
    "adafactor": ["shazeer2018"],
    "adam": ["kingma2015"],
    "adamw": ["loshchilov2019"],
    "adamwadv": ["loshchilov2019", "reddi2018"],
    "adamwprune": ["loshchilov2019"],
    "adamwspam": ["loshchilov2019", "reddi2018"],
    "ademamix": ["pagliardini2024"],
    "lion": ["chen2023"],
    "muon": ["jordan2024", "loshchilov2019"],
    "nadamw": ["dozat2016", "loshchilov2019"],
    "schedulefree": ["defazio2024"],
    "sgd": ["sutskever2013"],
    "soap": ["vyas2024"],
    "spam": ["huang2025"],
}
_PRUNING = {"magnitude": ["han2015"], "movement": ["sanh2020"], "movement-sanh": ["sanh2020"]}
_MODELS = {"gpt2": ["radford2019"], "lenet5": ["lecun1998"], "resnet50": ["he2016"]}
_DATASETS = {
    "cifar10": ["krizhevsky2009"],
    "cifar100": ["krizhevsky2009"],
    "fashion-mnist": ["xiao2017"],
    "finewebedu": ["penedo2024"],
    "mnist": ["lecun1998"],
    "mnist-subset": ["lecun1998"],
    "openwebtext": ["gokaslan2019"],
    "tinystories": ["eldan2023"],
}
METHODS = {
    "blocked": ["dunnett1955", "landemets1983"],
    "baseline_apart": ["dunnett1955", "satterthwaite1946", "landemets1983"],
    "variant_apart": ["dunnett1955", "student1908", "landemets1983"],
    "each_apart": ["dunnett1955", "welch1947", "landemets1983"],
    "split_plot": ["dunnett1955", "satterthwaite1946", "landemets1983"],
    "paired": ["student1908", "landemets1983"],
    "welch": ["welch1947", "landemets1983"],
}
"""Sources of each way to judge a comparison (docs/statistics-formulas.md)."""


def bibliography(summary: Summary) -> str:
    """Return the BibTeX entries of this report, by key; what has no entry here is named in a comment."""
    keys, unknown = used_keys(summary)
    known = entries()
    lines = [f"% no entry for {name}" for name in unknown]
    return "\n".join([*lines, *(known[key] for key in sorted(keys))]) + "\n"


def entries() -> Mapping[str, str]:
    """Return every entry by its key."""
    found = re.findall(r"^(@\w+\{(\w+),\n.*?^\})$", _ENTRIES.read_text(), flags=re.M | re.S)
    return {key: text for text, key in found}


def used_keys(summary: Summary) -> tuple[set[str], list[str]]:
    """Return the keys of what was used, and the names for which there are none."""
    keys: set[str] = set()
    unknown = []
    for table, names in _used(summary):
        for name in dict.fromkeys(filter(None, names)):
            keys.update(table.get(name, []))
            if name not in table:
                unknown.append(name)
    if any(one.verdict is Verdict.SAME for one in summary.conclusions.comparisons):
        keys.add("schuirmann1987")
    if summary.aggregates:
        keys.add("agarwal2021")
    for one in [*summary.conclusions.comparisons, *summary.conclusions.effects]:
        keys.update(METHODS.get(one.method, []))
    return keys, unknown


def _used(summary: Summary) -> Iterable[tuple[Mapping[str, list[str]], list[str]]]:
    starts = [cell.run.start for cell in summary.cells if cell.run.start]
    configs = [start.get("config") for start in starts]
    yield _OPTIMIZERS, [_name(start.get("optimizer")) for start in starts]
    yield _PRUNING, [_name(start.get("pruning")) for start in starts]
    yield _DATASETS, [_name(start.get("dataset")) for start in starts]
    yield _MODELS, [str(one.get("MODEL") or "") for one in configs if isinstance(one, Mapping)]


def _name(described: object) -> str:
    return str(described.get("name") or "") if isinstance(described, Mapping) else ""
