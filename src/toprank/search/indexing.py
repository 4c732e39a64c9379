"""`index`: build a search index from a document collection."""

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
from toprank.text.stop_words import detect_language
from toprank.text.words import pieces

_N_CANDIDATES = 200
_DEFAULT_LANGUAGE = "english"
_LANGUAGE_DOCUMENTS, _LANGUAGE_CHARACTERS = 500, 2_000  # sample for language detection: documents, characters of each


def index(
    source: Any = PYTHON_DOCS,
    path: str | os.PathLike[str] = "search-index",
    *,
    fields: Sequence[str] | None = None,
    weights: Mapping[str, float] | None = None,
    first_stage: str | Mapping[str, Any] | Sequence[Any] = "sqlite",
    n_candidates: int = _N_CANDIDATES,
    vectors: Mapping[str, Any] | None = None,
    language: str | None = None,
    lsa: int = 100,
    seed: int = 0,
    quiet: bool = True,
) -> Index:
    """Build a search index from a collection of documents.

    Args:
        source: documents, see `toprank.search.read`: a folder of text, Markdown or HTML, JSON lines, a test collection,
            a mapping, or ``"python-docs"`` (default), the documentation of the running Python.
        path: index folder. An existing index is replaced once the new one is complete.
        fields: fields to index. Default: all text fields.
        weights: BM25 field weights in the first stage. Default: 1 for every field.
        first_stage: ``"sqlite"`` (default), ``"tantivy"`` (needs the extra ``search``), or runs of other engines: a
            file, several files, or ``{name: run}``. An index over runs answers only the queries of the runs.
        n_candidates: number of first-stage candidates per query. Default: 200.
        vectors: document vectors by name of the embedding model: an array with one row per document, or a NumPy file
            (``.npy`` with such an array, or ``.npz`` with ``ids`` and ``vectors``).
        language: Snowball language for stemming and stop words; ``"none"`` keeps words unchanged. Default: detected by
            stop words, English if uncertain.
        lsa: number of LSA dimensions, at most 100; 0 disables LSA. Default: 100.
        seed: random seed of LSA. Default: 0.
        quiet: whether to suppress progress messages. Default: True.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     results = index({"a": "wings in a slipstream", "b": "heated plates"}, f"{folder}/index").search("wing")
    >>> [hit.id for hit in results]
    ['a']
    """
    check_target(path)
    check_whole("n_candidates", n_candidates, least=1)
    field_weights = _checked_weights(weights or {})
    if language is not None:
        Analyzer(language)  # raises for an unknown language before any document is read
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
        notes.append(f"Detected language: {analyzer.language.capitalize()}.")
    for name in field_weights:
        if name not in collection.fields:
            raise UnknownNameError(f"field of {collection.name}", name, collection.fields)
    known = {str(name): _document_vectors(str(name), rows, collection) for name, rows in (vectors or {}).items()}
    with step(f"Counting the words of {len(collection):,} documents …", quiet):
        statistics, encoded = Statistics.fit_and_encode(collection.fields, analyzer, lsa, seed)
    with step(f"Writing the index of {len(collection):,} documents …", quiet), new_index(path) as (folder, meta):
        meta |= {
            "name": collection.name, "documents": len(collection), "fields": list(collection.fields),
            "title": collection.title, "weights": field_weights, "pool": n_candidates, "notes": notes,
            "first_stage": "runs" if runs else first_stage, "runs": list(runs or ()), "vectors": list(known),
            "statistics": statistics.plain(), "source": _signature_entry(collection),
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
    """Return the document vectors of one embedding model as unit-length rows."""
    ordered = rows_of_ids("documents", rows, collection.ids)
    return unit_rows(f"The vectors '{name}' of documents", ordered, len(collection))


def _language(collection: Collection) -> str:
    """Detect the language from the first characters of evenly spaced documents."""
    step = max(1, len(collection) // _LANGUAGE_DOCUMENTS)
    places = range(0, len(collection), step)
    starts = (texts[place][:_LANGUAGE_CHARACTERS] for place in places for texts in collection.fields.values())
    return detect_language((word for text in starts for word in pieces(text)), _DEFAULT_LANGUAGE)


def _words(encoded: EncodedDocuments) -> Iterator[Sequence[str]]:
    """Yield the content words of each field, separated by spaces, for each document."""
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
        check_number(f"The weight of field {name}", weight, least=0)
    if weights and not any(weights.values()):
        raise DataError("All field weights are 0. At least one must be positive.")
    return {str(name): float(weight) for name, weight in weights.items()}


def _signature_entry(collection: Collection) -> dict[str, Any] | None:
    signature = collection.signature
    return None if signature is None else {"path": signature.path, "files": signature.names, "digest": signature.digest}


def _write_queries(folder: Path, collection: Collection) -> None:
    """Write the queries and judgments of the collection."""
    if collection.topics is not None:
        topics = collection.topics
        write_json(folder, "topics.json", {"ids": list(topics.ids), "texts": list(topics.texts)})
    for number, (part, qrels) in enumerate(sorted(collection.judgments.items())):
        columns = {
            "part": part, "qids": qrels.qids.tolist(), "documents": qrels.document_ids.tolist(),
            "grades": qrels.grades.tolist(),
        }  # fmt: skip
        write_json(folder, f"judgments.{number}.json", columns)
