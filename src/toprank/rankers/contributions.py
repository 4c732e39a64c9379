"""What each feature contributes to the score of one document less that of another.

The contributions are Shapley values of one game for every ranker: the players are the features, a coalition S has
document a's values and all other features have b's, and v(S) is the score of that mixture. They sum to f(a) − f(b), a
feature in which a and b agree gets 0, and swapping a and b changes every sign.

Where the ranker is a sum of functions of one feature each, or trees, they are computed exactly; few features that
differ are enumerated; else orders of the features are drawn, and the standard error is part of the answer.

A ranker that looks at the other documents of the query plays the same game in the query: a and b exchange the values
outside S, all other documents stay as they are, and v(S) is half the difference of the two scores. At S = ∅ the two
have changed places, so the values again sum to f(a) − f(b); for any other ranker this is the same game.
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

_OF_TREES = "exact: Shapley values of the trees, the other document being the background"
ADDITIVE = "exact: the score is a sum of one term for each feature"
_ENUMERATED = 10  # players up to which all coalitions are tried
_SCORED = 1 << 18  # documents that an estimate may score
_MAX_VALUES = 1 << 22  # numbers in the rows that are scored at a time: 32 MB
Mask = npt.NDArray[np.bool_]


class Sampling(NamedTuple):
    """How contributions are estimated where they are not computed exactly."""

    permutations: int | None = None
    """Permutations of the features for each pair of documents, drawn as antithetic pairs (an order and its reverse).
    None for as many as score about a quarter of a million documents, 16 to 1024."""
    seed: int = 0

    def checked(self) -> Sampling:
        """Refuse numbers that make no estimate."""
        if self.permutations is not None:
            check_whole("permutations", self.permutations, 4)
        check_whole("seed", self.seed, 0)
        return self

    def n_antithetic_pairs(self, players: int, documents: int) -> int:
        """How many orders to draw, and as many backwards, where a coalition costs the scores of so many documents."""
        fits = _SCORED // ((players + 1) * documents)
        return (min(max(fits, 16), 1024) if self.permutations is None else self.permutations) // 2


EXACTLY = Sampling()
"""For rankers that need no estimate."""


class Contributions(NamedTuple):
    """One row for each document that is explained, one column for each feature."""

    values: FloatArray
    errors: FloatArray | None
    """Standard errors, where the values are estimates; their sums are exact even so."""
    method: str
    """How they were found, as the end of a sentence."""


class ScoreProfile(NamedTuple):
    """How the score runs along one feature, all others fixed: as `slope` says, but for jumps just above `breaks`."""

    slope: float
    breaks: FloatArray
    single: bool = False
    """Whether values are rounded to single precision before they are compared with the breaks."""

    def around(self) -> tuple[FloatArray, FloatArray]:
        """The last values up to each break, and the first beyond it."""
        if not self.single:
            return self.breaks, np.nextafter(self.breaks, np.inf)
        near = self.breaks.astype(np.float32)
        over = near > self.breaks
        last = np.where(over, np.nextafter(near, np.float32(-np.inf)), near)
        return last.astype(np.float64), np.nextafter(last, np.float32(np.inf)).astype(np.float64)


class Explainable(Recorded):
    """What an explanation asks of a ranker; the defaults know nothing but its scores."""

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
        """Explain why document a stands above document b: what each feature adds to the difference of their scores.

        The contributions sum to f(a) − f(b); `toprank.rankers.contributions` defines them. They are exact for linear
        rankers, trees and blends of these, and estimates with a standard error for others. If the ranker looks at the
        other documents of the query, these are held fixed.

        Args:
            data: a `RankingData` that holds the query.
            qid: the id of the query; None if there is only one.
            a: a document, by its id, or by its row if documents have no ids; None for the first of the ranking.
            b: another document of the query; None for the one after a, or the one before it if a is the last.
            permutations: how many orders of the features are drawn if contributions are estimated; None for 16 to
                1024, depending on their cost.
            seed: decides these orders.

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
        """Whether `contributions` are exact, not estimates."""
        return False

    def contributions(
        self, query: RankingData, of: IntArray, against: IntArray, sampling: Sampling = EXACTLY
    ) -> Contributions:
        """Return what each feature adds to f(a) less the mean of f(b), for each a in `of` over the b in `against`.

        `query` is one query with dense features, whose columns are those of training; documents are its rows.
        """
        return shapley(self, query, of, against, sampling)

    @property
    def category_columns(self) -> frozenset[int]:
        """The features known to hold codes of categories."""
        return frozenset(() if self.encoding_ is None else self.encoding_.categories)

    def shares_of_features(self, of_columns: FloatArray) -> FloatArray:
        """Return the importance of each feature, as a share of 1, from those of columns; a category sums its own."""
        counts = of_columns if self.columns_ is None else self.columns_.by_feature(of_columns)
        total = counts.sum()
        return np.asarray(counts / total if total > 0 else counts)

    def score_profile(self, feature: int) -> ScoreProfile | None:
        """Return how the score runs along a numerical feature, or None if that is not known exactly."""
        del feature
        return None


class AdditiveTerms:
    """What a ranker whose score is a sum of one term for each column has before `Ranker` among its bases."""

    columns_: SeenColumns | None

    @abstractmethod
    def _terms(self, X: Any) -> FloatArray:
        """What each column adds to the score of each row."""

    @property
    def explains_exactly(self) -> bool:
        """See `Ranker.explains_exactly`: where no column depends on two features."""
        return self.columns_ is None or self.columns_.is_additive

    def contributions(
        self, query: RankingData, of: IntArray, against: IntArray, sampling: Sampling = EXACTLY
    ) -> Contributions:
        """See `Ranker.contributions`."""
        if not self.explains_exactly:
            return shapley(self, query, of, against, sampling)
        terms = self._terms(self._prediction_rows(query))  # type: ignore[attr-defined]
        if self.columns_ is not None:  # a category is one feature, however many columns its levels have
            terms = np.array([self.columns_.by_feature(row) for row in terms])
        return Contributions(terms[of] - terms[against].mean(axis=0), None, ADDITIVE)


class LinearTerms(AdditiveTerms):
    """The same for one that scores w·x; missing values count as the center."""

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
    """What a ranker that adds up trees has before `Ranker` among its bases."""

    threads: int | None
    encoding_: Encoding | None
    columns_: SeenColumns | None

    @property
    def explains_exactly(self) -> bool:
        """Where there is one score, and not the expected gain of grades; and each feature is one column."""
        fitted = self.as_fitted  # type: ignore[attr-defined]
        return getattr(fitted, "outputs", None) == "score" and self.columns_ is None

    def contributions(
        self, query: RankingData, of: IntArray, against: IntArray, sampling: Sampling = EXACTLY
    ) -> Contributions:
        """See `Ranker.contributions`."""
        if not self.explains_exactly:
            return shapley(self, query, of, against, sampling)
        rows = self._prediction_rows(query)
        return Contributions(self.forest_.contributions(rows, of, against, self.threads), None, _OF_TREES)

    @property
    def category_columns(self) -> frozenset[int]:
        """Those of tables, and those that trees split by sets of values."""
        coded = frozenset(() if self.encoding_ is None else self.encoding_.categories)
        return coded if self.columns_ is not None else coded | self.forest_.categories

    def score_profile(self, feature: int) -> ScoreProfile:
        """See `Ranker.score_profile`."""
        column = column_of(feature, self.columns_)
        return ScoreProfile(0.0, self.forest_.thresholds(column), self.forest_.single_rows)


def column_of(feature: int, columns: SeenColumns | None) -> int:
    """The column in which a ranker sees a feature that is a number."""
    return feature if columns is None else columns.unchanged.index(feature)


def differing(a: FloatArray, b: FloatArray) -> IntArray:
    """The features in which two documents differ; missing equals missing."""
    return np.flatnonzero(~((a == b) | (np.isnan(a) & np.isnan(b))))


def with_rows(query: RankingData, X: FloatArray, copies: int = 1) -> RankingData:
    """Data with other rows but the columns of `query`: so many queries of equal size, nothing judged."""
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
        ranker: a fitted ranker. If it looks at whole queries, each variant is a copy of the query.
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
    """Of any ranker, by its scores alone; the mean over the documents `against`."""
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
            if len(players) <= _ENUMERATED:
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
    """Return the function from coalitions of the players, one a row, to what they earn."""
    own, others = X[a, players], X[b, players]

    def worth(masks: Mask) -> FloatArray:
        mixture, exchanged = np.where(masks, own, others), np.where(masks, others, own)
        if not ranker.uses_query_context:
            return rescored(ranker, query, X, {a: mixture}, players)[:, 0]
        scores = rescored(ranker, query, X, {a: mixture, b: exchanged}, players)
        return np.asarray(scores[:, 0] - scores[:, 1]) / 2

    return worth


def _enumerated(worth: Worth, n: int) -> FloatArray:
    """φ_j = Σ_S |S|!(n − |S| − 1)!/n! (v(S ∪ j) − v(S)) over the coalitions S without j."""
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
    """Means over random orders of what each player adds when it joins those before, and the variances of the means."""
    drawn = np.array([rng.permutation(n) for _ in range(n_antithetic_pairs)])
    joined = np.stack([drawn, n - 1 - drawn], axis=1).reshape(2 * n_antithetic_pairs, n)  # when each player joins
    masks = joined[:, None] < np.arange(n + 1)[:, None]
    added = np.diff(worth(masks.reshape(-1, n)).reshape(2 * n_antithetic_pairs, n + 1), axis=1)
    differences = np.take_along_axis(added, joined, axis=1).reshape(n_antithetic_pairs, 2, n).mean(axis=1)
    return differences.mean(axis=0), differences.var(axis=0, ddof=1) / n_antithetic_pairs
