"""First stage by SQLite full-text search (FTS5), which ships with Python: BM25 with field weights."""

from __future__ import annotations

import sqlite3
import threading
import weakref
from collections.abc import Iterable, Sequence
from pathlib import Path
from urllib.parse import quote

import numpy as np

from toprank.errors import DataError, Remedy
from toprank.search.first_stage.engines import Hits
from toprank.search.storage import IndexFolder

_FILE = "first_stage.sqlite"
# The text is already tokenized and stemmed, so FTS5 only splits at spaces.
_TOKENIZER = "unicode61 remove_diacritics 0"


def check_fts5() -> None:
    """Raise an error if the SQLite of this Python has no full-text search."""
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute("CREATE VIRTUAL TABLE probe USING fts5(text)")
    except sqlite3.OperationalError:
        raise DataError(
            f"The SQLite of this Python ({sqlite3.sqlite_version}) was built without full-text search (FTS5).",
            remedy=Remedy(
                "Install toprank[search] and index with {first_stage}, or use runs of another engine.",
                first_stage="tantivy",
            ),
        ) from None
    finally:
        connection.close()


def build(folder: Path, documents: Iterable[Sequence[str]], fields: Sequence[str], weights: Sequence[float]) -> None:
    """Write the FTS5 table. It is contentless (`content=''`), so it cannot be updated later."""
    check_fts5()
    columns = [f"f{place}" for place in range(len(fields))]
    connection = sqlite3.connect(folder / _FILE, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")  # safe for a new file, which is published only when complete
        connection.execute(
            f"CREATE VIRTUAL TABLE documents USING fts5({', '.join(columns)}, content='', tokenize='{_TOKENIZER}')"
        )
        connection.execute("BEGIN")
        marks = ", ".join("?" * (len(columns) + 1))
        rows = ((row, *texts) for row, texts in enumerate(documents, 1))
        connection.executemany(f"INSERT INTO documents(rowid, {', '.join(columns)}) VALUES ({marks})", rows)
        numbers = ", ".join(repr(weight) for weight in weights)
        connection.execute("INSERT INTO documents(documents, rank) VALUES ('rank', ?)", (f"bm25({numbers})",))
        connection.execute("INSERT INTO documents(documents) VALUES ('optimize')")
        connection.execute("COMMIT")
    except sqlite3.Error as problem:
        raise OSError(str(problem)) from problem  # most likely a full disk; the caller adds the name of the index
    finally:
        connection.close()


def open_engine(folder: IndexFolder, weights: Sequence[float]) -> SqliteEngine:
    """Open the FTS5 table of an index."""
    del weights  # stored in the table
    return SqliteEngine(folder)


class _Connection:
    """A connection that is closed when its thread or the engine ends, whichever happens first."""

    def __init__(self, sqlite: sqlite3.Connection) -> None:
        self.sqlite = sqlite
        # `__del__` would be too late: in a reference cycle, SQLite's object may be finalized before ours, and Python
        # 3.13 then warns of an unclosed connection.
        weakref.finalize(self, sqlite.close)


class SqliteEngine:
    """The FTS5 engine, with one connection per thread because SQLite connections cannot be shared."""

    def __init__(self, folder: IndexFolder) -> None:
        self._folder, self._own = folder, threading.local()
        self.find(["a"], 1)  # detects a damaged file early

    def _connection(self) -> sqlite3.Connection:
        own: _Connection | None = getattr(self._own, "connection", None)
        if own is None:
            # The file never changes, so `immutable` spares SQLite locks and the search for a journal.
            address = f"file:{quote(str((self._folder.path / _FILE).resolve()))}?mode=ro&immutable=1"
            own = self._own.connection = _Connection(sqlite3.connect(address, uri=True, check_same_thread=False))
            own.sqlite.execute("PRAGMA trusted_schema = OFF")  # a forged file might contain more than a table
        return own.sqlite

    def find(self, words: Sequence[str], k: int) -> Hits:
        """Return the top k documents by BM25; words are quoted, so they are never parsed as operators."""
        terms = " OR ".join('"{}"'.format(word.replace('"', '""')) for word in words)
        query = "SELECT rowid, rank FROM documents WHERE documents MATCH ? ORDER BY rank, rowid LIMIT ?"
        try:
            pairs = self._connection().execute(query, (terms, k)).fetchall() if words else []
        except sqlite3.Error as problem:
            raise self._folder.fault(f"The first stage of this index is damaged ({problem}).") from None
        table = np.array(pairs, dtype=np.float64).reshape(len(pairs), 2)
        return Hits(table[:, 0].astype(np.int64) - 1, -table[:, 1])
