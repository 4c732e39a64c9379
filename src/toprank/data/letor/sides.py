"""LightGBM's side files: one number a line beside the text, for the sizes of queries, weights and positions.

`x.query` (or `x.group`), `x.weight` and `x.position` belong to the text `x`. Beside a compressed `x.gz` they may be
called after `x.gz` or after `x`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray, IntArray
from toprank.data.bytesource import open_bytes, plain_name
from toprank.errors import FormatError

__all__ = ["SIDES", "beside", "per_document", "query_sizes"]

SIDES = (".query", ".group", ".weight", ".position")


def query_sizes(path: Path, n_rows: int, stretches: IntArray | None) -> IntArray | None:
    """The sizes of the queries of a text from its side file; None where there is none.

    Args:
        path: the text.
        n_rows: how many rows it has.
        stretches: the sizes of the queries that its `qid:` tokens name, which the side file must repeat.

    Raises:
        FormatError: the sizes contradict the text or each other.
    """
    sizes: IntArray | None = None
    for suffix in (".query", ".group"):
        side = beside(path, suffix)
        if side is None:
            continue
        found = _numbers(side, int, np.int64, "a size, a whole number above 0", lambda size: size > 0)
        total = sum(found.tolist())  # of Python's integers, which do not overflow
        if total != n_rows:
            raise FormatError(f"The sizes of the queries add up to {total}, but {path} has {n_rows} rows.", path=side)
        for other, what in ((sizes, f"the file {path.name}.query"), (stretches, f"the qid: tokens in {path}")):
            if other is not None and not np.array_equal(other, found):
                raise FormatError(f"The sizes of the queries differ from {what}; remove the wrong one.", path=side)
        sizes = found
    return sizes


def per_document(
    paths: Sequence[Path], n_rows: Sequence[int]
) -> tuple[FloatArray | None, npt.NDArray[np.int64] | None]:
    """Document weights and positions from the side files, in the order of the text; None where there are none.

    Raises:
        FormatError: a side file does not fit its text, or some of several texts have one and others do not.
    """

    def column(suffix: str, read: Callable[[Path], npt.NDArray[Any]]) -> npt.NDArray[Any] | None:
        sides = [beside(path, suffix) for path in paths]
        found = [side for side in sides if side is not None]
        if not found:
            return None
        parts = []
        for path, side, n in zip(paths, sides, n_rows, strict=True):
            if side is None:
                raise FormatError(f"{found[0]} has no counterpart {path.name}{suffix}; give all or none.", path=path)
            parts.append(read(side))
            if len(parts[-1]) != n:
                raise FormatError(f"There are {len(parts[-1])} lines for the {n} rows of {path}.", path=side)
        return np.concatenate(parts)

    weights = column(".weight", lambda side: _numbers(side, float, np.float64, _WEIGHT, lambda w: 0 <= w < np.inf))
    positions = column(".position", lambda side: _numbers(side, int, np.int64, "a position, a whole number", _fits))
    return weights, positions


_WEIGHT = "a weight, a finite number that is not negative"


def _fits(position: int) -> bool:
    return -(2**63) <= position < 2**63


def beside(path: Path, suffix: str) -> Path | None:
    """The side file of a text, where there is one."""
    candidates = [path.with_name(path.name + suffix), plain_name(path).with_name(plain_name(path).name + suffix)]
    return next((side for side in candidates if side.is_file()), None)


def _numbers(
    side: Path, convert: Callable[[bytes], Any], dtype: type, expected: str, allowed: Callable[[Any], bool]
) -> npt.NDArray[Any]:
    """One number from each line that is not blank."""
    source = open_bytes(side)
    values = []
    for number, line in enumerate(source.bytes(source.start, source.size).splitlines(), 1):
        if not (token := line.strip()):
            continue
        try:
            value = convert(token)
        except ValueError:
            value = None
        if value is None or b"_" in token or not allowed(value):
            shown = token[:24].decode("utf-8", "replace")
            raise FormatError(f"Expected {expected}; found {shown!r}.", path=side, line=number)
        values.append(value)
    try:
        return np.array(values, dtype=dtype)
    except OverflowError:
        raise FormatError(f"Expected {expected}; a number is far too large.", path=side) from None
