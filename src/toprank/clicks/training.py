"""Rankers trained on clicks, corrected for where documents stood, with the naive one beside.

Corrected clicks are right in expectation only. A loss whose gradient is an affine function of the gains
(`traits.linear_in_gain`) has then a gradient that is right in expectation, and training goes where labels would lead;
under any other loss the noise of the estimates becomes a bias. So other losses are trained in the form that is linear
where they have one, and refused otherwise, unless an approximation is asked for by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from toprank.clicks.corrections import (
    CORRECTIONS,
    Corrected,
    Curves,
    correct,
    curves_of,
    judged,
    regression_of,
)
from toprank.clicks.evaluation import evaluate, left_out
from toprank.clicks.intervals import in_words
from toprank.clicks.intervals import plain as jsonable
from toprank.clicks.log import ClickLog, check_log
from toprank.clicks.position_term import Cells, PositionSoftmax
from toprank.clicks.simulation import named, relevance_of
from toprank.compute import FloatArray
from toprank.data.checks import check_data, check_flag, check_number
from toprank.data.dataset import RankingData
from toprank.data.queries import Queries
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
from toprank.significance import bootstrap_interval

__all__ = ["Trained", "Worth", "train"]

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
    "safe": f"{_ASSUMED['affine'][:-1]}; where it does not hold, nothing was gained by leaving the exposure that "
    "documents had by more than the band.",
}


class Worth(NamedTuple):
    """A metric of a ranker, with its interval over queries."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, repr=False)
class Trained(Shown):
    """A ranker trained on clicks, and the naive one.

    Attributes:
        ranker: trained on corrected clicks.
        naive: the same ranker trained on the rates of clicks as they are.
        full: the same ranker trained on the labels of the data, where it was asked for.
        correction: how clicks were corrected.
        curves: α and β of the positions; None where none were needed.
        data: what `ranker` was trained on: documents with their corrected relevance as labels, queries weighted by
            their sessions.
        loss: what it was trained under, and the loss it stands for.
        assumption: what would have to hold for the correction to be right.
        approximate: whether the loss is not linear in the gains.
        estimates: of each ranker by name, DCG@10 of the documents that were shown, on this very log, by ``snips``;
            empty where the log cannot tell.
        metrics: of each ranker by name, NDCG@10 on the labels of `valid`; empty without.
        counts: impressions, those that were left out and why, documents, those never shown, sessions without clicks,
            labels below 0.
    """

    ranker: Ranker
    naive: Ranker
    full: Ranker | None
    correction: str
    curves: Curves | None
    data: RankingData
    loss: tuple[Loss, Loss]
    assumption: str
    approximate: bool
    estimates: dict[str, Worth]
    metrics: dict[str, Worth]
    counts: dict[str, int]

    def to_dict(self) -> dict[str, Any]:
        """For JSON: what was trained, and the rankers side by side."""
        facts: dict[str, Any] = {
            "correction": self.correction, "loss": str(self.loss[0]), "asked": str(self.loss[1]),
            "approximate": self.approximate, "assumption": self.assumption, "counts": self.counts,
        }  # fmt: skip
        for name, worth in (("dcg@10", self.estimates), ("valid_ndcg@10", self.metrics)):
            facts[name] = {ranker: Worth(*jsonable(list(one)))._asdict() for ranker, one in worth.items()} or None
        return facts

    @property
    def words(self) -> list[str]:
        """What was trained on what, what must hold, and what was left out, in sentences."""
        counts, (used, asked) = self.counts, self.loss
        words = [
            f"Trained on {counts['impressions']:,} impressions of {counts['documents']:,} documents, corrected by "
            f"{self.correction!r}. It is right where {self.assumption}"
        ]
        if self.approximate:
            words.append(
                f"An approximation: {type(asked).__name__} is not linear in the gains, so relevance was held within 0 "
                "and 1 and taken for a label; the noise of the clicks is a bias here, which more clicks make smaller."
            )
        elif self.correction in ("safe", "position"):
            words.append(f"{self.correction!r} has a loss of its own; {asked} was not used.")
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
        return words

    def table(self) -> Table | None:
        """The rankers side by side, with intervals over queries; None where nothing compares them."""
        columns = [("DCG@10 (snips, this log)", self.estimates), ("NDCG@10 (validation)", self.metrics)]
        told = [(head, worth) for head, worth in columns if worth]
        names = list(told[0][1]) if told else []
        rows = [
            (name, *(cell for _, worth in told for cell in
                     (f"{worth[name].value:.4f}", in_words(worth[name].low, worth[name].high, digits=4))))
            for name in names
        ]  # fmt: skip
        heads = [cell for head, _ in told for cell in (head, "95% interval")]
        return Table(("model", *heads), rows, names=1) if told else None

    def _parts(self) -> Sequence[Part]:
        table = self.table()
        return [*self.words, *([] if table is None else [table])]


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
    full: bool = False,
    valid: RankingData | None = None,
) -> Trained:
    """Train a ranker on clicks; the naive ranker, on the rates of clicks as they are, is trained beside it.

    Args:
        ranker: unfitted; its loss must be linear in the gains (Squared, QuerySquared, Multicategory, LambdaLoss with
            ``arp1``), or have such a form (ListNet, XENDCG: Multicategory; Logistic: ``arp1``).
        log: sessions of queries of `data`.
        data: documents with features; their labels are not looked at, but for `full`. Those of the log that they do not
            have are left out and counted, and so are those of the data that were never shown (but not under ``dr``).
        correction: ``none``, ``ips``, ``snips``, ``affine``, ``dr`` (see `toprank.clicks.corrections`), or ``safe``:
            ``affine``, under a loss of its own that gains nothing where a document gets more than `within` times more
            or less exposure than it had (`toprank.losses.SafeDCG`); or ``position``, for trees: a term for each
            position inside a softmax loss of the clicks, dropped where they score and kept as
            ``ranker.training_["clicks"]["position_biases"]``.
        propensities: one for each position, from the first on; α and β as two rows; what `propensities` gave, or a
            fitted PBM; None or the name of a method: found from the log (``dual`` and ``regression-em`` learn them with
            this ranker).
        clip: the least propensity to divide by; None: 0 where propensities are given, 10/√sessions where they are
            found from the log, and under ``dr``.
        regression: R̂ of ``dr``: a number for each document in the order of `predict`, or a fitted ranker; None: a
            linear regression on the corrected clicks of other queries.
        within: of ``safe``.
        approximate: train a loss that is not linear in the gains all the same, on relevance held within 0 and 1.
        full: train it on the labels of `data` too, beside: full information, which more clicks should lead to.
        valid: labelled data: for what the ranker chooses on such data, and to compare the rankers on.

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
    check_log(log)
    check_data("learning from clicks", data)
    check_flag("approximate", approximate)
    check_flag("full", full)
    check_number("within", within, least=1)
    asked = _loss_of(ranker)
    plain, used = _usable_loss(asked, correction, approximate), _own_loss(correction, within)
    liked = _liked(data) if full else None
    alone = correction in ("none", "position")
    curves = None if alone and propensities is None else curves_of(propensities, log, data, ranker)
    how = {"safe": "affine", "position": "none"}.get(correction, correction)
    guess = regression_of(regression, log, data, curves) if how == "dr" and curves is not None else None
    found = correct(log, data, how, curves, clip, guess)
    if not log.clicks.any():
        raise DataError("No document of the log was clicked; nothing can be learnt from it.")
    soft = not plain.traits.linear_in_gain
    if correction == "position":
        made, part = _with_positions(ranker, log, data, valid)
    else:
        part = _to_learn(found, data, log, correction == "safe", soft and used is None)
        made = _with_loss(ranker, used or plain).fit(part, valid=valid)
    naive = made
    if correction != "none":
        rates = _to_learn(correct(log, data, "none", None), data, log, False, soft)
        naive = _with_loss(ranker, plain).fit(rates, valid=valid)
    for one, name in ((made, correction), (naive, "none")):
        told = {"correction": name, "sessions": log.n_sessions, "impressions": log.n_impressions}
        one.training_["clicks"] = {**one.training_.get("clicks", {}), **told}
    rankers = {"naive": naive} if correction == "none" else {correction: made, "naive": naive}
    if liked is not None:
        rankers["full information"] = _with_loss(ranker, plain).fit(liked, valid=valid)
    return Trained(
        made, naive, rankers.get("full information"), correction, curves, part, (used or plain, asked),
        _ASSUMED[correction], soft and used is None, _estimates(rankers, log, data, curves, found),
        _metrics(rankers, valid), _counts(found, log, data, part),
    )  # fmt: skip


def _counts(found: Corrected, log: ClickLog, data: RankingData, part: RankingData) -> dict[str, int]:
    shown_queries = found.asked & (data.queries.sum(found.shown) > 0)
    return {
        "impressions": int((found.weight > 0).sum()), "documents": int(np.isfinite(found.relevance).sum()),
        "unknown": found.unknown, "uncorrected": found.uncorrected,
        "never_shown": int(((found.shown == 0) & data.queries.spread(shown_queries)).sum()),
        "negative": int((part.labels < 0).sum()),
        "clickless_sessions": int((np.add.reduceat(log.clicks.astype(np.int64), log.offsets[:-1]) == 0).sum()),
    }  # fmt: skip


def _liked(data: RankingData) -> RankingData:
    """The labels as relevance from 0 to 1, as clicks estimate it."""
    if not data.judged.all():
        raise DataError("Full information is what the labels of the data say, and not all documents are judged.")
    return data.as_grouped().replace(labels=relevance_of(data))


def _loss_of(ranker: Any) -> Loss:
    if not isinstance(ranker, Ranker) or not hasattr(ranker, "loss"):
        raise DataError(
            f"{type(ranker).__name__} has no loss to train under; give a LinearRanker, a TreeRanker, a NeuralRanker or "
            "an ExpectedGainRanker."
        )
    return make_loss(ranker.loss)


def _own_loss(correction: str, within: float) -> Loss | None:
    """Of corrections that are a loss."""
    return {"safe": SafeDCG(within), "position": Multicategory(gain=None)}.get(correction)


def _usable_loss(asked: Loss, correction: str, approximate: bool) -> Loss:
    """The loss to train under: linear in the gains, of which labels are estimates, unless it may be approximate."""
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
    if correction in ("safe", "position"):
        return Multicategory(gain=None)  # of the naive ranker: the other has a loss of its own
    raise DataError(
        f"{name} is not linear in the gains, so clicks that are right in expectation would train it with a bias. "
        "Choose Squared, QuerySquared, Multicategory, LambdaLoss(scheme='arp1'), ListNet or Logistic; or take the "
        "approximation, which trains it on relevance held within 0 and 1:",
        remedy=Remedy("approximate=True.", "--approximate."),
    )


def _to_learn(found: Corrected, data: RankingData, log: ClickLog, safe: bool, soft: bool) -> RankingData:
    """The data with the corrected relevance as labels, queries weighted by their sessions."""
    relevance = np.clip(found.relevance, 0.0, 1.0) if soft else found.relevance
    kept = np.isfinite(relevance)
    weights = found.sessions * (1.0 if data.query_weights is None else data.query_weights)
    changes: dict[str, Any] = {"query_weights": np.where(found.asked, weights, 0.0)}
    if safe:
        relevance, changes["document_weights"] = _banded(relevance, kept, found, data, log)
    changes["labels"] = judged(relevance)
    part = data.as_grouped().replace(**changes)
    return part if kept.all() else part.keep(kept)


def _banded(
    relevance: FloatArray, kept: npt.NDArray[np.bool_], found: Corrected, data: RankingData, log: ClickLog
) -> tuple[FloatArray, FloatArray]:
    """Of ``safe``: who is better or worse than the mean of the query, and the exposure that each had."""
    if data.document_weights is not None:
        raise DataError("The band of 'safe' is carried by document weights, but the data have weights of their own.")
    queries, known = data.queries, found.row >= 0
    sizes = np.maximum(queries.sum(kept * 1.0), 1.0)
    mean = queries.spread(queries.sum(np.where(kept, relevance, 0.0)) / sizes)
    seen = Discount.of("log2").weights(log.depth)[log.position - 1]
    exposure = np.bincount(found.row[known], seen[known], minlength=data.n_documents)
    usual = mean_exposure(Queries.from_sizes(sizes.astype(np.int64))) * np.maximum(found.sessions, 1.0)
    return relevance - mean, np.where(kept, exposure / queries.spread(usual), 0.0)


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
    rankers: Mapping[str, Ranker], log: ClickLog, data: RankingData, curves: Curves | None, found: Corrected
) -> dict[str, Worth]:
    """Of the documents that were shown, in the order of each: of others the log knows nothing."""
    if curves is None:
        return {}
    shown = named(data).keep(found.shown > 0)
    told = {name: evaluate(one, log, shown, propensities=curves) for name, one in rankers.items()}
    return {name: Worth(one.value, *one.interval) for name, one in told.items()}


def _metrics(rankers: Mapping[str, Ranker], valid: RankingData | None) -> dict[str, Worth]:
    if valid is None:
        return {}
    told = {}
    for name, one in rankers.items():
        found = evaluate_labels(one.predict(valid), valid, "ndcg@10")
        ends = bootstrap_interval(found.per_query["ndcg@10"], resamples=2_000)
        told[name] = Worth(found.mean["ndcg@10"], ends.low, ends.high)
    return told
