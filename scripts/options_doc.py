"""options_doc.py [--check]: write docs/options.md from the Kconfig help texts, or say it is out of date."""

import re
from collections.abc import Iterator, Sequence
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
only `MODEL` has no flag. [Configuration](configuration.md) explains both, and what an option affects.
"""


def page(tree: Tree) -> str:
    """The page."""
    by_name = {option.name: option for option in options(tree)}
    members = {member for option in by_name.values() for member in option.members.values()}
    # What other symbols select says nothing that they do not.
    shown = [
        option
        for option in by_name.values()
        if option.name not in members and (option.type != "bool" or option.prompt)
    ]
    chunks = [HEAD]
    for menu in dict.fromkeys(option.menu for option in shown):
        entries = [option for option in shown if option.menu == menu]
        common = [part for part in _conditions(entries[0]) if all(part in _conditions(o) for o in entries)]
        chunks.append(f"\n## {': '.join(menu)}\n")
        if common:
            chunks.append(f"\nAll depend on `{' && '.join(common)}`.\n")
        chunks += ["\n".join(["", *_entry(one, by_name, common), ""]) for one in entries]
    return "".join(chunks)


def _conditions(option: Option) -> list[str]:
    """The parts of its condition that all must hold."""
    return re.split(r" && (?![^(]*\))", option.depends) if option.depends else []


def _entry(option: Option, by_name: dict[str, Option], common: Sequence[str]) -> Iterator[str]:
    yield f"### {option.name}"
    yield ""
    yield option.explanation
    yield ""
    facts = ["choice" if option.members else option.type_text]
    if option.default_text:
        facts.append(f"default `{option.default_text}`")
    facts.append(f"affects {option.affects_text}")
    if own := [part for part in _conditions(option) if part not in common]:
        facts.append(f"if `{' && '.join(own)}`")
    yield f"({'; '.join(facts)})"
    if option.members:
        yield ""
    for value, name in option.members.items():
        yield f"- `{value}` ({name}): {by_name[name].explanation}"


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
