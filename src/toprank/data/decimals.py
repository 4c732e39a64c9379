"""Decimal text to binary numbers, correctly rounded, at the speed of the memory.

`read_number` turns the text of one number into the nearest float64 (or, with `single`, a float64 that holds the nearest
float32). It works in three steps, each used only where the one before cannot promise the right answer:

1. The digits form an integer m < 2^53 and the power of ten is at most 10^22: both are exact, so m / 10^k or m * 10^k
   is rounded once and therefore right.
2. m times a table entry 10^k = high + low in double-double arithmetic, with a bound on the error: where both ends of
   the interval round to the same number, so does everything between them.
3. `HARD`: the caller notes the place, and `decimals_exact` converts the text without any shortcut.

Digits are read eight at a time: the bytes of a 64-bit word are tested and combined by ordinary integer arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

from toprank.compute import compiled, kernel

__all__ = ["BAD", "HARD", "HUGE", "MISSING", "NUMBER", "Bytes", "digits_at", "exact_number", "inlined", "read_number"]


def exact_number(token: str, single: bool) -> float:
    """The nearest float64, or the nearest float32 as a float64; infinite where the number is too large for its type.

    >>> exact_number("0.1", single=True) == float(np.float32(0.1))
    True
    """
    value = float(token)
    if not single or value == 0 or value - value != 0:
        return value
    with np.errstate(over="ignore"):
        nearest = np.float32(value)
        if float(nearest) == value:
            return value
        other = np.nextafter(nearest, np.float32(np.sign(value - float(nearest)) * np.inf), dtype=np.float32)
    if value != (_finite(nearest) + _finite(other)) / 2:
        return float(nearest)
    text, border = Decimal(token), Decimal(value)
    if text == border:  # NumPy has rounded to the even neighbour, as it should
        return float(nearest)
    return float(max(nearest, other) if text > border else min(nearest, other))


def _finite(value: np.float32) -> float:
    """The value, with infinity as the 2^128 that rounding treats it as."""
    return math.copysign(2.0**128, value) if np.isinf(value) else float(value)


P = ParamSpec("P")
T = TypeVar("T")
Bytes = npt.NDArray[np.uint8]

# What `read_number` found.
NUMBER, MISSING, INFINITE, HARD, HUGE, BAD = range(6)

_U = np.uint64
_POWER_LIMIT = 270  # table of 10^k for |k| up to here: products stay far from overflow and from subnormal numbers
_EXACT_LIMIT = 22  # 10^22 is the largest power of ten that a float64 holds exactly
_EXACT_MANTISSA = _U(1 << 53)
_SINGLE_MANTISSA = _U(1 << 24)
_SINGLE_POWER = 10  # 10^10 is the largest power of ten that a float32 holds exactly
_WINDOW = 32  # sign, 8 + 16 digits, the point and the byte after them, rounded up

_INTEGER_POWERS = np.array([10**k for k in range(20)], dtype=np.uint64)
_EXACT_POWERS = np.array([float(10**k) for k in range(_EXACT_LIMIT + 1)])
_POWERS = [Fraction(10) ** k for k in range(-_POWER_LIMIT, _POWER_LIMIT + 1)]
_POWER_HIGH = np.array([float(power) for power in _POWERS])
_POWER_LOW = np.array([float(power - Fraction(float(power))) for power in _POWERS])
del _POWERS


def inlined(function: Callable[P, T]) -> Callable[P, T]:
    """As `kernel`, for the small parts of a hot loop: their code is copied into the caller.

    A call that stays a call counts references to its arrays, with locked instructions that two threads fight over; on
    reading this costs a factor of four.
    """
    return compiled(function, forceinline=True)


@inlined
def _word(text: Bytes, at: int) -> np.uint64:
    """Eight bytes as one little-endian integer; the compiler turns this into a single load."""
    i = np.uintp(at)
    return (
        _U(text[i])
        | _U(text[i + np.uintp(1)]) << _U(8)
        | _U(text[i + np.uintp(2)]) << _U(16)
        | _U(text[i + np.uintp(3)]) << _U(24)
        | _U(text[i + np.uintp(4)]) << _U(32)
        | _U(text[i + np.uintp(5)]) << _U(40)
        | _U(text[i + np.uintp(6)]) << _U(48)
        | _U(text[i + np.uintp(7)]) << _U(56)
    )


@inlined
def digits_at(text: Bytes, at: int) -> tuple[int, np.uint64]:
    """How many of the eight bytes from `at` are digits before the first other byte, and the number they spell.

    After xor with '0' a digit is a byte from 0 to 9, and adding 0x76 sets the top bit of any other byte; a carry only
    disturbs bytes behind the first one found. Its index n comes from a multiplication by the bytes 0 … 7. The digits
    are then moved to the end of the word (zeros in front) and joined in pairs, fours and eights.
    """
    x = _word(text, at) ^ _U(0x3030303030303030)
    others = ((x + _U(0x7676767676767676)) | x) & _U(0x8080808080808080)
    first = others & (~others + _U(1))
    n = ((first >> _U(7)) * _U(0x0001020304050607)) >> _U(56) if others else _U(8)
    x = x << (_U(64) - _U(8) * n) if n else _U(0)
    pairs = x * _U(10) + (x >> _U(8))
    upper = (pairs & _U(0x000000FF000000FF)) * _U(0x000F424000000064)
    lower = ((pairs >> _U(16)) & _U(0x000000FF000000FF)) * _U(0x0000271000000001)
    return int(np.int64(n)), (upper + lower) >> _U(32)


@inlined
def _ends_token(byte: int) -> bool:
    """Whether a number may stop before this byte: a blank, any control byte, or the start of a comment."""
    return byte <= 32 or byte == 35


@inlined
def _rounds_safely(value: float) -> bool:
    """Whether float32(value) equals float32 of the decimal that `value` is the nearest float64 of.

    Rounding twice goes wrong only where `value` lies on the border between two float32 numbers; then its neighbours
    fall on different sides.
    """
    return bool(np.float32(value * (1 + 2.0**-52)) == np.float32(value * (1 - 2.0**-52)))


@inlined
def read_number(text: Bytes, at: int, end: int, single: bool) -> tuple[float, int, int]:
    """The number whose text starts at `at` and ends before `end`: its value, the place after it, what was found.

    Where something else is found (`BAD`) the place is that of the first byte that does not fit.
    """
    value, after, found = 0.0, at, HARD
    if at + _WINDOW <= end:
        value, after, found = _read_plain_number(text, at, single)
    if found == HARD:
        value, after, found = _read_any_number(text, at, end, single)
    return value, after, found


@inlined
def _read_plain_number(text: Bytes, at: int, single: bool) -> tuple[float, int, int]:
    """Step 1 for up to 7 digits before the point and up to 16 behind it; `HARD` for anything else."""
    i = at
    negative = text[i] == 45
    i += negative
    whole_digits, mantissa = digits_at(text, i)
    i += whole_digits
    decimals = 0
    if text[i] == 46:
        i += 1
        decimals, fraction = digits_at(text, i)
        i += decimals
        mantissa = mantissa * _INTEGER_POWERS[decimals] + fraction
        if decimals == 8:
            more, fraction = digits_at(text, i)
            i += more
            decimals += more
            mantissa = mantissa * _INTEGER_POWERS[more] + fraction
    n_digits = whole_digits + decimals
    value = np.float64(mantissa) / _EXACT_POWERS[decimals]
    exact = 0 < n_digits <= 19 and whole_digits < 8 and mantissa < _EXACT_MANTISSA
    # Both operands fit in float32: then rounding the quotient to float64 first does no harm (53 >= 2 * 24 + 2 bits).
    harmless = mantissa < _SINGLE_MANTISSA and decimals <= _SINGLE_POWER
    sure = exact and _ends_token(text[i]) and (not single or harmless or _rounds_safely(value))
    return (-value if negative else value), i, (NUMBER if sure else HARD)


@kernel
def _read_any_number(text: Bytes, at: int, end: int, single: bool) -> tuple[float, int, int]:
    """As `read_number`, byte by byte: signs, any number of digits, exponents, and words."""
    i = at
    negative = False
    if i < end and (text[i] == 45 or text[i] == 43):
        negative = text[i] == 45
        i += 1
    start = i
    mantissa, exponent, significant, n_digits = _U(0), 0, 0, 0
    cut, pointed = False, False
    while i < end:
        byte = text[i]
        if byte == 46 and not pointed:
            pointed = True
        elif 48 <= byte <= 57:
            n_digits += 1
            if significant < 19:
                mantissa = mantissa * _U(10) + _U(byte - 48)
                significant += 1 if mantissa > 0 else 0
                exponent -= pointed
            else:
                cut |= byte != 48
                exponent += not pointed
        else:
            break
        i += 1
    if n_digits == 0:
        return _read_word(text, start, end, negative)
    if i < end and (text[i] == 101 or text[i] == 69):
        power, i = _read_exponent(text, i + 1, end)
        exponent += power
    if i < 0 or (i < end and not _ends_token(text[i])):
        return 0.0, abs(i), BAD
    value, status = _scaled(mantissa, exponent, cut, single)
    return (-value if negative else value), i, status


@kernel
def _read_exponent(text: Bytes, i: int, end: int) -> tuple[int, int]:
    """The exponent after the letter e, held at 10^12 where it is larger, and the place after it (-place if none)."""
    negative = False
    if i < end and (text[i] == 45 or text[i] == 43):
        negative = text[i] == 45
        i += 1
    start, power = i, 0
    while i < end and 48 <= text[i] <= 57:
        power = min(power * 10 + (text[i] - 48), 1_000_000_000_000)
        i += 1
    return (-power if negative else power), (i if i > start else -i)


@kernel
def _read_word(text: Bytes, start: int, end: int, negative: bool) -> tuple[float, int, int]:
    """NULL, NaN, inf or infinity in any case, as `read_number` returns them."""
    stop = start
    while stop < end and stop - start < 9 and not _ends_token(text[stop]):
        stop += 1
    if _spells(text, start, stop, b"null") or _spells(text, start, stop, b"nan"):
        return np.nan, stop, MISSING
    if _spells(text, start, stop, b"inf") or _spells(text, start, stop, b"infinity"):
        return (-np.inf if negative else np.inf), stop, INFINITE
    return 0.0, start, BAD


@kernel
def _spells(text: Bytes, start: int, stop: int, word: bytes) -> bool:
    if stop - start != len(word):
        return False
    for k in range(len(word)):  # noqa: SIM110 - kernels have no generators
        if (text[start + k] | 32) != word[k]:
            return False
    return True


@kernel
def _scaled(mantissa: np.uint64, exponent: int, cut: bool, single: bool) -> tuple[float, int]:
    """Steps 1 to 3 for mantissa * 10^exponent, where the mantissa may be up to 1 larger if digits were `cut`."""
    if mantissa == 0:
        return 0.0, NUMBER
    if not cut and mantissa < _EXACT_MANTISSA and -_EXACT_LIMIT <= exponent <= _EXACT_LIMIT:
        power = _EXACT_POWERS[abs(exponent)]
        value = np.float64(mantissa) / power if exponent < 0 else np.float64(mantissa) * power
    elif -_POWER_LIMIT <= exponent <= _POWER_LIMIT:
        low, high = _bounds(mantissa, exponent, cut)
        if low != high:
            return 0.0, HARD
        value = low
    else:
        return 0.0, HARD
    if single and not _rounds_safely(value):
        return 0.0, HARD
    return value, HUGE if single and np.isinf(np.float32(value)) else NUMBER


@kernel
def _bounds(mantissa: np.uint64, exponent: int, cut: bool) -> tuple[float, float]:
    """Two float64 numbers with the correctly rounded mantissa * 10^exponent between them.

    With m = m1 + m2 exactly and 10^k = t1 + t2 up to 2^-106, the product is p + e + m1 t2 + m2 t1, where p + e = m1 t1
    exactly (Dekker). The rounding of the small terms and the neglected m2 t2 stay below p 2^-102; p 2^-99 is allowed.
    """
    m1 = np.float64(mantissa)
    m2 = np.float64(np.int64(mantissa - _U(m1)))
    t1, t2 = _POWER_HIGH[exponent + _POWER_LIMIT], _POWER_LOW[exponent + _POWER_LIMIT]
    p = m1 * t1
    a = m1 * 134217729.0
    a = a - (a - m1)
    b = t1 * 134217729.0
    b = b - (b - t1)
    c, d = m1 - a, t1 - b
    e = ((a * b - p) + a * d + c * b) + c * d
    small = e + (m1 * t2 + m2 * t1)
    allowed = p * 2.0**-99
    more = t1 * (1 + 2.0**-50) if cut else 0.0
    return p + (small - allowed), p + (small + (allowed + more))
