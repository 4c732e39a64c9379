"""Off-policy evaluation: metrics of a ranker, from clicks on the lists of others.

Relevance is estimated from clicks, corrected for position (`toprank.clicks.corrections`); the new ranker puts each
document at a rank of its own. DCG and the rate of clicks are sums over documents, so an unbiased estimate of relevance
gives an unbiased estimate of the sum. Documents that were never shown are counted, and count 0 (under ``dr``: the value
of the regression).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Unpack

import numpy as np

from toprank.clicks.contexts import Context
from toprank.clicks.corrections import CORRECTIONS, Correction
from toprank.clicks.curves import contradiction
from toprank.clicks.evidence import Evidence, bind
from toprank.clicks.intervention_harvesting import HARVESTED
from toprank.clicks.log import ClickLog, UnidentifiedWarning, check_log, sums_by
from toprank.clicks.policies import Metric, PolicyValues, ranks_of
from toprank.clicks.recency import Recency, SessionOptions, Sessions, options_of
from toprank.compute import FloatArray, IntArray
from toprank.data.arguments import check_number
from toprank.data.dataset import RankingData, check_data
from toprank.data.row_order import Order
from toprank.display.record import Record, to_json
from toprank.display.tables import Part, Table, bracketed, percent
from toprank.errors import DataError, UnknownNameError, held_warnings, warn_user
from toprank.significance import Interval, leave_one_out_means
from toprank.significance.resampling import jackknife_interval, second_order_interval

MIN_LISTS = 30  # that inform the propensities: with fewer, their errors are far from normal
_MIN_EFFECTIVE = 0.1  # of the impressions that count


class LowEffectiveSampleSizeWarning(UserWarning):
    """An estimate rests on a few impressions that weigh more than all others."""


@dataclass(frozen=True, repr=False)
class OffPolicyEstimate(Record):
    """Metrics of a ranker as a log of clicks tells them; a session of the log counts once, whatever its query.

    Attributes:
        mean: of each metric, the estimate; if propensities are estimated, corrected for the bias that this causes,
            which `per_query` is not.
        intervals: of each metric, over queries, as if those of the log had been drawn from many of their kind.
        per_query: of each metric, a value for each query of the log that the data have.
        effective_sample_size: of each metric, how many impressions of equal weight would tell as much: (Σw)² / Σw², w
            being what a click of each impression adds to the estimate.
        contributing_impressions: of each metric, the impressions whose clicks add to the estimate at all.
        estimator: how.
        impressions: impressions that were used.
        never_shown: of each metric, the documents within its depth that were never shown at a position that tells
            something.
        ranked: of each metric, the documents within its depth.
        unknown: impressions of documents that the data do not have.
        without_propensity: impressions at positions whose propensity is 0 or unknown.
        confidence: confidence level of the intervals.
        clip: the least propensity that was divided by; 0 where all were divided by their own.
        clipped: impressions that were divided by it, since their own propensity is smaller.
        recency: how sessions were weighed by their age; None if all count alike.
        held_out: the latest sessions, if only these judge, in words; empty if all do.
        propensity_conflict: how documents that stood at several positions contradict the propensities, in words; empty
            if they do not.
        informing_lists: effective number of lists that inform the propensities (`informing_lists`); None if these were
            given, or learned from features.
    """

    mean: dict[str, float]
    intervals: dict[str, Interval]
    per_query: dict[str, FloatArray]
    effective_sample_size: dict[str, float]
    contributing_impressions: dict[str, int]
    estimator: str
    impressions: int
    never_shown: dict[str, int]
    ranked: dict[str, int]
    unknown: int
    without_propensity: int
    confidence: float
    clip: float = 0.0
    clipped: int = 0
    recency: Recency | None = None
    held_out: str = ""
    propensity_conflict: str = ""
    informing_lists: float | None = None

    @property
    def value(self) -> float:
        """The estimate, where there is one metric."""
        if len(self.mean) != 1:
            raise DataError(f"There are {len(self.mean)} metrics; read .mean[name].")
        return next(iter(self.mean.values()))

    @property
    def interval(self) -> Interval:
        """Its interval, where there is one metric."""
        _ = self.value
        return next(iter(self.intervals.values()))

    json_hidden = frozenset({"per_query"})

    def to_dict(self) -> dict[str, Any]:
        """For JSON; an end that is not known is None."""
        ends = {name: list(interval) for name, interval in self.intervals.items()}
        words = {"held_out": self.held_out or None, "propensity_conflict": self.propensity_conflict or None}
        return super().to_dict() | {"intervals": to_json(ends)} | words

    def _columns(self) -> Mapping[str, Sequence[Any]]:
        """One row for each metric."""
        low, high = zip(*self.intervals.values(), strict=True)
        return {
            "metric": list(self.mean), "estimate": list(self.mean.values()), "low": low, "high": high,
            "effective_sample_size": list(self.effective_sample_size.values()),
            "contributing_impressions": list(self.contributing_impressions.values()), "never_shown":
            [self.never_shown[name] for name in self.mean],
        }  # fmt: skip

    @property
    def caveats(self) -> list[str]:
        """Sentences about metrics whose estimate rests on a few impressions, on none, or on no click."""
        usual = 1.0 if self.recency is None else self.recency.effective / self.recency.sessions  # what age alone takes
        empty = [name for name, mean in self.mean.items() if mean == 0 and [*self.intervals[name]] == [0, 0]]
        sentences = [
            f"{name} is 0, and so is the width of its interval, because nothing that counts was clicked."
            for name in empty
        ]
        sentences += [
            f"{name} rests on the regression alone: nothing that the ranker would show was ever shown at a position "
            "that counts, and the interval does not know that."
            for name, size in self.contributing_impressions.items()
            if size == 0 and name not in empty
        ]
        if self.informing_lists is not None and self.informing_lists < MIN_LISTS:
            sentences.append(
                f"Only about {self.informing_lists:,.0f} lists inform the propensities ({MIN_LISTS} are needed), so "
                "neither the estimates nor their intervals can be trusted. Explore more lists, or give propensities."
            )
        return sentences + [
            f"{name} rests on few impressions: {size:,.0f} of equal weight would say as much as the "
            f"{self.contributing_impressions[name]:,} that count. A few clicks far down the list decide it; a least "
            f"propensity (clip) "
            "or dr helps."
            for name, size in self.effective_sample_size.items()
            if size < _MIN_EFFECTIVE * usual * self.contributing_impressions[name]
        ]

    def _parts(self) -> Sequence[Part]:
        rows = [
            (name, f"{mean:.4f}", bracketed(self.intervals[name].low, self.intervals[name].high, 4),
             f"{self.effective_sample_size[name]:,.0f} of {self.contributing_impressions[name]:,}",
             f"{self.never_shown[name]:,} of {self.ranked[name]:,}")
            for name, mean in self.mean.items()
        ]  # fmt: skip
        head = ("metric", "estimate", f"{percent(self.confidence)} interval", "effective impressions", "never shown")
        return [*self._sentences(), Table(head, rows, names=1)]

    @property
    def summary(self) -> str:
        """What was estimated from what, what was left out, and what is doubtful."""
        return " ".join(self._sentences())

    def _sentences(self) -> list[str]:
        words = [f"Estimated from {self.impressions:,} impressions by {self.estimator}."]
        words += [f"Judged by {self.held_out}."] if self.held_out else []
        words += [] if self.recency is None else [str(self.recency)]
        if any(self.never_shown.values()):
            worth = "what the regression says" if self.estimator == "dr" else "nothing, so the estimate is too low"
            words.append(f"Documents that were never shown at a position that counts are taken to be worth {worth}.")
        words += left_out(self.unknown, self.without_propensity) + clipped(self.clip, self.clipped, self.estimator)
        return words + self.caveats + ([self.propensity_conflict] if self.propensity_conflict else [])


def left_out(unknown: int, without_propensity: int) -> list[str]:
    """Sentences about impressions that do not count."""
    sentences = []
    if unknown:
        sentences.append(f"{unknown:,} impressions show documents that the data do not have; they were left out.")
    if without_propensity:
        sentences.append(
            f"{without_propensity:,} impressions stood at positions whose propensity is 0 or unknown; they were left "
            f"out."
        )
    return sentences


def clipped(clip: float, impressions: int, correction: str) -> list[str]:
    """A sentence about the least propensity, where it was divided by."""
    if not impressions:
        return []
    cost = "the regression stands in for what that takes away" if correction == "dr" else "they count too little"
    return [
        f"{impressions:,} impressions have a propensity below {clip:.3g} and were divided by that instead (clip): "
        f"{cost}."
    ]


class OffPolicyOptions(SessionOptions, total=False):
    """Keywords of `evaluate`."""

    estimator: str
    context: Context | None
    clip: float | None
    regression: Any
    confidence: float
    order: Order | None


@dataclass(frozen=True)
class _EvaluationSettings:
    """Keywords of `evaluate` that say how to estimate, with their defaults."""

    estimator: str = "snips"
    context: Context | None = None
    clip: float | None = None
    regression: Any = None
    confidence: float = 0.95
    order: Order | None = None

    def check(self) -> None:
        """Refuse an unknown estimator and a bad confidence level."""
        if self.estimator not in CORRECTIONS:
            raise UnknownNameError("estimator", self.estimator, CORRECTIONS)
        check_number("confidence", self.confidence, above=0, below=1)


def evaluate(
    scores: Any,
    log: ClickLog,
    data: RankingData,
    metrics: str | Sequence[str] = "dcg@10",
    *,
    propensities: Any = None,
    **options: Unpack[OffPolicyOptions],
) -> OffPolicyEstimate:
    """Estimate a ranker's metrics from a log of clicks on other lists.

    Args:
        scores: what the ranker gives the documents of `data`, or the fitted ranker.
        log: sessions of queries of `data`, shown by any rankers.
        data: documents; labels are not looked at.
        metrics: ``dcg@k`` (what a document is worth is its gain, a number from 0 to 1), ``ctr@k`` (clicks for each of
            the top k documents), ``clicks@k`` (clicks of a session on them), ``value@k`` (their value in a session) and
            ``value-dcg@k`` (gains are what documents bring to a user who looks).
        estimator: ``ips``, ``snips``, ``affine``, ``dr``, or ``none``: clicks as they are.
        propensities: as in `train`; None or the name of a method: estimated from the log. Estimates are then corrected
            for the bias that this causes, and intervals contain the uncertainty of the propensities. Given ones are
            taken for exact.
        context: column of the log (or several, crossed) whose contexts have propensities of their own, as in
            `propensities`. How many clicks a rank gets is then the mean over the contexts that its query is asked in;
            where contexts vary within sessions, ranks fill the cells that a session had, by position and then context.
        clip: the smallest propensity to divide by. Default 0, but for ``dr`` as in `train`: a larger one hides how
            uncertain small propensities are, and intervals become too short.
        regression: R̂ of ``dr``, as in `train`.
        confidence: confidence level of the intervals, by Student's t with the jackknife's standard error over queries;
            the degrees of freedom are those of so many queries with equal numbers of sessions (1/Σh² − 1, h a query's
            share of them). If propensities are estimated, 20 groups of queries take the place of queries, and the ends
            are corrected for curvature (`toprank.significance.resampling.second_order_interval`).
        order: how the scores stand, where grouping moved the rows of the data: see `RankingData.aligned`.
        by: a column of the log with times, such as ``time``: judge by the latest sessions alone, those that `train`
            holds out of the same log.
        holdout: the share of sessions to hold out.
        half_life: a session counts half for every such time that it is older than the newest: ``"14d"``, ``"36h"``, or
            seconds; what is estimated is then a mean over the last while (`toprank.clicks.recency`).
        window: leave out sessions that are older than this.

    >>> import toprank as tr
    >>> data = tr.synthetic(n_queries=30, seed=0)
    >>> users = tr.clicks.PBM.from_parameters([1, 0.5])
    >>> log = tr.clicks.simulate(data, data.X[:, 0], users, sessions=2000, k=2, noise=0)
    >>> estimates = tr.clicks.evaluate(data.X[:, 0], log, data, "dcg@2", propensities=[1, 0.5])
    >>> estimates.interval.low < estimates.value < estimates.interval.high
    True
    """
    check_log(log)
    check_data("off-policy evaluation", data)
    names = [metrics] if isinstance(metrics, str) else list(metrics)
    if not names:
        raise DataError("Name a metric or several, such as dcg@10 and ctr@3.")
    settings, sessions = options_of("evaluate", options, OffPolicyOptions, _EvaluationSettings, Sessions)
    settings.check()
    wanted, estimator = list(dict.fromkeys(map(Metric.of, names))), settings.estimator
    values = scores.predict(data) if hasattr(scores, "predict") else data.aligned(scores, settings.order)
    ranks = {"": ranks_of(np.asarray(values, dtype=np.float64), data)}
    evidence = bind(
        log, data, reward=tuple({metric.reward for metric in wanted}), propensities=propensities, sessions=sessions,
        context=settings.context, regression=settings.regression if estimator == "dr" else None,
    )  # fmt: skip
    judged = judge(evidence, [Correction(estimator, settings.clip)], ranks, wanted, settings.confidence)[estimator]
    problem = "" if judged.curves is None else contradiction(judged.curves, evidence.log)
    estimate = replace(
        judged.estimates[""], recency=evidence.chosen.recency, held_out=evidence.chosen.held_out,
        propensity_conflict=problem,
        informing_lists=min((judged.informing_lists(each.name, "") for each in wanted), key=_or_infinity),
    )  # fmt: skip
    if problem:
        warn_user(problem, UnidentifiedWarning)
    for caveat in estimate.caveats:
        warn_user(caveat, LowEffectiveSampleSizeWarning)
    return estimate


class JackknifedMeans(NamedTuple):
    """Means by ranker, metric and query (or group of queries) that is left out; and its fraction of the sessions."""

    means: FloatArray
    shares: FloatArray


@dataclass(frozen=True, eq=False)
class JudgedRankers:
    """Estimates of rankers by one estimator, and what compares every two of them on the same clicks.

    Attributes:
        evidence: the clicks.
        policies: the metrics of each ranker, for each query.
        correction: the estimator.
        ranks: the rank of each document, by ranker.
        metrics: the metrics.
        without: the means without each query, or group of queries.
        confidence: confidence level of the intervals.
    """

    evidence: Evidence
    policies: PolicyValues
    correction: Correction
    ranks: Mapping[str, IntArray]
    metrics: Sequence[Metric]
    without: JackknifedMeans
    confidence: float

    @cached_property
    def estimates(self) -> dict[str, OffPolicyEstimate]:
        """The estimates of each ranker."""
        return {name: self._estimates_of(name) for name in self.ranks}

    @property
    def reestimates(self) -> bool:
        """Whether intervals contain the uncertainty of propensities that were estimated from the log."""
        return self.curves is not None and self.evidence.source.is_log

    @property
    def curves(self) -> Any:
        """The propensities; None if clicks are not corrected."""
        needed = self.correction.name != "none" or any(metric.needs_curves for metric in self.metrics)
        return self.evidence.curves if needed else None

    def looks(self, metric: str, one: str, other: str | None = None) -> FloatArray:
        """Return the weight of each document in a metric of one ranker, less that for another."""
        looks = self.policies.parts[one][metric].weights
        return looks if other is None else looks - self.policies.parts[other][metric].weights

    def added(self, metric: str, one: str, other: str | None = None) -> FloatArray:
        """Return the weight of each document in the sum of a metric, or of a difference, over sessions."""
        sessions: FloatArray = self.evidence.queries.broadcast(self.evidence.sessions)
        return self.looks(metric, one, other) * sessions

    def gain(self, one: str, other: str, metric: str) -> Interval:
        """Return the paired difference of two rankers and its confidence interval."""
        place, (first, second) = self._place(metric), (list(self.ranks).index(name) for name in (one, other))

        def difference(means: FloatArray) -> FloatArray:
            return np.asarray(means[first, place] - means[second, place])

        return self._interval(difference)

    def informing_lists(self, metric: str, one: str, other: str | None = None) -> float | None:
        """Return the effective number of lists that inform the propensities of the documents that decide a metric.

        None if propensities do not come from documents that were shown at several positions.
        """
        evidence, curves = self.evidence, self.curves
        if not self.reestimates or evidence.source.method not in (*HARVESTED, "trust"):
            return None
        in_cells = curves.layout is not None and curves.layout.varies
        known, cells = self.policies.relevance[metric], evidence.cells
        index = evidence.index_of(curves) if in_cells else cells.position - 1
        adds = np.abs(known.added(np.abs(self.added(metric, one, other)))) * cells.weight
        return informing_lists(cells.pair, index, evidence.informing_weights, adds)

    def _place(self, metric: str) -> int:
        return [known.name for known in self.metrics].index(metric)

    def _interval(self, of: Callable[[FloatArray], FloatArray]) -> Interval:
        """Return the interval of a number that means by ranker and metric give."""
        value, rests, shares = float(of(self.policies.means)), of(self.without.means), self.without.shares
        if not self.reestimates:
            return jackknife_interval(value, rests, shares, self.confidence)
        return second_order_interval(value, rests, shares, lambda w: float(of(self._means(w))), self.confidence)

    def _means(self, group_weights: FloatArray) -> FloatArray:
        """Return the means if groups of queries have other weights, with propensities estimated anew."""
        group = np.argmin(self.evidence.groups[0], axis=0)
        with held_warnings():
            part = self.evidence.reweighted(group_weights[group])
            return part.policy_values(self.correction, self.ranks, self.metrics).means

    def _estimates_of(self, ranker: str) -> OffPolicyEstimate:
        parts, policies = self.policies.parts[ranker], self.policies
        number, known = list(self.ranks).index(ranker), next(iter(policies.relevance.values()))

        def interval(place: int) -> Interval:
            return self._interval(lambda means: means[number, place])

        intervals = {metric.name: interval(place) for place, metric in enumerate(self.metrics)}
        return OffPolicyEstimate(
            mean={name: float(of.value) for name, of in intervals.items()}, intervals=intervals,
            per_query={name: part.values for name, part in parts.items()},
            effective_sample_size={name: part.effective_sample_size for name, part in parts.items()},
            contributing_impressions={name: part.contributing_impressions for name, part in parts.items()},
            estimator=self.correction.name,
            impressions=known.impressions, never_shown={name: part.never_shown for name, part in parts.items()},
            ranked={name: part.ranked for name, part in parts.items()}, unknown=known.unknown,
            without_propensity=known.without_propensity, confidence=self.confidence, clip=known.clip,
            clipped=known.clipped,
        )  # fmt: skip


def judge(
    evidence: Evidence, corrections: Sequence[Correction], ranks: Mapping[str, IntArray], metrics: Sequence[Metric],
    confidence: float = 0.95,
) -> dict[str, JudgedRankers]:  # fmt: skip
    """Evaluate rankers by several estimators at once, from the ranks that they give to the documents.

    If propensities are estimated from the log, they are estimated anew without each group of queries. If a part of the
    log does not identify them, there are no estimates without groups, and intervals are infinite.
    """
    source = evidence.source
    if source.is_log:  # the least propensity is the same for every part of the log
        corrections = [
            of
            if of.clip is not None or of.name == "none"
            else of._replace(clip=evidence.curves.least if of.name == "dr" else 0.0)
            for of in corrections
        ]
    needed = any(metric.needs_curves for metric in metrics)
    depends = [source.is_log and (needed or of.name != "none") for of in corrections]
    groups, shares = evidence.groups if any(depends) else (np.empty((0, 0)), np.empty(0))
    without: list[list[FloatArray]] = []
    try:
        for group in range(len(groups)):
            with held_warnings():  # warnings about the whole log were given before
                part = evidence.without(group)
                without.append([part.policy_values(of, ranks, metrics).means for of in corrections])
    except DataError:
        without = []
    judged = {}
    for number, correction in enumerate(corrections):
        policies = evidence.policy_values(correction, ranks, metrics)
        if depends[number]:
            rests = [of[number] for of in without] or [np.empty((len(ranks), len(metrics), 0))]
            left_out = JackknifedMeans(np.stack(rests, axis=-1) if without else rests[0], shares)
        else:
            weights = policies.queries.weights
            values = [
                [leave_one_out_means(part.values, weights) for part in of.values()] for of in policies.parts.values()
            ]
            left_out = JackknifedMeans(np.array(values), weights / weights.sum())
        judged[correction.name] = JudgedRankers(evidence, policies, correction, ranks, metrics, left_out, confidence)
    return judged


def _or_infinity(number: float | None) -> float:
    return np.inf if number is None else number


def informing_lists(document: IntArray, position: IntArray, shown: FloatArray, counts: FloatArray) -> float:
    """Return the effective number of lists that inform the propensities.

    A document shown n_k times in cell k (a position) and N times in all compares the cell with others as well as
    n_k (N - n_k) / N impressions in each would. A list that swaps two documents adds 2 to both of their positions, so
    half the sum over documents is the number of such lists at each position. Returned is the harmonic mean over
    impressions that count `counts`.

    >>> document, position = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])  # ten of 1,000 lists were swapped
    >>> round(informing_lists(document, position, np.array([990.0, 10, 10, 990]), np.ones(4)), 2)
    9.9
    """
    n_cells = int(position.max()) + 1
    key, (shown,) = sums_by(document * np.int64(n_cells) + position, shown)
    whole = np.bincount(key // n_cells, shown)[key // n_cells]
    lists = np.bincount(key % n_cells, shown * (whole - shown) / np.maximum(whole, 1e-300), n_cells) / 2
    used = counts > 0
    with np.errstate(divide="ignore"):
        return float(counts[used].sum() / (counts[used] / lists[position[used]]).sum()) if used.any() else 0.0
