"""Every documented command can be typed: nothing of it is refused, for each model that it is meant for."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from kharness import cli
from kharness.config.errors import ConfigError
from kharness.config.make import variables as make_variables
from kharness.config.options import parse
from kharness.config.presets import find_preset
from kharness.config.tree import Tree
from kharness.matrix.commands.axes import parse_axis
from kharness.matrix.commands.sweep import parse_range
from kharness.matrix.planning.axis_values import NO_AXES, given_axes
from kharness.matrix.planning.cells import Around
from kharness.matrix.planning.plan import draft
from kharness.matrix.planning.template import Template
from kharness.matrix.sweep.ranges import read_ranges
from kharness.matrix.sweep.sweep import draft_sweep
from monitoring.outside import outside

from .documented_commands import BLOCK, DocumentedCommand, commands_in, preset_of
from .warm_python import WarmPython

ROOT = Path(__file__).resolve().parent.parent
# names.md is about other documents' commands too, and has a test of its own.
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
    *(page for page in sorted(ROOT.glob("docs/*.md")) if page.name != "names.md"),
]
COMMANDS = list(dict.fromkeys(command for page in PAGES for command in commands_in(page)))
# A small configuration of each model, in which a general command is typed.
OF_MODEL = {"lenet5": "default", "gpt2": "gpt2-tiny", "resnet50": "resnet50-digits"}
MATRICES = {"continue", "test_matrix", "test_matrix_dry_run"}
# What a page shows as a mistake.
REFUSED = {
    "configuration.md: make test_matrix SEEDS=1..5",
    "configuration.md: make status CHECKPOINT=1",
    "test-matrix.md: make train SEED=1,2",
    "test-matrix.md: make continue SEED=1..5",
}
# Programs of the system, and words of its shell.
OF_THE_SYSTEM = {*(".", "cd", "done", "export", "for", "git", "head", "timeout"), *("filebeat", "prometheus")}
OTHERS = ("mlflow", "pre-commit", "tensorboard", "trackio", "wandb")
# Examples of Transformers and Accelerate, which tests/monitoring/callbacks/test_examples.py runs.
OF_FRAMEWORKS = {"complete_nlp_example.py", "run_clm.py", "tracking.py"}


def tree() -> Tree:
    return tree_with(outside())


@cache
def tree_with(model: Path | None) -> Tree:
    """Option tree with the current model, which may be outside of the tree."""
    return Tree.load(ROOT)


def called(*programs: str) -> list[DocumentedCommand]:
    return [command for command in COMMANDS if command.program in programs]


def test_every_program_is_known() -> None:
    known = {"kharness", "make", "pip", "python", *OF_THE_SYSTEM}
    assert {
        command.program
        for command in COMMANDS
        if command.program not in known
        and not (ROOT / command.program).is_file()
        and not installed(Path(command.program).name)
    } == set()
    assert len(called("make")) > 200, "the pages are read"


@pytest.mark.parametrize("command", called("make"), ids=str)
def test_make_takes_it(command: DocumentedCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    words = [word.strip("[]") for word in command.words[1:] if word != "…" and not word.startswith("-")]
    words = [re.sub(r"^M=.*", f"M={ROOT}/examples/mymodel", word) for word in words]
    words = [re.sub("^(DEFCONFIG=|defconfig-)name$", r"\1default", word) for word in words]
    goals = [word for word in words if "=" not in word] or ["train"]
    given = [word for word in words if "=" in word]
    if str(command) in REFUSED:
        with pytest.raises(ConfigError):
            make_variables.layer(tree(), take(goals, given))
        return
    named = [word for word in given if "…" not in word]
    variables = take(goals, [*named, *(word.partition("=")[0] + "=1" for word in given if word not in named)])
    read = make_variables.given(named, {"KHARNESS_GOALS": " ".join(goals)}, root=ROOT)
    axes, single = given_axes(tree(), read) if MATRICES & set(goals) else (NO_AXES, read)
    layer = make_variables.layer(tree(), single)
    monkeypatch.chdir(ROOT)
    for preset in presets_for(command):
        base = tree().read(find_preset(ROOT, preset), "preset")
        if MATRICES & set(goals):
            assert draft(tree(), base, layer, Path("test_matrix_stamp"), given=axes).cells
        elif "sweep" in goals and "RANGE_CONFIG" in variables:
            ranges = read_ranges(tree(), range_file(variables["RANGE_CONFIG"], command))
            # What a search tries is chosen while it runs.
            around = Around(base, ranges.fixed, layer)
            assert draft_sweep(tree(), around, ranges, Path("sweep_stamp")).refused == []
        else:
            tree().resolve(base, layer)


@pytest.mark.parametrize("command", called("kharness"), ids=str)
def test_kharness_takes_it(command: DocumentedCommand) -> None:
    name, *words = command.words[1:] or ["--help"]
    if name == "--help":
        return
    if name in cli.TARGETS or (name not in cli.CALLS and name in cli.make_targets()):
        words = [re.sub(r"^M=.*", f"M={ROOT}/examples/mymodel", word) for word in words]
        given = [word for word in words if "=" in word]
        take([name], given)
        return
    options, program = cli.parsed(command.words[1:])
    if not set(program) <= {"…"}:
        read = parse_range if name == "sweep" else parse_axis
        axes = [read(text).symbol.lower() for text in getattr(options, "axis", ())]
        rendered = {path.name: "".join(f"{{{axis}}}" for axis in axes) for path in options.render}
        Template(["true", *program[1:]], files=rendered).check(axes, ROOT)


def take(goals: list[str], given: list[str]) -> dict[str, str]:
    """Variables that the targets get from make's; ConfigError where one is refused."""
    values = dict(word.split("=", 1) for word in given)
    environ = {"KHARNESS_GOALS": " ".join(goals), "KHARNESS_MAKE_VARS": " ".join(values), **values}
    make_variables.check_call(environ, ROOT)
    return make_variables.given([], environ, root=ROOT)


def presets_for(command: DocumentedCommand) -> list[str]:
    """Where it is typed: in what a line above it or it configures, else in each model it is meant for."""
    own = [preset for word in command.words if (preset := preset_of(word)) not in ("", "name")]
    if chosen := [*command.before, *own]:
        return chosen[-1:]
    if outside():
        return ["default"]
    for model, preset in OF_MODEL.items():
        about = command.page == f"{model}.md" or any(model.upper() in word for word in command.words)
        if about:
            return [preset]
    return list(OF_MODEL.values())


@cache
def range_file(name: str, command: DocumentedCommand) -> Path:
    """File of ranges in the repository, or the one that the page tells to write."""
    if (ROOT / name).is_file():
        return ROOT / name
    page = ROOT / "docs" / (command.page if command.page != "README.md" else "quickstart.md")
    texts = [body for _, body in BLOCK.findall(page.read_text()) if body.startswith("CONFIG_")]
    path = Path(os.environ["TMPDIR"]) / name
    path.write_text(texts[0])
    return path


@pytest.fixture(scope="module", autouse=True)
def temporary_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("ranges")))
        yield


def scripts() -> list[DocumentedCommand]:
    return [c for c in called("python", ".venv/bin/python") if len(c.words) > 1]


def trainings() -> Iterator[tuple[str, DocumentedCommand]]:
    for command in scripts():
        folder, _, file = command.words[1].partition("/")
        if file == "train.py" and "--help" not in command.words and "…" not in command.words:
            yield from ((model, command) for model in OF_MODEL if folder in (model, "MODEL"))


@pytest.fixture(scope="module")
def configured_nowhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout without a `.config`, as far as flags are read."""
    folder = tmp_path_factory.mktemp("checkout")
    for path in [ROOT / "Kconfig", *ROOT.glob("*/Kconfig"), *ROOT.glob("lib/**/Kconfig")]:
        copy = folder / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    return folder


@pytest.mark.parametrize(("model", "command"), list(trainings()), ids=str)
def test_training_takes_its_flags(model: str, command: DocumentedCommand, configured_nowhere: Path) -> None:
    flags = command.words[2:]
    options, _ = parse(flags, root=configured_nowhere, model=model, prog="train.py", description=None)
    assert model == options.MODEL


def of_modules() -> list[tuple[str, ...]]:
    """Scripts and modules, each with the flags that the pages give it."""
    flags: dict[tuple[str, ...], set[str]] = {}
    for command in scripts():
        words = [word for word in command.words[1:] if word != "-P"]
        program = tuple(words[:2] if words[0] == "-m" else words[:1])
        if not program[0].endswith("/train.py") and Path(program[0]).name not in OF_FRAMEWORKS:
            flags.setdefault(program, set()).update(w.partition("=")[0] for w in words if w[:2] == "--")
    return [(*program, *sorted(named)) for program, named in flags.items()]


@pytest.mark.parametrize("words", of_modules(), ids=" ".join)
def test_script_takes_its_flags(words: tuple[str, ...], warm_python: WarmPython) -> None:
    program = [word for word in words if word[:2] != "--"]
    if program[0] == "-m":
        assert importlib.util.find_spec(program[1]) is not None
    else:
        folder = ROOT if (ROOT / program[0]).is_file() else ROOT / "examples"
        program[0] = str(folder / program[0])
        assert Path(program[0]).is_file()
    if flags := [word for word in words if word[:2] == "--"]:
        shown = warm_python.run([*program, "--help"])
        assert [flag for flag in flags if flag not in shown.stdout] == [], shown.stdout + shown.stderr


def of_others() -> list[tuple[str, ...]]:
    """Programs of other packages, with each sub-command that they are called with, and all flags of it."""
    found: dict[tuple[str, ...], set[str]] = {}
    for command in called(
        "wandb", "trackio", "tensorboard", "mlflow", ".venv/bin/wandb", ".venv/bin/pre-commit"
    ):
        words = [word.partition("=")[0] for word in command.words[1:] if re.match(r"-*[a-z]", word)]
        sub = [word for word in words[:1] if word[0] != "-"]
        flags = {word for word in words if word[:2] == "--"}
        found.setdefault((Path(command.program).name, *sub), set()).update(flags)
    return [(*words, *sorted(flags)) for words, flags in found.items() if len(words) > 1 or flags]


@pytest.mark.usefixtures("shared_trackio")
@pytest.mark.parametrize("words", of_others(), ids=" ".join)
def test_program_of_a_package_has_it(words: tuple[str, ...], warm_trackers: WarmPython) -> None:
    program = installed(words[0])
    if program is None:
        pytest.skip(f"{words[0]} is not installed")
    sub = [word for word in words[1:] if word[0] != "-"]
    shown = warm_trackers.run([program, *sub, "--help"])  # each is a file that its Python reads
    assert shown.returncode == 0, shown.stderr
    assert [word for word in words[1:] if word not in shown.stdout] == []


def installed(name: str) -> str | None:
    return shutil.which(name, path=str(Path(sys.executable).parent))


def test_what_pip_installs_is_there() -> None:
    """Ours from a folder, for no index has it, with extras it has; of others what is installed here fits."""
    words = [word for command in called("pip") for word in command.words[2:]]
    files = [words.pop(at + 1) for at in reversed(range(len(words))) if words[at] == "-r"]
    words = [word for word in words if word != "-r"] + [
        line for file in files for line in (ROOT / file).read_text().splitlines()
    ]
    for word in words:
        if word.startswith("./"):
            folder = ROOT / word.partition("[")[0].removeprefix("./").removeprefix("kharness").strip("/")
            project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
            extras = re.findall(r"\[(.*)\]", word)
            assert set(",".join(extras).split(",")) - {""} <= set(project["optional-dependencies"]), word
            continue
        requirement = Requirement(word)
        assert not requirement.name.startswith("kharness"), word
        if version := installed_version(requirement.name):
            assert requirement.specifier.contains(version), word


def test_no_hint_names_a_package_that_no_index_has() -> None:
    sources = [path for path in (ROOT / "lib").rglob("*.py") if "pip install" in path.read_text()]
    assert sources
    assert [str(path) for path in sources if re.search(r"pip install '?kharness", path.read_text())] == []


def installed_version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
