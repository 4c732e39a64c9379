"""Tantivy, with the extra `search`: a faster engine for large collections."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from toprank.errors import require_extra
from toprank.search.first_stage.engines import Hits
from toprank.search.storage import IndexFolder

_FOLDER = "tantivy"
_ROW = "row"
_MEMORY = 64 << 20  # bytes of its writer's buffer


def _tantivy() -> Any:
    return require_extra("tantivy", "search", "The first stage 'tantivy'")


def _schema(tantivy: Any, n_fields: int) -> Any:
    builder = tantivy.SchemaBuilder()
    builder.add_unsigned_field(_ROW, stored=True, indexed=True, fast=True)
    for place in range(n_fields):  # words are cut and stemmed already
        builder.add_text_field(f"f{place}", stored=False, tokenizer_name="whitespace", index_option="freq")
    return builder.build()


def build(folder: Path, documents: Iterable[Sequence[str]], fields: Sequence[str], weights: Sequence[float]) -> None:
    """Write Tantivy's index; one thread, so that documents keep their order."""
    del weights  # asked for with every query
    tantivy = _tantivy()
    (folder / _FOLDER).mkdir()
    index = tantivy.Index(_schema(tantivy, len(fields)), path=str(folder / _FOLDER))
    writer = index.writer(heap_size=_MEMORY, num_threads=1)
    for row, texts in enumerate(documents):
        document = tantivy.Document()
        document.add_unsigned(_ROW, row)
        for place, text in enumerate(texts):
            document.add_text(f"f{place}", text)
        writer.add_document(document)
    writer.commit()
    writer.wait_merging_threads()
    for lock in (folder / _FOLDER).glob(".tantivy-*.lock"):
        lock.unlink()


def open_engine(folder: IndexFolder, weights: Sequence[float]) -> TantivyEngine:
    """The engine over Tantivy's index."""
    return TantivyEngine(folder, weights)


@contextmanager
def _damage_told(folder: IndexFolder) -> Iterator[None]:
    """Tantivy has errors of every kind for a damaged index, and panics, which Python takes for no `Exception`."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as problem:  # noqa: BLE001
        raise folder.fault(f"The first stage of this index is damaged ({problem}).") from None


class TantivyEngine:
    """BM25 of each field, times its weight, added up."""

    def __init__(self, folder: IndexFolder, weights: Sequence[float]) -> None:
        self._tantivy, self._folder, self._weights = _tantivy(), folder, weights
        with _damage_told(folder):
            self._schema = _schema(self._tantivy, len(weights))
            index = self._tantivy.Index(self._schema, path=str(folder.path / _FOLDER), reuse=True)
            self._searcher = index.searcher()

    def find(self, words: Sequence[str], k: int) -> Hits:
        """The best k documents; the words are terms, never a query's syntax."""
        query, occur = self._tantivy.Query, self._tantivy.Occur.Should
        terms = [
            (occur, query.boost_query(query.term_query(self._schema, f"f{place}", word), weight))
            for word in words
            for place, weight in enumerate(self._weights)
            if weight > 0
        ]
        if not terms:
            return Hits(np.empty(0, np.int64), np.empty(0))
        with _damage_told(self._folder):
            hits = self._searcher.search(query.boolean_query(terms), limit=k, count=False).hits
            rows = np.array([self._searcher.doc(address)[_ROW][0] for _, address in hits], dtype=np.int64)
        scores = np.array([score for score, _ in hits], dtype=np.float64)
        order = np.lexsort((rows, -scores))
        return Hits(rows[order], scores[order])
