"""Losses for relevance estimated from clicks: linear in the gains, unless a biased loss is allowed."""

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

# Tolerance of a loss that is not convex: a smaller one is expensive without changing the ranking.
_NONCONVEX_TOLERANCE = 1e-3
_LINEAR_FORMS: dict[str, Loss] = {
    "ListNet": Multicategory(gain=None),
    "XENDCG": Multicategory(gain=None),
    "Logistic": LambdaLoss("arp1"),
}


class TrainingLosses(NamedTuple):
    """The requested loss, the loss of the ranker, and the loss that replaces it if the correction is itself a loss."""

    requested: Loss
    ranker_loss: Loss
    correction_loss: Loss | None

    @classmethod
    def from_ranker(
        cls, ranker: Any, correction: str, allow_biased_loss: bool, max_exposure_ratio: float
    ) -> TrainingLosses:
        """Return the losses of a training; `max_exposure_ratio` is the factor of ``safe``."""
        if not isinstance(ranker, Ranker) or not hasattr(ranker, "loss"):
            raise DataError(
                f"{type(ranker).__name__} has no loss parameter. Give a LinearRanker, a TreeRanker, a NeuralRanker or "
                "an ExpectedGainRanker."
            )
        requested = make_loss(ranker.loss)
        own: Loss | None = None
        if correction in ("safe", "position"):
            own = SafeDCG(max_exposure_ratio) if correction == "safe" else Multicategory(gain=None)
        return cls(requested, _usable_loss(requested, correction, allow_biased_loss), own)

    @property
    def clips_relevance(self) -> bool:
        """True if relevance is clipped to [0, 1], because the loss is not linear in the gains."""
        return not self.ranker_loss.traits.linear_in_gain


def _usable_loss(requested: Loss, correction: str, allow_biased_loss: bool) -> Loss:
    """Return the training loss. It must be linear in the gains, because labels are estimates, unless a bias
    is allowed.
    """
    name = type(requested).__name__
    if requested.traits.linear_in_gain:
        own = {field.name for field in fields(requested)}
        changes = {option: None for option in ("gain", "max_grade") if option in own}
        return replace(requested, **changes)
    if allow_biased_loss:
        if requested.traits.space == "class":
            raise DataError(f"{name} needs grades, but clicks give real-valued relevance. Choose Squared.")
        return requested
    if name in _LINEAR_FORMS:
        return _LINEAR_FORMS[name]
    if correction in ("safe", "position"):
        return Multicategory(gain=None)  # For the naive ranker; the correction replaces the loss of the other.
    raise DataError(
        f"{name} is not linear in the gains, so unbiased estimates of relevance would give biased gradients. Choose "
        "Squared, QuerySquared, Multicategory, LambdaLoss(scheme='arp1'), ListNet or Logistic; or accept the bias and "
        "train on relevance clipped to [0, 1]:",
        remedy=Remedy("{allow_biased_loss}.", allow_biased_loss=True),
    )


def with_loss(ranker: Ranker, loss: Loss) -> Any:
    """Return an unfitted copy with this loss; expected gains use two grades, irrelevant and relevant."""
    copy = unfitted(ranker).set_params(loss=loss)
    if isinstance(copy, ExpectedGainRanker):
        copy.set_params(n_grades=2, gain="linear")
    if isinstance(loss, SafeDCG) and getattr(copy, "tolerance", 0.0) is None:
        copy.set_params(tolerance=_NONCONVEX_TOLERANCE)
    return copy


def with_positions(ranker: Any, evidence: Evidence, valid: RankingData | None) -> tuple[Any, RankingData]:
    """Fit trees with one term per position, stored as ``training_["clicks"]["position_biases"]``."""
    if not isinstance(ranker, TreeRanker) or ranker.outputs != "score":
        raise DataError("correction='position' adds a term to the scores of trees. Give a TreeRanker with one output.")
    cells = PositionCells.from_evidence(evidence)
    trees = with_loss(ranker, PositionSoftmax(cells)).fit(cells.data, valid=valid)
    trees.set_params(loss=Multicategory(gain=None))  # Positions are unknown at prediction time.
    trees.training_["clicks"] = {"position_biases": cells.biases.tolist()}
    return trees, cells.data
