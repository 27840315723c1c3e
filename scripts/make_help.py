"""make_help.py MAKEFILE: what `make help` prints, from the Makefile's own comments.

`target: prerequisites ## text` is a line of help, `##@ Title` a heading; `# pattern-<name>: ## text` is help
for targets that a pattern rule makes. Standard library only.
"""

import os
import re
import sys
from pathlib import Path

_HELP = re.compile(r"(?:# )?(?P<targets>[A-Za-z0-9_.%<>/ -]+?):(?!=).*?## (?P<text>.+)")
_HEADING = re.compile(r"##@ (?P<title>.+)")


def help_lines(makefile: str) -> list[str]:
    """The help as printed, headings in the order of the file."""
    entries: list[tuple[str, str]] = []
    for line in makefile.splitlines():
        if match := _HEADING.fullmatch(line):
            entries.append(("", match["title"]))
        elif match := _HELP.fullmatch(line):
            entries.append((", ".join(match["targets"].split()), match["text"]))
    width = max((len(name) for name, _ in entries), default=0)
    lines = []
    for name, text in entries:
        lines.append(f"  {name:{width}}  {text}" if name else f"\n{text}:")
    return lines


def main(argv: list[str]) -> int:
    """Print the help of one Makefile."""
    if len(argv) != 1:
        print("error: one Makefile is needed", file=sys.stderr)
        return 2
    text = "\n".join(help_lines(Path(argv[0]).read_text(encoding="utf-8"))).strip("\n")
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # `make help | head`: the reader has what it wanted; nothing is left to flush to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
