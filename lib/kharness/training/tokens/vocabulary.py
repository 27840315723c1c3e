"""GPT-2's vocabulary from files: which bytes each token stands for, in the order in which they are merged.

Nothing is downloaded: `vocab.bpe` is shipped in gpt2/vocabulary, and other files are accepted if they say the
same. Whoever reads them compares `ranks_sha256` with what is published.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import zlib
from collections.abc import Mapping
from pathlib import Path

from kharness.training.errors import DatasetError

# The same merges under the names that OpenAI, Hugging Face and tiktoken give them.
MERGES = ("vocab.bpe", "merges.txt")
RANKS = ("r50k_base.tiktoken", "gpt2.tiktoken")
# Bytes, uncompressed; far above any vocabulary there is, so that no file can fill the memory.
_LARGEST = 1 << 26


def read_ranks(place: Path) -> dict[bytes, int]:
    """Tokens and their ranks, from a file, or from the first of the known names in a folder."""
    path = _file(place)
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            content = file.read(_LARGEST)
        merges = path.name.removesuffix(".gz").endswith(MERGES)
        return _from_merges(content.decode()) if merges else _from_ranks(content)
    except (OSError, EOFError, zlib.error) as error:
        raise DatasetError(f"{path} cannot be read: {str(error).lower()}", hint=_HINT) from error
    except (ValueError, KeyError) as error:
        raise DatasetError(f"{path}: not a vocabulary of merges or ranks", hint=_HINT) from error


def ranks_sha256(ranks: Mapping[bytes, int]) -> str:
    """Over lines `base64(token) rank` in the order of ranks: the form in which tiktoken's are published."""
    lines = (base64.b64encode(token) + b" %d\n" % rank for token, rank in ranks.items())
    return hashlib.sha256(b"".join(lines)).hexdigest()


_NAMES = (*MERGES, *RANKS)
_HINT = f"TOKENIZER_VOCABULARY names a folder with {', '.join(_NAMES)} or one of these compressed (.gz)"


def _file(place: Path) -> Path:
    if place.is_file():
        return place
    for name in _NAMES:
        for path in (place / name, place / f"{name}.gz"):
            if path.is_file():
                return path
    raise DatasetError(f"{place} holds no vocabulary of GPT-2", hint=_HINT)


def _from_merges(text: str) -> dict[bytes, int]:
    """Bytes first, then a token for each line `left right`.

    A byte is written as a printable character: as itself if it is one, else as the next one from U+0100 on.
    Source: https://github.com/openai/gpt-2, encoder.py, bytes_to_unicode
    """
    printable = [byte for byte in range(256) if chr(byte).isprintable() and byte != ord(" ")]
    others = [byte for byte in range(256) if byte not in printable]
    byte_of = {chr(byte): byte for byte in printable}
    byte_of |= {chr(256 + number): byte for number, byte in enumerate(others)}
    ranks = {bytes([byte]): rank for rank, byte in enumerate([*printable, *others])}
    for line in filter(None, text.split("\n")[1:]):  # the first one is the version
        ranks[bytes(byte_of[character] for character in line.replace(" ", ""))] = len(ranks)
    return ranks


def _from_ranks(content: bytes) -> dict[bytes, int]:
    pairs = (line.split() for line in content.splitlines() if line)
    return {base64.b64decode(token, validate=True): int(rank) for token, rank in pairs}
