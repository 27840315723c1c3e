"""The option tree: loads Kconfig, applies requested values layer by layer, and refuses what does not take.

The only module besides menu.py that knows kconfiglib.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache, cached_property, partial
from pathlib import Path

from kharness.config import dotconfig
from kharness.config.assignment import Assignment, Layer, Origin, Resolved, at_assignment, merged, show
from kharness.config.dotconfig import CONFIG
from kharness.config.errors import ConfigError, shadowed
from kharness.config.output import printable
from kharness.config.places import KCONFIG, kconfig_environment, shown_from
from kharness.config.record import read_record
from kharness.config.refused import (
    KnownOption,
    KnownOptions,
    collect,
    is_tracker,
    together,
    unmet,
    why_without_effect,
)
from kharness.config.resolving import (
    KnownOutcomes,
    Requests,
    config_text,
    free_symbols,
    has_prompt,
    place_of,
    read_alias,
    stand_in,
)
from kharness.config.values import Value, read_value_type, typed
from monitoring.outside import outside

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes as long as resolving all of a configuration
    from typing import Any

__all__ = ["CONFIG", "Assignment", "Layer", "Origin", "Resolved", "Tree"]

KCONFIGLIB = (14, 1, 0)
EXPERT = "EXPERT"
"""The bool that shows the options that hardly anybody changes: `if EXPERT` behind a prompt."""


class Tree(KnownOptions):
    """The loaded option tree. Every `resolve` starts from the defaults, so one tree serves many cells."""

    def __init__(self, kconf: Any, root: Path) -> None:
        self.kconf = kconf
        self.root = root
        self._lib = lib = _kconfiglib()
        defined = kconf.unique_defined_syms
        options = {symbol.name: _known_option(symbol, kconf, lib) for symbol in defined}
        choices = {
            name: kconf.syms[member].choice
            for name, option in options.items()
            for member in option.members.values()
        }
        super().__init__(
            options,
            # members and the alias of a choice use the choice's help
            {s.name: (s.choice or choices.get(s.name, s)).nodes for s in defined},
            [symbol.name for symbol in defined if is_tracker(symbol.name, symbol.nodes[0].filename)],
        )
        free = free_symbols(kconf, self._lib)
        self._known, self._requests = KnownOutcomes(kconf, free), Requests(kconf, free)
        self.batch = self._requests.batch
        """In `with tree.batch():` nobody else changes the tree, and a `resolve` sets what differs alone."""
        # The menu's nodes in their order, each symbol once, and which of them are symbols.
        self._nodes = [(node, _is_symbol(node.item)) for node in kconf.node_iter(unique_syms=True)]

    @classmethod
    def load(cls, root: Path) -> Tree:
        """The tree under `root`; ConfigError for a tree or a kconfiglib that cannot be used."""
        lib = _kconfiglib()
        folder = outside()
        top = str(folder / KCONFIG) if folder else KCONFIG
        with kconfig_environment(root):
            try:
                kconf = lib.Kconfig(top, warn_to_stderr=False)
            except (lib.KconfigError, OSError) as error:
                raise ConfigError(
                    str(error).strip().replace("\n", " "), hint="fix the Kconfig file"
                ) from error
        if kconf.warnings:
            raise ConfigError(_one_line(kconf.warnings[0]), hint="fix the Kconfig file")
        if folder:
            _check_clashes(kconf, top)
        return cls(kconf, root)

    # What was requested

    def read(self, path: Path, kind: str) -> Layer:
        """The assignments of a preset, fragment or `.config`; ConfigError names the line that is none."""
        return self.parse(dotconfig.read_text(path, self.shown(path)), self.shown(path), kind)

    def parse(self, text: str, shown: str, kind: str) -> Layer:
        """The same of a text that was read from the file called `shown`."""
        lines = dotconfig.parse_lines(text, shown)
        parts = (partial(self._line_assignments, x, Origin(kind, f"{shown}:{x.number}")) for x in lines)
        layer = collect(parts, self.out_of_range)
        self._settle(layer)
        return layer

    def base(self, directory: Path, *, dropped: list[str] | None = None) -> Layer:
        """Return what a directory's `.config` requests beyond the defaults, with the origins recorded next to
        it.

        The layer is the smallest that reproduces the file, so that defaults follow when a later layer changes
        what they depend on. A file edited by hand, or made with another tree, is taken literally, as C conf
        does; the other lines yield to the edited ones. Lines that kharness wrote for symbols that this tree
        no longer has are collected in `dropped`; without it they are refused like any unknown symbol.
        """
        shown = self.shown(directory / CONFIG)
        text = dotconfig.read_text(directory / CONFIG, shown)
        record = read_record(directory)
        # nobody has edited it: what was asked then gives this very file
        if record.written and self._gives(record.asked, text):
            return record.asked
        untouched: list[Assignment] = []
        edited: list[Assignment] = []
        follows: list[dotconfig.ConfigLine] = []
        for line in dotconfig.parse_lines(text, shown):
            symbol = self.kconf.syms.get(line.symbol)
            as_written = record.written.get(line.symbol) == (line.text or "n")
            if symbol and symbol.nodes and not has_prompt(symbol):
                if not as_written:
                    follows.append(line)
            elif dropped is not None and as_written and not (symbol and symbol.nodes):
                dropped.append(line.symbol)
            else:
                layer = untouched if as_written else edited
                layer.extend(self._line_assignments(line, Origin("config file", f"{shown}:{line.number}")))
        self._settle([*untouched, *edited])
        resolved = self.resolve(edited, yielding=untouched)
        self._check_follows(follows, shown)
        needed = resolved.beyond_defaults()
        before = {(a.symbol, a.value): a for a in record.asked}
        kept = (before.get((a.symbol, a.value), a) for a in resolved.asked)
        return [a for a in kept if a.symbol in needed or (a.symbol, a.value) in before]

    # The outcome

    def resolve(self, *layers: Layer, yielding: Layer = ()) -> Resolved:
        """The outcome of the layers, later ones winning.

        ConfigError for every assignment that did not take, with its reason; one that took until a
        later layer changed what it depends on is set aside instead. `yielding` is a layer below all others
        that nobody insists on: what does not take of it is set aside.
        """
        lowest = self._settle(yielding)
        settled = [lowest, *(self._settle(layer) for layer in layers)]
        asked = self._apply_asked(settled)
        resolved = self._known.find(asked, self._took, self._typed) or self._computed(lowest, settled, asked)
        self._requests.resolved()
        return resolved

    def _computed(
        self,
        lowest: Mapping[str, Assignment],
        settled: Sequence[Mapping[str, Assignment]],
        asked: list[Assignment],
    ) -> Resolved:
        """The outcome of what is in the tree; ConfigError as `resolve` has it."""
        without = [(a, self.kconf.syms[a.symbol]) for a in asked if not self._took(a)]
        failed = [(a, why_without_effect(self._lib, s, self.active_range(s), self)) for a, s in without]
        refused = [
            ConfigError(f"{at_assignment(assignment)}{assignment} {reason}", hint=hint)
            for assignment, (reason, hint) in failed
            if lowest.get(assignment.symbol) is not assignment and not self._took_before(assignment, settled)
        ]
        if refused:
            raise together(refused)
        set_aside = [assignment for assignment, _ in failed]
        if failed:
            asked = [a for a in asked if a not in set_aside]
            self._requests.apply(asked)
        by_symbol = {a.symbol: a for a in asked}
        values = {
            s.name: self._typed(s)
            for s in self.kconf.unique_defined_syms
            # out of reach a bool is n; a number or a text has no line in .config, and so no value
            if s.orig_type is self._lib.BOOL or s.config_string
        }
        if self.kconf.warnings:
            raise ConfigError(_one_line(self.kconf.warnings[0]))
        resolved = Resolved(
            values=values,
            text=config_text(self.kconf, self._nodes, self._lib),
            minimal=str(self.kconf._min_config_contents("")),
            asked=asked,
            origins={name: self._origin(name, by_symbol) for name in values},
            set_aside=set_aside,
            affects=self.affects,
        )
        if not failed:
            self._known.keep(asked, resolved)
        return resolved

    def overridden(self, before: Sequence[Layer], layer: Layer) -> list[tuple[Assignment, Assignment]]:
        """(new, old) for each assignment of a layer that changes what earlier layers requested."""
        asked = {a.symbol: a for a in merged([self._settle(earlier) for earlier in before])}
        pairs: list[tuple[Assignment, Assignment]] = []
        for new in self._settle(layer).values():
            choice = self.kconf.syms[new.symbol].choice
            rivals = {s.name for s in choice.syms} - {new.symbol} if choice and new.value == "y" else set()
            chosen = [a for a in asked.values() if a.symbol in rivals and a.value == "y"]
            same = [asked[new.symbol]] if new.symbol in asked else []
            pairs.extend((new, old) for old in chosen or same if str(old) != str(new))
        return pairs

    # For callers that set symbols themselves: the menu, and configurations made by rule

    def restore(self, assignments: Iterable[Assignment]) -> None:
        """Put exactly these values into the tree, unchecked; with none, back to the defaults."""
        self._requests.apply(assignments)

    def set_by_user(self) -> list[tuple[str, str]]:
        """(symbol, value) of everything that was set and is in effect, choices by their chosen member."""
        return [
            (symbol.name, str(symbol.str_value))
            for symbol in self.kconf.unique_defined_syms
            if symbol.user_value is not None
            and symbol.visibility
            and has_prompt(symbol)
            and (not symbol.choice or symbol.choice.selection is symbol)
        ]

    # What can be known about one symbol

    def symbol(self, name: str, value: str = "", origin: Origin | None = None) -> Any:
        """kconfiglib's symbol; ConfigError with the nearest known names if the tree does not define it."""
        self.option(name, value, origin)
        return self.kconf.syms[name]

    def type_of(self, symbol: Any) -> str:
        """`bool`, `int`, `hex` or `string`."""
        return str(self._lib.TYPE_TO_STR[symbol.orig_type])

    def place(self, symbol: Any) -> str:
        """Where a symbol is defined: `lenet5/Kconfig:33`."""
        return place_of(next((node for node in symbol.nodes if node.prompt), symbol.nodes[0]))

    def holds(self, expression: Any) -> bool:
        """Whether an expression is not n in this configuration."""
        return bool(self._lib.expr_value(expression))

    def condition(self, expression: Any) -> str:
        """An expression as written in Kconfig; empty if it always holds."""
        return "" if expression is self.kconf.y else str(self._lib.expr_str(expression))

    def active_range(self, symbol: Any) -> tuple[str, str]:
        """(low, high) of an int or hex as things stand; empty texts where anything goes."""
        for low, high, condition in symbol.ranges:
            if self._lib.expr_value(condition):
                return str(low.str_value), str(high.str_value)
        return "", ""

    def unmet(self, name: str) -> str:
        """Why a symbol is out of reach after the last `resolve`: `needs OPTIMIZER_ADAM=y, which is n`."""
        return unmet(self._lib, self.kconf.syms[name])[0]

    def current(self, name: str) -> str:
        """A symbol's text after the last `resolve`; empty if it is out of reach."""
        return str(self.kconf.syms[name].str_value)

    def reachable(self, name: str) -> bool:
        """Whether the last `resolve` left the symbol for the user to set."""
        return bool(self.kconf.syms[name].visibility)

    def symbols_in(self, expressions: Iterable[Any]) -> list[str]:
        """Return the names of the symbols that some expressions are made of."""
        items = {item for expression in expressions for item in self._lib.expr_items(expression)}
        return sorted(item.name for item in items if _is_symbol(item) and item.nodes)

    def shown(self, path: Path) -> str:
        """A path as messages show it: from the root on where it lies below it."""
        return shown_from(self.root, path)

    # Checking single assignments

    def _line_assignments(self, line: dotconfig.ConfigLine, origin: Origin) -> Layer:
        symbol = self.symbol(line.symbol, line.text or "n", origin)
        number = line.symbol in self.value_types
        value = dotconfig.plain_value(line, self.type_of(symbol), origin.where, number=number)
        return self.assignments(line.symbol, value, origin)

    def _settle(self, layer: Layer) -> dict[str, Assignment]:
        """One layer by symbol; ConfigError if it contradicts itself."""
        settled: dict[str, Assignment] = {}
        chosen: dict[Any, Assignment] = {}
        for a in map(self.checked, layer):
            earlier = settled.setdefault(a.symbol, a)
            if earlier.value != a.value:
                raise ConfigError(
                    f"{at_assignment(a)}{a} contradicts {earlier} ({earlier.origin.where})",
                    hint="keep one of them",
                )
            choice = self.kconf.syms[a.symbol].choice
            if choice and a.value == "y":
                other = chosen.setdefault(choice, a)
                if other.symbol != a.symbol:
                    raise ConfigError(
                        f"{at_assignment(a)}{a} contradicts {other} ({other.origin.where}): "
                        f"both are members of the choice '{choice.nodes[0].prompt[0]}'",
                        hint="keep one of them",
                    )
        return settled

    def _check_follows(self, lines: Sequence[dotconfig.ConfigLine], shown: str) -> None:
        """A symbol without a prompt must say in the file what the others make it."""
        for line in lines:
            value = dotconfig.plain_value(line, self.type_of(self.kconf.syms[line.symbol]), shown)
            now = self.kconf.syms[line.symbol].str_value
            if value != now:
                members = self.aliases.get(line.symbol, {})
                raise ConfigError(
                    f"{shown}:{line.number}: {show(line.symbol, value)} contradicts the rest of the file, "
                    f"which makes it {printable(now)}",
                    hint=f"remove the line; to change it set CONFIG_{members[value]}=y"
                    if value in members
                    else "remove the line",
                )

    # Working on kconfiglib's state

    def _apply_asked(self, settled: Sequence[Mapping[str, Assignment]]) -> list[Assignment]:
        """Put the merged layers into the tree; EXPERT with them where one of its options needs it.

        What a `.config` says of EXPERT yields to that, and nothing else does. Gives what was put in.
        """
        asked = merged(settled)
        self._requests.apply(asked)
        hidden = [a for a in asked if a.symbol in self._expert_options and not self._took(a)]
        if hidden and all(a.origin.kind == "config file" for a in asked if a.symbol == EXPERT):
            asked = [a for a in asked if a.symbol != EXPERT]
            asked.append(Assignment(EXPERT, "y", hidden[0].origin))
            self._requests.apply(asked)
        return asked

    def _took(self, a: Assignment) -> bool:
        symbol = self.kconf.syms[a.symbol]
        # A bool that is out of reach is n, and what EXPERT hides has its default.
        has_value = symbol.orig_type is self._lib.BOOL or a.symbol in self._expert_options
        return bool((symbol.visibility or has_value) and symbol.str_value == a.value)

    def _took_before(self, a: Assignment, settled: Sequence[Mapping[str, Assignment]]) -> bool:
        """Whether an assignment was in effect before the layers after its own came."""
        took = False
        for end in range(1, len(settled)):
            if not took and any(layer.get(a.symbol) is a for layer in settled[:end]):
                self._apply_asked(settled[:end])
                took = self._took(a)
        return took

    def _gives(self, layer: Layer, text: str) -> bool:
        """Whether a layer alone, in this tree, gives exactly this `.config`."""
        try:
            return self.resolve(layer).text == text
        except ConfigError:
            return False

    def _typed(self, symbol: Any) -> Value:
        text = str(symbol.str_value)
        try:
            return typed(self.type_of(symbol), text, self.value_types.get(symbol.name))
        except ValueError as error:
            # What was requested is checked before; what is left is a default that its own type refuses.
            raise ConfigError(
                f"{self.place(symbol)}: the default {show(symbol.name, text)} {error}"
            ) from None

    def _origin(self, name: str, asked: Mapping[str, Assignment]) -> Origin:
        """Who made a symbol what it is: for a choice's members and alias, who chose."""
        symbol = self.kconf.syms[name]
        if name in asked:
            return asked[name].origin
        member = next(iter(self.aliases.get(name, {}).values()), name)
        if choice := symbol.choice or self.kconf.syms[member].choice:
            deciding = choice.selection or symbol
            if deciding.name in asked:
                return asked[deciding.name].origin
        return self._defaults[name]

    @cached_property
    def _defaults(self) -> dict[str, Origin]:
        """Return what decides a symbol's value where no request does."""
        return {s.name: Origin("default", self.place(s)) for s in self.kconf.unique_defined_syms}

    @cached_property
    def _expert_options(self) -> frozenset[str]:
        """The symbols that EXPERT shows."""
        expert = self.kconf.syms.get(EXPERT)
        prompts = [(s.name, n.prompt) for s in self.kconf.unique_defined_syms for n in s.nodes if n.prompt]
        return frozenset(name for name, prompt in prompts if expert in self._lib.expr_items(prompt[1]))


def _known_option(symbol: Any, kconf: Any, lib: Any) -> KnownOption:
    ranges = [(low.str_value, high.str_value) for node in symbol.nodes for low, high, _ in node.ranges]
    # where the last of its ranges has no condition of its own
    limited = (bool(n.orig_ranges) and n.orig_ranges[-1][2] is kconf.y for n in symbol.nodes if n.prompt)
    return KnownOption(
        kind=lib.TYPE_TO_STR[symbol.orig_type],
        has_prompt=has_prompt(symbol),
        value_type=read_value_type(symbol),
        members=read_alias(symbol, lib),
        stands_for=stand_in(symbol, kconf, lib),
        ranges=ranges,
        is_limited=bool(ranges) and all(limited),
    )


def _check_clashes(kconf: Any, top: str) -> None:
    """ConfigError for an option that the Kconfig of an outside model defines, and the tree does as well.

    An entry without a prompt is none: it adds defaults to an option.
    """
    for symbol in kconf.unique_defined_syms:
        nodes = [node for node in symbol.nodes if node.prompt]
        own = [node for node in nodes if node.filename == top]
        if own and len(own) < len(nodes):
            other = next(node for node in nodes if node not in own)
            raise ConfigError(
                f"{symbol.name} is defined twice: {place_of(own[0])} and {place_of(other)}",
                hint="give yours another name; an entry without type and prompt adds a default to the other",
            )


def _one_line(warning: str) -> str:
    return " ".join(warning.removeprefix("warning: ").split())


def _is_symbol(item: Any) -> bool:
    return isinstance(item, _kconfiglib().Symbol)


@cache
def _kconfiglib() -> Any:
    """The kconfiglib module, if it is the one that kharness was written for."""
    try:
        import kconfiglib
    except ImportError as error:
        if error.name != "kconfiglib":
            raise shadowed("kconfiglib", f"does not load ({error})") from error
        raise ConfigError(
            "kconfiglib is not installed", hint="run it through make, or: pip install kconfiglib==14.1.0"
        ) from error
    found = getattr(kconfiglib, "VERSION", None)
    if found != KCONFIGLIB or hasattr(kconfiglib, "__path__"):
        kind = "package" if hasattr(kconfiglib, "__path__") else "module"
        raise shadowed("kconfiglib", f"is a {kind} of version {found}")
    return kconfiglib
