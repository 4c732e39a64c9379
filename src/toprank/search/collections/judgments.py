"""Judgments from files: TREC qrels, BEIR's tables, and the files of Cranfield, CISI and MED with their traps.

| layout | lines | grades |
|---|---|---|
| TREC | ``query iteration document grade`` | as they are |
| BEIR | ``query-id ⇥ corpus-id ⇥ score``, with a header | as they are |
| Cranfield | ``query document code`` | binary: 1 (complete answer) to 4 (minimum interest) and −1 are relevant |
| SMART | ``query document 0 0.000000`` | all are relevant |

Cranfield's file counts the queries (1, 2, 3 …), whose ids are others (1, 2, 4, 8 …). Its code −1, which its readme does
not explain, marks the paper that a question was taken from: number 486, "similarity laws for aerothermoelastic
testing", for the question after similarity laws of aeroelastic models. It is relevant here, as in the judgments of the
same collection that have no codes.
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
    "Grades are binary: Cranfield's codes 1 (complete answer) to 4 (minimum interest) are relevant, and so is −1, the "
    "paper that the question was taken from; 5 (no interest) is not."
)
_NO_INTEREST = 5  # Cranfield's code
_Row = tuple[int, list[str]]


def read_judgments(path: str | os.PathLike[str], topics: Topics | None = None) -> tuple[Qrels, tuple[str, ...]]:
    """Judgments, and what to know about them; with `topics`, about queries by their ids.

    Raises:
        FormatError: the file is in none of the layouts.
        DataError: none of the judged queries is among the topics.
    """
    file = Path(path)
    rows, header = _rows(file)
    notes: list[str] = []
    counted = False
    widths = {len(words) for _, words in rows}
    if len(widths) != 1 or not widths <= {3, 4}:
        line, words = next(row for row in rows if len(row[1]) not in (3, 4) or len(row[1]) != len(rows[0][1]))
        expected = "'query iteration document grade', 'query document grade' with tabs, or as Cranfield has it"
        raise FormatError(f"Expected judgments, {expected}; found {len(words)} columns.", path=file, line=line)
    if widths == {3}:
        judged, counted = _three_columns(file, rows, header, notes)
    elif all(words[2] == "0" and is_float(words[3]) and float(words[3]) == 0 for _, words in rows):
        judged = [(words[0], words[1], 1.0) for _, words in rows]
        notes.append("Grades are binary: this layout lists only relevant documents.")
    else:
        judged = [(words[0], words[2], _grade(file, line, words[3])) for line, words in rows]
    if topics is not None:
        judged = _by_id(judged, topics, counted, notes, file)
    judged = list(dict.fromkeys(judged))  # CISI tells the same judgment twice
    try:
        return qrels_of_rows(judged), tuple(notes)
    except RepeatedPairError as twice:
        raise FormatError(twice.problem, path=file) from None


def _rows(path: Path) -> tuple[list[_Row], bool]:
    """The columns of every line; and whether there was a header above them."""
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
        raise FormatError("The file holds no judgments.", path=path)
    # Ids of BEIR may hold blanks. Tabs alone say little: CISI has some of its columns behind tabs, some behind blanks.
    cuts = (_at_tabs, str.split) if header or _is_table(path) else (str.split, _at_tabs)
    rows = [[(number, cut(text)) for number, text in lines[header:]] for cut in cuts]
    return next((cut for cut in rows if {len(words) for _, words in cut} in ({3}, {4})), rows[0]), header


def _at_tabs(line: str) -> list[str]:
    return [word.strip() for word in line.split("\t")]


def _is_table(path: Path) -> bool:
    """Whether a file's name says that tabs separate its columns, as BEIR's do."""
    return plain_name(path).suffix.lower() == ".tsv"


def _is_header(words: list[str]) -> bool:
    """Whether a first line names its columns: where the grade is, no number stands."""
    if len(words) not in (3, 4) or is_float(words[-1]):
        return False
    return len(words) == 3 or words[0].lower() in QUERY_NAMES


def _three_columns(
    path: Path, rows: list[_Row], header: bool, notes: list[str]
) -> tuple[list[tuple[str, str, float]], bool]:
    """BEIR's judgments, or Cranfield's; and whether queries are counted."""
    graded = [(words[0], words[1], _grade(path, line, words[2])) for line, words in rows]
    codes = {grade for _, _, grade in graded}
    if header or _is_table(path) or not codes <= {-1.0, 1.0, 2.0, 3.0, 4.0, 5.0}:
        return graded, False
    notes.append(_CRANFIELD)
    return [(query, document, float(code < _NO_INTEREST)) for query, document, code in graded], True


def _grade(path: Path, line: int, word: str) -> float:
    if not is_float(word):
        raise FormatError(f"Expected the grade, a number; found {word[:24]!r}.", path=path, line=line)
    return float(word)


def _by_id(
    judged: list[tuple[str, str, float]], topics: Topics, counted: bool, notes: list[str], path: Path
) -> list[tuple[str, str, float]]:
    """The judgments with the ids of their queries, where the file spells them otherwise, or counts the queries."""
    judged = _spelled(judged, topics.ids)
    queries, ids = {query for query, _, _ in judged}, set(topics.ids)
    ordinal = _are_ordinals(queries, topics.ids)
    if ordinal and (counted or not queries <= ids):
        notes.append(
            f"The judgments number the queries from 1 to {len(topics):,} instead of using their ids: "
            f"{preview(topics.ids)}."
        )
        return [(topics.ids[int(query) - 1], document, grade) for query, document, grade in judged]
    if counted and not queries <= ids:
        raise DataError(
            f"{path} numbers the queries, up to {max(map(int, filter(str.isdigit, queries)), default=0):,}, but there "
            f"are {len(topics):,}: give the whole file of queries that it belongs to."
        )
    if not queries & ids:
        raise DataError(
            f"No query has judgments: {path} judges {preview(sorted(queries))}, the queries are {preview(topics.ids)}. "
            "Are the ids spelled alike in both?"
        )
    return judged


def _spelled(judged: list[tuple[str, str, float]], ids: Sequence[str]) -> list[tuple[str, str, float]]:
    """The judgments with the ids as the queries have them: one may say 051 where the other says 51."""
    known = set(ids)
    plain = {name.lstrip("0"): name for name in ids if name.isdecimal()}
    if len(plain) < sum(map(str.isdecimal, ids)):
        return judged
    return [
        (plain.get(query.lstrip("0"), query) if query not in known else query, document, grade)
        for query, document, grade in judged
    ]


def _are_ordinals(queries: set[str], ids: Sequence[str]) -> bool:
    """Whether judgments can count these queries, whose ids are other numbers."""
    numbers = all(name.isdecimal() for name in (*queries, *ids))
    own = [str(place) for place in range(1, len(ids) + 1)]
    return numbers and list(ids) != own and max(map(int, ids)) > len(ids) and queries <= set(own)
