"""The models that a service answers with: read from files, tested before they serve, replaced when their file is.

A file that is replaced is read beside the model that serves. It takes over only where it passes its self-test and takes
the same columns; otherwise the old one goes on, and the reason is told.
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
from toprank.errors import DataError, FormatError, ToprankError, closest_match
from toprank.metrics.sorting import rank_block
from toprank.rankers.model_files import digest_of, load
from toprank.serving.requests import RefusedError
from toprank.serving.rows import ModelColumns

_ROWS = 100  # of a self-test
_TOLERANCE = 1e-9  # relative, of the scores of a check file: other machines round the last bits otherwise
_SLOW = 0.005  # seconds for so many rows, beyond which a model is asked on a thread of its own
_TRIES = 5
_ONE_QUERY = (0, 1)  # its offsets


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A model that answers.

    Attributes:
        version: The first digits of the SHA-256 of its file.
        slow: Whether scoring takes so long, or may for many documents, that others should not wait for it.
        signature: What the files were when they were read.
    """

    name: str
    path: Path
    ranker: Any
    version: str
    columns: ModelColumns
    slow: bool
    signature: tuple[Any, ...]

    def scores(self, X: FloatArray) -> FloatArray:
        """The scores of the documents of one query."""
        try:
            return _scores(self.ranker, X)
        except DataError as problem:
            raise RefusedError(422, str(problem)) from None

    def order(self, scores: FloatArray, top: int | None = None) -> list[int]:
        """Rows, best first; equal scores in the order given, as everywhere in toprank."""
        n = len(scores)
        ranked = rank_block(scores, np.array([0, n]), _ONE_QUERY, top, keep_ties=False)
        places: list[int] = ranked.order[: n if top is None else min(top, n)].tolist()
        return places

    def described(self) -> dict[str, Any]:
        """What a client may want to know."""
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
    with np.errstate(all="ignore"):  # what overflows is refused, in a sentence
        return np.asarray(ranker.query_scores(X))


def named_files(given: Sequence[str]) -> dict[str, Path]:
    """Models by name: NAME=FILE, or a file whose name without its suffix is the model's.

    >>> named_files(["models/a.toprank", "b=models/x.toprank"])
    {'a': PosixPath('models/a.toprank'), 'b': PosixPath('models/x.toprank')}
    """
    files: dict[str, Path] = {}
    for text in given:
        name, equals, path = text.partition("=")
        if not equals or "/" in name:
            name, path = Path(text).stem, text
        if not name or not path:
            raise DataError(f"'{text}' is no model; give a file, or NAME=FILE.")
        if name in files:
            raise DataError(f"Two models would be called '{name}'; name them: toprank serve one={path} two=….")
        files[name] = Path(path)
    return files


class Models:
    """The models of a service by name; the first is the one that answers where a request names none."""

    def __init__(self, files: Mapping[str, Path], *, may_be_none: bool = False) -> None:
        if not files and not may_be_none:
            raise DataError("A service needs at least one model.")
        self.primary = next(iter(files), "")
        self._served = {name: read_model(name, path) for name, path in files.items()}
        self._refused: dict[str, tuple[Any, ...]] = {}

    def __iter__(self) -> Any:
        return iter(self._served.values())

    def get(self, name: str | None) -> LoadedModel:
        """The model of a name; without a name, the primary one."""
        served = self._served.get(self.primary if name is None else name)
        if served is None and not self._served:
            raise RefusedError(404, "This service ranks no documents that a request brings: it has no model for them.")
        if served is None:
            close = closest_match(str(name), self._served)
            hint = f"did you mean '{close}'?" if close else f"known: {', '.join(self._served)}."
            raise RefusedError(404, f"There is no model called '{name}'; {hint}")
        return served

    def changed(self) -> list[str]:
        """Models whose files are other ones than those that were read, and not those that were refused last."""
        names = []
        for name, served in self._served.items():
            now = signature_of(served.path)
            if now not in (served.signature, self._refused.get(name)):
                names.append(name)
        return names

    def reload(self, name: str) -> LoadedModel:
        """Read a model again; an error says why the old one stays."""
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
            f"{new.path}: the new model takes other columns than the one that serves; clients would have to change, so "
            "start a service of its own for it."
        )


# ---- reading and testing ----


def check_file(path: Path) -> Path:
    """The file beside a model that holds rows and the scores that they must get."""
    return path.with_name(path.name + ".check.json")


def signature_of(path: Path) -> tuple[Any, ...]:
    """Return what changes when a model file or its check file is replaced."""
    return file_signature(path), file_signature(check_file(path))


def _digest(path: Path) -> str:
    try:
        return digest_of(path)
    except OSError:
        return ""  # reading it will say why


def read_model(name: str, path: Path) -> LoadedModel:
    """A model that passed its self-test; what is read is one file, not the halves of two."""
    for _ in range(_TRIES):
        signature, digest = signature_of(path), _digest(path)
        ranker = load(path)
        if _digest(path) == digest and signature_of(path) == signature:
            break
    else:
        raise FormatError("The file changes while it is read.", path=path)
    columns = _columns_of(ranker)
    _self_test(ranker, path, digest)
    X = np.zeros((_ROWS, ranker.n_features_in_))
    _scores(ranker, X)  # what is made at first use is made before the first request
    start = time.perf_counter()
    _scores(ranker, X)
    # The time of a model that uses the whole query grows with the square of the number of documents.
    slow = ranker.uses_query_context or time.perf_counter() - start > _SLOW
    return LoadedModel(name, path, ranker, digest[:12], columns, slow, signature)


def _columns_of(ranker: Any) -> ModelColumns:
    """What requests must bring: the features, without those that are made of the words that they bring."""
    text = ranker.text_
    if text is None:
        names = getattr(ranker, "feature_names_in_", None)
        return ModelColumns(names, ranker.n_features_in_, ranker.encoding_)
    own = text.original
    return ModelColumns(own.feature_names, text.n_original, own.encoding, text)


def _self_test(ranker: Any, path: Path, digest: str) -> None:
    """Refuse a model that does not give the scores of its check file, or not finite ones."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(_ROWS, ranker.n_features_in_))
    X[rng.random(X.shape) < 0.1] = np.nan if ranker.supports_missing else 0.0
    try:
        scores = _scores(ranker, X)
    except DataError as problem:
        raise FormatError(f"The model fails its self-test: {problem}", path=path) from None
    if scores.shape != (_ROWS,) or not np.isfinite(scores).all():
        raise FormatError("The model fails its self-test: it does not give a finite score for each row.", path=path)
    beside = check_file(path)
    if not beside.exists():
        return
    rows, wanted, tolerance = _read_check(beside, digest, ranker.n_features_in_)
    scores = _scores(ranker, rows)
    far = np.abs(scores - wanted) > tolerance * np.maximum(1.0, np.abs(wanted))
    if far.any():
        row = int(np.argmax(far))
        raise FormatError(
            f"The model fails its self-test: row {row} (from 0) of {beside.name} must get {wanted[row]}, but gets "
            f"{scores[row]}.",
            path=path,
        )


def _read_check(path: Path, digest: str, width: int) -> tuple[FloatArray, FloatArray, float]:
    """Rows, the scores that they must get, and how exactly; files that exports write have no hash of the model."""
    try:
        check = json.loads(path.read_bytes())
        model, tolerance = check.get("model", digest), float(check.get("tolerance", _TOLERANCE))
        rows, scores = np.array(check["rows"], dtype=np.float64), np.array(check["scores"], dtype=np.float64)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise FormatError('A check file is {"model": sha256, "rows": [[…]], "scores": […]}.', path=path) from None
    if model != digest:
        raise FormatError("The check file belongs to another model file: write both anew, or remove it.", path=path)
    if rows.ndim != 2 or rows.shape[1] != width or scores.shape != (len(rows),) or not np.isfinite(scores).all():
        raise FormatError(f"A check file has rows of {width} values, and a finite score for each.", path=path)
    if not 0.0 <= tolerance < np.inf:
        raise FormatError(f"The tolerance of a check file is a number from 0 on, not {tolerance}.", path=path)
    return rows, scores, tolerance


def write_check(model: str | os.PathLike[str], X: Any) -> Path:
    """Write the check file of a model: rows, and the scores that it gives them as one query, here and now.

    A service refuses to load the model where it gives other scores: on a machine that computes otherwise, or after a
    mistake in copying.

    Args:
        model: the model file.
        X: a few rows of features, NaN where missing.

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
        raise DataError("A check file is written of rows of numbers, such as data.X[:5].")
    if not len(rows):
        raise DataError("A check file needs a row at least.")
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
