"""BibTeX of methods, optimizers, models and datasets that a report used.

What to cite for an optimizer stands with it, as CITED, and the entry in the references.bib of its folder.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kharness.config.places import model_folder
from kharness.report.judging.judgment import Verdict
from kharness.report.summary import Summary
from monitoring.dropins import DropIns

_ENTRIES = "references.bib"
_METHODS = Path(__file__).with_name(_ENTRIES)
_ROOT = Path(__file__).resolve().parents[4]

# What start records name -> its modules, which are read and not imported: a report needs no torch.
KINDS = {
    "optimizer": DropIns("optimizer", "kharness.training.optimizers"),
    "pruning": DropIns("pruning method", "kharness.training.pruning"),
    "dataset": DropIns("dataset", "kharness.training.datasets"),
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
    keys = _of_judging(summary)
    known = dict(entries(_METHODS))
    unknown = []
    for name, file in dict.fromkeys(_used(summary)):
        cited = cited_by(file) if file else ()
        keys.update(cited)
        if file and cited:
            known.update(entries(file.with_name(_ENTRIES)))
        else:
            unknown.append(name)
    unknown += [key for key in sorted(keys) if key not in known]
    lines = [f"% no entry for {name}" for name in unknown]
    return "\n".join([*lines, *(known[key] for key in sorted(keys) if key in known)]) + "\n"


def entries(path: Path) -> Mapping[str, str]:
    """Return every entry of a file by its key; of none, nothing."""
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    found = re.findall(r"^(@\w+\{(\w+),\n.*?^\})$", text, flags=re.M | re.S)
    return {key: text for text, key in found}


def cited_by(module: Path) -> Sequence[str]:
    """Return CITED of a drop-in or of a model.py: keys in the references.bib beside it.

    It is read and not imported, for a report works without torch.
    """
    for node in ast.parse(module.read_bytes()).body if module.is_file() else ():
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "CITED":
            found: Sequence[str] = ast.literal_eval(node.value)
            return found
    return ()


def _of_judging(summary: Summary) -> set[str]:
    keys: set[str] = set()
    if any(one.verdict is Verdict.SAME for one in summary.conclusions.comparisons):
        keys.add("schuirmann1987")
    if summary.aggregates:
        keys.add("agarwal2021")
    for one in [*summary.conclusions.comparisons, *summary.conclusions.effects]:
        keys.update(METHODS.get(one.method, []))
        if len(one.looks) > 1:
            keys.add("howard2021")
    return keys


def _used(summary: Summary) -> Iterator[tuple[str, Path | None]]:
    """Yield what the runs used, each with the file that says what to cite for it."""
    starts = [cell.run.start for cell in summary.cells if cell.run.start]
    for what, known in KINDS.items():
        for start in starts:
            described = start.get(what)
            name = str(described.get("name") or "") if isinstance(described, Mapping) else ""
            if name:
                yield name, known.path(name)
    for config in (start.get("config") for start in starts):
        model = str(config.get("MODEL") or "") if isinstance(config, Mapping) else ""
        if model:
            yield model, model_folder(_ROOT, model) / "model.py"
