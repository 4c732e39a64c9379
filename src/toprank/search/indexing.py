"""`index`: a collection becomes a folder that can be searched."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from toprank.compute import offsets_of
from toprank.data.arguments import check_number, check_whole
from toprank.display.progress import step
from toprank.errors import DataError, UnknownNameError
from toprank.search.collections import PYTHON_DOCS, Collection, read
from toprank.search.documents import write_documents
from toprank.search.first_stage import ENGINES, build_engine
from toprank.search.first_stage.runs import check_documents, checked_runs, write_runs
from toprank.search.search_index import Index
from toprank.search.storage import check_target, new_index, write_array, write_json
from toprank.search.vectors import rows_of_ids, unit_rows
from toprank.text import Analyzer, EncodedDocuments, Statistics
from toprank.text.function_words import language_of
from toprank.text.words import pieces

_POOL = 200
_DEFAULT_LANGUAGE = "english"
_SAMPLE, _START = 500, 2_000  # documents that tell the language, and letters of each


def index(
    source: Any = PYTHON_DOCS,
    path: str | os.PathLike[str] = "search-index",
    *,
    fields: Sequence[str] | None = None,
    weights: Mapping[str, float] | None = None,
    first_stage: str | Mapping[str, Any] | Sequence[Any] = "sqlite",
    pool: int = _POOL,
    vectors: Mapping[str, Any] | None = None,
    language: str | None = None,
    lsa: int = 100,
    seed: int = 0,
    quiet: bool = True,
) -> Index:
    """Make a folder that can be searched from a collection of documents, whole or not at all.

    Args:
        source: see `toprank.search.read`: a folder of text, Markdown or HTML, JSON lines, a judged collection, a
            mapping, or ``"python-docs"``, the documentation of this Python.
        path: the folder to make; an older index of that name is replaced when the new one is complete.
        fields: which fields to index; None: all that are text.
        weights: how much a word in a field counts for the first stage; 1 by default.
        first_stage: ``"sqlite"``, ``"tantivy"`` (the extra ``search``), or runs of any engine: a file, several, or
            ``{name: run}``. An index over runs answers the queries that the runs answer.
        pool: how many candidates the first stage finds for the second to rank.
        vectors: of documents, by the name of the model that made them: an array with a row for each, or a file of
            NumPy: ``.npy`` with a row for each, ``.npz`` with ``ids`` and ``vectors``.
        language: of stems and function words, as Snowball calls it; ``"none"`` for words as they are. None: told by
            the function words of the documents, and English where they do not tell.
        lsa: directions of LSA at most, and never more than 100; 0 for none.
        seed: of LSA.
        quiet: say nothing while it works.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     results = index({"a": "wings in a slipstream", "b": "heated plates"}, f"{folder}/index").search("wing")
    >>> [hit.id for hit in results]
    ['a']
    """
    check_target(path)
    check_whole("pool", pool, least=1)
    field_weights = _checked_weights(weights or {})
    if language is not None:
        Analyzer(language)  # refused before anything is read
    if isinstance(first_stage, str) and first_stage not in ENGINES and not os.path.exists(first_stage):
        raise UnknownNameError("first stage", first_stage, ENGINES)
    runs = None if isinstance(first_stage, str) and first_stage in ENGINES else checked_runs(first_stage)
    with step("Reading the documents …", quiet):
        collection = read(source, fields)
    if runs is not None:
        check_documents(runs, collection.ids)
    analyzer = Analyzer(_language(collection) if language is None else language)
    notes = list(collection.notes)
    if language is None and analyzer.language != _DEFAULT_LANGUAGE:
        notes.append(f"The documents seem to be in {analyzer.language.capitalize()}.")
    for name in field_weights:
        if name not in collection.fields:
            raise UnknownNameError(f"field of {collection.name}", name, collection.fields)
    known = {str(name): _document_vectors(str(name), rows, collection) for name, rows in (vectors or {}).items()}
    with step(f"Counting the words of {len(collection):,} documents …", quiet):
        statistics, encoded = Statistics.learned_and_encoded(collection.fields, analyzer, lsa, seed)
    with step(f"Writing the index of {len(collection):,} documents …", quiet), new_index(path) as (folder, meta):
        meta |= {
            "name": collection.name, "documents": len(collection), "fields": list(collection.fields),
            "title": collection.title, "weights": field_weights, "pool": pool, "notes": notes,
            "first_stage": "runs" if runs else first_stage, "runs": list(runs or ()), "vectors": list(known),
            "statistics": statistics.plain(), "source": _stamp(collection),
        }  # fmt: skip
        write_documents(folder, collection.ids, collection.fields)
        arrays = {f"statistics.{name}": array for name, array in statistics.arrays().items()}
        arrays |= {f"words.{name}": array for name, array in encoded.arrays().items()}
        arrays |= {f"vectors.{place}": array for place, array in enumerate(known.values())}
        for name, array in arrays.items():
            write_array(folder, name, array)
        if runs is None:
            build_engine(str(first_stage), folder, _words(encoded), tuple(collection.fields), field_weights)
        else:
            write_runs(folder, runs)
        _write_queries(folder, collection)
    return Index(path)


def _document_vectors(name: str, rows: Any, collection: Collection) -> npt.NDArray[np.float32]:
    """Return the vectors of the documents by one model, as rows of length 1."""
    ordered = rows_of_ids("documents", rows, collection.ids)
    return unit_rows(f"The vectors '{name}' of documents", ordered, len(collection))


def _language(collection: Collection) -> str:
    """Tell the language by the beginnings of documents from all over the collection."""
    step = max(1, len(collection) // _SAMPLE)
    places = range(0, len(collection), step)
    starts = (texts[place][:_START] for place in places for texts in collection.fields.values())
    return language_of((word for text in starts for word in pieces(text)), _DEFAULT_LANGUAGE)


def _words(encoded: EncodedDocuments) -> Iterator[Sequence[str]]:
    """Yield, for each document, the counted words of each field with blanks between them."""
    vocabulary = np.array(encoded.vocabulary.words, dtype=object)
    columns: list[Iterable[str]] = []
    for tokens in encoded.tokens.values():
        kept = encoded.counted[tokens.ids]
        starts = offsets_of(kept)[tokens.starts].tolist()
        words = vocabulary[tokens.ids[kept]].tolist()
        columns.append([" ".join(words[a:b]) for a, b in pairwise(starts)])
    return iter(zip(*columns, strict=True))


def _checked_weights(weights: Mapping[str, float]) -> dict[str, float]:
    for name, weight in weights.items():
        check_number(f"The weight of {name}", weight, least=0)
    if weights and not any(weights.values()):
        raise DataError("weights: at least one field must count.")
    return {str(name): float(weight) for name, weight in weights.items()}


def _stamp(collection: Collection) -> dict[str, Any] | None:
    stamp = collection.stamp
    return None if stamp is None else {"path": stamp.path, "files": stamp.names, "digest": stamp.digest}


def _write_queries(folder: Path, collection: Collection) -> None:
    """The queries and judgments that the collection brought."""
    if collection.topics is not None:
        topics = collection.topics
        write_json(folder, "topics.json", {"ids": list(topics.ids), "texts": list(topics.texts)})
    for number, (part, qrels) in enumerate(sorted(collection.judgments.items())):
        columns = {
            "part": part, "qids": qrels.qids.tolist(), "documents": qrels.document_ids.tolist(),
            "grades": qrels.grades.tolist(),
        }  # fmt: skip
        write_json(folder, f"judgments.{number}.json", columns)
