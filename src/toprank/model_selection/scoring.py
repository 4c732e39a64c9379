"""Every metric as a scikit-learn scorer, for `GridSearchCV`, `cross_val_score` and their kin."""

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
    """A callable ``(estimator, X, y, qid=None) -> float``; larger is better, as scikit-learn wants it."""

    def __init__(self, metric: str, convention: str = "standard") -> None:
        self.metric, self.convention = metric, convention
        self._measure, self._rules = parse(metric), Convention.from_name(convention)

    def __call__(self, estimator: Any, X: Any, y: npt.ArrayLike, qid: npt.ArrayLike | None = None) -> float:
        """The metric of the estimator's predictions."""
        if qid is None and not isinstance(X, RankingData):
            raise DataError(
                f"{self!r} was given no qid, and all rows as one query would be another number. Call "
                "sklearn.set_config(enable_metadata_routing=True) first, and pass qid on: search.fit(X, y, qid=qid, "
                "groups=qid), cross_val_score(..., params={'qid': qid, 'groups': qid}). permutation_importance passes "
                "nothing on; give it scoring=functools.partial(scorer, qid=qid)."
            )
        common_index(X=X, y=y, qid=qid)
        estimator = getattr(estimator, "best_estimator_", estimator)  # a search does not pass qid on to predict
        if isinstance(estimator, Ranker) and isinstance(getattr(estimator, "training_", None), dict):
            warn_of_split_queries(estimator, X, qid)
        scores = estimator.predict(X, qid=qid) if _takes_queries(estimator) else estimator.predict(X)
        order: Order | None = "data" if isinstance(X, RankingData) else None
        result = evaluate(scores, y, [self._measure], qid=qid, convention=self._rules, order=order)
        value = result.mean[str(self._measure)]
        return value if self._measure.higher_is_better else -value

    def get_metadata_routing(self) -> Any:
        """`qid` goes to this scorer without being asked for."""
        from sklearn.utils.metadata_routing import MetadataRequest

        request = MetadataRequest(owner=repr(self))
        request.score.add_request(param="qid", alias=True)
        return request

    def __repr__(self) -> str:
        return f"toprank.make_scorer({self.metric!r}, convention={self.convention!r})"


def _takes_queries(estimator: Any) -> bool:
    """Whether predict is to be given `qid`: rankers, and pipelines that route it to one."""
    if isinstance(estimator, Ranker):
        return True
    from sklearn import get_config
    from sklearn.utils.metadata_routing import get_routing_for_object

    if not get_config()["enable_metadata_routing"] or not hasattr(estimator, "get_metadata_routing"):
        return False  # a foreign estimator knows no queries
    return "qid" in get_routing_for_object(estimator).consumes("predict", {"qid"})


def make_scorer(metric: str, convention: str = "standard") -> MetricScorer:
    """A scikit-learn scorer for a metric under a convention.

    It warns where queries that a ranker was fitted to come with other rows, as `Ranker.score` does; inside a pipeline
    that is not seen, since the ranker's rows are not those that the scorer is given.

    >>> make_scorer("map")
    toprank.make_scorer('map', convention='standard')
    """
    return MetricScorer(metric, convention)
