"""How much memory objects hold: Dask decides by it what to move, what to keep, and when a worker is full."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np

__all__ = ["bytes_held"]


def bytes_held(*objects: Any, apart_from: tuple[Any, ...] = ()) -> int:
    """Bytes of the arrays in memory that objects hold, through their attributes and closures, each counted once.

    Args:
        *objects: where to look.
        apart_from: objects that somebody else answers for.
    """
    seen, total, left = {id(one) for one in apart_from}, 0, list(objects)
    while left:
        one = left.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, np.ndarray):
            total += 0 if _is_mapped(one) else one.nbytes
        elif isinstance(one, list | tuple):
            left.extend(one)
        elif getattr(one, "__closure__", None):
            left.extend(cell.cell_contents for cell in one.__closure__)
        elif type(one).__module__.startswith(("toprank.", "scipy.")):
            slots = getattr(type(one), "__slots__", ())
            left.extend(getattr(one, name, None) for name in (*getattr(one, "__dict__", ()), *slots))
    return total


def _is_mapped(array: Any) -> bool:
    while isinstance(array, np.ndarray):
        array = array.base
    return isinstance(array, mmap.mmap)
