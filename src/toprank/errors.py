"""What can go wrong, as exceptions whose messages are sentences with a remedy.

`ToprankError` is the root, so one `except` clause catches everything we raise on purpose. Its kinds also derive from
the built-in exception that a Python programmer would expect (`ValueError`, `OSError`).
"""

from __future__ import annotations

import difflib
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from os import PathLike, fspath
from typing import Any, NamedTuple

from toprank.lazy_imports import first_use

_CANDIDATES = 3  # names that are looked at for a misspelling
_LONGEST = 200  # characters; a longer name is no typo of a known one, and would take long to compare
__all__ = [
    "ClusterError", "DataError", "FileError", "FormatError", "MissingExtraError", "Remedy", "ToprankError",
    "UnknownNameError", "closest_match", "held_warnings", "refuse_if", "require_extra", "warn_user",
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


def first_of(words: Sequence[str], most: int) -> str:
    """Return words for a sentence: the first, and how many more there are.

    >>> first_of(["a", "b"], 2), first_of(["a", "b", "c"], 2)
    ('a, b', 'a, b and 1 more')
    """
    others = len(words) - most
    return ", ".join(words[:most]) + (f" and {others:,} more" if others > 0 else "")


def join_parts(*parts: str) -> str:
    """Join parts of a text by blanks; if one of them is a `Remedy`, so is the result, which keeps the parts.

    >>> join_parts("It is too large;", Remedy("read with {dtype}.", dtype="float64"))
    "It is too large; read with dtype='float64'."
    """
    text = " ".join(filter(None, parts))
    if any(isinstance(part, Remedy) for part in parts):
        text = Remedy(text)
        text.parts = parts
    return text


def reword(sentence: str, spelled: Callable[[str, Any], str], takes: Callable[[str], bool]) -> str:
    """Reword a sentence for somebody who does not call Python, such as the user of a command.

    Args:
        sentence: a text; it stays as it is unless it is a `Remedy` or has one among its parts.
        spelled: returns an argument and its value as they are written there.
        takes: whether there is such an argument there.

    >>> reword(Remedy("lower {k}.", "ask for fewer.", k=...), lambda name, value: f"-{name}", lambda name: name == "k")
    'lower -k.'
    """
    if not isinstance(sentence, Remedy):
        return sentence
    if sentence.parts:
        return " ".join(filter(None, (reword(part, spelled, takes) for part in sentence.parts)))
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
        super().__init__(join_parts(problem, remedy))

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


def refuse_if(wrong: Any, problem: str) -> None:
    """Raise a `DataError` that states the problem if a condition is true.

    For readers of files and other code that checks many conditions. The text of the problem is built in any case.
    """
    if wrong:
        raise DataError(problem)


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
        self.problem, self.path, self.line, self.column = join_parts(problem, remedy), path, line, column
        place = ":".join(str(part) for part in (path, line, column) if part is not None)
        super().__init__(f"{place}:" if place else "", remedy=self.problem)


class ClusterError(ToprankError, RuntimeError):
    """The cluster failed, not the data: nothing answers, or workers die again and again."""


class UnknownNameError(ToprankError, ValueError):
    """A name (metric, convention, option …) that does not exist; the message offers the nearest one that does."""

    def __init__(self, kind: str, name: Any, known: Iterable[str], *, command: Remedy | None = None) -> None:
        self.kind, self.name, self.known = kind, str(name), tuple(known)  # what stands for a name may be anything
        close = closest_match(self.name, self.known)
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
    warning = message if isinstance(message, Warning) else category(message)
    holder = _HOLDER.get()
    while holder is not None:
        if isinstance(warning, holder.categories):
            found = warnings.WarningMessage(warning, type(warning), frame.f_code.co_filename, frame.f_lineno)
            holder.warnings.append(found)
            return
        holder = holder.outer
    warnings.warn(warning, stacklevel=level)


class _Holder(NamedTuple):
    """A block of `held_warnings`, and the one around it."""

    categories: tuple[type[Warning], ...]
    warnings: list[warnings.WarningMessage]
    outer: _Holder | None


_HOLDER: ContextVar[_Holder | None] = ContextVar("toprank_warning_holder", default=None)


@contextmanager
def held_warnings(*categories: type[Warning]) -> Iterator[list[warnings.WarningMessage]]:
    """Collect our own warnings of these categories instead of showing them; all of ours if no category is given.

    The block holds those of this thread and of the threads that run its blocks (`compute.each_block`). Unlike
    `warnings.catch_warnings` it changes no filter of the process: several threads may train at a time, and filters that
    are restored in another order than they were saved stay changed.
    """
    with holding_for(_Holder(categories or (Warning,), [], _HOLDER.get())) as holder:
        assert holder is not None
        yield holder.warnings


def holder_of_warnings() -> _Holder | None:
    """Return the innermost block of `held_warnings` around the caller, or None."""
    return _HOLDER.get()


@contextmanager
def holding_for(holder: _Holder | None) -> Iterator[_Holder | None]:
    """Let this thread's warnings be held by a block of another thread."""
    token = _HOLDER.set(holder)
    try:
        yield holder
    finally:
        _HOLDER.reset(token)


def require_extra(module: str, extra: str, subject: str) -> Any:
    """Import a module; if it is not installed, the error names the extra that brings it.

    >>> require_extra("math", "neural", "This").pi > 3
    True
    """
    try:
        return first_use(module)
    except ModuleNotFoundError as problem:
        if problem.name is None or problem.name.split(".")[0] != module.split(".")[0]:
            raise
        sentence = f"{subject} needs {module}, which is not installed: pip install 'toprank[{extra}]'."
        raise MissingExtraError(sentence) from None


def closest_match(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that `name` is most likely a misspelling of, or None if there is none.

    A misspelling differs by at most one slip in three letters (a letter too many, too few or wrong, or two letters
    exchanged), or is the beginning of the name.

    >>> closest_match("ncdg@10", ["ndcg@10", "map"]), closest_match("bpref", ["prec", "map"])
    ('ndcg@10', None)
    """
    if len(name) > _LONGEST:
        return None
    lowered = name.lower()
    by_lower = {candidate.lower(): candidate for candidate in known}
    matches = difflib.get_close_matches(lowered, by_lower, n=_CANDIDATES, cutoff=0.6)
    slips = max(1, len(name) // 3)
    close = (match for match in matches if match.startswith(lowered) or _edit_distance(lowered, match) <= slips)
    return next((by_lower[match] for match in close), None)


def _edit_distance(a: str, b: str) -> int:
    """Return how many letters must be inserted, deleted, replaced or exchanged with the next to turn `a` into `b`.

    >>> _edit_distance("ncdg", "ndcg"), _edit_distance("bpref", "prec")
    (1, 2)
    """
    before, row = list[int](), list(range(len(b) + 1))
    for i, letter in enumerate(a):
        before, above, row = row, before, [i + 1]
        for j, other in enumerate(b):
            steps = [before[j + 1] + 1, row[j] + 1, before[j] + (letter != other)]
            if i and j and letter == b[j - 1] and a[i - 1] == other:
                steps.append(above[j - 1] + 1)
            row.append(min(steps))
    return row[-1]


def became_shorter(path: str | PathLike[str]) -> FileError:
    """The error for a source that lost bytes while it was read."""
    return FileError(f"{fspath(path)} became shorter while it was read. Read it again when nothing writes to it.")
