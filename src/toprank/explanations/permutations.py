"""Which features a ranking depends on: how much worse a metric gets if the values of a feature are shuffled.

By default the values are shuffled among the documents of each query, so that everything else about the query stays as
it is; a feature that is the same for all documents of a query cannot change its order, and counts 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np

from toprank.compute import FloatArray, IntArray
from toprank.data.arguments import check_number, check_whole
from toprank.data.dataset import RankingData
from toprank.display.pictures import Picture, signed_bars
from toprank.display.record import Record
from toprank.display.tables import Part, Table, json_rows
from toprank.errors import DataError, UnknownNameError, refuse_if
from toprank.evaluation.scores import evaluate
from toprank.explanations.columns import feature_names, feature_number, signed
from toprank.rankers.base import Ranker
from toprank.rankers.estimator import check_is_fitted
from toprank.significance import Interval, bootstrap_interval, holm, randomization_test

_RULES = ("within", "across")
_RESAMPLES = 2_000
_SHOWN = 20


@dataclass(frozen=True, repr=False)
class Importance(Record):
    """How much a metric loses, in the mean over queries, if the values of a feature are shuffled.

    Attributes:
        metric: The metric.
        baseline_score: The mean of the metric as the ranking is.
        features: The names of the features, the most important first.
        importances: The mean losses; above 0 if shuffling makes the ranking worse.
        intervals: The intervals of the losses, over queries.
        p: P-values of "shuffling changes nothing", corrected for the number of features (Holm).
        per_query: The losses, (features, queries); NaN for a query that does not count.
        confidence: The confidence level of the intervals.
        description: The rule, the n_repeats and the seed, in words.
    """

    metric: str
    baseline_score: float
    features: tuple[str, ...]
    importances: FloatArray
    intervals: Interval[FloatArray]
    p: FloatArray
    per_query: FloatArray
    confidence: float
    description: str

    json_names: ClassVar = {"_frame_rows": "features"}
    json_hidden: ClassVar = frozenset({"features", "importances", "intervals", "p", "per_query"})
    json_properties: ClassVar = ("summary", "_frame_rows")

    @property
    def significant(self) -> tuple[str, ...]:
        """The features whose loss is significant and above 0."""
        level = round(1 - self.confidence, 12)
        return tuple(
            name for name, p, d in zip(self.features, self.p, self.importances, strict=True) if p <= level and d > 0
        )

    def _rows(self) -> list[tuple[str, float, float, float, float]]:
        numbers = (values.tolist() for values in (self.importances, *self.intervals, self.p))
        return list(zip(self.features, *numbers, strict=True))

    @property
    def summary(self) -> str:
        """The most important feature, and how many matter."""
        mattering = self.significant
        if not mattering:
            return f"No feature is shown to matter to {self.metric} on these queries."
        i, (low, high) = self.features.index(mattering[0]), self.intervals
        return (
            f"{mattering[0]} matters most: shuffled, {self.metric} loses {self.importances[i]:.4f} of "
            f"{self.baseline_score:.4f} [{low[i]:.4f}, {high[i]:.4f}]. {len(mattering)} of {len(self.features)} "
            f"feature{'s are' if len(self.features) > 1 else ' is'} shown to matter."
        )

    def _parts(self) -> Sequence[Part]:
        rows = [
            (name, signed(drop), f"[{signed(low)}, {signed(high)}]", f"{p:.3g}")
            for name, drop, low, high, p in self._rows()[:_SHOWN]
        ]
        header = ("feature", f"loss of {self.metric}", f"{100 * self.confidence:g} % interval", "p (Holm)")
        table = Table(header, rows, names=1)
        left = len(self.features) - _SHOWN
        more = f" {left:,} more features are in to_frame()." if left > 0 else ""
        return [self.summary, table, self.description + more]

    def _columns(self) -> dict[str, list[Any]]:
        """Return a row for each feature, the most important first."""
        columns = {"drop": self.importances, "low": self.intervals.low, "high": self.intervals.high, "p": self.p}
        return {"feature": list(self.features)} | {name: values.tolist() for name, values in columns.items()}

    @property
    def _frame_rows(self) -> list[dict[str, Any]]:
        return json_rows(self._columns())

    def plot(self) -> Picture:
        """Draw a bar for each of the first features, with its interval."""
        rows = [
            (name, f"{name}: {signed(drop)} [{signed(low)}, {signed(high)}]", drop, low, high)
            for name, drop, low, high, _ in self._rows()[:_SHOWN]
        ]
        return signed_bars(f"Importance of features to {self.metric}", rows, f"loss of {self.metric} when shuffled")


def permutation_importance(
    ranker: Ranker,
    data: RankingData,
    metric: str = "ndcg@10",
    *,
    features: Iterable[str | int] | str | int | None = None,
    shuffle: Literal["within", "across"] = "within",
    n_repeats: int = 5,
    confidence: float = 0.95,
    seed: int = 0,
    threads: int | None = None,
    **evaluate_options: Any,
) -> Importance:
    """Measure the permutation importance of features: how much of a metric is lost if their values are shuffled.

    The loss of a query is its metric less the mean of its metric over `n_repeats` shuffles. Losses are paired by query:
    intervals are studentized bootstraps over queries, p-values those of the randomization test, corrected by Holm.

    Args:
        ranker: a fitted ranker.
        data: labeled data, best some that the ranker was not trained on.
        metric: the metric that judges the ranking.
        features: names or numbers of the features to look at; None: all.
        shuffle: ``within`` (default) shuffles values among the documents of each query; ``across`` shuffles them among
            all documents, which also shows the interactions of features that are constant within queries.
        n_repeats: number of shuffles of each feature. Default 5.
        confidence: the confidence level of the intervals.
        seed: the seed of the shuffles.
        threads: number of threads; results do not depend on it.
        **evaluate_options: options of `toprank.evaluate` (`convention`, `unjudged` …).

    Cost: n_repeats × features times scoring and judging the data.

    >>> import toprank as tr
    >>> data = tr.synthetic(n_queries=60, n_features=3, n_irrelevant=1, seed=0)
    >>> importance = tr.permutation_importance(tr.LinearRanker("ListNet").fit(data), data)
    >>> len(importance.features), bool(importance.importances[0] > 0)
    (3, True)
    """
    _check(ranker, data, shuffle, n_repeats, confidence, seed)
    translated = ranker.translated(data)
    names = feature_names(ranker, data)
    wanted = [features] if isinstance(features, str | int) else features
    columns = list(range(len(names))) if wanted is None else [feature_number(ranker, data, name) for name in wanted]
    refuse_if(not columns, "There are no features to look at; name at least one, or leave features out.")
    options = {**evaluate_options, "threads": threads, "order": "data"}
    before = evaluate(ranker.predict(translated), translated, metric, **options)
    if len(before.names) > 1:
        raise DataError(
            f"Importance is judged by one metric, not by {', '.join(before.names)}; ask for each by itself."
        )
    [measured] = before.names
    sign = 1.0 if before.measures[measured].higher_is_better else -1.0

    def loss(rows: RankingData) -> FloatArray:
        after = evaluate(ranker.predict(rows), translated, metric, **options)
        return sign * (np.asarray(before.per_query[measured]) - np.asarray(after.per_query[measured]))

    losses = _losses(translated, columns, loss, shuffle, n_repeats, seed)
    scope = f"{shuffle} {'queries' if shuffle == 'within' else 'all documents'}"
    how = (
        f"Each feature was shuffled {n_repeats} times {scope} (seed {seed}), {len(before.qids):,} queries; intervals "
        f"by studentized bootstrap over queries ({_RESAMPLES:,} resamples), p by the randomization test."
    )
    tested = _TestedLosses.of(losses, confidence, {"seed": seed, "threads": threads})
    order = np.argsort(-tested.means, kind="stable")
    low, high = tested.ends[:, order]
    return Importance(
        metric=measured,
        baseline_score=before.mean[measured],
        features=tuple(names[columns[place]] for place in order.tolist()),
        importances=tested.means[order],
        intervals=Interval(
            tested.means[order], low, high, confidence, losses.shape[1], tested.detail, f"loss of {measured}"
        ),
        p=tested.p[order],
        per_query=losses[order],
        confidence=confidence,
        description=how,
    )


def _losses(
    data: RankingData,
    columns: list[int],
    loss: Callable[[RankingData], FloatArray],
    shuffle: str,
    n_repeats: int,
    seed: int,
) -> FloatArray:
    """Return the mean loss of each query over the shuffles of each column, (columns, queries)."""
    shuffled, losses = _Shuffled(data), []
    for number in columns:
        orders = (_shuffle(data, shuffle, np.random.default_rng((seed, number, repeat))) for repeat in range(n_repeats))
        losses.append(np.mean([loss(shuffled.column(number, order)) for order in orders], axis=0))
        shuffled.restore(number)
    return np.array(losses)


class _TestedLosses(NamedTuple):
    """The losses of features over queries: their means, the ends of the intervals of these, and p-values."""

    means: FloatArray
    ends: FloatArray
    """(2, features)."""
    p: FloatArray
    detail: str

    @classmethod
    def of(cls, losses: FloatArray, confidence: float, drawing: dict[str, Any]) -> Self:
        """Draw resamples of the queries; `drawing`: the seed, and the number of threads."""
        intervals = [
            bootstrap_interval(row, confidence=confidence, n_resamples=_RESAMPLES, **drawing) for row in losses
        ]
        p = holm([randomization_test(row, **drawing).p for row in losses])
        ends = np.array([tuple(interval) for interval in intervals]).T
        return cls(np.nanmean(losses, axis=1), ends, p, intervals[0].detail)


def _check(ranker: Ranker, data: Any, shuffle: str, n_repeats: int, confidence: float, seed: int) -> None:
    check_is_fitted(ranker)
    if not isinstance(data, RankingData):
        raise DataError("importance needs a RankingData with labels: tr.RankingData(X, y, qid=qid).")
    if shuffle not in _RULES:
        raise UnknownNameError("rule of shuffling", str(shuffle), _RULES)
    check_whole("n_repeats", n_repeats, 1)
    check_number("confidence", confidence, above=0.5, below=1)
    check_whole("seed", seed, 0)


def _shuffle(data: RankingData, shuffle: str, rng: np.random.Generator) -> IntArray:
    """Return for each row the row whose value it gets."""
    if shuffle == "across":
        return rng.permutation(data.n_documents)
    return np.lexsort((rng.random(data.n_documents), data.queries.document_query))


class _Shuffled:
    """Data of which one column at a time is shuffled, all in one copy of X."""

    def __init__(self, data: RankingData) -> None:
        self._data = data
        self._X: Any = data.X.tocsc() if data.is_sparse else np.array(data.X)

    def column(self, number: int, order: IntArray) -> RankingData:
        """Return the data with other values in one column; valid until the next call."""
        if self._data.is_sparse:
            from scipy import sparse

            parts = [self._X[:, :number], self._X[:, [number]].tocsr()[order], self._X[:, number + 1 :]]
            return self._data._with_validated(X=sparse.hstack(parts, format="csr"))
        self._X[:, number] = self._data.X[order, number]
        return self._data._with_validated(X=self._X)

    def restore(self, number: int) -> None:
        """Give a column its own values back."""
        if not self._data.is_sparse:
            self._X[:, number] = self._data.X[:, number]
