"""A configuration gives a run its directory, its names and its trackers."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from kharness.config.options import Options, parse
from kharness.training.errors import TrainingError
from kharness.training.opening import open_run
from monitoring.errors import RunBusyError
from monitoring.follower import enabled_followers


def options(root: Path, results: Path, *flags: str) -> Options:
    fixed = ["--results-dir", str(results), "--tracker", "none", "--optimizer", "adam"]
    return parse([*fixed, *flags], root=root, model="lenet5", prog="test", description="")[0]


def tracking(asked: Options, directory: Path | None, root: Path) -> dict[str, object]:
    """Trackers that run.json lists once the run was opened."""
    with open_run(asked, directory, root=root, identity={}) as run:
        content: dict[str, object] = orjson.loads((run.directory / "run.json").read_bytes())["tracking"]
    return content


def test_enabled_trackers_and_exporters_have_their_options() -> None:
    values = {
        "ENABLE_MLFLOW": True,
        "ENABLE_TENSORBOARD": False,
        "ENABLE_TRACKIO": True,
        "MLFLOW_TRACKING_URI": "http://host:5000",
        "ENABLE_WANDB": True,
        "TRACKIO_PORT": 7860,
        "WANDB_ENTITY": "team",
        "WANDB_OFFLINE": True,
        "PROMETHEUS_EXPORTER": True,
        "PROMETHEUS_HOST": "127.0.0.1",
        "PROMETHEUS_PORT": 9100,
    }
    assert enabled_followers(values) == {
        "mlflow": {"tracking_uri": "http://host:5000"},
        "trackio": {},
        "wandb": {"entity": "team", "offline": True},
        "prometheus": {"host": "127.0.0.1", "port": 9100},
    }
    assert enabled_followers({**values, "PROMETHEUS_EXPORTER": False}).keys() == {
        "mlflow",
        "trackio",
        "wandb",
    }
    assert enabled_followers({"USE_VERBOSE_LOGGING": True, "VERBOSITY_LEVEL": "low"}) == {
        "verbose_log": {"level": "low"}
    }


def test_new_run_is_named_by_its_template_and_holds_its_config(root: Path, tmp_path: Path) -> None:
    asked = options(
        root,
        tmp_path,
        "--tracker-run-name",
        "{model}-{optimizer}-{seed}",
        "--seed",
        "7",
        "--tracker-project",
        "mine",
    )
    assert tracking(asked, None, root) == {
        "project": "mine",
        "name": "lenet5-adam-7",
        "group": None,
        "trackers": {},
    }
    assert (tmp_path / "lenet5-adam-7" / ".config").read_text() == asked.resolved.text
    assert "OPTIMIZER = 'adam'" in (tmp_path / "lenet5-adam-7" / "config.py").read_text()
    assert (tmp_path / "latest").readlink() == Path("lenet5-adam-7")


def test_cell_is_grouped_by_its_matrix(root: Path, tmp_path: Path) -> None:
    cell = tmp_path / "test_matrix_1" / "optimizer-adam"
    cell.mkdir(parents=True)
    (tmp_path / "test_matrix_1" / "matrix.json").write_text("{}")
    asked = options(root, tmp_path, "--tracker-run-name", "optimizer-adam")
    found = tracking(asked, cell, root)
    assert (found["name"], found["group"]) == ("optimizer-adam", "test_matrix_1")


def test_results_folder_that_is_a_file_is_refused(root: Path, tmp_path: Path) -> None:
    (tmp_path / "results").write_text("in the way")
    with pytest.raises(TrainingError, match="cannot be made: not a directory") as caught:
        tracking(options(root, tmp_path / "results"), None, root)
    assert caught.value.hint == "set RESULTS_DIR to a folder that you can write to"


def test_directory_that_another_process_trains_stays_as_it_is(root: Path, tmp_path: Path) -> None:
    asked = options(root, tmp_path, "--tracker-run-name", "mine", "--seed", "7")
    with open_run(asked, None, root=root, identity={}) as run:
        before = {path: path.read_bytes() for path in (run.directory / n for n in (".config", "run.json"))}
        other = options(root, tmp_path, "--tracker-run-name", "mine", "--seed", "8")
        with pytest.raises(RunBusyError), open_run(other, run.directory, root=root, identity={}):
            pass
        assert {path: path.read_bytes() for path in before} == before
