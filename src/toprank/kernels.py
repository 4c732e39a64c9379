"""The compiled loops: `kernels.softmax(scores, offsets, out)` calls the function of that name in our C library.

The library (`native/*.c`, built ahead of time) says itself what it holds: each kernel's C prototype is in it as text.
From that text a `Kernel` checks kind, layout and length of every array before a pointer is taken (`native/toprank.h`
explains the notation), so nothing is declared twice. Kernels are serial and let go of the interpreter's lock;
`compute.each_block` runs them over blocks of whole queries on ordinary threads.

The library holds every kernel once for each set of instructions, and the best one this machine has is used; all give
the same bits. TOPRANK_KERNELS=baseline (or avx2, avx512) chooses another.
"""

from __future__ import annotations

import ctypes
import hashlib
import operator
import os
import re
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Kernel", "Library", "library"]

_C_TYPES: dict[str, Any] = {
    **{name: getattr(ctypes, f"c_int{8 * int(name[1])}") for name in ("i1", "i2", "i4", "i8")},
    **{name: getattr(ctypes, f"c_uint{8 * int(name[1])}") for name in ("u1", "u2", "u4", "u8")},
    "f4": ctypes.c_float,
    "f8": ctypes.c_double,
    "bool": ctypes.c_bool,
    "void": None,
}
_CONTIGUOUS, _ALIGNED, _WRITABLE = 0x1, 0x100, 0x400
_ADDRESS = ctypes.c_char * 0
_OUT_OF_MEMORY = -(2**63)
_PARAMETER = re.compile(r"(const )?(\w+) (\w+)((?:\[[^]]*\])*)$")


class Parameter(NamedTuple):
    """One parameter of a kernel, as its prototype says."""

    name: str
    kind: str
    """A type of `native/toprank.h`."""
    dtype: np.dtype[Any] | None
    """The type of an array's elements; None for a single number."""
    written: bool
    lengths: tuple[str, ...]
    """The length of each dimension, as an expression of the sizes."""
    at_least: bool
    flags: int
    """NumPy's flags that an array must have: contiguous, aligned, writable where it is written."""

    @classmethod
    def of(cls, text: str) -> Parameter:
        """Read a parameter: ``const f8 scores[n]``."""
        match = _PARAMETER.match(text.strip())
        if match is None:
            raise ImportError(f"The kernel library holds a prototype that cannot be read: {text!r}.")
        const, kind, name, brackets = match.groups()
        lengths = [part.replace("restrict", "").strip() for part in re.findall(r"\[([^]]*)\]", brackets)]
        at_least = bool(lengths) and lengths[0].startswith("static ")
        if at_least:
            lengths[0] = lengths[0].removeprefix("static ")
        dtype = np.dtype(kind) if lengths else None
        written = bool(lengths) and not const
        flags = _CONTIGUOUS | _ALIGNED | (_WRITABLE if written else 0)
        return cls(name, kind, dtype, written, tuple(lengths), at_least, flags)


class Kernel:
    """A function of the library that checks what it is given."""

    def __init__(self, prototype: str, function: Any) -> None:
        head, _, tail = prototype.partition("(")
        result, self.name = head.split()
        arguments = tail.removesuffix(")")
        everything = [Parameter.of(part) for part in arguments.split(",")] if arguments.strip() else []
        checks = [_Lengths(one) if one.lengths else None for one in everything]
        told: set[str] = set().union(*(check.told for check in checks if check is not None))
        self.prototype = prototype
        self.sizes = [one.name for one in everything if one.name in told]
        if [one.name for one in everything[: len(self.sizes)]] != self.sizes:
            raise ImportError(f"In the kernel {prototype} the sizes must come first.")
        self.parameters, self._checks = everything[len(self.sizes) :], checks[len(self.sizes) :]
        self._function = function
        function.restype = _C_TYPES[result]
        function.argtypes = [ctypes.c_void_p if one.lengths else _C_TYPES[one.kind] for one in everything]
        self._can_run_out = result == "i8"

    def __call__(self, *given: Any) -> Any:
        """Call the function; TypeError or ValueError where an argument is not what the prototype says."""
        if len(given) != len(self.parameters):
            names = ", ".join(one.name for one in self.parameters)
            raise TypeError(f"The kernel {self.name} takes ({names}), not {len(given)} arguments.")
        sizes: dict[str, int] = {}
        passed: list[Any] = []
        for value, one, check in zip(given, self.parameters, self._checks, strict=True):
            if check is None:
                number = self._number(value, one)
                passed.append(number)
                sizes[one.name] = number
                continue
            if (
                not isinstance(value, np.ndarray)
                or value.dtype != one.dtype
                or value.ndim != len(one.lengths)
                or value.flags.num & one.flags != one.flags
            ):
                self._refuse(value, one)
            check.learn(value.shape, sizes)
            # An address by way of the buffer costs a quarter of one by `ctypes.data`, but asks for a writable array.
            passed.append(_ADDRESS.from_buffer(value) if value.flags.writeable else value.ctypes.data)
        for value, check in zip(given, self._checks, strict=True):
            if check is not None and not check.holds(value.shape, sizes):
                raise ValueError(
                    f"The kernel {self.name} was given {check.parameter.name} of shape {value.shape}; with "
                    f"{sizes} it must be [{']['.join(check.parameter.lengths)}]."
                )
        result = self._function(*[sizes[name] for name in self.sizes], *passed)
        if self._can_run_out and result == _OUT_OF_MEMORY:
            raise MemoryError(f"There is no memory left for the kernel {self.name}.")
        return result

    def takes(self, given: tuple[Any, ...]) -> bool:
        """Whether the arrays have the types of this kernel."""
        return len(given) == len(self.parameters) and all(
            one.dtype is None or getattr(value, "dtype", None) == one.dtype
            for value, one in zip(given, self.parameters, strict=True)
        )

    def _number(self, value: Any, one: Parameter) -> Any:
        try:
            if one.kind == "f8" or one.kind == "f4":
                return value if type(value) is float else float(operator.pos(value))
            if one.kind == "bool":
                return bool(value)
            whole = operator.index(value)
        except TypeError:
            raise TypeError(f"The kernel {self.name} takes a number for {one.name}, not {value!r}.") from None
        bits = 8 * int(one.kind[1])
        low, high = (0, 1 << bits) if one.kind[0] == "u" else (-(1 << (bits - 1)), 1 << (bits - 1))
        if not low <= whole < high:
            raise ValueError(
                f"The kernel {self.name} takes a whole number of {bits} bits for {one.name}, not {value!r}."
            )
        return whole

    def _refuse(self, value: Any, one: Parameter) -> None:
        wanted = (
            f"a {'writable ' if one.written else ''}contiguous array of {one.dtype} in {len(one.lengths)} dimensions"
        )
        found = (
            f"{value.dtype} {value.shape}, {value.strides}" if isinstance(value, np.ndarray) else type(value).__name__
        )
        raise TypeError(f"The kernel {self.name} takes {wanted} for {one.name}, not {found}.")


class _Lengths:
    """What the shape of one array says about the sizes, and what the sizes then ask of it."""

    def __init__(self, parameter: Parameter) -> None:
        self.parameter = parameter
        self._tells: list[tuple[int, str, int, int]] = []
        self._asks: list[tuple[int, list[tuple[int, list[str]]], bool]] = []
        for axis, text in enumerate(parameter.lengths):
            exact = not (parameter.at_least and axis == 0)
            terms = [_term(part) for part in text.replace("- ", "+ -").split("+")]
            self._asks.append((axis, terms, exact))
            unknown = [term for term in terms if term[1]]
            if exact and len(unknown) == 1 and len(unknown[0][1]) == 1:
                factor, names = unknown[0]
                self._tells.append((axis, names[0], factor, sum(number for number, names in terms if not names)))

    @property
    def told(self) -> set[str]:
        """The names of the sizes that the shape tells."""
        return {name for _, name, _, _ in self._tells}

    def learn(self, shape: tuple[int, ...], sizes: dict[str, int]) -> None:
        """Note the sizes that this shape tells and that are not known yet."""
        for axis, name, factor, shift in self._tells:
            if name not in sizes:
                sizes[name] = max(shape[axis] - shift, 0) // factor

    def holds(self, shape: tuple[int, ...], sizes: dict[str, int]) -> bool:
        """Whether the array is as long as the sizes say."""
        for axis, terms, exact in self._asks:
            asked = 0
            for number, names in terms:
                for name in names:
                    number *= sizes[name]
                asked += number
            if shape[axis] != asked and (exact or shape[axis] < asked):
                return False
        return True


def _term(text: str) -> tuple[int, list[str]]:
    """``2 * n`` as its number and its names."""
    sign, factors = (-1, text.strip()[1:]) if text.strip().startswith("-") else (1, text)
    number, names = sign, []
    for factor in factors.split("*"):
        if factor.strip().isdigit():
            number *= int(factor)
        else:
            names.append(factor.strip())
    return number, names


class Library:
    """The kernels of one variant of the library, by name."""

    def __init__(self, path: Path, variant: str | None = None) -> None:
        try:
            self._library = ctypes.CDLL(str(path))
        except OSError as problem:
            raise ImportError(
                f"toprank's compiled kernels cannot be loaded from {path} ({problem}). In a checkout, `make` or "
                "`python native/build.py` builds them; an installed toprank brings them along: install it again."
            ) from problem
        self.variants = self._text("toprank_variants").split()
        self.machine = self.variants[min(int(self._library.toprank_machine()), len(self.variants) - 1)]
        self.variant = variant or self.machine
        if self.variant not in self.variants[: self.variants.index(self.machine) + 1]:
            raise ImportError(
                f"TOPRANK_KERNELS asks for the instructions {self.variant!r}; this machine has "
                f"{', '.join(self.variants[: self.variants.index(self.machine) + 1])}."
            )
        self.identity = self._text("toprank_identity")
        self._by_name: dict[str, list[Kernel]] = {}
        for line in self._text("toprank_prototypes").splitlines():
            name = line.split(" ", 1)[1].split("(")[0]
            made = Kernel(line, self._library[f"{name}_on_{self.variant}"])
            self._by_name.setdefault(name.split("__")[0], []).append(made)

    def _text(self, function: str) -> str:
        said = self._library[function]
        said.restype = ctypes.c_char_p
        return str(said().decode())

    def kernels(self) -> list[Kernel]:
        """Every kernel."""
        return [one for several in self._by_name.values() for one in several]

    def get(self, name: str) -> Callable[..., Any]:
        """The kernel of a name; where there are several for several types, one that looks at its arguments."""
        several = self._by_name.get(name)
        if several is None:
            raise AttributeError(f"The kernel library has no kernel {name!r}.")
        if len(several) == 1:
            return several[0]

        def chosen(*given: Any) -> Any:
            for one in several:
                if one.takes(given):
                    return one(*given)
            return several[0](*given)  # says what is wrong

        return chosen


@cache
def library() -> Library:
    """The library of this installation, in the variant that fits the machine."""
    name = {"darwin": "_kernels.dylib", "win32": "_kernels.dll"}.get(sys.platform, "_kernels.so")
    made = Library(Path(__file__).with_name(name), os.environ.get("TOPRANK_KERNELS") or None)
    native = Path(__file__).parents[2] / "native"
    if (native / "build.py").exists() and made.identity != _identity(native):
        raise ImportError(
            f"The compiled kernels are older than their sources in {native}: run `make`, or `python native/build.py`."
        )
    return made


def _identity(native: Path) -> str:
    """The hash that `native/build.py` gives a library made of these sources."""
    digest = hashlib.sha256()
    for path in sorted(
        path for path in native.iterdir() if path.suffix in {".c", ".h", ".inc"} or path.name == "build.py"
    ):
        digest.update(path.name.encode() + b"\0" + path.read_bytes().replace(b"\r\n", b"\n") + b"\0")
    return digest.hexdigest()


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    found = library().get(name)
    globals()[name] = found  # the next look-up is an ordinary one
    return found
