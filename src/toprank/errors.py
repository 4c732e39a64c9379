"""What can go wrong, as exceptions whose messages are sentences with a remedy.

`ToprankError` is the root, so one `except` clause catches everything we raise on purpose. Its kinds also derive from
the built-in exception that a Python programmer would expect (`ValueError`, `OSError`).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from os import PathLike
from typing import Any

from toprank.importing import first_use

__all__ = [
    "ClusterError",
    "DataError",
    "FileError",
    "FormatError",
    "MissingExtraError",
    "ToprankError",
    "UnknownNameError",
    "nearest",
    "needs",
]


class ToprankError(Exception):
    """Root of every error that toprank raises on purpose."""


class DataError(ToprankError, ValueError):
    """Arrays, frames or options that contradict each other or cannot be ranked."""


class FileError(ToprankError, OSError):
    """A file that cannot be opened, read, or written."""

    def __str__(self) -> str:  # OSError would print the arguments as a tuple
        return str(self.args[0]) if self.args else ""


class FormatError(DataError):
    """A file whose content is not what its format promises.

    The message reads ``file:line:column: what is wrong``; the parts stay available as attributes.
    """

    def __init__(
        self,
        problem: str,
        *,
        path: str | PathLike[str] | None = None,
        line: int | None = None,
        column: int | None = None,
    ) -> None:
        self.problem, self.path, self.line, self.column = problem, path, line, column
        place = ":".join(str(part) for part in (path, line, column) if part is not None)
        super().__init__(f"{place}: {problem}" if place else problem)


class ClusterError(ToprankError, RuntimeError):
    """The cluster failed, not the data: nothing answers, or workers die again and again."""


class UnknownNameError(ToprankError, ValueError):
    """A name (metric, convention, option …) that does not exist; the message offers the nearest one that does."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        self.kind, self.name, self.known = kind, name, tuple(known)
        close = nearest(name, self.known)
        hint = f"did you mean '{close}'?" if close else f"known: {', '.join(self.known)}."
        super().__init__(f"There is no {kind} called '{name}'; {hint}")


class MissingExtraError(ToprankError, ImportError):
    """Something needs a package that comes with an extra; the message says how to install it."""


def needs(module: str, extra: str, what: str) -> Any:
    """The module, imported; where it is not installed, a sentence that names the extra.

    >>> needs("math", "neural", "This").pi > 3
    True
    """
    try:
        return first_use(module)
    except ModuleNotFoundError as problem:
        if problem.name is None or problem.name.split(".")[0] != module.split(".")[0]:
            raise
        raise MissingExtraError(
            f"{what} needs {module}, which is not installed: pip install 'toprank[{extra}]'."
        ) from None


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name most like `name`, or None when nothing is alike.

    >>> nearest("ncdg@10", ["ndcg@10", "map"])
    'ndcg@10'
    """
    by_lower = {candidate.lower(): candidate for candidate in known}
    matches = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[matches[0]] if matches else None
