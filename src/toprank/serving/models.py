"""Models of a service: read from files, tested before use, and replaced when their files are.

A replaced file is read while the old model serves. The new model is used only if it passes its self-test and uses the
same columns; otherwise the old one stays, and the reason is logged.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from toprank.compute import FloatArray
from toprank.data.bytesource import file_signature, output
from toprank.data.roles import Roles
from toprank.errors import DataError, FormatError, ToprankError, closest_match
from toprank.metrics.sorting import rank_block
from toprank.rankers.model_files import digest_of, load
from toprank.serving.requests import RefusedError
from toprank.serving.rows import ModelColumns

_ROWS = 100  # Number of rows in the self-test.
_TOLERANCE = 1e-9  # Relative tolerance of the scores of a check file: other machines round the last bits differently.
_SLOW = 0.005  # Seconds for the rows of the self-test beyond which a model is scored on a thread.
_TRIES = 5
_ONE_QUERY = (0, 1)  # Offsets of a single query.


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A model in use.

    Attributes:
        version: first digits of the SHA-256 of the file.
        slow: whether scoring takes, or may take for many documents, so long that it must not block other requests.
        signature: signatures of the files when they were read.
    """

    name: str
    path: Path
    ranker: Any
    version: str
    columns: ModelColumns
    slow: bool
    signature: tuple[Any, ...]

    def scores(self, X: FloatArray) -> FloatArray:
        """Return the scores of the documents of one query."""
        try:
            return _scores(self.ranker, X)
        except DataError as problem:
            raise RefusedError(422, str(problem)) from None

    def order(self, scores: FloatArray, top: int | None = None) -> list[int]:
        """Return the rows by decreasing score; equal scores keep their order, as everywhere in toprank."""
        n = len(scores)
        ranked = rank_block(scores, np.array([0, n]), _ONE_QUERY, top, keep_ties=False)
        places: list[int] = ranked.order[: n if top is None else min(top, n)].tolist()
        return places

    def described(self) -> dict[str, Any]:
        """Return the properties of the model for clients."""
        names = self.columns.names
        return {
            "name": self.name,
            "version": self.version,
            "kind": type(self.ranker).__name__,
            "n_features": self.columns.count,
            "features": None if names is None else list(names),
            **self.columns.described(),
            "needs_query": bool(self.ranker.uses_query_context),
            "trained_on": {
                key: value for key, value in self.ranker.training_.items() if key in ("queries", "documents", "system")
            },
        }


def _scores(ranker: Any, X: FloatArray) -> FloatArray:
    with np.errstate(all="ignore"):  # Overflow is reported as an error.
        return np.asarray(ranker.query_scores(X))


def named_files(given: Sequence[str]) -> dict[str, Path]:
    """Return model files by name: NAME=FILE, or a file whose stem is the name.

    >>> named_files(["models/a.toprank", "b=models/x.toprank"])
    {'a': PosixPath('models/a.toprank'), 'b': PosixPath('models/x.toprank')}
    """
    files: dict[str, Path] = {}
    for text in given:
        name, equals, path = text.partition("=")
        if not equals or "/" in name:
            name, path = Path(text).stem, text
        if not name or not path:
            raise DataError(f"'{text}' is not a model. Give a file, or NAME=FILE.")
        if name in files:
            raise DataError(f"Two models are called '{name}'. Name them: toprank serve one={path} two=….")
        files[name] = Path(path)
    return files


class Models:
    """The models of a service by name; the first is used if a request names none."""

    def __init__(self, files: Mapping[str, Path], *, may_be_none: bool = False) -> None:
        if not files and not may_be_none:
            raise DataError("A service needs at least one model.")
        self.primary = next(iter(files), "")
        self._served = {name: read_model(name, path) for name, path in files.items()}
        self._refused: dict[str, tuple[Any, ...]] = {}

    def __iter__(self) -> Any:
        return iter(self._served.values())

    def get(self, name: str | None) -> LoadedModel:
        """Return the model of a name, or the primary one for None."""
        served = self._served.get(self.primary if name is None else name)
        if served is None and not self._served:
            raise RefusedError(404, "This service has no model for documents in a request.")
        if served is None:
            close = closest_match(str(name), self._served)
            hint = f"did you mean '{close}'?" if close else f"known: {', '.join(self._served)}."
            raise RefusedError(404, f"There is no model called '{name}'; {hint}")
        return served

    def changed(self) -> list[str]:
        """Return the models whose files differ from the loaded ones and from those rejected last."""
        names = []
        for name, served in self._served.items():
            now = signature_of(served.path)
            if now not in (served.signature, self._refused.get(name)):
                names.append(name)
        return names

    def reload(self, name: str) -> LoadedModel:
        """Read a model again; raise an error with the reason if the old one is kept."""
        old = self._served[name]
        before = signature_of(old.path)
        try:
            new = read_model(name, old.path)
            _check_same_columns(new, old)
        except ToprankError:
            self._refused[name] = before
            raise
        self._refused.pop(name, None)
        self._served[name] = new
        return new


def _check_same_columns(new: LoadedModel, old: LoadedModel) -> None:
    if not new.columns.accepts_same_requests(old.columns):
        raise DataError(
            f"{new.path}: the new model uses other columns than the current one, so clients would have to change. "
            "Start a separate service for it."
        )


# ---- reading and testing ----


def check_file(path: Path) -> Path:
    """Return the path of the check file of a model, which contains rows and their expected scores."""
    return path.with_name(path.name + ".check.json")


def signature_of(path: Path) -> tuple[Any, ...]:
    """Return a signature that changes when a model file or its check file is replaced."""
    return file_signature(path), file_signature(check_file(path))


def _digest(path: Path) -> str:
    try:
        return digest_of(path)
    except OSError:
        return ""  # Reading the file will report the error.


def read_model(name: str, path: Path) -> LoadedModel:
    """Read a model and run its self-test, retrying if the file changes meanwhile."""
    for _ in range(_TRIES):
        signature, digest = signature_of(path), _digest(path)
        ranker = load(path)
        if _digest(path) == digest and signature_of(path) == signature:
            break
    else:
        raise FormatError("The file changes while it is being read.", path=path)
    columns = _columns_of(ranker)
    _self_test(ranker, path, digest)
    X = np.zeros((_ROWS, ranker.n_features_in_))
    _scores(ranker, X)  # Warm up before the first request.
    start = time.perf_counter()
    _scores(ranker, X)
    # The time of a model that uses the whole query grows with the square of the number of documents.
    slow = ranker.uses_query_context or time.perf_counter() - start > _SLOW
    return LoadedModel(name, path, ranker, digest[:12], columns, slow, signature)


def _columns_of(ranker: Any) -> ModelColumns:
    """Return the columns that requests must contain: the features without those computed from text."""
    text, roles = ranker.text_, Roles.from_plain(ranker.training_.get("columns"))
    if text is None:
        names = getattr(ranker, "feature_names_in_", None)
        return ModelColumns(names, ranker.n_features_in_, ranker.encoding_, roles=roles)
    own = text.original
    return ModelColumns(own.feature_names, text.n_original, own.encoding, text, roles)


def _self_test(ranker: Any, path: Path, digest: str) -> None:
    """Reject a model whose scores are not finite or differ from its check file."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(_ROWS, ranker.n_features_in_))
    X[rng.random(X.shape) < 0.1] = np.nan if ranker.supports_missing else 0.0
    try:
        scores = _scores(ranker, X)
    except DataError as problem:
        raise FormatError(f"The model fails its self-test: {problem}", path=path) from None
    if scores.shape != (_ROWS,) or not np.isfinite(scores).all():
        raise FormatError("The model fails its self-test: not all scores are finite.", path=path)
    beside = check_file(path)
    if not beside.exists():
        return
    rows, wanted, tolerance = _read_check(beside, digest, ranker.n_features_in_)
    scores = _scores(ranker, rows)
    far = np.abs(scores - wanted) > tolerance * np.maximum(1.0, np.abs(wanted))
    if far.any():
        row = int(np.argmax(far))
        raise FormatError(
            f"The model fails its self-test: the score of row {row} (from 0) of {beside.name} is {scores[row]}, but "
            f"{wanted[row]} is expected.",
            path=path,
        )


def _read_check(path: Path, digest: str, width: int) -> tuple[FloatArray, FloatArray, float]:
    """Return the rows of a check file, the expected scores and the tolerance; files written by exports have no model
    hash.
    """
    try:
        check = json.loads(path.read_bytes())
        model, tolerance = check.get("model", digest), float(check.get("tolerance", _TOLERANCE))
        rows, scores = np.array(check["rows"], dtype=np.float64), np.array(check["scores"], dtype=np.float64)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise FormatError(
            'The file must have the form {"model": sha256, "rows": [[…]], "scores": […]}.', path=path
        ) from None
    if model != digest:
        raise FormatError("The check file belongs to another model file. Write it again, or remove it.", path=path)
    if rows.ndim != 2 or rows.shape[1] != width or scores.shape != (len(rows),) or not np.isfinite(scores).all():
        raise FormatError(f"The file must contain rows of {width} values, and a finite score for each.", path=path)
    if not 0.0 <= tolerance < np.inf:
        raise FormatError(f"The tolerance of a check file must be 0 or larger, not {tolerance}.", path=path)
    return rows, scores, tolerance


def write_check(model: str | os.PathLike[str], X: Any) -> Path:
    """Write the check file of a model: rows, and the scores that the model computes for them as one query.

    A service does not load the model if it computes other scores, for example on a different machine or from a damaged
    copy.

    Args:
        model: path of the model file.
        X: a few rows of features, NaN if missing.

    >>> import tempfile, toprank as tr
    >>> data = tr.synthetic(n_queries=5, seed=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     tr.LinearRanker().fit(data).save(f"{folder}/m.toprank")
    ...     write_check(f"{folder}/m.toprank", data.X[:5]).name
    'm.toprank.check.json'
    """
    path = Path(model)
    ranker = load(path)
    try:
        rows = np.array(X, dtype=np.float64, ndmin=2)
    except (TypeError, ValueError):
        rows = np.empty(0)
    if rows.ndim != 2:
        raise DataError("X must contain rows of numbers, such as data.X[:5].")
    if not len(rows):
        raise DataError("X has no rows. A check file needs at least one.")
    if rows.shape[1] != ranker.n_features_in_:
        raise DataError(f"The rows have {rows.shape[1]} columns, but the model takes {ranker.n_features_in_}.")
    check = {
        "model": _digest(path),
        "rows": [[None if np.isnan(value) else value for value in row] for row in rows.tolist()],
        "scores": np.asarray(ranker.query_scores(rows)).tolist(),
    }
    with output(check_file(path)) as stream:
        stream.write(json.dumps(check, allow_nan=False).encode())
    return check_file(path)
