"""Exceptions and warnings whose messages state the problem and a remedy.

`ToprankError` is the base class of all errors that toprank raises deliberately. Its subclasses also derive from the
built-in exception for their kind of problem, such as `ValueError` or `OSError`.
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

_MAX_MATCHES = 3  # similar names that are examined
_MAX_NAME_LENGTH = 200  # longer names are not typos, and comparing them would be slow
__all__ = [
    "ClusterError", "DataError", "FileError", "FormatError", "MissingExtraError", "Remedy", "ToprankError",
    "UnknownNameError", "closest_match", "held_warnings", "refuse_if", "require_extra", "warn_user",
]  # fmt: skip


class Remedy(str):
    """Remedy of a problem, worded for Python, whose arguments the command line can reword as options.

    Args:
        *ways: alternative texts with `{name}` for an argument. Python shows the first. A command shows the first one
            whose arguments (at least one) are all options of the command, otherwise the last.
        **arguments: value of each argument; `...` if the reader has to choose it.

    >>> Remedy("read with {dtype}.", "convert it first.", dtype="float64")
    "read with dtype='float64'."
    """

    parts: tuple[str, ...]
    ways: tuple[str, ...]
    arguments: dict[str, Any]

    def __new__(cls, *ways: str, **arguments: Any) -> Remedy:
        """Create the text for Python; keep the alternatives and arguments as attributes."""
        text = ways[0]
        for name, value in arguments.items():  # not str.format, since user texts may contain braces
            written = "" if value is ... else repr(value).replace("Ellipsis", "...")
            text = text.replace(f"{{{name}}}", f"{name}={written}")
        remedy = super().__new__(cls, text)
        remedy.parts, remedy.ways, remedy.arguments = (), ways, arguments
        return remedy


def count_of(n: int, noun: str) -> str:
    """Format a count with its noun in singular or plural.

    >>> count_of(1, "query"), count_of(1200, "judged query"), count_of(2, "loss"), count_of(0, "row")
    ('1 query', '1,200 judged queries', '2 losses', '0 rows')
    """
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{n:,} {noun if n == 1 else plural}"


def first_of(words: Sequence[str], most: int) -> str:
    """Join the first words of a list, and add the number of the remaining ones.

    >>> first_of(["a", "b"], 2), first_of(["a", "b", "c"], 2)
    ('a, b', 'a, b and 1 more')
    """
    others = len(words) - most
    return ", ".join(words[:most]) + (f" and {others:,} more" if others > 0 else "")


def join_parts(*parts: str) -> str:
    """Join parts of a text with spaces; if one of them is a `Remedy`, the result is a `Remedy` that keeps them.

    >>> join_parts("It is too large;", Remedy("read with {dtype}.", dtype="float64"))
    "It is too large; read with dtype='float64'."
    """
    text = " ".join(filter(None, parts))
    if any(isinstance(part, Remedy) for part in parts):
        text = Remedy(text)
        text.parts = parts
    return text


def reword(sentence: str, spelled: Callable[[str, Any], str], takes: Callable[[str], bool]) -> str:
    """Reword a sentence for users of another interface than Python, such as the command line.

    Args:
        sentence: text to reword; unchanged unless it is a `Remedy` or contains one.
        spelled: function that formats an argument and its value for the interface.
        takes: function that returns whether the interface has such an argument.

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
    """Base class of all errors that toprank raises deliberately.

    Args:
        problem: the problem, as a sentence.
        remedy: the remedy; a `Remedy` if Python and the command line need different words.
    """

    def __init__(self, problem: str = "", *, remedy: str = "") -> None:
        super().__init__(join_parts(problem, remedy))

    def __reduce__(self) -> tuple[Any, ...]:  # pickle passes only the message, which some subclasses do not accept
        return _rebuilt, (type(self), self.args, vars(self))


def _rebuilt(kind: type[ToprankError], args: tuple[Any, ...], attributes: dict[str, Any]) -> ToprankError:
    """Rebuild an unpickled error with its attributes."""
    error = kind.__new__(kind)
    error.args = args
    vars(error).update(attributes)
    return error


class DataError(ToprankError, ValueError):
    """Invalid or inconsistent data or options."""


def refuse_if(wrong: Any, problem: str) -> None:
    """Raise a `DataError` if a condition is true; for code that checks many conditions.

    The message is evaluated even if no error is raised.
    """
    if wrong:
        raise DataError(problem)


class FileError(ToprankError, OSError):
    """A file that cannot be opened, read or written."""

    def __str__(self) -> str:  # OSError formats its arguments as a tuple
        return str(self.args[0]) if self.args else ""


class FormatError(DataError):
    """A file with invalid content for its format.

    The message has the form ``file:line:column: problem``; the parts are available as attributes.
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
    """A failure of the cluster, such as an unreachable scheduler or repeatedly lost workers."""


class UnknownNameError(ToprankError, ValueError):
    """An unknown name of a metric, convention, option etc.; the message suggests the closest known name."""

    def __init__(self, kind: str, name: Any, known: Iterable[str], *, command: Remedy | None = None) -> None:
        self.kind, self.name, self.known = kind, str(name), tuple(known)  # the name may have any type
        close = closest_match(self.name, self.known)
        every = f"known: {', '.join(self.known)}." if self.known else "there is none."
        hint = f"did you mean '{close}'?" if close else every
        sentence = f"There is no {kind} called '{name}'; {hint}"
        super().__init__(Remedy(sentence, *command.ways, **command.arguments) if command else sentence)


class MissingExtraError(ToprankError, ImportError):
    """A package of an optional extra is not installed; the message names the extra to install."""


_BETWEEN = ("toprank", "sklearn", "joblib", "lightgbm", "optuna", "torch", "contextlib", "concurrent", "threading")
"""Packages that `warn_user` skips in the stack: toprank, and libraries that call it for the user's code."""


def warn_user(message: str | Warning, category: type[Warning] = UserWarning) -> None:
    """Issue a warning that points at the user's code: the innermost frame outside the packages in `_BETWEEN`."""
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
    """Collector of a `held_warnings` block, linked to the enclosing one."""

    categories: tuple[type[Warning], ...]
    warnings: list[warnings.WarningMessage]
    outer: _Holder | None


_HOLDER: ContextVar[_Holder | None] = ContextVar("toprank_warning_holder", default=None)


@contextmanager
def held_warnings(*categories: type[Warning]) -> Iterator[list[warnings.WarningMessage]]:
    """Collect toprank's warnings of these categories instead of showing them; all categories by default.

    The block applies to this thread and to threads started by `compute.each_block`. Unlike `warnings.catch_warnings`,
    it does not change the filters of the process, which is not safe if several threads train at the same time.
    """
    with holding_for(_Holder(categories or (Warning,), [], _HOLDER.get())) as holder:
        assert holder is not None
        yield holder.warnings


def holder_of_warnings() -> _Holder | None:
    """Return the collector of the innermost enclosing `held_warnings` block, or None."""
    return _HOLDER.get()


@contextmanager
def holding_for(holder: _Holder | None) -> Iterator[_Holder | None]:
    """Collect this thread's warnings in a collector of another thread."""
    token = _HOLDER.set(holder)
    try:
        yield holder
    finally:
        _HOLDER.reset(token)


def require_extra(module: str, extra: str, subject: str) -> Any:
    """Import a module, or raise an error that names the extra to install.

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
    """Return the known name closest to `name`, or None if no name is similar.

    A similar name starts with `name`, or has an edit distance (with transpositions) of at most a third of its length.

    >>> closest_match("ncdg@10", ["ndcg@10", "map"]), closest_match("bpref", ["prec", "map"])
    ('ndcg@10', None)
    """
    if len(name) > _MAX_NAME_LENGTH:
        return None
    lowered = name.lower()
    by_lower = {candidate.lower(): candidate for candidate in known}
    matches = difflib.get_close_matches(lowered, by_lower, n=_MAX_MATCHES, cutoff=0.6)
    slips = max(1, len(name) // 3)
    close = (match for match in matches if match.startswith(lowered) or _edit_distance(lowered, match) <= slips)
    return next((by_lower[match] for match in close), None)


def _edit_distance(a: str, b: str) -> int:
    """Return the edit distance with transpositions of neighbors (optimal string alignment).

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
    """Return the error for a file that was truncated while it was read."""
    return FileError(f"{fspath(path)} became shorter while it was read. Read it again after all writers have finished.")
