"""Feature contributions: how much each feature adds to the score difference of two documents.

The contributions are Shapley values of the same game for every ranker: the players are the features, a coalition S
takes its values from document a and all other features from b, and v(S) is the score of that mixture. They sum to f(a)
− f(b), a feature with equal values in a and b gets 0, and swapping a and b changes every sign.

For sums of functions of one feature each, and for trees, they are exact. Otherwise all coalitions are enumerated if few
features differ; else random permutations of the features are drawn, and the result includes the standard error.

For a ranker that uses query context, the game is played within the query: a and b exchange the values outside S, all
other documents keep theirs, and v(S) is half the difference of the two scores. At S = ∅ the two documents have changed
places, so the values again sum to f(a) − f(b); for any other ranker this is the same game.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from math import factorial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray, IntArray
from toprank.data.arguments import check_whole
from toprank.data.dataset import RankingData
from toprank.data.encoding import Encoding
from toprank.data.queries import Queries
from toprank.rankers.estimator import Recorded
from toprank.rankers.seen_columns import SeenColumns
from toprank.rankers.trees.forest import ForestMixin
from toprank.scorers.features import Standardization

if TYPE_CHECKING:
    from toprank.explanations.pairs import Explanation

_TREES_METHOD = "exact: Shapley values of the trees, with the other document as background"
ADDITIVE = "exact: the score is a sum of one term for each feature"
_MAX_ENUMERATED = 10  # players for which all coalitions are scored
_MAX_SCORED = 1 << 18  # documents that an estimate may score
_MAX_VALUES = 1 << 22  # values in the rows that are scored at a time: 32 MB
Mask = npt.NDArray[np.bool_]


class Sampling(NamedTuple):
    """Settings for estimated contributions, if they are not computed exactly."""

    permutations: int | None = None
    """Permutations of the features for each pair of documents, drawn as antithetic pairs (an order and its reverse).
    None for as many as score about a quarter of a million documents, 16 to 1024."""
    seed: int = 0

    def checked(self) -> Sampling:
        """Return the settings; refuse invalid numbers."""
        if self.permutations is not None:
            check_whole("permutations", self.permutations, 4)
        check_whole("seed", self.seed, 0)
        return self

    def n_antithetic_pairs(self, players: int, documents: int) -> int:
        """Return the number of antithetic pairs to draw, if a coalition costs the scores of `documents` documents."""
        fits = _MAX_SCORED // ((players + 1) * documents)
        return (min(max(fits, 16), 1024) if self.permutations is None else self.permutations) // 2


EXACTLY = Sampling()
"""The settings for rankers that need no estimate."""


class Contributions(NamedTuple):
    """One row for each explained document, one column for each feature."""

    values: FloatArray
    errors: FloatArray | None
    """Standard errors if the values are estimates (their sums are exact in any case), else None."""
    method: str
    """How the values were computed, as the end of a sentence."""


class ScoreProfile(NamedTuple):
    """The score as a function of one feature, others fixed: linear with `slope`, with jumps just above `breaks`."""

    slope: float
    breaks: FloatArray
    single: bool = False
    """Whether values are rounded to single precision before the comparison with the breaks."""

    def around(self) -> tuple[FloatArray, FloatArray]:
        """Return the last values up to each break and the first values beyond."""
        if not self.single:
            return self.breaks, np.nextafter(self.breaks, np.inf)
        near = self.breaks.astype(np.float32)
        over = near > self.breaks
        last = np.where(over, np.nextafter(near, np.float32(-np.inf)), near)
        return last.astype(np.float64), np.nextafter(last, np.float32(np.inf)).astype(np.float64)


class Explainable(Recorded):
    """The interface that explanations require of a ranker; the defaults use only its scores."""

    encoding_: Encoding | None
    columns_: SeenColumns | None

    def explain(
        self,
        data: Any,
        qid: Any = None,
        a: Any = None,
        b: Any = None,
        *,
        permutations: int | None = None,
        seed: int = 0,
    ) -> Explanation:
        """Explain why document a is ranked above document b: how much each feature adds to the difference of their
        scores.

        The contributions sum to f(a) − f(b); `toprank.rankers.contributions` defines them. They are exact for linear
        rankers, trees and blends of these, and estimates with a standard error for others. If the ranker uses query
        context, the other documents of the query are held fixed.

        Args:
            data: a `RankingData` that contains the query.
            qid: the id of the query; None if there is only one.
            a: a document, by its id, or by its row if documents have no ids. None for the first of the ranking.
            b: another document of the query. None for the one ranked after a, or before a if a is the last.
            permutations: number of permutations of the features, if contributions are estimated. None for 16 to 1024,
                depending on their cost.
            seed: seed of the permutations.

        >>> import toprank as tr
        >>> data = tr.RankingData([[3.0, 1.0], [1.0, 1.0], [2.0, 5.0]], [1, 0, 0], feature_names=["sales", "price"])
        >>> ranker = tr.LinearRanker("ListNet").fit(data)
        >>> explanation = ranker.explain(data, a=0, b=1)
        >>> explanation.contributions["price"], explanation.contributions["sales"] == explanation.total
        (0.0, True)
        """
        from toprank.explanations.explained_query import ExplainedQuery
        from toprank.explanations.pairs import explain_pair

        sampling, query = Sampling(permutations, seed).checked(), ExplainedQuery(self, data, qid)  # type: ignore[arg-type]
        return explain_pair(query, *query.pair(a, b), sampling)

    @property
    def explains_exactly(self) -> bool:
        """True if `contributions` are exact rather than estimates."""
        return False

    def contributions(
        self, query: RankingData, of: IntArray, against: IntArray, sampling: Sampling = EXACTLY
    ) -> Contributions:
        """Return how much each feature adds to f(a) minus the mean of f(b), for each a in `of` and the b in `against`.

        `query` is one query with dense features and the columns of training; documents are its rows.
        """
        return shapley(self, query, of, against, sampling)

    @property
    def category_columns(self) -> frozenset[int]:
        """The features known to contain category codes."""
        return frozenset(() if self.encoding_ is None else self.encoding_.categories)

    def shares_of_features(self, of_columns: FloatArray) -> FloatArray:
        """Return feature importances that sum to 1 from column importances; a category sums its columns."""
        counts = of_columns if self.columns_ is None else self.columns_.by_feature(of_columns)
        total = counts.sum()
        return np.asarray(counts / total if total > 0 else counts)

    def score_profile(self, feature: int) -> ScoreProfile | None:
        """Return the score as a function of a numerical feature, or None if it is not known exactly."""
        del feature
        return None


class AdditiveTerms:
    """Mixin for rankers whose score is a sum of one term per column; list it before `Ranker`."""

    columns_: SeenColumns | None

    @abstractmethod
    def _terms(self, X: Any) -> FloatArray:
        """Return the term of each column for each row."""

    @property
    def explains_exactly(self) -> bool:
        """See `Ranker.explains_exactly`; true if no column depends on two features."""
        return self.columns_ is None or self.columns_.is_additive

    def contributions(
        self, query: RankingData, of: IntArray, against: IntArray, sampling: Sampling = EXACTLY
    ) -> Contributions:
        """See `Ranker.contributions`."""
        if not self.explains_exactly:
            return shapley(self, query, of, against, sampling)
        terms = self._terms(self._prediction_rows(query))  # type: ignore[attr-defined]
        if self.columns_ is not None:  # a category is one feature with a column for each level
            terms = np.array([self.columns_.by_feature(row) for row in terms])
        return Contributions(terms[of] - terms[against].mean(axis=0), None, ADDITIVE)


class LinearTerms(AdditiveTerms):
    """Mixin for rankers that score w·x; missing values count as the center."""

    coef_: FloatArray
    standardization_: Standardization

    def _terms(self, X: Any) -> FloatArray:
        rows = X if isinstance(X, np.ndarray) else X.toarray()
        return np.nan_to_num(rows.astype(np.float64) - self.standardization_.center) * self.coef_

    def score_profile(self, feature: int) -> ScoreProfile:
        """See `Ranker.score_profile`."""
        slopes = self.coef_ if self.columns_ is None else self.columns_.by_feature(self.coef_)
        return ScoreProfile(float(slopes[feature]), np.zeros(0))


class ForestTerms(ForestMixin):
    """Mixin for rankers whose score is a sum of trees; list it before `Ranker`."""

    threads: int | None
    encoding_: Encoding | None
    columns_: SeenColumns | None

    @property
    def explains_exactly(self) -> bool:
        """See `Ranker.explains_exactly`; true for a single score, not expected gains, if each feature is one column."""
        fitted = self.as_fitted  # type: ignore[attr-defined]
        return getattr(fitted, "outputs", None) == "score" and self.columns_ is None

    def contributions(
        self, query: RankingData, of: IntArray, against: IntArray, sampling: Sampling = EXACTLY
    ) -> Contributions:
        """See `Ranker.contributions`."""
        if not self.explains_exactly:
            return shapley(self, query, of, against, sampling)
        rows = self._prediction_rows(query)
        return Contributions(self.forest_.contributions(rows, of, against, self.threads), None, _TREES_METHOD)

    @property
    def category_columns(self) -> frozenset[int]:
        """Categories of tables, and features that trees split by sets of values."""
        coded = frozenset(() if self.encoding_ is None else self.encoding_.categories)
        return coded if self.columns_ is not None else coded | self.forest_.categories

    def score_profile(self, feature: int) -> ScoreProfile:
        """See `Ranker.score_profile`."""
        column = column_of(feature, self.columns_)
        return ScoreProfile(0.0, self.forest_.thresholds(column), self.forest_.single_rows)


def column_of(feature: int, columns: SeenColumns | None) -> int:
    """Return the input column of a numerical feature."""
    return feature if columns is None else columns.unchanged.index(feature)


def differing(a: FloatArray, b: FloatArray) -> IntArray:
    """Return the features in which two documents differ; missing equals missing."""
    return np.flatnonzero(~((a == b) | (np.isnan(a) & np.isnan(b))))


def with_rows(query: RankingData, X: FloatArray, copies: int = 1) -> RankingData:
    """Return data with other rows and the columns of `query`: `copies` queries of equal size, without judgments."""
    dropped = dict.fromkeys(
        ("document_ids", "document_weights", "query_weights", "positions", "source_rows", "metadata", "teacher")
    )
    new = {
        "X": X,
        "labels": np.full(len(X), np.nan),
        "queries": Queries.from_sizes([len(X) // copies] * copies),
        "qids": np.arange(copies),
    }
    return query._with_validated(**(dropped | new))


def rescored(
    ranker: Any, query: RankingData, X: FloatArray, changes: Mapping[int, FloatArray], features: Any
) -> FloatArray:
    """Return the scores of some documents of a query in several variants of it, (variants, documents).

    Args:
        ranker: a fitted ranker. If it uses query context, each variant is a copy of the query.
        query: the query, with the columns of training.
        X: its rows.
        changes: for each document, by its row, the values of `features` in each variant, (variants, features).
        features: the columns that change.
    """
    rows = list(changes)
    held = np.arange(len(X)) if ranker.uses_query_context else np.array(rows)
    places = rows if ranker.uses_query_context else list(range(len(rows)))
    n_variants, scores = len(next(iter(changes.values()))), []
    each = max(1, _MAX_VALUES // (len(held) * X.shape[1]))
    for first in range(0, n_variants, each):
        part = slice(first, min(first + each, n_variants))
        copies = np.repeat(X[held][None], part.stop - first, axis=0)
        for place, row in zip(places, rows, strict=True):
            copies[:, place, features] = changes[row][part]
        predicted = ranker.predict(with_rows(query, copies.reshape(-1, X.shape[1]), len(copies)))
        scores.append(np.asarray(predicted).reshape(len(copies), -1)[:, places])
    return np.concatenate(scores)


def shapley(ranker: Any, query: RankingData, of: IntArray, against: IntArray, sampling: Sampling) -> Contributions:
    """Compute contributions for any ranker from its scores, as the mean over the documents `against`."""
    X = np.asarray(query.X, dtype=np.float64)
    values, variances = np.zeros((2, len(of), X.shape[1]))
    drawn: set[int] = set()
    documents = len(X) if ranker.uses_query_context else 1
    for place, a in enumerate(of.tolist()):
        for b in against.tolist():
            players = differing(X[a], X[b])
            if not len(players):
                continue
            worth = _worth(ranker, query, X, a, b, players)
            if len(players) <= _MAX_ENUMERATED:
                values[place, players] += _enumerated(worth, len(players))
                continue
            n_antithetic_pairs = sampling.n_antithetic_pairs(len(players), documents)
            rng = np.random.default_rng((sampling.seed, a, b))
            shares, variance = _sampled(worth, len(players), n_antithetic_pairs, rng)
            drawn.add(2 * n_antithetic_pairs)
            values[place, players] += shares
            variances[place, players] += variance
    n = len(against)
    if not drawn:
        return Contributions(values / n, None, "exact: every coalition of the features that differ was scored")
    method = f"estimated from {min(drawn)} random orders of the features, seed {sampling.seed}; the sum is exact"
    return Contributions(values / n, np.sqrt(variances) / n, method)


Worth = Callable[[Mask], FloatArray]


def _worth(ranker: Any, query: RankingData, X: FloatArray, a: int, b: int, players: IntArray) -> Worth:
    """Return the function from coalitions of the players, one per row, to their values."""
    own, others = X[a, players], X[b, players]

    def worth(masks: Mask) -> FloatArray:
        mixture, exchanged = np.where(masks, own, others), np.where(masks, others, own)
        if not ranker.uses_query_context:
            return rescored(ranker, query, X, {a: mixture}, players)[:, 0]
        scores = rescored(ranker, query, X, {a: mixture, b: exchanged}, players)
        return np.asarray(scores[:, 0] - scores[:, 1]) / 2

    return worth


def _enumerated(worth: Worth, n: int) -> FloatArray:
    """Return φ_j = Σ_S |S|!(n − |S| − 1)!/n! (v(S ∪ j) − v(S)) over the coalitions S without j."""
    numbers = np.arange(1 << n)
    masks = (numbers[:, None] >> np.arange(n) & 1).astype(bool)
    earned, sizes = worth(masks), masks.sum(axis=1)
    share = np.array([factorial(size) * factorial(n - size - 1) / factorial(n) for size in range(n)])
    values = np.empty(n)
    for j in range(n):
        without = numbers[~masks[:, j]]
        values[j] = share[sizes[without]] @ (earned[without | 1 << j] - earned[without])
    return values


def _sampled(worth: Worth, n: int, n_antithetic_pairs: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Return the means over random permutations of each player's marginal contribution, and the variances of the
    means.
    """
    drawn = np.array([rng.permutation(n) for _ in range(n_antithetic_pairs)])
    joined = np.stack([drawn, n - 1 - drawn], axis=1).reshape(2 * n_antithetic_pairs, n)  # when each player joins
    masks = joined[:, None] < np.arange(n + 1)[:, None]
    added = np.diff(worth(masks.reshape(-1, n)).reshape(2 * n_antithetic_pairs, n + 1), axis=1)
    differences = np.take_along_axis(added, joined, axis=1).reshape(n_antithetic_pairs, 2, n).mean(axis=1)
    return differences.mean(axis=0), differences.var(axis=0, ddof=1) / n_antithetic_pairs
