"""Every target that takes a path refuses text that no path can be, before it writes anything."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kharness.config.errors import ConfigError
from kharness.config.make.known_variables import TARGETS
from kharness.config.make.targets import TARGETS as CONFIGURING
from kharness.config.make.targets import run
from kharness.config.make.variables import given as variables
from kharness.config.places import asked_path
from kharness.runs.latest import split_place

ROOT = Path(__file__).resolve().parent.parent
PATHS = (
    "A",
    "B",
    "BASELINE",
    "DATA_DIR",
    "DEFCONFIG",
    "FRAGMENTS",
    "O",
    "RANGE_CONFIG",
    "RUN",
    "SAVE",
    "TARGET",
)
NO_SCRIPT = {
    "check",
    "check-newest",
    "release-check",
    "quick",
    "bench",
    "docs",
    "docs-fields",
    "docs-images",
    "requirements",
    "clean",
    "mrproper",
    "distclean",
    "help",
}

pieces = st.text("ab-_.~ é", max_size=8)
control = st.characters(max_codepoint=31, exclude_characters="\t")
no_path = st.one_of(
    st.builds("{}{}{}".format, pieces, control, pieces),
    st.builds("{}{}{}".format, pieces, st.characters(categories=["Cs"]), pieces),
    st.integers(256, 5000).map("x".__mul__),
    st.integers(1800, 3000).map("x/".__mul__),
    st.text("abcdef", max_size=12).map("~no-user-{}".format),
    st.text("abcdef", max_size=3).map("~no-user/{}".format),
)


def main_of(target: str) -> Callable[[Sequence[str]], object]:
    """Function that the recipe of a target runs."""
    goal = target.replace("-<name>", "")
    if goal in CONFIGURING:
        return lambda words: run([goal, *words], ROOT)
    name = "tracker_test" if goal in ("trackio-test", "wandb-test") else goal.replace("-", "_")
    name = "gputop" if name == "watch" else name
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if name == "tracker_test":
        return lambda words: module.main([goal.removesuffix("-test"), *words])
    return lambda words: module.main(words)


TAKEN = [
    (target, name)
    for target, reads in TARGETS.items()
    for name in PATHS
    if reads.variable(name) and target not in NO_SCRIPT
]


def test_every_variable_of_the_table_that_names_a_path_is_here() -> None:
    named = {name for reads in TARGETS.values() for name in reads.names}
    others = {
        "ALL",
        "ANYWAY",
        "CELL",
        "FAIL_ON_REGRESSION",
        "FILTER",
        "FOLLOW",
        "HOST",
        "INSTALL",
        "KEEP",
        "METRIC",
        "MIRROR",
        "ONLY",
        "PAPER",
        "PORT",
        "READ_ONLY",
    }
    others |= {"CHECKPOINT", "EVALUATE", "LOG_EVERY", "LR_FACTOR", "PROFILE", "STEP", "STOP"}
    others |= {"SEED", "SIMULATE", "SORT", "SYMBOL", "THEME", "TOLERANCE", "TRACKER", "VIEW"}
    assert named - others == set(PATHS) - {"BASELINE", "O"}


@pytest.mark.parametrize(("target", "name"), TAKEN)
def test_what_no_path_can_be_is_refused_in_two_lines(target: str, name: str) -> None:
    main = main_of(target)

    @settings(max_examples=3, deadline=None, database=None)
    @given(
        text=no_path.filter(
            lambda text: name != "FRAGMENTS" or (len(text.split()) == 1 and text.isprintable())
        )
    )
    def refused(text: str) -> None:
        with pytest.raises(ConfigError):  # were it taken, the target would begin its work below
            variables([f"{name}={text}"], {}, target)
        with pytest.raises(ConfigError) as caught:
            main([f"{name}={text}"])
        assert str(caught.value).startswith(f"{name}=")
        assert str(caught.value).isprintable()
        assert caught.value.hint == "give another path"

    refused()


@pytest.mark.parametrize(
    ("target", "name", "shown"),
    [
        *((target, "O", "O") for target in TARGETS if target not in NO_SCRIPT),
        *((target, "CONFIG_RESULTS_DIR", "RESULTS_DIR") for target in ("status", "continue", "logs")),
    ],
)
def test_a_file_is_no_directory(target: str, name: str, shown: str) -> None:
    with pytest.raises(ConfigError) as caught:
        main_of(target)([f"{name}={__file__}/x"])
    assert str(caught.value) == f"{shown}={__file__}/x is not a directory"


@pytest.mark.parametrize("name", ["A", "B", "BASELINE"])
@given(text=no_path)
@settings(max_examples=50, deadline=None, database=None)
def test_a_place_with_variants_is_a_path_too(name: str, text: str) -> None:
    with pytest.raises(ConfigError):
        variables([f"{name}={text}:OPTIMIZER=sgd"], {})
    assert split_place(f"{text}:OPTIMIZER=sgd")[0] is None


@given(text=st.text())
@settings(max_examples=200, deadline=None, database=None)
def test_any_text_is_a_path_or_refused(text: str) -> None:
    try:
        path = asked_path("RUN", text)
    except ConfigError as error:
        assert error.hint  # noqa: PT017 - most texts are paths
        return
    path.exists()  # raises nothing any more
    (path / "matrix.json").is_file()


def test_paths_of_users_are_made_in_one_place() -> None:
    files = [*ROOT.glob("lib/kharness/**/*.py"), *ROOT.glob("scripts/*.py"), *ROOT.glob("lenet5/*.py")]
    expanding = [path.name for path in files if re.search(r"expanduser", path.read_text())]
    assert expanding == ["places.py"], "use asked_path, which says what is wrong with a path"


def test_a_checkout_is_no_place_of_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its .config is that of the next run; an option without a value is no place either."""
    (tmp_path / ".config").touch()
    monkeypatch.chdir(tmp_path)
    assert [split_place(text) for text in ("", ".")] == [(None, ""), (None, ".")]
