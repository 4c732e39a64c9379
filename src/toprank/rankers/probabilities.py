"""What relevance probabilities make possible: expected gains, expected DCG without labels, calibration.

Probabilities are set right on held-out queries by a chain of steps, logit P(y ≥ k | y ≥ k − 1) = a_k + b_k·h_k(x) with
b_k > 0. Where the ranker was trained by likelihood, h_k are its own log odds of that step. A ranking loss decides
nothing but the score, and leaves the grades behind it anywhere; there h are the log odds of the score within the range
of the gains, so the order stays as it was.

The grades of a query share what the features do not show (a hard topic, a strict judge). Behind each grade stands a
normal variable, cut at the quantiles of P(grade | x) and made of three independent parts: one of the document, one that
the documents of a query have in common (`shared`, a share of the variance), and one that all queries have in common
(`common`: the level itself is known from the held-out queries only). P(grade | x) stays what it is; DCG spreads more.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from toprank.compute import FloatArray, IntArray
from toprank.data.checks import check_data, check_number, check_whole, numbers
from toprank.data.dataset import RankingData
from toprank.data.queries import Queries
from toprank.data.row_hashes import ROWS, KnownRows, row_hashes
from toprank.data.row_order import Order
from toprank.data.warnings import SameDataWarning
from toprank.errors import DataError, Remedy, warn_user
from toprank.losses import make as make_loss
from toprank.metrics.conventions import Discount
from toprank.metrics.sorting import rank_block
from toprank.rankers.base import Ranker
from toprank.rankers.estimator import available_if, check_is_fitted
from toprank.rankers.formula import GradeGains, LinearFunction, Network
from toprank.rankers.model_files import State
from toprank.rankers.outputs import gain_table
from toprank.rankers.trees.forest import Forest
from toprank.scorers.expected_gain import expected_gains
from toprank.significance import Interval

_TINY = 1e-12  # a probability of 0 has no log odds
_MOST = 0.95  # beyond it all documents of a query would have practically one grade
_KNOWN, _MOSTLY = 5, 0.8  # of the rows that can be told from those of training: enough to speak of, and nearly all
_DRAWS = 2000
_DETAIL = "grades drawn as calibrated"
_SEED = 0  # the same question gets the same answer
_QUERIES, _DOCUMENTS = 512, 1024  # held at a time, times the draws


@dataclass(frozen=True)
class Calibration:
    """What held-out queries show: a line (a_k, b_k) for each step between grades, and how their grades depend."""

    steps: tuple[tuple[float, float], ...]
    by_score: bool
    shared: float
    common: float
    queries: int

    def probabilities(self, P: FloatArray, gains: FloatArray) -> FloatArray:
        """Return P(grade | x), calibrated."""
        from scipy.special import expit

        evidence = [_evidence(P, gains, k, self.by_score) for k in range(1, P.shape[1])]
        odds = [a + b * h for (a, b), h in zip(self.steps, evidence, strict=True)]
        reached = np.cumprod(np.column_stack([np.ones(len(P)), *map(expit, odds)]), axis=1)
        stopped = np.column_stack([*(expit(-each) for each in odds), np.ones(len(P))])
        result: FloatArray = reached * stopped
        return result

    def plain(self) -> dict[str, Any]:
        """For a model file."""
        return asdict(self) | {"steps": [list(step) for step in self.steps]}

    @classmethod
    def of(cls, plain: dict[str, Any], n_grades: int) -> Self:
        """Return the calibration that `plain` described; refuse values that it cannot have."""
        calibration = cls(
            tuple((float(a), float(b)) for a, b in plain["steps"]),
            bool(plain["by_score"]),
            float(plain["shared"]),
            float(plain["common"]),
            int(plain["queries"]),
        )
        lines = np.array(calibration.steps)
        sound = lines.shape == (n_grades - 1, 2) and np.isfinite(lines).all() and (lines[:, 1] > 0).all()
        if not (sound and 0 <= calibration.shared <= _MOST and 0 <= calibration.common < np.inf):
            raise DataError("the calibration does not fit the grades")
        return calibration


def fit_calibration(
    P: FloatArray, gains: FloatArray, labels: FloatArray, queries: Queries, weights: FloatArray, *, by_score: bool
) -> Calibration:
    """The map by weighted likelihood, the dependence by moments; weights are those of DCG in the ranker's own order.

    A document counts by its weight in DCG, and by the mean of its query: probabilities are to be right above all where
    DCG looks, and a long list is no better witness than a short one. `shared` is such that the DCGs of the queries
    spread around their expectations as they did (two degrees of freedom went into level and slope of the map).
    """
    grades = labels.astype(np.int64)
    importance = weights + queries.spread(queries.sum(weights) / queries.sizes)
    steps = []
    for k in range(1, P.shape[1]):
        there = grades >= k - 1
        h = _evidence(P[there], gains, k, by_score)
        steps.append(_line(h, (grades[there] >= k).astype(np.float64), importance[there]))
    n = len(queries)
    bare = Calibration(tuple(steps), by_score, 0.0, 0.0, n)
    right = bare.probabilities(P, gains)
    missed = queries.sum(weights * (gains[grades] - right @ gains))
    seen = float((missed**2).mean()) * n / (n - 2)

    def mean_variance(shared: float) -> float:
        return float(variances(right, weights, gains, queries, shared).mean())

    alone = mean_variance(0.0)
    shared = 0.0
    if seen > alone:
        from scipy.optimize import brentq

        shared = _MOST if mean_variance(_MOST) <= seen else float(brentq(lambda s: mean_variance(s) - seen, 0, _MOST))
    # What a shared part of the variance does to DCG's; the mean of n queries is known up to 1/n of what one spreads.
    effect = (mean_variance(0.1) - alone) / 0.1
    return Calibration(tuple(steps), by_score, shared, max(seen, alone) / (n * effect) if effect > 0 else 0.0, n)


def _evidence(P: FloatArray, gains: FloatArray, k: int, by_score: bool) -> FloatArray:
    """Log odds, to be trusted up to a line, that a document that has reached grade k − 1 goes further."""
    if by_score:
        up, down = expected_gains(P, gains - gains.min()), expected_gains(P, gains.max() - gains)
    else:
        up, down = P[:, k:].sum(axis=1), P[:, k - 1]
    return np.log(np.maximum(up, _TINY)) - np.log(np.maximum(down, _TINY))


def _line(h: FloatArray, happened: FloatArray, importance: FloatArray) -> tuple[float, float]:
    """The a and b of P = σ(a + b·h). Platt's targets, a document short of certainty, keep them finite on any data."""
    from scipy.optimize import minimize
    from scipy.special import expit

    if len(h) == 0:
        return 0.0, 1.0
    yes = happened.sum()
    target = np.where(happened > 0, (yes + 1) / (yes + 2), 1 / (len(h) - yes + 2))
    share = importance / importance.sum()
    centre = float(share @ h)
    width = float(np.sqrt(share @ (h - centre) ** 2)) or 1.0
    x = (h - centre) / width

    def cost(line: FloatArray) -> tuple[float, FloatArray]:
        odds = line[0] + line[1] * x
        gap = share * (expit(odds) - target)
        return float(share @ (np.logaddexp(0, odds) - target * odds)), np.array([gap.sum(), gap @ x])

    # A slope of 0 would make all scores equal; this one changes next to nothing and keeps their order.
    a, b = minimize(cost, np.array([0.0, 1.0]), jac=True, method="L-BFGS-B", bounds=[(None, None), (1e-3, None)]).x
    return float(a - b * centre / width), float(b / width)


def _cuts(P: FloatArray) -> FloatArray:
    """Where the normal variable behind a grade is cut: above the k-th the grade is larger than k."""
    from scipy.special import ndtri

    cuts: FloatArray = ndtri(np.clip(np.cumsum(P, axis=1)[:, :-1], 1e-15, 1 - 1e-15))
    return cuts


def variances(P: FloatArray, weights: FloatArray, gains: FloatArray, queries: Queries, shared: float) -> FloatArray:
    """Variance of each query's Σ weight·gain, where its grades have a share of their variance in common."""
    from scipy.special import ndtr

    used = np.flatnonzero(weights != 0)
    of_query, c = queries.document_query[used], weights[used]
    nodes, chances = np.polynomial.hermite_e.hermegauss(32) if shared else (np.zeros(1), np.ones(1))
    cuts, rises, square_rises = _cuts(P[used]), np.diff(gains), np.diff(gains**2)
    first, second = np.zeros(len(queries)), np.zeros(len(queries))
    for node, chance in zip(nodes, chances / chances.sum(), strict=True):
        above = ndtr((np.sqrt(shared) * node - cuts) / np.sqrt(1 - shared))
        gain = gains[0] + above @ rises
        variance = np.maximum(gains[0] ** 2 + above @ square_rises - gain**2, 0.0)
        mean = np.bincount(of_query, c * gain, len(queries))
        first += chance * mean
        second += chance * (mean**2 + np.bincount(of_query, c**2 * variance, len(queries)))
    return np.maximum(second - first**2, 0.0)


_CALIBRATE = Remedy(
    "Calibrate the ranker on data that it was not trained on, ranker.calibrate(valid), and ask again.",
    "Train it with {calibrate} and data that it is not trained on, and ask again.",
    calibrate=...,
)


class SimulatedGains(NamedTuple):
    """The shortest interval of each query's value at a confidence, and draws of the mean over queries."""

    low: FloatArray
    high: FloatArray
    means: FloatArray
    confidence: float


def simulate(
    P: FloatArray, weights: FloatArray, gains: FloatArray, queries: Queries, calibration: Calibration, confidence: float
) -> SimulatedGains:
    """Grades drawn as the calibration says, and what becomes of Σ weight·gain, in intervals at a confidence."""
    rng, shared = np.random.default_rng(_SEED), calibration.shared
    everywhere = rng.standard_normal(_DRAWS) * np.sqrt(calibration.common)
    low, high, total = np.empty(len(queries)), np.empty(len(queries)), np.zeros(_DRAWS)
    for first in range(0, len(queries), _QUERIES):
        last = min(first + _QUERIES, len(queries))
        begin, end = queries.offsets[[first, last]]
        used = begin + np.flatnonzero(weights[begin:end] != 0)
        level = everywhere + np.sqrt(shared) * rng.standard_normal((last - first, _DRAWS))
        values = np.zeros((last - first, _DRAWS))
        for place in range(0, len(used), _DOCUMENTS):
            rows = used[place : place + _DOCUMENTS]
            of_query = queries.document_query[rows] - first
            behind = rng.standard_normal((len(rows), _DRAWS)) * np.sqrt(1 - shared) + level[of_query]
            cuts = _cuts(P[rows]) * np.sqrt(1 + calibration.common)
            drawn = np.full(behind.shape, gains[0])
            for k, rise in enumerate(np.diff(gains)):
                drawn += rise * (behind > cuts[:, k, None])
            drawn *= weights[rows, None]
            begins = np.flatnonzero(np.r_[True, np.diff(of_query) > 0])
            values[of_query[begins]] += np.add.reduceat(drawn, begins, axis=0)
        low[first:last], high[first:last] = _shortest(values, confidence)
        total += values.sum(axis=0)
    return SimulatedGains(low, high, total / len(queries), confidence)


def _shortest(values: FloatArray, share: float) -> tuple[FloatArray, FloatArray]:
    """The shortest interval that holds a share of each row: DCG is skewed, and often 0."""
    ranked = np.sort(values, axis=1)
    inside = int(np.ceil(share * ranked.shape[1]))
    begin = (ranked[:, inside - 1 :] - ranked[:, : ranked.shape[1] - inside + 1]).argmin(axis=1)
    row = np.arange(len(ranked))
    return ranked[row, begin], ranked[row, begin + inside - 1]


@dataclass(frozen=True)
class ExpectedValue:
    """A value that is not observed: its expectation and standard deviation, per query (``mean, deviation = value``).

    Intervals exist if the ranker was calibrated on held-out queries, which show how far the grades of one query
    depend on each other. Otherwise grades count as independent given the features, and the deviation is a lower bound.
    """

    mean: FloatArray
    deviation: FloatArray
    spread: SimulatedGains | None = None

    def __iter__(self) -> Iterator[FloatArray]:
        return iter((self.mean, self.deviation))

    def interval(self) -> Interval[FloatArray]:
        """Return the shortest interval at the confidence level, for each query."""
        simulated = self._known()
        return Interval(self.mean, simulated.low, simulated.high, simulated.confidence, len(self.mean), _DETAIL, "DCG")

    def overall(self) -> tuple[float, float]:
        """Return expectation and standard deviation of the mean over queries."""
        if self.spread is None:
            return float(self.mean.mean()), float(np.sqrt((self.deviation**2).sum()) / len(self.mean))
        return float(self.mean.mean()), float(self.spread.means.std())

    def overall_interval(self) -> Interval:
        """Return the interval of the mean over queries, independent except for the level of the calibration."""
        simulated, (mean, _) = self._known(), self.overall()
        low, high = np.quantile(simulated.means, [(1 - simulated.confidence) / 2, (1 + simulated.confidence) / 2])
        return Interval(mean, float(low), float(high), simulated.confidence, len(self.mean), _DETAIL, "mean DCG")

    def _known(self) -> SimulatedGains:
        if self.spread is None:
            raise DataError(
                "An interval needs the dependence between the grades of a query, which held-out queries show.",
                remedy=_CALIBRATE,
            )
        return self.spread


def has_grades(ranker: Ranker) -> bool:
    """Return whether a ranker has P(grade | x): once fitted by its gains, before by its parameter `outputs`."""
    gains = getattr(ranker, "gains_", None)
    return getattr(ranker, "outputs", "grades") == "grades" if gains is None else len(gains) > 0


class GradeProbabilities(Ranker):
    """Base of rankers with P(grade | x), which have `predict_proba`, and `gains_` once they are fitted."""

    saved_values: ClassVar[Mapping[str, Any]] = {"calibration_": dict[str, Any] | None}
    can_be_calibrated: ClassVar[bool] = True

    loss: Any
    gains_: FloatArray
    calibration_: Calibration | None

    @abstractmethod
    def predict_proba(self, X: Any) -> FloatArray:
        """P(grade | x), one column for each grade."""

    @abstractmethod
    def _own_probabilities(self, X: Any) -> FloatArray:
        """Return P(grade | x) before calibration."""

    def _calibrated(self, probabilities: FloatArray) -> FloatArray:
        if self.calibration_ is None:
            return probabilities
        return self.calibration_.probabilities(probabilities, self.gains_)

    def _expected(
        self, part: LinearFunction | Forest | Network, link: Literal["softmax", "cumulative"] = "softmax"
    ) -> GradeGains:
        """Return the expected gain as a formula, from the formula of the outputs."""
        calibration = self.calibration_
        if calibration is None:
            return GradeGains(part, link, self.gains_)
        return GradeGains(part, link, self.gains_, calibration.steps, calibration.by_score)

    @property
    def _by_likelihood(self) -> bool:
        """Whether training itself calibrates, since it maximised the likelihood of the grades."""
        return bool(make_loss(self.as_fitted.loss).traits.space == "class")

    @property
    def classes_(self) -> IntArray:
        """The grades that the columns of `predict_proba` stand for: 0, 1, 2 …"""
        if not has_grades(self) or not hasattr(self, "gains_"):
            raise AttributeError(f"This {type(self).__name__} has no classes_: it is not fitted with grades.")
        return np.arange(len(self.gains_))

    @available_if(has_grades)
    def expected_dcg(
        self,
        data: RankingData,
        scores: npt.ArrayLike | None = None,
        *,
        k: int | None = 10,
        gain: str | Sequence[float] | None = None,
        discount: str = "log2",
        confidence: float = 0.95,
        order: Order | None = None,
    ) -> ExpectedValue:
        """Return the DCG@k to expect of a ranking, without any labels; without `scores`, of this ranker's own.

        It is as good as the probabilities. After training under a ranking loss it is refused until `calibrate` has seen
        held-out data. After likelihood training, grades count as independent given the features; `calibrate` measures
        how they depend, and so makes intervals possible.

        Args:
            data: queries; their labels are not looked at.
            scores: what to rank by, in the order of ``data.X``; None for the expected gains.
            k: cut-off of DCG; None for the whole list.
            gain: G, a name or a table; None for that of training.
            discount: the weights of the ranks.
            confidence: level of the intervals.
            order: the order of the scores, if grouping moved the rows of the data; see `RankingData.aligned`.
        """
        check_data("expected_dcg", data)
        check_is_fitted(self)
        if k is not None:
            check_whole("k", k, 1)
        check_number("confidence", confidence, above=0, below=1)
        if self.calibration_ is None and not self._by_likelihood:
            loss = make_loss(self.as_fitted.loss)
            raise DataError(
                f"This {type(self).__name__} was trained under {type(loss).__name__}, which orders documents but does "
                "not calibrate P(grade | x): a DCG expected of it may be wrong many times over.",
                remedy=_CALIBRATE,
            )
        probabilities = self.predict_proba(data)
        gains = self._gains(gain)
        own = scores is None
        values = (
            expected_gains(probabilities, gains)
            if own
            else numbers(data.aligned(scores, order), "scores").astype(np.float64)
        )
        if values.shape != (data.n_documents,) or not np.isfinite(values).all():
            raise DataError("expected_dcg needs one finite score for each document.")
        weights = rank_weights(values, data.queries, k, Discount.of(discount))
        return expected_dcg(weights, probabilities, gains, data.queries, self.calibration_, confidence)

    @available_if(has_grades)
    def calibrate(self, held_out: RankingData, *, k: int | None = 10) -> Self:
        """Calibrate P(grade | x) on data not trained on, and measure how the grades of a query depend on each other.

        After training under a ranking loss the order of the documents stays the same. Look at `calibration_curve` on
        yet other data before you call the probabilities calibrated.

        Args:
            held_out: judged queries, three at least; the more, the better the intervals.
            k: the rank down to which DCG is to be predicted well; None for the whole list.
        """
        check_data("calibrate", held_out)
        check_is_fitted(self)
        if k is not None:
            check_whole("k", k, 1)
        self._check_held_out(held_out)
        own = self._own_probabilities(held_out)
        weights = rank_weights(expected_gains(own, self.gains_), held_out.queries, k, Discount.of("log2"))
        self.calibration_ = fit_calibration(
            own, self.gains_, held_out.labels, held_out.queries, weights, by_score=not self._by_likelihood
        )
        return self

    def _check_held_out(self, held_out: RankingData) -> None:
        labels = held_out.labels
        if not held_out.judged.all() or labels.min() < 0 or (labels != np.floor(labels)).any():
            raise DataError("Calibration needs judged documents with whole grades from 0 on.")
        if labels.max() >= len(self.gains_):
            raise DataError(
                f"The held-out data have grade {labels.max():g}, which training never showed; fit with data that have "
                f"it{f', or n_grades={int(labels.max()) + 1}' if hasattr(self, 'n_grades') else ''}."
            )
        if held_out.n_queries < 3:
            raise DataError(
                f"Calibration learns from how queries differ, and here are {held_out.n_queries}; give it three at "
                "least, better a hundred."
            )
        self._check_unseen(held_out)

    def _check_unseen(self, held_out: RankingData) -> None:
        """Refuse rows that were trained on, in any order and beside any others; warn if only some of them were."""
        back = "Calibrate on queries held back: train, valid = tr.split(data, (0.8, 0.2))."
        training_rows = KnownRows.from_plain(self.training_.get(ROWS))
        met = training_rows.met(row_hashes(self.translated(held_out).X), held_out.labels)
        same = held_out.fingerprint == self.training_.get("fingerprint")
        drawn_anew = met.relabelled > 0.1 * (met.seen + met.relabelled)  # labels, of the same documents: held out
        few = met.decidable < _KNOWN or drawn_anew
        if same or (not few and met.seen >= _MOSTLY * met.decidable and training_rows.repeated <= 0.5):
            raise DataError(
                "These are the data that the ranker was trained on, or nearly all of their documents are: it looks "
                f"better on them than it is. {back}"
            )
        if not few and met.seen > (training_rows.repeated + 0.1) * met.decidable:
            warn_user(
                f"About {met.seen / met.decidable:.0%} of the documents to calibrate on were trained on, where the "
                f"ranker looks better than it is. {back}",
                SameDataWarning,
            )

    @available_if(has_grades)
    def calibration_curve(self, data: RankingData, *, at_least: int = 1, bins: int = 10) -> CalibrationCurve:
        """Compare predicted P(grade ≥ at_least) with the observed share, in bins of equally many documents."""
        check_data("calibration_curve", data)
        if not data.judged.all():
            raise DataError("calibration_curve compares with judgments; take data.keep(data.judged).")
        predicted = self.predict_proba(data)
        check_whole("at_least", at_least, 1, below=predicted.shape[1])
        happened = (data.labels >= at_least).astype(np.float64)
        return calibration_curve(predicted[:, at_least:].sum(axis=1), happened, bins)

    @override
    def state(self) -> State:
        state = super().state()
        state.values["fitted"]["calibration"] = None if self.calibration_ is None else self.calibration_.plain()
        return state

    @classmethod
    def restore(cls, state: State) -> Self:
        """See `Ranker.restore`."""
        ranker = super().restore(state)
        written: Any = ranker.calibration_  # as its plain values
        if written is not None:
            ranker.calibration_ = Calibration.of(written, len(ranker.gains_))
        return ranker

    def _gains(self, gain: str | Sequence[float] | None) -> FloatArray:
        """Return G of each grade; None: those of training."""
        return self.gains_ if gain is None else gain_table(gain, len(self.gains_))


def rank_weights(scores: FloatArray, queries: Queries, k: int | None, discount: Discount) -> FloatArray:
    """The c_j of DCG@k = Σ_j c_j G(y_j): the weight of each document's rank, of tied ones the mean over their ranks."""
    ranked = rank_block(np.ascontiguousarray(scores), queries.offsets, (0, len(queries)), None, keep_ties=True)
    weights = discount.weights(int(queries.sizes.max()))
    if k is not None:
        weights[k:] = 0.0
    group = np.concatenate([[0], np.cumsum(ranked.ends)[:-1]])
    of_group = np.bincount(group, weights[queries.places]) / np.bincount(group)
    of_document = np.empty(queries.n_documents)
    of_document[ranked.order] = of_group[group]
    return of_document


def expected_dcg(
    weights: FloatArray,
    probabilities: FloatArray,
    gains: FloatArray,
    queries: Queries,
    calibration: Calibration | None = None,
    confidence: float = 0.95,
) -> ExpectedValue:
    """Expectation and standard deviation of DCG = Σ_j c_j G(y_j), c_j = weights, grades drawn from `probabilities`.

    E = Σ c_j E[G_j] whatever the dependence; Var = Σ c_j² Var[G_j] where there is none.
    """
    mean = queries.sum(weights * expected_gains(probabilities, gains))
    if calibration is None:
        return ExpectedValue(mean, np.sqrt(variances(probabilities, weights, gains, queries, 0.0)))
    together = (calibration.shared + calibration.common) / (1 + calibration.common)
    deviation = np.sqrt(variances(probabilities, weights, gains, queries, together))
    return ExpectedValue(mean, deviation, simulate(probabilities, weights, gains, queries, calibration, confidence))


class CalibrationCurve(NamedTuple):
    """For each bin of predicted probability: their mean, the observed share, and how many documents fell there."""

    predicted: FloatArray
    observed: FloatArray
    documents: FloatArray

    @property
    def error(self) -> float:
        """Expected calibration error: mean |predicted − observed|, weighted by the documents."""
        total = self.documents.sum()
        return float((np.abs(self.predicted - self.observed) * self.documents).sum() / total) if total else 0.0


def calibration_curve(predicted: FloatArray, happened: FloatArray, bins: int = 10) -> CalibrationCurve:
    """Predicted probabilities against what happened (0 or 1), in bins of equally many documents."""
    check_whole("bins", bins, 1)
    edges = np.unique(np.quantile(predicted, np.linspace(0, 1, bins + 1)))
    place = np.clip(np.searchsorted(edges, predicted, side="right") - 1, 0, max(len(edges) - 2, 0))
    count = np.bincount(place).astype(np.float64)
    used = count > 0
    return CalibrationCurve(
        np.bincount(place, predicted)[used] / count[used], np.bincount(place, happened)[used] / count[used], count[used]
    )
