"""One port for all runs: who shows them, who stands by, and who takes over."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from contextlib import closing
from functools import partial
from pathlib import Path

import orjson
import pytest

from monitoring.agent.follow import catch_up, undelivered
from monitoring.agent.lock import is_followed
from monitoring.errors import PortTakenError
from monitoring.exporters._metrics_server import About, about_server
from monitoring.exporters._run_files import Runs
from monitoring.exporters._shared_port import SharedPort
from monitoring.exporters.prometheus import Exporter, open_follower
from monitoring.follower import RunInfo, follower_options
from monitoring.journal.records import read_records

from ...ports import free_port
from ...waiting import wait_until
from ..conftest import agent_of, agents_of, wait_for_delivery
from .conftest import (
    address_of,
    alerts,
    log_steps,
    new_run,
    of,
    runs_shown,
    scrape,
    values,
)

pytestmark = pytest.mark.usefixtures("forked_agents")


def wait_until_it_lingers(port: int, directory: Path) -> None:
    """A scrape before that does not count: the exporter would wait half a minute for another one."""
    lingers = About(str(directory), "lingers")
    wait_until(lambda: about_server("127.0.0.1", port) == lingers, "an exporter that lingers")


def test_next_training_on_the_port_is_shown_by_the_agent_that_lingers_there(results: Path) -> None:
    port = free_port()
    address, trackers = f"127.0.0.1:{port}", {"prometheus": {"port": port}}
    with new_run(results / "a", "a", agent=True, trackers=trackers):
        wait_until((results / "a" / "prometheus.json").exists, "the first exporter")
    wait_until(lambda: not is_followed(results / "a"), "the end of the first delivery")
    with new_run(results / "b", "b", agent=True, trackers=trackers) as second:
        log_steps(second, 1, 3)
        wait_until(lambda: is_followed(results / "b"), "the second agent")
    wait_until(lambda: not is_followed(results / "b"), "the end of the second delivery")
    wait_until(lambda: not agents_of(results / "b"), "the end of the second, whose end is shown")
    wait_until_it_lingers(port, results / "a")
    assert runs_shown(scrape(address, patience=10)) == {"a", "b"}
    wait_until(lambda: not agents_of(results), "the end of both agents")
    assert alerts(results / "a") + alerts(results / "b") == []


def test_next_attempt_is_shown_by_the_agent_of_the_last_and_then_by_its_own(run_dir: Path) -> None:
    port = free_port()
    address, trackers = f"127.0.0.1:{port}", {"prometheus": {"port": port}}
    with new_run(run_dir, agent=True, trackers=trackers) as run:
        log_steps(run, 1, 3)
        wait_until((run_dir / "prometheus.json").exists, "the first exporter")
    wait_until(lambda: not is_followed(run_dir), "the end of the first delivery")
    with new_run(run_dir, agent=True, trackers=trackers) as run:
        log_steps(run, 4, 5)
        wait_until(lambda: len(agents_of(run_dir)) == 2, "the start of the second agent")
        [first, second] = sorted(agents_of(run_dir), key=lambda agent: agent.create_time())
        wait_until_it_lingers(port, run_dir)
        assert of(values(scrape(address, patience=10)), "training_steps_total") == [5]
        first.wait(600)
        wait_until((run_dir / "prometheus.json").exists, "the second exporter")
        assert of(values(scrape(address)), "training_steps_total") == [5]
        assert agents_of(run_dir) == [second]
    assert alerts(run_dir) == []


def test_taken_port_is_an_alert_and_tried_again(run_dir: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        run = new_run(run_dir, agent=True, trackers={"prometheus": {"port": port}})
        log_steps(run, 1, 3)
        wait_until(lambda: alerts(run_dir), "the alert")
    log_steps(run, 4, 6)
    wait_until(lambda: of(values(scrape(f"127.0.0.1:{port}")), "training_steps_total") == [6], "6 steps")
    wait_until(lambda: len(alerts(run_dir)) == 2, "the second alert")
    run.finish()
    assert alerts(run_dir) == [
        f"prometheus: PortTakenError: 127.0.0.1:{port}: address already in use; it is tried again",
        "prometheus: takes records again",
    ]


def test_port_that_stays_taken_holds_up_nothing(run_dir: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with new_run(run_dir, agent=True, trackers={"prometheus": {"port": port}}) as run:
            log_steps(run, 1, 3)
            wait_until(lambda: alerts(run_dir), "the alert")
        wait_until(lambda: not is_followed(run_dir), "the end of the agent")
    assert undelivered(run_dir) == {}
    assert (
        alerts(run_dir)[-1]
        == f"prometheus: PortTakenError: 127.0.0.1:{port}: address already in use; not tried again"
    )
    assert [delivery.name for delivery in catch_up(run_dir)] == ["csv"]


def test_runs_of_different_places_share_one_port_also_when_its_holder_is_killed(results: Path) -> None:
    port = free_port()
    address, about = f"127.0.0.1:{port}", {"agent": True, "trackers": {"prometheus": {"port": port}}}
    first = new_run(results / "here" / "a", "same", **about)
    log_steps(first, 1, 5)
    wait_until((first.directory / "prometheus.json").exists, "the first exporter")
    second = new_run(results / "there" / "b", "same", **about)
    log_steps(second, 1, 7)
    wait_until(lambda: of(values(scrape(address)), "training_steps_total") == [5, 7], "both runs")
    named = {"same", f"same ({second.run_id[:8]})"}
    assert runs_shown(scrape(address)) == named
    holder = agent_of(first.directory)
    holder.kill()
    wait_until((second.directory / "prometheus.json").exists, "the second exporter")
    found = wait_until(lambda: scrape(address), "its answer")
    assert (of(values(found), "training_steps_total"), runs_shown(found)) == ([5, 7], named)
    first._look_around(time.time())
    first.finish()
    wait_until(lambda: not agents_of(first.directory), "the end of the first, whose end is shown")
    second.finish()
    wait_until_it_lingers(port, second.directory)
    assert of(values(scrape(address, patience=10)), "training_running") == [0, 0]
    wait_until(lambda: not agents_of(results), "the end of the second")
    [killed] = alerts(first.directory) + alerts(second.directory)
    assert str(killed).startswith("its agent has died")
    assert not SharedPort("127.0.0.1", port).identity()


def test_port_is_shared_through_a_private_folder_only(tmp_path: Path) -> None:
    shared = SharedPort("127.0.0.1", 9090, place=tmp_path)
    user_folder = shared._user
    odd = tmp_path / "r\n\"'<é" / "x"
    shared.add(odd)
    shared.add(tmp_path)
    assert set(shared.runs()) == {odd, tmp_path}
    assert {path.stat().st_mode & 0o777 for path in (user_folder, *user_folder.iterdir())} == {0o700}
    assert SharedPort("0.0.0.0", 9090, place=tmp_path).identity() == ""
    (shared._folder / "0123").write_text("/etc")  # a name that is not that of its path
    (shared._folder / "link").symlink_to("/etc/passwd")
    assert set(shared.runs()) == {odd, tmp_path}
    user_folder.chmod(0o755)
    assert (list(shared.runs()), shared.identity()) == ([], "")
    user_folder.rename(tmp_path / "elsewhere")
    user_folder.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").chmod(0o700)
    shared.add(tmp_path / "another")
    assert (list(shared.runs()), shared.identity()) == ([], "")


def test_run_that_is_gone_or_long_over_does_not_share_the_port_any_more(tmp_path: Path) -> None:
    shared = SharedPort("127.0.0.1", 9090, place=tmp_path)
    names = ("gone", "old", "running", "torn")
    for name in names:
        shared.add(tmp_path / name)
    new_run(tmp_path / "old", "old").finish()
    journal = tmp_path / "old" / "metrics.jsonl"
    long_ago = [{**record, "time": 1e9} for record, _ in read_records(journal)]
    journal.write_bytes(b"".join(orjson.dumps(record) + b"\n" for record in long_ago))
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "run.json").write_text('{"run_id')
    with new_run(tmp_path / "running", "running"), new_run(tmp_path / "own" / "mine", "mine"):
        shown_runs = Runs(tmp_path / "own", shared)
        assert [run.name for run in shown_runs.read()] == ["mine", "running"]
        assert list(shared.runs()) == [tmp_path / "running"]
    shown_runs.read()
    shown_runs.forget_ended()
    assert shared.identity() == ""


def test_run_that_can_no_longer_be_read_takes_no_other_along(tmp_path: Path) -> None:
    shared = SharedPort("127.0.0.1", 9090, place=tmp_path)
    shared.add(tmp_path / "broken")
    with new_run(tmp_path / "broken", "broken"), new_run(tmp_path / "own" / "mine", "mine"):
        shown_runs = Runs(tmp_path / "own", shared)
        assert [run.name for run in shown_runs.read()] == ["broken", "mine"]
        with (tmp_path / "broken" / "metrics.jsonl").open("ab") as journal:
            start = {"event": "start", "time": time.time(), "seq": 99, "attempt": 2}
            journal.write(orjson.dumps(start, option=orjson.OPT_APPEND_NEWLINE))
        (tmp_path / "broken" / "run.json").write_text('{"run_id')
        assert [run.name for run in shown_runs.read()] == ["mine"]
        assert [run.name for run in shown_runs.read()] == ["mine"]
        assert list(shared.runs()) == []


def test_exporter_of_somebody_else_is_not_taken_for_a_shared_one(run_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with (
        new_run(run_dir),
        closing(Exporter(tmp_path / "other", host="127.0.0.1", port=0)) as exporter,
    ):
        options = follower_options("prometheus", {"port": address_of(exporter.server.address)[1]})
        with pytest.raises(PortTakenError, match=f"another exporter shows {tmp_path / 'other'} there"):
            open_follower(RunInfo.read(run_dir), options)
    assert not SharedPort("127.0.0.1", options.port).identity()


def test_cells_of_a_matrix_share_one_port(results: Path) -> None:
    port = free_port()
    address = f"127.0.0.1:{port}"
    matrix = results / "matrix_1"
    about = {"agent": True, "group": "matrix_1", "trackers": {"prometheus": {"port": port}}}
    first = new_run(matrix / "a", "a", **about)
    log_steps(first, 1, 5)
    wait_until((matrix / "a" / "prometheus.json").exists, "the first cell's exporter")
    second = new_run(matrix / "b", "b", **about)
    log_steps(second, 1, 7)
    wait_until(lambda: of(values(scrape(address)), "training_steps_total") == [5, 7], "both cells")
    first.finish()
    wait_until_it_lingers(port, matrix)
    scrape(address, patience=10)
    wait_until(lambda: not agents_of(matrix / "a"), "the end of the first")
    wait_until((matrix / "b" / "prometheus.json").exists, "the second cell's exporter")
    log_steps(second, 8, 8)
    assert of(values(scrape(address)), "training_steps_total") == [5, 8]
    second.finish()
    wait_until_it_lingers(port, matrix)
    scrape(address, patience=10)
    wait_until(lambda: not agents_of(matrix / "b"), "the end of the second")
    assert alerts(matrix / "a") + alerts(matrix / "b") == []


def agentless(directory: Path) -> bool:
    return not agents_of(directory)


def test_agent_that_lingers_shows_the_ends_of_the_other_cells(results: Path) -> None:
    port = free_port()
    matrix = results / "matrix_1"
    about = {"agent": True, "group": "matrix_1", "trackers": {"prometheus": {"port": port}}}
    with new_run(matrix / "a", "a", **about):
        wait_until((matrix / "a" / "prometheus.json").exists, "the first cell's exporter")
    for name in ("b", "c"):
        with new_run(matrix / name, name, **about):
            pass
        wait_for_delivery(matrix / name)  # else its agent may not have begun
        wait_until(partial(agentless, matrix / name), "the end of a cell whose end is shown")
    wait_until_it_lingers(port, matrix)
    assert runs_shown(scrape(f"127.0.0.1:{port}", patience=10)) == {"a", "b", "c"}
    wait_until(lambda: not agents_of(matrix), "the end of the first cell's agent")
    assert alerts(matrix / "a") + alerts(matrix / "b") + alerts(matrix / "c") == []


def test_agent_stands_by_while_one_exporter_shows_all_runs(results: Path) -> None:
    with closing(Exporter(results, host="127.0.0.1", port=0)) as exporter:
        address, port = exporter.server.address, address_of(exporter.server.address)[1]
        run = new_run(results / "a", "a", agent=True, trackers={"prometheus": {"port": port}})
        wait_until(lambda: is_followed(results / "a"), "the agent")
        assert runs_shown(scrape(address)) == {"a"}
    wait_until((results / "a" / "prometheus.json").exists, "the agent's exporter")
    run.finish()
    wait_until(lambda: not is_followed(results / "a"), "the end of the delivery")
    with subprocess.Popen(
        [sys.executable, "-m", "monitoring.exporters.prometheus", results, "--port", str(port)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as command:
        assert command.stdout is not None
        assert command.stderr is not None
        assert command.stderr.readline() == f"waiting until the end of {results / 'a'} was scraped\n"
        scrape(address, patience=10)
        assert command.stdout.readline().startswith(f"http://{address}/metrics shows the runs in {results}")
        command.terminate()
        assert command.wait(600) == 0
    assert alerts(results / "a") == []
