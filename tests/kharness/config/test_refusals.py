"""Each refusal names file, line, symbol, value, reason and remedy; exit code 2, nothing written."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]

CASES = {
    "unknown symbol": (
        "CONFIG_BATCH_SIZ=3\n",
        "p:1: BATCH_SIZ=3: unknown symbol",
        "did you mean BATCH_SIZE?",
    ),
    "what people call a symbol": (
        "CONFIG_LR=3\n",
        "p:1: LR=3: unknown symbol",
        "did you mean LEARNING_RATE?",
    ),
    "symbol with another name today": (
        "# CONFIG_LAUNCHER_LOCAL_ZYGOTE is not set\n",
        "p:1: LAUNCHER_LOCAL_ZYGOTE=n is now LAUNCHER_LOCAL_FORK_SERVER",
        "write CONFIG_LAUNCHER_LOCAL_FORK_SERVER=n",
    ),
    "tracker list in a file": (
        "CONFIG_TRACKER=both\n",
        "p:1: TRACKER=both: unknown symbol",
        "TRACKER= is for command lines; in a file set CONFIG_ENABLE_TRACKIO=y and its like",
    ),
    "int that is none": (
        "CONFIG_BATCH_SIZE=abc\n",
        "p:1: BATCH_SIZE=abc is not an int",
        "its value is: int from 1 to 65536",
    ),
    "bool that is none": (
        "CONFIG_GPU_MONITOR=yes\n",
        "p:1: GPU_MONITOR=yes is not a bool",
        "its value is: y or n",
    ),
    "float that is none": (
        '\n\nCONFIG_LEARNING_RATE="abc"\n',
        "p:3: LEARNING_RATE=abc is not a float",
        "its value is: float, 0 < x",
    ),
    "quoted int": (
        'CONFIG_BATCH_SIZE="3"\n',
        'p:1: BATCH_SIZE="3" is quoted, but is of type int',
        "write CONFIG_BATCH_SIZE=3",
    ),
    "string without quotes": (
        "CONFIG_DATA_DIR=data\n",
        "p:1: DATA_DIR=data needs double quotes",
        'write CONFIG_DATA_DIR="data"',
    ),
    "float with a comment": (
        "CONFIG_LEARNING_RATE=0.1 # high\n",
        "p:1: LEARNING_RATE=0.1 # high is followed by an inline comment",
        "put the comment on a line of its own above CONFIG_LEARNING_RATE=0.1",
    ),
    "float with half its quotes": (
        'CONFIG_LEARNING_RATE="0.1\n',
        'p:1: LEARNING_RATE="0.1 has an unterminated quote',
        'write CONFIG_LEARNING_RATE="0.1"',
    ),
    "float without quotes that is none": (
        "CONFIG_LEARNING_RATE=fast\n",
        "p:1: LEARNING_RATE=fast is not a float",
        "its value is: float, 0 < x",
    ),
    "int that is unset": (
        "# CONFIG_BATCH_SIZE is not set\n",
        "p:1: BATCH_SIZE is of type int and cannot be unset",
        "give it a value, or remove the line",
    ),
    "int out of range": (
        "CONFIG_BATCH_SIZE=0\n",
        "p:1: BATCH_SIZE=0 is outside 1..65536",
        "give a value from 1 to 65536",
    ),
    "float out of range": (
        'CONFIG_LEARNING_RATE="0"\n',
        "p:1: LEARNING_RATE=0 is outside 0 < x",
        "its value is: float, 0 < x",
    ),
    "list of the wrong length": (
        'CONFIG_OPTIMIZER_ADAM=y\nCONFIG_OPTIMIZER_ADAM_BETAS="0.9"\n',
        "p:2: OPTIMIZER_ADAM_BETAS=0.9 has 1 of 2 values",
        "its value is: list of 2 floats, 0 <= x < 1",
    ),
    "several at once, of every kind that one value has by itself": (
        'CONFIG_BATCH_SIZE=0\nCONFIG_LEARNING_RATE="abc"\nCONFIG_NUM_EPOCH=3\n',
        "3 values are refused\n"
        "  p:2: LEARNING_RATE=abc is not a float (its value is: float, 0 < x)\n"
        "  p:3: NUM_EPOCH=3: unknown symbol (did you mean NUM_EPOCHS?)\n"
        "  p:1: BATCH_SIZE=0 is outside 1..65536 (give a value from 1 to 65536)",
        "change all of them",
    ),
    "several that do not take": (
        'CONFIG_BATCH_SIZE=0\nCONFIG_OPTIMIZER_ADAM_EPS="1e-3"\n',
        "2 values are refused\n"
        "  p:1: BATCH_SIZE=0 is outside 1..65536 (give a value from 1 to 65536)\n"
        "  p:2: OPTIMIZER_ADAM_EPS=1e-3 has no effect: needs OPTIMIZER_ADAM=y, which is n "
        "(set CONFIG_OPTIMIZER_ADAM=y, or remove this assignment)",
        "change all of them",
    ),
    "unmet dependency": (
        'CONFIG_OPTIMIZER_ADAM_EPS="1e-3"\n',
        "p:1: OPTIMIZER_ADAM_EPS=1e-3 has no effect: needs OPTIMIZER_ADAM=y, which is n",
        "set CONFIG_OPTIMIZER_ADAM=y, or remove this assignment",
    ),
    "unmet negative dependency": (
        'CONFIG_SCHEDULE_CONSTANT=y\nCONFIG_SCHEDULE_WARMUP_FRACTION="0.1"\n',
        "p:2: SCHEDULE_WARMUP_FRACTION=0.1 has no effect: needs SCHEDULE_CONSTANT=n, which is y",
        "set another member of the choice 'Learning rate schedule', or remove this assignment",
    ),
    "two members of one choice": (
        "CONFIG_OPTIMIZER_ADAM=y\nCONFIG_OPTIMIZER_SGD=y\n",
        "p:2: OPTIMIZER_SGD=y contradicts OPTIMIZER_ADAM=y (p:1): both are members of the choice 'Optimizer'",
        "keep one of them",
    ),
    "two members of one choice, one by its alias": (
        'CONFIG_OPTIMIZER_ADAM=y\nCONFIG_OPTIMIZER="sgd"\n',
        "p:2: OPTIMIZER_SGD=y contradicts OPTIMIZER_ADAM=y (p:1): both are members of the choice 'Optimizer'",
        "keep one of them",
    ),
    "the only member unset": (
        "# CONFIG_OPTIMIZER_SGD is not set\n",
        "p:1: OPTIMIZER_SGD=n has no effect: no other member of its choice is set",
        "set the member you want to y",
    ),
    "alias value that no member gives": (
        'CONFIG_OPTIMIZER="adamx"\n',
        "p:1: OPTIMIZER=adamx is not one of adam, adamw, sgd",
        "did you mean adam or adamw?",
    ),
    "inline comment after an int": (
        "CONFIG_BATCH_SIZE=3 # three\n",
        "p:1: BATCH_SIZE=3 # three is followed by an inline comment",
        "put the comment on a line of its own above CONFIG_BATCH_SIZE=3",
    ),
    "inline comment after a bool": (
        "CONFIG_GPU_MONITOR=y# yes\n",
        "p:1: GPU_MONITOR=y# yes is followed by an inline comment",
        "put the comment on a line of its own above CONFIG_GPU_MONITOR=y",
    ),
    "inline comment after a string": (
        'CONFIG_LEARNING_RATE="0.1" # lr\n',
        'p:1: LEARNING_RATE="0.1" # lr is followed by an inline comment',
        'write CONFIG_LEARNING_RATE="0.1"',
    ),
    "unterminated quote": (
        'CONFIG_LEARNING_RATE="0.1\n',
        'p:1: LEARNING_RATE="0.1 has an unterminated quote',
        'write CONFIG_LEARNING_RATE="0.1"',
    ),
    "text after the closing quote": (
        'CONFIG_DATA_DIR="a"b\n',
        "p:1: DATA_DIR=\"a\"b is followed by 'b' after its closing quote",
        r'write CONFIG_DATA_DIR="a\"b"',
    ),
    "another value for the same symbol": (
        "CONFIG_BATCH_SIZE=3\nCONFIG_BATCH_SIZE=4\n",
        "p:2: BATCH_SIZE=4 contradicts BATCH_SIZE=3 (p:1)",
        "keep one of them",
    ),
    "no assignment at all": (
        "hello\n",
        "p:1: 'hello' is not an assignment",
        "lines are CONFIG_NAME=value, '# CONFIG_NAME is not set', or comments that start with #",
    ),
    "name template with an unknown field": (
        'CONFIG_TRACKER_PROJECT="{modle}"\n',
        "p:1: TRACKER_PROJECT: '{modle}' has an unknown field {modle}",
        "write it short, no /; in braces checksum, timestamp (runs only) or a symbol in lower case",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_preset_is_refused_for(case: str, checkout: Path, kconfig: Run) -> None:
    text, message, hint = CASES[case]
    (checkout / "p").write_text(text)
    before = sorted(checkout.rglob("*"))
    result = kconfig("defconfig", DEFCONFIG="p")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == f"error: {message}\nhint: {hint}\n"
    assert sorted(checkout.rglob("*")) == before


def test_preset_is_refused_for_bytes_that_are_not_utf8(checkout: Path, kconfig: Run) -> None:
    (checkout / "p").write_bytes(b'CONFIG_SEED=1\nCONFIG_DATA_DIR="\xff"\n')
    result = kconfig("defconfig", DEFCONFIG="p")
    assert (result.returncode, result.stderr) == (
        2,
        "error: p:2: byte 0xff is not UTF-8\n"
        "hint: save the file as UTF-8, for example: iconv -f latin1 -t utf-8 p\n",
    )
    assert not (checkout / ".config").exists()


@pytest.mark.parametrize(
    ("variables", "message", "hint"),
    [
        (
            {"DEFCONFIG": "lenet5-mnits"},
            "unknown preset 'lenet5-mnits'",
            "did you mean lenet5-mnist?",
        ),
        ({"DEFCONFIG": "lenet"}, "unknown preset 'lenet'", "did you mean lenet5-mnist?"),
        ({"DEFCONFIG": "zzz"}, "unknown preset 'zzz'", "make list-defconfigs shows all"),
        (
            {"CONFIG_BATCH_SIZE": "0", "CONFIG_LEARNING_RATE": "abc"},
            "2 values are refused\n"
            "  LEARNING_RATE=abc is not a float (its value is: float, 0 < x)\n"
            "  BATCH_SIZE=0 is outside 1..65536 (give a value from 1 to 65536)",
            "change all of them",
        ),
        (
            {"TRACKER": "wandbx"},
            "TRACKER=wandbx: no tracker is called wandbx",
            "known are none, tensorboard, trackio, wandb, both, or several separated by commas",
        ),
        (
            {"TRACKER": "wandb,"},
            "TRACKER=wandb,: no tracker is called ''",
            "known are none, tensorboard, trackio, wandb, both, or several separated by commas",
        ),
        (
            {"CONFIG_LAUNCHER_LOCAL_ZYGOTE": "n"},
            "LAUNCHER_LOCAL_ZYGOTE=n is now LAUNCHER_LOCAL_FORK_SERVER",
            "write CONFIG_LAUNCHER_LOCAL_FORK_SERVER=n",
        ),
        ({"TRACKR": "both"}, "TRACKR=both means nothing to make defconfig", "did you mean TRACKER?"),
        ({"BATCH": "3"}, "BATCH=3 means nothing to make defconfig", "write BATCH_SIZE=3"),
        (
            {"CONFIG_BATCH_SIZE": "x"},
            "BATCH_SIZE=x is not an int",
            "its value is: int from 1 to 65536",
        ),
        (
            {"CONFIG_DATA_DIR": "a\nb"},
            r"DATA_DIR='a\nb' holds a line break",
            "its value is: a line of text",
        ),
        (
            {"TRACKER": "both", "CONFIG_ENABLE_WANDB": "n"},
            "TRACKER=both: ENABLE_WANDB=y contradicts ENABLE_WANDB=n (CONFIG_ENABLE_WANDB=n)",
            "keep one of them",
        ),
        (
            {"CONFIG_OPTIMIZER": "adam", "CONFIG_OPTIMIZER_ADAMW": "y"},
            "OPTIMIZER_ADAMW=y contradicts OPTIMIZER_ADAM=y (CONFIG_OPTIMIZER=adam): "
            "both are members of the choice 'Optimizer'",
            "keep one of them",
        ),
        (
            {"CONFIG_OPTIMIZER_ADAM_EPS": "1e-3"},
            "OPTIMIZER_ADAM_EPS=1e-3 has no effect: needs OPTIMIZER_ADAM=y, which is n",
            "set CONFIG_OPTIMIZER_ADAM=y, or remove this assignment",
        ),
    ],
)
def test_command_line_is_refused(
    variables: dict[str, str], message: str, hint: str, checkout: Path, kconfig: Run
) -> None:
    result = kconfig("defconfig", **variables)
    assert (result.returncode, result.stderr) == (2, f"error: {message}\nhint: {hint}\n")
    assert not (checkout / ".config").exists()


def test_refusal_leaves_an_earlier_configuration_alone(checkout: Path, kconfig: Run) -> None:
    kconfig("defconfig", TRACKER="wandb")
    before = {path: path.read_bytes() for path in checkout.iterdir() if path.is_file()}
    assert kconfig("defconfig", TRACKER="nothing").returncode == 2
    assert kconfig("olddefconfig", CONFIG_SEED="-1").returncode == 2
    assert {path: path.read_bytes() for path in checkout.iterdir() if path.is_file()} == before


@pytest.mark.parametrize("value", ["x; touch f", "$(touch f)", "`touch f`", "wandb\ntouch f"])
@pytest.mark.parametrize("name", ["TRACKER", "MODEL", "CONFIG_MODEL", "DEFCONFIG"])
def test_value_is_never_run_by_a_shell(name: str, value: str, checkout: Path, kconfig: Run) -> None:
    result = kconfig("defconfig", **{name: value})
    assert result.returncode == 2
    assert result.stderr.startswith("error: ")
    assert not (checkout / "f").exists()
