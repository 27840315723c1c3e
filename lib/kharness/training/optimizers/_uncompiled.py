"""torch.optim without torch._dynamo, whose import is a third of the CPU time in which a training starts.

With its first optimizer torch imports it, to keep an optimizer's methods out of what is compiled. Before
anything else has imported it, nothing is compiled.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.optim import Optimizer

DYNAMO = "torch._dynamo"


def spare_dynamo() -> None:
    """Have torch's optimizers import it no more; once something has, their methods are torch's own again.

    A method that another version of torch wraps in another way stays as it is.
    """
    for kind in vars(torch.optim).values() if DYNAMO not in sys.modules else ():
        if isinstance(kind, type) and issubclass(kind, Optimizer):
            for name, method in list(vars(kind).items()):
                around = AROUND.get(getattr(getattr(method, "__code__", None), "co_qualname", ""))
                if around:
                    setattr(kind, name, _uncompiled(method, around))


def _uncompiled(
    method: Callable[..., Any], around: Callable[[Optimizer], AbstractContextManager[object]]
) -> Callable[..., Any]:
    alone: Callable[..., Any] = vars(method)["__wrapped__"]

    @functools.wraps(method)
    def called(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        if DYNAMO in sys.modules:
            return method(self, *args, **kwargs)
        with around(self):
            return alone(self, *args, **kwargs)

    return called


# The functions of torch that wrap a method, and what else they do around it.
AROUND: dict[str, Callable[[Optimizer], AbstractContextManager[object]]] = {
    "_disable_dynamo.<locals>.inner": lambda optimizer: nullcontext(),
    "_use_grad_for_differentiable.<locals>._use_grad": lambda optimizer: torch.set_grad_enabled(
        optimizer.defaults["differentiable"]
    ),
}
