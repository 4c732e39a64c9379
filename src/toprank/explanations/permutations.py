"""Permutation importance: the drop in a metric when the values of a feature are shuffled.

By default values are shuffled within queries. A feature that is constant within queries then has importance 0.
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

_SHUFFLE_RULES = ("within", "across")
_N_RESAMPLES = 2_000
_MAX_ROWS = 20


@dataclass(frozen=True, repr=False)
class Importance(Record):
    """Permutation importance: mean drop in a metric when the values of a feature are shuffled.

    Attributes:
        metric: Name of the metric.
        baseline_score: Mean metric of the original ranking.
        features: Names of the features, the most important first.
        importances: Mean drop in the metric for each feature; positive if shuffling makes the ranking worse.
        intervals: Confidence intervals of the importances over queries.
        p: P-values of the null hypothesis of no effect, corrected for multiple testing (Holm).
        per_query: Drop per query, shape (features, queries); NaN for queries that are not evaluated.
        confidence: Confidence level of the intervals.
        description: Sentence on shuffling rule, repeats and seed.
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
        """Features with a significant positive importance."""
        level = round(1 - self.confidence, 12)
        return tuple(
            name for name, p, d in zip(self.features, self.p, self.importances, strict=True) if p <= level and d > 0
        )

    def _rows(self) -> list[tuple[str, float, float, float, float]]:
        numbers = (values.tolist() for values in (self.importances, *self.intervals, self.p))
        return list(zip(self.features, *numbers, strict=True))

    @property
    def summary(self) -> str:
        """The most important feature and the number of significant features, as a sentence."""
        significant = self.significant
        if not significant:
            return f"No feature has a significant importance for {self.metric} on these queries."
        i, (low, high) = self.features.index(significant[0]), self.intervals
        return (
            f"{significant[0]} matters most: when it is shuffled, {self.metric} drops by {self.importances[i]:.4f} "
            f"[{low[i]:.4f}, {high[i]:.4f}] from {self.baseline_score:.4f}. {len(significant)} of {len(self.features)} "
            f"feature{'s are' if len(self.features) > 1 else ' is'} significant."
        )

    def _parts(self) -> Sequence[Part]:
        rows = [
            (name, signed(drop), f"[{signed(low)}, {signed(high)}]", f"{p:.3g}")
            for name, drop, low, high, p in self._rows()[:_MAX_ROWS]
        ]
        header = ("feature", f"drop in {self.metric}", f"{100 * self.confidence:g} % interval", "p (Holm)")
        table = Table(header, rows, names=1)
        left = len(self.features) - _MAX_ROWS
        more = f" to_frame() lists {left:,} more features." if left > 0 else ""
        return [self.summary, table, self.description + more]

    def _columns(self) -> dict[str, list[Any]]:
        """Return one row per feature, the most important first."""
        columns = {"drop": self.importances, "low": self.intervals.low, "high": self.intervals.high, "p": self.p}
        return {"feature": list(self.features)} | {name: values.tolist() for name, values in columns.items()}

    @property
    def _frame_rows(self) -> list[dict[str, Any]]:
        return json_rows(self._columns())

    def plot(self) -> Picture:
        """Plot the most important features as bars with intervals."""
        rows = [
            (name, f"{name}: {signed(drop)} [{signed(low)}, {signed(high)}]", drop, low, high)
            for name, drop, low, high, _ in self._rows()[:_MAX_ROWS]
        ]
        return signed_bars(f"Permutation importance for {self.metric}", rows, f"drop in {self.metric} when shuffled")


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
    """Measure the permutation importance of features: the drop in a metric when their values are shuffled.

    The drop of a query is its metric minus the mean of its metric over `n_repeats` shuffles. Intervals are studentized
    bootstrap intervals over queries; p-values are those of the randomization test with Holm's correction.

    Args:
        ranker: fitted ranker.
        data: labeled data, preferably not used in training.
        metric: metric of the ranking. Default ``ndcg@10``.
        features: names or numbers of the features. None (default): all features.
        shuffle: ``within`` (default) shuffles values among the documents of each query; ``across`` shuffles them among
            all documents, which also shows the interactions of features that are constant within queries.
        n_repeats: number of shuffles of each feature. Default 5.
        confidence: confidence level of the intervals. Default 0.95.
        seed: seed of the shuffles.
        threads: number of threads; results do not depend on it.
        **evaluate_options: options of `toprank.evaluate` such as `convention` and `unjudged`.

    The data are scored and evaluated `n_repeats` × features times.

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
    refuse_if(not columns, "features is empty; name at least one feature, or pass None for all.")
    options = {**evaluate_options, "threads": threads, "order": "data"}
    before = evaluate(ranker.predict(translated), translated, metric, **options)
    if len(before.names) > 1:
        raise DataError(
            f"permutation_importance takes one metric, not {', '.join(before.names)}; call it for each metric."
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
        f"by studentized bootstrap over queries ({_N_RESAMPLES:,} resamples), p by the randomization test."
    )
    tested = _LossTests.from_losses(losses, confidence, {"seed": seed, "threads": threads})
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
    """Return the mean drop of each query over the shuffles of each column, shape (columns, queries)."""
    shuffled, losses = _Shuffled(data), []
    for number in columns:
        orders = (_shuffle(data, shuffle, np.random.default_rng((seed, number, repeat))) for repeat in range(n_repeats))
        losses.append(np.mean([loss(shuffled.column(number, order)) for order in orders], axis=0))
        shuffled.restore(number)
    return np.array(losses)


class _LossTests(NamedTuple):
    """Mean drops of features over queries, with interval bounds and p-values."""

    means: FloatArray
    ends: FloatArray
    """Interval bounds, shape (2, features)."""
    p: FloatArray
    detail: str

    @classmethod
    def from_losses(cls, losses: FloatArray, confidence: float, sampling: dict[str, Any]) -> Self:
        """Compute intervals and p-values; `sampling` holds the seed and the number of threads."""
        intervals = [
            bootstrap_interval(row, confidence=confidence, n_resamples=_N_RESAMPLES, **sampling) for row in losses
        ]
        p = holm([randomization_test(row, **sampling).p for row in losses])
        ends = np.array([tuple(interval) for interval in intervals]).T
        return cls(np.nanmean(losses, axis=1), ends, p, intervals[0].detail)


def _check(ranker: Ranker, data: Any, shuffle: str, n_repeats: int, confidence: float, seed: int) -> None:
    check_is_fitted(ranker)
    if not isinstance(data, RankingData):
        raise DataError("permutation_importance needs a RankingData with labels: tr.RankingData(X, y, qid=qid).")
    if shuffle not in _SHUFFLE_RULES:
        raise UnknownNameError("shuffling rule", str(shuffle), _SHUFFLE_RULES)
    check_whole("n_repeats", n_repeats, 1)
    check_number("confidence", confidence, above=0.5, below=1)
    check_whole("seed", seed, 0)


def _shuffle(data: RankingData, shuffle: str, rng: np.random.Generator) -> IntArray:
    """Return the source row of the shuffled value of each row."""
    if shuffle == "across":
        return rng.permutation(data.n_documents)
    return np.lexsort((rng.random(data.n_documents), data.queries.document_query))


class _Shuffled:
    """Copy of the data in which one column at a time is shuffled."""

    def __init__(self, data: RankingData) -> None:
        self._data = data
        self._X: Any = data.X.tocsc() if data.is_sparse else np.array(data.X)

    def column(self, number: int, order: IntArray) -> RankingData:
        """Return the data with one column reordered; valid until the next call."""
        if self._data.is_sparse:
            from scipy import sparse

            parts = [self._X[:, :number], self._X[:, [number]].tocsr()[order], self._X[:, number + 1 :]]
            return self._data._with_validated(X=sparse.hstack(parts, format="csr"))
        self._X[:, number] = self._data.X[order, number]
        return self._data._with_validated(X=self._X)

    def restore(self, number: int) -> None:
        """Restore the original values of a column."""
        if not self._data.is_sparse:
            self._X[:, number] = self._data.X[:, number]
