"""make_help.py MAKEFILE: what `make help` prints, from the Makefile's own comments.

`target: prerequisites ## text` is a line of help, `##* text` one of a target for every day, `##@ Title` a
heading; `# pattern-<name>: ## text` is help for targets that a pattern rule makes. ALL=y in the environment
prints all of them, otherwise those for every day. Standard library only.
"""

import os
import re
import sys
import textwrap
from pathlib import Path

_HELP = re.compile(r"(?:# )?(?P<targets>[A-Za-z0-9_.%<>/ -]+?):(?!=).*?##(?P<often>\*?) (?P<text>.+)")
_HEADING = re.compile(r"##@ (?P<title>.+)")
_COLUMNS = 80
_BELOW = ["Options go on the line: make train NUM_EPOCHS=3, make test_matrix SEED=1..5."]


def help_lines(makefile: str, *, everything: bool) -> list[str]:
    """The help as printed, in the order of the file; a text that is too long goes on below itself."""
    entries: list[tuple[str, str]] = []
    hidden = 0
    for line in makefile.splitlines():
        match = _HELP.fullmatch(line)
        if match and (everything or match["often"]):
            entries.append((", ".join(match["targets"].split()), match["text"]))
        elif match:
            hidden += 1
        elif everything and (match := _HEADING.fullmatch(line)):
            entries.append(("", match["title"]))
    width = max((len(name) for name, _ in entries), default=0)
    lines = [] if everything else ["Every day:"]
    for name, text in entries:
        first, rest = (f"  {name:{width}}  ", " " * (width + 4)) if name else ("", "")
        lines += [""] * (not name)
        lines += textwrap.wrap(
            text if name else f"{text}:",
            _COLUMNS,
            initial_indent=first,
            subsequent_indent=rest,
            break_on_hyphens=False,
        )
    return lines if everything else [*lines, "", *_BELOW, f"make help ALL=y lists {hidden} more."]


def main(argv: list[str]) -> int:
    """Print the help of one Makefile."""
    if len(argv) != 1:
        print("error: one Makefile is needed", file=sys.stderr)
        return 2
    makefile = Path(argv[0]).read_text(encoding="utf-8")
    text = "\n".join(help_lines(makefile, everything=os.environ.get("ALL") in ("y", "1"))).strip("\n")
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # `make help | head`: the reader has what it wanted; nothing is left to flush to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
