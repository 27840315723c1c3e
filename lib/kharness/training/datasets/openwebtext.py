"""OpenWebText, 8 million pages that Reddit linked to: the open form of what GPT-2 was trained on.

https://huggingface.co/datasets/Skylion007/openwebtext (CC0 1.0); A. Gokaslan, V. Cohen. Its files are
plain_text/train-00000-of-00080.parquet to -00079- (commit b4325f0); once they were archives, subsets/*.tar.
"""

from __future__ import annotations

from kharness.training.datasets._texts import HubDataset, HubOptions

CITED = ("gokaslan2019",)

# `make data` takes it only where it is the DATASET.
ON_REQUEST = True
DATASET = HubDataset("openwebtext", "Skylion007/openwebtext", "plain_text/*.parquet")

Options = HubOptions
fetch, check, load, manifest = DATASET.fetch, DATASET.check, DATASET.load, DATASET.manifest
