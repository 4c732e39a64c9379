"""Training data among evaluation data: what a ranker remembers of its training is looked for in what judges it."""

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

_MIN_KNOWN = 5  # queries or rows that can be compared with those of training
_MIN_QUERY_SHARE = 0.5  # of these queries, those that were trained on
_MIN_CHANGED, _MIN_CHANGED_SHARE = 3, 0.03  # queries with other rows than in training
_MIN_ROW_SHARE = 0.8  # of the rows that can be compared, those that were trained on


def warn_of_same_data() -> None:
    """Warn that the validation data are the training data."""
    warn_user(
        join_parts(
            "The validation data are the training data: whatever is chosen on them says nothing about new "
            "queries. Hold some queries",
            Remedy("back: train, valid = tr.split(data).", "back."),
        ),
        SameDataWarning,
    )


def warn_of_same_judge(ranker: Ranker, data: RankingData) -> None:
    """Warn if the labels are of a judge whose labels were trained on, according to a metadata column ``judge``."""
    shared = sorted({*judges_of(data.metadata)} & {*ranker.training_.get("judges", ())})
    if shared:
        ranker.warn_once(
            f"These labels are of {', '.join(shared)}, whose labels the ranker was trained on: it looks better "
            "than it is, since it learned the judge's mistakes, too. Evaluate on labels of somebody else.",
            SameJudgeWarning,
        )


def warn_of_split_queries(ranker: Ranker, X: Any, qid: Any = None) -> None:
    """Warn if queries that `fit` saw come with other rows; see `Ranker.score`."""
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
            "Most of these queries were trained on, with other rows than here: the data were split through the "
            "queries, and the ranker looks better than it is. Split by query: train, test = tr.split(data, (0.8, "
            "0.2)); in scikit-learn, GroupKFold() or GroupShuffleSplit() with groups=qid.",
            SplitQueriesWarning,
        )


def check_held_out(ranker: Ranker, held_out: RankingData) -> None:
    """Refuse rows that were trained on, in any order and beside any others; warn if only some of them were."""
    back = "Calibrate on queries held back: train, valid = tr.split(data, (0.8, 0.2))."
    training_rows = KnownRows.from_plain(ranker.training_.get(ROWS))
    met = training_rows.matches(row_hashes(ranker.translated(held_out).X), held_out.labels)
    same = held_out.fingerprint == ranker.training_.get("fingerprint")
    resampled = met.relabeled > 0.1 * (met.seen + met.relabeled)  # labels, of the same documents: held out
    few = met.decidable < _MIN_KNOWN or resampled
    refuse_if(
        same or (not few and met.seen >= _MIN_ROW_SHARE * met.decidable and training_rows.repeated <= 0.5),
        "These are the data that the ranker was trained on, or nearly all of their documents are: it looks "
        f"better on them than it is. {back}",
    )
    if not few and met.seen > (training_rows.repeated + 0.1) * met.decidable:
        warn_user(
            f"About {met.seen / met.decidable:.0%} of the documents to calibrate on were trained on, where the "
            f"ranker looks better than it is. {back}",
            SameDataWarning,
        )
