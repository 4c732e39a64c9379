"""First stage by Tantivy (extra `search`), which is faster on large collections."""

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
_WRITER_BYTES = 64 << 20  # bytes of the writer's buffer


def _tantivy() -> Any:
    return require_extra("tantivy", "search", "The first stage 'tantivy'")


def _schema(tantivy: Any, n_fields: int) -> Any:
    builder = tantivy.SchemaBuilder()
    builder.add_unsigned_field(_ROW, stored=True, indexed=True, fast=True)
    for place in range(n_fields):  # the text is already tokenized and stemmed
        builder.add_text_field(f"f{place}", stored=False, tokenizer_name="whitespace", index_option="freq")
    return builder.build()


def build(folder: Path, documents: Iterable[Sequence[str]], fields: Sequence[str], weights: Sequence[float]) -> None:
    """Write the Tantivy index with one thread, which preserves the document order."""
    del weights  # applied at query time
    tantivy = _tantivy()
    (folder / _FOLDER).mkdir()
    index = tantivy.Index(_schema(tantivy, len(fields)), path=str(folder / _FOLDER))
    writer = index.writer(heap_size=_WRITER_BYTES, num_threads=1)
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
    """Open the Tantivy index of an index folder."""
    return TantivyEngine(folder, weights)


@contextmanager
def _report_damage(folder: IndexFolder) -> Iterator[None]:
    """Turn every failure into the error for a damaged index; a Rust panic is not an `Exception`."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as problem:  # noqa: BLE001
        raise folder.fault(f"The first stage of this index is damaged ({problem}).") from None


class TantivyEngine:
    """The Tantivy engine: weighted sum of the BM25 scores of the fields."""

    def __init__(self, folder: IndexFolder, weights: Sequence[float]) -> None:
        self._tantivy, self._folder, self._weights = _tantivy(), folder, weights
        with _report_damage(folder):
            self._schema = _schema(self._tantivy, len(weights))
            index = self._tantivy.Index(self._schema, path=str(folder.path / _FOLDER), reuse=True)
            self._searcher = index.searcher()

    def find(self, words: Sequence[str], k: int) -> Hits:
        """Return the top k documents; words are terms, so they are never parsed as operators."""
        query, occur = self._tantivy.Query, self._tantivy.Occur.Should
        terms = [
            (occur, query.boost_query(query.term_query(self._schema, f"f{place}", word), weight))
            for word in words
            for place, weight in enumerate(self._weights)
            if weight > 0
        ]
        if not terms:
            return Hits(np.empty(0, np.int64), np.empty(0))
        with _report_damage(self._folder):
            hits = self._searcher.search(query.boolean_query(terms), limit=k, count=False).hits
            rows = np.array([self._searcher.doc(address)[_ROW][0] for _, address in hits], dtype=np.int64)
        scores = np.array([score for score, _ in hits], dtype=np.float64)
        order = np.lexsort((rows, -scores))
        return Hits(rows[order], scores[order])
