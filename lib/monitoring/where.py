"""A small language that selects runs: `optimizer=adamw and val_loss<0.4`, `lenet status=failed`.

A condition is NAME OPERATOR VALUE with one of `=` `!=` `<` `<=` `>` `>=`, `~` (contains) and `!~`; a word by
itself is contained in the run's name. Conditions beside each other hold together; `and`, `or`, `not` and
brackets combine them. A NAME is an option, a metric (its newest value; `best.NAME` is its best), or a fact
such as `status`, `step` or `seconds`. Letters' case does not matter, nor whether an option is written with
`CONFIG_`. What a run does not have fulfills no condition. Nothing is evaluated but these comparisons.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from operator import itemgetter

from monitoring.errors import UserError

Lookup = Callable[[str], object]
"""Name of a field in small letters -> its value, None where the run has none."""

Condition = Callable[[Lookup], bool]

_TOKEN = re.compile(
    r"""\s*(?:(?P<quoted>"[^"]*"|'[^']*')|(?P<sign>[()])|(?P<operator>>=|<=|!=|!~|==|=|<|>|~)"""
    r"""|(?P<word>[^\s()=<>!~"']+))"""
)
NAME = "name"
_TRUTHS = {"true": 1.0, "y": 1.0, "yes": 1.0, "false": 0.0, "n": 0.0, "no": 0.0}
MOST_CHARACTERS = 2000
MOST_BRACKETS = 50
# Values of a field that are named where none is near.
MOST_NAMED = 6


class WhereError(UserError):
    """A condition cannot be parsed: the reason and its position."""


@dataclass(frozen=True)
class Where:
    """A parsed selection."""

    text: str
    fields: frozenset[str]
    """Names that it compares, in small letters."""
    _condition: Condition
    _equal: Sequence[tuple[str, str]] = ()
    """Fields with the value that each is to have."""

    def __call__(self, lookup: Lookup) -> bool:
        """Whether a run with these fields is selected."""
        return self._condition(lookup)

    def check(self, known: Collection[str]) -> None:
        """Raise WhereError for a field that no run has."""
        check_known(self.fields, known)

    def why_none(self, values: Callable[[str], Collection[object]]) -> str:
        """Return why no run matches: a value that no run has; empty if all values exist.

        `values` are those of a field.
        """
        for field, wanted in self._equal:
            known = list(dict.fromkeys(map(str, values(field))))
            if not known:
                return f"no run has {field}"
            if any(_compared(field, "=", wanted)({field: value}.get) for value in known):
                continue
            small = {name.lower(): name for name in known}
            found = [] if _number(wanted) is not None else get_close_matches(wanted.lower(), small, n=1)
            near = [small[name] for name in found]
            hint = f"did you mean {near[0]}?" if near else f"it is {', '.join(known[:MOST_NAMED])}"
            more = " …" if not near and len(known) > MOST_NAMED else ""
            return f"no run has {field}={wanted}: {hint}{more}"
        return ""


def check_known(fields: Iterable[str], known: Collection[str]) -> None:
    """Raise WhereError for the first of these fields that is not known, with what is near."""
    for field in sorted({*fields}.difference(known)):
        near = get_close_matches(field, known, n=1)
        more = " …" if len(known) > MOST_NAMED else ""
        there = f"there are {', '.join(sorted(known)[:MOST_NAMED])}{more}"
        raise WhereError(f"no run has {field}", hint=f"did you mean {near[0]}?" if near else there)


def parse_where(text: str) -> Where:
    """Return the selection that a text describes; one without any word selects everything."""
    if len(text) > MOST_CHARACTERS:
        raise WhereError(f"the condition has more than {MOST_CHARACTERS} characters")
    parser = _ConditionParser(_tokens(text))
    condition = parser.whole()
    return Where(text, frozenset(parser.fields), condition, parser.equal)


def field_name(name: str) -> str:
    """Return the name used for lookup: lower case, without CONFIG_."""
    return name.lower().removeprefix("config_")


def spellings(names: Iterable[str]) -> dict[str, str]:
    """Return each option in small letters with how it is spelled, of several alike the first.

    An axis has its name in capitals, an option of a command as it was typed: `LR` and `lr` are one option.
    """
    found: dict[str, str] = {}
    for name in names:
        found.setdefault(name.lower(), name)
    return found


def _tokens(text: str) -> list[tuple[str, str]]:
    """Split into (kind, text)."""
    found: list[tuple[str, str]] = []
    place, text = 0, text.rstrip()
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            raise WhereError(f"{text[place:].strip()[:40]} has no end quote", hint="close the quotes")
        kind = str(match.lastgroup)
        found.append((kind, match.group(kind)))
        place = match.end()
    return found


class _ConditionParser:
    """Recursive descent over the tokens: or, and, not, one condition."""

    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self.fields: set[str] = set()
        self.equal: list[tuple[str, str]] = []
        self._tokens = tokens
        self._at = 0
        self._depth = 0

    def whole(self) -> Condition:
        if not self._tokens:
            return lambda lookup: True
        condition = self._alternatives()
        if self._at < len(self._tokens):
            raise WhereError(f"unexpected {self._tokens[self._at][1]}", hint="lr<0.1 and (adamw or sgd)")
        return condition

    def _next_is(self, *words: str) -> bool:
        if self._at >= len(self._tokens):
            return False
        kind, text = self._tokens[self._at]
        return kind != "quoted" and text.lower() in words

    def _alternatives(self) -> Condition:
        parts = [self._together()]
        while self._next_is("or"):
            self._at += 1
            parts.append(self._together())
        return parts[0] if len(parts) == 1 else lambda lookup: any(part(lookup) for part in parts)

    def _together(self) -> Condition:
        begins, parts, slow = self._at, [self._one()], []
        while self._at < len(self._tokens) and not self._next_is("or", ")"):
            slow.append(self._needs_best(begins))
            begins = self._at
            if self._next_is("and"):
                self._at += 1
            parts.append(self._one())
        slow.append(self._needs_best(begins))
        # last, because whole journals are read for it
        parts = [part for _, part in sorted(zip(slow, parts, strict=True), key=itemgetter(0))]
        return parts[0] if len(parts) == 1 else lambda lookup: all(part(lookup) for part in parts)

    def _needs_best(self, begins: int) -> bool:
        """Whether the tokens from there on name a metric's best value."""
        return any(text.lower().startswith("best.") for _, text in self._tokens[begins : self._at])

    def _one(self) -> Condition:
        if self._next_is("not"):
            self._at += 1
            inner = self._deeper(self._one)
            return lambda lookup: not inner(lookup)
        if self._next_is("("):
            self._at += 1
            inner = self._deeper(self._alternatives)
            if not self._next_is(")"):
                raise WhereError("a bracket is not closed", hint="add )")
            self._at += 1
            return inner
        return self._comparison()

    def _deeper(self, rule: Callable[[], Condition]) -> Condition:
        self._depth += 1
        if self._depth > MOST_BRACKETS:
            raise WhereError(f"more than {MOST_BRACKETS} brackets stand in each other")
        condition = rule()
        self._depth -= 1
        return condition

    def _comparison(self) -> Condition:
        kind, text = self._take("a condition")
        if kind not in ("word", "quoted"):
            raise WhereError(f"{text} stands where a name should", hint="optimizer=adamw and val_loss<0.4")
        if self._at < len(self._tokens) and self._tokens[self._at][0] == "operator":
            operator = self._tokens[self._at][1]
            self._at += 1
            value_kind, value = self._take(f"a value after {operator}")
            if value_kind not in ("word", "quoted"):
                raise WhereError(f"no value stands after {text}{operator}", hint=f"{text}{operator}0.1")
            field = field_name(_unquoted(text))
            self.fields.add(field)
            operator = "=" if operator == "==" else operator
            if operator == "=":
                self.equal.append((field, _unquoted(value)))
            return _compared(field, operator, _unquoted(value))
        return _compared(NAME, "~", _unquoted(text))

    def _take(self, wanted: str) -> tuple[str, str]:
        if self._at >= len(self._tokens):
            raise WhereError(f"{wanted} is missing at the end", hint="optimizer=adamw and val_loss<0.4")
        self._at += 1
        return self._tokens[self._at - 1]


def _unquoted(text: str) -> str:
    return text[1:-1] if text[:1] in "\"'" else text


def _number(value: object) -> float | None:
    if isinstance(value, (bool, int, float)):
        return float(value)
    try:
        return float(str(value))
    except ValueError:
        return None


def _compared(field: str, operator: str, wanted: str) -> Condition:
    text, number = wanted.lower(), _number(wanted)
    truth = _TRUTHS.get(text)

    def equal(value: object) -> bool:
        if isinstance(value, bool) and truth is not None:
            return float(value) == truth
        if number is not None and (own := _number(value)) is not None:
            return own == number
        return str(value).lower() == text

    def fulfilled(lookup: Lookup) -> bool:
        value = lookup(field)
        # What a run does not have fulfills nothing, != neither, as NULL in SQL.
        if value is None:
            return False
        if operator in ("=", "!="):
            return equal(value) == (operator == "=")
        if operator in ("~", "!~"):
            return (text in str(value).lower()) == (operator == "~")
        own = _number(value)
        if own is None or number is None:
            return False
        return {"<": own < number, "<=": own <= number, ">": own > number, ">=": own >= number}[operator]

    return fulfilled
