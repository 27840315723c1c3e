"""environment.json: every installed package, and no secret, of a trainer that never waits for it."""

from __future__ import annotations

import json
import os
import re
import sys
from importlib import metadata
from pathlib import Path

import pytest

from monitoring import Run
from monitoring.saved_environment import installed_packages, save_environment, without_secrets

from .conftest import wait_for_delivery

# Names and values as of things that these stand for; every one is made up.
SECRETS = {
    "WANDB_API_KEY": "x",
    "HF_TOKEN": "x",
    "AWS_SECRET_ACCESS_KEY": "x",
    "db_password": "x",
    "PGPASSWORD": "x",
    "SMTP_PASS": "x",
    "GITHUB_PAT": "x",
    "SENTRY_DSN": "x",
    "GOOGLE_APPLICATION_CREDENTIALS": "/home/me/key.json",
    "NOTIFY_SECRET_URLS": "x",
    "NETRC": "/home/me/.netrc",
    "HTTPS_PROXY": "http://me:hunter2@proxy:3128",
    "REDIS": "redis://:hunter2@localhost:6379/0",
    "HOOK": "https://example.com/hook?room=1&token=abc",
    "OF_STORAGE": "DefaultEndpointsProtocol=https;AccountName=me;AccountKey=abc",
    "EXTRA_ARGS": "--user me --password=hunter2",
    "HEADERS": "Authorization: Bearer abcdefgh12345678",
    "OF_GITHUB": "ghp_" + "a1B2" * 9,
    "OF_HUGGING_FACE": "hf_" + "a1B2" * 8,
    "OF_OPENAI": "sk-proj-" + "a1B2" * 8,
    "OF_AWS": "AKIA" + "A1B2" * 4,
    "OF_WANDB": "0123456789abcdef" * 2 + "01234567",
    "OF_LOGIN": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln",
    "OF_SSH": "-----BEGIN OPENSSH PRIVATE " + "KEY-----\nabc",
    "RANDOM": "prefix " + "aB3xY9" * 5,
}
OPEN = {
    "PATH": "/usr/local/cuda-12.8/bin:/root/.local/share/Envs/kharness-Main2/bin:/usr/bin",
    "PWD": "/home/me/results_2026",
    "HOME": "/home/me",
    "CUDA_VISIBLE_DEVICES": "GPU-51a10001-0000-4000-8000-000000000001",
    "NCCL_SOCKET_IFNAME": "eth0",
    "OMP_NUM_THREADS": "4",
    "MASTER_ADDR": "node1.cluster.example",
    "MONITORING_CORRELATION_ID": "0123456789abcdef",
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True,max_split_size_mb:128",
    "HTTP_PROXY": "http://proxy.example:3128/path",
    "LANG": "C.UTF-8",
}


def test_secrets_are_left_out_by_name_and_by_value() -> None:
    variables, left_out = without_secrets({**SECRETS, **OPEN})
    assert (variables, left_out) == (dict(sorted(OPEN.items())), sorted(SECRETS))


def test_value_that_is_no_text_is_kept_as_far_as_it_is() -> None:
    assert without_secrets({"ODD": os.fsdecode(b"a\xffb")}) == ({"ODD": "a\ufffdb"}, [])


def test_packages_are_those_that_their_metadata_say() -> None:
    """Of several of one name the first counts, as in an import."""
    said: dict[str, str] = {}
    for package in metadata.distributions():
        said.setdefault(re.sub(r"[-_.]+", "-", package.name).lower(), package.version)
    found = installed_packages(sys.path)
    assert found == said
    assert found["torch"] == metadata.version("torch")


def test_agent_writes_what_its_trainer_has(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MONITORING_HOST_NAME", "node0")
    monkeypatch.setenv("OF_THE_TRAINER", "1")
    monkeypatch.setenv("MY_TOKEN", "hunter2")
    with Run(run_dir, name="n", project="p", config={}):
        pass
    wait_for_delivery(run_dir)
    text = (run_dir / "environment.json").read_text()
    found = json.loads(text)
    assert [found[name] for name in ("attempt", "host", "executable")] == [1, "node0", sys.executable]
    assert found["packages"] == installed_packages(sys.path)
    assert (found["variables"]["OF_THE_TRAINER"], "MY_TOKEN" in found["left_out"]) == ("1", True)
    assert "hunter2" not in text


def test_file_is_of_the_newest_attempt_and_written_once_each(tmp_path: Path) -> None:
    path = tmp_path / "environment.json"
    written = []
    for attempt in (1, 1, 2):
        save_environment(tmp_path, attempt)
        written.append((json.loads(path.read_bytes())["attempt"], path.stat().st_ino))
    assert [attempt for attempt, _ in written] == [1, 1, 2]
    assert written[0] == written[1] != written[2]
    path.write_text("{")
    save_environment(tmp_path, 2)
    assert json.loads(path.read_bytes())["attempt"] == 2
