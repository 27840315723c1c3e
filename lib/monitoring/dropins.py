"""Drop-ins: one module adds one tracker, optimizer, launcher, … and is known by its file name.

Every module of a kind's package, and of its groups, whose name does not begin with an underscore is one. Its
`Options`, a frozen dataclass, takes each field from the symbol named kind, name, option: `beta` of
optimizers/lion.py from OPTIMIZER_LION_BETA. Where that is not configured, as in a script that knows no
Kconfig, the field has the default of its entry in the Kconfig file next to the modules.

A model outside of the tree has its own in folders of the packages' names, `optimizers/` or `rules/`.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

from monitoring.errors import FollowerOptionsError, UnknownFollower, UserError
from monitoring.outside import outside


class DropIns:
    """All drop-ins of one kind."""

    def __init__(
        self,
        kind: str,
        package: str,
        *,
        groups: tuple[str, ...] = (),
        prefix: str = "",
        kconfig: tuple[str, ...] = ("Kconfig",),
        symbols: Mapping[str, str] | None = None,
        unknown: type[UserError] = UnknownFollower,
        refused: type[UserError] = FollowerOptionsError,
    ) -> None:
        self.kind = kind
        """Its name in messages: `tracker`."""
        self.package = package
        """The package whose modules they are: `monitoring.trackers`."""
        self.groups = groups
        """Folders of the package that hold some of them."""
        self.prefix = prefix
        """The beginning of their symbols if that is not the kind: `alert` for alert rules."""
        self.kconfig = kconfig
        """Files with the entries of their options, from the package's folder; patterns of pathlib."""
        self.symbols = symbols or {}
        """Documented symbols that the rule does not give: by `name_option`, or `option` for all of a kind."""
        self.unknown = unknown
        """The error for a name that no module has."""
        self.refused = refused
        """The error for an option that `Options` does not have or take, and for a module that is broken."""

    @property
    def names(self) -> tuple[str, ...]:
        """Return the module names in order, without importing any."""
        return tuple(sorted(self._modules))

    @property
    def _places(self) -> list[str]:
        """The folders of the package, and that of an outside model: its `optimizers/`, `rules/` and so on."""
        spec = importlib.util.find_spec(self.package)
        places = list(spec.submodule_search_locations or []) if spec else []
        own = os.path.join(outside() or "", self.package.rpartition(".")[2])
        return [*places, own] if outside() and own not in places and os.path.isdir(own) else places

    @cached_property
    def _modules(self) -> Mapping[str, str]:
        """Name -> the path to import it from."""
        found: dict[str, str] = {}
        files: dict[str, str] = {}
        places = [
            (group, os.path.join(place, group)) for group in ("", *self.groups) for place in self._places
        ]
        for group, place in places:
            for module in _modules_in(place):
                if module.startswith("_") or module in self.groups:
                    continue
                path = os.path.join(place, f"{module}.py")
                if (other := files.setdefault(module, path)) != path:
                    raise self.refused(
                        f"{self.kind} {module} is defined twice: {path} and {other}",
                        hint="give yours another name",
                    )
                found[module] = f"{self.package}.{group}".rstrip(".") + f".{module}"
        return found

    def group(self, name: str) -> str:
        """The group of a drop-in; empty for one of the package's own folder."""
        return self._modules[name].removeprefix(f"{self.package}.").rpartition(".")[0]

    def path(self, name: str) -> Path | None:
        """The file of a drop-in, which is not imported; None if there is none of the name."""
        module = f"{name.replace('-', '_')}.py"
        places = (Path(place, group, module) for place in self._places for group in ("", *self.groups))
        return next((path for path in places if path.is_file()), None)

    @cached_property
    def _defaults(self) -> Mapping[str, str]:
        """The defaults that depend on nothing, by symbol; of one that a choice sets, that of the choice."""
        folders = map(Path, self._places)
        files = [path for folder in folders for name in self.kconfig for path in sorted(folder.glob(name))]
        files += [own / "Kconfig"] if (own := outside()) else []
        text = "\n".join(path.read_text() for path in files)
        chosen = re.findall(r"^choice\b[^\n]*\n(?:\t.*\n)*?\tdefault (\w+)\n", text, flags=re.M)
        # Members of choices that are not their defaults: what depends on one is not the default either.
        choices = re.findall(r"^choice\b[^\n]*\n(.*?)^endchoice", text, flags=re.M | re.S)
        others = {name for one in choices for name in re.findall(r"^config (\w+)", one, flags=re.M)}
        others -= set(chosen)
        found = {}
        for symbol, entry in re.findall(r"^config (\w+)\n((?:[\t ].*\n|\n(?=\t))*)", text, flags=re.M):
            defaults = re.findall(r"^\tdefault (.+?)(?: if (.+))?$", entry, flags=re.M)
            if defaults and not defaults[-1][1] and all(when in others for _, when in defaults[:-1]):
                found[symbol] = defaults[-1][0].strip('"')
            elif defaults and not defaults[0][1]:
                found[symbol] = defaults[0][0].strip('"')
            elif all(when for _, when in defaults):
                found.update((symbol, value.strip('"')) for value, when in defaults if when in chosen)
        return found

    def load(self, name: str) -> ModuleType:
        """The module of a drop-in, an underscore for each hyphen of its name.

        `unknown` lists the known; `refused` is for one that cannot be imported.
        """
        module = name.replace("-", "_")
        if module not in self._modules:
            raise self.unknown(
                f"unknown {self.kind} {name!r}", hint=f"known {self.kind}s: {', '.join(self.names)}"
            )
        try:
            path = self._modules[module]
            if path not in sys.modules:
                package = importlib.import_module(self.package)
                package.__path__ += [place for place in self._places if place not in package.__path__]
            return importlib.import_module(path)
        except UserError:
            raise
        except Exception as error:
            raise self.refused(
                f"{self.kind} {name!r} cannot be imported: {type(error).__name__}: {error}",
                hint=f"python -c 'import {self._modules[module]}' shows where",
            ) from error

    def symbol(self, name: str, option: str) -> str:
        """Return the symbol that gives a drop-in one of its options."""
        own = f"{name}_{option}".replace("-", "_")
        by_rule = f"{self.prefix or self.kind}_{own}".upper()
        return self.symbols.get(own) or self.symbols.get(option) or by_rule

    def configured(self, name: str, config: Mapping[str, object]) -> dict[str, object]:
        """Return the options that a configuration has for a drop-in, by field."""
        from dataclasses import fields  # a program under the bridge waits for the names of drop-ins alone

        symbols = {own.name: self.symbol(name, own.name) for own in fields(self.load(name).Options)}
        return {option: config[symbol] for option, symbol in symbols.items() if symbol in config}

    def made(self, name: str, values: Mapping[str, object]) -> Any:
        """The `Options` of these values, lists as tuples; `refused` for what is unknown, missing or wrong.

        What is missing has its default in Kconfig, if that has one that depends on nothing.
        """
        from dataclasses import MISSING, fields  # as above

        own = fields(self.load(name).Options)
        known = [option.name for option in own]
        for key in values:
            if key not in known:
                raise self.refused(
                    f"{name} has no option {key!r}", hint=f"its options: {', '.join(known) or 'none'}"
                )
        filled = {}
        for option in own:
            if option.name not in values and option.default is option.default_factory is MISSING:
                symbol = self.symbol(name, option.name)
                if symbol not in self._defaults:
                    raise self.refused(
                        f"{symbol} is not configured",
                        hint=f"{self.kind} {name} needs `config {symbol}` in Kconfig",
                    )
                filled[option.name] = _typed(self._defaults[symbol], str(option.type))
        values = {**filled, **values}
        plain = {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
        try:
            return self.load(name).Options(**plain)
        except (TypeError, ValueError) as error:
            raise self.refused(f"{self.kind} {name}: {error}") from error

    def options(self, name: str, config: Mapping[str, object]) -> Any:
        """Return the `Options` of a drop-in as a configuration has them."""
        return self.made(name, self.configured(name, config))


def _modules_in(folder: str) -> Iterator[str]:
    """Yield the modules and packages in a folder, as pkgutil.iter_modules does, which imports inspect."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:  # a kind has not all groups
        return
    for name in names:
        stem, ending = os.path.splitext(name)
        if ending == ".py":
            yield stem
        elif os.path.isfile(os.path.join(folder, name, "__init__.py")):
            yield name


def _typed(text: str, annotation: str) -> object:
    """A default of Kconfig as the value of a field."""
    if "tuple" in annotation:
        return tuple(_typed(part, annotation.removeprefix("tuple")) for part in text.split())
    if "bool" in annotation:
        return text == "y"
    if "float" in annotation:
        return float(text)
    return int(text) if "int" in annotation else text
