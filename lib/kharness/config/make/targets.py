"""The make targets that configure, one function each; `scripts/kconfig.py TARGET [NAME=value…]` runs them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kharness.config.assignment import Assignment, Layer, Origin, origin_text
from kharness.config.errors import ConfigError
from kharness.config.generate import write_config, write_file
from kharness.config.make import variables as make_variables
from kharness.config.make.typed import typed_make
from kharness.config.output import say
from kharness.config.places import asked_path
from kharness.config.presets import DEFAULT, default_preset, find_preset, listing, starting_layer
from kharness.config.tree import CONFIG, Tree
from kharness.config.values import ValueType
from monitoring.counts import counted

if TYPE_CHECKING:
    from random import Random


@dataclass(frozen=True)
class Request:
    """One call of a target."""

    tree: Tree
    variables: dict[str, str]
    directory: Path
    """Where `.config` lives."""

    def command_line(self) -> Layer:
        """TRACKER=, GPU_MONITOR= and CONFIG_…= as a layer."""
        single = make_variables.less_axes(self.tree, self.variables, os.environ)
        return make_variables.layer(self.tree, single)

    def needs(self, name: str, example: str) -> str:
        """A variable that the target cannot do without."""
        value = self.variables.get(name, "").strip()
        if not value:
            raise ConfigError(f"{name} is not given", hint=f"for example: {example}")
        return value

    def write(self, source: str, *layers: Layer) -> None:
        """Resolve, write, and say in one line what the configuration is made from."""
        resolved = self.tree.resolve(*layers)
        changed = write_config(resolved, self.directory, root=self.tree.root)
        for assignment in resolved.set_aside:
            if not self.tree.kconf.syms[assignment.symbol].choice:
                reason = self.tree.unmet(assignment.symbol)
                say(f"note: {assignment} ({assignment.origin.where}) is set aside: {reason}")
        asked_now = dict.fromkeys(a.origin.where for a in layers[-1]) if len(layers) > 1 else ()
        made_from = ", ".join([source, *asked_now])
        say(f"{self.tree.shown(self.directory / CONFIG)}{'' if changed else ' (unchanged)'}: {made_from}")


def run(argv: Sequence[str], root: Path) -> int:
    """`TARGET [NAME=value…]`."""
    name, *words = argv or [""]
    if name not in TARGETS:
        raise ConfigError(f"{name!r} is not a configuration target", hint=f"one of {', '.join(TARGETS)}")
    variables = make_variables.given(words, os.environ, name, root=root)
    directory = make_variables.output_directory(variables, root)
    TARGETS[name](Request(Tree.load(root), variables, directory))
    return 0


def defconfig(request: Request) -> None:
    """[DEFCONFIG=name|path]: start from a preset."""
    # KHARNESS_PRESET is the Makefile's word for what `make defconfig-NAME` names.
    asked = os.environ.get("KHARNESS_PRESET") or request.variables.get("DEFCONFIG", DEFAULT)
    preset = find_preset(request.tree.root, asked)
    base, command_line = request.tree.read(preset, "preset"), request.command_line()
    request.write(request.tree.shown(preset), base, command_line)
    axes_given = any(assignment.symbol == "MATRIX_AXES" for assignment in command_line)
    models = [request.tree.resolve(*layers).values["MODEL"] for layers in ((base,), (base, command_line))]
    if models[0] != models[1] and not axes_given:
        for axes in (assignment for assignment in base if assignment.symbol == "MATRIX_AXES"):
            told = "make test_matrix compares by them; MATRIX_AXES= leaves them out"
            say(f"note: {axes} ({axes.origin.where}) stays with another model: {told}")


def olddefconfig(request: Request) -> None:
    """Bring `.config` up to date with the tree, new symbols at their defaults."""
    request.write(*_start(request), request.command_line())


def oldconfig(request: Request) -> None:
    """Bring `.config` up to date, asking for each new symbol."""
    from kharness.config.make import questions

    source, base = _start(request)
    mentioned = questions.mentioned_symbols(request.directory)
    command_line = request.command_line()
    given = {assignment.symbol for assignment in command_line}
    answers = questions.ask(request.tree, [base, command_line], mentioned | given, input)
    request.write(source, base, answers, command_line)


def menuconfig(request: Request) -> None:
    """Edit `.config` in a menu."""
    from kharness.config.make.menu import open_menu

    command_line = request.command_line()
    try:
        base = starting_layer(request.tree, request.directory)
        request.tree.resolve(base)
    except ConfigError as error:
        if command_line:
            raise
        open_menu(request.tree, request.directory, error)
    else:
        asked = request.tree.resolve(base, command_line).asked
        open_menu(request.tree, request.directory, asked, unsaved=bool(command_line))


def savedefconfig(request: Request) -> None:
    """Write `defconfig`: only what differs from the defaults."""
    resolved = request.tree.resolve(starting_layer(request.tree, request.directory), request.command_line())
    path = request.directory / "defconfig"
    write_file(path, resolved.minimal.encode())
    say(f"{request.tree.shown(path)}: {counted(len(resolved.minimal.splitlines()), 'line')}")


def list_defconfigs(request: Request) -> None:
    """Every preset: what it is and what it needs."""
    say("\n".join(listing(request.tree, typed_make("test_matrix"))))


def list_new(request: Request, *, with_help: bool) -> None:
    """Symbols that `.config` does not mention yet, with their defaults."""
    from kharness.config.make import questions

    request.tree.resolve(starting_layer(request.tree, request.directory), request.command_line())
    for option in questions.new_options(request.tree, questions.mentioned_symbols(request.directory)):
        say(f"CONFIG_{option.name}={request.tree.current(option.name)}")
        if with_help:
            say(f"  {option.explanation}\n  {option.type_text}; default {option.default_text}\n")


def switch_all(request: Request, value: str, target: str) -> None:
    """Every bool on (y) or off (n)."""
    layer = all_bools(request.tree, value, Origin(target))
    request.write(f"every bool {'on' if value == 'y' else 'off'}", layer, request.command_line())


def alldefconfig(request: Request) -> None:
    """Every symbol at its default."""
    request.write("the defaults", [], request.command_line())


def randconfig(request: Request) -> None:
    """[SEED=]: random values, the same ones for the same seed."""
    from random import Random, SystemRandom

    seed = request.variables.get("SEED") or str(SystemRandom().randrange(2**32))
    layer = random_values(request.tree, Random(seed), Origin("randconfig", f"SEED={seed}"))
    request.write(f"random values with SEED={seed}", layer, request.command_line())


def mergeconfig(request: Request) -> None:
    """FRAGMENTS="a b": put fragments on top of `.config`, in order."""
    source, base = _start(request)
    asked = request.needs("FRAGMENTS", 'make mergeconfig FRAGMENTS="first second"').split()
    layers = [
        base,
        *(request.tree.read(asked_path("FRAGMENTS", name).absolute(), "fragment") for name in asked),
    ]
    overridden = [
        pair for end in range(1, len(layers)) for pair in request.tree.overridden(layers[:end], layers[end])
    ]
    request.write(", ".join([source, *asked]), *layers, request.command_line())
    for new, old in overridden:
        print(
            f"warning: {new.origin.where}: {new} overrides {old} ({origin_text(old.origin)})", file=sys.stderr
        )


def configwhy(request: Request) -> None:
    """Print a symbol's value, its origin and its dependencies (SYMBOL=X)."""
    from kharness.config.make.provenance import why

    name = request.needs("SYMBOL", "make configwhy SYMBOL=LEARNING_RATE")
    base = starting_layer(request.tree, request.directory)
    resolved = request.tree.resolve(base, request.command_line())
    say("\n".join(why(request.tree, resolved, name)))


def configdiff(request: Request) -> None:
    """A= B=: the symbols in which two configurations or run directories differ."""
    from kharness.config.make.provenance import differences

    example = "make configdiff A=results/a/adam B=results/a/sgd"
    a, b = request.needs("A", example), request.needs("B", example)
    say("\n".join(differences(request.tree, a, b)) or "no difference")


def _start(request: Request) -> tuple[str, Layer]:
    """Return what `.config` requests, in words and as a layer; symbols no longer in the tree are reported and
    dropped.
    """
    if not (request.directory / CONFIG).exists():
        preset = default_preset(request.tree)
        source = request.tree.shown(preset) if preset else "the defaults"
        return source, starting_layer(request.tree, request.directory)
    dropped: list[str] = []
    base = request.tree.base(request.directory, dropped=dropped)
    for name in dropped:
        say(f"note: {name} is gone from the option tree and dropped")
    return "as before", base


def all_bools(tree: Tree, value: str, origin: Origin) -> Layer:
    """Every bool that can be `value` (y or n); choices keep their default member, as C conf does."""
    return _visit(tree, origin, lambda symbol: None if symbol.choice or not _is_bool(tree, symbol) else value)


def random_values(tree: Tree, random: Random, origin: Origin) -> Layer:
    """A random member of each choice, random bools, and random numbers within range or `Value:` type."""
    picked: dict[Any, Any] = {}

    def pick(symbol: Any) -> str | None:
        if symbol.choice:
            if symbol.choice not in picked:
                picked[symbol.choice] = random.choice([s for s in symbol.choice.syms if s.visibility])
            return "y" if picked[symbol.choice] is symbol else None
        if _is_bool(tree, symbol):
            return random.choice("yn")
        if spec := tree.value_types.get(symbol.name):
            count = (spec.count or random.randint(1, 3)) if spec.is_list else 1
            return " ".join(_random_number(spec, random) for _ in range(count))
        low, high = tree.active_range(symbol)
        return str(random.randint(int(low), int(high))) if low else None

    return _visit(tree, origin, pick)


def _visit(tree: Tree, origin: Origin, pick: Callable[[Any], str | None]) -> Layer:
    """Ask `pick` once for each symbol within reach, until what it said brings no more into reach."""
    tree.restore([])
    said: dict[str, str | None] = {}
    waiting = True
    while waiting:
        waiting = False
        for symbol in tree.kconf.unique_defined_syms:
            if symbol.name not in said and symbol.visibility:
                waiting = True
                said[symbol.name] = value = pick(symbol)
                if value is not None:
                    symbol.set_value(value)
    return [Assignment(name, value, origin) for name, value in tree.set_by_user()]


def _is_bool(tree: Tree, symbol: Any) -> bool:
    return tree.type_of(symbol) == "bool"


def _random_number(spec: ValueType, random: Random) -> str:
    """A number within the bounds: even between two of them, log-uniform beyond a single one."""
    low = max((bound for symbol, bound in spec.bounds if symbol in (">", ">=")), default=None)
    high = min((bound for symbol, bound in spec.bounds if symbol in ("<", "<=")), default=None)
    while True:
        step = 10 ** random.uniform(-6, 1)
        if low is not None and high is not None:
            number = random.uniform(low, high)
        elif high is not None:
            number = high - step
        else:
            number = (low or 0) + step
        text = str(round(number)) if spec.item == "int" else f"{number:.6g}"
        try:
            spec.parse_item(text)
        except ValueError:
            continue  # rounding met an open bound
        return text


TARGETS: dict[str, Callable[[Request], None]] = {
    "defconfig": defconfig,
    "menuconfig": menuconfig,
    "oldconfig": oldconfig,
    "olddefconfig": olddefconfig,
    "savedefconfig": savedefconfig,
    "list-defconfigs": list_defconfigs,
    "listnewconfig": partial(list_new, with_help=False),
    "helpnewconfig": partial(list_new, with_help=True),
    "allyesconfig": partial(switch_all, value="y", target="allyesconfig"),
    "allnoconfig": partial(switch_all, value="n", target="allnoconfig"),
    "alldefconfig": alldefconfig,
    "randconfig": randconfig,
    "mergeconfig": mergeconfig,
    "configwhy": configwhy,
    "configdiff": configdiff,
}
