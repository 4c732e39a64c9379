"""Engines that are embedded in the index, by name.

An engine is given words, not texts: those that the analyzer makes of documents and queries, so that it finds what the
features then count, in any script. Nothing in a query is syntax.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, Protocol

from toprank.compute import FloatArray, IntArray
from toprank.errors import UnknownNameError
from toprank.search.storage import IndexFolder

MAX_QUERY_WORDS = 64
"""Words of a query that an engine looks for: of a longer one the rarest. Features count all."""
_HOMES = {"sqlite": "toprank.search.first_stage.sqlite", "tantivy": "toprank.search.first_stage.tantivy"}
ENGINES = tuple(_HOMES)


class Hits(NamedTuple):
    """Candidates, best first."""

    rows: IntArray
    scores: FloatArray


class Engine(Protocol):
    """Finds documents that have some of the words of a query."""

    def find(self, words: Sequence[str], k: int) -> Hits:
        """The best k documents for these words; equal scores in the order of the documents."""


def build_engine(
    name: str, folder: Path, documents: Iterable[Sequence[str]], fields: Sequence[str], weights: Mapping[str, float]
) -> None:
    """Write the files of an engine into the folder of an index.

    Args:
        name: one of `ENGINES`.
        folder: where.
        documents: of each document the words of each field, with blanks between them.
        fields: their names.
        weights: of fields; 1 where there is none.
    """
    _home(name).build(folder, documents, fields, [float(weights.get(field, 1.0)) for field in fields])


def open_engine(name: str, folder: IndexFolder, fields: Sequence[str], weights: Mapping[str, float]) -> Engine:
    """The engine of an index."""
    engine: Engine = _home(name).open_engine(folder, [float(weights.get(field, 1.0)) for field in fields])
    return engine


def _home(name: str) -> _Home:
    if name not in _HOMES:
        raise UnknownNameError("first stage", name, ENGINES)
    home: _Home = import_module(_HOMES[name])
    return home


class _Home(Protocol):
    """What the module of an engine has."""

    def build(
        self, folder: Path, documents: Iterable[Sequence[str]], fields: Sequence[str], weights: Sequence[float]
    ) -> None: ...

    def open_engine(self, folder: IndexFolder, weights: Sequence[float]) -> Engine: ...
