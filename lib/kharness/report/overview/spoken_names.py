"""Names of models and datasets as papers write them, for titles."""

from __future__ import annotations

_WRITTEN = {
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "fashion-mnist": "Fashion-MNIST",
    "finewebedu": "FineWeb-Edu",
    "gpt2": "GPT-2",
    "lenet5": "LeNet-5",
    "mnist": "MNIST",
    "mnist-subset": "MNIST (subset)",
    "openwebtext": "OpenWebText",
    "resnet50": "ResNet-50",
    "shakespeare": "Shakespeare",
    "shakespeare-char": "Shakespeare (characters)",
    "tinystories": "TinyStories",
}


def spoken(name: str) -> str:
    """Return the written form of a name; one without an entry is shown as it is."""
    return _WRITTEN.get(name, name)


def listed(names: list[str], last: str = "and") -> str:
    """Return `a, b and c`."""
    return f" {last} ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)


def symbol_words(symbol: str) -> str:
    """Return `learning rate` for LEARNING_RATE."""
    return symbol.lower().replace("_", " ")
