"""Which environment variables are shown to others: none of the keys that issuers give, but harmless ones."""

from __future__ import annotations

import os
import random
import string
import sys

import pytest

from monitoring.secrets import is_secret, without_secrets

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
    "OF_SLACK": "https://hooks.slack.com/services/" + "T0A1/B0A1/a1B2",
    "OF_DISCORD": "https://discord.com/api/webhooks/" + "1/a",
    "OF_TEAMS": "https://me.webhook.office.com/" + "a",
    "OF_APPRISE": "json://localhost/path, slack" + "://TokenA/TokenB/TokenC",
    "OF_SENDGRID": "SG." + "a1B2" * 5 + "." + "a1B2" * 10,
    "OF_VAULT": "hvs." + "a1B2" * 6,
    "OF_OLD_VAULT": "s." + "a1B2" * 6,
    "OF_DIGITAL_OCEAN": "dop_v1_" + "0a1b" * 16,
    "OF_TELEGRAM": "123456789:" + "a1B2-" * 7,
    "OF_NEPTUNE": "eyJ" + "a1B2" * 8,
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
    "SLURM_JOB_NODELIST": "gpu-a100-[001-004,017],login02",
    "SLURM_TASKS_PER_NODE": "8(x4)",
    "SLURM_CONF": "/var/spool/slurmd/conf-cache/slurm.conf",
    "NCCL_IB_HCA": "=mlx5_0:1,mlx5_1:1,mlx5_4:1,mlx5_5:1",
    "XLA_FLAGS": "--xla_gpu_enable_latency_hiding_scheduler=true --xla_gpu_graph_level=0",
    "LS_COLORS": "rs=0:di=01;34:ln=01;36:mh=00:pi=40;33:*.tar=01;31:*.tgz=01;31:*.JPEG=01;35",
    "LD_LIBRARY_PATH": "/opt/nvidia/hpc_sdk/Linux_x86_64/24.5/comm_libs/12.4/hpcx/hpcx-2.19/ompi/lib",
    "LOADEDMODULES": "GCCcore/13.2.0:OpenMPI/4.1.6-GCC-13.2.0:PyTorch-bundle/2.7.0-foss-2023b-CUDA-12.4.0",
    "JAVA_HOME": "/usr/lib/jvm/java-17-openjdk-amd64",
    "CLASSPATH": "/home/JohnDoe/IdeaProjects/MyFirstProject/src/AbstractSingletonProxyFactoryBean.java",
    "SSH_CONNECTION": "10.1.2.3 51234 10.1.2.4 22",
    "LESSOPEN": "| /usr/bin/lesspipe %s",
    "NVIDIA_REQUIRE_CUDA": "cuda>=12.8 brand=tesla,driver>=535,driver<536 brand=nvidiartx,driver>=550",
    "MLFLOW_TRACKING_URI": "https://mlflow.example.com:5000/api/2.0/experiments",
    "S3_DATA": "s3://my-bucket-2026/imagenet-1k/train/shard-{000000..001281}.tar",
    "POSTGRES": "postgresql://db.example:5432/optuna",
    "TMP_FOLDER": "/tmp/tmp.9MXZavjsAp/pytest-of-root/pytest-12",
    "K8S": "tcp://10.96.0.1:443",
    "HOSTNAME": "kharness-worker-7d9f8b6c5d-x2v4q.default.svc.cluster.local",
    "CMAKE_PREFIX_PATH": "/opt/conda/envs/torch-2.13.0-cu130-py311:/opt/rocm-6.4.1/lib/cmake/hipblaslt",
}


def test_secrets_are_left_out_by_name_and_by_value() -> None:
    variables, left_out = without_secrets({**SECRETS, **OPEN})
    assert (variables, left_out) == (dict(sorted(OPEN.items())), sorted(SECRETS))


def test_value_that_is_no_text_is_kept_as_far_as_it_is() -> None:
    assert without_secrets({"ODD": os.fsdecode(b"a\xffb")}) == ({"ODD": "a\ufffdb"}, [])


BASE62 = string.ascii_letters + string.digits


@pytest.mark.parametrize(
    ("alphabet", "length", "kept"),
    [
        (BASE62 + "+/", 40, 1),  # AWS
        (BASE62 + "+/", 86, 0),  # Azure
        (BASE62 + "-_", 40, 1),  # Cloudflare
        (BASE62, 24, 1),
        (BASE62, 32, 0),
        (string.ascii_lowercase + string.digits, 32, 22),
        ("0123456789abcdef", 24, 12),
    ],
)
def test_keys_of_no_known_form_are_left_out_as_drawn_by_chance(alphabet: str, length: int, kept: int) -> None:
    drawn = random.Random(length)
    keys = ["".join(drawn.choices(alphabet, k=length)) for _ in range(2000)]
    assert sum(not is_secret("SETTING", key) for key in keys) == kept


def test_names_of_modules_of_this_python_are_kept() -> None:
    """They were not among those that the pairs of letters were counted in."""
    modules = sorted(sys.stdlib_module_names)
    lists = [":".join(f"/usr/lib/python3/{name}.py" for name in modules[i:]) for i in range(0, 280, 7)]
    assert [value for value in (*modules, *lists) if is_secret("SETTING", value)] == []
