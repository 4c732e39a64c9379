"""Validation of single arguments: integers, numbers in a range, flags, callbacks."""

from __future__ import annotations

import math
from abc import ABCMeta
from collections.abc import Sequence
from typing import Any

import numpy as np

from toprank.errors import DataError, Remedy


def to_plain(value: Any) -> Any:
    """Convert NumPy scalars to Python scalars, and lists and arrays to tuples, which can be compared and hashed.

    >>> to_plain((np.int64(3), np.bool_(False), "a")), to_plain([0, np.array([1.0, 3.0])])
    ((3, False, 'a'), (0, (1.0, 3.0)))
    """
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if type(value) in (list, tuple):
        return tuple(to_plain(item) for item in value)
    return value


class PlainArguments(ABCMeta):
    """Metaclass that passes constructor arguments through `to_plain`, so that instances can be compared, hashed and
    rebuilt from their repr. Subclasses outside toprank get their arguments unchanged, since they may need arrays.
    """

    def __call__(cls, *arguments: Any, **named: Any) -> Any:
        """Create an instance."""
        if not cls.__module__.startswith("toprank."):
            return super().__call__(*arguments, **named)
        plain = {name: to_plain(value) for name, value in named.items()}
        return super().__call__(*(to_plain(value) for value in arguments), **plain)


def is_whole(value: Any, least: int, below: int | None = None) -> bool:
    """Return whether the value is an integer, but not a boolean, in this range."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return bool(whole and least <= value and (below is None or value < below))


def invalid_argument(name: str, value: Any, wanted: str) -> DataError:
    """Return the error for an invalid argument; on the command line, the message names the option instead."""
    rest = f"must be {wanted}, not {value!r}."
    plain = f"{name} {rest}"
    return DataError(remedy=Remedy(plain, f"{{{name}}} {rest}", plain, **{name: ...}))


def check_whole(name: str, value: Any, least: int, below: int | None = None) -> None:
    """Raise an error if the value is not an integer of at least `least` and, if given, below `below`."""
    if not is_whole(value, least, below):
        end = "" if below is None or not is_whole(value, below) else f" and below {below}"
        raise invalid_argument(name, value, f"a whole number of at least {least}{end}")


def check_number(
    name: str,
    value: Any,
    *,
    above: float | None = None,
    least: float | None = None,
    below: float | None = None,
    most: float | None = None,
) -> None:
    """Raise an error if the value is not a finite number within the bounds; `above` and `below` are exclusive."""
    plain = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if (
        plain
        and math.isfinite(value)
        and (above is None or value > above)
        and (least is None or value >= least)
        and (below is None or value < below)
        and (most is None or value <= most)
    ):
        return
    bounds = (("above", above), ("of at least", least), ("below", below), ("at most", most))
    words = " and ".join(f"{word} {bound:g}" for word, bound in bounds if bound is not None)
    wanted = {"": "finite number", "above 0": "positive number"}.get(words, f"number {words}")
    raise invalid_argument(name, value, f"a {wanted}")


def check_flag(name: str, value: Any) -> None:
    """Raise an error if the value is not a boolean."""
    if not isinstance(value, bool | np.bool_):
        raise invalid_argument(name, value, "True or False")


def check_callbacks(callbacks: Any, seen: str) -> None:
    """Raise an error if `callbacks` is not a list of functions; `seen` names their argument, such as "a Round"."""
    if not isinstance(callbacks, Sequence) or isinstance(callbacks, str):
        raise DataError(f"callbacks must be a list of functions, each called with {seen}.")
    for callback in callbacks:
        if not callable(callback):
            raise DataError(f"{callback!r} cannot be called; callbacks must be functions, each called with {seen}.")
