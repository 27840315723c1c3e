"""The next trial of a sweep: drawn at random, or proposed by Optuna from the results of the earlier ones.

A proposal is a function of the trials, the seed of the search and the number of the trial: Optuna keeps
nothing between two of them, so a search that was killed continues as if it had not been.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from kharness.config.affects import Affects
from kharness.config.errors import ConfigError
from kharness.environment.parts import bring
from kharness.matrix.planning.cells import Cell, MistakeError, Refused
from kharness.matrix.planning.matrix_json import Plan
from kharness.matrix.sweep.ranges import Between, Listed, Range
from kharness.matrix.sweep.validation import Objective, Trial
from kharness.runs.errors import MatrixError
from kharness.runs.exit_codes import STOPPED_EARLY
from kharness.runs.launch import Launch
from kharness.runs.status import COMPLETE, FAILED

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler

# So often a proposal may be one that was made before, or refused, until the space counts as exhausted; of
# the first half of them the search proposes, the others are drawn at random.
PATIENCE = 100

# So many trials of a search are drawn to say how long it takes; further ones are taken to be like them.
MOST_EXAMPLES = 20

Propose = Callable[[int], dict[str, str]]
"""Function from the number of an attempt to the value of each symbol."""


def random_values(ranges: Sequence[Range], *, seed: int, number: int) -> Propose:
    """Trial `number` of a random search; every attempt draws again."""

    def propose(attempt: int) -> dict[str, str]:
        sampler = load_optuna().samplers.RandomSampler(seed=_seed(seed, number, attempt))
        return _ask(_study(sampler), ranges)

    return propose


def tpe_values(
    ranges: Sequence[Range], trials: Sequence[Trial], objective: Objective, *, seed: int, number: int
) -> Propose:
    """Trial `number` of a TPE search that knows `trials`."""

    def propose(attempt: int) -> dict[str, str]:
        # A small space: TPE would propose its favorite again and again, and random draws reach the rest.
        if attempt >= PATIENCE // 2:
            return random_values(ranges, seed=seed, number=number)(attempt)
        # Trials that still run count as if they had failed, so that several at once explore.
        sampler = load_optuna().samplers.TPESampler(seed=_seed(seed, number, attempt), constant_liar=True)
        study = _study(sampler, "minimize" if objective.minimize else "maximize")
        study.add_trials([_frozen(trial, ranges) for trial in trials])
        return _ask(study, ranges)

    return propose


def unseen(propose: Propose, seen: set[tuple[str, ...]]) -> Iterator[dict[str, str]]:
    """Proposals that are none of those seen, which grows by them; ends when the patience does."""
    for attempt in range(PATIENCE):
        values = propose(attempt)
        key = tuple(values.values())
        if key not in seen:
            seen.add(key)
            yield values


def size(ranges: Sequence[Range]) -> float:
    """How many different trials there can be."""
    return math.prod(_count(one) for one in ranges)


def _count(one: Range) -> float:
    if isinstance(one, Listed):
        return len(one.values)
    return float(one.high - one.low + 1) if one.whole else math.inf


def _ask(study: Study, ranges: Sequence[Range]) -> dict[str, str]:
    params = study.ask({one.symbol: _distribution(one) for one in ranges}).params
    return {one.symbol: _text(one, params[one.symbol]) for one in ranges}


def _distribution(one: Range) -> BaseDistribution:
    distributions = load_optuna().distributions
    if isinstance(one, Between):
        kind = distributions.IntDistribution if one.whole else distributions.FloatDistribution
        number = int if one.whole else float
        found: BaseDistribution = kind(number(one.low), number(one.high), log=one.log)
    elif one.in_order:
        # Numbers in order are searched by index, so that TPE knows which are neighbors.
        found = distributions.IntDistribution(0, len(one.values) - 1)
    else:
        found = distributions.CategoricalDistribution(list(one.values))
    return found


def _text(one: Range, value: Any) -> str:
    """The Kconfig text of a value, which gives exactly that value again."""
    if isinstance(one, Listed):
        return one.values[value] if one.in_order else str(value)
    return repr(value)


def _value(one: Range, text: str) -> Any:
    if isinstance(one, Listed):
        return one.values.index(text) if one.in_order else text
    return int(text) if one.whole else float(text)


def _frozen(trial: Trial, ranges: Sequence[Range]) -> Any:
    """A trial in Optuna's words."""
    optuna = load_optuna()
    state = {
        COMPLETE: optuna.trial.TrialState.COMPLETE,
        STOPPED_EARLY: optuna.trial.TrialState.PRUNED,
        "open": optuna.trial.TrialState.RUNNING,
        # Without a value of its own it counts as worse than every complete one.
        FAILED: optuna.trial.TrialState.PRUNED,
    }[trial.state]
    finite = {n: value for n, value in enumerate(trial.validations, 1) if math.isfinite(value)}
    return optuna.trial.create_trial(
        state=state,
        value=trial.value,
        params={one.symbol: _value(one, trial.values[one.symbol]) for one in ranges},
        distributions={one.symbol: _distribution(one) for one in ranges},
        intermediate_values=finite if trial.state == STOPPED_EARLY else None,
    )


def _study(sampler: BaseSampler, direction: str = "minimize") -> Study:
    optuna = load_optuna()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study: Study = optuna.create_study(sampler=sampler, direction=direction)
    return study


def _seed(seed: int, number: int, attempt: int) -> int:
    """A seed of its own for every proposal, the same one whenever that is made again."""
    # From a digest and not a sum, so that neighboring numbers and seeds do not share their draws.
    digest = sha256(f"{seed} {number} {attempt}".encode()).digest()
    return int.from_bytes(digest[:4], "big")


def load_optuna(what: str = "searching") -> Any:
    """Return Optuna; MatrixError with the option that needs it if it is not installed."""
    if sys.modules.get("optuna") is None:  # else each proposal would read the environment's packages again
        bring(["sweep"])
    try:
        import optuna
    except ImportError as error:
        raise MatrixError(
            f"{what} needs optuna, which is not installed", hint="pip install optuna"
        ) from error
    return optuna


class Space(Protocol):
    """The trials that there could be: trainings of the tree, or runs of anybody's command."""

    @property
    def ranges(self) -> Sequence[Range]:
        """The ranges, in the order in which they were given."""

    @property
    def affects(self) -> Affects:
        """The words of each option of a trial; of options of a command nothing is known."""

    def cell(self, name: str, values: Mapping[str, str]) -> Cell:
        """Return the trial of these values; ConfigError where they are refused."""

    def launch(self, cell: Cell, directory: Path) -> Launch:
        """Return how a trial of the sweep in `directory` is started."""

    def begin(self, cell: Cell, plan: Plan) -> Launch:
        """Write a trial's directory in that of the plan, not flushed to the disk."""


def take(
    space: Space, name: str, proposals: Iterable[Mapping[str, str]]
) -> tuple[Cell | None, list[Refused]]:
    """Return the first of the proposals that is not refused, and those that were refused before it."""
    refused: list[Refused] = []
    for values in proposals:
        try:
            return space.cell(name, values), refused
        except MistakeError:
            raise
        except ConfigError as error:
            refused.append(Refused(name, values, str(error)))
    return None, refused


def draw(space: Space, count: int, *, seed: int) -> tuple[list[Cell], list[Refused]]:
    """Return so many different random trials, fewer where the space has no more, and what was refused."""
    seen: set[tuple[str, ...]] = set()
    cells: list[Cell] = []
    refused: list[Refused] = []
    for number in range(1, count + 1):
        if len(seen) >= size(space.ranges):
            break
        proposals = unseen(random_values(space.ranges, seed=seed, number=number), seen)
        cell, others = take(space, trial_name(number), proposals)
        refused += others
        if cell is None:
            break
        cells.append(cell)
    return cells, refused


def examples(space: Space, directory: Path, count: int) -> list[Launch]:
    """Return so many trials as a search may choose them, none of them written: they tell its time."""
    drawn = draw(space, min(count, MOST_EXAMPLES), seed=0)[0]
    known = cycle([space.launch(cell, directory) for cell in drawn])
    return list(islice(known, int(min(count, size(space.ranges)))))


def trial_name(number: int) -> str:
    return f"trial-{number:04}"


def refuse_seed(ranges: Iterable[Range], again: str) -> None:
    """MatrixError where a search would choose a seed; `again` is the command that takes several."""
    if any(one.symbol == "SEED" and size([one]) > 1 for one in ranges):
        raise MatrixError(
            "SEED cannot be searched: it is no way to train better",
            hint=f"give it one value, and train the best trials again with other seeds: {again}",
        )
