"""Prepare the tokens of a dataset, as `make data` does for the configured one.

    python gpt2/prepare_data.py --dataset shakespeare_char      # flags as of gpt2/train.py
    python gpt2/prepare_data.py --dataset text --dataset-text-path ~/notes --tokenizer bytes
    python gpt2/prepare_data.py --dataset finewebedu --from /mnt/parquet    # files of yours, no download
    python gpt2/prepare_data.py --dataset shakespeare --show    # counts, hashes and a sample

Interrupted at any moment, the same command continues where it was. Exit codes: 0 prepared, 2 a mistake that
you can fix.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from kharness.config.errors import run_command
from kharness.config.options import Options, parse
from kharness.config.places import asked_path
from kharness.training.datasets import DATASETS, load_dataset
from kharness.training.datasets._files import Sources
from kharness.training.errors import DatasetError
from kharness.training.tokens.streams import TokenSplits

ROOT = Path(__file__).resolve().parent.parent
# Tokens of the sample that --show prints.
SAMPLE = 64


def main(argv: Sequence[str]) -> int:
    """Prepare the DATASET, or show it."""
    own = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    own.add_argument("--show", action="store_true")
    own.add_argument("--from", dest="local", metavar="DIR")
    own.add_argument("--mirror", action="append", default=[], metavar="URL")
    given, flags = own.parse_known_args(argv)
    options, _ = parse(flags, root=ROOT, model="gpt2", prog="gpt2/prepare_data.py", description=__doc__)
    if given.show:
        show(options)
        return 0
    local = asked_path("--from", given.local) if given.local else None
    if local is not None and not local.is_dir():
        raise DatasetError(f"--from {given.local} is not a folder", hint="name the folder that has the files")
    sources = Sources(local, given.mirror, lambda line: print(line, flush=True))
    dataset = DATASETS.load(options.DATASET)
    folder = dataset.fetch(DATASETS.options(options.DATASET, options.values), ROOT, sources)
    print(f"{folder}: verified")
    return 0


def show(options: Options) -> None:
    """Print what is prepared: tokens by split, hashes, and the beginning of the validation text."""
    splits: TokenSplits = load_dataset(options.DATASET, options.values, ROOT)
    print(f"dataset: {options.DATASET}, SHA-256 {splits.sha256}")
    tokenizer = splits.open_tokenizer()
    print(f"tokens: {tokenizer.name}, {splits.vocabulary:,} different, SHA-256 {splits.tokenizer_sha256}")
    for name, stream in (("train", splits.train), ("validation", splits.validation)):
        print(f"{name}: {len(stream):,} tokens")
        sample = stream.windows(np.zeros(1, dtype=np.int64), min(SAMPLE, len(stream)))[0].tolist()
        print(f"  {sample[:16]}")
        print(f"  {tokenizer.decode(sample)!r}")


if __name__ == "__main__":
    run_command(main)
