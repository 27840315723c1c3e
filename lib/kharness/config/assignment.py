"""Requested values, who requested each, and the configuration they give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from kharness.config.affects import Affects
from kharness.config.dotconfig import assigned, parse_lines
from kharness.config.output import printable
from kharness.config.values import Value

AUTO = "auto"
"""The `kind` of what a training has chosen by trials."""

CHOSEN_FOR: Mapping[str, str] = {
    "AMP": "AMP_AUTO",
    "COMPILE": "COMPILE_AUTO",
    "MICRO_BATCH_SIZE": "BATCH_SIZE_AUTO",
    "OPTIMIZER_MUON_BF16": "OPTIMIZER_MUON_BF16_AUTO",
}
"""Options that a training can choose by itself, with the symbol that asks for it and is n afterwards."""


@dataclass(frozen=True)
class Origin:
    """Who requested a value."""

    kind: str
    """'default', 'preset', 'fragment', 'make variable', 'flag', 'matrix axis', 'range file', 'config file',
    'auto' or the name of the make target that chose it: 'menuconfig', 'oldconfig', 'randconfig',
    'allyesconfig', 'allnoconfig'."""
    where: str = ""
    """`lenet5/defconfigs/x:3`, `TRACKER=both`, `--optimizer adamw`, `OPTIMIZER=adam|adamw`."""


@dataclass(frozen=True)
class Assignment:
    """One requested value."""

    symbol: str
    """Without the CONFIG_ prefix."""
    value: str
    """Value as Kconfig text, unquoted."""
    origin: Origin

    def __str__(self) -> str:
        return show(self.symbol, self.value)


Layer = Sequence[Assignment]


@dataclass(frozen=True)
class Resolved:
    """The outcome of a stack of layers."""

    values: Mapping[str, Value]
    """Typed; a bool that is n or out of reach is False, any other symbol out of reach is absent."""
    text: str
    """The `.config`, byte for byte what C conf writes."""
    minimal: str
    """Only what differs from the defaults, as `make savedefconfig` writes it."""
    asked: Layer
    """The assignments that hold, later layers having won."""
    origins: Mapping[str, Origin]
    """For every symbol in `values`."""
    set_aside: Layer
    """Assignments that a later layer made pointless by changing what they depend on."""
    affects: Affects
    """Words of kharness.config.affects for each option of the tree."""

    @cached_property
    def literals(self) -> Mapping[str, str]:
        """The line of `config.py` of every symbol in `values`."""
        return {name: literal(name, value) for name, value in self.values.items()}

    @cached_property
    def written(self) -> Mapping[str, str]:
        """Every symbol of `text` with what is right of its `=`; n for one that is not set."""
        return {symbol: text or "n" for symbol, text in assigned(self.text)}

    def beyond_defaults(self) -> set[str]:
        """The symbols of `minimal`."""
        return {line.symbol for line in parse_lines(self.minimal, "")}


def literal(name: str, value: object) -> str:
    """The line of `config.py` that gives a symbol its value."""
    return f"{name} = {value!r}"


def merged(settled: Sequence[Mapping[str, Assignment]]) -> list[Assignment]:
    """The last word on each symbol, in the order of asking: the last member of a choice that is set wins."""
    last: dict[str, Assignment] = {}
    for layer in settled:
        for name, assignment in layer.items():
            last.pop(name, None)
            last[name] = assignment
    return list(last.values())


def chosen_name(symbol: str) -> str | None:
    """Key of CHOSEN_FOR a symbol belongs to: itself, a member of its choice, or the option for it."""
    for name, switch in CHOSEN_FOR.items():
        if symbol in (name, switch) or symbol.startswith(f"{name}_"):
            return name
    return None


def origin_text(origin: Origin) -> str:
    """`preset lenet5/defconfigs/x:3`, `make variable TRACKER=both`."""
    return f"{origin.kind} {origin.where}".strip()


def show(symbol: str, value: str) -> str:
    """`SYMBOL=value` for a message: one line, whatever the value holds."""
    return f"{symbol}={printable(value)}"


def at(origin: Origin, name: str, value: str) -> str:
    """`where: ` for a message, nothing where that would only repeat the assignment."""
    repeats = origin.where in ("", show(name, value), f"CONFIG_{show(name, value)}")
    return "" if repeats else f"{origin.where}: "


def at_assignment(a: Assignment) -> str:
    """`where: ` of an assignment."""
    return at(a.origin, a.symbol, a.value)


def value_text(value: object) -> str:
    """A value as a line of `.config` has it, without quotes."""
    if isinstance(value, bool):
        return "y" if value else "n"
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def tracker_list(value: str) -> list[str]:
    """The trackers that TRACKER= names, `both` written out: `both,tensorboard` is three; `none` is none."""
    if value == "none":
        return []
    words = ("trackio,wandb" if word == "both" else word for word in value.split(","))
    return list(dict.fromkeys(",".join(words).split(",")))
