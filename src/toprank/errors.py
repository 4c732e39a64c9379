"""What can go wrong, as exceptions whose messages are sentences with a remedy.

`ToprankError` is the root, so one `except` clause catches everything we raise on purpose. Its kinds also derive from
the built-in exception that a Python programmer would expect (`ValueError`, `OSError`).
"""

from __future__ import annotations

import difflib
import sys
import warnings
from collections.abc import Callable, Iterable
from os import PathLike
from typing import Any

from toprank.importing import first_use

_LONGEST = 200  # characters; a longer name is no typo of a known one, and would take long to compare

__all__ = [
    "ClusterError", "DataError", "FileError", "FormatError", "MissingExtraError", "Remedy", "ToprankError",
    "UnknownNameError", "joined", "nearest", "needs", "retold",
    "warn_user",
]  # fmt: skip


class Remedy(str):
    """What to do, worded for a call in Python; the arguments it names stay data, so that `cli` can spell options.

    Args:
        ways: what to do, with `{name}` for an argument. Python shows the first. A command shows the first whose
            arguments are all options of its own (and that names any), or else the last.
        arguments: the value of each argument; `...` for one that the reader has to choose.

    >>> Remedy("read with {dtype}.", "convert it first.", dtype="float64")
    "read with dtype='float64'."
    """

    parts: tuple[str, ...]
    ways: tuple[str, ...]
    arguments: dict[str, Any]

    def __new__(cls, *ways: str, **arguments: Any) -> Remedy:
        """The text for Python, with its ways and arguments as attributes."""
        text = ways[0]
        for name, value in arguments.items():  # no str.format: texts of users may hold braces
            written = "" if value is ... else repr(value).replace("Ellipsis", "...")
            text = text.replace(f"{{{name}}}", f"{name}={written}")
        remedy = super().__new__(cls, text)
        remedy.parts, remedy.ways, remedy.arguments = (), ways, arguments
        return remedy


def count_of(n: int, noun: str) -> str:
    """A number of things in words.

    >>> count_of(1, "query"), count_of(1200, "judged query"), count_of(2, "loss"), count_of(0, "row")
    ('1 query', '1,200 judged queries', '2 losses', '0 rows')
    """
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{n:,} {noun if n == 1 else plural}"


def joined(*parts: str) -> str:
    """Join parts of a text by blanks; if one of them is a `Remedy`, so is the result, which keeps the parts.

    >>> joined("It is too large;", Remedy("read with {dtype}.", dtype="float64"))
    "It is too large; read with dtype='float64'."
    """
    text = " ".join(filter(None, parts))
    if any(isinstance(part, Remedy) for part in parts):
        text = Remedy(text)
        text.parts = parts
    return text


def retold(sentence: str, spelled: Callable[[str, Any], str], takes: Callable[[str], bool]) -> str:
    """Reword a sentence for somebody who does not call Python, such as the user of a command.

    Args:
        sentence: a text; it stays as it is unless it is a `Remedy` or has one among its parts.
        spelled: returns an argument and its value as they are written there.
        takes: whether there is such an argument there.

    >>> retold(Remedy("lower {k}.", "ask for fewer.", k=...), lambda name, value: f"-{name}", lambda name: name == "k")
    'lower -k.'
    """
    if not isinstance(sentence, Remedy):
        return sentence
    if sentence.parts:
        return " ".join(filter(None, (retold(part, spelled, takes) for part in sentence.parts)))
    named = ([name for name in sentence.arguments if f"{{{name}}}" in way] for way in sentence.ways)
    fits = (way for way, names in zip(sentence.ways, named, strict=True) if names and all(map(takes, names)))
    text = next(fits, sentence.ways[-1])
    for name, value in sentence.arguments.items():
        text = text.replace(f"{{{name}}}", spelled(name, value))
    return text


class ToprankError(Exception):
    """Root of every error that toprank raises on purpose.

    Args:
        problem: what is wrong.
        remedy: what to do about it; a `Remedy` if Python and the command line say it differently.
    """

    def __init__(self, problem: str = "", *, remedy: str = "") -> None:
        super().__init__(joined(problem, remedy))

    def __reduce__(self) -> tuple[Any, ...]:  # pickle calls the class with the message alone, which some refuse
        return _as_it_was, (type(self), self.args, vars(self))


def _as_it_was(kind: type[ToprankError], args: tuple[Any, ...], attributes: dict[str, Any]) -> ToprankError:
    """Rebuild an error that another process raised."""
    error = kind.__new__(kind)
    error.args = args
    vars(error).update(attributes)
    return error


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
        remedy: str = "",
    ) -> None:
        self.problem, self.path, self.line, self.column = joined(problem, remedy), path, line, column
        place = ":".join(str(part) for part in (path, line, column) if part is not None)
        super().__init__(f"{place}:" if place else "", remedy=self.problem)


class ClusterError(ToprankError, RuntimeError):
    """The cluster failed, not the data: nothing answers, or workers die again and again."""


class UnknownNameError(ToprankError, ValueError):
    """A name (metric, convention, option …) that does not exist; the message offers the nearest one that does."""

    def __init__(self, kind: str, name: Any, known: Iterable[str], *, command: Remedy | None = None) -> None:
        self.kind, self.name, self.known = kind, str(name), tuple(known)  # what stands for a name may be anything
        close = nearest(self.name, self.known)
        every = f"known: {', '.join(self.known)}." if self.known else "there is none."
        hint = f"did you mean '{close}'?" if close else every
        sentence = f"There is no {kind} called '{name}'; {hint}"
        super().__init__(Remedy(sentence, *command.ways, **command.arguments) if command else sentence)


class MissingExtraError(ToprankError, ImportError):
    """A package that comes with an extra is not installed; the message says how to install it."""


_BETWEEN = ("toprank", "sklearn", "joblib", "lightgbm", "optuna", "torch", "contextlib", "concurrent", "threading")
"""Packages whose lines no warning points at: ours, and those that call us on behalf of the user's code."""


def warn_user(message: str | Warning, category: type[Warning] = UserWarning) -> None:
    """Warn at the line that caused it: the nearest on the stack that is neither ours nor of a library in between."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in _BETWEEN:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def needs(module: str, extra: str, subject: str) -> Any:
    """Import a module; if it is not installed, the error names the extra that brings it.

    >>> needs("math", "neural", "This").pi > 3
    True
    """
    try:
        return first_use(module)
    except ModuleNotFoundError as problem:
        if problem.name is None or problem.name.split(".")[0] != module.split(".")[0]:
            raise
        sentence = f"{subject} needs {module}, which is not installed: pip install 'toprank[{extra}]'."
        raise MissingExtraError(sentence) from None


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name most like `name`, or None if none is similar.

    >>> nearest("ncdg@10", ["ndcg@10", "map"])
    'ndcg@10'
    """
    if len(name) > _LONGEST:
        return None
    by_lower = {candidate.lower(): candidate for candidate in known}
    matches = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[matches[0]] if matches else None
