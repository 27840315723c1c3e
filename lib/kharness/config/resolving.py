"""kconfiglib's tree lacks these: outcomes known already, stand-ins, and `.config` as C conf writes it.

    known = KnownOutcomes(kconf, free_symbols(kconf, kconfiglib))
    known.keep(asked, resolved)
    known.find(other)                the outcome of another request, or None where it has to be computed

Cells of a matrix mostly differ in their seed, on which no other symbol depends; the other values of a
configuration, 300 of them, are the same. Symbols without a prompt, which nobody sets, stand for others.
"""

from __future__ import annotations

from collections.abc import (
    Callable,
    Hashable,
    ItemsView,
    Iterable,
    Iterator,
    KeysView,
    Mapping,
    Sequence,
    ValuesView,
)
from contextlib import contextmanager
from dataclasses import fields

from kharness.config.assignment import Assignment, Resolved, literal
from kharness.config.dotconfig import HEADER, assigned
from kharness.config.errors import ConfigError
from kharness.config.values import Value

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes as long as resolving all of a configuration
    from typing import Any


class KnownOutcomes:
    """Outcomes of earlier requests, by everything in them but the free symbols."""

    def __init__(self, kconf: Any, free: frozenset[str]) -> None:
        self._symbols: Mapping[str, Any] = kconf.syms
        self._free = free
        self._found: dict[Hashable, tuple[Resolved, Mapping[str, str]]] = {}

    def find(
        self,
        asked: Sequence[Assignment],
        took: Callable[[Assignment], bool],
        typed: Callable[[Any], Value],
    ) -> Resolved | None:
        """The outcome of a request that is in kconfiglib's tree already; None where it is not known."""
        found = self._found.get(self._key(asked))
        free = [a for a in asked if a.symbol in self._free]
        if found is None or not all(map(took, free)):
            return None
        known, lines = found
        return _Alike(
            known,
            values={a.symbol: typed(self._symbols[a.symbol]) for a in free},
            lines=[(lines[a.symbol], str(self._symbols[a.symbol].config_string)) for a in free],
            asked=asked,
        )

    def keep(self, asked: Sequence[Assignment], resolved: Resolved) -> None:
        """Note an outcome whose request is in kconfiglib's tree, and all of which took."""
        free = [a.symbol for a in asked if a.symbol in self._free]
        lines = {name: str(self._symbols[name].config_string) for name in free}
        if all(lines.values()):
            self._found[self._key(asked)] = resolved, lines

    def _key(self, asked: Sequence[Assignment]) -> Hashable:
        """Whether a free symbol has its default counts, too: then it is not in the minimal configuration."""
        return tuple((a.symbol, self._has_default(a.symbol)) if a.symbol in self._free else a for a in asked)

    def _has_default(self, name: str) -> bool:
        symbol = self._symbols[name]
        # by what kconfiglib's own minimal configuration goes by
        return bool(symbol.str_value == symbol._str_default())


class _Alike(Resolved):
    """An outcome as its difference from a known one: ten thousand whole ones take 360 MB."""

    def __init__(
        self,
        known: Resolved,
        *,
        values: Mapping[str, Value],
        lines: Sequence[tuple[str, str]],
        asked: Sequence[Assignment],
    ) -> None:
        """`lines` are pairs of an old line of its texts and the new one."""
        self._known: Resolved
        self._lines: Sequence[tuple[str, str]]
        self._own: Mapping[str, Value]
        own = {
            "values": Overlaid(known.values, values),
            "asked": asked,
            "origins": Overlaid(known.origins, {a.symbol: a.origin for a in asked if a.symbol in values}),
            "set_aside": known.set_aside,
            "affects": known.affects,
            "_known": known,
            "_lines": lines,
            "_own": values,
        }
        self.__dict__.update(own)

    @property
    def text(self) -> str:
        return self._replaced(self._known.text)

    @property
    def literals(self) -> Mapping[str, str]:
        own = {name: literal(name, value) for name, value in self._own.items()}
        return {**self._known.literals, **own}

    @property
    def written(self) -> Mapping[str, str]:
        own = {symbol: text or "n" for _, line in self._lines for symbol, text in assigned(line)}
        return {**self._known.written, **own}

    @property
    def minimal(self) -> str:
        return self._replaced(f"\n{self._known.minimal}")[1:]

    def __eq__(self, other: object) -> bool:
        names = [field.name for field in fields(Resolved)]
        return isinstance(other, Resolved) and all(getattr(self, n) == getattr(other, n) for n in names)

    __hash__ = None  # type: ignore[assignment]

    def _replaced(self, text: str) -> str:
        for old, new in self._lines:
            # with the line break before it, for another symbol's line may end in the same words
            text = text.replace(f"\n{old}", f"\n{new}", 1)
        return text


class Overlaid(Mapping[str, "Any"]):
    """A mapping with other values for some of its keys."""

    __slots__ = ("_base", "_own")

    def __init__(self, base: Mapping[str, Any], own: Mapping[str, Any]) -> None:
        self._base, self._own = base, own

    def __getitem__(self, name: str) -> Any:
        return self._own[name] if name in self._own else self._base[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._base)

    def __len__(self) -> int:
        return len(self._base)

    # Without these each key of a copy costs a call: `dict(overlaid.items())` does not.

    def keys(self) -> KeysView[str]:
        return self._base.keys()

    def values(self) -> ValuesView[Any]:
        return {**self._base, **self._own}.values()

    def items(self) -> ItemsView[str, Any]:
        return {**self._base, **self._own}.items()


def free_symbols(kconf: Any, lib: Any) -> frozenset[str]:
    """Numbers and texts with a prompt, whose value no symbol, choice, menu or comment depends on.

    `lib` is the module kconfiglib.
    """
    conditions = [node.dep for node in kconf.node_iter()]
    conditions += [node.visibility for node in kconf.node_iter() if node.item is lib.MENU]
    looked_at = {item for condition in conditions for item in lib.expr_items(condition)}
    return frozenset(
        symbol.name
        for symbol in kconf.unique_defined_syms
        if symbol.orig_type is not lib.BOOL
        and has_prompt(symbol)
        # what kconfiglib would compute anew when this one changes: symbols and choices that its value is part
        # of
        and not symbol._dependents
        and symbol not in looked_at
    )


class Requests:
    """Puts requests into kconfiglib's tree; in a batch only what differs from the one before.

    A whole request takes as long as all else of a cell.
    """

    def __init__(self, kconf: Any, free: frozenset[str]) -> None:
        self._kconf = kconf
        self._free = free
        self._is_batch = False
        # Without the free symbols: what was put in last, and what is there and has been resolved.
        self._last: list[tuple[str, str]] = []
        self._in_place: list[tuple[str, str]] | None = None

    def apply(self, asked: Iterable[Assignment]) -> None:
        """Make these the values of the tree, all others its defaults."""
        self._kconf.warnings.clear()
        symbols = self._kconf.syms
        free: list[tuple[str, str]] = []
        fixed: list[tuple[str, str]] = []
        for a in asked:
            (free if a.symbol in self._free else fixed).append((a.symbol, a.value))
        if fixed == self._in_place:
            for name in self._free.difference(name for name, _ in free):
                symbols[name].unset_value()
        else:
            self._kconf.unset_values()
            for name, value in fixed:
                symbols[name].set_value(value)
        for name, value in free:
            symbols[name].set_value(value)
        # kconfiglib warns once of a value that it holds: the next request has to begin anew.
        self._last, self._in_place = fixed, None

    def resolved(self) -> None:
        """Note that what was put in last has an outcome, and no warning."""
        self._in_place = self._last if self._is_batch else None

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Assume that nothing else changes the tree within this block."""
        self._is_batch = True
        try:
            yield
        finally:
            self._is_batch, self._in_place = False, None


def has_prompt(symbol: Any) -> bool:
    """Whether people set a symbol of kconfiglib; without a prompt it only follows others."""
    return any(node.prompt for node in symbol.nodes)


def stand_in(symbol: Any, kconf: Any, lib: Any) -> tuple[str, str] | None:
    """Return what a symbol stands for: (CHECKPOINT_EVERY, CHECKPOINT_UNIT_STEPS); None if for none.

    The second is the member of a choice that its default depends on, empty where there is none. `lib` is the
    module kconfiglib.
    """
    if symbol.orig_type is not lib.INT or has_prompt(symbol):
        return None
    followed, condition = symbol.nodes[0].orig_defaults[0]
    return (followed.name, "" if condition is kconf.y else condition.name)


def read_alias(symbol: Any, lib: Any) -> dict[str, str]:
    """{value: member} for a symbol that only says which member of a choice is set, else nothing.

    ConfigError for a value that two members make.
    """
    members: dict[str, str] = {}
    if symbol.orig_type is not lib.STRING or has_prompt(symbol):
        return {}
    for node in symbol.nodes:
        choices = set()
        for default, condition in node.orig_defaults:
            if not (default.is_constant and isinstance(condition, lib.Symbol) and condition.choice):
                return {}
            if members.setdefault(default.str_value, condition.name) != condition.name:
                place = place_of(symbol.nodes[0])
                raise ConfigError(f"{place}: two members make {symbol.name} {default.name}")
            choices.add(condition.choice)
        if len(choices) > 1:
            return {}
    return members


def place_of(node: Any) -> str:
    """Return where an entry stands: `lenet5/Kconfig:33`."""
    return f"{node.filename}:{node.linenr}"


def config_text(kconf: Any, nodes: Iterable[tuple[Any, bool]], lib: Any) -> str:
    """The `.config` as C conf writes it (kconfiglib's own writer adds `# end of` lines).

    `nodes` are those of the menu in their order, and which of them are symbols; `lib` is kconfiglib.
    """
    chunks = [f"#\n# {HEADER}\n# {kconf.mainmenu_text}\n#\n"]
    for node, is_symbol in nodes:
        if is_symbol:
            chunks.append(node.item.config_string)
        elif _heads_section(node, lib):
            chunks.append(f"\n#\n# {node.prompt[0]}\n#\n")
    return "".join(chunks)


def _heads_section(node: Any, lib: Any) -> bool:
    if not lib.expr_value(node.dep):
        return False
    is_menu = node.item is lib.MENU and lib.expr_value(node.visibility)
    return bool(is_menu or node.item is lib.COMMENT)
