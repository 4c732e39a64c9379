"""Errors advise keywords of Python; who types a command has options. The one place where the one becomes the other."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from toprank.errors import ToprankError, UnknownNameError

__all__ = ["as_options", "speaking_of_options"]

_READING = ("label", "qid", "document_id", "features", "missing", "layout", "regroup", "cache", "verify")
"""Keywords of `toprank.read` that are options wherever data are read."""
_KEYWORD = re.compile(r"(?:(?<=\s)|(?<=\s\())([a-z_]+)=('[^'\n]*'|\[\.\.\.\]|\w*)(?=[\s,.;:)]|$)")
_VALUES = {"True": "", "False": "''", "'...'": "COLUMN", "[...]": "A,B,...", "": ""}
_PHRASES = (
    # what is said to who calls from Python; to who types a command that has no such option
    ("n_features", "features asked for; raise n_features", "features of the training data"),
    ("n_features", "Read the file with n_features= of the training data [^.]*[.]", "They must be the same."),
    ("dtype", "read with dtype=float64", "bring it into a stored copy with toprank convert --dtype float64"),
    ("format", r"give format= as one of [\w, ]+", "name it .txt, .csv … or use toprank convert --from"),
    ("k", "lower k[.]", "lower --folds."),
    ("document_ids", "Give document_ids,", "Name the column of a table that holds them with --document-id,"),
    ("", r"raise n_features", "raise --n-features"),
    ("", r"Hold some queries back: train, valid = tr\.split\(data\)\.", "Hold some queries back."),
    ("", r"for LETOR folds use folds\(\)", "folders with LETOR folds are for toprank cv"),
    (
        "",
        r"give space=, for example \{.*\}\.",
        "give --space, for example --space l2=0.1,1 or --space l2=0.0001:1:log.",
    ),
    ("", r"space=\{'([\w.]+)': \[\.\.\.\]\}", r"--space \1=a,b,c"),
    ("", r'tr\.systems\.make\("cs-RgList"\)\.fit\(data\)', "--system cs-RgList"),
)


def as_options(message: str, known: Collection[str] = ()) -> str:
    """A message about keywords, as one about options.

    Args:
        message: what a function says to who called it from Python.
        known: further keywords that the command has as options.

    >>> as_options("Give label='...', or label=False for unjudged documents; or read with regroup=True.")
    "Give --label COLUMN, or --label '' for unjudged documents; or read with --regroup."
    >>> as_options("Say what they mean: unjudged='irrelevant'.", ["unjudged"])
    'Say what they mean: --unjudged irrelevant.'
    """
    for keyword, theirs, ours in _PHRASES:
        if keyword not in known:
            message = re.sub(theirs, ours, message)

    def option(found: re.Match[str]) -> str:
        name, value = found.groups()
        if name not in _READING and name not in known:
            return found[0]
        return f"--{name.replace('_', '-')} {_VALUES.get(value, value.strip(chr(39)))}".rstrip()

    return _KEYWORD.sub(option, message)


@contextmanager
def speaking_of_options(known: Collection[str]) -> Iterator[None]:
    """Let errors that leave this block speak of the options of a command.

    Args:
        known: the names of its parameters.
    """
    try:
        yield
    except UnknownNameError as problem:
        if problem.kind.startswith("option for reading "):
            problem.args = (_useless(problem),)
        raise
    except ToprankError as problem:
        problem.args = (as_options(str(problem), known),)
        raise


def _useless(problem: UnknownNameError) -> str:
    """That an option has no meaning for a format."""
    option = f"--{problem.name.replace('_', '-')}"
    kind = problem.kind.removeprefix("option for reading ")
    columns = problem.name in ("label", "qid", "document_id", "features")
    what = "names a column of a table (Parquet, Arrow or CSV)" if columns else "is not for this kind of file"
    return f"{option} {what}, but these data are of the format {kind}; leave it out."
