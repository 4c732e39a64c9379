"""Embedded first-stage engines, by name.

Engines index and search the words produced by our analyzer rather than raw text, so retrieval and features agree in
every language. Queries have no operators.
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
"""Maximum number of query words for an engine; of a longer query, the rarest are used. Features use all words."""
_MODULES = {"sqlite": "toprank.search.first_stage.sqlite", "tantivy": "toprank.search.first_stage.tantivy"}
ENGINES = tuple(_MODULES)


class Hits(NamedTuple):
    """Rows and scores of candidates, best first."""

    rows: IntArray
    scores: FloatArray


class Engine(Protocol):
    """A first-stage engine, which retrieves documents that contain at least one query word."""

    def find(self, words: Sequence[str], k: int) -> Hits:
        """Return the top k documents; ties are in document order."""


def build_engine(
    name: str, folder: Path, documents: Iterable[Sequence[str]], fields: Sequence[str], weights: Mapping[str, float]
) -> None:
    """Write the files of an engine to an index folder.

    Args:
        name: name of the engine, one of `ENGINES`.
        folder: index folder.
        documents: words of each field, separated by spaces, for each document.
        fields: field names.
        weights: field weights. Fields without an entry have weight 1.
    """
    _engine_module(name).build(folder, documents, fields, [float(weights.get(field, 1.0)) for field in fields])


def open_engine(name: str, folder: IndexFolder, fields: Sequence[str], weights: Mapping[str, float]) -> Engine:
    """Open the engine of an index."""
    engine: Engine = _engine_module(name).open_engine(folder, [float(weights.get(field, 1.0)) for field in fields])
    return engine


def _engine_module(name: str) -> _EngineModule:
    if name not in _MODULES:
        raise UnknownNameError("first stage", name, ENGINES)
    module: _EngineModule = import_module(_MODULES[name])
    return module


class _EngineModule(Protocol):
    """Interface of an engine module."""

    def build(
        self, folder: Path, documents: Iterable[Sequence[str]], fields: Sequence[str], weights: Sequence[float]
    ) -> None: ...

    def open_engine(self, folder: IndexFolder, weights: Sequence[float]) -> Engine: ...
