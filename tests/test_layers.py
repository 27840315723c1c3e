"""The layers of docs/architecture.md, as data: who may import what, and nothing works on import."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
MODELS = sorted(path.parent.name for path in ROOT.glob("*/model.py"))
# What it shows is of several layers; its own rule is not that of the packages in it.
PUBLIC = ("kharness",)
STANDARD = frozenset(sys.stdlib_module_names)

Nodes = Callable[[Path], list[Any]]

# package -> what it may import beyond the standard library and itself. A longer name wins over a shorter.
MAY_IMPORT: dict[str, frozenset[str]] = {
    "monitoring": frozenset({"orjson", "psutil"}),
    "monitoring.callbacks.accelerate": frozenset({"accelerate", "torch"}),
    "monitoring.callbacks.described": frozenset({"torch"}),
    "monitoring.callbacks.hugging_face": frozenset({"torch", "transformers"}),
    "monitoring.callbacks.lightning": frozenset({"lightning", "torch"}),
    "monitoring.callbacks.throughput": frozenset({"torch"}),
    "monitoring.agent.notifications": frozenset({"apprise"}),
    "monitoring.exporters._families": frozenset({"prometheus_client"}),
    "monitoring.exporters._metrics_server": frozenset({"prometheus_client"}),
    "monitoring.samplers.nvidia": frozenset({"pynvml"}),
    "monitoring.telemetry.activations": frozenset({"torch"}),
    "monitoring.telemetry.profiler": frozenset({"torch"}),
    "monitoring.telemetry.measurements": frozenset({"datasketches"}),
    "monitoring.trackers._event_file": frozenset({"google_crc32c", "tensorboard"}),
    "monitoring.trackers._trackio_public": frozenset({"trackio"}),
    "monitoring.trackers._wandb_public": frozenset({"wandb"}),
    "monitoring.trackers.mlflow": frozenset({"mlflow"}),
    "monitoring.trackers.tensorboard": frozenset({"tensorboard"}),
    "monitoring.trackers.trackio": frozenset({"trackio"}),
    "monitoring.trackers.wandb": frozenset({"wandb"}),
    "monitoring.verbose_logging": frozenset({"transformers"}),
    "monitoring.web.app": frozenset({"starlette"}),
    "monitoring.web.command": frozenset({"uvicorn"}),
    "verbose_logging": frozenset({"monitoring"}),
    "setup": frozenset({"setuptools"}),  # which alone runs it
    "kharness.__init__": frozenset({"kharness.report", "kharness.runs", "monitoring"}),
    "kharness.config": frozenset(
        {"kharness.quiet", "monitoring.counts", "monitoring.errors", "monitoring.outside"}
    ),
    "kharness.config.make.menu": frozenset({"kconfiglib", "menuconfig"}),
    "kharness.config.tree": frozenset({"kconfiglib"}),
    "kharness.environment": frozenset({"kharness.config.errors", "kharness.config.output"}),
    "kharness.runs": frozenset({"kharness.config", "monitoring"}),
    "kharness.runs.bar_line": frozenset({"tqdm"}),
    "kharness.runs.query.selection": frozenset({"pandas", "polars"}),
    "kharness.training": frozenset({"torch", "numpy", "kharness.config", "kharness.runs", "monitoring"}),
    "kharness.training.inference.predictions": frozenset({"PIL"}),
    "kharness.training.samples_of_steps": frozenset({"PIL"}),
    "kharness.training.optimizers.ademamix": frozenset({"pytorch_optimizer"}),
    "kharness.training.optimizers.lion": frozenset({"pytorch_optimizer"}),
    "kharness.training.optimizers.schedulefree": frozenset({"schedulefree"}),
    "kharness.training.optimizers.soap": frozenset({"pytorch_optimizer"}),
    "kharness.training.tokens.documents": frozenset({"huggingface_hub", "pyarrow"}),
    "kharness.training.tokens.tokenizers": frozenset({"tiktoken"}),
    "kharness.matrix": frozenset({"kharness.config", "kharness.environment", "kharness.runs", "monitoring"}),
    "kharness.matrix.sweep.halving": frozenset({"optuna"}),
    "kharness.matrix.sweep.rank_errors": frozenset({"scipy"}),
    "kharness.matrix.sweep.search": frozenset({"optuna"}),
    "kharness.matrix.running.table": frozenset({"rich"}),
    "kharness.report": frozenset({"kharness.config", "kharness.runs", "monitoring", "numpy"}),
    "kharness.report.judging.statistics": frozenset({"scipy"}),
    "kharness.report.writing.html": frozenset({"jinja2", "markupsafe"}),
    "kharness.report.graphs": frozenset({"matplotlib", "PIL"}),  # matplotlib brings PIL
    "kharness.pages": frozenset(
        {"kharness.config", "kharness.matrix", "kharness.report", "kharness.runs", "monitoring"}
    ),
    "kharness.pages.addition": frozenset({"starlette"}),
    "kharness.cli": frozenset(
        {
            *("kharness.command_options", "kharness.config", "kharness.matrix", "kharness.report"),
            *("kharness.runs", "kharness.toml_file", "monitoring"),
        }
    ),
    "kharness.command_options": frozenset({"kharness.runs"}),
    "kharness.toml_file": frozenset({"kharness.command_options", "kharness.runs"}),
    "kharness.quiet": frozenset(),
    "kharness.__main__": frozenset({"kharness.cli", "kharness.quiet"}),
    "scripts": frozenset({"kharness", "monitoring"}),
    "scripts.docs_images": frozenset({"PIL", "kharness", "matplotlib", "psutil", "pyte"}),
    "scripts.requirements": frozenset({"packaging"}),
    "resnet50.folder": frozenset({"PIL", "monitoring.host"}),
    **{
        model: frozenset({"torch", "numpy", "kharness.config", "kharness.training", "monitoring"})
        for model in MODELS
    },
}

# package -> its rooms (modules, and packages with all that is in them), floor by floor: imports go down only.
FLOORS: dict[str, list[str]] = {
    "monitoring": [
        "counts errors host measures outside secrets",
        "dropins gpu no_options spool",
        "journal samplers",
        "alert_lines alert_sentences control follower notes sampler_process saved_environment telemetry"
        " where",
        "media rules",
        "agent trackers verbose_logging",
        "exporters run",
        "gpu_monitor rehearsal",
        "callbacks terminal web",
        "bridge gpu_dashboard",
    ],
    "kharness.config": [
        "output project_name",
        "errors",
        "affects dotconfig writing",
        "values",
        "assignment",
        "places record refused resolving",
        "config_py tree",
        "describe generate presets",
        "options",
        "make",
    ],
    "kharness.environment": ["locks pip_settings", "installer", "torch_build", "parts"],
    "kharness.runs": [
        "bar_line budget errors exit_codes files",
        "bundle",
        "journal_tail latest launch output_tail control_changes",
        "lock matrix_plan rundir status",
        "causes command seeds_of_run",
        "jobs",
        "standing",
        "query",
    ],
    "kharness.training": [
        "console errors forkserver progress seeds fake_tensors",
        "saving",
        "needs",
        "checkpoint determinism due guard optimizers pruning schedules tokens",
        "datasets device",
        "distributed",
        "data resume",
        "inference setup",
        "mfu model_check samples_of_steps",
        "autotune",
        "steps",
        "first_run opening",
    ],
    "kharness.matrix": [
        "machine",
        "launchers",
        "planning",
        "reproduce running selected_runs",
        "overview supervise_single sweep time_needed",
        "commands supervise",
        "resume dry_run more_seeds",
    ],
    "kharness.report": [
        "errors gpu importance runs",
        "series_store",
        "metrics reading settings",
        "collection",
        "judging",
        "regression summary",
        "comparison_table power curves",
        "plots",
        "graphs overview",
        "compare writing",
        "compare_page paper",
        "gpu_report",
        "report",
    ],
    "kharness.pages": [
        "recorded_look",
        "matrix sweep",
        "addition",
    ],
}
# Optional, or slow to import.
OUTSIDE = frozenset(
    {
        *("torch", "trackio", "wandb", "mlflow", "tensorboard", "prometheus_client", "pynvml", "apprise"),
        *("matplotlib", "PIL", "jinja2", "optuna", "scipy", "datasketches", "huggingface_hub", "pyarrow"),
        *("tiktoken", "starlette", "uvicorn"),
    }
)
# A folder that holds more has sub-folders.
MOST_MODULES = 18


def modules() -> Iterator[tuple[str, Path]]:
    for folder in [ROOT / "lib", ROOT / "scripts", *(ROOT / model for model in MODELS)]:
        base = ROOT / "lib" if folder.name == "lib" else ROOT
        for path in sorted(folder.rglob("*.py")):
            name = ".".join(path.relative_to(base).with_suffix("").parts)
            yield name.removesuffix(".__init__"), path


def rule_for(module: str) -> tuple[str, frozenset[str]]:
    """The longest package of the table that holds the module, with all that its parents may import too."""
    parts = module.split(".")
    names = [".".join(parts[: i + 1]) for i in range(len(parts))]
    held = [name for name in names if name in MAY_IMPORT]
    return (held[0] if held else ""), frozenset().union(*(MAY_IMPORT[name] for name in held))


def imports(nodes: Sequence[ast.AST], module: str, is_package: bool) -> Iterator[tuple[int, str]]:
    package = module.split(".") if is_package else module.split(".")[:-1]
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            yield node.lineno, ".".join([*base, *([node.module] if node.module else [])])


def allowed(name: str, own: str, may: frozenset[str]) -> bool:
    if name.split(".")[0] in STANDARD:
        return True
    return any(name == parent or name.startswith(parent + ".") for parent in (own, *may))


def test_imports_stay_within_the_layer(nodes: Nodes) -> None:
    refused = []
    for module, path in modules():
        own, may = rule_for(f"{module}.__init__" if module in PUBLIC else module)
        refused += [
            f"{path.relative_to(ROOT)}:{line} imports {name}; {own} may import {sorted(may)} and itself"
            for line, name in imports(nodes(path), module, path.name == "__init__.py")
            if not allowed(name, own, may)
        ]
    assert refused == []


@pytest.fixture(scope="module")
def own_imports(nodes: Nodes) -> dict[str, set[str]]:
    return read_imports(nodes)


def read_imports(nodes: Nodes) -> dict[str, set[str]]:
    """Each module in lib/ -> those of ours that it imports, inside functions and for types too."""
    paths = {name: path for name, path in modules() if path.is_relative_to(ROOT / "lib")}
    found: dict[str, set[str]] = {}
    for module, path in paths.items():
        found[module] = set()
        for node in nodes(path):
            if isinstance(node, ast.Import):
                found[module] |= {alias.name for alias in node.names} & paths.keys()
            elif isinstance(node, ast.ImportFrom) and node.module in paths:
                inside = {f"{node.module}.{alias.name}" for alias in node.names}
                found[module] |= inside & paths.keys() or {node.module}
        found[module].discard(module)
    return found


@pytest.mark.parametrize("package", FLOORS)
def test_imports_go_down_only(own_imports: dict[str, set[str]], package: str) -> None:
    def room(module: str) -> str:
        return module.removeprefix(package + ".").split(".")[0]

    floor = {room: number for number, rooms in enumerate(FLOORS[package]) for room in rooms.split()}
    inside = {name: found for name, found in own_imports.items() if name.startswith(package + ".")}
    assert {room(name) for name in inside} == set(floor), "FLOORS names every room, and no other"
    upward = [
        f"{module} imports {name}"
        for module, found in inside.items()
        for name in sorted(found)
        if name.startswith(package + ".")
        and room(name) != room(module)
        and floor[room(name)] >= floor[room(module)]
    ]
    assert upward == [], "a room imports only what is on the floors below it"


def test_no_module_imports_itself_by_a_detour(own_imports: dict[str, set[str]]) -> None:
    left = dict(own_imports)
    while leaves := {name for name, found in left.items() if not found & left.keys()}:
        left = {name: found for name, found in left.items() if name not in leaves}
    assert left == {}, "these modules import each other in a circle, or one of a circle"


def test_a_folder_is_seen_at_a_glance() -> None:
    """Folders in which one file adds one thing are shelves, which have no limit, but for what helps there."""
    inits = [path for _, path in modules() if path.name == "__init__.py"]
    shelves = {path.parent for path in inits if "DropIns(" in path.read_text()}
    held = {}
    for folder in {path.parent for _, path in modules()}:
        names = [path.name for path in folder.glob("*.py") if path.name[:2] != "__"]
        counted = [name for name in names if folder not in shelves or name[0] == "_"]
        held[str(folder.relative_to(ROOT))] = 0 if folder == ROOT / "scripts" else len(counted)
    assert {folder: number for folder, number in held.items() if number > MOST_MODULES} == {}, (
        "these folders need sub-folders"
    )


def test_outside_packages_are_imported_inside_functions(nodes: Nodes) -> None:
    """A module that wraps an optional or slow package must not load it when it is itself imported."""
    free = {"torch": ("kharness.training", *MODELS)}
    found = []
    for module, path in modules():
        for node in nodes(path)[0].body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            found += [
                f"{module}:{node.lineno} imports {package}"
                for package in {name.split(".")[0] for name in names} & OUTSIDE
                if not module.startswith(free.get(package, ("-",)))
            ]
    assert found == [], "import these inside the functions that need them"


def test_modules_only_define_on_import(nodes: Nodes) -> None:
    definitions = (
        ast.FunctionDef,
        ast.AsyncFunctionDef,
        ast.ClassDef,
        ast.Import,
        ast.ImportFrom,
        ast.Assign,
        ast.AnnAssign,
    )
    work = []
    for _, path in modules():
        for node in nodes(path)[0].body:
            docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            guard = isinstance(node, ast.If) and ast.unparse(node.test) in (
                "__name__ == '__main__'",
                "__name__ == 'sitecustomize'",
                "TYPE_CHECKING",
                "not TYPE_CHECKING",
            )
            if not (isinstance(node, definitions) or docstring or guard):
                work.append(f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node).splitlines()[0]}")
    assert work == [], "a module does nothing on import beyond definitions"


def test_nothing_edits_the_import_path() -> None:
    # Two stand in for the interpreter, which puts a script's folder on the path; the third looks where the
    # module is that it stands before.
    allowed = (
        *("kharness.quiet", "kharness.training.forkserver.forked"),
        "monitoring.bridge.hook.sitecustomize",
    )
    edits = [
        f"{path.relative_to(ROOT)}"
        for name, path in modules()
        if "sys.path" in path.read_text() and name not in allowed
    ]
    assert edits == [], "lib/ is the source root (pyproject.toml); nothing edits sys.path"


def test_no_class_name_means_two_things(nodes: Nodes) -> None:
    """But for what every drop-in of a kind defines under one name."""
    named: dict[str, list[str]] = {}
    for module, path in modules():
        for node in nodes(path):
            if isinstance(node, ast.ClassDef) and node.name not in ("Options", "Rule"):
                named.setdefault(node.name, []).append(module)
    assert {name: found for name, found in named.items() if len(found) > 1} == {}
