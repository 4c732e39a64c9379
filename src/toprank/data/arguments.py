"""What callers give besides arrays (numbers, yes or no, data), refused in a sentence where it is something else."""

from __future__ import annotations

import math
from abc import ABCMeta
from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from toprank.data.dataset import RankingData
from toprank.errors import DataError

__all__ = [
    "PlainArguments",
    "check_data",
    "check_flag",
    "check_number",
    "check_whole",
    "is_whole",
    "listed_paths",
    "plainer",
]


def plainer(value: Any) -> Any:
    """NumPy's numbers as Python's, in lists and tuples too; anything else as it is.

    >>> plainer((np.int64(3), np.bool_(False), "a"))
    (3, False, 'a')
    """
    if isinstance(value, np.generic):
        return value.item()
    if type(value) in (list, tuple):
        return type(value)(plainer(item) for item in value)
    return value


class PlainArguments(ABCMeta):
    """Of classes whose values are their arguments: made from `plainer` ones, their repr reads back and JSON has it."""

    def __call__(cls, *arguments: Any, **named: Any) -> Any:
        """Make a value."""
        plain = {name: plainer(value) for name, value in named.items()}
        return super().__call__(*(plainer(value) for value in arguments), **plain)


def is_whole(value: Any, least: int, below: int | None = None) -> bool:
    """Whether the value is a whole number in that range; True and False are none."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return bool(whole and least <= value and (below is None or value < below))


def check_whole(name: str, value: Any, least: int, below: int | None = None) -> None:
    """Refuse what is no whole number of at least `least` (and, where that is given, below `below`).

    >>> check_whole("k", 2.5, 1)
    Traceback (most recent call last):
    toprank.errors.DataError: k must be a whole number of at least 1, not 2.5.
    """
    if not is_whole(value, least, below):
        end = "" if below is None or not is_whole(value, below) else f" and below {below}"
        raise DataError(f"{name} must be a whole number of at least {least}{end}, not {value!r}.")


def check_number(
    name: str,
    value: Any,
    *,
    above: float | None = None,
    least: float | None = None,
    below: float | None = None,
    most: float | None = None,
) -> None:
    """Refuse what is no finite number between these bounds; `above` and `below` are not reached themselves.

    >>> check_number("l2", "a", least=0)
    Traceback (most recent call last):
    toprank.errors.DataError: l2 must be a number of at least 0, not 'a'.
    """
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
    raise DataError(f"{name} must be a {wanted}, not {value!r}.")


def check_flag(name: str, value: Any) -> None:
    """Refuse what is neither True nor False.

    >>> check_flag("scale", "no")
    Traceback (most recent call last):
    toprank.errors.DataError: scale must be True or False, not 'no'.
    """
    if not isinstance(value, bool | np.bool_):
        raise DataError(f"{name} must be True or False, not {value!r}.")


def check_data(what: str, given: Any) -> None:
    """Refuse what is no `RankingData`, and say how to make one of it; `what` is the function that asks.

    >>> check_data("split", "train.txt")
    Traceback (most recent call last):
    toprank.errors.DataError: split needs a RankingData, not a str. Read the file first: tr.read('train.txt').
    """
    if isinstance(given, RankingData):
        return
    if isinstance(given, str | PathLike):
        remedy = f"Read the file first: tr.read({str(given)!r})."
    elif hasattr(given, "columns"):
        remedy = "Make one of the frame first: tr.RankingData.from_frame(frame)."
    else:
        remedy = "Make one first: tr.RankingData(X, y, qid=qid)."
    raise DataError(f"{what} needs a RankingData, not a {type(given).__name__}. {remedy}")


def listed_paths(given: Any) -> list[Path]:
    """One path or several, as a list.

    >>> listed_paths(None)
    Traceback (most recent call last):
    toprank.errors.DataError: Files are named by a path, such as 'train.txt', or a list of paths, not by None.
    """
    several = [given] if isinstance(given, str | PathLike) or not isinstance(given, Iterable) else list(given)
    if not all(isinstance(path, str | PathLike) for path in several):
        raise DataError(f"Files are named by a path, such as 'train.txt', or a list of paths, not by {given!r}.")
    return [Path(path) for path in several]
