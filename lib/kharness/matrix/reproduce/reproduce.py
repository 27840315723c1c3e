"""A past run repeated: the same options, seed and code, in a new directory next to it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kharness.config.assignment import Assignment, Layer, Origin, tracker_list, value_text
from kharness.config.errors import ConfigError
from kharness.config.generate import write_new_config
from kharness.config.places import asked_path
from kharness.config.tree import CONFIG, Tree
from kharness.environment.parts import bring
from kharness.matrix.planning.begin import Planning
from kharness.matrix.reproduce.revision import Code, GitState, code_of
from kharness.runs.causes import EXPANDED, other_values
from kharness.runs.control_changes import write_replayed
from kharness.runs.errors import MatrixError
from kharness.runs.launch import Launch
from kharness.runs.status import PENDING, RunStatus, write_status
from monitoring.journal.files import JOURNAL
from monitoring.journal.lineage import Lineage
from monitoring.journal.records import Record
from monitoring.outside import MODEL_GIT, enter, outside


@dataclass(frozen=True)
class ReproducedRun:
    """A run as its journal describes it."""

    directory: Path
    lineage: Lineage

    @classmethod
    def read(cls, directory: Path) -> ReproducedRun:
        """MatrixError if the directory holds no run of the tree that has begun."""
        lineage = Lineage.read(directory / JOURNAL)
        if not lineage.starts:
            if (directory / JOURNAL).is_file() and not (directory / CONFIG).is_file():
                raise _foreign(directory)
            raise MatrixError(
                f"{directory} is not a run that has begun: its journal has no start record",
                hint="name a run directory, such as results/latest or one of a matrix's cells",
            )
        return cls(directory, lineage)

    def refuse_foreign(self) -> None:
        """Raise MatrixError for a run of another program, which tells neither its command nor a model."""
        if "MODEL" not in self.config:  # the tree's default would be trained under the name of the run
            raise _foreign(self.directory)

    @property
    def start(self) -> Record:
        return self.lineage.starts[-1]

    @property
    def config(self) -> Mapping[str, object]:
        config = self.start.get("config")
        return config if isinstance(config, Mapping) else {}

    @property
    def has_config(self) -> bool:
        return (self.directory / CONFIG).is_file()

    @property
    def git(self) -> list[GitState | None]:
        """Git state of each attempt that counts."""
        return self._states("git")

    @property
    def model_git(self) -> list[GitState | None] | None:
        """The same of a model outside of the tree; None for one of the tree."""
        return self._states(MODEL_GIT) if MODEL_GIT in self.start else None

    def _states(self, field: str) -> list[GitState | None]:
        states = [start.get(field) for start in self.lineage.starts]
        return [state if isinstance(state, Mapping) else None for state in states]

    @property
    def unpromised(self) -> str:
        """Why another training may differ bitwise on the same machine; empty if it may not."""
        device = str(self.start.get("device"))
        if device.startswith("cuda") and not self.config.get("DETERMINISTIC"):
            return f"with DETERMINISTIC=n {device.split()[0]} may give other bits each time"
        return ""

    @property
    def threads(self) -> int:
        """CPU threads of a tensor operation, 0 if that is not recorded."""
        threads = self.start.get("cpu_threads")
        return threads if isinstance(threads, int) else 0


@contextmanager
def model_code(past: ReproducedRun, *, anyway: bool) -> Iterator[str]:
    """The model outside of the tree as the run had it, in the place of that of M=; what it is, in words.

    Empty for a model of the tree. MatrixError where there is no M=, and what `code_of` raises.
    """
    recorded, folder = past.model_git, outside()
    if recorded is None:
        yield ""
        return
    if folder is None:
        raise MatrixError(
            f"{past.directory} trained a model outside of this tree", hint="give its folder: M=DIR"
        )
    with code_of(recorded, folder, anyway=anyway, run=past.directory, what="model") as code:
        enter(code.root)
        try:
            yield code.description
        finally:
            enter(folder)


def prepare_again(
    past: ReproducedRun, code: Code, *, root: Path, trackers: str, anyway: bool = False
) -> Launch:
    """Make RUN_reproduced (or RUN_reproduced_2 …) next to a run with its configuration, ready to launch.

    The configuration is that of its `.config`, or where that is gone of its start record. `trackers` is what
    TRACKER= takes. MatrixError if the run's `.config` is not what the run recorded, or
    with `anyway` only if the code does not know one of its values.
    """
    tree = Tree.load(code.root)
    if past.has_config:
        base = tree.base(past.directory, dropped=[] if anyway else None)
    else:
        base = _recorded(past.config, tree)
    values = tree.resolve(base).values
    changed = other_values(
        past.config, {name: value for name, value in values.items() if name in past.config or not anyway}
    )
    if changed:
        raise MatrixError(
            f"{past.directory}/.config is not what the run was made with: {changed}",
            hint="put those values back, or move the file away: the start record holds them too",
        )
    bring(tracker_list(trackers))
    planning = Planning.begin_numbered(past.directory.parent, f"{past.directory.name}_reproduced")
    directory = planning.place
    origin = Origin("make reproduce", f"the reproduction of {past.directory.name}")
    own = [
        *tree.assignments("TRACKER", trackers, origin),
        *tree.assignments("TRACKER_RUN_NAME", directory.name, origin),
    ]
    data = asked_path("DATA_DIR", str(values.get("DATA_DIR", "")))
    if code.root != root and "DATA_DIR" in values and not data.is_absolute():
        own += tree.assignments("DATA_DIR", str(root / data), origin)
    with planning:
        resolved = tree.resolve(base, own)
        write_new_config(resolved, planning.directory, root=code.root)
        write_status(planning.directory, RunStatus(PENDING))
        write_replayed(planning.directory, past.lineage.changes)
        planning.publish(newest=False)
    asked = {name: value for name, value in resolved.values.items() if name not in EXPANDED}
    return Launch(directory.name, directory, code.root, str(values["MODEL"]), asked)


def _foreign(directory: Path) -> MatrixError:
    return MatrixError(
        f"{directory} is not a training of this tree, and has no command that it was run by",
        hint="kharness run -- PROGRAM records what kharness reproduce runs again",
    )


def _recorded(config: Mapping[str, object], tree: Tree) -> Layer:
    """The assignments that give the values of a start record."""
    layer: list[Assignment] = []
    for name, value in config.items():
        if (known := tree.options.get(name)) and known.stands_for:
            continue
        with contextlib.suppress(ConfigError):  # one that only follows others; the caller compares all values
            layer += tree.assignments(name, value_text(value), Origin("start record", "the start record"))
    return tree.resolve(yielding=layer).asked
