"""Metrics as scikit-learn scorers, for `GridSearchCV`, `cross_val_score` and similar tools."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from toprank.data.arrays import common_index
from toprank.data.dataset import RankingData
from toprank.data.row_order import Order
from toprank.errors import DataError
from toprank.evaluation.scores import evaluate
from toprank.metrics.conventions import Convention
from toprank.metrics.parsing import parse
from toprank.rankers.base import Ranker
from toprank.rankers.leakage import warn_of_split_queries


class MetricScorer:
    """Scorer ``(estimator, X, y, qid=None) -> float``; larger is better, as in scikit-learn."""

    def __init__(self, metric: str, convention: str = "standard") -> None:
        self.metric, self.convention = metric, convention
        self._measure, self._rules = parse(metric), Convention.from_name(convention)

    def __call__(self, estimator: Any, X: Any, y: npt.ArrayLike, qid: npt.ArrayLike | None = None) -> float:
        """Return the metric of the estimator's predictions, negated if smaller is better."""
        if qid is None and not isinstance(X, RankingData):
            raise DataError(
                f"{self!r} was called without qid. Call sklearn.set_config(enable_metadata_routing=True) first, and "
                "pass qid: search.fit(X, y, qid=qid, groups=qid) or cross_val_score(..., params={'qid': qid, "
                "'groups': qid}). scikit-learn's permutation_importance does not route metadata; pass "
                "scoring=functools.partial(scorer, qid=qid)."
            )
        common_index(X=X, y=y, qid=qid)
        estimator = getattr(estimator, "best_estimator_", estimator)  # a fitted search does not route qid to predict
        if isinstance(estimator, Ranker) and isinstance(getattr(estimator, "training_", None), dict):
            warn_of_split_queries(estimator, X, qid)
        scores = estimator.predict(X, qid=qid) if _takes_queries(estimator) else estimator.predict(X)
        order: Order | None = "data" if isinstance(X, RankingData) else None
        result = evaluate(scores, y, [self._measure], qid=qid, convention=self._rules, order=order)
        value = result.mean[str(self._measure)]
        return value if self._measure.higher_is_better else -value

    def get_metadata_routing(self) -> Any:
        """Return the routing of this scorer, which requests `qid` by default."""
        from sklearn.utils.metadata_routing import MetadataRequest

        request = MetadataRequest(owner=repr(self))
        request.score.add_request(param="qid", alias=True)
        return request

    def __repr__(self) -> str:
        return f"toprank.make_scorer({self.metric!r}, convention={self.convention!r})"


def _takes_queries(estimator: Any) -> bool:
    """Return whether predict accepts `qid`: rankers, and pipelines that route it to a ranker."""
    if isinstance(estimator, Ranker):
        return True
    from sklearn import get_config
    from sklearn.utils.metadata_routing import get_routing_for_object

    if not get_config()["enable_metadata_routing"] or not hasattr(estimator, "get_metadata_routing"):
        return False
    return "qid" in get_routing_for_object(estimator).consumes("predict", {"qid"})


def make_scorer(metric: str, convention: str = "standard") -> MetricScorer:
    """Return a scikit-learn scorer for a metric under a convention.

    Like `Ranker.score`, the scorer warns if a query of the training data reappears with other rows. This check does not
    work inside a pipeline, whose transformers change the rows.

    Args:
        metric: name of the metric, such as ``ndcg@10``.
        convention: evaluation convention. Default ``standard``.

    >>> make_scorer("map")
    toprank.make_scorer('map', convention='standard')
    """
    return MetricScorer(metric, convention)
