"""Compiled kernels: `kernels.softmax(scores, offsets, out)` calls the function with that name in our C library.

The library (`native/*.c`, built ahead of time) contains the C prototype of each kernel as text. From it, a `Kernel`
checks type, layout and length of every array before taking a pointer (`native/toprank.h` explains the notation), so
nothing is declared twice. Enumerations are exported as well: `kernels.Margin.LOGISTIC`. Kernels are serial and release
the GIL; `compute.each_block` runs them over blocks of whole queries on ordinary threads.

The library contains every kernel once for each instruction set, and the best one for this machine is used; all give the
same bits. TOPRANK_KERNELS=baseline (or avx2, avx512) selects another, and TOPRANK_KERNELS_FOLDER is the folder of
another build of the library, such as one with sanitizers.
"""

from __future__ import annotations

import ctypes
import hashlib
import operator
import os
import re
import sys
from collections.abc import Callable
from functools import cache, cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

_C_TYPES: dict[str, Any] = {
    **{name: getattr(ctypes, f"c_int{8 * int(name[1])}") for name in ("i1", "i2", "i4", "i8")},
    **{name: getattr(ctypes, f"c_uint{8 * int(name[1])}") for name in ("u1", "u2", "u4", "u8")},
    "f4": ctypes.c_float,
    "f8": ctypes.c_double,
    "bool": ctypes.c_bool,
    "void": None,
}
_CONTIGUOUS, _ALIGNED, _WRITABLE = 0x1, 0x100, 0x400
_BYTES = ctypes.c_char * 0
_OUT_OF_MEMORY = -(2**63)
_NUMBERS = {
    "f": "type({v}) is float",
    "b": "type({v}) is bool",
    "i": "(type({v}) is int or type({v}) is bool) and {low} <= {v} < {high}",
    "u": "(type({v}) is int or type({v}) is bool) and {low} <= {v} < {high}",
}
"""Test of a number on the fast path, by the first letter of its type."""
_PARAMETER = re.compile(r"(const )?(\w+) (\w+)((?:\[[^]]*\])*)$")


class Parameter(NamedTuple):
    """One parameter of a kernel, parsed from its prototype."""

    name: str
    kind: str
    """A type of `native/toprank.h`."""
    dtype: np.dtype[Any] | None
    """Type of an array's elements; None for a scalar."""
    written: bool
    lengths: tuple[str, ...]
    """Length of each dimension, as an expression of the sizes."""
    at_least: bool
    flags: int
    """Required NumPy flags of an array: contiguous, aligned, and writable if it is an output."""

    @classmethod
    def from_text(cls, text: str) -> Parameter:
        """Parse a parameter such as ``const f8 scores[n]``."""
        match = _PARAMETER.match(text.strip())
        if match is None:
            raise ImportError(f"The kernel library contains an invalid prototype: {text!r}.")
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
    """A function of the library that checks its arguments."""

    def __init__(self, prototype: str, function: Any) -> None:
        head, _, tail = prototype.partition("(")
        result, self.name = head.split()
        arguments = tail.removesuffix(")")
        everything = [Parameter.from_text(part) for part in arguments.split(",")] if arguments.strip() else []
        checks = [_Lengths(parameter) if parameter.lengths else None for parameter in everything]
        deduced: set[str] = set().union(*(check.deduced for check in checks if check is not None))
        self.prototype = prototype
        self.sizes = [parameter.name for parameter in everything if parameter.name in deduced]
        if [parameter.name for parameter in everything[: len(self.sizes)]] != self.sizes:
            raise ImportError(f"In the kernel {prototype} the sizes must come first.")
        self.parameters, self._checks = everything[len(self.sizes) :], checks[len(self.sizes) :]
        arrays = [parameter for parameter in self.parameters if parameter.lengths]
        self._disjoint = [
            (writing.name, other.name)
            for place, writing in enumerate(arrays)
            for at, other in enumerate(arrays)
            if writing.written and at != place and not (other.written and at < place)
        ]
        self._function = function
        function.restype = _C_TYPES[result]
        function.argtypes = [
            ctypes.c_void_p if parameter.lengths else _C_TYPES[parameter.kind] for parameter in everything
        ]
        self._can_run_out = result == "i8"

    def __call__(self, *values: Any) -> Any:
        """Call the function; raise TypeError or ValueError if an argument does not match the prototype."""
        if len(values) != len(self.parameters):
            names = ", ".join(parameter.name for parameter in self.parameters)
            raise TypeError(f"The kernel {self.name} takes ({names}), not {len(values)} arguments.")
        return self._fast_call(*values)

    def checked(self, *values: Any) -> Any:
        """Call the function with all checks, for arguments that the fast path rejects: some only need conversion."""
        sizes: dict[str, int] = {}
        passed: list[Any] = []
        arrays: dict[str, np.ndarray[Any, Any]] = {}
        for value, parameter, check in zip(values, self.parameters, self._checks, strict=True):
            if check is None:
                number = self._number(value, parameter)
                passed.append(number)
                sizes[parameter.name] = number
                continue
            if not parameter.written and isinstance(value, np.ndarray) and not value.flags.aligned:
                value = value.copy()  # arrays received over a network may be unaligned
            if (
                not isinstance(value, np.ndarray)
                or value.dtype != parameter.dtype
                or value.ndim != len(parameter.lengths)
                or value.flags.num & parameter.flags != parameter.flags
            ):
                self._refuse(value, parameter)
            check.deduce(value.shape, sizes)
            arrays[parameter.name] = value
            passed.append(value.ctypes.data)
        for value, check in zip(values, self._checks, strict=True):
            if check is not None and not check.matches(value.shape, sizes):
                raise ValueError(
                    f"The kernel {self.name} received {check.parameter.name} of shape {value.shape}; with {sizes} it "
                    f"must be [{']['.join(check.parameter.lengths)}]."
                )
        for writing, other in self._disjoint:
            if np.may_share_memory(arrays[writing], arrays[other]):  # both are contiguous, so their bounds suffice
                raise ValueError(
                    f"The kernel {self.name} writes {writing}, which shares memory with {other}; use separate arrays."
                )
        result = self._function(*[sizes[name] for name in self.sizes], *passed)
        return self._ran_out() if self._can_run_out and result == _OUT_OF_MEMORY else result

    @cached_property
    def _fast_call(self) -> Callable[..., Any]:
        """The same call as generated straight-line code, several times faster, for plain arrays and numbers in range.

        For `f8 sum(i8 n, const f8 x[n], f8 weights[n])`, with every name prefixed by `v_`:

            def sum(v_x, v_weights):
                if type(v_x) is not array or v_x.dtype is not dtype_x or v_x.ndim != 1 or v_x.flags.num & 257 != 257 …:
                    return checked(v_x, v_weights)
                v_n = v_x.shape[0]
                if v_n < 0 or v_x.shape[0] != v_n or v_weights.shape[0] != v_n:
                    return checked(v_x, v_weights)
                p_x = address(buffer(v_x)) if v_x.flags.writeable else v_x.ctypes.data
                p_weights = address(buffer(v_weights))
                if p_weights < p_x + v_x.nbytes and p_x < p_weights + v_weights.nbytes:
                    return checked(v_x, v_weights)
                return function(v_n, p_x, p_weights)

        Taking the address from the buffer costs a quarter of `ctypes.data`, but needs a writable array.
        """
        known: dict[str, Any] = {"array": np.ndarray, "buffer": _BYTES.from_buffer, "address": ctypes.addressof}
        known["function"] = self._function
        known |= {"checked": self.checked, "ran_out": self._ran_out}
        kinds, sizes, lengths, passed = ["False"], [], ["False"], [f"v_{name}" for name in self.sizes]
        addresses: list[str] = []
        learned = {parameter.name for parameter in self.parameters if parameter.dtype is None}
        for parameter, check in zip(self.parameters, self._checks, strict=True):
            v = f"v_{parameter.name}"
            if check is None:
                kinds.append(f"not ({_NUMBERS[parameter.kind[0]].format(v=v, **_limits(parameter.kind))})")
                passed.append(v)
                continue
            known[f"dtype_{parameter.name}"] = parameter.dtype
            kinds.append(f"type({v}) is not array or {v}.dtype is not dtype_{parameter.name}")
            kinds.append(
                f"{v}.ndim != {len(parameter.lengths)} or {v}.flags.num & {parameter.flags} != {parameter.flags}"
            )
            for axis, name, factor, shift in check.implied:
                if name not in learned:
                    learned.add(name)
                    sizes.append(f"v_{name} = ({v}.shape[{axis}] - {shift}) // {factor}")
                    lengths.append(f"v_{name} < 0")
            for axis, terms, exact in check.required:
                expected = " + ".join(
                    "*".join([str(number), *(f"v_{name}" for name in names)]) for number, names in terms
                )
                lengths.append(f"{v}.shape[{axis}] {'!=' if exact else '<'} {expected}")
            direct = f"address(buffer({v}))"
            addresses.append(
                f"p_{parameter.name} = {direct}"
                + ("" if parameter.written else f" if {v}.flags.writeable else {v}.ctypes.data")
            )
            passed.append(f"p_{parameter.name}")
        overlaps = ["False"] + [
            f"p_{writing} < p_{other} + v_{other}.nbytes and p_{other} < p_{writing} + v_{writing}.nbytes"
            for writing, other in self._disjoint
        ]
        arguments = ", ".join(f"v_{parameter.name}" for parameter in self.parameters)
        ending = [f"result = function({', '.join(passed)})", "return result"]
        if self._can_run_out:
            ending.insert(1, f"if result == {_OUT_OF_MEMORY}: return ran_out()")
        refusals = [f"if {' or '.join(tests)}: return checked({arguments})" for tests in (kinds, lengths, overlaps)]
        body = "\n    ".join([refusals[0], *sizes, refusals[1], *addresses, refusals[2], *ending])
        exec(f"def {self.name}({arguments}):\n    {body}", known)
        quick: Callable[..., Any] = known[self.name]
        return quick

    def _ran_out(self) -> Any:
        raise MemoryError(f"Out of memory in the kernel {self.name}.")

    def _number(self, value: Any, parameter: Parameter) -> Any:
        try:
            if parameter.kind == "f8" or parameter.kind == "f4":
                return value if type(value) is float else float(operator.pos(value))
            if parameter.kind == "bool":
                return bool(value)
            whole = operator.index(value)
        except TypeError:
            raise TypeError(f"The kernel {self.name} takes a number for {parameter.name}, not {value!r}.") from None
        limits = _limits(parameter.kind)
        if not limits["low"] <= whole < limits["high"]:
            raise ValueError(
                f"The kernel {self.name} takes a whole number of {8 * int(parameter.kind[1])} bits for "
                f"{parameter.name}, not {value!r}."
            )
        return whole

    def _refuse(self, value: Any, parameter: Parameter) -> None:
        kind = "writable contiguous" if parameter.written else "contiguous"
        wanted = f"a {kind} array of {parameter.dtype} in {len(parameter.lengths)} dimensions"
        received = (
            f"{value.dtype} {value.shape}, {value.strides}" if isinstance(value, np.ndarray) else type(value).__name__
        )
        raise TypeError(f"The kernel {self.name} takes {wanted} for {parameter.name}, not {received}.")


class _Lengths:
    """The sizes implied by the shape of one array, and the shape implied by all sizes."""

    def __init__(self, parameter: Parameter) -> None:
        self.parameter = parameter
        self.implied: list[tuple[int, str, int, int]] = []
        self.required: list[tuple[int, list[tuple[int, list[str]]], bool]] = []
        for axis, text in enumerate(parameter.lengths):
            exact = not (parameter.at_least and axis == 0)
            terms = [_term(part) for part in text.replace("- ", "+ -").split("+")]
            self.required.append((axis, terms, exact))
            unknown = [term for term in terms if term[1]]
            if exact and len(unknown) == 1 and len(unknown[0][1]) == 1:
                factor, names = unknown[0]
                self.implied.append((axis, names[0], factor, sum(number for number, names in terms if not names)))

    @property
    def deduced(self) -> set[str]:
        """Names of the sizes implied by the shape."""
        return {name for _, name, _, _ in self.implied}

    def deduce(self, shape: tuple[int, ...], sizes: dict[str, int]) -> None:
        """Record the sizes implied by this shape, unless another array has implied them."""
        for axis, name, factor, shift in self.implied:
            if name not in sizes:
                sizes[name] = max(shape[axis] - shift, 0) // factor

    def matches(self, shape: tuple[int, ...], sizes: dict[str, int]) -> bool:
        """Return whether the array has the required lengths."""
        for axis, terms, exact in self.required:
            expected = 0
            for number, names in terms:
                for name in names:
                    number *= sizes[name]
                expected += number
            if shape[axis] != expected and (exact or shape[axis] < expected):
                return False
        return True


def _name(prototype: str) -> str:
    return prototype.partition("(")[0].split()[1]


def _limits(kind: str) -> dict[str, int]:
    """Return the smallest integer of a type, and the first one beyond it; empty for other types."""
    if kind[0] not in "iu":
        return {}
    bits = 8 * int(kind[1])
    return {"low": 0, "high": 1 << bits} if kind[0] == "u" else {"low": -(1 << (bits - 1)), "high": 1 << (bits - 1)}


def _term(text: str) -> tuple[int, list[str]]:
    """Parse ``2 * n`` into its number and its names."""
    sign, factors = (-1, text.strip()[1:]) if text.strip().startswith("-") else (1, text)
    number, names = sign, []
    for factor in factors.split("*"):
        if factor.strip().isdigit():
            number *= int(factor)
        else:
            names.append(factor.strip())
    return number, names


def _numbered(members: str) -> SimpleNamespace:
    """Parse the members of an enumeration with their numbers: ``A, B = 4, C``."""
    numbers, following = {}, 0
    for member in members.split(","):
        name, _, number = member.partition("=")
        numbers[name.strip()] = int(number or following)
        following = numbers[name.strip()] + 1
    return SimpleNamespace(**numbers)


class KernelLibrary:
    """The kernels of one variant of the library, by name."""

    def __init__(self, path: Path, variant: str | None = None) -> None:
        try:
            self._library = ctypes.CDLL(str(path))
        except OSError as problem:
            raise ImportError(
                f"toprank's compiled kernels cannot be loaded from {path} ({problem}). In a checkout, build them with "
                "`make` or `python native/build.py`; an installed toprank includes them: reinstall it."
            ) from problem
        self.variants = self._text("toprank_variants").split()
        self.machine = self.variants[min(int(self._library.toprank_machine()), len(self.variants) - 1)]
        self.variant = variant or self.machine
        if self.variant not in self.variants[: self.variants.index(self.machine) + 1]:
            raise ImportError(
                f"TOPRANK_KERNELS requests the instructions {self.variant!r}; this machine has "
                f"{', '.join(self.variants[: self.variants.index(self.machine) + 1])}."
            )
        self.path, self.identity = path, self._text("toprank_identity")
        self._prototypes: dict[str, list[str]] = {}
        self._codes: dict[str, SimpleNamespace] = {}
        for line in self._text("toprank_prototypes").splitlines():
            if line.startswith("codes "):
                name, _, members = line.removeprefix("codes ").partition(": ")
                self._codes[name] = _numbered(members)
            else:
                self._prototypes.setdefault(_name(line).partition("__")[0], []).append(line)
        self._made: dict[str, list[Kernel]] = {}

    def _text(self, function: str) -> str:
        text = self._library[function]
        text.restype = ctypes.c_char_p
        return str(text().decode())

    def kernels(self) -> list[Kernel]:
        """Return every kernel."""
        return [kernel for name in self._prototypes for kernel in self._several(name)]

    def _several(self, name: str) -> list[Kernel]:
        """Return the kernels with a name, created at first use, since few programs need all."""
        if name not in self._made:
            lines = self._prototypes[name]
            self._made[name] = [Kernel(line, self._function(_name(line))) for line in lines]
        return self._made[name]

    def _function(self, name: str) -> Any:
        """Return the function in this variant; some functions exist in the baseline only."""
        try:
            return self._library[f"{name}_on_{self.variant}"]
        except AttributeError:
            return self._library[f"{name}_on_baseline"]

    def get(self, name: str) -> Any:
        """Return the codes with a name, or its kernel; for kernels of several types, a function that dispatches on
        type.
        """
        if name in self._codes:
            return self._codes[name]
        if name not in self._prototypes:
            raise AttributeError(f"The kernel library has no kernel {name!r}.")
        several = self._several(name)
        if len(several) == 1:
            return several[0]
        types = [[parameter.dtype for parameter in kernel.parameters] for kernel in several]
        telling = [place for place, of_each in enumerate(zip(*types, strict=True)) if len(set(of_each)) > 1]
        by_types = {tuple([of_one[i] for i in telling]): kernel for of_one, kernel in zip(types, several, strict=True)}

        def chosen(*values: Any) -> Any:
            try:
                kernel = by_types[tuple([values[i].dtype for i in telling])]
            except (IndexError, AttributeError, KeyError):
                kernel = several[0]  # raises an error that explains the problem
            return kernel(*values)

        return chosen


@cache
def library() -> KernelLibrary:
    """Return the library of this installation, in the variant for this machine."""
    name = {"darwin": "_kernels.dylib", "win32": "_kernels.dll"}.get(sys.platform, "_kernels.so")
    folder = Path(os.environ.get("TOPRANK_KERNELS_FOLDER") or Path(__file__).parent)
    loaded = KernelLibrary(folder / name, os.environ.get("TOPRANK_KERNELS") or None)
    native = Path(__file__).parents[2] / "native"
    if (native / "build.py").exists() and loaded.identity != _identity(native):
        raise ImportError(
            f"The compiled kernels {loaded.path} were not built from the sources in {native}: run `make`, or `python "
            "native/build.py`."
        )
    return loaded


def _identity(native: Path) -> str:
    """Return the hash that `native/build.py` assigns to a library built from these sources."""
    digest = hashlib.sha256()
    for path in sorted(
        path for path in native.iterdir() if path.suffix in {".c", ".h", ".inc"} or path.name == "build.py"
    ):
        digest.update(path.name.encode() + b"\0" + path.read_bytes().replace(b"\r\n", b"\n") + b"\0")
    return digest.hexdigest()


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    globals()[name] = library().get(name)  # the next look-up is an ordinary one
    return globals()[name]
