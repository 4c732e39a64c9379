"""Where the numbers of a training come from: data in this process, or parts of them elsewhere.

A ranker asks its source for a standardisation, an objective to minimise and a judge of scores; it does not see rows.
`InMemory` answers from a `RankingData`; `toprank.cluster` answers from partitions that lie on other machines.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from typing_extensions import override

from toprank.compute import FloatArray
from toprank.data.dataset import RankingData
from toprank.losses import Loss
from toprank.metrics.conventions import Convention
from toprank.metrics.evaluation import Judge
from toprank.metrics.measure import Measure
from toprank.rankers.objective import RankingObjective
from toprank.scorers.base import Scorer
from toprank.scorers.features import Features, Standardisation
from toprank.solvers.base import WithHessian

if TYPE_CHECKING:
    from toprank.rankers.tree_parameters import TreeParameters
    from toprank.rankers.tree_training import Boosted, Start

__all__ = ["InMemory", "ScoreJudge", "Source", "source_of"]

Score = Callable[[Any], FloatArray]
"""Rows of features become scores."""


class ScoreJudge(NamedTuple):
    """A metric of some data, to be asked again and again: `judge.value(score)` with a function from rows to scores."""

    name: str
    """The metric as it was asked for."""
    measure: Measure
    convention: Convention
    value: Callable[[Score], float]
    check: Callable[[], object]
    """Refuse to choose by it where it is blind; see `Judge.for_choosing`."""

    @property
    def higher_is_better(self) -> bool:
        """Whether a larger value is a better one."""
        return self.measure.higher_is_better


class Source(ABC):
    """Labelled queries that rankers can learn from, wherever they are."""

    n_queries: int
    n_documents: int
    n_features: int
    n_unjudged: int
    feature_names: tuple[str, ...] | None
    first_feature_id: int | None = None
    fingerprint: str

    @abstractmethod
    def standardisation(self, threads: int | None) -> Standardisation:
        """Centre and spread of the features."""

    @abstractmethod
    def grades(self) -> tuple[FloatArray, FloatArray]:
        """The distinct labels in rising order, and how many documents have each."""

    @abstractmethod
    def objective(
        self, scorer: Scorer, loss: Loss, standardisation: Standardisation, threads: int | None, weighted: bool = True
    ) -> WithHessian:
        """The mean loss over all queries as a function of the scorer's weights; `weighted` as the data say."""

    @abstractmethod
    def score_spread(self, standardisation: Standardisation, direction: FloatArray) -> float:
        """Standard deviation, over all documents, of the scores in a direction of the standardised features."""

    @abstractmethod
    def judge(self, metric: str, convention: str, threads: int | None) -> ScoreJudge:
        """A metric of these data."""

    @abstractmethod
    def boost(self, parameters: TreeParameters, valid: Any) -> tuple[Start, Boosted]:
        """Train trees as the parameters say; see `toprank.rankers.tree_training.train_trees`."""


class InMemory(Source):
    """Data in the memory of this process, or mapped into it from a stored copy."""

    def __init__(self, data: RankingData) -> None:
        self.data = data
        self.n_queries, self.n_documents, self.n_features = data.n_queries, data.n_documents, data.n_features
        self.feature_names = data.feature_names

    @property
    def n_unjudged(self) -> int:  # type: ignore[override]
        """Number of documents without a judgment."""
        return int((~self.data.judged).sum())

    @property
    @override
    def fingerprint(self) -> str:  # type: ignore[override]
        return self.data.fingerprint

    @override
    def standardisation(self, threads: int | None) -> Standardisation:
        return Standardisation.of(self.data.X, self.feature_names, threads)

    @override
    def grades(self) -> tuple[FloatArray, FloatArray]:
        values, counts = np.unique(self.data.labels, return_counts=True)
        return values, counts.astype(np.float64)

    @override
    def objective(
        self, scorer: Scorer, loss: Loss, standardisation: Standardisation, threads: int | None, weighted: bool = True
    ) -> RankingObjective:
        data = self.data
        weights = {"document_weights": data.document_weights, "query_weights": data.query_weights} if weighted else {}
        bound = loss.on(data.labels, data.queries, **weights)
        features = Features(data.X, standardisation, complete=standardisation.complete)
        return RankingObjective(scorer, features, bound, threads)

    @override
    def score_spread(self, standardisation: Standardisation, direction: FloatArray) -> float:
        features = Features(self.data.X, standardisation, complete=standardisation.complete)
        return float(features.times(slice(0, self.n_documents), direction).std())

    @override
    def judge(self, metric: str, convention: str, threads: int | None) -> ScoreJudge:
        judge = Judge(self.data, metric, convention=convention, threads=threads)
        value = partial(_value, judge)
        return ScoreJudge(judge.name, judge.measure, judge.convention, value, judge.for_choosing)

    @override
    def boost(self, parameters: TreeParameters, valid: RankingData | None) -> tuple[Start, Boosted]:
        from toprank.rankers.tree_training import train_trees

        return train_trees(parameters, self.data, valid)


def _value(judge: Judge, score: Score) -> float:
    return judge(score(judge.data.X))


def source_of(data: RankingData | Source) -> Source:
    """The data as a source."""
    return data if isinstance(data, Source) else InMemory(data)
