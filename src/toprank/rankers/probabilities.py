"""What relevance probabilities are good for: expected gains, expected DCG without labels, calibration."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted
from typing_extensions import override

from toprank.compute import FloatArray, IntArray
from toprank.data.checks import check_data, check_number, check_whole, numbers
from toprank.data.dataset import RankingData
from toprank.data.queries import Queries
from toprank.errors import DataError
from toprank.losses import make as make_loss
from toprank.metrics.gains import Discount
from toprank.metrics.ranking import rank_block
from toprank.rankers.base import Ranker
from toprank.rankers.calibration import Calibration, Spread, fit_calibration, simulate, variances
from toprank.rankers.files import State
from toprank.rankers.heads import gain_table

__all__ = [
    "CalibrationCurve", "ExpectedValue", "GradeProbabilities", "calibration_curve", "expected_dcg", "has_grades",
    "rank_weights",
]  # fmt: skip


@dataclass(frozen=True)
class ExpectedValue:
    """A value that is not observed: its expectation and standard deviation, per query (``mean, deviation = value``).

    Intervals are known where the ranker was calibrated on held-out queries, which show how far the grades of one query
    hang together. Without, grades count as independent given the features, and the deviation is a lower bound.
    """

    mean: FloatArray
    deviation: FloatArray
    spread: Spread | None = None

    def __iter__(self) -> Iterator[FloatArray]:
        return iter((self.mean, self.deviation))

    def interval(self) -> tuple[FloatArray, FloatArray]:
        """Lower and upper ends, one of each per query: of all intervals with the level asked for, the shortest."""
        known = self._known()
        return known.low, known.high

    def overall(self) -> tuple[float, float]:
        """Expectation and standard deviation of the mean over queries."""
        if self.spread is None:
            return float(self.mean.mean()), float(np.sqrt((self.deviation**2).sum()) / len(self.mean))
        return float(self.mean.mean()), float(self.spread.means.std())

    def overall_interval(self) -> tuple[float, float]:
        """Lower and upper end for the mean over queries: they are independent but for the level of the calibration."""
        known = self._known()
        low, high = np.quantile(known.means, [(1 - known.level) / 2, (1 + known.level) / 2])
        return float(low), float(high)

    def _known(self) -> Spread:
        if self.spread is None:
            raise DataError(
                "An interval needs to know how far the grades of one query hang together, which held-out queries show. "
                "Calibrate the ranker on data that it was not trained on, ranker.calibrate(valid), and ask again."
            )
        return self.spread


def has_grades(ranker: Ranker) -> bool:
    """Whether a ranker has P(grade | x): by what it has learnt, or before that by what it is asked for."""
    gains = getattr(ranker, "gains_", None)
    return getattr(ranker, "outputs", "grades") == "grades" if gains is None else len(gains) > 0


class GradeProbabilities(Ranker):
    """What rankers with P(grade | x) can tell besides; they have `predict_proba`, and `gains_` once they are fitted."""

    saved_values: ClassVar[Mapping[str, Any]] = {"calibration_": dict[str, Any] | None}

    loss: Any
    gains_: FloatArray
    calibration_: Calibration | None

    @abstractmethod
    def predict_proba(self, X: Any) -> FloatArray:
        """P(grade | x), one column for each grade."""

    @abstractmethod
    def _own_probabilities(self, X: Any) -> FloatArray:
        """P(grade | x) as training left them."""

    def _calibrated(self, probabilities: FloatArray) -> FloatArray:
        if self.calibration_ is None:
            return probabilities
        return self.calibration_.probabilities(probabilities, self.gains_)

    @property
    def _by_likelihood(self) -> bool:
        """Whether training itself calibrates: it maximised the likelihood of the grades."""
        return bool(make_loss(self.loss).traits.space == "class")

    @property
    def classes_(self) -> IntArray:
        """The grades that the columns of `predict_proba` stand for: 0, 1, 2 …"""
        if not has_grades(self) or not hasattr(self, "gains_"):
            raise AttributeError(f"This {type(self).__name__} has no classes_: it is not fitted with grades.")
        return np.arange(len(self.gains_))

    @available_if(has_grades)  # type: ignore[untyped-decorator]
    def expected_dcg(
        self,
        data: RankingData,
        scores: npt.ArrayLike | None = None,
        *,
        k: int | None = 10,
        gain: str | Sequence[float] | None = None,
        discount: str = "log2",
        level: float = 0.95,
    ) -> ExpectedValue:
        """What DCG@k to expect of a ranking (this ranker's own, where no scores are given), without any labels.

        As good as the probabilities: after training under a ranking loss it is refused until `calibrate` has seen
        held-out data. After likelihood training it is answered, with grades taken as independent given the features;
        `calibrate` then adds how far they hang together, and so the intervals.

        Args:
            data: queries; their labels are not looked at.
            scores: what to rank by; None: the expected gains.
            k: cut-off of DCG; None: the whole list.
            gain: G, a name or a table; None: that of training.
            discount: the weights of the ranks.
            level: of the intervals.
        """
        check_data("expected_dcg", data)
        check_is_fitted(self)
        if k is not None:
            check_whole("k", k, 1)
        check_number("level", level, above=0, below=1)
        if self.calibration_ is None and not self._by_likelihood:
            raise DataError(
                f"This {type(self).__name__} was trained under {type(make_loss(self.loss)).__name__}, which orders "
                "documents but does not calibrate P(grade | x): a DCG expected of it may be wrong many times over. "
                "Calibrate it first, on data that it was not trained on: ranker.calibrate(valid)."
            )
        probabilities = self.predict_proba(data)
        gains = self.gains_ if gain is None else self._gains(gain)
        values = probabilities @ gains if scores is None else numbers(scores, "scores").astype(np.float64)
        if values.shape != (data.n_documents,) or not np.isfinite(values).all():
            raise DataError("expected_dcg needs one finite score for each document.")
        weights = rank_weights(values, data.queries, k, Discount.of(discount))
        return expected_dcg(weights, probabilities, gains, data.queries, self.calibration_, level)

    @available_if(has_grades)  # type: ignore[untyped-decorator]
    def calibrate(self, held_out: RankingData, *, k: int | None = 10) -> Self:
        """Set P(grade | x) right on data not trained on, and learn how far the grades of a query hang together.

        The order of the documents stays where a ranking loss was trained under. Afterwards look at `calibration_curve`
        on yet other data before anything is called calibrated.

        Args:
            held_out: judged queries, three at least; the more, the better the intervals.
            k: down to which rank DCG is to be foretold well; None: the whole list.
        """
        check_data("calibrate", held_out)
        check_is_fitted(self)
        if k is not None:
            check_whole("k", k, 1)
        self._check_held_out(held_out)
        own = self._own_probabilities(held_out)
        weights = rank_weights(own @ self.gains_, held_out.queries, k, Discount.of("log2"))
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
        if held_out.fingerprint == self.training_.get("fingerprint"):
            raise DataError(
                "These are the data that the ranker was trained on, where it looks better than it is. Calibrate on "
                "queries held back: train, valid = tr.split(data, (0.8, 0.2))."
            )

    @available_if(has_grades)  # type: ignore[untyped-decorator]
    def calibration_curve(self, data: RankingData, *, at_least: int = 1, bins: int = 10) -> CalibrationCurve:
        """Predicted P(grade ≥ at_least) against what happened, in bins of equally many documents."""
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
        """See `Ranker.restore`. Files from before there were intervals hold no calibration."""
        fitted = state.values["fitted"]
        written = fitted.get("calibration")
        ranker = super().restore(state._replace(values=state.values | {"fitted": fitted | {"calibration": None}}))
        if written is not None:
            ranker.calibration_ = Calibration.of(written, len(ranker.gains_))
        return ranker

    def _gains(self, gain: str | Sequence[float]) -> FloatArray:
        """G of each grade."""
        return gain_table(gain, len(self.gains_))


def rank_weights(scores: FloatArray, queries: Queries, k: int | None, discount: Discount) -> FloatArray:
    """The c_j of DCG@k = Σ_j c_j G(y_j): the weight of each document's rank, of tied ones the mean over their ranks."""
    offsets = queries.offsets
    ranked = rank_block(np.ascontiguousarray(scores), offsets, (0, len(queries)), None, keep_ties=True)
    weights = discount.weights(int(queries.sizes.max()))
    if k is not None:
        weights[k:] = 0.0
    position = np.arange(queries.n_documents) - np.repeat(offsets[:-1], queries.sizes)
    group = np.concatenate([[0], np.cumsum(ranked.ends)[:-1]])
    of_group = np.bincount(group, weights[position]) / np.bincount(group)
    of_document = np.empty(queries.n_documents)
    of_document[ranked.order] = of_group[group]
    return of_document


def expected_dcg(
    weights: FloatArray,
    probabilities: FloatArray,
    gains: FloatArray,
    queries: Queries,
    calibration: Calibration | None = None,
    level: float = 0.95,
) -> ExpectedValue:
    """Expectation and standard deviation of DCG = Σ_j c_j G(y_j), c_j = weights, grades drawn from `probabilities`.

    E = Σ c_j E[G_j] whatever the dependence; Var = Σ c_j² Var[G_j] where there is none.
    """
    mean = queries.sum(weights * (probabilities @ gains))
    if calibration is None:
        return ExpectedValue(mean, np.sqrt(variances(probabilities, weights, gains, queries, 0.0)))
    together = (calibration.shared + calibration.common) / (1 + calibration.common)
    deviation = np.sqrt(variances(probabilities, weights, gains, queries, together))
    return ExpectedValue(mean, deviation, simulate(probabilities, weights, gains, queries, calibration, level))


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
