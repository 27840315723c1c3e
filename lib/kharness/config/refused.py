"""Refused values: which ones an option takes, why one has no effect, and the names that were probably meant.

Several refusals are one error, fixable in one go.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from kharness.config.affects import Affects, read_affects
from kharness.config.assignment import Assignment, Layer, Origin, at, at_assignment, show, tracker_list
from kharness.config.errors import ConfigError
from kharness.config.output import printable
from kharness.config.values import HINTS, ValueType, canonical

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes as long as resolving all of a configuration
    from typing import Any, Protocol

    class Reaches(Protocol):
        """The part of the option tree that knows what can be chosen now."""

        aliases: dict[str, Mapping[str, str]]

        def reachable(self, name: str, /) -> bool: ...


RENAMED = {"LAUNCHER_LOCAL_ZYGOTE": "LAUNCHER_LOCAL_FORK_SERVER"}
"""Earlier names of symbols: refused, in `.config` and fragments too, with the new name as hint."""

ALIASES = {
    "AXES": "MATRIX_AXES",
    "BATCH": "BATCH_SIZE",
    "BS": "BATCH_SIZE",
    "EPOCHS": "NUM_EPOCHS",
    "DEVICES": "NUM_GPUS",
    "GRADIENT_CLIP_VAL": "GRADIENT_CLIP",
    "GRAD_CLIP": "GRADIENT_CLIP",
    "LOGGING_STEPS": "LOG_EVERY",
    "LOG_EVERY_N_STEPS": "LOG_EVERY",
    "LR": "LEARNING_RATE",
    "MAX_EPOCHS": "NUM_EPOCHS",
    "MAX_GRAD_NORM": "GRADIENT_CLIP",
    "N_EMBD": "GPT2_WIDTH",
    "N_HEAD": "GPT2_HEADS",
    "N_LAYER": "GPT2_LAYERS",
    "OUTPUT_DIR": "RESULTS_DIR",
    "SAVE_TOTAL_LIMIT": "CHECKPOINT_KEEP",
    "SEEDS": "SEED",
    "STEPS": "MAX_STEPS",
    "THREADS": "NUM_THREADS",
    "WARMUP": "WARMUP_STEPS",
    "WARMUP_RATIO": "SCHEDULE_WARMUP_FRACTION",
    "WD": "WEIGHT_DECAY",
}
"""Common names for symbols; a hint gives the symbol, and / in the menu finds it."""

ALL = "all"
"""Stands for every member of a choice where a matrix takes several values."""

RANGE = re.compile(r"(-?[0-9]{1,18})\.\.(-?[0-9]{1,18})", re.ASCII)

_AS_NEAR = 0.15
_BEGINNING = 3
"""Characters of a beginning that names something: `gp` is in too many."""


def together(errors: Sequence[ConfigError]) -> ConfigError:
    """Return one error for all, each with its own hint; a single error stays as it is."""
    if len(errors) == 1:
        return errors[0]
    lines = [str(error) + (f" ({error.hint})" if error.hint else "") for error in errors]
    return ConfigError("\n  ".join([f"{len(errors)} values are refused", *lines]), hint="change all of them")


def collect(
    parts: Iterable[Callable[[], Layer]], also: Callable[[Layer], Sequence[ConfigError]]
) -> list[Assignment]:
    """Return the assignments of all parts; raise ConfigError with every part's error and those `also` finds
    in the rest.
    """
    layer: list[Assignment] = []
    refused: list[ConfigError] = []
    for part in parts:
        try:
            layer.extend(part())
        except ConfigError as error:
            refused.append(error)
    if refused:
        raise together([*refused, *also(layer)])
    return layer


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """At most three known names, the nearest first; of those that are much less alike than it, none.

    Where none is alike, those that begin with it, the shortest first.
    """
    from difflib import SequenceMatcher, get_close_matches  # only a call that fails pays for the import

    names = list(known)
    near = get_close_matches(name, names, n=3)
    if not near and len(name) >= _BEGINNING:
        return sorted((one for one in names if one.startswith(name)), key=len)[:3]
    alike = [SequenceMatcher(None, one, name).ratio() for one in near]
    return [one for one, ratio in zip(near, alike, strict=True) if ratio >= alike[0] - _AS_NEAR]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A question for a hint; empty where no known name is near."""
    near = nearest(name, known)
    return f"did you mean {' or '.join(near)}?" if near else ""


@dataclass(frozen=True)
class KnownOption:
    """The type and range of an option, by its own entry alone."""

    kind: str
    """`bool`, `int`, `hex` or `string`."""
    has_prompt: bool
    """Whether people set it; without a prompt it only follows others."""
    value_type: ValueType | None = None
    members: Mapping[str, str] = field(default_factory=dict)
    """{value: member} of one that only says which member of a choice is set."""
    stands_for: tuple[str, str] | None = None
    """The option that is set where this one is, and the member of a choice that is set with it, or ''."""
    ranges: Sequence[tuple[str, str]] = ()
    is_limited: bool = False
    """Whether one of the ranges holds wherever it can be set."""

    @property
    def bounds(self) -> tuple[str, str]:
        """The ends of all its ranges together."""
        return min((low for low, _ in self.ranges), key=_number), max(
            (high for _, high in self.ranges), key=_number
        )


class KnownOptions:
    """The options of a tree, and which values they take, whatever the others are."""

    def __init__(
        self,
        options: Mapping[str, KnownOption],
        entries: Mapping[str, Iterable[Any]],
        trackers: Iterable[str],
    ) -> None:
        """`entries` have the help of each symbol; `trackers` are the symbols that switch one on each."""
        self.options = options
        self._entries = entries
        self.notes: list[str] = []
        """Values accepted in another case than the tree's, to be reported to the user."""
        self.value_types = {name: one.value_type for name, one in options.items() if one.value_type}
        self.aliases = {name: one.members for name, one in options.items() if one.members}
        self._trackers = {name.removeprefix("ENABLE_").lower(): name for name in trackers}
        # Of values that were checked: layers of a matrix are, for every cell.
        self._canonical: dict[tuple[str, str], str] = {}

    @cached_property
    def affects(self) -> Affects:
        """Words of kharness.config.affects for each option; raises ConfigError for an unknown word."""
        members = {member for alias in self.aliases.values() for member in alias.values()}
        facts = {name for name, one in self.options.items() if one.kind == "bool" and not one.has_prompt}
        return read_affects(self._entries, frozenset(members | facts))

    def assignments(self, name: str, value: str, origin: Origin) -> Layer:
        """`name=value` as assignments: with or without CONFIG_, aliases and TRACKER= written out.

        ConfigError for an unknown name (with the nearest known ones), alias value or tracker.
        """
        name = name.removeprefix("CONFIG_")
        if name == "TRACKER":
            return [Assignment(s, v, origin) for s, v in self._tracker_symbols(value, origin)]
        option = self.option(name, value, origin)
        if members := option.members:
            value = self.in_case(name, value, members)
            if value not in members:
                raise ConfigError(
                    f"{at(origin, name, value)}{show(name, value)} is not one of {', '.join(members)}",
                    hint=did_you_mean(value, members) or f"see `make configwhy SYMBOL={name}`",
                )
            return [Assignment(members[value], "y", origin)]
        if option.stands_for:
            followed, unit = option.stands_for
            units = [Assignment(unit, "y", origin)] if unit else []
            return [self.checked(Assignment(followed, value, origin)), *units]
        if not option.has_prompt:
            raise ConfigError(
                f"{at(origin, name, value)}{show(name, value)} cannot be set: it only follows other symbols",
                hint=f"see `make configwhy SYMBOL={name}`",
            )
        if option.kind == "bool":
            value = self.in_case(name, value, "yn")
        return [self.checked(Assignment(name, value, origin))]

    def in_case(self, name: str, value: str, known: Iterable[str]) -> str:
        """A known value where only the case differs, which is noted."""
        taken = next((one for one in known if one.lower() == value.lower()), value)
        note = f"{show(name, value)} is taken as {show(name, taken)}"
        if taken != value and note not in self.notes:
            self.notes.append(note)
        return taken

    def option(self, name: str, value: str = "", origin: Origin | None = None) -> KnownOption:
        """The option of that name; ConfigError with the nearest known names if there is none."""
        if name in self.options:
            return self.options[name]
        asked = show(name, value) if value else name
        where = at(origin, name, value) if origin else ""
        hint = (
            did_you_mean(ALIASES.get(name.upper(), name.upper()), self.options)
            or "`make menuconfig` finds symbols with /"
        )
        if name in RENAMED:
            new = f"CONFIG_{RENAMED[name]}"
            raise ConfigError(
                f"{where}{asked} is now {RENAMED[name]}",
                hint=f"write {new}={printable(value)}" if value else f"its name is {new}",
            )
        if name == "TRACKER":
            hint = "TRACKER= is for command lines; in a file set CONFIG_ENABLE_TRACKIO=y and its like"
        raise ConfigError(f"{where}{asked}: unknown symbol", hint=hint)

    def checked(self, a: Assignment) -> Assignment:
        """The assignment with its value in canonical form; ConfigError if its type cannot hold it."""
        value = self._canonical.get((a.symbol, a.value))
        if value is None:
            value = self._canonical[a.symbol, a.value] = self._canonical_value(a)
        return a if value == a.value else replace(a, value=value)

    def _canonical_value(self, a: Assignment) -> str:
        option = self.option(a.symbol, a.value, a.origin)
        try:
            return canonical(option.kind, a.value, option.value_type)
        except ValueError as error:
            what = HINTS[option.kind]
            if option.ranges:
                what = f"{option.kind} from {' to '.join(option.bounds)}"
            if option.value_type:
                what = option.value_type.text
            raise ConfigError(f"{at_assignment(a)}{a} {error}", hint=f"its value is: {what}") from None

    def out_of_range(self, layer: Layer) -> list[ConfigError]:
        """Return errors for values that no other option could bring into range."""
        found = []
        for a in layer:
            option = self.options[a.symbol]
            if option.is_limited:
                least, most = option.bounds
                if not _number(least) <= _number(a.value) <= _number(most):
                    hint = f"give a value from {least} to {most}"
                    found.append(ConfigError(f"{at_assignment(a)}{a} is outside {least}..{most}", hint=hint))
        return found

    def trackers(self) -> list[str]:
        """The names that TRACKER= knows."""
        return sorted(self._trackers)

    def _tracker_symbols(self, value: str, origin: Origin) -> Iterator[tuple[str, str]]:
        """`TRACKER=both` as ENABLE_… symbols: exactly the trackers named, and no other."""
        known = ", ".join(["none", *sorted(self._trackers), "both"])
        asked = f"{at(origin, 'TRACKER', value)}{show('TRACKER', value)}"
        words = [self.in_case("TRACKER", w, ("none", "both", *self._trackers)) for w in value.split(",")]
        names = tracker_list(",".join(words))
        for name in names:
            if name not in self._trackers:
                raise ConfigError(
                    f"{asked}: no tracker is called {printable(name)}",
                    hint=f"known are {known}, or several separated by commas",
                )
        for name, symbol in self._trackers.items():
            yield symbol, "y" if name in names else "n"


def _number(text: str) -> int:
    return int(text, 0)


def is_tracker(symbol: str, file: str) -> bool:
    """Whether a symbol of a Kconfig file switches a tracker on; those of an outside model may, too."""
    return symbol.startswith("ENABLE_") and (file.endswith("trackers/Kconfig") or file.startswith("/"))


def why_without_effect(
    lib: Any, symbol: Any, active_range: tuple[str, str], tree: Reaches
) -> tuple[str, str]:
    """(why the value requested for kconfiglib's symbol did not take, what to do about it)."""
    remove = "or remove this assignment"
    if symbol.visibility:
        if symbol.choice and symbol.choice.selection is not symbol:
            return f"has no effect: {symbol.choice.selection.name}=y is chosen", "keep one of them"
        if symbol.choice:
            return "has no effect: no other member of its choice is set", "set the member you want to y"
        low, high = active_range
        if low:
            return f"is outside {low}..{high}", f"give a value from {low} to {high}"
        selecting = lib.expr_str(symbol.rev_dep)
        return f"has no effect: it is selected by {selecting}", f"unset {selecting}, {remove}"
    needs, remedy = unmet(lib, symbol)
    if symbol.choice and not symbol.choice.visibility and (others := _instead(tree, symbol.name)):
        return f"has no effect: {needs}", f"here {others}"
    return f"has no effect: {needs}", f"{remedy}, {remove}" if remedy else "remove this assignment"


def _instead(tree: Reaches, name: str) -> str:
    """`DATASET is one of …`: the members that can be chosen where `name`, of another choice, cannot."""
    for alias, members in tree.aliases.items():
        within = [value for value, member in members.items() if tree.reachable(member)]
        if within and name in members.values():
            return f"{alias} is one of {', '.join(within)}"
    return ""


def _terms(lib: Any, condition: Any) -> Iterator[Any]:
    """Yield the terms a condition requires; for a choice, those of the choice."""
    for term in lib.split_expr(condition, lib.AND):
        if isinstance(term, lib.Choice):
            yield from _terms(lib, term.direct_dep)
        else:
            yield term


def unmet(lib: Any, symbol: Any) -> tuple[str, str]:
    """(the conditions that keep kconfiglib's symbol out of reach, how to meet them)."""
    needs, remedies = [], []
    for node in symbol.nodes:
        for term in _terms(lib, node.prompt[1]) if node.prompt else []:
            if lib.expr_value(term):
                continue
            negated = isinstance(term, tuple) and term[0] is lib.NOT
            # a symbol without a prompt is nothing that one can set: what selects it is
            selecting = _selectors(lib, term[1] if negated else term)
            if selecting:
                chosen = [one.name for one in selecting if one.str_value == "y" or not negated]
                needs.append(f"{chosen[0]}=n, which is y" if negated else " || ".join(chosen))
                if choice := selecting[0].choice:
                    remedies.append(f"another member of the choice '{choice.nodes[0].prompt[0]}'")
            elif isinstance(term, lib.Symbol):
                needs.append(f"{term.name}=y, which is n")
                remedies.append(f"CONFIG_{term.name}=y")
            elif negated and isinstance(term[1], lib.Symbol):
                needs.append(f"{term[1].name}=n, which is y")
                choice = term[1].choice
                other = f"another member of the choice '{choice.nodes[0].prompt[0]}'" if choice else ""
                remedies.append(other or f"CONFIG_{term[1].name}=n")
            else:
                needs.append(lib.expr_str(term))
    if not needs:
        return "it only follows other symbols", ""
    remedy = f"set {' and '.join(dict.fromkeys(remedies))}" if remedies else ""
    return f"needs {' and '.join(dict.fromkeys(needs))}", remedy


def _selectors(lib: Any, symbol: Any) -> list[Any]:
    """The symbols that people set and that select this one, which has no prompt; else nothing."""
    if not isinstance(symbol, lib.Symbol) or any(node.prompt for node in symbol.nodes):
        return []
    selecting = [
        item
        for item in lib.expr_items(symbol.rev_dep)
        if isinstance(item, lib.Symbol) and any(target is symbol for target, _ in item.selects)
    ]
    found = [one for item in selecting for one in (_selectors(lib, item) or [item])]
    return sorted(dict.fromkeys(found), key=lambda one: str(one.name))


def several(
    options: KnownOptions, name: str, value: str, *, enough: Callable[[Iterable[object]], bool] = any
) -> list[str]:
    """The values that a text means which is no single one: `1,2`, `0.1|0.01`, `1..5`, `all`.

    Nothing for a text that the symbol takes as it is, and for one of which it does not take `enough` parts.
    """

    def is_taken(text: str) -> bool:
        try:
            options.assignments(name, text, Origin("make variable"))
        except ConfigError:
            return False
        return True

    has_all = name in options.aliases
    parts = [part.strip() for part in re.split(r"\|" if name == "TRACKER" else r"[,|]", value)]
    ranges = map(RANGE.fullmatch, parts)
    ends = [end for part, ab in zip(parts, ranges, strict=True) for end in (ab.groups() if ab else [part])]
    if is_taken(value) or (len(ends) == 1 and not (has_all and value == ALL)):
        return []
    return parts if enough((has_all and end == ALL) or is_taken(end) for end in ends) else []


def one_value(options: KnownOptions, name: str, value: str, origin: Origin, *, also: str = "") -> Layer:
    """`options.assignments`; where several values stand for one, the hint names the matrix that is meant.

    `also` is what that matrix has on its line besides.
    """
    try:
        return options.assignments(name, value, origin)
    except ConfigError as error:
        from shlex import quote

        symbol = name.removeprefix("CONFIG_")
        if options.affects.touches(symbol, "matrix") or not several(options, symbol, value, enough=all):
            raise
        meant = f"make test_matrix {also}{symbol}={quote(printable(value))}"
        raise ConfigError(str(error), hint=f"a matrix trains with each: {meant}") from None
