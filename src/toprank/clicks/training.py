"""Rankers trained on clicks, corrected for where documents stood, with the naive one beside.

Corrected clicks are right in expectation only. A loss whose gradient is an affine function of the gains
(`traits.linear_in_gain`) has then a gradient that is right in expectation, and training goes where labels would lead;
under any other loss the noise of the estimates becomes a bias. So other losses are trained in the form that is linear
where they have one, and refused otherwise, unless an approximation is asked for by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from toprank.clicks.corrections import CORRECTIONS, Corrected, Curves, correct, curves_of, judged, regression_of
from toprank.clicks.evaluation import evaluate, left_out
from toprank.clicks.log import ClickLog
from toprank.clicks.position_term import Cells, PositionSoftmax
from toprank.clicks.simulation import named
from toprank.compute import FloatArray
from toprank.data.checks import check_data, check_flag, check_number
from toprank.data.dataset import RankingData
from toprank.errors import DataError, Remedy, UnknownNameError
from toprank.losses import LambdaLoss, Loss, Multicategory, SafeDCG
from toprank.losses import make as make_loss
from toprank.losses.safe import mean_exposure
from toprank.metrics.evaluation import evaluate as evaluate_labels
from toprank.metrics.gains import Discount
from toprank.rankers.base import Ranker
from toprank.rankers.estimator import unfitted
from toprank.rankers.expected_gain import ExpectedGainRanker
from toprank.rankers.trees import TreeRanker
from toprank.showing.tables import Part, Shown, Table

__all__ = ["Trained", "train"]

_ROUGHLY = 1e-3  # tolerance of a loss that is not convex: its last digits cost much and say nothing
_LINEAR_FORMS: dict[str, Loss] = {
    "ListNet": Multicategory(gain=None),
    "XENDCG": Multicategory(gain=None),
    "Logistic": LambdaLoss("arp1"),
}
_ASSUMED = {
    "none": "users look at every position alike, or their clicks show what is best whatever they looked at.",
    "ips": "a click needs a look, whose chance depends on the position alone and is known, and a look at what "
    "is worth nothing is never clicked out of trust in its position.",
    "affine": "the chance of a click is α·R + β with α and β of the position alone, and these are known.",
    "position": "clicks are what a document is worth times how likely its position is looked at, and documents or "
    "features like theirs stood at several positions.",
    "dr": "the chance of a click is α·R + β with α and β of the position alone, and these are known; of documents that "
    "were hardly or never looked at, the regression must be right.",
}
_ASSUMED |= {
    "snips": _ASSUMED["affine"],
    "safe": f"{_ASSUMED['affine'][:-1]}; where it does not hold, no document is moved for more exposure than the band.",
}


@dataclass(frozen=True, repr=False)
class Trained(Shown):
    """A ranker trained on clicks, and the naive one.

    Attributes:
        ranker: trained on corrected clicks.
        naive: the same ranker trained on the rates of clicks as they are.
        correction: how clicks were corrected.
        data: what `ranker` was trained on: documents with their corrected relevance as labels, queries weighted by
            their sessions.
        loss: what it was trained under, and the loss it stands for.
        assumption: what would have to hold for the correction to be right.
        estimates: of both, DCG@10 of the documents that were shown, on this very log, by ``snips``; None where the log
            cannot tell.
        metrics: of both, NDCG@10 on the labels of `valid`, where there are any.
        counts: impressions, those that were left out and why, sessions without clicks, documents never shown, labels
            below 0.
    """

    ranker: Ranker
    naive: Ranker
    correction: str
    data: RankingData
    loss: tuple[Loss, Loss]
    assumption: str
    approximate: bool
    estimates: tuple[float, float] | None
    metrics: tuple[float, float] | None
    counts: dict[str, int]

    def to_dict(self) -> dict[str, Any]:
        """For JSON: what was trained, and both models side by side."""
        facts: dict[str, Any] = {
            "correction": self.correction, "loss": str(self.loss[0]), "asked": str(self.loss[1]),
            "approximate": self.approximate, "assumption": self.assumption, "counts": self.counts,
        }  # fmt: skip
        for name, pair in (("dcg@10", self.estimates), ("valid_ndcg@10", self.metrics)):
            facts[name] = None if pair is None else {"model": pair[0], "naive": pair[1]}
        return facts

    def _parts(self) -> Sequence[Part]:
        counts, (used, asked) = self.counts, self.loss
        words = [
            f"Trained on {counts['impressions']:,} impressions of {self.data.n_documents:,} documents, corrected by "
            f"{self.correction!r}. It is right where {self.assumption}"
        ]
        if self.approximate:
            words.append(
                f"An approximation: {type(asked).__name__} is not linear in the gains, so relevance was held within 0 "
                "and 1 and taken for a label; the noise of the clicks is a bias here, which more clicks make smaller."
            )
        elif type(used) is not type(asked):
            words.append(
                f"{type(asked).__name__} is not linear in the gains; it was trained in its linear form, {used}."
            )
        words += left_out(counts["unknown"], counts["uncorrected"])
        if counts["never_shown"]:
            known = "worth what the regression says" if self.correction == "dr" else "left out"
            words.append(f"{counts['never_shown']:,} documents of these queries were never shown: {known}.")
        if counts["clickless_sessions"]:
            words.append(
                f"{counts['clickless_sessions']:,} sessions have no click; they count as what they are: skips."
            )
        columns = [("DCG@10 (snips, this log)", self.estimates), ("NDCG@10 (validation)", self.metrics)]
        told = [(head, pair) for head, pair in columns if pair is not None]
        rows = [(name, *(f"{pair[i]:.4f}" for _, pair in told)) for i, name in enumerate((self.correction, "naive"))]
        return [*words, Table(("model", *(head for head, _ in told)), rows, names=1)] if told else words


def train(
    ranker: Ranker,
    log: ClickLog,
    data: RankingData,
    correction: str = "affine",
    propensities: Any = None,
    *,
    clip: float | None = None,
    regression: Any = None,
    within: float = 1.5,
    approximate: bool = False,
    valid: RankingData | None = None,
) -> Trained:
    """Train a ranker on clicks; the naive ranker, on the rates of clicks as they are, is trained beside it.

    Args:
        ranker: unfitted; its loss must be linear in the gains (Squared, QuerySquared, Multicategory, LambdaLoss with
            ``arp1``), or have such a form (ListNet, XENDCG: Multicategory; Logistic: ``arp1``).
        log: sessions of queries of `data`.
        data: documents with features; their labels are not looked at. Those of the log that they do not have are left
            out and counted, and so are those of the data that were never shown (but not under ``dr``).
        correction: ``none``, ``ips``, ``snips``, ``affine``, ``dr`` (see `toprank.clicks.corrections`), or ``safe``:
            ``affine``, and then no document is moved for more than `within` times more or less exposure than it had
            (`toprank.losses.SafeDCG`); or ``position``, for trees: a term for each position inside a softmax loss of
            the clicks, dropped where they score and kept as ``ranker.training_["clicks"]["position_biases"]``.
        propensities: one for each position, from the first on; α and β as two rows; what `propensities` gave, or a
            fitted PBM; None or the name of a method: found from the log.
        clip: the least propensity to divide by.
        regression: R̂ of ``dr``: a number for each document in the order of `predict`, or a fitted ranker; None: a
            linear regression on the corrected clicks.
        within: of ``safe``.
        approximate: train a loss that is not linear in the gains all the same, on relevance held within 0 and 1.
        valid: labelled data: for what the ranker chooses on such data, and to compare it with the naive one.

    >>> import toprank as tr
    >>> data = tr.synthetic(n_queries=30, seed=0)
    >>> log = tr.clicks.simulate(data, data.X[:, 0], tr.clicks.PBM.known([1, 0.5, 0.2]), sessions=2000, k=3)
    >>> done = tr.clicks.train(tr.LinearRanker("Squared"), log, data, propensities=[1, 0.5, 0.2])
    >>> done.ranker.predict(data).shape == done.naive.predict(data).shape
    True
    """
    known = (*CORRECTIONS, "safe", "position")
    if correction not in known:
        raise UnknownNameError("correction", correction, known)
    check_data("learning from clicks", data)
    check_flag("approximate", approximate)
    check_number("within", within, least=1)
    asked = _loss_of(ranker)
    alone = correction in ("none", "position")
    curves = None if alone and propensities is None else curves_of(propensities, log, data, ranker)
    how = {"safe": "affine", "position": "none"}.get(correction, correction)
    guess = regression_of(regression, log, data, curves) if how == "dr" and curves is not None else None
    found = correct(log, data, how, curves, clip, guess)
    if not log.clicks.any():
        raise DataError("No document of the log was clicked; nothing can be learnt from it.")
    if correction == "position":
        made, part = _with_positions(ranker, log, data, valid)
        used: Loss = Multicategory(gain=None)
    else:
        used = _usable_loss(asked, correction, within, approximate)
        part = _to_learn(found, data, log, correction, approximate and not asked.traits.linear_in_gain)
        made = _with_loss(ranker, used).fit(part, valid=valid)
    naive = made
    if correction != "none":
        plain = _usable_loss(asked, "none", within, approximate)
        rates = correct(log, data, "none", None)
        naive = _with_loss(ranker, plain).fit(_to_learn(rates, data, log, "none", approximate), valid=valid)
    for one, name in ((made, correction), (naive, "none")):
        told = {"correction": name, "sessions": log.n_sessions, "impressions": log.n_impressions}
        one.training_["clicks"] = {**one.training_.get("clicks", {}), **told}
    shown_queries = found.asked & (data.queries.sum(found.shown) > 0)
    counts = {
        "impressions": int((found.weight > 0).sum()), "unknown": found.unknown, "uncorrected": found.uncorrected,
        "never_shown": int(((found.shown == 0) & data.queries.spread(shown_queries)).sum()),
        "negative": int((part.labels < 0).sum()),
        "clickless_sessions": int((np.add.reduceat(log.clicks.astype(np.int64), log.offsets[:-1]) == 0).sum()),
    }  # fmt: skip
    both = (made, naive)
    return Trained(
        made, naive, correction, part, (used, asked), _ASSUMED[correction],
        approximate and not used.traits.linear_in_gain and correction != "safe",
        _estimates(both, log, data, curves, found), _metrics(both, valid), counts,
    )  # fmt: skip


def _loss_of(ranker: Any) -> Loss:
    if not isinstance(ranker, Ranker) or not hasattr(ranker, "loss"):
        raise DataError(
            f"{type(ranker).__name__} has no loss to train under; give a LinearRanker, a TreeRanker, a NeuralRanker or "
            "an ExpectedGainRanker."
        )
    return make_loss(ranker.loss)


def _usable_loss(asked: Loss, correction: str, within: float, approximate: bool) -> Loss:
    """The loss to train under: linear in the gains, of which labels are estimates, unless it may be approximate."""
    if correction == "safe":
        return SafeDCG(within)
    name = type(asked).__name__
    if asked.traits.linear_in_gain:
        own = {field.name for field in fields(asked)}
        changes = {option: None for option in ("gain", "max_grade") if option in own}
        return replace(asked, **changes)
    if approximate:
        if asked.traits.space == "class":
            raise DataError(f"{name} takes grades as classes; estimates of relevance are none. Choose Squared.")
        return asked
    if name in _LINEAR_FORMS:
        return _LINEAR_FORMS[name]
    raise DataError(
        f"{name} is not linear in the gains, so clicks that are right in expectation would train it with a bias. "
        "Choose Squared, QuerySquared, Multicategory, LambdaLoss(scheme='arp1'), ListNet or Logistic; or take the "
        "approximation, which trains it on relevance held within 0 and 1:",
        remedy=Remedy("approximate=True.", "--approximate."),
    )


def _to_learn(found: Corrected, data: RankingData, log: ClickLog, correction: str, soft: bool) -> RankingData:
    """The data with the corrected relevance as labels, queries weighted by their sessions."""
    relevance = np.clip(found.relevance, 0.0, 1.0) if soft else found.relevance
    kept = np.isfinite(relevance)
    weights = found.sessions * (1.0 if data.query_weights is None else data.query_weights)
    changes: dict[str, Any] = {"query_weights": np.where(found.asked, weights, 0.0)}
    queries = data.queries
    if correction == "safe":
        if data.document_weights is not None:
            raise DataError(
                "The band of 'safe' is carried by document weights, but the data have weights of their own."
            )
        exposure = np.bincount(
            found.row[found.row >= 0], Discount.of("log2").weights(log.depth)[log.position - 1][found.row >= 0],
            minlength=data.n_documents,
        ) / queries.spread(np.maximum(found.sessions, 1.0))  # fmt: skip
        known = queries.spread(queries.sum(np.where(kept, relevance, 0.0)) / np.maximum(queries.sum(kept * 1.0), 1.0))
        relevance = relevance - known  # better or worse than the query's mean: to be exposed more, or less
        kept_sizes = queries.sum(kept * 1.0).astype(np.int64)
        usual = _usual_exposure(kept_sizes)
        changes["document_weights"] = np.where(kept, exposure / queries.spread(usual), 0.0)
    changes["labels"] = judged(relevance)
    part = data.as_grouped().replace(**changes)
    return part if kept.all() else part.keep(kept)


def _usual_exposure(sizes: Any) -> FloatArray:
    """The mean exposure over the ranks of lists of these sizes (1 where one is empty)."""
    from toprank.data.queries import Queries

    filled = np.maximum(sizes, 1)
    return mean_exposure(Queries.from_sizes(filled))


def _with_loss(ranker: Ranker, loss: Loss) -> Any:
    """An unfitted copy under this loss; expected gains are those of two grades, worthless and relevant."""
    made = unfitted(ranker).set_params(loss=loss)
    if isinstance(made, ExpectedGainRanker):
        made.set_params(n_grades=2, gain="linear")
    if isinstance(loss, SafeDCG) and getattr(made, "tolerance", 0.0) is None:
        made.set_params(tolerance=_ROUGHLY)
    return made


def _with_positions(
    ranker: Any, log: ClickLog, data: RankingData, valid: RankingData | None
) -> tuple[Any, RankingData]:
    """Trees with a term for each position, which they keep as ``training_["clicks"]["position_biases"]``."""
    if not isinstance(ranker, TreeRanker) or ranker.outputs != "score":
        raise DataError("correction='position' adds a term to the scores of trees; give a TreeRanker of one output.")
    cells = Cells.of(log, data.as_grouped())
    made = _with_loss(ranker, PositionSoftmax(cells)).fit(cells.data, valid=valid)
    made.set_params(loss=Multicategory(gain=None))  # without the positions that only training knows
    made.training_["clicks"] = {"position_biases": cells.biases.tolist()}
    return made, cells.data


def _estimates(
    both: tuple[Ranker, Ranker], log: ClickLog, data: RankingData, curves: Curves | None, found: Corrected
) -> tuple[float, float] | None:
    """Of the documents that were shown, in the order of each: of others the log knows nothing."""
    if curves is None:
        return None
    data = named(data).keep(found.shown > 0)
    first, second = (evaluate(one, log, data, propensities=curves).value for one in both)
    return first, second


def _metrics(both: tuple[Ranker, Ranker], valid: RankingData | None) -> tuple[float, float] | None:
    if valid is None:
        return None
    found = [evaluate_labels(one.predict(valid), valid, "ndcg@10").mean["ndcg@10"] for one in both]
    return found[0], found[1]
