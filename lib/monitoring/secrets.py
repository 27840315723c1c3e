"""Tells environment variables that may be shown from secrets: by name, by issuer and by randomness.

What merely looks like a secret is left out as well: no run depends on such a value. How many made-up keys
pass, and how many harmless values do not, is measured by benchmarks/kept_secrets.py.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from itertools import pairwise

# In the name of a variable, whatever its case, between others: WANDB_API_KEY, DB_PASS, GITHUB_PAT, netrc.
NAMES = re.compile(
    r"key|token|secret|passw|passphrase|credential|private|cookie|session|signature|webhook|netrc|certificate"
    r"|(?:^|_)(?:auth|pass|pat|pin|pw|pwd|salt|dsn|sas|jwt|connection_?string)(?:_|$)",
    re.IGNORECASE,
)

# Variables whose names only look like those of secrets.
NO_SECRETS = frozenset({"PWD", "OLDPWD", "XDG_SESSION_ID", "XDG_SESSION_TYPE", "XDG_SESSION_CLASS"})

# Words in the options of trainings: `max_tokens`, `tokenizer`, `num_keys`, `pin_memory`.
_NO_SECRET_WORDS = re.compile(r"tokens|tokeniz|num_keys|pin_memory", re.IGNORECASE)

# Addresses of these schemes are kept if nothing else in them is a secret. Of others the whole address may be
# one, as of those that apprise knows (slack://, tgram://, discord:// and some 130 more).
_OPEN_SCHEMES = (
    "https?|file|ftp|sftp|s3a?|gs|gcs|abfss?|wasbs?|hdfs|viewfs|dbfs|hf|nfs|git|git\\+https|git\\+ssh|ssh|rsync"
    "|docker|docker-daemon|oci|tcp|tls|udp|unix|ipc|env|grpcs?|wss?|redis|rediss|amqps?|kafka|nats|etcd|memcached"
    "|postgres|postgresql|mysql|sqlite|mongodb|jdbc|ray|spark|dask|mem|memory|local|c10d|ucx|inproc"
)

# The forms of keys are those that their issuers document, as GitHub's, GitLab's and Hugging Face's secret
# scanning and gitleaks know them, in small letters: a pattern of either case takes each agent 2 ms longer to
# compile.
ISSUERS = re.compile(
    r"://[^/\s@]*@"  # a URL with a user, and perhaps a password
    rf"|(?<![a-z0-9+.-])(?!(?:{_OPEN_SCHEMES})://)[a-z][a-z0-9+.-]*://"
    r"|https?://(?:[\w.-]+\.)?(?:web)?hooks?\.|https?://\S*/(?:web_?)?hooks/\S"  # Slack, Discord, Teams
    r"|[?&;](?:[a-z_-]*(?:key|token|secret|sig|signature|password|pwd|auth))="
    r"|\b(?:password|passwd|pwd|secret|token|api[_-]?key|accountkey|sharedaccesskey)\s*[=:]\s*\S"
    r"|\b(?:bearer|basic)\s+\S{8}"
    r"|-----begin |\bage-secret-key-"
    r"|\beyj[\w-]{16,}"  # JSON in base64: web tokens, Neptune's API tokens
    r"|\b(?:sk|pk|rk)[-_][\w-]{16,}"  # OpenAI, Anthropic, Stripe
    r"|\bhf_\w{20,}|\bgh[pousr]_\w{20,}|\bgithub_pat_\w{20,}|\bgl[a-z]{2,5}-[\w-]{16,}|\bpypi-[\w-]{16,}"
    r"|\bx(?:ox[a-z]|app)-[\w-]{10,}"  # Slack
    r"|\b(?:a3t[a-z0-9]|akia|asia|abia|acca|ltai|akid)[a-z0-9]{12,}\b"  # AWS, Alibaba, Tencent
    r"|\baiza[\w-]{30,}|\bya29\.[\w-]{20,}|\bgocspx-[\w-]{20,}|\bnpm_\w{20,}"
    r"|\bsg\.[\w-]{16,}\.[\w-]{16,}|\bkey-[0-9a-f]{32}|\b(?:sk|ac)[0-9a-f]{32}\b"  # SendGrid, Mailgun, Twilio
    r"|\bhv[sbr]\.[\w-]{20,}|(?<![\w.])s\.[a-z0-9]{24}\b|\bb\.aaaaa[\w-]{20,}"  # HashiCorp Vault
    r"|\bdo[opr]_v1_[0-9a-f]{32,}|\bdapi[0-9a-f]{32}|\bdckr_[a-z]+_[\w-]{20,}|\bgl(?:c|sa)_[\w=+/-]{20,}"
    r"|\bshp[a-z]{2}_[0-9a-f]{32}|\blin_(?:api|oauth)_\w{20,}|\b(?:ntn|secret)_\w{30,}|\bnrak-\w{20,}"
    r"|\b(?:gsk|pplx|xai|r8|fw|nvapi|wandb_v1|sntry[su]|pscale_[a-z]+|dp\.[a-z]{2,7}|pmak|hrku|atatt3|atbb)"
    r"[-_.]?[\w-]{20,}"
    r"|\b\d{8,10}:[\w-]{35}\b"  # a bot of Telegram
    r"|\b[\w-]{23,28}\.[\w-]{6}\.[\w-]{27,}"  # a bot of Discord
    r"|\b[0-9a-f]{32,}\b"  # as those of Weights & Biases
)

# Names of things in no language: GPUs, machines, partitions. No secret of use here is one but Heroku's.
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_LONG = re.compile(r"[A-Za-z0-9+/_=-]{20,}")

# The 200 most frequent pairs of letters in the names of files of a Debian system with Python packages: 89 %
# of all pairs there, and 30 % of those drawn by chance.
_FREQUENT = frozenset(
    re.findall(
        "..",
        "abacadagaialamanaparasataubabebiblbobucacechcickclcmcocpcrctcucvdadddedidodueaecedeeeielemenepereset"
        "exfffifnfogcgegigrgzhahehihohtiaibicidieigiliminioipisitivjskekzlaldlelilllolplsltlumambmemimlmmmomp"
        "munancndnenfngninnnonsntnuocodogolomonoooporosotoupapdpephpiplpoppprpsptpupyrarcrdrerirmrnrorsrtrusa"
        "scseshsisksospssstsusvsxsytatctethtitmtotrtstttutyubucudulunupurusutvavevivlvmvsvtwawsxpxtycyiymypyt",
    )
)
_LIMIT = 5.0


def without_secrets(environment: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return the variables that may be read by others, and the names of the rest."""
    open_ones = {
        name: _encodable(value) for name, value in sorted(environment.items()) if not is_secret(name, value)
    }
    return open_ones, sorted(map(_encodable, environment.keys() - open_ones.keys()))


def is_secret(name: str, value: str) -> bool:
    """Whether a variable is to be left out: by its name, by the form of its value, or as drawn by chance."""
    if name not in NO_SECRETS and NAMES.search(name):
        return True
    if ISSUERS.search(value.lower()):
        return True
    return any(randomness(word) >= _LIMIT for word in _LONG.findall(_UUID.sub("", value)))


def is_secret_option(name: str, value: str) -> bool:
    """Whether an option of a program is to be left out: those of tokens of text and of memory are not."""
    return is_secret(_NO_SECRET_WORDS.sub("", name), value)


def randomness(word: str) -> float:
    """How much more likely a word was drawn by chance than given as a name: a sum over pairs of characters.

    The terms are logarithms of ratios of frequencies (Neyman and Pearson 1933), of keys in base64 to paths of
    files, rounded; those of a change of case are less, to allow for CamelCase, which such paths seldom have.
    """
    return sum(_term(first, second) for first, second in pairwise(word))


def _term(first: str, second: str) -> float:
    if not (first.isalnum() and second.isalnum()):
        return -2.0
    if first.isdigit() or second.isdigit():
        return 0.0 if first.isdigit() and second.isdigit() else 1.7
    frequent = (first + second).lower() in _FREQUENT
    if first.isupper() == second.isupper():
        return -1.7 if frequent else 0.9
    if second.isupper():
        return 2.0
    return 0.8 if frequent else 2.5


def _encodable(text: str) -> str:
    """Show bytes that are no UTF-8 as U+FFFD."""
    return os.fsencode(text).decode(errors="replace")
