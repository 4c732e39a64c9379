"""Leakage checks: training rows and queries among evaluation data, found by the hashes that a ranker stores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from toprank.data.arrays import identifiers
from toprank.data.dataset import RankingData
from toprank.data.hashes import QUERIES, ROWS, KnownQueries, KnownRows, is_numbering, row_hashes
from toprank.data.metadata import judges_of
from toprank.data.warnings import SameDataWarning, SameJudgeWarning, SplitQueriesWarning
from toprank.errors import Remedy, join_parts, refuse_if, warn_user

if TYPE_CHECKING:
    from toprank.rankers.base import Ranker

_MIN_KNOWN = 5  # queries or rows comparable with the training data
_MIN_QUERY_SHARE = 0.5  # of the comparable queries that were trained on
_MIN_CHANGED, _MIN_CHANGED_SHARE = 3, 0.03  # queries whose rows differ from training
_MIN_ROW_SHARE = 0.8  # of the comparable rows that were trained on


def warn_of_same_data() -> None:
    """Warn that the validation data are the training data."""
    warn_user(
        join_parts(
            "The validation data are the training data, so a selection on them does not generalize to new "
            "queries. Hold out",
            Remedy("some queries: train, valid = tr.split(data).", "some queries."),
        ),
        SameDataWarning,
    )


def warn_of_same_judge(ranker: Ranker, data: RankingData) -> None:
    """Warn if the labels come from a judge whose labels were trained on, by a metadata column ``judge``."""
    shared = sorted({*judges_of(data.metadata)} & {*ranker.training_.get("judges", ())})
    if shared:
        ranker.warn_once(
            f"These labels come from {', '.join(shared)}, whose labels the ranker was trained on. That "
            "overestimates it, since it has learned this judge's mistakes; evaluate on labels of another judge.",
            SameJudgeWarning,
        )


def warn_of_split_queries(ranker: Ranker, X: Any, qid: Any = None) -> None:
    """Warn if queries of the training data reappear with other rows; see `Ranker.score`."""
    kept = KnownQueries.from_plain(ranker.training_.get(QUERIES))
    if kept is None or (qid is None and not isinstance(X, RankingData)):
        return
    of_rows = None if isinstance(X, RankingData) else identifiers(qid, np.size(qid), "qid")
    qids = X.qids if of_rows is None else np.unique(of_rows)
    places, n_known = kept.places(qids)
    if is_numbering(qids) or n_known < _MIN_KNOWN or (places >= 0).sum() < _MIN_QUERY_SHARE * n_known:
        return
    data = ranker.translated(X) if of_rows is None else RankingData(ranker._rows(X), qid=of_rows)
    places, _ = kept.places(data.qids)
    changed = kept.n_unknown(data.select(places >= 0), places[places >= 0])
    if changed >= max(_MIN_CHANGED, _MIN_CHANGED_SHARE * n_known):
        ranker.warn_once(
            "Most of these queries were in the training data with other rows: the data were split within "
            "queries, which overestimates the metric. Split by query: train, test = tr.split(data, (0.8, "
            "0.2)); in scikit-learn, GroupKFold() or GroupShuffleSplit() with groups=qid.",
            SplitQueriesWarning,
        )


def check_held_out(ranker: Ranker, held_out: RankingData) -> None:
    """Refuse rows that were trained on, in any order and among other rows; warn if only some of them were."""
    back = "Calibrate on held-out queries: train, valid = tr.split(data, (0.8, 0.2))."
    training_rows = KnownRows.from_plain(ranker.training_.get(ROWS))
    met = training_rows.matches(row_hashes(ranker.translated(held_out).X), held_out.labels)
    same = held_out.fingerprint == ranker.training_.get("fingerprint")
    resampled = met.relabeled > 0.1 * (met.seen + met.relabeled)  # the same documents with new labels are held-out data
    few = met.decidable < _MIN_KNOWN or resampled
    refuse_if(
        same or (not few and met.seen >= _MIN_ROW_SHARE * met.decidable and training_rows.repeated <= 0.5),
        f"All or nearly all of these documents were trained on, which overestimates the ranker. {back}",
    )
    if not few and met.seen > (training_rows.repeated + 0.1) * met.decidable:
        warn_user(
            f"About {met.seen / met.decidable:.0%} of the calibration documents were trained on, which overestimates "
            f"the ranker. {back}",
            SameDataWarning,
        )
