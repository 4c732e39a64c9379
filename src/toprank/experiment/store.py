"""Finished cells on disk. A cell is written at once and as a whole, so a killed run loses only what was in work.

cells/KEY.json       how it was chosen and fitted; written last: where it is, the cell is finished
cells/KEY.npy        scores of the test documents, float64, in the order of the fold
cells/KEY.toprank    the fitted ranker, where models are kept
tests/PRINT.toprank-data   test labels, queries and ids (no features) of the fold with that fingerprint
results.parquet      the per-query results of the last run
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from toprank.compute import FloatArray
from toprank.data.bytesource import output
from toprank.data.checks import digest
from toprank.data.dataset import RankingData
from toprank.data.oserrors import os_errors
from toprank.data.store import SUFFIX, open_store, write_store
from toprank.errors import FileError, FormatError, ToprankError
from toprank.experiment.cells import plain

__all__ = ["CellStore"]


class CellStore:
    """The folder of an experiment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def prepare(self) -> None:
        """Make the folders."""
        for part in ("cells", "tests"):
            with os_errors(self.folder, "written"):
                (self.folder / part).mkdir(parents=True, exist_ok=True)

    @property
    def results(self) -> Path:
        """Where the per-query results of the last run are."""
        return self.folder / "results.parquet"

    def model(self, key: str) -> Path:
        """Where the fitted ranker of a cell is, if it is kept."""
        return self.folder / "cells" / f"{key}.toprank"

    def write(self, key: str, record: dict[str, Any], scores: FloatArray, ranker: Any) -> None:
        """Write a finished cell; `ranker` is None where models are not kept."""
        if ranker is not None:
            record = record | {"model": self._keep(key, ranker)}
        with output(self._scores(key)) as stream:
            np.save(stream, np.ascontiguousarray(scores, dtype=np.float64), allow_pickle=False)
        text = json.dumps(plain(record | {"scores": digest(scores)}), ensure_ascii=False, allow_nan=False, indent=1)
        with output(self._record(key)) as stream:
            stream.write(text.encode())

    def _keep(self, key: str, ranker: Any) -> str:
        try:
            ranker.save(self.model(key))
        except (ToprankError, AttributeError) as problem:  # a classifier inside, or a ranker of someone else
            if isinstance(problem, FileError):
                raise
            return f"not kept: {problem}"
        return "kept"

    def read(self, key: str, with_model: bool) -> dict[str, Any] | None:
        """The record of a finished cell; None where it must be computed (again)."""
        try:
            record: dict[str, Any] = json.loads(self._record(key).read_bytes())
            if with_model and "model" not in record:
                return None
            if record.get("model") == "kept" and with_model and not self.model(key).exists():
                return None
            whole = digest(self._load(key)) == record["scores"]
        except (OSError, ValueError, EOFError, KeyError, TypeError, AttributeError):
            return None  # absent or damaged
        return record if whole else None

    def scores(self, key: str) -> FloatArray:
        """The test scores of a finished cell."""
        try:
            return self._load(key)
        except (OSError, ValueError, EOFError):
            raise FileError(
                f"The scores of this cell are not in {self.folder} any more; run the experiment again."
            ) from None

    def _load(self, key: str) -> FloatArray:
        scores: FloatArray = np.load(self._scores(key), allow_pickle=False)
        return scores

    def write_test(self, fingerprint: str, test: RankingData) -> None:
        """Keep what judging needs of a test set, once."""
        path = self._test(fingerprint)
        if not path.exists():
            write_store(test, path)

    def test(self, fingerprint: str) -> RankingData:
        """Labels, queries and ids of a test set, without features."""
        try:
            return open_store(self._test(fingerprint))
        except (FileError, FormatError):
            raise FileError(
                f"The test labels of this fold are not in {self.folder} any more; run the experiment again."
            ) from None

    def _record(self, key: str) -> Path:
        return self.folder / "cells" / f"{key}.json"

    def _scores(self, key: str) -> Path:
        return self.folder / "cells" / f"{key}.npy"

    def _test(self, fingerprint: str) -> Path:
        return self.folder / "tests" / f"{fingerprint}{SUFFIX}"
