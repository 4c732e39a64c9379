"""Finished cells on disk. A cell is written at once and as a whole, so a killed run loses only what was in work.

cells/KEY.json       how it was chosen and fitted; written last: where it is, the cell is finished
cells/KEY.npy        scores of the test documents, float64, in the order of the fold's data, grouped
cells/KEY.relevance.npy    P(grade ≥ 1) of the test documents, where the ranker gives probabilities
cells/KEY.toprank    the fitted ranker, where models are kept
tests/PRINT.toprank-data   test labels, queries and ids (no features) of the fold with that fingerprint
results.parquet      the per-query results of the last run
results-KEY.parquet  those of the last run of each experiment, whatever else was run in the folder
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
    """A finished cell: how the system was chosen and fitted. Its test scores: `Results.scores`.

    Attributes:
        dataset, fold, system: Their names in this experiment.
        seed: The seed; None where nothing about the system is random, so that one cell serves all seeds.
        key: Hash of everything that the scores depend on; the name of the cell's files.
        fingerprints: Of the "train", "valid" and "test" data.
        options: The hyper-parameters that validation chose.
        metric: What they were chosen by, on the validation data; None where the ranker does not tell.
        convention: The rules of that metric.
        valid: The value reached there.
        seconds: Time for choosing, fitting and predicting.
        message: How the solver or the boosting ended, in words.
        warnings: What was warned of on the way, each sentence once.
        candidates: One row per candidate: its hyper-parameters and "valid".
        history: Learning curves, for rankers that record them: name → value after each round.
        importances: Share of each feature, for rankers that tell.
        weights: Weight of each feature, with its sign, for linear rankers.
        meaning: What such a weight is, in words.
        feature_names: Names of the features that importances and weights belong to, features of texts included; empty
            if the features have no names.
        versions: Of toprank and of the packages that computed the cell.
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
        """Plain values that JSON can hold."""
        values: dict[str, Any] = to_json(asdict(self), repr)
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Cell:
        """The cell that `to_dict` wrote down; what it does not know is passed over."""
        known = {field.name for field in fields(cls)}
        given = {name: value for name, value in values.items() if name in known}
        for name in ("warnings", "candidates", "importances", "weights", "feature_names"):
            given[name] = tuple(given.get(name, ()))
        return cls(**given)


@dataclass(frozen=True)
class Failure:
    """A cell that could not be computed, and why, in a sentence."""

    dataset: str
    fold: str
    system: str
    seed: int | None
    error: str


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

    def results_of(self, key: str) -> Path:
        """Where the results of one experiment are, until it is run again."""
        return self.folder / f"results-{key}.parquet"

    def model(self, key: str) -> Path:
        """Where the fitted ranker of a cell is, if it is kept."""
        return self._file(key, ".toprank")

    def write(
        self, key: str, record: dict[str, Any], scores: FloatArray, relevance: FloatArray | None, ranker: Ranker | None
    ) -> None:
        """Write a finished cell; None for `relevance`: no probabilities; for `ranker`: it is not kept."""
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
        except (ToprankError, AttributeError) as problem:  # a classifier inside, or a ranker of someone else
            if isinstance(problem, FileError):
                raise
            return f"not kept: {problem}"
        return "kept"

    def read(self, key: str, with_model: bool) -> dict[str, Any] | None:
        """The record of a finished cell; None where it must be computed (again)."""
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
        """The test scores of a finished cell."""
        try:
            return _load(self._file(key, ".npy"))
        except (OSError, ValueError, EOFError):
            raise FileError(
                f"The scores of this cell are not in {self.folder} any more; run the experiment again."
            ) from None

    def relevance(self, key: str) -> FloatArray | None:
        """P(grade ≥ 1) of the test documents; None where the ranker gives no probabilities."""
        try:
            return _load(self._file(key, ".relevance.npy"))
        except (OSError, ValueError, EOFError):
            return None

    def write_test(self, fingerprint: str, test: RankingData) -> None:
        """Keep what judging needs of a test set, once."""
        path = self._test(fingerprint)
        if not path.exists():
            write_store(test, path)

    def test(self, fingerprint: str) -> RankingData:
        """Labels, queries and ids of a test set, without features."""
        try:
            kept = open_store(self._test(fingerprint))
            return kept.replace(source_rows=None)  # two sources may make the same test data
        except (FileError, FormatError):
            raise FileError(
                f"The test labels of this fold are not in {self.folder} any more; run the experiment again."
            ) from None

    def _file(self, key: str, suffix: str) -> Path:
        return self.folder / "cells" / f"{key}{suffix}"

    def _test(self, fingerprint: str) -> Path:
        return self.folder / "tests" / f"{fingerprint}{SUFFIX}"


def _load(path: Path) -> FloatArray:
    column: FloatArray = np.load(path, allow_pickle=False)
    return column
