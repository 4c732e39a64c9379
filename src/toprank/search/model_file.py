"""The model file of an index: reloaded whenever another model was trained."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from toprank.data.bytesource import file_signature
from toprank.errors import DataError, FileError, warn_user
from toprank.search.storage import MODEL, IndexFolder

if TYPE_CHECKING:
    from toprank.rankers.base import Ranker


@dataclass(frozen=True)
class TrainingRecord:
    """The training data of a model, as recorded in its file. Invalid entries count as missing.

    Entries are parsed on access, because there may be many queries and a search needs only `n_candidates`.
    """

    entries: Mapping[str, Any]

    @property
    def index(self) -> str:
        """Id of the index that the model was trained on."""
        return str(self.entries.get("index", ""))

    @property
    def system(self) -> str:
        """Name of the trained system; empty if unknown."""
        return str(self.entries.get("system", ""))

    @property
    def n_candidates(self) -> int | None:
        """Number of candidates to rerank per query; None if the index decides."""
        n = self.entries.get("pool")
        return n if type(n) is int and n >= 1 else None

    def names(self, part: str) -> tuple[str, ...]:
        """Return the ids of the ``queries``, their texts (``words``), or the names of their ``vectors``."""
        names = self.entries.get(part)
        return tuple(map(str, names)) if isinstance(names, list | tuple) else ()


def training_record(ranker: Ranker | None) -> TrainingRecord:
    """Return the training record of a ranker."""
    entries = {} if ranker is None else ranker.training_.get("search")
    return TrainingRecord(entries if isinstance(entries, dict) else {})


class ModelFile:
    """The model of an index, reloaded when it changes. Once another index replaces the folder, the last model stays.

    Args:
        folder: index folder.
        names: names of the candidate features.
    """

    def __init__(self, folder: IndexFolder, names: tuple[str, ...]) -> None:
        self._folder, self._names, self._path = folder, names, folder.path / MODEL
        self._lock = threading.Lock()  # otherwise two threads would load the same file
        self._kept: tuple[Any, Ranker | None] | None = None
        self._pinned = False

    def pin(self) -> None:
        """Keep using the current model, even if another is trained later."""
        self.ranker()
        self._pinned = True

    def ranker(self) -> Ranker | None:
        """Return the current model, or None if none was trained."""
        with self._lock:
            if self._pinned and self._kept is not None:
                return self._kept[1]
            seen = file_signature(self._path)
            if self._kept is None or (seen != self._kept[0] and self._folder.is_current()):
                self._kept = (seen, self._read())
            return self._kept[1]

    def save(self, ranker: Ranker) -> None:
        """Write the model file atomically, so that concurrent searches use either the old or the new model."""
        if not self._folder.is_current():
            raise FileError(
                f"{self._folder.path} was replaced by another index after it was opened, so the model was not stored. "
                "Open the index again and repeat the training."
            )
        ranker.save(self._path)
        with self._lock:
            self._kept = None

    def _read(self) -> Ranker | None:
        from toprank.rankers.model_files import load

        if not self._path.exists():
            return None
        ranker: Ranker = load(self._path)
        if training_record(ranker).index != self._folder.meta["id"]:
            warn_user(f"{self._path} was trained on another index, so it is ignored. Train this index again.")
            return None
        names = tuple(getattr(ranker, "feature_names_in_", ()))
        if names != self._names:
            missing = [name for name in names if name not in self._names]
            raise DataError(
                f"The model of this index was trained with other features: it needs {', '.join(missing) or 'fewer'}. "
                "Open the index with the same functions, or train it again."
            )
        return ranker
