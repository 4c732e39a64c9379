"""Losses for relevance that is estimated from clicks: linear in the gains, unless an approximation is asked for."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, NamedTuple

from toprank.clicks.evidence import Evidence
from toprank.clicks.position_term import PositionCells, PositionSoftmax
from toprank.data.dataset import RankingData
from toprank.errors import DataError, Remedy
from toprank.losses import LambdaLoss, Loss, Multicategory, SafeDCG
from toprank.losses import make as make_loss
from toprank.rankers.base import Ranker
from toprank.rankers.estimator import unfitted
from toprank.rankers.linear.expected_gain import ExpectedGainRanker
from toprank.rankers.trees.ranker import TreeRanker

_ROUGHLY = 1e-3  # tolerance of a loss that is not convex: its last digits cost much and say nothing
_LINEAR_FORMS: dict[str, Loss] = {
    "ListNet": Multicategory(gain=None),
    "XENDCG": Multicategory(gain=None),
    "Logistic": LambdaLoss("arp1"),
}


class TrainingLosses(NamedTuple):
    """The loss that was asked for, the one to train under, and the loss of a correction that is a loss."""

    requested: Loss
    plain: Loss
    own: Loss | None

    @classmethod
    def from_ranker(
        cls, ranker: Any, correction: str, allow_biased_loss: bool, max_exposure_ratio: float
    ) -> TrainingLosses:
        """Return the losses of a training; `max_exposure_ratio` is the factor of ``safe``."""
        if not isinstance(ranker, Ranker) or not hasattr(ranker, "loss"):
            raise DataError(
                f"{type(ranker).__name__} has no loss to train under; give a LinearRanker, a TreeRanker, a "
                "NeuralRanker or an ExpectedGainRanker."
            )
        requested = make_loss(ranker.loss)
        own: Loss | None = None
        if correction in ("safe", "position"):
            own = SafeDCG(max_exposure_ratio) if correction == "safe" else Multicategory(gain=None)
        return cls(requested, _usable_loss(requested, correction, allow_biased_loss), own)

    @property
    def is_soft(self) -> bool:
        """Whether relevance is held within 0 and 1, for a loss that is not linear in the gains."""
        return not self.plain.traits.linear_in_gain


def _usable_loss(requested: Loss, correction: str, allow_biased_loss: bool) -> Loss:
    """Return the training loss. It must be linear in the gains, since labels are estimates, unless
    `allow_biased_loss`.
    """
    name = type(requested).__name__
    if requested.traits.linear_in_gain:
        own = {field.name for field in fields(requested)}
        changes = {option: None for option in ("gain", "max_grade") if option in own}
        return replace(requested, **changes)
    if allow_biased_loss:
        if requested.traits.space == "class":
            raise DataError(f"{name} takes grades as classes, which estimates of relevance are not. Choose Squared.")
        return requested
    if name in _LINEAR_FORMS:
        return _LINEAR_FORMS[name]
    if correction in ("safe", "position"):
        return Multicategory(gain=None)  # of the naive ranker: the other has a loss of its own
    raise DataError(
        f"{name} is not linear in the gains, so clicks that are right in expectation would train it with a bias. "
        "Choose Squared, QuerySquared, Multicategory, LambdaLoss(scheme='arp1'), ListNet or Logistic; or accept the "
        "approximation, which trains it on relevance clipped to [0, 1]:",
        remedy=Remedy("{allow_biased_loss}.", allow_biased_loss=True),
    )


def with_loss(ranker: Ranker, loss: Loss) -> Any:
    """An unfitted copy under this loss; expected gains are those of two grades, worthless and relevant."""
    copy = unfitted(ranker).set_params(loss=loss)
    if isinstance(copy, ExpectedGainRanker):
        copy.set_params(n_grades=2, gain="linear")
    if isinstance(loss, SafeDCG) and getattr(copy, "tolerance", 0.0) is None:
        copy.set_params(tolerance=_ROUGHLY)
    return copy


def with_positions(ranker: Any, evidence: Evidence, valid: RankingData | None) -> tuple[Any, RankingData]:
    """Fit trees with a term for each position, which they keep as ``training_["clicks"]["position_biases"]``."""
    if not isinstance(ranker, TreeRanker) or ranker.outputs != "score":
        raise DataError("correction='position' adds a term to the scores of trees; give a TreeRanker of one output.")
    cells = PositionCells.from_evidence(evidence)
    trees = with_loss(ranker, PositionSoftmax(cells)).fit(cells.data, valid=valid)
    trees.set_params(loss=Multicategory(gain=None))  # without the positions that only training knows
    trees.training_["clicks"] = {"position_biases": cells.biases.tolist()}
    return trees, cells.data
