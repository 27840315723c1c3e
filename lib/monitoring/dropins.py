"""Drop-ins: one module adds one tracker, optimizer, launcher, … and is known by its file name.

Every module of a kind's package whose name does not begin with an underscore is one. Its `Options`, a frozen
dataclass, takes each field from the symbol named kind, name, option: `beta` of optimizers/lion.py from
OPTIMIZER_LION_BETA. A field whose symbol is not configured keeps its default.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cached_property
from types import ModuleType
from typing import Any

from monitoring.errors import FollowerOptionsError, UnknownFollower, UserError


@dataclass(frozen=True)
class DropIns:
    """All drop-ins of one kind."""

    kind: str
    """As messages say it: `tracker`."""
    package: str
    """Whose modules they are: `monitoring.trackers`."""
    prefix: str = ""
    """How the symbols begin if not with the kind: `alert` for alert rules."""
    symbols: Mapping[str, str] = field(default_factory=dict)
    """Documented symbols that the rule does not give: by `name_option`, or by `option` for all of a kind."""
    unknown: type[UserError] = UnknownFollower
    """The error for a name that no module has."""
    refused: type[UserError] = FollowerOptionsError
    """The error for an option that `Options` does not have or take."""

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The module names in order; none of them is imported."""
        spec = importlib.util.find_spec(self.package)
        folders = spec.submodule_search_locations if spec else None
        found = (module.name for module in pkgutil.iter_modules(folders or []))
        return tuple(sorted(name for name in found if not name.startswith("_")))

    def load(self, name: str) -> ModuleType:
        """The module of a drop-in, an underscore for each hyphen of its name; `unknown` lists the known."""
        module = name.replace("-", "_")
        if module not in self.names:
            raise self.unknown(
                f"unknown {self.kind} {name!r}", hint=f"known {self.kind}s: {', '.join(self.names)}"
            )
        return importlib.import_module(f"{self.package}.{module}")

    def symbol(self, name: str, option: str) -> str:
        """The symbol that gives a drop-in one of its options."""
        own = f"{name}_{option}".replace("-", "_")
        by_rule = f"{self.prefix or self.kind}_{own}".upper()
        return self.symbols.get(own) or self.symbols.get(option) or by_rule

    def configured(self, name: str, config: Mapping[str, object]) -> dict[str, object]:
        """The options that a configuration has for a drop-in, by field."""
        symbols = {own.name: self.symbol(name, own.name) for own in fields(self.load(name).Options)}
        return {option: config[symbol] for option, symbol in symbols.items() if symbol in config}

    def made(self, name: str, values: Mapping[str, object]) -> Any:
        """The `Options` of these values, lists as tuples; `refused` for what is unknown, missing or wrong."""
        own = fields(self.load(name).Options)
        known = [option.name for option in own]
        for key in values:
            if key not in known:
                raise self.refused(
                    f"{name} has no option {key!r}", hint=f"its options: {', '.join(known) or 'none'}"
                )
        for option in own:
            if option.name not in values and option.default is option.default_factory is MISSING:
                symbol = self.symbol(name, option.name)
                raise self.refused(
                    f"{symbol} is not configured",
                    hint=f"{self.kind} {name} needs `config {symbol}` in Kconfig",
                )
        plain = {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
        try:
            return self.load(name).Options(**plain)
        except (TypeError, ValueError) as error:
            raise self.refused(f"{self.kind} {name}: {error}") from error

    def options(self, name: str, config: Mapping[str, object]) -> Any:
        """The `Options` of a drop-in as a configuration has them."""
        return self.made(name, self.configured(name, config))
