"""TinyStories, 2 million short stories in the words of a small child.

https://huggingface.co/datasets/roneneldan/TinyStories (CDLA-Sharing 1.0); Eldan and Li, arXiv:2305.07759.
Its files are data/train-00000-of-00004-HASH.parquet to -00003-, data/validation-00000-of-00001-HASH.parquet;
the same stories and others by GPT-4 alone stand beside them as text and as an archive, which are not taken.
"""

from __future__ import annotations

from kharness.training.datasets._texts import HubDataset, HubOptions

CITED = ("eldan2023",)

# `make data` takes it only where it is the DATASET.
ON_REQUEST = True
DATASET = HubDataset("tinystories", "roneneldan/TinyStories", "data/*.parquet")

Options = HubOptions
fetch, check, load, manifest = DATASET.fetch, DATASET.check, DATASET.load, DATASET.manifest
