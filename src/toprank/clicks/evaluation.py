"""Off-policy evaluation: estimate metrics of a ranker from clicks on lists that other rankers produced.

Relevance is estimated from clicks, corrected for position (`toprank.clicks.corrections`), and the new ranker assigns
its own ranks. DCG and click rates are sums over documents, so an unbiased estimate of relevance gives an unbiased
estimate of the sum. Documents that were never shown contribute 0, or the prediction of the regression under ``dr``.
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

MIN_LISTS = 30  # Minimum number of lists that inform the propensities; with fewer, their errors are far from normal.
_MIN_EFFECTIVE_SHARE = 0.1  # Minimum effective sample size, as a fraction of the contributing impressions.


class LowEffectiveSampleSizeWarning(UserWarning):
    """Warning that a few impressions with large weights dominate an estimate."""


@dataclass(frozen=True, repr=False)
class OffPolicyEstimate(Record):
    """Metrics of a ranker, estimated from a click log. Every session has the same weight, whatever its query.

    Attributes:
        mean: estimate of each metric. If propensities are estimated from the log, the mean is corrected for the bias
            that this causes; `per_query` is not.
        intervals: confidence interval of each metric over queries, for the population that the queries were sampled
            from.
        per_query: for each metric, one value per query that occurs in both the log and the data.
        effective_sample_size: for each metric, (Σw)² / Σw², where w is the contribution of one click at each
            impression.
        contributing_impressions: for each metric, number of impressions whose clicks contribute to the estimate.
        estimator: name of the estimator.
        impressions: number of impressions used.
        never_shown: for each metric, number of documents within its depth that were never shown at a position with a
            known propensity.
        ranked: for each metric, number of documents within its depth.
        unknown: number of impressions of documents that are not in the data.
        without_propensity: number of impressions at positions whose propensity is 0 or unknown.
        confidence: confidence level of the intervals.
        clip: smallest propensity used as a divisor; 0 if no propensity was clipped.
        clipped: number of impressions whose propensity was raised to `clip`.
        recency: how sessions were weighted by age; None if all have the same weight.
        held_out: description of the latest sessions, if only these were used for evaluation; otherwise empty.
        propensity_conflict: sentence on how documents shown at several positions contradict the propensities; empty if
            they do not.
        informing_lists: effective number of lists that inform the propensities (`informing_lists`); None if
            propensities were given or learned from features.
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
        """The estimate, if there is only one metric."""
        if len(self.mean) != 1:
            raise DataError(f"There are {len(self.mean)} metrics; read .mean[name].")
        return next(iter(self.mean.values()))

    @property
    def interval(self) -> Interval:
        """The confidence interval, if there is only one metric."""
        _ = self.value
        return next(iter(self.intervals.values()))

    json_hidden = frozenset({"per_query"})

    def to_dict(self) -> dict[str, Any]:
        """Return the estimates as values that JSON can hold; unknown interval bounds are None."""
        intervals = {name: list(interval) for name, interval in self.intervals.items()}
        words = {"held_out": self.held_out or None, "propensity_conflict": self.propensity_conflict or None}
        return super().to_dict() | {"intervals": to_json(intervals)} | words

    def _columns(self) -> Mapping[str, Sequence[Any]]:
        """Return one row per metric."""
        low, high = zip(*self.intervals.values(), strict=True)
        return {
            "metric": list(self.mean), "estimate": list(self.mean.values()), "low": low, "high": high,
            "effective_sample_size": list(self.effective_sample_size.values()),
            "contributing_impressions": list(self.contributing_impressions.values()), "never_shown":
            [self.never_shown[name] for name in self.mean],
        }  # fmt: skip

    @property
    def caveats(self) -> list[str]:
        """Warnings about metrics that rest on few impressions, on none, or on no clicks."""
        # Weights by age alone reduce the effective sample size by this factor.
        usual = 1.0 if self.recency is None else self.recency.effective / self.recency.sessions
        empty = [name for name, mean in self.mean.items() if mean == 0 and [*self.intervals[name]] == [0, 0]]
        sentences = [
            f"{name} is 0 with an interval of width 0, because no contributing impression was clicked."
            for name in empty
        ]
        sentences += [
            f"{name} rests on the regression alone: none of the documents that the ranker would show was ever shown at "
            "a position with a known propensity. The interval ignores the error of the regression."
            for name, size in self.contributing_impressions.items()
            if size == 0 and name not in empty
        ]
        if self.informing_lists is not None and self.informing_lists < MIN_LISTS:
            sentences.append(
                f"About {self.informing_lists:,.0f} lists inform the propensities, but {MIN_LISTS} are needed for "
                "reliable estimates and intervals. Explore more lists, or give propensities."
            )
        return sentences + [
            f"{name} rests on few impressions: {size:,.0f} of equal weight would say as much as the "
            f"{self.contributing_impressions[name]:,} that count. A few clicks far down the list decide it; a least "
            f"propensity (clip) "
            "or dr helps."
            for name, size in self.effective_sample_size.items()
            if size < _MIN_EFFECTIVE_SHARE * usual * self.contributing_impressions[name]
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
        """The estimator, the data used and dropped, and caveats."""
        return " ".join(self._sentences())

    def _sentences(self) -> list[str]:
        words = [f"Estimated from {self.impressions:,} impressions by {self.estimator}."]
        words += [f"Evaluated on {self.held_out}."] if self.held_out else []
        words += [] if self.recency is None else [str(self.recency)]
        if any(self.never_shown.values()):
            value = "the prediction of the regression" if self.estimator == "dr" else "0, so the estimate is too low"
            words.append(f"Documents never shown at a position with a known propensity count as {value}.")
        words += dropped_sentences(self.unknown, self.without_propensity)
        words += clipping_sentences(self.clip, self.clipped, self.estimator)
        return words + self.caveats + ([self.propensity_conflict] if self.propensity_conflict else [])


def dropped_sentences(unknown: int, without_propensity: int) -> list[str]:
    """Return sentences about impressions that were dropped."""
    sentences = []
    if unknown:
        sentences.append(f"{unknown:,} impressions of documents that are not in the data were dropped.")
    if without_propensity:
        sentences.append(
            f"{without_propensity:,} impressions at positions whose propensity is 0 or unknown were dropped."
        )
    return sentences


def clipping_sentences(clip: float, impressions: int, correction: str) -> list[str]:
    """Return a sentence about clipping, if any propensity was clipped."""
    if not impressions:
        return []
    cost = "the regression replaces the clipped part" if correction == "dr" else "their clicks count too little"
    return [f"The propensity of {impressions:,} impressions is below {clip:.3g} and was raised to it (clip): {cost}."]


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
    """Options of the estimator, with their defaults."""

    estimator: str = "snips"
    context: Context | None = None
    clip: float | None = None
    regression: Any = None
    confidence: float = 0.95
    order: Order | None = None

    def check(self) -> None:
        """Check the name of the estimator and the confidence level."""
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
    """Estimate metrics of a ranker from a log of clicks on other lists.

    Args:
        scores: scores of the ranker for the documents of `data`, or the fitted ranker.
        log: sessions whose queries are in `data`; any rankers may have produced the lists.
        data: documents; labels are ignored.
        metrics: names of metrics: ``dcg@k`` (the gain is the relevance, from 0 to 1), ``ctr@k`` (clicks per document in
            the top k), ``clicks@k`` (clicks per session in the top k), ``value@k`` (value per session of the top k) and
            ``value-dcg@k`` (the gain is the expected value of a document to a user who examines it).
        propensities: as in `train`. Default: estimated from the log by ``all-pairs``. Estimates are then corrected for
            the bias that this causes, and intervals include the uncertainty of the propensities. Given propensities are
            taken as exact.
        estimator: ``ips``, ``snips``, ``affine``, ``dr``, or ``none`` for uncorrected clicks. Default: ``snips``.
        context: column of the log, or several crossed columns, whose contexts have separate propensities, as in
            `propensities`. The expected clicks at a rank are averaged over the contexts of the query. If contexts vary
            within sessions, ranks fill the cells of a session by position, then context.
        clip: smallest propensity to divide by. Default: 0, except for ``dr``, as in `train`. A larger value
            hides the uncertainty of small propensities and makes intervals too short.
        regression: R̂ of ``dr``, as in `train`.
        confidence: confidence level of the intervals. Default: 0.95. Intervals use Student's t with the jackknife
            standard error over queries; the degrees of freedom are 1/Σh² − 1, where h is a query's share of the
            sessions. If propensities are estimated, the jackknife leaves out 20 groups of queries, and the interval has
            a second-order correction (`toprank.significance.resampling.second_order_interval`).
        order: order of the scores, if grouping moved rows of the data; see `RankingData.aligned`.
        time_column: column of the log with times, such as ``time``; evaluate on the latest sessions only, which `train`
            holds out of the same log.
        holdout: fraction of sessions to hold out.
        half_life: age at which a session has half the weight of the newest: ``"14d"``, ``"36h"``, or seconds. The
            estimate is then a mean over recent sessions (`toprank.clicks.recency`).
        window: drop sessions older than this.

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
        raise DataError("metrics is empty; name at least one metric, such as dcg@10 or ctr@3.")
    settings, sessions = options_of("evaluate", options, OffPolicyOptions, _EvaluationSettings, Sessions)
    settings.check()
    wanted, estimator = list(dict.fromkeys(map(Metric.from_name, names))), settings.estimator
    values = scores.predict(data) if hasattr(scores, "predict") else data.aligned(scores, settings.order)
    ranks = {"": ranks_of(np.asarray(values, dtype=np.float64), data)}
    evidence = bind(
        log, data, reward=tuple({metric.reward for metric in wanted}), propensities=propensities, sessions=sessions,
        context=settings.context, regression=settings.regression if estimator == "dr" else None,
    )  # fmt: skip
    judged = estimate_rankers(evidence, [Correction(estimator, settings.clip)], ranks, wanted, settings.confidence)[
        estimator
    ]
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
    """Means by ranker, metric and left-out query (or group of queries), and the weight of each in the sessions."""

    means: FloatArray
    shares: FloatArray


@dataclass(frozen=True, eq=False)
class RankerEstimates:
    """Estimates of several rankers by one estimator, and their paired differences on the same clicks.

    Attributes:
        evidence: the clicks.
        policies: metrics of each ranker, per query.
        correction: the estimator.
        ranks: rank of each document, by ranker.
        metrics: the metrics.
        without: leave-one-out means: means without each query, or group of queries.
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
        """Estimates of each ranker."""
        return {name: self._estimates_of(name) for name in self.ranks}

    @property
    def estimates_propensities(self) -> bool:
        """True if propensities were estimated from the log, so that intervals include their uncertainty."""
        return self.curves is not None and self.evidence.source.is_log

    @property
    def curves(self) -> Any:
        """The propensities; None if clicks are not corrected."""
        needed = self.correction.name != "none" or any(metric.needs_curves for metric in self.metrics)
        return self.evidence.curves if needed else None

    def looks(self, metric: str, one: str, other: str | None = None) -> FloatArray:
        """Return the weight of each document in a metric of one ranker, minus its weight for another."""
        looks = self.policies.parts[one][metric].weights
        return looks if other is None else looks - self.policies.parts[other][metric].weights

    def added(self, metric: str, one: str, other: str | None = None) -> FloatArray:
        """Return the weight of each document in a metric, or in a difference, summed over sessions."""
        sessions: FloatArray = self.evidence.queries.broadcast(self.evidence.sessions)
        return self.looks(metric, one, other) * sessions

    def gain(self, one: str, other: str, metric: str) -> Interval:
        """Return the paired difference of two rankers and its confidence interval."""
        place, (first, second) = self._place(metric), (list(self.ranks).index(name) for name in (one, other))

        def difference(means: FloatArray) -> FloatArray:
            return np.asarray(means[first, place] - means[second, place])

        return self._interval(difference)

    def differences_without(self, one: str, other: str, metric: str) -> FloatArray:
        """Return the leave-one-out differences of two rankers."""
        place, (first, second) = self._place(metric), (list(self.ranks).index(name) for name in (one, other))
        return np.asarray(self.without.means[first, place] - self.without.means[second, place])

    def differences_without_groups(self, one: str, other: str, metric: str) -> FloatArray:
        """Return the difference of two rankers without each jackknife group, with the propensities of the whole log."""
        evidence, values = self.evidence, self.policies.values
        in_data = evidence.data_query >= 0
        kept = np.zeros((len(evidence.groups[0]), evidence.data.n_queries))
        kept[:, evidence.data_query[in_data]] = evidence.groups[0][:, in_data]
        weights = kept[:, evidence.asked] * self.policies.queries.weights
        return np.asarray(weights @ (values.of(one, metric) - values.of(other, metric)) / weights.sum(axis=1))

    def informing_lists(self, metric: str, one: str, other: str | None = None) -> float | None:
        """Return the effective number of lists that inform the propensities relevant for a metric.

        None if propensities do not come from documents shown at several positions.
        """
        evidence, curves = self.evidence, self.curves
        if not self.estimates_propensities or evidence.source.method not in (*HARVESTED, "trust"):
            return None
        in_cells = curves.layout is not None and curves.layout.varies
        known, cells = self.policies.relevance[metric], evidence.cells
        index = evidence.index_of(curves) if in_cells else cells.position - 1
        adds = np.abs(known.added(np.abs(self.added(metric, one, other)))) * cells.weight
        return informing_lists(cells.pair, index, evidence.informing_weights, adds)

    def _place(self, metric: str) -> int:
        return [known.name for known in self.metrics].index(metric)

    def _interval(self, of: Callable[[FloatArray], FloatArray]) -> Interval:
        """Return the interval of a function of the means by ranker and metric."""
        value, rests, shares = float(of(self.policies.means)), of(self.without.means), self.without.shares
        if not self.estimates_propensities:
            return jackknife_interval(value, rests, shares, self.confidence)
        return second_order_interval(value, rests, shares, lambda w: float(of(self._means(w))), self.confidence)

    def _means(self, group_weights: FloatArray) -> FloatArray:
        """Return the means after reweighting groups of queries and estimating the propensities again."""
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


def estimate_rankers(
    evidence: Evidence, corrections: Sequence[Correction], ranks: Mapping[str, IntArray], metrics: Sequence[Metric],
    confidence: float = 0.95,
) -> dict[str, RankerEstimates]:  # fmt: skip
    """Estimate metrics of rankers, given by the ranks of the documents, by several estimators.

    If propensities are estimated from the log, they are estimated again without each group of queries. If a part of the
    log does not identify them, intervals are infinite.
    """
    source = evidence.source
    if source.is_log:  # Use the clipping of the whole log for every part of it.
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
            with held_warnings():  # The whole log has already warned.
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
        judged[correction.name] = RankerEstimates(evidence, policies, correction, ranks, metrics, left_out, confidence)
    return judged


def _or_infinity(number: float | None) -> float:
    return np.inf if number is None else number


def informing_lists(document: IntArray, position: IntArray, shown: FloatArray, counts: FloatArray) -> float:
    """Return the effective number of lists that inform the propensities.

    A document shown n_k times in cell k (a position) and N times in total carries the same information about the cell
    as n_k (N - n_k) / N impressions in each of two cells. A list that swaps two documents adds 2 to both of their
    positions, so half the sum over documents is the number of such lists at each position. The result is the harmonic
    mean over impressions, weighted by `counts`.

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
