"""Any metric of a run as a series: the records that count, and windows that lose no spike."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from monitoring import Record, Run, read_records
from monitoring.gpu.aggregates import aggregate
from monitoring.gpu.sample import GpuSample
from monitoring.journal.encoding.archive import full_files
from monitoring.journal.lineage import counting, superseding
from monitoring.journal.records import MEASURING, points
from monitoring.journal.rotating_journal import RotatingJournal
from monitoring.journal.series import RunSeries, Window, journals, last_values, table
from monitoring.journal.series.run_series import X

Point = tuple[float, float]


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows are held as they are, so that a hundred records have blocks."""
    monkeypatch.setattr(table, "MOST_CELLS", 0)
    monkeypatch.setattr(table, "FEWEST_ROWS", 32)


def write(path: Path, records: Sequence[Record]) -> None:
    with path.open("ab") as file:
        file.writelines(orjson.dumps(record) + b"\n" for record in records)


def all_of(series: RunSeries, name: str, key: int | str = 0, x: X = "step") -> list[Point]:
    """Every record of a metric, one by one."""
    window = series.window(name, key=key, x=x, buckets=10**9)
    assert window.exact
    assert not window.coarse
    assert list(window.min) == pytest.approx(list(window.last), nan_ok=True, abs=0, rel=0)
    return [*zip(window.x, window.last, strict=True)]


def expected(journal: Path, event: str, name: str) -> list[Point]:
    """The same by the reader of whole records: the oracle."""
    found: list[Point] = []
    for record in counting(record for record, _ in read_records(journal)):
        if record.get("event") == event:
            lost = cast("list[str]", record.get("nonfinite") or [])
            value = math.nan if name in lost else points(record).get(name)
            if value is not None:
                found.append((cast("int", record["global_step"]), value))
    return found


def same(found: list[Point], wanted: list[Point]) -> bool:
    """Equal, NaN at the same places."""
    return [*map(str, found)] == [*map(str, [(float(step), float(value)) for step, value in wanted])]


def test_two_ranks_of_a_resumed_run_as_the_lineage_has_them(tmp_path: Path) -> None:
    """Written by two attempts of a run: a spike, a NaN, an evaluation twice, a metric that begins late."""
    for attempt, (first, last) in enumerate([(1, 60), (41, 100)]):
        again: dict[str, Any] = {}
        if attempt:
            again = {
                "resumed_from": {"checkpoint": "a.pt", "global_step": first - 1},
                "supersedes": superseding(tmp_path / "metrics.jsonl", first - 1),
            }
        names: dict[str, Any] = {"name": "n", "project": "p", "config": {}, "agent": False}
        with Run(tmp_path, **names) as run, Run(tmp_path, rank=1, **names) as other:
            for rank, one in enumerate((run, other)):
                one.start(model={}, training={"batch_size": 32, "tokens_per_sample": 8}, **again)
                for step in range(first, last + 1):
                    loss = math.nan if step == 50 else 1e6 if step == 70 else 1 / step + attempt
                    late = {"late": step} if step > 45 else {}
                    one.log_step(step, train_loss=loss, lr=0.1 * rank, word="text", **late)
                    if step % 20 == 0 and rank == 0:
                        one.log_eval(step, split="val", val_loss=loss)
                        one.log_eval(step, split="val", val_loss=loss + 1)
    series = RunSeries(tmp_path)
    assert not series.refresh()
    for rank, journal in enumerate(("metrics.jsonl", "metrics.rank0001.jsonl")):
        for name in ("train_loss", "lr", "late", "cpu_mem_rss_mb", "nan_inf_detected"):
            assert same(all_of(series, name, rank), expected(tmp_path / journal, "step", name)), (rank, name)
    assert same(all_of(series, "val_loss"), expected(tmp_path / "metrics.jsonl", "eval", "val_loss"))
    assert len(all_of(series, "val_loss")) == 10
    ends = {name: (found.value, found.kind) for name, found in last_values(tmp_path).items()}
    lasts = {name: (it.last, it.kind) for name, it in series.metrics.items() if 0 in it.keys}
    assert ends == lasts
    assert last_values(tmp_path)["val_loss"].step == 100
    info = series.metrics["train_loss"]
    assert (info.kind, info.keys, info.count, info.nonfinite) == ("step", (0, 1), 100, 1)
    assert (info.unit, info.better, info.max, info.last, info.last_step) == ("", "down", 1e6, 1.01, 100)
    assert info.text.startswith("mean of the step's batch")
    assert not {"word", "seq", "attempt", "time"} & series.metrics.keys()
    assert series.axes == {"step": 1.0, "time": 1.0, "samples": 32.0, "tokens": 256.0}
    assert all_of(series, "train_loss", x="tokens")[:1] == [(256.0, 1.0)]


# A part of a run: how many steps, from how far back it goes on, and the values that it logs by place.
PARTS = st.lists(st.tuples(st.integers(0, 90), st.integers(0, 100), st.booleans()), min_size=1, max_size=4)
VALUES = st.lists(
    st.one_of(st.floats(-1e3, 1e3), st.just(math.nan), st.none(), st.just(1e9)), min_size=1, max_size=40
)


def story(
    parts: Sequence[tuple[int, int, bool]], values: Sequence[float | None], back: bool, late: int
) -> Iterator[Record]:
    """Records of attempts that go on from earlier ones; `back` has steps that go back without a resume.

    The last ones before an attempt are those of a `late` source, which are not done again.
    """
    seq, step, steps = 0, 0, dict[int, int]()
    for attempt, (num, resumed, sparse) in enumerate(parts, 1):
        step = min(step, resumed) if not back else step
        first = max((at for at, number in steps.items() if number <= step), default=0) + 1
        seq += 1
        again = {"first_seq": first, "last_seq": seq - 1 - late}
        gone = again if attempt > 1 and first < seq - late and not back else None
        yield {"event": "start", "time": 1e9 + seq, "seq": seq, "attempt": attempt, "supersedes": gone}
        for _ in range(num):
            step = step + 1 if not back or step % 50 else step - 17
            seq += 1
            value = values[seq % len(values)]
            lost = value is not None and math.isnan(value)
            measured = (
                {}
                if sparse and seq % 5
                else {"loss": None if lost else value, **({"nonfinite": ["loss"]} if lost else {})}
            )
            common = {"time": 1e9 + seq, "seq": seq, "attempt": attempt, "global_step": step}
            steps[seq] = step
            yield {"event": "step", **common, "other": seq, **measured}
            if seq % 9 == 0:
                seq += 1
                steps[seq] = step
                yield {"event": "eval", **common, "seq": seq, "val": seq / 7}


@pytest.mark.usefixtures("_small")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=80)
@given(
    parts=PARTS,
    values=VALUES,
    back=st.booleans(),
    late=st.just(0) | st.integers(1, 60),
    window=st.tuples(st.integers(-10, 300), st.integers(-10, 300), st.integers(1, 60)),
    log_x=st.booleans(),
    cuts=st.lists(st.integers(0, 40_000), max_size=4),
)
def test_no_window_loses_a_spike(
    tmp_path_factory: pytest.TempPathFactory,
    parts: list[tuple[int, int, bool]],
    values: list[float | None],
    back: bool,
    late: int,
    window: tuple[int, int, int],
    log_x: bool,
    cuts: list[int],
) -> None:
    """The extremes and the number of records of any window are the true ones, however a journal has grown."""
    journal = tmp_path_factory.mktemp("run") / "metrics.jsonl"
    text = b"".join(orjson.dumps(record) + b"\n" for record in story(parts, values, back, late))
    series = RunSeries(journal.parent)
    before = 0
    for cut in [*sorted(cuts), len(text)]:
        with journal.open("ab") as file:
            file.write(text[before:cut])
        before = max(before, cut)
        series.refresh(0.0)
    while series.refresh(0.0):
        pass
    low, high, buckets = min(window[:2]), max(window[:2]), window[2]
    for event, name in (("step", "loss"), ("step", "other"), ("eval", "val")):
        wanted = expected(journal, event, name)
        if name not in series.metrics:
            assert wanted == []
            continue
        assert same(all_of(series, name), wanted)
        inside = [(step, value) for step, value in wanted if low <= step <= high]
        found = series.window(name, lo=low, hi=high, buckets=buckets, log_x=log_x)
        check(found, inside, buckets)
        check(series.window(name, buckets=buckets, log_x=log_x), wanted, buckets)
        last = series.value_at(1e9 + 10**6).get(name)
        assert str(last) == str(float(wanted[-1][1]) if wanted else None)


def check(window: Window, inside: list[Point], buckets: int) -> None:
    """A window against the true records in it."""
    finite = [value for _, value in inside if value == value]
    assert len(window) <= buckets + 0
    assert sum(window.count) == len(inside)
    assert sum(window.nonfinite) == len(inside) - len(finite)
    assert min([it for it in window.min if it == it], default=None) == min(finite, default=None)
    assert max([it for it in window.max if it == it], default=None) == max(finite, default=None)
    assert str(list(window.last)[-1:]) == str([float(value) for _, value in inside[-1:]])
    if len(inside) <= buckets:
        assert window.exact
        assert same([*zip(window.x, window.last, strict=True)], inside)
    assert window.exact == (len(window) == len(inside)) or not window.exact


def test_a_long_journal_is_coarse_first_and_then_exact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "LONG", 2**18)
    records: list[Record] = [{"event": "start", "time": 1e9, "seq": 1, "attempt": 1}]
    for step in range(1, 20_001):
        loss = 1e6 if step == 7777 else 1 / step
        records.append(
            {
                "event": "step",
                "time": 1e9 + step,
                "seq": step + 1,
                "attempt": 1,
                "global_step": step,
                "loss": loss,
            }
        )
    records.append(
        {"event": "end", "time": 2e9, "seq": 20_002, "attempt": 1, "test_loss": 0.5, "status": "complete"}
    )
    write(tmp_path / "metrics.jsonl", records)
    series = RunSeries(tmp_path)
    assert series.refresh(0.0)
    first = series.window("loss", buckets=200)
    assert (first.coarse, first.exact, first.x[0], first.x_last[-1]) == (True, False, 1.0, 20_000.0)
    assert 100 < len(first) <= 200
    info = series.metrics["loss"]
    assert (info.coarse, info.last, info.last_step) == (True, 1 / 20_000, 20_000)
    assert series.metrics["test_loss"].last == 0.5
    versions = {series.version}
    while series.refresh(0.0):
        versions.add(series.version)
        assert series.window("loss", buckets=200).coarse
    assert len(versions) > 3
    assert all_of(series, "loss") == [(step, 1e6 if step == 7777 else 1 / step) for step in range(1, 20_001)]
    assert max(series.window("loss", buckets=3).max) == 1e6
    assert series.metrics["test_loss"].last_step == 20_000


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize("how", ["truncated", "replaced", "rewritten", "deleted"])
def test_a_journal_that_is_written_anew_is_read_anew(tmp_path: Path, how: str) -> None:
    path = tmp_path / "metrics.jsonl"
    old = [
        {"event": "step", "time": 1e9, "seq": n, "attempt": 1, "global_step": n, "loss": n}
        for n in range(1, 90)
    ]
    new = [{**record, "loss": 7.25} for record in old]
    write(path, old)
    series = RunSeries(tmp_path)
    series.refresh()
    generation, version = series.generation, series.version
    if how == "replaced":
        os.replace(path, tmp_path / "aside")
    if how == "truncated":
        new = new[:3]
    path.write_bytes(b"")
    write(path, [*new, *new[:0]] if how != "rewritten" else [*new, {**new[-1], "seq": 90, "global_step": 90}])
    if how == "deleted":
        path.unlink()
    series.refresh()
    assert (series.generation > generation, series.version > version) == (True, True)
    if how == "deleted":
        assert series.metrics == {}
    else:
        count = {"truncated": 3, "replaced": 89, "rewritten": 90}[how]
        assert all_of(series, "loss") == [(n, 7.25) for n in range(1, count + 1)]


@pytest.mark.usefixtures("_small")
def test_samples_of_gpus_and_hosts_through_rotation(tmp_path: Path) -> None:
    """Each GPU is a key of its own, of which zooming reads rotated files again."""
    for host in ("", "far"):
        path = tmp_path / (f"gpu_stats.{host}.jsonl" if host else "gpu_stats.jsonl")
        journal = RotatingJournal(path, file_bytes=60_000, keep=9)
        for second in range(100):
            gpus = [
                GpuSample(
                    index, f"GPU-{index}", "GPU", "simulated", "ok", power_draw_watts=100.0 * index + second
                )
                for index in (0, 1)
            ]
            journal.append(
                {
                    "event": "gpu",
                    "time": 1e9 + second,
                    "global_step": second // 2,
                    "host": host,
                    "multi_gpu_data": [{**gpu._asdict(), "run_share": 1.0} for gpu in gpus],
                    "aggregate_stats": aggregate(gpus),
                }
            )
        journal.append({"event": "gpu", "time": 2e9, "multi_gpu_data": None})
        journal.close()
    assert len(full_files(tmp_path / "gpu_stats.jsonl")) > 1
    series = RunSeries(tmp_path)
    series.refresh()
    power = series.metrics["gpu_power"]
    assert (power.keys, power.kind, power.unit) == ((0, 1, "far:0", "far:1"), "gpu", "W")
    assert series.metrics["gpu_total_power"].keys == (0, "far")
    for key, base in ((0, 0.0), (1, 100.0), ("far:1", 100.0)):
        window = series.window("gpu_power", key=key, buckets=10**6)
        assert list(window.last) == [base + second for second in range(100)]
    assert list(series.window("gpu_power", key=1, lo=3, hi=4).last) == [106.0, 107.0, 108.0, 109.0]
    assert series.value_at(1e9 + 41.5)["gpu_power"] == 41.0


def test_one_name_in_two_kinds_of_record(tmp_path: Path) -> None:
    common: Record = {"time": 1e9, "attempt": 1, "global_step": 1}
    kinds = ("step", "epoch", "eval")
    write(
        tmp_path / "metrics.jsonl",
        [{**common, "event": kind, "seq": n, "train_loss": n} for n, kind in enumerate(kinds)],
    )
    series = RunSeries(tmp_path)
    assert series.metrics == {}
    series.refresh()
    assert {name: (it.kind, it.field, it.last) for name, it in series.metrics.items()} == {
        "train_loss": ("step", "train_loss", 0.0),
        "train_loss@eval": ("eval", "train_loss", 2.0),
        "train_loss@epoch": ("epoch", "train_loss", 1.0),
    }
    assert set(kinds) < MEASURING


def test_the_values_as_of_a_moment(tmp_path: Path) -> None:
    write(
        tmp_path / "metrics.jsonl",
        [
            {
                "event": "step",
                "time": 1e9 + n,
                "seq": n,
                "attempt": 1,
                "global_step": n,
                "loss": -n,
                **({"rare": n} if n % 100 == 0 else {}),
            }
            for n in range(1, 9001)
        ],
    )
    series = RunSeries(tmp_path)
    series.refresh()
    assert series.value_at(1e9) == {}
    assert series.value_at(1e9 + 150.5) == {"loss": -150.0, "rare": 100.0}
    assert series.value_at(1e9 + 8999.5) == {"loss": -8999.0, "rare": 8900.0}


ODD: dict[str, list[object]] = {
    "global_step": [2**63, "7", None, 1.5, []],
    "nonfinite": [[["loss"]], "loss", {}, ["unknown", "seq"]],
    "seq": [2**64 - 1, "x", None],
    "time": ["now", None, []],
    "loss": ["high", [1.0], {"a": 1}, 2**64 - 1, True],
}


@pytest.mark.parametrize(("name", "odd"), [(name, odd) for name in ODD for odd in ODD[name]])
def test_an_odd_record_costs_no_other(tmp_path: Path, name: str, odd: object) -> None:
    good: list[Record] = [
        {"event": "step", "time": 1e9 + n, "seq": n, "attempt": 1, "global_step": n, "loss": n / 2}
        for n in range(1, 100)
    ]
    write(tmp_path / "metrics.jsonl", [*good[:50], {**good[50], name: odd}, *good[51:]])
    with (tmp_path / "metrics.jsonl").open("ab") as file:
        file.write(b'{"event": "st\n[]\n' + orjson.dumps({**good[0], "global_step": 100}) + b"\n")
    series = RunSeries(tmp_path)
    series.refresh()
    found = all_of(series, "loss")
    wanted = [(record["global_step"], record["loss"]) for record in [*good[:50], *good[51:]]]
    assert [point for point in found if point in wanted] == wanted
    assert found[-1] == (100.0, 0.5)
    assert len(found) in (99, 100)
    assert len(series.window("loss", x="time", buckets=7)) <= 7
    assert set(last_values(tmp_path)) == {"loss"}


def test_last_values_are_of_records_with_as_many_fields_too(tmp_path: Path) -> None:
    """Two writers of TensorBoard report them so, each its own."""
    with Run(tmp_path, agent=False) as run:
        for step in (1, 2):
            run.log_step(step, train_loss=1 / step)
            run.log_step(step, top1=step / 4)
            run.log_step(step, top5=step / 8)
    last = {name: value.value for name, value in last_values(tmp_path).items()}
    assert {name: last[name] for name in ("train_loss", "top1", "top5")} == {
        "train_loss": 0.5,
        "top1": 0.5,
        "top5": 0.25,
    }
