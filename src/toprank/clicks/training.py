"""Rankers trained on clicks that are corrected for position, with the naive ranker beside.

Corrected clicks are unbiased, but noisy. If the gradient of a loss is an affine function of the gains
(`traits.linear_in_gain`), the gradient is unbiased too, and training converges to where labels would lead; under any
other loss the noise of the estimates becomes a bias. So other losses are trained in their linear form if they have one,
and refused otherwise, unless an approximation is asked for.

The clicks that trained a ranker flatter it. So each fold of the queries is ranked by rankers that were trained on the
sessions of the others, and the clicks on these rankings compare the rankers.

Propensities that are wrong flatter the ranker that they trained. So the comparison uses propensities that are estimated
from the held-out sessions, if these identify them, and a contradiction between the two blocks the choice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Unpack

import numpy as np

from toprank.clicks.contexts import Context
from toprank.clicks.corrections import CORRECTIONS, Correction, Relevance
from toprank.clicks.curves import PropensityCurves, contradiction
from toprank.clicks.evaluation import judge
from toprank.clicks.evidence import Evidence, PropensitySource, bind
from toprank.clicks.intervention_harvesting import HARVESTED
from toprank.clicks.log import REWARDS, ClickLog, UnidentifiedWarning, check_log, sums
from toprank.clicks.policies import Metric, ranks_of
from toprank.clicks.recency import ChosenSessions, SessionOptions, Sessions, options_of
from toprank.clicks.simulation import relevance_of
from toprank.clicks.training_losses import TrainingLosses, with_loss, with_positions
from toprank.clicks.training_overlap import TrainingOverlap
from toprank.clicks.training_result import ClickTrainingResult
from toprank.compute import FloatArray
from toprank.data.arguments import check_flag, check_number, check_whole
from toprank.data.dataset import RankingData, check_data
from toprank.data.division import BoolArray, Division, DivisionRound, cross_fit
from toprank.data.queries import Queries
from toprank.errors import DataError, UnknownNameError, held_warnings
from toprank.evaluation.scores import evaluate as evaluate_labels
from toprank.losses.safe import mean_exposure
from toprank.metrics.conventions import Discount
from toprank.rankers.base import ConvergenceWarning, Ranker
from toprank.significance import Interval, bootstrap_interval

_METRICS = {"click": "dcg@10", "value": "value-dcg@10"}
_FULL = "full information"
_LISTED = 5  # positions that a sentence names
_ASSUMED = {
    "none": "users look at every position alike, or click what is best wherever it stands.",
    "ips": (
        "users click only what they look at, the chance that they look depends on the position alone and is known, and "
        "nobody clicks a worthless document out of trust in its position."
    ),
    "affine": "the chance of a click is α·R + β, where α and β depend on the position alone and are known.",
    "position": (
        "the chance of a click is what the document is worth times the chance that users look at its position, and "
        "documents like it stood at several positions."
    ),
    "dr": (
        "the chance of a click is α·R + β, where α and β depend on the position alone and are known; and the "
        "regression is right about documents that were hardly or never looked at."
    ),
}
_ASSUMED |= {
    "snips": _ASSUMED["affine"],
    "safe": (
        f"{_ASSUMED['affine'][:-1]}; where this fails, the ranker cannot have gained by moving exposure further from "
        "the log's than the band allows."
    ),
}


class TrainingOptions(SessionOptions, total=False):
    """Keywords of `train`."""

    context: Context | None
    clip: float | None
    regression: Any
    max_exposure_ratio: float
    reward: str
    allow_biased_loss: bool
    full_information: bool
    folds: int


@dataclass(frozen=True)
class _TrainingSettings:
    """Keywords of `train` that say what to learn, with their defaults."""

    context: Context | None = None
    clip: float | None = None
    regression: Any = None
    max_exposure_ratio: float = 1.5
    reward: str = "click"
    allow_biased_loss: bool = False
    full_information: bool = False
    folds: int = 5

    def check(self, correction: str) -> None:
        """Refuse values that no training can have."""
        known = (*CORRECTIONS, "safe", "position")
        if correction not in known:
            raise UnknownNameError("correction", correction, known)
        check_flag("allow_biased_loss", self.allow_biased_loss)
        check_flag("full_information", self.full_information)
        check_number("max_exposure_ratio", self.max_exposure_ratio, least=1)
        check_whole("folds", self.folds, 0)
        if self.folds == 1:
            raise DataError("folds must be 2 or more, or 0 to hold nothing out.")
        if self.reward not in REWARDS:
            raise UnknownNameError("reward", self.reward, REWARDS)
        if correction == "position" and self.context is not None:
            raise DataError("correction='position' learns one term per position, whatever the context; use 'affine'.")


def train(
    ranker: Ranker,
    log: ClickLog,
    data: RankingData,
    correction: str = "affine",
    propensities: Any = None,
    *,
    valid: RankingData | None = None,
    **options: Unpack[TrainingOptions],
) -> ClickTrainingResult:
    """Train a ranker on clicks; the naive ranker, on the rates of clicks as they are, is trained beside it.

    Args:
        ranker: unfitted; its loss must be linear in the gains (Squared, QuerySquared, Multicategory, LambdaLoss with
            ``arp1``), or have such a form (ListNet, XENDCG: Multicategory; Logistic: ``arp1``).
        log: sessions of queries of `data`.
        data: documents with features; their labels are not looked at, except for `full_information`. Those of the log
            that they do not have are left out and counted, and so are those of the data that were never shown (but not
            under ``dr``).
        correction: ``none``, ``ips``, ``snips``, ``affine``, ``dr`` (see `toprank.clicks.corrections`), or ``safe``:
            ``affine``, under a loss of its own that gains nothing where a document gets more than `max_exposure_ratio`
            times more or less exposure than it had (`toprank.losses.SafeDCG`); or ``position``, for trees: a term for
            each position inside a softmax loss of the clicks, dropped where they score and kept as
            ``ranker.training_["clicks"]["position_biases"]``.
        propensities: one for each position, from the first on; α and β as two rows; what `propensities` gave, or a
            fitted PBM; None or the name of a method: found from the log (``dual`` and ``regression-em`` learn them with
            this ranker).
        context: column of the log (or several, crossed) whose contexts have propensities of their own, as in
            `toprank.clicks.propensities`; those that are given are then a mapping from contexts.
        clip: the least propensity to divide by, so that no click counts more than 1/clip; None: 0 where propensities
            are given, 10/√sessions where they are found from the log, and under ``dr``.
        regression: R̂ of ``dr``: a number for each document in the order of ``data.X``, or a fitted ranker; None: a
            linear regression on the corrected clicks of other queries.
        max_exposure_ratio: the factor of ``safe`` by which exposure may differ from the log's.
        reward: what the ranker is to bring to the top: ``click``, or the column ``value`` of the log.
        allow_biased_loss: train a loss that is not linear in the gains all the same, on relevance held within 0 and 1.
        full_information: train it on the labels of `data` too, beside: full information, which more clicks should lead
            to.
        valid: labeled data: for what the ranker chooses on such data, and to compare the rankers on.
        folds: into how many parts queries are cut to compare the rankers: each part is ranked by rankers that were
            trained on the sessions of the others, so that training costs so many times more; 0: no such comparison. The
            rankers that are returned are trained on all sessions. The comparison uses propensities estimated from the
            held-out sessions, and the given ones only if these sessions do not identify them
            (`ClickTrainingResult.shared_propensities_reason`).
        by: a column of the log with times, such as ``time``: hold out the latest sessions instead. They compare the
            rankers, none of which learns from them, so that `launch` may judge by the same.
        holdout: the share of sessions to hold out.
        half_life: age at which a session counts half as much as the newest: ``"14d"``, ``"36h"``, or seconds.
        window: leave out sessions that are older than this.

    >>> import toprank as tr
    >>> data = tr.synthetic(n_queries=30, seed=0)
    >>> log = tr.clicks.simulate(data, data.X[:, 0], tr.clicks.PBM.from_parameters([1, 0.5, 0.2]), sessions=2000, k=3)
    >>> done = tr.clicks.train(tr.LinearRanker("Squared"), log, data, propensities=[1, 0.5, 0.2])
    >>> done.ranker.predict(data).shape == done.naive.predict(data).shape
    True
    """
    check_log(log)
    check_data("learning from clicks", data)
    settings, sessions = options_of("train", options, TrainingOptions, _TrainingSettings, Sessions)
    settings.check(correction)
    chosen = sessions.training(log)
    losses = TrainingLosses.from_ranker(ranker, correction, settings.allow_biased_loss, settings.max_exposure_ratio)
    _check_reward(settings, correction, losses)
    task = _Task(ranker, correction, settings, losses, valid)
    material = task.material(chosen, data, propensities)
    curves = None if task.is_alone(propensities) else material.evidence.curves
    _refuse_cells(curves, correction)
    _refuse_unrewarded(chosen.log, settings.reward)
    fits = task.fit(material)
    _remember(fits.rankers, chosen)
    comparison = _compare(task, material, fits, curves)
    metrics, valid_gains = _by_labels(fits.rankers, valid)
    return ClickTrainingResult(
        ranker=fits.rankers["naive" if correction == "none" else correction], naive=fits.rankers["naive"],
        full_information=fits.rankers.get(_FULL), correction=correction, curves=curves, data=fits.part,
        loss=(losses.own or losses.plain, losses.requested), assumption=_ASSUMED[correction],
        uses_biased_loss=losses.is_soft and losses.own is None, estimates=comparison.estimates, metrics=metrics,
        counts=_counts(fits, material.evidence), gains=comparison.gains, valid_gains=valid_gains,
        folds=settings.folds if chosen.cut is None else 0, clip=fits.relevance.clip,
        no_comparison_reason=comparison.missing, reward=settings.reward, recency=chosen.recency,
        held_out=chosen.held_out,
        propensity_conflict=_propensity_conflict(curves, correction, chosen),
        shared_propensities_reason=comparison.shared_propensities_reason,
    )  # fmt: skip


def _refuse_unrewarded(log: ClickLog, reward: str) -> None:
    """Refuse a log without any click, or any value, to learn from."""
    if not log.rewards(reward).any():
        needed = "was clicked" if reward == "click" else "brought anything"
        raise DataError(f"No document of the log {needed}; nothing can be learned from it.")


def _propensity_conflict(curves: PropensityCurves | None, correction: str, chosen: ChosenSessions) -> str:
    """Return how the log, or else its held-out sessions, contradict the propensities; empty if they do not."""
    if curves is None or correction == "none":
        return ""
    return contradiction(curves, chosen.log) or ("" if chosen.cut is None else contradiction(curves, chosen.cut.late))


def _remember(rankers: Mapping[str, Any], chosen: ChosenSessions) -> None:
    """Note in each ranker what a model file keeps of the log: its size, how age counted, and its sessions."""
    log, recency = chosen.log, chosen.recency
    facts: dict[str, Any] = {"sessions": log.n_sessions, "impressions": log.n_impressions}
    if recency is not None:
        facts |= {"half_life": recency.half_life, "window": recency.window}
    known = TrainingOverlap.from_log(log)
    if known is not None:
        facts["known"] = known.plain()
    for name, ranker in rankers.items():
        if name != _FULL:
            correction = {"correction": "none" if name == "naive" else name}
            ranker.training_["clicks"] = {**ranker.training_.get("clicks", {}), **correction, **facts}


def _check_reward(settings: _TrainingSettings, correction: str, losses: TrainingLosses) -> None:
    """Refuse what is made for clicks, if values are to be learned."""
    if settings.reward == "click":
        return
    if correction == "position":
        raise DataError("correction='position' learns from clicks, not values; use 'affine' or another for values.")
    if losses.is_soft:
        raise DataError("The approximation clips relevance to [0, 1], which does not suit values; choose another loss.")
    if settings.full_information:
        raise DataError("Training on labels (full_information) compares with clicks; labels say nothing about values.")


def _refuse_cells(curves: PropensityCurves | None, correction: str) -> None:
    """Refuse what counts exposure by rank, where positions are places within contexts."""
    if correction == "safe" and curves is not None and curves.layout is not None and curves.layout.varies:
        raise DataError(
            f"correction='safe' counts exposure by rank, but {curves.layout.called} varies within sessions, so "
            "positions are not ranks; use 'affine'."
        )


@dataclass(frozen=True, eq=False)
class _Material:
    """What rankers learn from: clicks, and labels as relevance if they are asked for.

    `shown` marks the rows that are ranked when they are held out.
    """

    evidence: Evidence
    liked: RankingData | None = None
    shown: BoolArray | None = None

    @property
    def queries(self) -> Queries:
        return self.evidence.queries

    def select(self, which: Any) -> _Material:
        rows = self.queries.broadcast(which)
        return _Material(
            self.evidence.select(which),
            None if self.liked is None else self.liked.select(which),
            None if self.shown is None else self.shown[rows],
        )


class _Fits(NamedTuple):
    """Rankers by name, the relevance that clicks were corrected to, and the data that the ranker was trained on."""

    rankers: dict[str, Any]
    relevance: Relevance
    part: RankingData


class _Task(NamedTuple):
    """What to train, whatever the sessions."""

    ranker: Ranker
    correction: str
    settings: _TrainingSettings
    losses: TrainingLosses
    valid: RankingData | None

    def is_alone(self, propensities: Any) -> bool:
        """Whether no propensities are needed."""
        return self.correction in ("none", "position") and propensities is None

    def material(self, chosen: ChosenSessions, data: RankingData, propensities: Any) -> _Material:
        """Bind the sessions to the data."""
        settings = self.settings
        evidence = bind(
            chosen.log, data, reward=settings.reward, propensities=propensities, context=settings.context,
            ranker=self.ranker, regression=settings.regression if self.correction == "dr" else None,
        )  # fmt: skip
        return _Material(replace(evidence, chosen=chosen), _liked(data) if settings.full_information else None)

    def fit(self, material: _Material) -> _Fits:
        """Fit the ranker that was asked for, the naive one, and that of full information."""
        evidence, name, losses = material.evidence, self.correction, self.losses
        how = {"safe": "affine", "position": "none"}.get(name, name)
        relevance = evidence.relevance(Correction(how, self.settings.clip), self.settings.reward)
        rankers = {}
        if name == "position":
            rankers[name], part = with_positions(self.ranker, evidence, self.valid)
        else:
            part = self._data(relevance, evidence, losses.is_soft and losses.own is None)
            made = with_loss(self.ranker, losses.own or losses.plain).fit(part, valid=self.valid)
            rankers["naive" if name == "none" else name] = made
        if name != "none":
            rates = evidence.relevance(Correction("none"), self.settings.reward)
            naive = labeled(rates, evidence, np.clip(rates.relevance, 0.0, 1.0) if losses.is_soft else rates.relevance)
            rankers["naive"] = with_loss(self.ranker, losses.plain).fit(naive, valid=self.valid)
        if material.liked is not None:
            rankers[_FULL] = with_loss(self.ranker, losses.plain).fit(material.liked, valid=self.valid)
        return _Fits(rankers, relevance, part)

    def _data(self, relevance: Relevance, evidence: Evidence, soft: bool) -> RankingData:
        if self.correction == "safe":
            return labeled(relevance, evidence, *_banded(relevance, evidence))
        values = relevance.relevance
        return labeled(relevance, evidence, np.clip(values, 0.0, 1.0) if soft else values)


def labeled(
    known: Relevance, evidence: Evidence, values: FloatArray, document_weights: FloatArray | None = None
) -> RankingData:
    """Return the documents with known relevance, with these values as labels and queries weighted by their sessions."""
    data = evidence.data
    weights = evidence.sessions * (1.0 if data.query_weights is None else data.query_weights)
    changes: dict[str, Any] = {"query_weights": np.where(evidence.asked, weights, 0.0)}
    if document_weights is not None:
        changes["document_weights"] = document_weights
    part, kept = data.replace(labels=replace(known, relevance=values).labels, **changes), np.isfinite(known.relevance)
    return part if kept.all() else part.filter(kept)


def _banded(known: Relevance, evidence: Evidence) -> tuple[FloatArray, FloatArray]:
    """Return for ``safe`` the relevance of each document above the mean of its query, and the exposure that it had."""
    data = evidence.data
    if data.document_weights is not None:
        raise DataError("'safe' needs the document weights for its band, but the data have weights of their own.")
    queries, cells, relevance = data.queries, evidence.cells, known.relevance
    kept, joined = np.isfinite(relevance), cells.row >= 0
    sizes = np.maximum(queries.sum(kept * 1.0), 1.0)
    mean = queries.broadcast(queries.sum(np.where(kept, relevance, 0.0)) / sizes)
    seen = Discount.from_spec("log2").weights(int(cells.position.max()))[cells.position - 1] * cells.weight
    exposure = sums(cells.row[joined], seen[joined], data.n_documents)
    usual = mean_exposure(Queries.from_sizes(sizes.astype(np.int64))) * np.where(evidence.asked, evidence.sessions, 1.0)
    return relevance - mean, np.where(kept, exposure / queries.broadcast(usual), 0.0)


def _counts(fits: _Fits, evidence: Evidence) -> dict[str, int]:
    known, queries = fits.relevance, evidence.queries
    shown_queries = evidence.asked & (queries.sum(known.shown) > 0)
    return {
        "impressions": known.impressions, "documents": int(np.isfinite(known.relevance).sum()),
        "unknown": known.unknown, "without_propensity": known.without_propensity, "clipped": known.clipped,
        "never_shown": int(((known.shown == 0) & queries.broadcast(shown_queries)).sum()),
        "negative": int((fits.part.labels < 0).sum()),
        "clickless_sessions": int((evidence.log.session_clicks == 0).sum()),
    }  # fmt: skip


def _liked(data: RankingData) -> RankingData:
    """The labels as relevance from 0 to 1, as clicks estimate it."""
    if not data.judged.all():
        raise DataError(
            "Training on labels (full_information) needs a label for every document, but not all are judged."
        )
    return data.replace(labels=relevance_of(data))


class _HeldOutComparison(NamedTuple):
    """DCG estimates by ranker and gains over the naive ranker, from held-out clicks.

    `missing` says why there are none; `shared_propensities_reason` says why the propensities are those of the training.
    """

    estimates: dict[str, Interval]
    gains: dict[str, Interval]
    missing: str = ""
    shared_propensities_reason: str = ""


def _compare(task: _Task, material: _Material, fits: _Fits, curves: PropensityCurves | None) -> _HeldOutComparison:
    """Compare rankers by clicks on sessions that they did not learn from: other queries, or the latest sessions.

    Only documents that were shown count, since the log knows nothing of others.
    """
    evidence, cut = material.evidence, material.evidence.chosen.cut
    if cut is None and not task.settings.folds:
        return _HeldOutComparison({}, {}, "nothing was held out.")
    if curves is None and task.correction == "none":
        return _HeldOutComparison({}, {}, "no propensities are known.")
    try:
        if cut is None:
            shown = fits.relevance.shown > 0
            scores = _cross_fitted(task, replace(material, shown=shown))
        else:
            propensities, context, ranker = evidence.source
            evidence = bind(
                cut.late, evidence.data, reward=task.settings.reward, propensities=propensities, context=context,
                ranker=ranker,
            )  # fmt: skip
            shown = evidence.relevance(Correction("none"), task.settings.reward).shown > 0
            part = evidence.data.filter(shown)
            scores = {name: ranker.predict(part) for name, ranker in fits.rankers.items()}
        return _compared(task, scores, evidence.filter(shown), curves)
    except DataError as problem:  # too few clicks, or positions that the sessions of the others do not tell apart
        return _HeldOutComparison({}, {}, str(problem))


def _cross_fitted(task: _Task, material: _Material) -> dict[str, FloatArray]:
    """Return out-of-fold scores of the documents that were shown, by ranker."""
    evidence, shown = material.evidence, material.shown
    assert shown is not None
    queries = np.flatnonzero(evidence.asked & (evidence.queries.sum(shown) > 0))
    if len(queries) < 2:
        raise DataError("all sessions are of one query, so none would be left to learn from.")
    fold = np.full(evidence.data.n_queries, -1)
    fold[queries] = np.random.default_rng(0).permutation(len(queries)) % task.settings.folds
    # Sessions that show no known document inform the propensities of every round.
    rounds = tuple(DivisionRound(fold != number, fold == number) for number in range(int(fold.max()) + 1))

    def fit(train: _Material, _: None) -> dict[str, Any]:
        with held_warnings(UnidentifiedWarning, ConvergenceWarning):  # the fit to all sessions has warned already
            return task.fit(train).rankers

    def predict(rankers: Mapping[str, Any], rest: _Material) -> FloatArray:
        assert rest.shown is not None
        scores = np.full((rest.evidence.data.n_documents, len(rankers)), np.nan)
        part = rest.evidence.data.filter(rest.shown)
        scores[rest.shown] = np.stack([ranker.predict(part) for ranker in rankers.values()], axis=1)
        return scores

    done = cross_fit(material, Division(rounds), fit, predict)
    scores = done.out_of_fold(material)[shown]
    return {name: scores[:, column] for column, name in enumerate(done.models[0])}


def _compared(
    task: _Task, scores: Mapping[str, FloatArray], evidence: Evidence, curves: PropensityCurves | None
) -> _HeldOutComparison:
    """Compare rankings by these scores on the clicks, without clipping, whose bias could favor one side."""
    evidence, shared_propensities_reason = _with_own_propensities(evidence, curves)
    ranks = {name: ranks_of(values, evidence.data) for name, values in scores.items()}
    metric = _METRICS[task.settings.reward]
    judged = judge(evidence, [Correction("snips", 0.0)], ranks, [Metric.of(metric)])["snips"]
    estimates = {name: estimate.intervals[metric] for name, estimate in judged.estimates.items()}
    gains = {name: judged.gain(name, "naive", metric) for name in ranks if name != "naive"}
    return _HeldOutComparison(estimates, gains, shared_propensities_reason=shared_propensities_reason)


def _with_own_propensities(evidence: Evidence, curves: PropensityCurves | None) -> tuple[Evidence, str]:
    """Return held-out evidence with propensities of its own, and a sentence if it does not identify these.

    Propensities that trained a ranker favor it if they are wrong. So they are estimated from the held-out sessions by a
    method that needs no model of relevance: the method of the training if it is one of these, ``trust`` for curves with
    offsets, and otherwise ``all-pairs``.
    """
    source = evidence.source
    if source.is_log and source.method in HARVESTED:
        return evidence, ""
    assert curves is not None
    columns = None if curves.layout is None else curves.layout.columns
    own = evidence.with_propensities(
        PropensitySource("trust" if curves.has_offsets else "all-pairs", columns, source.ranker)
    )
    missing = curves.usable[evidence.index_of(curves)]
    try:
        with held_warnings(UnidentifiedWarning):
            estimated = own.curves
        missing = missing & ~estimated.usable[evidence.index_of(estimated)]
        if not missing.any():
            return own, ""
    except DataError:  # positions that these sessions do not identify, or contexts that the method does not take
        pass
    positions = [str(position) for position in np.unique(evidence.cells.position[missing]).tolist()]
    listed = ", ".join(positions[:_LISTED]) + (
        f" and {len(positions) - _LISTED} more" if len(positions) > _LISTED else ""
    )
    origin = (
        "given propensities"
        if curves.origin.startswith("given")
        else f"propensities that trained the ranker ({curves.origin})"
    )
    return evidence.with_propensities(PropensitySource(curves)), (
        f"The comparison rests on the {origin}, because the held-out sessions do not identify the propensity of "
        f"position{'s' if len(positions) > 1 else ''} {listed}."
    )


def _by_labels(
    rankers: Mapping[str, Ranker], valid: RankingData | None
) -> tuple[dict[str, Interval], dict[str, Interval]]:
    """Return NDCG@10 of each ranker on labels, and its paired difference to the naive one."""
    if valid is None:
        return {}, {}
    evaluations = {name: evaluate_labels(ranker.predict(valid), valid, "ndcg@10") for name, ranker in rankers.items()}
    values = {name: np.asarray(evaluation.per_query["ndcg@10"]) for name, evaluation in evaluations.items()}
    means = {name: evaluation.mean["ndcg@10"] for name, evaluation in evaluations.items()}

    def interval(mean: float, of: FloatArray) -> Interval:
        return replace(bootstrap_interval(of, n_resamples=2_000), value=mean)

    gains = {
        name: interval(means[name] - means["naive"], values[name] - values["naive"])
        for name in rankers
        if name != "naive"
    }
    return {name: interval(means[name], of) for name, of in values.items()}, gains
