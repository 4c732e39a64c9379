"""Storage of finished cells. Cells are written atomically, so an interrupted run loses only unfinished cells.

cells/KEY.json       selection and fit; written last, so its presence marks the cell as finished
cells/KEY.npy        scores of the test documents, float64, in the order of the grouped data of the fold
cells/KEY.relevance.npy    P(grade ≥ 1) of the test documents, if the ranker has probabilities
cells/KEY.toprank    the fitted ranker, if models are saved
tests/PRINT.toprank-data   test labels, queries and ids (no features) of the fold with that fingerprint
results.parquet      per-query results of the last run
results-KEY.parquet  per-query results of the last run of each experiment that shares the folder
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from toprank.compute import FloatArray
from toprank.data.bytesource import os_errors, output
from toprank.data.dataset import RankingData
from toprank.data.hashes import digest
from toprank.data.store import SUFFIX, open_store, write_store
from toprank.display.record import to_json
from toprank.errors import FileError, FormatError, ToprankError
from toprank.rankers.base import Ranker


@dataclass(frozen=True)
class Cell:
    """A finished cell: selection and fit of a system. `Results.scores` returns its test scores.

    Attributes:
        dataset, fold, system: Names in this experiment.
        seed: The seed; None for deterministic systems, which have one cell for all seeds.
        key: Hash of everything that the scores depend on; the base name of the cell files.
        fingerprints: Fingerprints of the "train", "valid" and "test" data.
        options: Selected hyper-parameters.
        metric: Selection metric on the validation data; None if unknown.
        convention: Convention of that metric.
        valid: Value of that metric.
        seconds: Time for selection, fit and prediction.
        message: Termination message of the solver or of boosting.
        warnings: Distinct warnings.
        candidates: One row per candidate: its hyper-parameters and "valid".
        history: Learning curves of rankers that record them: name → value after each round.
        importances: Relative importance of each feature, if the ranker provides it.
        weights: Signed weight of each feature, for linear rankers.
        meaning: Description of these weights.
        feature_names: Names of the features of `importances` and `weights`, including text features; empty if unnamed.
        versions: Versions of toprank and of the numerical packages.
    """

    dataset: str
    fold: str
    system: str
    seed: int | None
    key: str
    fingerprints: Mapping[str, str]
    options: Mapping[str, Any]
    metric: str | None
    convention: str
    valid: float | None
    seconds: float
    message: str = ""
    warnings: tuple[str, ...] = ()
    candidates: tuple[Mapping[str, Any], ...] = ()
    history: Mapping[str, list[float]] = field(default_factory=dict)
    importances: tuple[float, ...] = ()
    weights: tuple[float, ...] = ()
    meaning: str = ""
    feature_names: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the cell as plain values for JSON."""
        values: dict[str, Any] = to_json(asdict(self), repr)
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Cell:
        """Create a cell from the output of `to_dict`; unknown keys are ignored."""
        known = {field.name for field in fields(cls)}
        given = {name: value for name, value in values.items() if name in known}
        for name in ("warnings", "candidates", "importances", "weights", "feature_names"):
            given[name] = tuple(given.get(name, ()))
        return cls(**given)


@dataclass(frozen=True)
class Failure:
    """A cell that could not be computed, with the reason."""

    dataset: str
    fold: str
    system: str
    seed: int | None
    error: str


class CellStore:
    """Cache folder of an experiment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def prepare(self) -> None:
        """Create the folders."""
        for part in ("cells", "tests"):
            with os_errors(self.folder, "written"):
                (self.folder / part).mkdir(parents=True, exist_ok=True)

    @property
    def results(self) -> Path:
        """Path of the per-query results of the last run."""
        return self.folder / "results.parquet"

    def results_of(self, key: str) -> Path:
        """Return the path of the results of one experiment."""
        return self.folder / f"results-{key}.parquet"

    def model(self, key: str) -> Path:
        """Return the path of the fitted ranker of a cell."""
        return self._file(key, ".toprank")

    def write(
        self, key: str, record: dict[str, Any], scores: FloatArray, relevance: FloatArray | None, ranker: Ranker | None
    ) -> None:
        """Write a finished cell, with probabilities and ranker unless they are None."""
        if ranker is not None:
            record = record | {"model": self._keep(key, ranker)}
        columns = {
            "scores": (self._file(key, ".npy"), scores),
            "relevance": (self._file(key, ".relevance.npy"), relevance),
        }
        for name, (path, column) in columns.items():
            if column is not None:
                with output(path) as stream:
                    np.save(stream, np.ascontiguousarray(column, dtype=np.float64), allow_pickle=False)
                record = record | {name: digest(column)}
        text = json.dumps(to_json(record, repr), ensure_ascii=False, allow_nan=False, indent=1)
        with output(self._file(key, ".json")) as stream:
            stream.write(text.encode())

    def _keep(self, key: str, ranker: Ranker) -> str:
        try:
            ranker.save(self.model(key))
        except (ToprankError, AttributeError) as problem:  # rankers that cannot be saved, such as third-party ones
            if isinstance(problem, FileError):
                raise
            return f"not kept: {problem}"
        return "kept"

    def read(self, key: str, with_model: bool) -> dict[str, Any] | None:
        """Return the record of a finished cell; None if it must be computed (again)."""
        try:
            record: dict[str, Any] = json.loads(self._file(key, ".json").read_bytes())
            if with_model and "model" not in record:
                return None
            if record.get("model") == "kept" and with_model and not self.model(key).exists():
                return None
            whole = digest(_load(self._file(key, ".npy"))) == record["scores"]
            if "relevance" in record:
                whole = whole and digest(_load(self._file(key, ".relevance.npy"))) == record["relevance"]
        except (OSError, ValueError, EOFError, KeyError, TypeError, AttributeError):
            return None  # absent or damaged
        return record if whole else None

    def scores(self, key: str) -> FloatArray:
        """Return the test scores of a finished cell."""
        try:
            return _load(self._file(key, ".npy"))
        except (OSError, ValueError, EOFError):
            raise FileError(
                f"The scores of this cell are missing from {self.folder}. Please run the experiment again."
            ) from None

    def relevance(self, key: str) -> FloatArray | None:
        """Return P(grade ≥ 1) of the test documents; None if the ranker has no probabilities."""
        try:
            return _load(self._file(key, ".relevance.npy"))
        except (OSError, ValueError, EOFError):
            return None

    def write_test(self, fingerprint: str, test: RankingData) -> None:
        """Store the labels, queries and ids of a test set once."""
        path = self._test(fingerprint)
        if not path.exists():
            write_store(test, path)

    def test(self, fingerprint: str) -> RankingData:
        """Return labels, queries and ids of a test set, without features."""
        try:
            kept = open_store(self._test(fingerprint))
            return kept.replace(source_rows=None)  # different sources may yield the same test data
        except (FileError, FormatError):
            raise FileError(
                f"The test labels of this fold are missing from {self.folder}. Please run the experiment again."
            ) from None

    def _file(self, key: str, suffix: str) -> Path:
        return self.folder / "cells" / f"{key}{suffix}"

    def _test(self, fingerprint: str) -> Path:
        return self.folder / "tests" / f"{fingerprint}{SUFFIX}"


def _load(path: Path) -> FloatArray:
    column: FloatArray = np.load(path, allow_pickle=False)
    return column
