"""Relevance judgments from TREC qrels, BEIR tables, and the files of Cranfield, CISI and MED.

| layout | lines | grades |
|---|---|---|
| TREC | ``query iteration document grade`` | unchanged |
| BEIR | ``query-id ⇥ corpus-id ⇥ score``, with a header | unchanged |
| Cranfield | ``query document code`` | binary: 1 (complete answer) to 4 (minimum interest) and −1 are relevant |
| SMART | ``query document 0 0.000000`` | all are relevant |

Cranfield judgments number the queries consecutively (1, 2, 3 …), although the query file has other ids (1, 2, 4, 8 …).
The undocumented code −1 marks the paper that a question was taken from. It counts as relevant, as in the uncoded
judgments of the same collection.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from toprank.data.bytesource import is_float, open_bytes, plain_name
from toprank.data.trec import Qrels
from toprank.data.trec.tables import RepeatedPairError
from toprank.errors import DataError, FormatError
from toprank.search.collections.collection import QUERY_NAMES, Topics, preview, qrels_of_rows

_CRANFIELD = (
    "Grades are binary: Cranfield codes 1 (complete answer) to 4 (minimum interest) and −1 (source of the question) "
    "are relevant, code 5 (no interest) is not."
)
_NO_INTEREST = 5  # Cranfield code
_Row = tuple[int, list[str]]


def read_judgments(path: str | os.PathLike[str], topics: Topics | None = None) -> tuple[Qrels, tuple[str, ...]]:
    """Read judgments; return them with notes. If `topics` are given, query ids are mapped to theirs.

    Raises:
        FormatError: if the file has no supported layout.
        DataError: if no judged query is among the topics.
    """
    file = Path(path)
    rows, header = _rows(file)
    notes: list[str] = []
    counted = False
    widths = {len(words) for _, words in rows}
    if len(widths) != 1 or not widths <= {3, 4}:
        line, words = next(row for row in rows if len(row[1]) not in (3, 4) or len(row[1]) != len(rows[0][1]))
        expected = "'query iteration document grade', 'query document grade' with tabs, or the Cranfield layout"
        raise FormatError(f"Expected {expected}, but found {len(words)} columns.", path=file, line=line)
    if widths == {3}:
        judged, counted = _three_columns(file, rows, header, notes)
    elif all(words[2] == "0" and is_float(words[3]) and float(words[3]) == 0 for _, words in rows):
        judged = [(words[0], words[1], 1.0) for _, words in rows]
        notes.append("Grades are binary, since this layout lists only relevant documents.")
    else:
        judged = [(words[0], words[2], _grade(file, line, words[3])) for line, words in rows]
    if topics is not None:
        judged = _by_id(judged, topics, counted, notes, file)
    judged = list(dict.fromkeys(judged))  # CISI repeats a judgment
    try:
        return qrels_of_rows(judged), tuple(notes)
    except RepeatedPairError as twice:
        raise FormatError(twice.problem, path=file) from None


def _rows(path: Path) -> tuple[list[_Row], bool]:
    """Return the columns of every line, and whether the file has a header."""
    lines: list[tuple[int, str]] = []
    for number, line in open_bytes(path).lines():
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError:
            raise FormatError("The judgments are not UTF-8 text.", path=path, line=number) from None
        if text.strip():
            lines.append((number, text))
    header = bool(lines) and any(_is_header(cut(lines[0][1])) for cut in (str.split, _at_tabs))
    if len(lines) == header:
        raise FormatError("The file contains no judgments.", path=path)
    # BEIR ids may contain spaces. Tabs alone do not identify BEIR, since CISI mixes tabs and spaces.
    cuts = (_at_tabs, str.split) if header or _is_table(path) else (str.split, _at_tabs)
    rows = [[(number, cut(text)) for number, text in lines[header:]] for cut in cuts]
    return next((cut for cut in rows if {len(words) for _, words in cut} in ({3}, {4})), rows[0]), header


def _at_tabs(line: str) -> list[str]:
    return [word.strip() for word in line.split("\t")]


def _is_table(path: Path) -> bool:
    """Return whether the file name ends in .tsv, as in BEIR."""
    return plain_name(path).suffix.lower() == ".tsv"


def _is_header(words: list[str]) -> bool:
    """Return whether a line is a header: its grade column is not a number."""
    if len(words) not in (3, 4) or is_float(words[-1]):
        return False
    return len(words) == 3 or words[0].lower() in QUERY_NAMES


def _three_columns(
    path: Path, rows: list[_Row], header: bool, notes: list[str]
) -> tuple[list[tuple[str, str, float]], bool]:
    """Parse BEIR or Cranfield judgments; return them, and whether queries are numbered consecutively."""
    graded = [(words[0], words[1], _grade(path, line, words[2])) for line, words in rows]
    codes = {grade for _, _, grade in graded}
    if header or _is_table(path) or not codes <= {-1.0, 1.0, 2.0, 3.0, 4.0, 5.0}:
        return graded, False
    notes.append(_CRANFIELD)
    return [(query, document, float(code < _NO_INTEREST)) for query, document, code in graded], True


def _grade(path: Path, line: int, word: str) -> float:
    if not is_float(word):
        raise FormatError(f"Expected a number as grade, but found {word[:24]!r}.", path=path, line=line)
    return float(word)


def _by_id(
    judged: list[tuple[str, str, float]], topics: Topics, counted: bool, notes: list[str], path: Path
) -> list[tuple[str, str, float]]:
    """Map the query ids of judgments, which may be ordinals or spelled differently, to the ids of `topics`."""
    judged = _spelled(judged, topics.ids)
    queries, ids = {query for query, _, _ in judged}, set(topics.ids)
    ordinal = _are_ordinals(queries, topics.ids)
    if ordinal and (counted or not queries <= ids):
        notes.append(
            f"The judgments refer to queries by their ordinal numbers 1 to {len(topics):,} instead of their ids "
            f"({preview(topics.ids)})."
        )
        return [(topics.ids[int(query) - 1], document, grade) for query, document, grade in judged]
    if counted and not queries <= ids:
        raise DataError(
            f"{path} refers to query number {max(map(int, filter(str.isdigit, queries)), default=0):,}, but there are "
            f"only {len(topics):,} queries. Pass the complete query file."
        )
    if not queries & ids:
        raise DataError(
            f"No query has judgments. {path} contains the ids {preview(sorted(queries))}, the queries have "
            f"{preview(topics.ids)}. Check that both use the same ids."
        )
    return judged


def _spelled(judged: list[tuple[str, str, float]], ids: Sequence[str]) -> list[tuple[str, str, float]]:
    """Match query ids that differ only in leading zeros."""
    known = set(ids)
    plain = {name.lstrip("0"): name for name in ids if name.isdecimal()}
    if len(plain) < sum(map(str.isdecimal, ids)):
        return judged
    return [
        (plain.get(query.lstrip("0"), query) if query not in known else query, document, grade)
        for query, document, grade in judged
    ]


def _are_ordinals(queries: set[str], ids: Sequence[str]) -> bool:
    """Return whether the judgments can refer to queries by ordinal number, while their ids are other numbers."""
    numbers = all(name.isdecimal() for name in (*queries, *ids))
    own = [str(place) for place in range(1, len(ids) + 1)]
    return numbers and list(ids) != own and max(map(int, ids)) > len(ids) and queries <= set(own)
