"""Determinism: settings besides the seed that decide the bits of results, applied and read back.

https://docs.pytorch.org/docs/stable/notes/randomness.html has what there is to set. On a CPU none of it
changes a bit: there the seed and the number of threads decide.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from kharness.training.errors import DeviceError

WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
# With these cuBLAS adds up in one order: https://docs.nvidia.com/cuda/cublas/#results-reproducibility
_WORKSPACES = (":4096:8", ":16:8")

# The kernel module says its version here, also in a container.
_DRIVER = Path("/sys/module/nvidia/version")


def make_deterministic() -> None:
    """Have a GPU use only algorithms that give the same bits each time.

    To be called before CUDA is started, because cuBLAS reads its variable then; DeviceError where it is too
    late for that, or the variable has another value.
    """
    if WORKSPACE not in os.environ and torch.cuda.is_initialized():
        raise DeviceError(
            f"DETERMINISTIC=y: CUDA was started before {WORKSPACE} could be set",
            hint=f"export {WORKSPACE}={_WORKSPACES[0]} before the training starts",
        )
    given = os.environ.setdefault(WORKSPACE, _WORKSPACES[0])
    if given not in _WORKSPACES:
        raise DeviceError(
            f"DETERMINISTIC=y does not go with {WORKSPACE}={given} in the environment",
            hint=f"unset {WORKSPACE}, or set it to {' or '.join(_WORKSPACES)}",
        )
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False  # which takes the algorithm that is fastest at the moment


def set_tf32(device: torch.device, is_on: bool) -> None:
    """Whether a GPU multiplies float32 matrices in TF32, as MATMUL_TF32 says; Numerics reads it back.

    By torch's older switch, which the newer ones follow: torch.compile fails where only those are set.
    """
    if device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = is_on


@dataclass(frozen=True)
class Numerics:
    """Settings reported by torch and the driver; those of a GPU are None on a CPU."""

    deterministic_algorithms: bool
    cudnn_deterministic: bool
    cudnn_benchmark: bool
    cublas_workspace: str | None
    """CUBLAS_WORKSPACE_CONFIG."""
    tf32_matmul: bool
    """Whether products of float32 matrices may be computed in TF32."""
    tf32_convolution: bool
    gpu: str | None = None
    compute_capability: str | None = None
    """Such as `9.0`."""
    cuda: str | None = None
    """The version that torch was built for; ROCm's, if that is it."""
    cudnn: int | None = None
    """Such as 91002 for 9.10.2."""
    driver: str | None = None
    """NVIDIA's, such as `570.86.15`; None where the kernel does not say."""

    @classmethod
    def of(cls, device: torch.device) -> Numerics:
        """On a GPU after CUDA was started."""
        found = cls(
            deterministic_algorithms=torch.are_deterministic_algorithms_enabled()
            and not torch.is_deterministic_algorithms_warn_only_enabled(),
            cudnn_deterministic=bool(torch.backends.cudnn.deterministic),
            cudnn_benchmark=bool(torch.backends.cudnn.benchmark),
            cublas_workspace=os.environ.get(WORKSPACE),
            tf32_matmul=_uses_tf32(torch.backends.cuda.matmul),
            tf32_convolution=_uses_tf32(getattr(torch.backends.cudnn, "conv", torch.backends.cudnn)),
        )
        return found._on_gpu(device) if device.type == "cuda" else found

    def _on_gpu(self, device: torch.device) -> Numerics:
        return replace(
            self,
            gpu=torch.cuda.get_device_name(device),
            compute_capability="{}.{}".format(*torch.cuda.get_device_capability(device)),
            cuda=torch.version.cuda or torch.version.hip,
            cudnn=torch.backends.cudnn.version(),
            driver=driver_version(),
        )

    def float32_type(self, *, convolution: bool) -> str:
        """The type that operations on float32 are computed in, `tf32` or `float32`.

        Only NVIDIA's GPUs from Ampere on have TF32; elsewhere torch's setting, which is on for convolutions,
        has no effect.
        """
        major = int((self.compute_capability or "0").partition(".")[0])
        has_tf32 = major >= 8 and torch.version.hip is None
        is_on = self.tf32_convolution if convolution else self.tf32_matmul
        return "tf32" if has_tf32 and is_on else "float32"

    def check(self) -> None:
        """DeviceError unless the same bits are to be had each time, as DETERMINISTIC=y has it."""
        wrong = {
            "deterministic algorithms are off": not self.deterministic_algorithms,
            "cudnn.deterministic is off": not self.cudnn_deterministic,
            "cudnn.benchmark is on": self.cudnn_benchmark,
            f"{WORKSPACE} is {self.cublas_workspace}": self.cublas_workspace not in _WORKSPACES,
        }
        found = [what for what, is_so in wrong.items() if is_so]
        if found:
            raise DeviceError(
                f"DETERMINISTIC=y: {', '.join(found)} after the model was made",
                hint="leave these settings of torch alone in the model's code, or set DETERMINISTIC=n",
            )

    def differences(self, before: Mapping[str, object]) -> list[str]:
        """Return the fields that differ from `before`."""
        return [
            f"{name} {before[name]}, now {value}"
            for name, value in asdict(self).items()
            if name in before and before[name] != value
        ]


def driver_version(path: Path = _DRIVER) -> str | None:
    try:
        return path.read_text().strip() or None
    except OSError:
        return None


def _uses_tf32(backend: object) -> bool:
    # torch 2.9 has fp32_precision, beside which allow_tf32 raises once anybody has set the former.
    precision = getattr(backend, "fp32_precision", None)
    if precision is not None:
        return bool(precision == "tf32")
    return bool(getattr(backend, "allow_tf32"))  # noqa: B009 - not every type has it
