"""Resume: choose where an attempt begins, at the newest intact checkpoint of its run or at step 0.

Only checkpoints of the run's lineage count (monitoring.journal.lineage): those of its last attempt that
started from scratch and of the attempts that resumed after it, up to where a later attempt resumed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kharness.config.options import Options
from kharness.runs.control_changes import EXPECTED_DATA, REPLAYED, replayed_changes
from kharness.runs.files import CHECKPOINTS
from kharness.training.checkpoint import Checkpoints, checkpoint_files, load, own_name, position
from kharness.training.errors import CheckpointError, ResumeError
from kharness.training.saving.hashed import state_sha256
from kharness.training.saving.shards import identity
from monitoring import Record, Run
from monitoring.counts import cut_list
from monitoring.journal.files import JOURNAL
from monitoring.journal.lineage import Lineage

HASHED = ("model", "optimizer")
"""Parts of which a checkpoint's record has the hashes, as `model_sha256`."""


@dataclass(frozen=True)
class ResumePoint:
    """Where an attempt begins."""

    lineage: Lineage
    """The journal's history when this was decided."""
    path: Path | None = None
    """The checkpoint; None for an attempt from scratch."""
    state: Mapping[str, Any] | None = None
    passed_over: Sequence[tuple[str, str]] = ()
    """Newer checkpoints, and what is wrong with each."""
    changes: Sequence[Record] = ()
    """Changes that requests made after steps which are done again: they are made again (control_change)."""
    complete: bool = False
    """Whether the run has done everything that it was to do, so that there is nothing to begin."""

    def __str__(self) -> str:
        """Text for the user, one line per fact; empty for the first attempt at a run."""
        lines = [f"skipped: {name}: {reason}" for name, reason in self.passed_over]
        if self.path and self.state:
            lines.append(f"resume: after step {self.state['global_step']:,}, from {self.path.name}")
        elif self.lineage.last_seq:
            lines.append("from scratch: what was recorded and saved before stays, and no longer counts")
        return "".join(f"{line}\n" for line in lines)

    @property
    def _record(self) -> int | None:
        """The `seq` of the checkpoint's own record; None if its writer was killed before it wrote that."""
        return self.lineage.checkpoints.get(own_name(self.path)) if self.path else None

    def start_fields(self) -> Record:
        """`resumed_from`, `supersedes` and `passed_over` of the start record."""
        first, resumed = 1, None
        if self.path and self.state:
            first = (self._record or self.state["journal_seq"]) + 1
            resumed = {
                "checkpoint": own_name(self.path),
                "attempt": self.state["attempt"],
                "global_step": self.state["global_step"],
                "journal_seq": self.state["journal_seq"],
            }
        last = self.lineage.last_seq
        return {
            "resumed_from": resumed,
            "supersedes": {"first_seq": first, "last_seq": last} if first <= last else None,
            "passed_over": [{"checkpoint": name, "reason": reason} for name, reason in self.passed_over],
        }

    def begin(
        self,
        run: Run,
        options: Options,
        *,
        model: Mapping[str, Any],
        training: Mapping[str, Any],
        is_main: bool = True,
    ) -> Checkpoints:
        """Write the start record, and records that a kill between a checkpoint and its record left out.

        Ranks above 0 (not `is_main`) write their start record alone. ResumeError if another process has
        trained this run since the origin was decided.
        """
        # Another process may have trained the run since the checkpoint was chosen: to resume there would
        # supersede the records of steps that are done.
        if is_main and run.last_seq() != self.lineage.last_seq:
            raise ResumeError(
                f"{run.directory}: another process has trained this run in the meantime",
                hint="start again: it resumes from the newest checkpoint",
            )
        first = run.attempt if self.path is None else int(str(self.lineage.starts[0]["attempt"]))
        checkpoints = Checkpoints(
            run.directory / CHECKPOINTS,
            attempt=run.attempt,
            keep=options.CHECKPOINT_KEEP,
            first_attempt=first,
            writes=is_main,
        )
        run.start(model=model, training=training, **self.start_fields())
        if self.path and self.state:
            checkpoints.go_on_from(self.path, self.state)
            # A SIGKILL between writing a checkpoint and its record: the file is complete, so the record is
            # made up for.
            if is_main and self._record is None:
                step, best = self.state["global_step"], self.state.get("is_best", False)
                log_checkpoint(run, step, self.path, self.state, best=best)
        return checkpoints


def find_origin(
    directory: Path | None,
    options: Options,
    *,
    data_sha256: str,
    tokenizer_sha256: str | None = None,
    from_scratch: bool = False,
) -> ResumePoint:
    """Where the next attempt in a run directory begins; None is a directory that is still to be made.

    ResumeError if there is something to resume, and the options, the data or the tokenizer are not those that
    it was made with; and for a reproduction with other data than its past run had.
    """
    lineage = Lineage.read(directory / JOURNAL) if directory else Lineage()
    if directory is None:
        return ResumePoint(lineage)
    expected = os.environ.get(EXPECTED_DATA, data_sha256)
    if expected != data_sha256:
        raise ResumeError(
            f"the data are not those of the past run: SHA-256 {expected}, here {data_sha256}",
            hint="`make data` brings and verifies them; ANYWAY=y trains with what is here",
        )
    if from_scratch or not lineage.starts:
        return ResumePoint(lineage, changes=_to_replay(directory, Lineage()))
    candidates = _candidates(directory / CHECKPOINTS, lineage)
    if candidates or lineage.complete:
        now = {"tokenizer_sha256": tokenizer_sha256, "data_sha256": data_sha256}
        _refuse_changes(directory, lineage.starts[-1], options, now)
    if lineage.complete:
        return ResumePoint(lineage, complete=True)
    passed_over: list[tuple[str, str]] = []
    for path in candidates:
        try:
            state = load(path)
        except CheckpointError as error:
            passed_over.append((path.name, str(error).removeprefix(f"{path} ")))
            continue
        attempt, seq = state["attempt"], state["journal_seq"]
        # A power cut can lose the last records of a journal whose checkpoint did reach the disk; to resume
        # there would leave a gap in the history that nothing fills.
        if lineage.has_lost(attempt, seq):
            passed_over.append((path.name, f"the journal has lost its records up to {seq}"))
        elif not lineage.has_superseded(attempt, seq):
            changes = _to_replay(directory, lineage, after=state["global_step"])
            return ResumePoint(lineage, path, state, passed_over, changes)
    return ResumePoint(lineage, passed_over=passed_over, changes=_to_replay(directory, lineage))


def log_checkpoint(
    run: Run, step: int, path: Path, state: Mapping[str, Any], *, best: bool, reason: str | None = None
) -> None:
    """Record a checkpoint that is complete on disk; `reason` marks one that was made on request.

    A state that ranks share has its hashes in it: making them takes all ranks.
    """
    hashes = state.get("sha256") or {name: state_sha256(state[name]) for name in HASHED}
    run.log_checkpoint(
        step,
        checkpoint_path=path,
        best=best,
        reason=reason,
        **{f"{name}_sha256": value for name, value in hashes.items()},
    )


def _candidates(directory: Path, lineage: Lineage) -> list[Path]:
    """The checkpoints of the lineage, newest first; the best ones too, unless they are the same file."""
    steps, bests = (checkpoint_files(directory, best=best) for best in (False, True))
    files: dict[int, Path] = {}
    for path in (*steps, *bests):
        # A step's checkpoint and the best one are often hard links to one file.
        with suppress(FileNotFoundError):  # deleted by a training that is still at it, so open_run refuses
            files.setdefault(identity(path), path)
    found = [path for path in files.values() if lineage.has_attempt(position(path)[0])]
    return sorted(found, key=position, reverse=True)


def _to_replay(directory: Path, lineage: Lineage, *, after: int = 0) -> list[Record]:
    """The changes of the reproduced run, if this is a reproduction, and its own, of the steps `after` one."""
    found: dict[tuple[object, object], Record] = {}
    for change in (*replayed_changes(directory), *lineage.changes):
        # The first one counts: the reproduced run's changes come before the reproduction's own copies of
        # them.
        found.setdefault((change["global_step"], change["control"]), change)
    return [
        change
        for change in found.values()
        if change["control"] in REPLAYED and int(str(change["global_step"])) > after
    ]


def _refuse_changes(
    directory: Path, start: Record, options: Options, hashes: Mapping[str, str | None]
) -> None:
    """ResumeError if the training would not be the one that the start record describes."""
    changed = _changed(start.get("config"), options)
    for name, now in hashes.items():
        if now and (before := start.get(name, now)) != now:
            what = name.removesuffix("_sha256")
            changed.append(f"the {what}, SHA-256 {str(before)[:16]}… (now {now[:16]}…)")
    if changed:
        raise ResumeError(
            f"{directory} was trained with {cut_list(changed, 5)}",
            hint="--from-scratch begins with what is requested now; what is there stays",
        )


def _changed(recorded: object, options: Options) -> list[str]:
    """The recorded options that affect results and differ now, as `LEARNING_RATE=0.1 (now 0.2)`.

    One that has no value now follows another that differs, unless the tree does not know it any more.
    """
    if not isinstance(recorded, Mapping):
        return []
    found = []
    for name in options.affects.names(recorded, "results"):
        if name in options.values and recorded[name] != (now := _plain(options.values[name])):
            found.append(f"{name}={recorded[name]} (now {now})")
        elif name not in options.values and name not in options.affects.words:
            found.append(f"{name}={recorded[name]} (now unknown)")
    return found


def _plain(value: object) -> object:
    """Return a value as JSON reads it back."""
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value
