"""The learned order of an open index: the model file in its folder, read again where somebody trained another."""

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
    """What a model of an index was trained on, as its file says; an entry that makes no sense counts as absent.

    Each entry is read when it is needed: a search needs the pool alone, and there may be many queries.
    """

    noted: Mapping[str, Any]

    @property
    def index(self) -> str:
        """The id of the index."""
        return str(self.noted.get("index", ""))

    @property
    def system(self) -> str:
        """The name of the system that was trained; empty if unknown."""
        return str(self.noted.get("system", ""))

    @property
    def pool(self) -> int | None:
        """Candidates of a query that it is to rank; None: what the index says."""
        pool = self.noted.get("pool")
        return pool if type(pool) is int and pool >= 1 else None

    def names(self, part: str) -> tuple[str, ...]:
        """The ids of the ``queries``, their ``words``, or the models that made their ``vectors``."""
        names = self.noted.get(part)
        return tuple(map(str, names)) if isinstance(names, list | tuple) else ()


def learned_from(ranker: Ranker | None) -> TrainingRecord:
    """What a ranker learned from."""
    noted = {} if ranker is None else ranker.training_.get("search")
    return TrainingRecord(noted if isinstance(noted, dict) else {})


class ModelFile:
    """The model of an index: the newest one while the folder holds that index, later the one that was read last.

    Args:
        folder: the index.
        names: the features of its candidates.
    """

    def __init__(self, folder: IndexFolder, names: tuple[str, ...]) -> None:
        self._folder, self._names, self._path = folder, names, folder.path / MODEL
        self._lock = threading.Lock()  # two threads would read one file twice
        self._kept: tuple[Any, Ranker | None] | None = None
        self._pinned = False

    def pin(self) -> None:
        """Keep the model that is there now, whatever is trained later."""
        self.ranker()
        self._pinned = True

    def ranker(self) -> Ranker | None:
        """The learned order; None before anything was trained."""
        with self._lock:
            if self._pinned and self._kept is not None:
                return self._kept[1]
            seen = file_signature(self._path)
            if self._kept is None or (seen != self._kept[0] and self._folder.is_current()):
                self._kept = (seen, self._read())
            return self._kept[1]

    def save(self, ranker: Ranker) -> None:
        """Put a model into the folder: one file, so a search meanwhile uses either the old or the new one."""
        if not self._folder.is_current():
            raise FileError(
                f"{self._folder.path} now holds another index than the one that is open, so the model was not stored. "
                "Open the index again and train."
            )
        ranker.save(self._path)
        with self._lock:
            self._kept = None

    def _read(self) -> Ranker | None:
        from toprank.rankers.model_files import load

        if not self._path.exists():
            return None
        ranker: Ranker = load(self._path)
        if learned_from(ranker).index != self._folder.meta["id"]:
            warn_user(
                f"{self._path} was trained on another index than the one beside it, so it is not used. Train again."
            )
            return None
        names = tuple(getattr(ranker, "feature_names_in_", ()))
        if names != self._names:
            missing = [name for name in names if name not in self._names]
            raise DataError(
                f"The model of this index was trained with other features: it needs {', '.join(missing) or 'fewer'}. "
                "Open the index with the same functions, or train again."
            )
        return ranker
