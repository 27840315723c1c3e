"""Placeholders: `--lr {lr}` and `{flag?}` in the words of a command, its environment and its files.

A word is passed to the program letter for letter; no shell ever sees it. `{{` and `}}` are braces. In a file
only the names of axes are placeholders, for JSON and YAML have braces of their own.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kharness.config.places import COMMAND
from kharness.runs.errors import MatrixError
from monitoring.bridge.interpreter import found_program

# Placeholders that every run has beside the axes: its directory, and its name.
RUN_DIR, RUN_NAME = "run_dir", "run_name"
_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_.-]*)(\?)?\}")


@dataclass(frozen=True)
class Template:
    """A command with placeholders."""

    words: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    """Texts that each run has a copy of with its values, by name; `{NAME}` is the path of the copy."""
    resume: Sequence[str] = ()
    """Words that an attempt after the first has in addition."""

    @classmethod
    def configured(cls, values: Mapping[str, object]) -> Template:
        """The command of a configuration: the option COMMAND, with the others in its placeholders.

        MatrixError for a quotation without an end.
        """
        try:
            return cls(shlex.split(str(values[COMMAND])))
        except ValueError as error:
            raise MatrixError(
                f"{COMMAND}={values[COMMAND]}: {error}", hint="write it as for a shell"
            ) from None

    @property
    def names(self) -> list[str]:
        """The placeholders in the order of their first use."""
        texts = [*self.words, *self.environment.values(), *self.resume]
        found = [match[1] for text in texts for match in _PLACEHOLDER.finditer(text) if match[1]]
        return list(dict.fromkeys(found))

    def check(self, axes: Iterable[str], cwd: Path, *, options: Iterable[str] = ()) -> None:
        """MatrixError for a placeholder that is not an axis, an axis without one, and a command not found.

        `options` are placeholders that the command need not have.
        """
        known = list(axes)
        given = [*self._own, *options]
        if not self.words:
            typed = f"{python_here()} train.py"
            example = f"matrix -a lr=1,2 -- {typed} --lr {{lr}}" if known else f"run -- {typed}"
            raise MatrixError("there is no command", hint=f"kharness {example}")
        for name in self.names:
            if name not in (*known, *given):
                import difflib  # here and below: a command that is right does not wait for it

                near = difflib.get_close_matches(name, [*known, *given], 1)
                raise MatrixError(
                    f"{{{name}}} is not an {'option' if options else 'axis'}",
                    hint=f"perhaps {{{near[0]}}}"
                    if near
                    else f"write {{{{{name}}}}} for braces"
                    if options
                    else f"give -a {name}=value,value, or write {{{{{name}}}}}",
                )
        for axis in known:
            in_a_file = any(_in_file(axis).search(text) for text in self.files.values())
            if axis not in self.names and not in_a_file:
                raise MatrixError(
                    f"the command never receives the axis {axis}",
                    hint=f"write {{{axis}}} where its value belongs: --{axis} {{{axis}}}",
                )
        for word in self.words:
            if re.fullmatch(r"\{[A-Za-z_][A-Za-z0-9_.-]*\?\}", word):
                raise MatrixError(
                    f"{word} is no word where its value is y", hint=f"write the flag: --{word[1:-2]}{word}"
                )
        if (script := _script(self.words)) is not None:
            if not (cwd / script).is_file():
                raise MatrixError(f"{script} is not found", hint="give the command as you would type it here")
            _refuse_multirun(cwd / script, self.words[self.words.index(script) + 1 :])
        program = self.words[0]
        if "{" not in program and found_program(program, cwd, os.environ) is None:
            if not (cwd / program).is_file():
                is_python3 = program == "python" and found_program("python3", cwd, os.environ)
                hint = "write python3" if is_python3 else "give the command as you would type it here"
                raise MatrixError(f"{program} is not found", hint=hint)
            if program.endswith(".py"):
                raise MatrixError(f"{program} is not a command", hint=f"write {python_here()} {program}")
            path = program if "/" in program else f"./{program}"
            raise MatrixError(f"{program} is not a command", hint=f"chmod +x {path}, then write {path}")

    def rendered(self, values: Mapping[str, str]) -> dict[str, str]:
        """Return the text of each file with these values, by name; MatrixError where it is broken by them."""
        found = {}
        for name, text in self.files.items():
            for axis, value in values.items():
                # letter for letter: `sub` takes a backslash of a text for its own
                text = value.join(_in_file(axis).split(text))
            try:
                _read(name, text)
            except ValueError as error:
                raise MatrixError(
                    f"{name} cannot be read once it has the values of a run: {str(error).splitlines()[0]}",
                    hint="put quotes around its placeholders",
                ) from error
            found[name] = text
        return found

    def filled(self, values: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
        """Return the words and the environment with these values."""
        environment = {name: self.filled_in(text, values) for name, text in self.environment.items()}
        return _filled_words(self.words, values), environment

    def with_values(self, values: Mapping[str, str]) -> Template:
        """Return the template of one run: what is its own (RUN_DIR, RUN_NAME, files) stays a placeholder."""
        words, resume = (_filled_words(one, values, later=self._own) for one in (self.words, self.resume))
        environment = {name: self.left_open(text, values) for name, text in self.environment.items()}
        return Template(words, environment, resume=resume)

    def left_open(self, text: str, values: Mapping[str, str]) -> str:
        """Return another text of a run's, as `with_values` does."""
        return _filled(text, values, later=self._own) or ""

    @property
    def _own(self) -> Sequence[str]:
        return (RUN_DIR, RUN_NAME, *self.files)

    def is_open(self, text: str) -> bool:
        """Whether a text holds a placeholder."""
        return any(match[1] for match in _PLACEHOLDER.finditer(text))

    def filled_in(self, text: str, values: Mapping[str, str]) -> str:
        """Return another text of a run's with these values."""
        return _filled(text, values) or ""

    def resumed(self, values: Mapping[str, str]) -> list[str]:
        """Return the words of later attempts with these values."""
        return _filled_words(self.resume, values)


def _filled_words(
    words: Sequence[str], values: Mapping[str, str], *, later: Collection[str] = ()
) -> list[str]:
    """Return words with their values, without those whose `{flag?}` is `n`."""
    return [found for word in words if (found := _filled(word, values, later=later)) is not None]


def _filled(text: str, values: Mapping[str, str], *, later: Collection[str] = ()) -> str | None:
    """Return the text with its values; None where a `{flag?}` in it is `n`.

    What is to be filled in `later` stays, and braces stay those of a template.
    """
    gone = False

    def value(match: re.Match[str]) -> str:
        nonlocal gone
        if match[1] is None:
            return match[0] if later else match[0][0]
        if match[1] in later or match[1].lower() in later:
            return match[0]
        if not match[2]:
            said = values[match[1]]
            # the text is filled once more, when a brace of a value would be a placeholder's
            return said.replace("{", "{{").replace("}", "}}") if later else said
        said = values[match[1]]
        gone = gone or said in ("n", "false", "False", "0", "")
        return "" if said in ("y", "true", "True", "1") else said

    found = _PLACEHOLDER.sub(value, text)
    return None if gone else found


def _in_file(axis: str) -> re.Pattern[str]:
    # `${lr}` is what Hydra and shells resolve themselves
    return re.compile(rf"(?<!\$)\{{{re.escape(axis)}\}}")


def _read(name: str, text: str) -> None:
    """ValueError for a text that is not of the kind that its name says."""
    if name.endswith(".json"):
        json.loads(text)
    elif name.endswith(".toml"):
        import tomllib

        tomllib.loads(text)


def _script(words: Sequence[str]) -> str | None:
    """Return the script that Python is to run, if it is one by its name and has no placeholder."""
    if not Path(words[0]).name.startswith("python"):
        return None
    for word in words[1:]:
        if word in ("-m", "-c"):
            return None
        if not word.startswith("-"):
            return word if word.endswith(".py") and "{" not in word else None
    return None


def python_here() -> str:
    """The command of Python as one types it here: Debian has no `python` outside of an environment."""
    return "python" if found_program("python", Path(), os.environ) else "python3"


def _refuse_multirun(script: Path, words: Sequence[str]) -> None:
    """MatrixError where Hydra would train several times in one run, whose steps would be taken for one's."""
    for word in {"-m", "--multirun"}.intersection(words):
        if b"hydra" in script.read_bytes():
            raise MatrixError(
                f"{word} has Hydra train several times in one run",
                hint="make them runs of a matrix: kharness matrix -a lr=0.1,0.3 -- "
                f"{python_here()} train.py lr={{lr}}",
            )


def option_texts(values: Mapping[str, object]) -> dict[str, str]:
    """Return the options of a configuration by their placeholders: `{learning_rate}`."""
    from kharness.config.assignment import value_text  # no program waits for it

    return {name.lower(): value_text(value) for name, value in values.items()}
