"""options_doc.py [--check]: write docs/options.md from the Kconfig help texts, or say it is out of date."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kharness.config.describe import Option, options
from kharness.config.errors import ConfigError, run_command
from kharness.config.generate import write_file
from kharness.config.tree import Tree

ROOT = Path(__file__).resolve().parent.parent
HEAD = """\
# Options

Every symbol of the option tree, from the Kconfig files by `make docs`. `MAX_STEPS` is set by
`CONFIG_MAX_STEPS=100` on make's command line or in a preset, and by `--max-steps` on a training script's;
only `MODEL` has no flag. [Configuration](configuration.md) explains both, and what an option affects: what is
said of its menu, or at the option.
"""


def page(tree: Tree) -> str:
    """The page."""
    by_name = {option.name: option for option in options(tree)}
    value_of = {name: (o.name, value) for o in by_name.values() for value, name in o.members.items()}
    # What other symbols select says nothing that they do not.
    shown = [
        option
        for option in by_name.values()
        if option.name not in value_of and (option.type != "bool" or option.prompt)
    ]
    chunks = [HEAD]
    for menu in dict.fromkeys(option.menu for option in shown):
        entries = [option for option in shown if option.menu == menu]
        common = [part for part in _conditions(entries[0]) if all(part in _conditions(o) for o in entries)]
        [(usual, times)] = Counter(option.affects_text for option in entries).most_common(1)
        words = f"{'All' if times == len(entries) else 'Most'} affect {usual.replace(', ', ' and ')}."
        if common:
            words = f"All depend on `{_as_values(' && '.join(common), value_of)}`. {words}"
        chunks.append(f"\n## {': '.join(menu)}\n\n{words}\n")
        for option in entries:
            facts = _as_values("; ".join(_facts(option, common, usual)), value_of)
            chunks.append(f"\n### {option.name}\n\n{option.explanation}\n\n({facts})\n")
            values = [f"- `{v}` ({n}): {by_name[n].explanation}\n" for v, n in option.members.items()]
            chunks += ["\n", *values] if values else []
    return "".join(chunks)


def _conditions(option: Option) -> list[str]:
    """The parts of its condition that all must hold."""
    return re.split(r" && (?![^(]*\))", option.depends) if option.depends else []


def _facts(option: Option, common: Sequence[str], usual: str) -> Iterator[str]:
    """Type, default, effects and condition, where the menu has not said them."""
    if not option.members:
        yield re.sub(r"(\d+) to (\d+)", r"\1..\2", option.type_text)
    if option.default_text:
        yield f"default `{option.default_text}`"
    if option.affects_text != usual:
        yield f"affects {option.affects_text}"
    if own := [part for part in _conditions(option) if part not in common]:
        yield f"if `{' && '.join(own)}`"


def _as_values(conditions: str, value_of: Mapping[str, tuple[str, str]]) -> str:
    """The conditions with `MODEL=gpt2` for MODEL_GPT2, and `OPTIMIZER=adam|sgd` for either of two."""
    one = rf"\b(?:{'|'.join(value_of)})\b"

    def said(found: re.Match[str]) -> str:
        values: dict[str, list[str]] = {}
        for name in re.findall(r"\w+", found[2]):
            choice, value = value_of[name]
            values.setdefault(choice, []).append(value)
        sign = "!=" if found[1] else "="
        return " || ".join(f"{choice}{sign}{'|'.join(of)}" for choice, of in values.items())

    return re.sub(rf"(!?)({one}(?: \|\| {one})*)", said, conditions)


def main(argv: Sequence[str]) -> int:
    """Write the page, or with --check compare it."""
    path = ROOT / "docs" / "options.md"
    text = page(Tree.load(ROOT))
    if list(argv) == ["--check"]:
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            raise ConfigError(
                "docs/options.md is out of date", hint="python scripts/options_doc.py writes it"
            )
    else:
        write_file(path, text.encode())
    return 0


if __name__ == "__main__":
    run_command(main)
