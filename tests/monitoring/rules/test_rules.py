"""Alert rules over recorded records: what they tell of them, once, also when the agent is started again."""

from __future__ import annotations

import importlib
import random
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest

from monitoring import Run
from monitoring.agent.rule_watch import RuleWatch
from monitoring.journal.alerts import Alerts
from monitoring.journal.records import Record, read_records
from monitoring.rules import RULES

from ...warm_python import WarmPython
from ..conftest import wait_for_delivery

START = {"event": "start", "num_steps": 100}


def write(path: Path, records: Iterable[Mapping[str, object]]) -> None:
    """Append records; each has its place as `seq` and, if it has no time, as time."""
    seq = len(path.read_bytes().splitlines()) if path.exists() else 0
    with path.open("ab") as file:
        for number, record in enumerate(records, start=seq + 1):
            line = {"time": float(number), "seq": number, "attempt": 1, **record}
            file.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))


def steps(*losses: float, first: int = 1, **metrics: object) -> list[dict[str, object]]:
    return [
        {"event": "step", "global_step": step, "train_loss": loss, **metrics}
        for step, loss in enumerate(losses, start=first)
    ]


def norms(*values: float) -> list[dict[str, object]]:
    return [
        {"event": "step", "global_step": i, "grad_norm": value} for i, value in enumerate(values, start=1)
    ]


USUAL = [1.0] * 10


def gpu(time: float, **values: object) -> dict[str, object]:
    """A sample of one GPU, made up."""
    sample = {"index": 3, "uuid": "GPU-a", "name": "simulated GPU", "state": "ok", **values}
    return {"event": "gpu", "time": time, "multi_gpu_data": [sample]}


def look(directory: Path, config: Mapping[str, object] | None = None, *, now: float | None = None) -> None:
    """One life of an agent: it takes in everything, at the time `now` of a run that goes on."""
    with closing(Alerts(directory)) as alerts:
        watch = RuleWatch(directory, config or {}, alerts)
        while watch.look(now or 0.0, running=now is not None):
            pass


def told(directory: Path) -> list[tuple[Any, ...]]:
    """Alerts in alerts.jsonl: rule, state, subject, value and the seq of the record that showed it."""
    keys = ("rule", "state", "subject", "value", "source_seq")
    return [tuple(alert.get(key) for key in keys) for alert, _ in read_records(directory / "alerts.jsonl")]


def messages(directory: Path) -> list[object]:
    return [alert["message"] for alert, _ in read_records(directory / "alerts.jsonl")]


def test_rule_gets_the_records_of_the_events_that_it_names(tmp_path: Path) -> None:
    other = [
        {"event": event, "global_step": 1, "grad_norm": 99.0} for event in ("epoch", "gpu", "", ["step"])
    ]
    write(tmp_path / "metrics.jsonl", [*other, *norms(99.0)])
    look(tmp_path)
    assert told(tmp_path) == [("gradient_norm", "firing", None, 99.0, len(other) + 1)]


def test_alert_has_everything_that_a_reader_needs(tmp_path: Path) -> None:
    write(tmp_path / "metrics.jsonl", norms(*USUAL, 12.5))
    look(tmp_path)
    [(alert, _)] = read_records(tmp_path / "alerts.jsonl")
    assert alert.pop("time")
    assert alert == {
        "event": "alert",
        "seq": 1,
        "attempt": 1,
        "rule": "gradient_norm",
        "severity": "warning",
        "message": "the gradient norm is above 10 and 5 times what is usual: 12.5 at step 11, limit 10",
        "condition": "the gradient norm is above 10 and 5 times what is usual",
        "look_at": "the samples of that step, the learning rate and the clipping of gradients",
        "state": "firing",
        "subject": None,
        "value": 12.5,
        "limit": 10.0,
        "global_step": 11,
        "source": "metrics.jsonl",
        "source_seq": 11,
    }


def test_gradient_norm_fires_once_and_resolves_when_it_is_quiet(tmp_path: Path) -> None:
    write(tmp_path / "metrics.jsonl", norms(*USUAL, *USUAL, 10.0, 11.0, 3.0, 60.0, *[1.0] * 49, 2.0))
    look(tmp_path)
    assert told(tmp_path) == [
        ("gradient_norm", "firing", None, 11.0, 22),
        ("gradient_norm", "resolved", None, 2.0, 74),
    ]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([20.0] * 10 + [99.0], []),  # of a model whose norms are large
        ([0.1] * 10 + [1.0] * 40, []),  # ten times the usual, and nothing to fear
        ([0.2] * 10 + [2.0**n for n in range(-2, 5)], []),  # step by step, as one that begins to learn
        ([49.0], []),  # before anything is usual
        ([51.0], [("gradient_norm", "firing", None, 51.0, 1)]),
        ([20.0] * 10 + [101.0], [("gradient_norm", "firing", None, 101.0, 11)]),
    ],
)
def test_norm_explodes_beside_what_is_usual(
    tmp_path: Path, values: list[float], expected: list[tuple[object, ...]]
) -> None:
    write(tmp_path / "metrics.jsonl", norms(*values))
    look(tmp_path)
    assert told(tmp_path) == expected


@pytest.mark.parametrize(
    ("leaps", "losses", "expected"),
    [
        ({30: 300.0}, {}, []),  # a single one, and the training goes on
        ({30: 300.0, 41: 300.0}, {}, []),
        ({30: 300.0, 40: 200.0}, {}, [("gradient_norm", "firing", None, 200.0, 41)]),  # it comes again
        ({30: 300.0}, {30: 3.1}, [("gradient_norm", "firing", None, 300.0, 31)]),
        (
            {30: 300.0},
            {33: 3.1},
            [("gradient_norm", "firing", None, 300.0, 31)],
        ),  # what it did to the weights
        ({30: 300.0}, {34: 3.1}, []),
        ({30: 300.0}, {31: None}, [("gradient_norm", "firing", None, 300.0, 31)]),
    ],
)
def test_single_leap_of_the_gradient_is_told_where_it_harms(
    tmp_path: Path,
    leaps: dict[int, float],
    losses: dict[int, float | None],
    expected: list[tuple[object, ...]],
) -> None:
    rows = [
        {
            "event": "step",
            "global_step": step,
            "grad_norm": leaps.get(step, 1.0),
            "train_loss": losses.get(step, 2.0 if step > 5 else 2.5),
        }
        for step in range(1, 60)
    ]
    write(tmp_path / "metrics.jsonl", [{"event": "start", "chance_loss": 2.5}, *rows])
    look(tmp_path, {"ALERT_LOSS_SPIKE": False, "ALERT_NONFINITE": False})
    assert told(tmp_path) == expected


@pytest.mark.parametrize("says_chance", [True, False])
@pytest.mark.parametrize(
    ("leaps", "losses", "expected"),
    [
        ({30: 300.0, 31: 200.0, 32: 200.0}, {30: 4.5}, []),  # its first steps go too far, and it falls back
        ({30: 300.0, 34: 200.0}, {}, [("gradient_norm", "firing", None, 200.0)]),  # it comes again
        (
            {30: 300.0},
            {31: 4.7},
            [("gradient_norm", "firing", None, 300.0), ("loss_spike", "firing", None, 4.7)],
        ),
        ({30: 20.0}, {27: 2.2, 28: 1.9, 29: 1.8, 30: 5.0}, []),  # ten times what it had just learned
    ],
)
def test_training_that_leaves_the_loss_of_a_guess_goes_too_far(
    tmp_path: Path,
    says_chance: bool,
    leaps: dict[int, float],
    losses: dict[int, float],
    expected: list[tuple[object, ...]],
) -> None:
    rows = [
        {"event": "step", "global_step": step, "grad_norm": leaps.get(step, 1.0)}
        | {"train_loss": losses.get(step, 2.3)}
        for step in range(1, 40)
    ]
    start = {"event": "start", **({"chance_loss": 2.3} if says_chance else {})}
    write(tmp_path / "metrics.jsonl", [start, *rows])
    look(tmp_path)
    assert [alert[:4] for alert in told(tmp_path)] == expected


@pytest.mark.parametrize(
    ("rule", "measured", "cold", "hot", "value", "message"),
    [
        ("gpu_temperature", "temperature_celsius", 80.0, 81.0, 81.0, "GPU 3 is hotter than 80 °C"),
        ("gpu_memory", "memory_used_mb", 180.0, 190.0, 95.0, "GPU 3: more than 90% of its memory is in use"),
    ],
)
def test_gpu_fires_when_it_has_lasted_and_resolves_when_it_is_over(
    tmp_path: Path, rule: str, measured: str, cold: float, hot: float, value: float, message: str
) -> None:
    def sample(t: int) -> dict[str, object]:
        is_hot = 10 <= t < 20 or 100 <= t < 140
        return gpu(t, **{"memory_total_mb": 200.0, measured: hot if is_hot else cold})

    write(tmp_path / "gpu_stats.jsonl", map(sample, range(200)))
    look(tmp_path)
    ended = 80.0 if rule == "gpu_temperature" else 90.0
    assert told(tmp_path) == [(rule, "firing", "GPU-a", value, 131), (rule, "resolved", "GPU-a", ended, 171)]
    limit, unit = (80, " °C") if rule == "gpu_temperature" else (90, "%")
    assert messages(tmp_path) == [
        f"{message}: {value:g}{unit}, limit {limit}{unit}",
        f"no longer: {message}: {ended:g}{unit}, limit {limit}{unit}",
    ]


def test_gpus_of_every_host_are_watched(tmp_path: Path) -> None:
    write(tmp_path / "gpu_stats.jsonl", [gpu(t, temperature_celsius=60.0) for t in range(50)])
    hot = [{**gpu(t, temperature_celsius=95.0), "host": "node1"} for t in range(50)]
    write(tmp_path / "gpu_stats.node1.jsonl", hot)
    full = {"event": "system", "host": "node1", "disk_usage_percent": 99.0, "disk_free_gb": 3.0}
    write(tmp_path / "system_stats.node1.jsonl", [{**full, "time": float(t)} for t in range(20)])
    look(tmp_path)
    assert messages(tmp_path) == [
        "node1: GPU 3 is hotter than 80 °C: 95 °C, limit 80 °C",
        "node1: the disk of the run directory is more than 98% full or has less than 2 GB left: 3 GB free",
    ]
    keys = ("source", "source_seq")
    found = [tuple(it[key] for key in keys) for it, _ in read_records(tmp_path / "alerts.jsonl")]
    assert found == [("gpu_stats.node1.jsonl", 31), ("system_stats.node1.jsonl", 11)]


def test_idle_gpu_fires_after_five_minutes(tmp_path: Path) -> None:
    write(tmp_path / "gpu_stats.jsonl", [gpu(t, utilization_percent=5.0) for t in range(0, 400, 10)])
    look(tmp_path)
    assert told(tmp_path) == [("gpu_utilization", "firing", "GPU-a", 5.0, 31)]


def test_values_of_a_lost_gpu_and_those_that_are_not_reported_say_nothing(tmp_path: Path) -> None:
    lost = [gpu(t, state="lost", temperature_celsius=99.0) for t in range(100)]
    unknown = [gpu(t, temperature_celsius=None, memory_used_mb=None) for t in range(100, 200)]
    write(tmp_path / "gpu_stats.jsonl", lost + unknown)
    look(tmp_path, {"ALERT_GPU_LOST": False})
    assert told(tmp_path) == []


def gpus(host: str, *states: str, error: str = "GPU is lost") -> dict[str, object]:
    """A sample of GPUs with one state each, made up; the last has a UUID only where it answers."""
    last = len(states) - 1
    samples = [
        {
            "index": index,
            "uuid": None if index == last and state != "ok" else f"GPU-{host}-{index}",
            "vendor": "nvidia",
            "state": state,
            "error": None if state == "ok" else error,
        }
        for index, state in enumerate(states)
    ]
    return {"event": "gpu", "host": host, "multi_gpu_data": samples}


def test_each_lost_gpu_is_an_alert_until_it_answers_and_all_of_a_host_are_one(tmp_path: Path) -> None:
    states = [
        *(("ok", "ok", "ok"), ("lost", "ok", "ok"), ("lost", "ok", "lost"), ("ok", "error", "ok")),
        *(("lost", "lost", "lost"), ("lost", "lost", "lost"), ("ok", "ok", "ok")),
    ]
    write(tmp_path / "gpu_stats.jsonl", [gpus("h", *one) for one in states])
    write(tmp_path / "gpu_stats.node1.jsonl", [gpus("node1", "lost", "lost", error="gone")])
    for _ in range(2):  # an agent that is started again reports nothing twice
        look(tmp_path)
    assert [
        (it["rule"], it["state"], it["subject"], it["source_seq"])
        for it, _ in read_records(tmp_path / "alerts.jsonl")
    ] == [
        ("gpu_lost", "firing", "GPU-h-0", 2),
        ("gpu_lost", "firing", "GPU 2 of h", 3),
        ("gpu_error", "firing", "GPU-h-1", 4),
        ("gpu_lost", "resolved", "GPU-h-0", 4),
        ("gpu_lost", "resolved", "GPU 2 of h", 4),
        ("gpu_error", "resolved", "GPU-h-1", 5),
        ("gpu_lost", "firing", "h", 5),
        ("gpu_lost", "resolved", "h", 7),
        ("gpu_lost", "firing", "node1", 1),
    ]


def test_nonfinite_values_fire_by_field_until_they_are_numbers_again(tmp_path: Path) -> None:
    broken = {"event": "step", "global_step": 2, "train_loss": None, "nonfinite": ["train_loss", "grad_norm"]}
    evaluation = {"event": "eval", "global_step": 2, "val_loss": 1.0}
    write(tmp_path / "metrics.jsonl", [*steps(1.0), broken, evaluation, *steps(1.0, first=3)])
    look(tmp_path)
    assert told(tmp_path) == [
        ("nonfinite", "firing", "grad_norm", None, 2),
        ("nonfinite", "firing", "train_loss", None, 2),
        ("nonfinite", "resolved", "train_loss", None, 4),
    ]


def test_loss_plateau_fires_after_a_window_without_a_lower_median(tmp_path: Path) -> None:
    """Falling, then noise about a level, then falling again; the window is 100 steps."""
    noise = random.Random(1)
    falling = [2 - 0.01 * step + noise.gauss(0, 0.1) for step in range(150)]
    level = [0.5 + noise.gauss(0, 0.1) for _ in range(400)]
    lower = [0.2 + noise.gauss(0, 0.1) for _ in range(100)]
    write(tmp_path / "metrics.jsonl", [START, *steps(*falling, *level, *lower)])
    look(tmp_path, {"ALERT_LOSS_PLATEAU_STEPS": 100})
    states = [(state, seq) for _, state, _, _, seq in told(tmp_path)]
    (first, fired), (last, resolved) = states[0], states[-1]
    assert (first, last) == ("firing", "resolved")
    assert 150 + 100 <= fired < 150 + 200
    assert 550 < resolved < 550 + 100


def test_loss_that_falls_slowly_under_much_noise_is_no_plateau(tmp_path: Path) -> None:
    noise = random.Random(2)
    losses = [1 - 0.0005 * step + noise.gauss(0, 0.2) for step in range(1800)]
    write(tmp_path / "metrics.jsonl", [START, *steps(*losses)])
    look(tmp_path, {"ALERT_LOSS_PLATEAU_STEPS": 300})
    assert told(tmp_path) == []


def test_loss_plateau_counts_steps_not_records(tmp_path: Path) -> None:
    records = [{"event": "step", "global_step": 10 * i, "train_loss": 1.0} for i in range(1, 60)]
    write(tmp_path / "metrics.jsonl", records)
    look(tmp_path, {"ALERT_LOSS_PLATEAU_STEPS": 200})
    [(_, state, _, _, seq)] = told(tmp_path)
    assert (state, seq) == ("firing", 41)  # a window that begins with step 10, and another


def test_new_attempt_begins_its_plateau_anew(tmp_path: Path) -> None:
    write(tmp_path / "metrics.jsonl", [START, *steps(*[1.0] * 150), START, *steps(*[1.0] * 150)])
    look(tmp_path, {"ALERT_LOSS_PLATEAU_STEPS": 100})
    assert told(tmp_path) == []


def test_training_that_records_nothing_stalls_until_it_goes_on(tmp_path: Path) -> None:
    write(tmp_path / "metrics.jsonl", [START, *steps(1.0, 0.5)])  # the last at 3 s
    look(tmp_path, now=303.0)
    assert told(tmp_path) == []
    look(tmp_path, now=304.0)
    look(tmp_path, now=400.0)  # the next agent
    write(tmp_path / "metrics.jsonl", [{"event": "step", "global_step": 3, "time": 500.0}])
    look(tmp_path, now=501.0)
    assert told(tmp_path) == [
        ("stalled", "firing", None, 301.0, 3),
        ("stalled", "resolved", None, 497.0, 4),
    ]
    write(tmp_path / "metrics.jsonl", [{"event": "end", "time": 501.0}])
    look(tmp_path, now=9999.0)
    assert len(told(tmp_path)) == 2


def test_training_stalls_by_the_time_that_passed_though_the_clock_is_set_back(tmp_path: Path) -> None:
    write(tmp_path / "metrics.jsonl", [START, {"event": "step", "global_step": 1, "time": 5000.0}])
    with closing(Alerts(tmp_path)) as alerts:
        watch = RuleWatch(tmp_path, {}, alerts)
        for now in (1400.0, 1700.0, 1701.0):  # an hour back
            watch.look(now, running=True)
            assert len(told(tmp_path)) == (now > 1700.0)
    write(tmp_path / "metrics.jsonl", [{"event": "step", "global_step": 2, "time": 1650.0}])
    look(tmp_path)
    assert [alert[:2] for alert in told(tmp_path)] == [("stalled", "firing"), ("stalled", "resolved")]
    assert min(alert[3] for alert in told(tmp_path)) >= 0


def test_what_lasts_is_an_alert_though_the_clock_is_set_back(tmp_path: Path) -> None:
    hot = [gpu(5000.0 + t, temperature_celsius=95) for t in range(5)]
    write(tmp_path / "gpu_stats.jsonl", [*hot, *[gpu(1405.0 + t, temperature_celsius=95) for t in range(40)]])
    look(tmp_path)
    assert [alert[:3] for alert in told(tmp_path)] == [("gpu_temperature", "firing", "GPU-a")]


def test_agent_that_is_started_again_anywhere_tells_the_same(tmp_path: Path) -> None:
    """Read in one go, and by a new agent after every few records."""
    noise = random.Random(3)
    journal = [START, *norms(*[100 ** noise.random() for _ in range(60)], *[1.0] * 60)]
    samples = [gpu(t, temperature_celsius=70 + 20 * (t % 100 > 40)) for t in range(250)]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    for directory in (whole, parts):
        directory.mkdir()
    write(whole / "metrics.jsonl", journal)
    write(whole / "gpu_stats.jsonl", samples)
    look(whole)
    while journal or samples:
        count = noise.randrange(1, 40)
        write(parts / "metrics.jsonl", journal[:count])
        write(parts / "gpu_stats.jsonl", samples[:count])
        journal, samples = journal[count:], samples[count:]
        look(parts)
    assert {state for _, state, *_ in told(whole)} == {"firing", "resolved"}
    assert sorted(map(str, told(parts))) == sorted(map(str, told(whole)))


def test_rule_can_be_turned_off_and_given_its_limit(tmp_path: Path) -> None:
    write(tmp_path / "metrics.jsonl", norms(*USUAL, 50.0))
    look(tmp_path, {"ALERT_GRADIENT_NORM": False})
    assert told(tmp_path) == []
    look(tmp_path, {"ALERT_GRADIENT_NORM_LIMIT": 60.0})
    assert told(tmp_path) == []
    look(tmp_path, {"ALERT_GRADIENT_NORM_LIMIT": 40.0})
    assert messages(tmp_path) == [
        "the gradient norm is above 40 and 5 times what is usual: 50 at step 11, limit 40"
    ]


def test_rule_that_fails_is_told_of_and_the_others_go_on(tmp_path: Path) -> None:
    write(tmp_path / "metrics.jsonl", [*norms(1.0), *steps(1.0, first=2), *norms(99.0)])
    look(tmp_path, {"ALERT_LOSS_PLATEAU_STEPS": "many", "ALERT_STALLED_SECONDS": None})
    assert messages(tmp_path) == [
        "alert rule loss_plateau: '<' not supported between instances of 'str' and 'int'",
        "alert rule stalled: unsupported format string passed to NoneType.__format__",
        "the gradient norm is above 10 and 5 times what is usual: 99 at step 1, limit 50",
    ]


def test_rotated_samples_leave_a_told_alert_as_it_is(tmp_path: Path) -> None:
    """The new file begins hot, as the old one ended; then it cools down."""
    stats = tmp_path / "gpu_stats.jsonl"
    write(stats, [gpu(t, temperature_celsius=90.0) for t in range(50)])
    look(tmp_path)
    stats.unlink()
    later = [{**gpu(t, temperature_celsius=90.0 if t < 90 else 50.0), "seq": t + 1} for t in range(50, 140)]
    write(stats, later)
    look(tmp_path)
    assert told(tmp_path) == [
        ("gpu_temperature", "firing", "GPU-a", 90.0, 31),
        ("gpu_temperature", "resolved", "GPU-a", 50.0, 121),
    ]


def test_agent_of_a_run_watches_it(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    with Run(directory, name="n", project="p", config={"ALERT_GRADIENT_NORM_LIMIT": 1.0}, agent=False) as run:
        run.start(model={"name": "m"}, training={"num_steps": 2})
        run.log_step(1, train_loss=1.0, grad_norm=6.0)
        run.log_step(2, train_loss=float("nan"), grad_norm=1.0)
    subprocess.run([sys.executable, "-m", "monitoring.agent", directory], check=True, timeout=600)
    assert told(directory) == [
        ("gradient_norm", "firing", None, 6.0, 2),
        ("nonfinite", "firing", "train_loss", None, 3),
    ]


def test_training_with_an_absurd_learning_rate_is_alerted(
    root: Path, tmp_path: Path, warm_torch: WarmPython
) -> None:
    """LeNet-5, really: the gradients explode while the loss is still a number."""
    flags = ["--optimizer", "sgd", "--learning-rate", "3", "--max-steps", "30", "--tracker", "none"]
    done = warm_torch.run(["lenet5/train.py", *flags, "--results-dir", tmp_path], cwd=root, timeout=600)
    assert done.returncode in (0, 65)  # 65: the loss became NaN in the end
    [directory] = tmp_path.glob("lenet5_*")
    wait_for_delivery(directory)
    norm = next(alert for alert in told(directory) if alert[0] == "gradient_norm")
    shown = first_above(directory / "metrics.jsonl", 100.0)  # one of 27 before it does no harm
    assert norm == ("gradient_norm", "firing", None, shown["grad_norm"], shown["seq"])


def first_above(journal: Path, limit: float) -> Record:
    records = (record for record, _ in read_records(journal))
    return next(record for record in records if float(str(record.get("grad_norm") or 0)) > limit)


def test_tracker_that_lacks_old_records_is_an_alert_until_it_has_them(tmp_path: Path) -> None:
    """A record a second; an agent that begins, for the second time too, gives every tracker its time."""
    config = {"ALERT_TRACKER_BEHIND_SECONDS": 60.0}
    write(tmp_path / "metrics.jsonl", steps(*[1.0] * 100))
    write(tmp_path / "gpu_stats.jsonl", [gpu(t, temperature_celsius=60.0) for t in range(300)])
    for life in (
        [(100, 0, 0), (160, 39, 100), (161, 40, 100)],
        [(161, 40, 0), (200, 100, 0), (222, 100, 99)],
    ):
        with closing(Alerts(tmp_path)) as alerts:
            watch = RuleWatch(tmp_path, config, alerts)
            for now, slow, csv in life:
                assert not watch.look(now, running=False, delivered={"slow": slow, "csv": csv})
    assert told(tmp_path) == [
        ("tracker_behind", "firing", "slow", 60.0, 100),
        ("tracker_behind", "resolved", "slow", 0.0, 100),
        ("tracker_behind", "firing", "csv", 1.0, 100),
    ]
    assert messages(tmp_path)[0] == "slow lacks records that are older than 60 s: 60 records after step 100"


THEIRS = {
    "broken": "import of_nobody",
    "no_options": "class Rule: ...",
    "opens": "class Rule:\n    def __init__(self, options): raise RuntimeError('no file')",
    "returns_none": "class Rule(Good):\n    def update(self, record): return None",
    "says_text": "class Rule(Good):\n    def update(self, record): return [Finding(True, 'x', value='12')]",
    "look": "LOOK = '{place}'\nclass Rule(Good):\n    pass",
}
GOOD = """
from dataclasses import dataclass

from monitoring.rules import Finding


@dataclass(frozen=True)
class Options: ...


class Good:
    severity, hold = "warning", 0.0

    def __init__(self, options): ...

    def update(self, record):
        return [Finding(True, "seen", value=1.0)]


"""


def test_a_rule_of_ones_own_that_fails_is_an_alert_and_no_other_stops(tmp_path: Path) -> None:
    folder = tmp_path / "rules"
    folder.mkdir()
    for name, text in THEIRS.items():
        (folder / f"{name}.py").write_text(text if name == "no_options" else GOOD + text)
    package = importlib.import_module(RULES.package)
    package.__path__.append(str(folder))
    vars(RULES).pop("_modules", None)
    importlib.invalidate_caches()
    write(tmp_path / "metrics.jsonl", [START, *steps(1.0, 2.0), *norms(*USUAL, 1e9)])
    try:
        look(tmp_path)
    finally:
        package.__path__.remove(str(folder))
        vars(RULES).pop("_modules", None)
        for name in THEIRS:
            sys.modules.pop(f"{RULES.package}.{name}", None)
    *failed, found = messages(tmp_path)
    assert sorted(map(str, failed)) == [
        "alert rule 'broken' cannot be imported: ModuleNotFoundError: No module named 'of_nobody'",
        "alert rule look failed: KeyError: 'place'",
        "alert rule no_options failed: AttributeError: "
        "module 'monitoring.rules.no_options' has no attribute 'Options'",
        "alert rule opens failed: RuntimeError: no file",
        "alert rule returns_none failed: TypeError: 'NoneType' object is not iterable",
        "alert rule says_text failed: ValueError: Unknown format code 'g' for object of type 'str'",
    ]
    assert str(found).startswith("the gradient norm"), "the others still watch"
