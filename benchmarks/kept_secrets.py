"""How many keys drawn by chance stand in environment.json, and how many harmless values do not.

python benchmarks/kept_secrets.py [KEYS]

Keys are drawn in the forms of their issuers, KEYS (5,000) of each, and stand in a variable whose name says
nothing. Harmless values are paths of files of this machine, without those whose name is a hash.
"""

from __future__ import annotations

import os
import random
import re
import string
import sys
from collections.abc import Callable, Iterator
from itertools import islice

from monitoring.secrets import is_secret

BASE62 = string.ascii_letters + string.digits
HEX = "0123456789abcdef"
BASE36 = string.ascii_lowercase + string.digits
BASE32 = string.ascii_uppercase + "234567"
HASHES = re.compile(r"[0-9a-f]{16,}|[0-9a-f]{8}-[0-9a-f]{4}-", re.IGNORECASE)


def forms(draw: Callable[[str, int], str]) -> dict[str, Callable[[], str]]:
    """The form of each issuer's keys, by a function that draws characters of an alphabet."""
    url64 = BASE62 + "-_"
    return {
        "AWS secret access key": lambda: draw(BASE62 + "+/", 40),
        "Azure storage key": lambda: draw(BASE62 + "+/", 86) + "==",
        "Slack webhook": lambda: (
            f"https://hooks.slack.com/services/T{draw(BASE36.upper(), 10)}"
            f"/B{draw(BASE36.upper(), 10)}/{draw(BASE62, 24)}"
        ),
        "Discord webhook": lambda: (
            f"https://discord.com/api/webhooks/{draw(string.digits, 18)}/{draw(url64, 68)}"
        ),
        "apprise, Slack": lambda: f"slack://T{draw(BASE36.upper(), 8)}/A{draw(BASE36, 8)}/{draw(BASE62, 24)}",
        "apprise, Telegram": lambda: (
            f"tgram://{draw(string.digits, 9)}:{draw(url64, 35)}/{draw(string.digits, 8)}"
        ),
        "SendGrid": lambda: f"SG.{draw(url64, 22)}.{draw(url64, 43)}",
        "Vault": lambda: f"hvs.{draw(BASE62, 24)}",
        "Vault, before 1.10": lambda: f"s.{draw(BASE62, 24)}",
        "DigitalOcean": lambda: f"dop_v1_{draw(HEX, 64)}",
        "Weights & Biases": lambda: draw(HEX, 40),
        "Hugging Face": lambda: f"hf_{draw(string.ascii_letters, 34)}",
        "OpenAI": lambda: f"sk-proj-{draw(url64, 48)}",
        "GitHub": lambda: f"ghp_{draw(BASE62, 36)}",
        "Neptune": lambda: f"eyJ{draw(BASE62, 120)}",
        "Telegram bot": lambda: f"{draw(string.digits, 10)}:{draw(url64, 35)}",
        "Google API": lambda: f"AIza{draw(url64, 35)}",
        "Cloudflare (40 of base64url)": lambda: draw(url64, 40),
        "20 letters and digits": lambda: draw(BASE62, 20),
        "24 letters and digits": lambda: draw(BASE62, 24),
        "32 letters and digits": lambda: draw(BASE62, 32),
        "32 small letters and digits": lambda: draw(BASE36, 32),
        "32 of base32": lambda: draw(BASE32, 32),
        "24 hexadecimal digits": lambda: draw(HEX, 24),
    }


def files(top: str = "/usr") -> Iterator[str]:
    """Paths of files in a folder, none of them named by a hash."""
    for folder, folders, names in os.walk(top):
        folders.sort()
        yield from (path for name in names if not HASHES.search(path := f"{folder}/{name}"))


def main() -> None:
    """Print the share of each that is judged wrongly, in %."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    drawn = random.Random(0)

    def draw(alphabet: str, length: int) -> str:
        return "".join(drawn.choices(alphabet, k=length))

    print(f"kept, in % of {count:,} made-up keys each:")
    for name, key in forms(draw).items():
        kept = sum(not is_secret("SETTING", key()) for _ in range(count))
        print(f"{name:30} {100 * kept / count:6.2f}")
    paths = list(islice(files(), 40 * count))
    for name, values in {
        "paths": paths,
        "lists of paths": [":".join(paths[i : i + 8]) for i in range(0, len(paths), 8)],
        "names": [path.rpartition("/")[2] for path in paths],
    }.items():
        lost = sum(is_secret("SETTING", value) for value in values)
        print(f"left out, in % of {len(values):,} harmless {name}: {100 * lost / len(values):.3f}")


if __name__ == "__main__":
    main()
