"""The options of a program in the words of a command."""

from __future__ import annotations

import shlex

import pytest

from kharness.runs.command import options_in, words_besides


@pytest.mark.parametrize(
    ("command", "options", "besides"),
    [
        ("python -u train.py --lr 3e-4 --out=a=b", {"lr": "3e-4", "out": "a=b"}, "python -u train.py"),
        ("python fit.py --amp --lr 1 data/ --lr 2", {"amp": True, "lr": "2"}, "python fit.py data/"),
        ("python fit.py --weight-decay .1 --LR 1", {"weight_decay": ".1", "lr": "1"}, "python fit.py"),
        (
            "python fit.py --betas 0.9 0.999 --x -1 -b 3",
            {"betas": "0.9 0.999", "x": "-1"},
            "python fit.py -b 3",
        ),
        ("python fit.py --tag '' --flag", {"tag": "", "flag": True}, "python fit.py"),
        ("python fit.py --lr 1 -- --b 2", {"lr": "1"}, "python fit.py -- --b 2"),
        (
            "python fit.py model.lr=0.1 +db/engine=x ++c=[1,2] ~e data/a.b http://x/?y=1",
            {"model.lr": "0.1", "db/engine": "x", "c": "[1,2]"},
            "python fit.py '~e' data/a.b 'http://x/?y=1'",
        ),
        ("python fit.py --cfg-options a=1 b=2", {"cfg_options": True, "a": "1", "b": "2"}, "python fit.py"),
        (
            "torchrun --nproc-per-node 2 --standalone train.py --lr 1",
            {"lr": "1"},
            "torchrun --nproc-per-node 2 --standalone train.py",
        ),
        (
            "python -m torch.distributed.run --nproc-per-node=2 -m mine.train --lr 1",
            {"lr": "1"},
            "python -m torch.distributed.run --nproc-per-node=2 -m mine.train",
        ),
        ("bash run.sh --lr 1 train.py --wd 2", {"lr": "1", "wd": "2"}, "bash run.sh train.py"),
        ("python -c 'lr=1; print(lr)' --wd 2", {"wd": "2"}, "python -c 'lr=1; print(lr)'"),
        ("./train --lr 1 -c conf.yaml", {"lr": "1"}, "./train -c conf.yaml"),
        ("env A=1 ./train --lr 1", {"lr": "1"}, "env A=1 ./train"),
        ("uv run train --lr 1", {"lr": "1"}, "uv run train"),
        ("nice", {}, "nice"),
    ],
)
def test_options_are_those_behind_the_script(
    command: str, options: dict[str, str | bool], besides: str
) -> None:
    words = shlex.split(command)
    assert options_in(words) == options
    assert shlex.join(words_besides(words, [name.upper() for name in options])) == besides
    assert words_besides(words, []) == words
