"""Train rankers on clicks corrected for position, together with a naive ranker for comparison.

Corrected clicks are unbiased, but noisy. If the gradient of a loss is an affine function of the gains
(`traits.linear_in_gain`), the gradient is unbiased too, and training converges to the same ranker as with labels. Under
any other loss, noise in the estimates becomes a bias. Such losses are replaced by their linear form if they have one;
otherwise they are rejected unless a biased loss is allowed.

Rankers must not be evaluated on the clicks that they were trained on. Each fold of the queries is therefore ranked by
rankers trained on the sessions of the other folds, and the clicks on these rankings compare the rankers.

Wrong propensities favor the ranker that was trained with them. The comparison therefore uses propensities estimated
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
from toprank.clicks.evaluation import estimate_rankers
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
_FULL_INFORMATION = "full information"
_MAX_LISTED_POSITIONS = 5  # Maximum number of positions listed in a message.
_ASSUMPTIONS = {
    "none": "users examine all positions equally, or always click the best document.",
    "ips": (
        "users click only documents that they examine, the probability of examination depends only on the position and "
        "is known, and users do not click irrelevant documents out of trust in their position."
    ),
    "affine": "the probability of a click is α·R + β, where α and β depend only on the position and are known.",
    "position": (
        "the probability of a click is the relevance of the document times the probability that users examine its "
        "position, and similar documents were shown at several positions."
    ),
    "dr": (
        "the probability of a click is α·R + β, where α and β depend only on the position and are known; and the "
        "regression is correct for documents that were rarely or never examined."
    ),
}
_ASSUMPTIONS |= {
    "snips": _ASSUMPTIONS["affine"],
    "safe": (
        f"{_ASSUMPTIONS['affine'][:-1]}; if this fails, the ranker still cannot gain from exposure that differs from "
        "the exposure in the log by more than the maximum ratio."
    ),
}


class TrainingOptions(SessionOptions, total=False):
    """Keyword arguments of `train`."""

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
    """Options of the training, with their defaults."""

    context: Context | None = None
    clip: float | None = None
    regression: Any = None
    max_exposure_ratio: float = 1.5
    reward: str = "click"
    allow_biased_loss: bool = False
    full_information: bool = False
    folds: int = 5

    def check(self, correction: str) -> None:
        """Check the values."""
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
            raise DataError("correction='position' learns one term per position and ignores contexts. Use 'affine'.")


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
    """Train a ranker on clicks, together with a naive ranker on uncorrected click rates for comparison.

    Args:
        ranker: an unfitted ranker. Its loss must be linear in the gains (Squared, QuerySquared, Multicategory,
            LambdaLoss with ``arp1``) or have a linear form (ListNet, XENDCG: Multicategory; Logistic: ``arp1``).
        log: sessions whose queries are in `data`.
        data: documents with features. Labels are ignored, except for `full_information`. Documents of the log that are
            not in the data are dropped and counted, as are documents of the data that were never shown (except under
            ``dr``).
        correction: ``none``, ``ips``, ``snips``, ``affine`` or ``dr`` (see `toprank.clicks.corrections`); ``safe``,
            which is ``affine`` with a loss that gives no gain beyond `max_exposure_ratio` (`toprank.losses.SafeDCG`);
            or ``position`` for trees, which adds a term per position to a softmax loss of the clicks, drops it for
            predictions and stores it as ``ranker.training_["clicks"]["position_biases"]``. Default: ``affine``.
        propensities: one number per position from the first on; two rows, α and β; a result of `propensities`; a fitted
            PBM; or the name of a method that estimates them from the log (``dual`` and ``regression-em`` use this
            ranker). Default: ``all-pairs``.
        valid: labeled data, for early stopping and similar choices of the ranker, and to compare the rankers by labels.
        context: column of the log, or several crossed columns, whose contexts have separate propensities, as in
            `toprank.clicks.propensities`. Given propensities are then a mapping from contexts.
        clip: smallest propensity to divide by, which limits the weight of a click to 1/clip. Default: 0 if propensities
            are given; 10/√sessions if they are estimated from the log, and under ``dr``.
        regression: R̂ of ``dr``: a number for each document in the order of ``data.X``, or a fitted ranker. Default: a
            linear regression on the corrected clicks of other queries.
        max_exposure_ratio: for ``safe``, the factor by which the exposure of a document may differ from its exposure in
            the log. Default: 1.5.
        reward: ``click``, or ``value`` for the column ``value`` of the log. Default: ``click``.
        allow_biased_loss: train with a loss that is not linear in the gains, on relevance clipped to [0, 1]. Default:
            False.
        full_information: also train on the labels of `data`, the result that more clicks should converge to. Default:
            False.
        folds: number of folds of queries for comparing the rankers; 0 for no comparison. Default: 5. Each fold is
            ranked by rankers trained on the sessions of the other folds, so training takes correspondingly longer. The
            returned rankers are trained on all sessions. The comparison uses propensities estimated from the held-out
            sessions, and the given ones only if these sessions do not identify them
            (`ClickTrainingResult.shared_propensities_reason`).
        time_column: column of the log with times, such as ``time``; hold out the latest sessions instead of folds of
            queries. No ranker is trained on them, so `launch_report` can use them as well.
        holdout: fraction of sessions to hold out.
        half_life: age at which a session has half the weight of the newest: ``"14d"``, ``"36h"``, or seconds.
        window: drop sessions older than this.

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
    _record_log(fits.rankers, chosen)
    comparison = _compare(task, material, fits, curves)
    metrics, valid_gains = _metrics_by_labels(fits.rankers, valid)
    return ClickTrainingResult(
        ranker=fits.rankers["naive" if correction == "none" else correction], naive=fits.rankers["naive"],
        full_information=fits.rankers.get(_FULL_INFORMATION), correction=correction, curves=curves, data=fits.part,
        loss=(losses.correction_loss or losses.ranker_loss, losses.requested), assumption=_ASSUMPTIONS[correction],
        uses_biased_loss=losses.clips_relevance and losses.correction_loss is None,
        estimates=comparison.estimates, metrics=metrics,
        counts=_counts(fits, material.evidence), gains=comparison.gains, valid_gains=valid_gains,
        folds=settings.folds if chosen.cut is None else 0, clip=fits.relevance.clip,
        no_comparison_reason=comparison.missing, reward=settings.reward, recency=chosen.recency,
        held_out=chosen.held_out,
        propensity_conflict=_propensity_conflict(curves, correction, chosen),
        shared_propensities_reason=comparison.shared_propensities_reason,
    )  # fmt: skip


def _refuse_unrewarded(log: ClickLog, reward: str) -> None:
    """Reject a log without any click or value."""
    if not log.rewards(reward).any():
        needed = "was clicked" if reward == "click" else "has a value"
        raise DataError(f"No document of the log {needed}, so there is nothing to learn from.")


def _propensity_conflict(curves: PropensityCurves | None, correction: str, chosen: ChosenSessions) -> str:
    """Return how the log, or its held-out sessions, contradict the propensities; empty if they do not."""
    if curves is None or correction == "none":
        return ""
    return contradiction(curves, chosen.log) or ("" if chosen.cut is None else contradiction(curves, chosen.cut.late))


def _record_log(rankers: Mapping[str, Any], chosen: ChosenSessions) -> None:
    """Record in each ranker what its model file stores about the log: size, weighting by age, and sessions."""
    log, recency = chosen.log, chosen.recency
    facts: dict[str, Any] = {"sessions": log.n_sessions, "impressions": log.n_impressions}
    if recency is not None:
        facts |= {"half_life": recency.half_life, "window": recency.window}
    known = TrainingOverlap.from_log(log)
    if known is not None:
        facts["known"] = known.plain()
    for name, ranker in rankers.items():
        if name != _FULL_INFORMATION:
            correction = {"correction": "none" if name == "naive" else name}
            ranker.training_["clicks"] = {**ranker.training_.get("clicks", {}), **correction, **facts}


def _check_reward(settings: _TrainingSettings, correction: str, losses: TrainingLosses) -> None:
    """Reject options that support clicks only, if values are to be learned."""
    if settings.reward == "click":
        return
    if correction == "position":
        raise DataError(
            "correction='position' learns from clicks, not values. Use another correction, such as 'affine'."
        )
    if losses.clips_relevance:
        raise DataError("A biased loss clips relevance to [0, 1], which is wrong for values. Choose another loss.")
    if settings.full_information:
        raise DataError("Training on labels (full_information) compares with clicks; labels contain no values.")


def _refuse_cells(curves: PropensityCurves | None, correction: str) -> None:
    """Reject a correction that computes exposure from ranks, if positions restart in each context."""
    if correction == "safe" and curves is not None and curves.layout is not None and curves.layout.varies:
        raise DataError(
            f"correction='safe' counts exposure by rank, but {curves.layout.called} varies within sessions, so "
            "positions are not ranks; use 'affine'."
        )


@dataclass(frozen=True, eq=False)
class _TrainingInput:
    """Training input: clicks, and labels as relevance if requested.

    `shown` marks the rows that are ranked when they are held out.
    """

    evidence: Evidence
    judged_data: RankingData | None = None
    shown: BoolArray | None = None

    @property
    def queries(self) -> Queries:
        return self.evidence.queries

    def select(self, which: Any) -> _TrainingInput:
        rows = self.queries.broadcast(which)
        return _TrainingInput(
            self.evidence.select(which),
            None if self.judged_data is None else self.judged_data.select(which),
            None if self.shown is None else self.shown[rows],
        )


class _FittedRankers(NamedTuple):
    """Rankers by name, the corrected relevance, and the training data of the ranker."""

    rankers: dict[str, Any]
    relevance: Relevance
    part: RankingData


class _Task(NamedTuple):
    """Training task, independent of the sessions."""

    ranker: Ranker
    correction: str
    settings: _TrainingSettings
    losses: TrainingLosses
    valid: RankingData | None

    def is_alone(self, propensities: Any) -> bool:
        """Return whether no propensities are needed."""
        return self.correction in ("none", "position") and propensities is None

    def material(self, chosen: ChosenSessions, data: RankingData, propensities: Any) -> _TrainingInput:
        """Bind the sessions to the data."""
        settings = self.settings
        evidence = bind(
            chosen.log, data, reward=settings.reward, propensities=propensities, context=settings.context,
            ranker=self.ranker, regression=settings.regression if self.correction == "dr" else None,
        )  # fmt: skip
        return _TrainingInput(
            replace(evidence, chosen=chosen), _relevance_from_labels(data) if settings.full_information else None
        )

    def fit(self, material: _TrainingInput) -> _FittedRankers:
        """Fit the requested ranker, the naive one, and the one with full information."""
        evidence, name, losses = material.evidence, self.correction, self.losses
        how = {"safe": "affine", "position": "none"}.get(name, name)
        relevance = evidence.relevance(Correction(how, self.settings.clip), self.settings.reward)
        rankers = {}
        if name == "position":
            rankers[name], part = with_positions(self.ranker, evidence, self.valid)
        else:
            part = self._data(relevance, evidence, losses.clips_relevance and losses.correction_loss is None)
            made = with_loss(self.ranker, losses.correction_loss or losses.ranker_loss).fit(part, valid=self.valid)
            rankers["naive" if name == "none" else name] = made
        if name != "none":
            rates = evidence.relevance(Correction("none"), self.settings.reward)
            naive = labeled(
                rates, evidence, np.clip(rates.relevance, 0.0, 1.0) if losses.clips_relevance else rates.relevance
            )
            rankers["naive"] = with_loss(self.ranker, losses.ranker_loss).fit(naive, valid=self.valid)
        if material.judged_data is not None:
            rankers[_FULL_INFORMATION] = with_loss(self.ranker, losses.ranker_loss).fit(
                material.judged_data, valid=self.valid
            )
        return _FittedRankers(rankers, relevance, part)

    def _data(self, relevance: Relevance, evidence: Evidence, soft: bool) -> RankingData:
        if self.correction == "safe":
            return labeled(relevance, evidence, *_safe_labels(relevance, evidence))
        values = relevance.relevance
        return labeled(relevance, evidence, np.clip(values, 0.0, 1.0) if soft else values)


def labeled(
    known: Relevance, evidence: Evidence, values: FloatArray, document_weights: FloatArray | None = None
) -> RankingData:
    """Return the documents with known relevance, with these values as labels and queries weighted by sessions."""
    data = evidence.data
    weights = evidence.sessions * (1.0 if data.query_weights is None else data.query_weights)
    changes: dict[str, Any] = {"query_weights": np.where(evidence.asked, weights, 0.0)}
    if document_weights is not None:
        changes["document_weights"] = document_weights
    part, kept = data.replace(labels=replace(known, relevance=values).labels, **changes), np.isfinite(known.relevance)
    return part if kept.all() else part.filter(kept)


def _safe_labels(known: Relevance, evidence: Evidence) -> tuple[FloatArray, FloatArray]:
    """Return for ``safe`` the relevance of each document minus the mean of its query, and its exposure in the log."""
    data = evidence.data
    if data.document_weights is not None:
        raise DataError("'safe' uses the document weights for exposure, but the data already have document weights.")
    queries, cells, relevance = data.queries, evidence.cells, known.relevance
    kept, joined = np.isfinite(relevance), cells.row >= 0
    sizes = np.maximum(queries.sum(kept * 1.0), 1.0)
    mean = queries.broadcast(queries.sum(np.where(kept, relevance, 0.0)) / sizes)
    seen = Discount.from_spec("log2").weights(int(cells.position.max()))[cells.position - 1] * cells.weight
    exposure = sums(cells.row[joined], seen[joined], data.n_documents)
    usual = mean_exposure(Queries.from_sizes(sizes.astype(np.int64))) * np.where(evidence.asked, evidence.sessions, 1.0)
    return relevance - mean, np.where(kept, exposure / queries.broadcast(usual), 0.0)


def _counts(fits: _FittedRankers, evidence: Evidence) -> dict[str, int]:
    known, queries = fits.relevance, evidence.queries
    shown_queries = evidence.asked & (queries.sum(known.shown) > 0)
    return {
        "impressions": known.impressions, "documents": int(np.isfinite(known.relevance).sum()),
        "unknown": known.unknown, "without_propensity": known.without_propensity, "clipped": known.clipped,
        "never_shown": int(((known.shown == 0) & queries.broadcast(shown_queries)).sum()),
        "negative": int((fits.part.labels < 0).sum()),
        "clickless_sessions": int((evidence.log.session_clicks == 0).sum()),
    }  # fmt: skip


def _relevance_from_labels(data: RankingData) -> RankingData:
    """Return data with the labels mapped to relevance from 0 to 1."""
    if not data.judged.all():
        raise DataError(
            "Training on labels (full_information) needs a label for every document, but not all are judged."
        )
    return data.replace(labels=relevance_of(data))


class _HeldOutComparison(NamedTuple):
    """DCG estimates by ranker and gains over the naive ranker, from held-out clicks.

    `missing` is the reason if there are none; `shared_propensities_reason` explains the use of the propensities of the
    training.
    """

    estimates: dict[str, Interval]
    gains: dict[str, Interval]
    missing: str = ""
    shared_propensities_reason: str = ""


def _compare(
    task: _Task, material: _TrainingInput, fits: _FittedRankers, curves: PropensityCurves | None
) -> _HeldOutComparison:
    """Compare rankers by clicks on sessions that they were not trained on: other queries, or the latest sessions.

    Only documents that were shown are ranked, since the log has no information about others.
    """
    evidence, cut = material.evidence, material.evidence.chosen.cut
    if cut is None and not task.settings.folds:
        return _HeldOutComparison({}, {}, "no sessions were held out.")
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
        return _compare_scores(task, scores, evidence.filter(shown), curves)
    except DataError as problem:  # Too few clicks, or positions that the sessions of the other folds do not identify.
        return _HeldOutComparison({}, {}, str(problem))


def _cross_fitted(task: _Task, material: _TrainingInput) -> dict[str, FloatArray]:
    """Return out-of-fold scores of the documents that were shown, by ranker."""
    evidence, shown = material.evidence, material.shown
    assert shown is not None
    queries = np.flatnonzero(evidence.asked & (evidence.queries.sum(shown) > 0))
    if len(queries) < 2:
        raise DataError("all sessions are of one query, so none are left for training.")
    fold = np.full(evidence.data.n_queries, -1)
    fold[queries] = np.random.default_rng(0).permutation(len(queries)) % task.settings.folds
    # Sessions without documents of the data inform the propensities in every round.
    rounds = tuple(DivisionRound(fold != number, fold == number) for number in range(int(fold.max()) + 1))

    def fit(train: _TrainingInput, _: None) -> dict[str, Any]:
        with held_warnings(UnidentifiedWarning, ConvergenceWarning):  # The fit on all sessions has already warned.
            return task.fit(train).rankers

    def predict(rankers: Mapping[str, Any], rest: _TrainingInput) -> FloatArray:
        assert rest.shown is not None
        scores = np.full((rest.evidence.data.n_documents, len(rankers)), np.nan)
        part = rest.evidence.data.filter(rest.shown)
        scores[rest.shown] = np.stack([ranker.predict(part) for ranker in rankers.values()], axis=1)
        return scores

    done = cross_fit(material, Division(rounds), fit, predict)
    scores = done.out_of_fold(material)[shown]
    return {name: scores[:, column] for column, name in enumerate(done.models[0])}


def _compare_scores(
    task: _Task, scores: Mapping[str, FloatArray], evidence: Evidence, curves: PropensityCurves | None
) -> _HeldOutComparison:
    """Compare rankings by these scores on the clicks, without clipping, whose bias could favor one ranker."""
    evidence, shared_propensities_reason = _with_own_propensities(evidence, curves)
    ranks = {name: ranks_of(values, evidence.data) for name, values in scores.items()}
    metric = _METRICS[task.settings.reward]
    judged = estimate_rankers(evidence, [Correction("snips", 0.0)], ranks, [Metric.from_name(metric)])["snips"]
    estimates = {name: estimate.intervals[metric] for name, estimate in judged.estimates.items()}
    gains = {name: judged.gain(name, "naive", metric) for name in ranks if name != "naive"}
    return _HeldOutComparison(estimates, gains, shared_propensities_reason=shared_propensities_reason)


def _with_own_propensities(evidence: Evidence, curves: PropensityCurves | None) -> tuple[Evidence, str]:
    """Return held-out evidence with separate propensities, and the reason, if it does not identify them.

    Wrong propensities favor the ranker that was trained with them. They are therefore estimated from the held-out
    sessions by a method that needs no relevance model: the method of the training if it is such a method, ``trust`` for
    curves with offsets, otherwise ``all-pairs``.
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
    except DataError:  # Positions that these sessions do not identify, or contexts that the method does not support.
        pass
    positions = [str(position) for position in np.unique(evidence.cells.position[missing]).tolist()]
    listed = ", ".join(positions[:_MAX_LISTED_POSITIONS]) + (
        f" and {len(positions) - _MAX_LISTED_POSITIONS} more" if len(positions) > _MAX_LISTED_POSITIONS else ""
    )
    origin = (
        "given propensities"
        if curves.origin.startswith("given")
        else f"propensities that trained the ranker ({curves.origin})"
    )
    return evidence.with_propensities(PropensitySource(curves)), (
        f"The comparison uses the {origin}, because the held-out sessions do not identify the propensity of "
        f"position{'s' if len(positions) > 1 else ''} {listed}."
    )


def _metrics_by_labels(
    rankers: Mapping[str, Ranker], valid: RankingData | None
) -> tuple[dict[str, Interval], dict[str, Interval]]:
    """Return NDCG@10 of each ranker on labels, and its paired difference to the naive ranker."""
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
