"""`export`: write a ranker to a file for another system, and compare the file's scores with `predict` first."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from os import PathLike, fspath
from os.path import isdir
from pathlib import Path
from typing import Any

import numpy as np

from toprank.data.bytesource import check_name, output
from toprank.data.dataset import RankingData
from toprank.errors import DataError, FileError, Remedy, warn_user
from toprank.exporters.float32 import imprecise_feature_remarks
from toprank.exporters.formats import PreparedModel, get_format, names
from toprank.exporters.parity import ComparedRows, Parity, measure_parity, rows_to_compare
from toprank.rankers.base import Ranker
from toprank.rankers.formula import formula_of

_N_SELF_TEST_ROWS = 60  # rows written to FILE.check.json


class ParityWarning(UserWarning):
    """The scores of an exported file differ from `predict` in some rows."""


class ParityError(DataError):
    """Raised when an export is not written because its scores differ from `predict`; `parity` has the comparison."""

    def __init__(self, problem: str, parity: Parity, *, remedy: str = "") -> None:
        super().__init__(problem, remedy=remedy)
        self.parity = parity


def export(
    ranker: Any,
    to: str,
    path: str | PathLike[str],
    *,
    check: Any = None,
    server_version: str | None = None,
    allow_mismatches: bool = True,
) -> Parity:
    """Write a fitted ranker in the format of another system. The file takes raw features, as `predict` does.

    Before the file is put in place, it is scored, by the other system itself if that is installed, and compared with
    `predict`: on rows that reach every split of every tree, on unusual rows, and on `check` if given. If the other
    system computes in double precision, any difference is an error and nothing is written.

    Args:
        ranker: a fitted ranker, or the result of `toprank.auto`. Its scores must not depend on the other documents of
            the query.
        to: the format; see `toprank.exporters.names()`.
        path: the file to write.
        check: a `RankingData` to compare on as well. Its first rows and some generated rows, with their scores, are
            written to ``FILE.check.json``, for a test where the file is used. Default: generated rows only.
        server_version: the version of Elasticsearch, OpenSearch or Solr. Default: the file works on every supported
            version.
        allow_mismatches: if True (default), write the file with a `ParityWarning` even if some rows score differently
            in the other system, or if it is not installed to score them. If False, raise `ParityError` instead.

    Returns:
        The result of the comparison.

    Raises:
        ParityError: scores differ; the file was not written, and `parity` lists the differences.

    >>> import tempfile, toprank as tr
    >>> data = tr.synthetic(n_queries=30, seed=0)
    >>> ranker = tr.LinearRanker().fit(data)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     parity = tr.export(ranker, "python", f"{folder}/model.py", check=data)
    >>> parity.n_mismatches, parity.rankings_changed
    (0, 0)
    """
    format = get_format(to)
    if not isinstance(path, str | PathLike):
        raise DataError(f"path must be the name of the file to write, such as 'model{format.suffix}', not {path!r}.")
    if check is not None and not isinstance(check, RankingData):
        raise DataError(
            "check must be a RankingData; read it with tr.read(file) or make it with tr.RankingData(X, qid=qid)."
        )
    check_name(path)
    place = Path(fspath(path))
    if isdir(place):
        raise FileError(f"{place} is a folder; name a file in it, for example {place / ('model' + format.suffix)}.")
    ranker = _fitted_ranker(ranker)
    formula = formula_of(ranker, place.stem)
    check = None if check is None else _select_features(ranker, check)
    prepared = format.prepare(formula, server_version, check)
    prepared = replace(prepared, remarks=(*prepared.remarks, *_precision_remarks(prepared), *_text_remarks(ranker)))
    rows = rows_to_compare(ranker, prepared, check)
    with tempfile.TemporaryDirectory(prefix="toprank_export_") as folder:
        trial = Path(folder) / place.name
        _write(trial, prepared.files)
        parity = measure_parity(format.name, prepared, trial, rows)
    _check_parity(parity, prepared, allow_mismatches)
    self_test = _self_test(format.name, prepared, rows)
    _write(place, prepared.files)
    if check is not None:
        with output(place.with_name(place.name + ".check.json")) as stream:
            stream.write(self_test)
    return parity


def unsupported_reasons(ranker: Any, versions: Mapping[str, str] | None = None) -> dict[str, str | None]:
    """Return, for each format, the reason why it cannot represent a ranker, or None if it can.

    Args:
        ranker: a fitted ranker.
        versions: the version of the server, by format.

    >>> import toprank as tr
    >>> ranker = tr.LinearRanker().fit(tr.synthetic(n_queries=20, seed=0))
    >>> [name for name, reason in unsupported_reasons(ranker).items() if reason is None and name in ("json", "xgboost")]
    ['json']
    """
    formula, servers = formula_of(_fitted_ranker(ranker)), versions or {}
    return {name: get_format(name).unsupported_reason(formula, servers.get(name)) for name in names()}


def _fitted_ranker(ranker: Any) -> Ranker:
    """Return the ranker itself, or the one selected by a search such as `toprank.auto`."""
    chosen = ranker if isinstance(ranker, Ranker) else getattr(ranker, "ranker", None)
    if not isinstance(chosen, Ranker):
        raise DataError(
            f"Only rankers of toprank can be exported, not a {type(ranker).__name__}. To export a pipeline, export "
            "its ranker and compute the earlier steps before scoring with the file."
        )
    return chosen


def _text_remarks(ranker: Ranker) -> list[str]:
    """Describe the inputs of the file that are computed from text."""
    if ranker.text_ is None:
        return []
    roles, statistics = ranker.text_.roles, ranker.text_.match.statistics
    listed = "; ".join(f"{name}: {meaning}" for name, meaning in ranker.text_.descriptions().items())
    return [
        f"{len(ranker.text_.names)} inputs are made of words: whoever calls the file computes them from the query's "
        f"text ('{roles.query}') and the texts of the document, with the counts of the {statistics.n_documents:,} "
        "documents of the training data (ranker.text_.match), or has toprank serve the model, which computes them. "
        f"They are: {listed}."
    ]


def _select_features(ranker: Ranker, data: RankingData) -> RankingData:
    """Return the data with the ranker's columns; a RankLib model may use only the first columns of the data."""
    own: RankingData = ranker.translated(data)
    n, names = ranker.n_features_in_, own.feature_names
    if own.n_features == n:
        return own
    return own.replace(X=own.X[:, :n], feature_names=None if names is None else names[:n])


def _write(place: Path, files: Mapping[str, bytes]) -> None:
    for beside, content in files.items():
        file = place.with_name(place.stem + beside) if beside else place
        with output(file, compress=False) as stream:
            stream.write(content)


def _precision_remarks(prepared: PreparedModel) -> tuple[str, ...]:
    if prepared.single:
        return imprecise_feature_remarks(prepared.formula)
    if not prepared.sums_differ:
        return ()
    return (
        "The model rounds its sum to single precision after each tree, and this format adds in double precision: "
        "scores agree to about six digits, and documents with closer scores may swap. The formats c and python "
        "reproduce the sums exactly.",
    )


def _check_parity(parity: Parity, prepared: PreparedModel, allowed: bool) -> None:
    """Raise an error if scores must not differ; warn if single precision or a limit of the format explains it."""
    probes = [kind for kind in parity.kinds if kind.kind != "data" and not kind.excluded]
    rounds = prepared.single or prepared.sums_differ
    network = prepared.formula.has_network  # Scores of some documents differ by a hair, and rounding may reorder them.
    if not rounds and any(kind.n_mismatches or (kind.rankings_changed and not network) for kind in probes):
        raise ParityError(
            f"The export was not written: its scores differ from the model's. {parity}\nThis is a bug in toprank, not "
            "in the model; please report it with the model.",
            parity,
        )
    if parity.passed or (allowed and not parity.kinds):
        return
    problem = (
        f"The format {parity.format} does not score every row as the model does: {parity.n_mismatches:,} of "
        f"{parity.rows:,} rows differ by more than {parity.tolerance:g}, {parity.rankings_changed:,} of "
        f"{parity.rankings:,} rankings change."
    )
    if not parity.kinds:
        problem = f"The export could not be checked: there is no {parity.interpreter} here to score it."
    if not allowed:
        raise ParityError(
            f"{problem} Nothing was written;",
            parity,
            remedy=Remedy("{allow_mismatches} writes it anyway.", allow_mismatches=True),
        )
    warn_user(f"{problem} Print the result of export for details.", ParityWarning)


def _self_test(format: str, prepared: PreparedModel, rows: ComparedRows) -> bytes:
    """Return rows of each kind with their scores, for tests where the file is used; missing values are null."""
    formula = prepared.formula
    excluded = np.isin(rows.kinds, list(prepared.excluded))
    kinds = [np.flatnonzero((rows.kinds == kind) & ~excluded) for kind in dict.fromkeys(rows.kinds.tolist())]
    each = max(1, _N_SELF_TEST_ROWS // max(1, len(kinds)))
    chosen = np.sort(np.concatenate([places[:each] for places in kinds]))
    chosen = chosen[~np.isinf(rows.take(chosen)).any(axis=1)]  # JSON cannot represent infinity.
    values: list[list[Any]] = [
        [None if np.isnan(value) else value for value in row] for row in rows.take(chosen).tolist()
    ]
    for name, levels in formula.levels.items() if prepared.texts else ():
        place = formula.features.index(name)
        for row in values:
            row[place] = None if row[place] is None else levels[int(row[place])]
    content = {
        "format": format,
        "features": list(formula.features),
        "tolerance": prepared.tolerance,
        "rows": "rows",
        "scores": (rows.expected[chosen] - prepared.constant).tolist(),
    }
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, indent=1)
    listed = ",\n  ".join(json.dumps(row, ensure_ascii=False, allow_nan=False) for row in values)  # one row per line
    return (text.replace('"rows": "rows"', f'"rows": [\n  {listed}\n ]', 1) + "\n").encode()
