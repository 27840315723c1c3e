"""Where a value comes from, and how two configurations differ."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from kharness.config import dotconfig
from kharness.config.assignment import Origin, Resolved, origin_text, show
from kharness.config.describe import Option, option
from kharness.config.errors import ConfigError
from kharness.config.places import asked_path
from kharness.config.presets import find_preset
from kharness.config.tree import CONFIG, Tree


def why(tree: Tree, resolved: Resolved, name: str) -> Iterator[str]:
    """Lines about one symbol after `tree.resolve` gave `resolved`: value, origin, type, dependencies."""
    about = option(tree, name)
    symbol = tree.kconf.syms[about.name]
    if about.name in resolved.values:
        origin = resolved.origins[about.name]
        because = f", {_default_because(tree, about)}" if origin.kind == "default" else ""
        yield f"{show(about.name, tree.current(about.name))}{because}"
        of_default = Origin("default", about.where)
        yield f"  from       {origin_text(of_default if origin.kind == 'default' else origin)}"
    else:
        yield f"{about.name} has no value: {tree.unmet(about.name)}"
    for assignment in resolved.set_aside:
        if assignment.symbol == about.name:
            yield f"  set aside  {assignment} ({origin_text(assignment.origin)})"
    yield f"  type       {about.type_text}"
    if about.affects:
        yield f"  affects    {about.affects_text}"
    if about.default_text:
        decides = [] if about.members else [c for n in symbol.nodes for _, c in n.orig_defaults]
        yield f"  default    {about.default_text}{_now(tree, decides)}"
    if about.choice:
        chosen = _chosen(tree, about)
        by = origin_text(resolved.origins[chosen]) if chosen in resolved.origins else "out of reach"
        yield f"  choice     {about.choice}: {chosen}=y ({by})"
    if about.depends:
        yield f"  depends    {about.depends}{_now(tree, [symbol.direct_dep])}"
    yield f"  menu       {' > '.join(about.menu) or '(top)'}"
    yield f"  defined    {about.where}"
    yield f"  help       {about.explanation}"


def _default_because(tree: Tree, about: Option) -> str:
    """Which of the defaults counts: `because OPTIMIZER_SGD`, `its default`."""
    for value, condition in about.defaults:
        if condition and not tree.kconf.eval_string(condition):
            continue
        follows = [value] if value in tree.kconf.syms and tree.kconf.syms[value].nodes else []
        reasons = [*follows, *_holding(tree, condition)]
        return f"because {' and '.join(reasons)}" if reasons else "its default"
    return "its default"


def _holding(tree: Tree, condition: str) -> list[str]:
    """The part of a condition that makes it hold: `A || B && (C || D)` is B and D where A and C are n."""
    terms = re.split(r" \|\| (?![^(]*\))", condition)  # not within parentheses
    term = next((one for one in terms if one and tree.kconf.eval_string(one)), "")
    if re.search(r"[!=<>]", term):
        return [term]
    return [name for name in re.findall(r"\w+", term) if tree.current(name) == "y"]


def differences(tree: Tree, a: str, b: str) -> Iterator[str]:
    """One line a differing symbol, in the order of `a`: `BATCH_SIZE: 64 -> 128`."""
    left, right = _values(tree, "A", a), _values(tree, "B", b)
    for name in dict.fromkeys([*left, *right]):
        if left.get(name) != right.get(name):
            yield f"{name}: {left.get(name, '(absent)')} -> {right.get(name, '(absent)')}"


def _values(tree: Tree, name: str, asked: str) -> dict[str, str]:
    """Raw values of a run directory, a complete `.config` (of any tree), or a preset or fragment."""
    path = configuration_file(tree.root, name, asked)
    shown = tree.shown(path)
    text = dotconfig.read_text(path, shown)
    if dotconfig.HEADER not in text:
        text = tree.resolve(tree.read(path, "preset")).text
    return {
        line.symbol: "n" if line.text is None else line.text for line in dotconfig.parse_lines(text, shown)
    }


def configuration_file(root: Path, name: str, asked: str) -> Path:
    """The file that a run directory, a path or a preset's name means; ConfigError if there is none."""
    path = asked_path(name, asked).absolute()
    if path.is_dir():
        path = path / CONFIG
        if not path.exists():
            raise ConfigError(f"{asked} holds no {CONFIG}", hint="give a run directory or a file")
    elif not path.exists():
        try:
            path = find_preset(root, asked)
        except ConfigError as error:
            what = f"{name}={asked} is not a run directory, file or preset"
            raise ConfigError(what, hint=error.hint) from None
    return path


def _chosen(tree: Tree, about: Option) -> str:
    choice = tree.kconf.syms[next(iter(about.members.values()), about.name)].choice
    return str(choice.selection.name) if choice.selection else "nothing"


def _now(tree: Tree, conditions: Iterable[object]) -> str:
    """` (now OPTIMIZER_SGD=n)` for the symbols that some conditions name."""
    texts = [show(name, tree.current(name)) for name in tree.symbols_in(conditions)]
    return f" (now {', '.join(texts)})" if texts else ""
