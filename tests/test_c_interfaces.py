"""Every function, type and number of C that lib/ uses through ctypes, held to the header by a C compiler.

For NVML that is NVIDIA's own nvml.h (the package nvidia-nvml-dev-cu12), for the rest the system's headers.
"""

from __future__ import annotations

import ast
import ctypes
import itertools
import struct
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from ctypes import POINTER, c_uint
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kharness.config.project_name import _SIOCGIFADDR
from monitoring.agent.process import UCRED
from monitoring.host import libc
from monitoring.samplers import _nvml

# A number of C by its size and kind: ctypes has one type for two of C's where both have 64 bits.
NUMBERS: dict[tuple[int, str], tuple[str, ...]] = {
    (2, "unsigned"): ("unsigned short",),
    (4, "signed"): ("int",),
    (4, "unsigned"): ("unsigned int",),
    (8, "signed"): ("long", "long long"),
    (8, "unsigned"): ("unsigned long", "unsigned long long"),
    (8, "floating"): ("double",),
}

MACROS = """
#define SAME(a, b) __builtin_types_compatible_p(__typeof__(a), __typeof__(b))
#define KIND(type) ((type)0.5 > 0 ? 2 : (type)-1 < 0)
"""

KINDS = ("unsigned", "signed", "floating")

Compile = Callable[[str], list[str]]


@pytest.fixture(scope="session")
def headers(root: Path, nvml_header: Path) -> Compile:
    """Compiler of C text that may include nvml.h: returns gcc's errors, one line each."""

    def compiled(text: str) -> list[str]:
        command = ["gcc", "-x", "c", "-fsyntax-only", "-w", f"-I{nvml_header}", "-"]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        return [line.partition("error: ")[2] for line in done.stderr.splitlines() if "error: " in line]

    return compiled


def kind_of(type_: Any) -> str:
    if issubclass(type_, (ctypes.c_double, ctypes.c_float)):
        return "floating"
    return "signed" if type_(-1).value < 0 else "unsigned"


def names_of(type_: Any) -> tuple[str, ...]:
    """C names of a type: its own, if it has one there, or those of numbers of its size and kind."""
    if type_ is ctypes.c_char_p:
        return ("const char *",)
    if issubclass(type_, ctypes._Pointer):
        return tuple(f"{name} *" for name in names_of(type_._type_))
    if type_.__module__ not in ("ctypes", "_ctypes"):
        return (type_.__name__,)
    return NUMBERS[ctypes.sizeof(type_), kind_of(type_)]


def assertion(condition: str, what: str) -> str:
    return f'_Static_assert({condition}, "{what}");'


def prototype(name: str, answer: str, arguments: Sequence[Any], *, variable_from: int | None = None) -> str:
    """Asserts that a function has these arguments and no others."""
    words = [names_of(argument) for argument in arguments[:variable_from]]
    rest = [] if variable_from is None else ["..."]
    choices = [f"{answer} (*)({', '.join([*chosen, *rest])})" for chosen in itertools.product(*words)]
    return assertion(" || ".join(f"SAME(&{name}, ({choice})0)" for choice in choices), name)


def layout(type_: Any, word: str, place: str = "") -> Iterator[str]:
    """Asserts that each member of a structure stands where ctypes has it, of the same size and kind."""
    for name, member in type_._fields_:
        path, whole = f"{place}{name}", f"((({word} *)0)->{place}{name})"
        if not place:
            offset = getattr(type_, name).offset
            yield assertion(f"__builtin_offsetof({word}, {path}) == {offset}", f"place of {word}.{path}")
        if issubclass(member, ctypes.Array):  # ours has room for more than the header's
            yield assertion(f"sizeof({whole}) <= {ctypes.sizeof(member)}", f"size of {word}.{path}")
            yield assertion(
                f"sizeof({whole}[0]) == {ctypes.sizeof(member._type_)}", f"size of {word}.{path}[0]"
            )
            continue
        yield assertion(f"sizeof({whole}) == {ctypes.sizeof(member)}", f"size of {word}.{path}")
        if issubclass(member, (ctypes.Structure, ctypes.Union)):
            yield from layout(member, word, f"{path}.")
        elif not issubclass(member, (ctypes.c_void_p, ctypes.c_char_p)):
            kind = KINDS.index(kind_of(member))
            yield assertion(f"KIND(__typeof__({whole})) == {kind}", f"kind of {word}.{path}")


def declarations(module: ModuleType) -> Iterator[str]:
    """Asserts all numbers, types and functions of a module that names them as nvml.h does."""
    for name, value in vars(module).items():
        if not name.lower().startswith("nvml_") and not name.startswith("nvml"):
            continue
        if isinstance(value, int):
            yield assertion(f"{name} == {value}", name)
        elif isinstance(value, type) and issubclass(value, (ctypes.Structure, ctypes.Union)):
            grows = any(issubclass(member, ctypes.Array) for _, member, *_ in value._fields_)
            yield assertion(
                f"sizeof({name}) {'<=' if grows else '=='} {ctypes.sizeof(value)}", f"size of {name}"
            )
            yield from layout(value, name)
        elif isinstance(value, type):
            yield assertion(f"sizeof({name}) == {ctypes.sizeof(value)}", f"size of {name}")
            if not issubclass(value, ctypes.c_void_p):
                yield assertion(f"KIND({name}) == {KINDS.index(kind_of(value))}", f"kind of {name}")
    # each answer is read as an int
    yield assertion("sizeof(nvmlReturn_t) == sizeof(int)", "size of nvmlReturn_t")


def nvml_text(functions: Mapping[str, Sequence[Any]]) -> str:
    """C that compiles where NVML is as it is declared in _nvml.py, with these functions."""
    lines = ["#include <stddef.h>", '#include "nvml.h"', MACROS, *declarations(_nvml)]
    return "\n".join([*lines, *(prototype(name, "nvmlReturn_t", it) for name, it in functions.items()), ""])


def test_nvml_is_declared_as_in_its_header(headers: Compile) -> None:
    assert headers(nvml_text(_nvml.FUNCTIONS)) == []


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        # without the sampling period: the driver wrote it wherever a register pointed
        ("nvmlDeviceGetEncoderUtilization", (_nvml.nvmlDevice_t, POINTER(c_uint))),
        ("nvmlDeviceGetFanSpeed", (_nvml.nvmlDevice_t, POINTER(ctypes.c_int))),
        ("nvmlDeviceGetMemoryInfo_v2", (_nvml.nvmlDevice_t, POINTER(_nvml.nvmlMemory_t))),
        ("nvmlDeviceGetTemperature", (_nvml.nvmlDevice_t, _nvml.nvmlClockType_t, POINTER(c_uint))),
        ("nvmlGpmSampleFree", (POINTER(_nvml.nvmlGpmSample_t),)),
    ],
)
def test_wrong_argument_is_seen(headers: Compile, name: str, arguments: tuple[Any, ...]) -> None:
    assert headers(nvml_text({**_nvml.FUNCTIONS, name: arguments})) == [f'static assertion failed: "{name}"']


def test_wrong_structure_or_number_is_seen(headers: Compile, monkeypatch: pytest.MonkeyPatch) -> None:
    class nvmlMemory_t(ctypes.Structure):
        _fields_ = [("total", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong), ("free", ctypes.c_double)]

    monkeypatch.setattr(_nvml, "nvmlMemory_t", nvmlMemory_t)
    monkeypatch.setattr(_nvml, "NVML_FI_DEV_POWER_INSTANT", 185)
    monkeypatch.setattr(_nvml, "nvmlMemory_v2", _nvml.nvmlMemory_v2 + 8)
    wrong = [
        *("NVML_FI_DEV_POWER_INSTANT", "nvmlMemory_v2", "place of nvmlMemory_t.used"),
        *("place of nvmlMemory_t.free", "kind of nvmlMemory_t.free"),
    ]
    assert headers(nvml_text({})) == [f'static assertion failed: "{what}"' for what in wrong]


def test_what_is_asked_of_the_system_is_declared_as_in_its_headers(headers: Compile) -> None:
    """prctl and the others of libc, and the two structures that the socket and ioctl modules hand over."""
    includes = (
        "fcntl.h",
        "malloc.h",
        "net/if.h",
        "netinet/in.h",
        "stdio.h",
        "sys/ioctl.h",
        "sys/prctl.h",
        "sys/socket.h",
        "unistd.h",
    )
    variable = {"prctl": 1}
    functions = []
    for name, (answer, arguments) in libc.FUNCTIONS.items():
        [word] = names_of(answer)
        functions.append(prototype(name, word, arguments, variable_from=variable.get(name)))
    numbers = {
        name: value for name, value in vars(libc).items() if name.startswith(("PR_", "RENAME_", "AT_", "M_"))
    }
    address = "__builtin_offsetof(struct ifreq, ifr_addr) + __builtin_offsetof(struct sockaddr_in, sin_addr)"
    facts = {
        **numbers,
        "SIOCGIFADDR": _SIOCGIFADDR,
        "sizeof(struct ucred)": struct.calcsize(UCRED),
        "__builtin_offsetof(struct ucred, uid)": struct.calcsize(UCRED[:1]),
        "sizeof(((struct ucred *)0)->uid)": struct.calcsize(UCRED[1]),
        address: 20,
        "sizeof(struct in_addr)": 4,
        "IFNAMSIZ": 16,
    }
    text = [
        "#define _GNU_SOURCE",
        *(f"#include <{name}>" for name in includes),
        MACROS,
        *functions,
        *(assertion(f"{what} == {value}", what) for what, value in facts.items()),
        assertion("sizeof(struct ifreq) <= 256", "struct ifreq"),
        "",
    ]
    assert len(functions) == 5
    assert headers("\n".join(text)) == []


def test_functions_of_c_are_called_only_where_their_types_are_declared(
    root: Path, nodes: Callable[[Path], list[ast.AST]]
) -> None:
    """forked.py sets the threads of the OpenBLAS that is loaded; nvidia.py only loads NVML."""
    loading = {
        str(path.relative_to(root))
        for path in [*(root / "lib").rglob("*.py"), *(root / "scripts").glob("*.py")]
        for node in nodes(path)
        if isinstance(node, ast.Attribute) and node.attr in ("CDLL", "PyDLL", "cdll", "pythonapi", "nvmlLib")
    }
    assert loading == {
        "lib/kharness/training/forkserver/forked.py",
        "lib/monitoring/host/libc.py",
        "lib/monitoring/samplers/_nvml.py",
        "lib/monitoring/samplers/nvidia.py",
    }
