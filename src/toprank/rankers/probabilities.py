"""`GradeProbabilities`: rankers with P(grade | x), their expected DCG without labels, and their calibration."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from toprank.compute import FloatArray, IntArray, numbers
from toprank.data.arguments import check_number, check_whole
from toprank.data.dataset import RankingData, check_data
from toprank.data.row_order import Order
from toprank.errors import DataError, refuse_if
from toprank.losses import make as make_loss
from toprank.metrics.conventions import Discount
from toprank.rankers.base import Ranker
from toprank.rankers.calibration import Calibration, CalibrationCurve, calibration_curve, fit_calibration
from toprank.rankers.estimator import available_if, check_is_fitted
from toprank.rankers.expected_dcg import CALIBRATE, ExpectedValue, expected_dcg, rank_weights
from toprank.rankers.formula import GradeGains, LinearFunction, Network
from toprank.rankers.leakage import check_held_out
from toprank.rankers.outputs import gain_table
from toprank.rankers.schema import State
from toprank.rankers.trees.forest import Forest
from toprank.scorers.expected_gain import expected_gains


def has_grades(ranker: Ranker) -> bool:
    """Return whether a ranker predicts P(grade | x): by its gains if fitted, else by its parameter `outputs`."""
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
        """Return P(grade | x), one column for each grade."""

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
        """True if training calibrates the probabilities, because it maximizes the likelihood of the grades."""
        return bool(make_loss(self.as_fitted.loss).traits.space == "class")

    @property
    def classes_(self) -> IntArray:
        """The grades of the columns of `predict_proba`: 0, 1, 2 …"""
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
        """Return the expected DCG@k of a ranking without labels; without `scores`, of this ranker's own ranking.

        It is only as accurate as the probabilities. After training under a ranking loss it is refused until `calibrate`
        was called with held-out data. After likelihood training, grades count as independent given the features;
        `calibrate` estimates their dependence, which makes intervals available.

        Args:
            data: queries; labels are ignored.
            scores: scores to rank by, in the order of ``data.X``; None for the expected gains.
            k: cutoff of DCG; None for the whole list.
            gain: G, a name or a table; None for the gain of training.
            discount: the discounts of the ranks.
            confidence: confidence level of the intervals.
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
                f"This {type(self).__name__} was trained under {type(loss).__name__}, which does not calibrate "
                "P(grade | x), so its expected DCG may be wrong by a large factor.",
                remedy=CALIBRATE,
            )
        probabilities = self.predict_proba(data)
        gains = self._gains(gain)
        own = scores is None
        values = (
            expected_gains(probabilities, gains)
            if own
            else numbers(data.aligned(scores, order), "scores").astype(np.float64)
        )
        refuse_if(
            values.shape != (data.n_documents,) or not np.isfinite(values).all(),
            "expected_dcg needs one finite score for each document.",
        )
        weights = rank_weights(values, data.queries, k, Discount.from_spec(discount))
        return expected_dcg(weights, probabilities, gains, data.queries, self.calibration_, confidence)

    @available_if(has_grades)
    def calibrate(self, held_out: RankingData, *, k: int | None = 10) -> Self:
        """Calibrate P(grade | x) on held-out data, and estimate how the grades of a query depend on each other.

        After training under a ranking loss the order of the documents does not change. Check `calibration_curve` on a
        third data set before you rely on the probabilities.

        Args:
            held_out: judged queries, at least three; more queries give better intervals.
            k: the rank down to which DCG should be predicted well; None for the whole list.
        """
        check_data("calibrate", held_out)
        check_is_fitted(self)
        if k is not None:
            check_whole("k", k, 1)
        self._check_held_out(held_out)
        own = self._own_probabilities(held_out)
        weights = rank_weights(expected_gains(own, self.gains_), held_out.queries, k, Discount.from_spec("log2"))
        self.calibration_ = fit_calibration(
            own, self.gains_, held_out.labels, held_out.queries, weights, by_score=not self._by_likelihood
        )
        return self

    def _check_held_out(self, held_out: RankingData) -> None:
        labels = held_out.labels
        refuse_if(
            not held_out.judged.all() or labels.min() < 0 or (labels != np.floor(labels)).any(),
            "Calibration needs judged documents with integer grades from 0.",
        )
        if labels.max() >= len(self.gains_):
            raise DataError(
                f"The held-out data have grade {labels.max():g}, which is not in the training data; fit with data that "
                f"have it{f', or n_grades={int(labels.max()) + 1}' if hasattr(self, 'n_grades') else ''}."
            )
        refuse_if(
            held_out.n_queries < 3,
            f"Calibration estimates the variance between queries, but there are {held_out.n_queries}; pass at least "
            "three, preferably a hundred.",
        )
        check_held_out(self, held_out)

    @available_if(has_grades)
    def calibration_curve(self, data: RankingData, *, at_least: int = 1, bins: int = 10) -> CalibrationCurve:
        """Compare predicted P(grade ≥ at_least) with the observed frequency, in bins with equal numbers of
        documents.
        """
        check_data("calibration_curve", data)
        refuse_if(not data.judged.all(), "calibration_curve needs judged documents; use data.filter(data.judged).")
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
        written: Any = ranker.calibration_  # still plain values
        if written is not None:
            ranker.calibration_ = Calibration.from_plain(written, len(ranker.gains_))
        return ranker

    def _gains(self, gain: str | Sequence[float] | None) -> FloatArray:
        """Return G of each grade; None for the gain of training."""
        return self.gains_ if gain is None else gain_table(gain, len(self.gains_))
