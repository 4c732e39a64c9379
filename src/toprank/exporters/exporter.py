"""`export`: write a ranker as a file for another system, checked against `predict` before the file gets its name."""

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
from toprank.exporters.float32 import coarse_features
from toprank.exporters.formats import Prepared, format_named, names
from toprank.exporters.parity import ComparedRows, Parity, compared, rows_to_compare
from toprank.rankers.base import Ranker
from toprank.rankers.formula import formula_of

_SELF_TEST = 60  # rows in the file beside the model


class DifferenceWarning(UserWarning):
    """An exported file scores some rows differently from `predict`."""


class DifferenceError(DataError):
    """An export was not written because it does not score as `predict` does; `parity` says where."""

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
    allow_changes: bool = True,
) -> Parity:
    """Write a fitted ranker in the format of another system. The file takes raw features, as `predict` does.

    Before the file gets its name it is scored, by the other system itself if that is installed, and compared with
    `predict`: on rows that walk to every split of every tree, on odd rows and, with `check`, on data. If the other
    system computes in double precision, a difference is an error and nothing is written.

    Args:
        ranker: a fitted ranker, or the result of `toprank.auto`; its scores must not depend on the other documents of
            the query.
        to: the format: see `toprank.exporters.names()`.
        path: the file to write.
        check: a `RankingData` to compare on as well. Its first rows and some of the probe rows, with their scores, are
            written beside the model (``FILE.check.json``), for a test where the file is used.
        server_version: the version of Elasticsearch, OpenSearch …, if the format depends on it.
        allow_changes: whether to write the file with a `DifferenceWarning` even if the other system cannot score every
            row as the model does, or if nothing is there to score it.

    Returns:
        The result of the comparison.

    Raises:
        DifferenceError: nothing was written because scores differ; its `parity` says where.

    >>> import tempfile, toprank as tr
    >>> data = tr.synthetic(n_queries=30, seed=0)
    >>> ranker = tr.LinearRanker().fit(data)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     parity = tr.export(ranker, "python", f"{folder}/model.py", check=data)
    >>> parity.rows_beyond, parity.rankings_changed
    (0, 0)
    """
    format = format_named(to)
    if not isinstance(path, str | PathLike):
        raise DataError(f"Give the path of the file to write, such as 'model{format.suffix}', not {path!r}.")
    if check is not None and not isinstance(check, RankingData):
        raise DataError("check must be a RankingData to compare on: tr.read(file), or tr.RankingData(X, qid=qid).")
    check_name(path)
    place = Path(fspath(path))
    if isdir(place):
        raise FileError(f"{place} is a folder; name a file in it, for example {place / ('model' + format.suffix)}.")
    ranker = _chosen(ranker)
    formula = formula_of(ranker, place.stem)
    check = None if check is None else _of_its_features(ranker, check)
    prepared = format.prepared(formula, server_version, check)
    prepared = replace(prepared, remarks=(*prepared.remarks, *_about_precision(prepared), *_about_words(ranker)))
    rows = rows_to_compare(ranker, prepared, check)
    with tempfile.TemporaryDirectory(prefix="toprank_export_") as folder:
        trial = Path(folder) / place.name
        _write(trial, prepared.files)
        parity = compared(format.name, prepared, trial, rows)
    _judge(parity, prepared, allow_changes)
    self_test = _self_test(format.name, prepared, rows)
    _write(place, prepared.files)
    if check is not None:
        with output(place.with_name(place.name + ".check.json")) as stream:
            stream.write(self_test)
    return parity


def refusals(ranker: Any, versions: Mapping[str, str] | None = None) -> dict[str, str | None]:
    """Return for each format why it cannot hold a ranker; None if it can.

    Args:
        ranker: a fitted ranker.
        versions: the version of the server, by format.

    >>> import toprank as tr
    >>> ranker = tr.LinearRanker().fit(tr.synthetic(n_queries=20, seed=0))
    >>> [name for name, reason in refusals(ranker).items() if reason is None and name in ("json", "xgboost")]
    ['json']
    """
    formula, servers = formula_of(_chosen(ranker)), versions or {}
    return {name: format_named(name).refusal(formula, servers.get(name)) for name in names()}


def _chosen(ranker: Any) -> Ranker:
    """Return the ranker itself, or the one that a search such as `toprank.auto` chose."""
    chosen = ranker if isinstance(ranker, Ranker) else getattr(ranker, "ranker", None)
    if not isinstance(chosen, Ranker):
        raise DataError(
            f"Only rankers of toprank can be exported, not a {type(ranker).__name__}. Of a pipeline export the ranker, "
            "and give the file features as the steps before it make them."
        )
    return chosen


def _about_words(ranker: Ranker) -> list[str]:
    """Say which inputs of the file are numbers made of words."""
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


def _of_its_features(ranker: Ranker, data: RankingData) -> RankingData:
    """Return data in the columns of the ranker; a model of RankLib knows only the first columns of the data."""
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


def _about_precision(prepared: Prepared) -> tuple[str, ...]:
    if prepared.single:
        return coarse_features(prepared.formula)
    if not prepared.adds_otherwise:
        return ()
    return (
        "The model rounds its sum to single precision after each tree, and this format adds in double precision: "
        "scores agree to about six digits, and documents closer than that can change places. In c and python they are "
        "equal.",
    )


def _judge(parity: Parity, prepared: Prepared, allowed: bool) -> None:
    """Refuse a difference that must not be; warn of one that single precision, or what the format lacks, explains."""
    probes = [kind for kind in parity.kinds if kind.kind != "data" and not kind.excluded]
    rounds = prepared.single or prepared.adds_otherwise
    network = prepared.formula.has_network  # tells some documents apart by a hair, whose order rounding may turn
    if not rounds and any(kind.rows_beyond or (kind.rankings_changed and not network) for kind in probes):
        raise DifferenceError(
            f"The export was not written: it does not score as the model does. {parity}\n"
            "This is a fault of toprank, not of the model; please report it with the model.",
            parity,
        )
    if parity.holds or (allowed and not parity.kinds):
        return
    problem = (
        f"The format {parity.format} does not score every row as the model does: {parity.rows_beyond:,} of "
        f"{parity.rows:,} rows differ by more than {parity.tolerance:g}, {parity.rankings_changed:,} of "
        f"{parity.rankings:,} rankings change."
    )
    if not parity.kinds:
        problem = f"The export could not be checked: there is no {parity.interpreter} here to score it."
    if not allowed:
        raise DifferenceError(
            f"{problem} Nothing was written;",
            parity,
            remedy=Remedy("{allow_changes} writes it all the same.", allow_changes=True),
        )
    warn_user(f"{problem} Print what export returns to see which.", DifferenceWarning)


def _self_test(format: str, prepared: Prepared, rows: ComparedRows) -> bytes:
    """Return rows of each kind with their scores, for tests where the file is used; a missing value is null."""
    formula = prepared.formula
    excluded = np.isin(rows.kinds, list(prepared.excluded))
    kinds = [np.flatnonzero((rows.kinds == kind) & ~excluded) for kind in dict.fromkeys(rows.kinds.tolist())]
    each = max(1, _SELF_TEST // max(1, len(kinds)))
    chosen = np.sort(np.concatenate([places[:each] for places in kinds]))
    chosen = chosen[~np.isinf(rows.take(chosen)).any(axis=1)]  # JSON has no word for them
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
    listed = ",\n  ".join(json.dumps(row, ensure_ascii=False, allow_nan=False) for row in values)  # a row a line
    return (text.replace('"rows": "rows"', f'"rows": [\n  {listed}\n ]', 1) + "\n").encode()
