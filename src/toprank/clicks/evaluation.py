"""What a ranker would be worth, from clicks on the lists of others: off-policy evaluation.

Each document is worth what its clicks say, corrected for where it stood (`toprank.clicks.corrections`); the new ranker
puts it at a rank of its own. DCG and the rate of clicks are sums over documents, so an estimate of each that is right
in expectation gives an estimate of the sum that is. What was never shown is not known: counted, and worth nothing
(under ``dr``: what the regression says).
"""

from __future__ import annotations

import re
import warnings
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from toprank.clicks.contexts import Context
from toprank.clicks.corrections import CORRECTIONS, Corrected, correct, curves_of, session_queries
from toprank.clicks.curves import Curves, contradiction
from toprank.clicks.log import ClickLog, UnidentifiedWarning, check_log, left_out_in_turn
from toprank.clicks.recency import Recency, Span, latest, recent
from toprank.compute import FloatArray, IntArray
from toprank.data.checks import check_data, check_number
from toprank.data.dataset import RankingData
from toprank.data.row_order import Order
from toprank.errors import DataError, UnknownNameError, warn_user
from toprank.metrics.conventions import Discount
from toprank.metrics.sorting import ranking
from toprank.rankers.linear.ranker import LinearRanker
from toprank.showing.tables import Kind, Part, Shown, Table, bracketed, frame_of, json_numbers, percent
from toprank.significance import Interval, effective_sample, means_without
from toprank.significance.leaving_out import jackknife_interval

_GROUPS = 20  # of queries, each left out once where propensities are found from the log
_SMALL = 0.1  # an estimate that rests on a smaller share of the impressions that count is a few of them


class SmallSampleWarning(UserWarning):
    """An estimate rests on a few impressions that weigh more than all others."""


class Metric(NamedTuple):
    """``dcg@10``, ``ctr@10``, ``clicks@10``, ``value@10`` or ``value-dcg@10``, taken apart."""

    name: str
    kind: str
    depth: int | None
    reward: str = "click"

    @classmethod
    def of(cls, name: str) -> Metric:
        """Read the name of a metric, such as "dcg@10" or "value-ctr"."""
        match = re.fullmatch(r"(value-)?(dcg|ctr|clicks|value)(?:@(\d+))?", name.strip().lower())
        kind = "" if match is None else match[2]
        if match is None or match[3] == "0" or (kind != "dcg" and (match[1] or match[3] is None)):
            known = ("dcg@10", "dcg", "ctr@10", "clicks@10", "value@10", "value-dcg@10")
            raise UnknownNameError("metric of clicks", name, known)
        depth = None if match[3] is None else int(match[3])
        return cls(name.strip().lower(), kind, depth, "value" if match[1] or kind == "value" else "click")


@dataclass(frozen=True, repr=False)
class Estimates(Shown):
    """Metrics of a ranker as a log of clicks tells them; a session of the log counts once, whatever its query.

    Attributes:
        mean: of each metric, the estimate.
        intervals: of each metric, over queries, as if those of the log had been drawn from many of their kind.
        per_query: of each metric, a value for each query of the log that the data have.
        effective_sample_size: of each metric, how many impressions of equal weight would tell as much: (Σw)² / Σw², w
            being what a click of each impression adds to the estimate.
        counted: of each metric, the impressions whose clicks add to the estimate at all.
        estimator: how.
        impressions: impressions that were used.
        unseen: of each metric, the documents within its depth that were never shown at a position that tells something.
        ranked: of each metric, the documents within its depth.
        unknown: impressions of documents that the data do not have.
        uncorrected: impressions at positions whose propensity is 0 or unknown.
        confidence: confidence level of the intervals.
        clip: the least propensity that was divided by; 0 where all were divided by their own.
        clipped: impressions that were divided by it, since their own propensity is smaller.
        recency: how sessions were weighed by their age; None if all count alike.
        held_out: the latest sessions, if only these judge, in words; empty if all do.
        contradiction: how documents that stood at several positions contradict the propensities, in words; empty if
            they do not.
    """

    mean: dict[str, float]
    intervals: dict[str, Interval]
    per_query: dict[str, FloatArray]
    effective_sample_size: dict[str, float]
    counted: dict[str, int]
    estimator: str
    impressions: int
    unseen: dict[str, int]
    ranked: dict[str, int]
    unknown: int
    uncorrected: int
    confidence: float
    clip: float = 0.0
    clipped: int = 0
    recency: Recency | None = None
    held_out: str = ""
    contradiction: str = ""

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

    def to_frame(self, kind: Kind = "pandas") -> Any:
        """One row for each metric."""
        names = list(self.mean)
        ends = list(zip(*self.intervals.values(), strict=True))
        return frame_of(
            {
                "metric": names, "estimate": list(self.mean.values()), "low": list(ends[0]),
                "high": list(ends[1]), "effective_sample_size": list(self.effective_sample_size.values()),
                "counted": list(self.counted.values()), "unseen": [self.unseen[name] for name in names],
            },
            kind,
        )  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """For JSON; an end that is not known is None."""
        return {
            "summary": self.summary, "estimator": self.estimator, "mean": self.mean, "confidence": self.confidence,
            "intervals": {name: json_numbers(list(interval)) for name, interval in self.intervals.items()},
            "effective_sample_size": self.effective_sample_size, "counted": self.counted,
            "impressions": self.impressions, "unseen": self.unseen, "ranked": self.ranked, "unknown": self.unknown,
            "uncorrected": self.uncorrected, "clip": self.clip, "clipped": self.clipped,
            "recency": None if self.recency is None else self.recency.to_dict(), "held_out": self.held_out or None,
            "contradiction": self.contradiction or None,
        }  # fmt: skip

    @property
    def doubts(self) -> list[str]:
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
            for name, size in self.counted.items()
            if size == 0 and name not in empty
        ]
        return sentences + [
            f"{name} rests on few impressions: {size:,.0f} of equal weight would say as much as the "
            f"{self.counted[name]:,} that count. A few clicks far down the list decide it; a least propensity (clip) "
            "or dr helps."
            for name, size in self.effective_sample_size.items()
            if size < _SMALL * usual * self.counted[name]
        ]

    def _parts(self) -> Sequence[Part]:
        rows = [
            (name, f"{mean:.4f}", bracketed(self.intervals[name].low, self.intervals[name].high, 4),
             f"{self.effective_sample_size[name]:,.0f} of {self.counted[name]:,}",
             f"{self.unseen[name]:,} of {self.ranked[name]:,}")
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
        if any(self.unseen.values()):
            worth = "what the regression says" if self.estimator == "dr" else "nothing, so the estimate is too low"
            words.append(f"Documents that were never shown at a position that counts are taken to be worth {worth}.")
        words += left_out(self.unknown, self.uncorrected) + clipped(self.clip, self.clipped, self.estimator)
        return words + self.doubts + ([self.contradiction] if self.contradiction else [])


def left_out(unknown: int, uncorrected: int) -> list[str]:
    """Sentences about impressions that do not count."""
    sentences = []
    if unknown:
        sentences.append(f"{unknown:,} impressions show documents that the data do not have; they were left out.")
    if uncorrected:
        sentences.append(
            f"{uncorrected:,} impressions stood at positions whose propensity is 0 or unknown; they were left out."
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


def evaluate(
    scores: Any,
    log: ClickLog,
    data: RankingData,
    metrics: str | Sequence[str] = "dcg@10",
    *,
    estimator: str = "snips",
    propensities: Any = None,
    context: Context | None = None,
    clip: float | None = None,
    regression: Any = None,
    confidence: float = 0.95,
    order: Order | None = None,
    by: str | None = None,
    holdout: float = 0.2,
    half_life: Span | None = None,
    window: Span | None = None,
) -> Estimates:
    """Estimate a ranker's metrics from a log of clicks on other lists.

    Args:
        scores: what the ranker gives the documents of `data`, or the fitted ranker.
        log: sessions of queries of `data`, shown by any rankers.
        data: documents; labels are not looked at.
        metrics: ``dcg@k`` (what a document is worth is its gain, a number from 0 to 1), ``ctr@k`` (clicks for each of
            the top k documents), ``clicks@k`` (clicks of a session on them), ``value@k`` (their value in a session) and
            ``value-dcg@k`` (gains are what documents bring to a user who looks).
        estimator: ``ips``, ``snips``, ``affine``, ``dr``, or ``none``: clicks as they are.
        propensities: as in `train`; None or the name of a method: found from the log, and intervals are as wide as that
            makes them. Others are taken for right.
        context: column of the log (or several, crossed) whose contexts have propensities of their own, as in
            `propensities`. How many clicks a rank gets is then the mean over the contexts that its query is asked in;
            where contexts vary within sessions, ranks fill the cells that a session had, by position and then context.
        clip: the least propensity to divide by, as in `train`.
        regression: R̂ of ``dr``, as in `train`.
        confidence: confidence level of the intervals, by Student's t with the jackknife's standard error over queries;
            the degrees of freedom are those of so many queries with equal numbers of sessions (1/Σh² − 1, h a query's
            share of them).
        order: how the scores stand, where grouping moved the rows of the data: see `RankingData.aligned`.
        by: a column of the log with times, such as ``time``: judge by the latest sessions alone, those that `train`
            holds out of the same log.
        holdout: the share of sessions to hold out.
        half_life: a session counts half for every such time that it is older than the newest: ``"14d"``, ``"36h"``, or
            seconds; what is estimated is then a mean over the last while (`toprank.clicks.recency`).
        window: leave out sessions that are older than this.

    >>> import toprank as tr
    >>> data = tr.synthetic(n_queries=30, seed=0)
    >>> log = tr.clicks.simulate(data, data.X[:, 0], tr.clicks.PBM.known([1, 0.5]), sessions=2000, k=2, noise=0)
    >>> estimates = tr.clicks.evaluate(data.X[:, 0], log, data, "dcg@2", propensities=[1, 0.5])
    >>> estimates.interval.low < estimates.value < estimates.interval.high
    True
    """
    check_log(log)
    check_data("off-policy evaluation", data)
    names = [metrics] if isinstance(metrics, str) else list(metrics)
    if not names:
        raise DataError("Name a metric or several, such as dcg@10 and ctr@3.")
    if estimator not in CORRECTIONS:
        raise UnknownNameError("estimator", estimator, CORRECTIONS)
    check_number("confidence", confidence, above=0, below=1)
    values = scores.predict(data) if hasattr(scores, "predict") else data.aligned(scores, order)
    ranks = {"": ranks_of(np.asarray(values, dtype=np.float64), data)}
    cut = None if by is None else latest(log, by, holdout)
    log, recency = recent(log if cut is None else cut.late, half_life, window)
    judged = judge_by(
        (estimator,), ranks, log, data, names, propensities=propensities, context=context, clip=clip,
        regression=regression, confidence=confidence,
    )[estimator]  # fmt: skip
    problem = "" if judged.curves is None else contradiction(judged.curves, log)
    estimate = replace(
        judged.estimates[""], recency=recency, held_out="" if cut is None else str(cut), contradiction=problem
    )
    if problem:
        warn_user(problem, UnidentifiedWarning)
    for doubt in estimate.doubts:
        warn_user(doubt, SmallSampleWarning)
    return estimate


class JudgedRankers(NamedTuple):
    """Estimates of rankers by name, and what compares every two of them on the same clicks.

    Of each ranker and metric `rests` has the estimates without each query (or group of them), and `shares` how much of
    the sessions these have; `weights` says what a unit of worth of each document adds to a session of its query.
    """

    estimates: dict[str, Estimates]
    rests: dict[str, dict[str, FloatArray]]
    shares: FloatArray
    weights: dict[str, dict[str, FloatArray]]
    known: dict[str, Corrected]
    """For each metric, what the log says about each document."""
    curves: Curves | None
    """What clicks were corrected by; None if nothing."""

    def gain(self, one: str, other: str, metric: str) -> Interval:
        """By how much one ranker is better than another, with the interval of that: what is hard is hard for both."""
        value = self.estimates[one].mean[metric] - self.estimates[other].mean[metric]
        rests = [self.rests[name][metric] for name in (one, other)]
        confidence = self.estimates[one].confidence
        return jackknife_interval(value, rests[0] - rests[1], self.shares, confidence)


def judge_by(
    estimators: Sequence[str], ranks: Mapping[str, IntArray], log: ClickLog, data: RankingData,
    metrics: Sequence[str], *, propensities: Any = None, context: Context | None = None,
    clip: float | None = None, regression: Any = None, confidence: float = 0.95,
) -> dict[str, JudgedRankers]:  # fmt: skip
    """Evaluate several rankers at once, from the ranks that they give to the documents of `data`.

    Several estimators share the propensities, which are estimated once for all.
    """
    wanted = [Metric.of(name) for name in metrics]
    needed = set(estimators) != {"none"} or any(metric.kind != "dcg" for metric in wanted)

    curves_of_all = curves_of(propensities, log, data, LinearRanker(), context) if needed else None

    def parts_of(part: ClickLog) -> dict[str, tuple[dict[str, Corrected], Parts]]:
        curves = curves_of_all
        if needed and part is not log:
            curves = curves_of(propensities, part, data, LinearRanker(), context, curves_of_all)
        parts = {}
        for estimator in estimators:
            of_reward = {
                reward: correct(part, data, estimator, curves, clip, regression, reward)
                for reward in dict.fromkeys(metric.reward for metric in wanted)
            }
            of_metric = {metric.name: of_reward[metric.reward] for metric in wanted}
            parts[estimator] = (
                of_metric,
                {
                    ranker: {
                        metric.name: _of_metric(metric, of, of_metric[metric.name], part, data, curves)
                        for metric in wanted
                    }
                    for ranker, of in ranks.items()
                },
            )
        return parts

    whole, means = parts_of(log), None
    if needed and (propensities is None or isinstance(propensities, str)):
        means = _without_groups(log, parts_of)
    return {
        estimator: _joined(
            estimator, known, parts, None if means is None else means[estimator], confidence, curves_of_all
        )
        for estimator, (known, parts) in whole.items()
    }


def _joined(
    estimator: str, of_metric: dict[str, Corrected], parts: Parts, without: _Without | None, confidence: float,
    curves: Curves | None,
) -> JudgedRankers:  # fmt: skip
    """Estimates with what they rest on; `without`: of groups of queries, where propensities were found anew."""
    known = next(iter(of_metric.values()))
    weights = known.sessions[known.asked]
    if without is not None:
        shares, means = without
        rests = {
            ranker: {name: np.array([rest[ranker][name] for rest in means]) for name in of}
            for ranker, of in parts.items()
        }
    else:
        shares = weights / weights.sum()
        rests = {
            ranker: {name: means_without(part.values, weights) for name, part in of.items()}
            for ranker, of in parts.items()
        }
    estimates = {
        ranker: Estimates(
            {name: part.mean(weights) for name, part in of.items()},
            {
                name: jackknife_interval(part.mean(weights), rests[ranker][name], shares, confidence)
                for name, part in of.items()
            },
            {name: part.values for name, part in of.items()}, {name: part.effective for name, part in of.items()},
            {name: part.counted for name, part in of.items()}, estimator, int((known.weight > 0).sum()),
            {name: part.unseen for name, part in of.items()}, {name: part.ranked for name, part in of.items()},
            known.unknown, known.uncorrected, confidence, known.clip, known.clipped,
        )
        for ranker, of in parts.items()
    }  # fmt: skip
    looks = {ranker: {name: part.weights for name, part in of.items()} for ranker, of in parts.items()}
    return JudgedRankers(estimates, rests, shares, looks, of_metric, curves)


_Without = tuple[FloatArray, list[dict[str, dict[str, float]]]]


def _without_groups(
    log: ClickLog, parts_of: Callable[[ClickLog], dict[str, tuple[dict[str, Corrected], Parts]]]
) -> dict[str, _Without]:
    """The shares of groups of queries, and the means without each: the propensities are found anew every time.

    So what these add to the spread is among it. Where the others cannot tell them it is not known: no means.
    """
    weights, shares = left_out_in_turn(log, _GROUPS, 0)

    by_estimator: dict[str, list[dict[str, dict[str, float]]]] = defaultdict(list)
    try:
        for kept in weights:
            with warnings.catch_warnings():  # what is worth saying was said of the whole
                warnings.simplefilter("ignore", UnidentifiedWarning)
                of_part = parts_of(log.select(kept[log.session_query] > 0))
            for estimator, (of_metric, parts) in of_part.items():
                known = next(iter(of_metric.values()))
                sessions = known.sessions[known.asked]
                means = {
                    ranker: {name: part.mean(sessions) for name, part in of.items()} for ranker, of in parts.items()
                }
                by_estimator[estimator].append(means)
    except DataError:
        return defaultdict(lambda: (shares, []))
    return {estimator: (shares, means) for estimator, means in by_estimator.items()}


class _OfMetric(NamedTuple):
    values: FloatArray
    effective: float
    counted: int
    unseen: int
    ranked: int
    weights: FloatArray

    def mean(self, weights: FloatArray) -> float:
        """Over sessions."""
        return float(self.values @ weights / weights.sum())


Parts = dict[str, dict[str, _OfMetric]]
"""The metrics of each ranker, by name."""


def ranks_of(scores: FloatArray, data: RankingData) -> IntArray:
    """The rank of each document among those of its query, from 1."""
    ranked = ranking(scores, data.queries)
    rank = np.empty(len(scores), dtype=np.int64)
    rank[ranked.order] = data.queries.places + 1
    return rank


def added_by_clicks(looks: FloatArray, known: Corrected, data: RankingData) -> FloatArray:
    """For each impression, what a click adds to the sum over sessions of what documents are worth × their looks."""
    of_row: FloatArray = looks * data.queries.spread(known.sessions)
    return known.weight * of_row[known.row] * (known.row >= 0)


def _of_metric(
    metric: Metric, ranks: IntArray, known: Corrected, log: ClickLog, data: RankingData, curves: Curves | None
) -> _OfMetric:
    """Values of the queries that were asked for: Σ weight of the rank × relevance (+ what is clicked anyway)."""
    in_log, longest = known.asked, int(data.queries.sizes.max())
    clicked_anyway: FloatArray | float = 0.0
    within = ranks <= (metric.depth or longest)
    if metric.kind == "dcg":
        weights = np.where(within, Discount.of("log2").weights(longest)[ranks - 1], 0.0)
    else:
        assert curves is not None
        assert metric.depth is not None
        lists = np.minimum(data.queries.sizes, metric.depth)
        shared = data.queries.spread(lists) if metric.kind == "ctr" else 1.0  # others are of the list as a whole
        asked_by, query = partial(session_queries, log, data), data.queries.document_query
        slope, trust = curves.at_ranks(log, asked_by, query, ranks, int(lists.max()), metric.name)
        slope = slope + (trust if metric.reward == "value" else 0.0)  # as `correct` has it by ips
        weights = np.where(within, slope, 0.0) / shared
        clicked_anyway = 0.0 if metric.reward == "value" else np.where(within, trust, 0.0) / shared
    judged = np.isfinite(known.relevance)
    values = data.queries.sum(weights * np.where(judged, known.relevance, 0.0) + clicked_anyway)[in_log]
    adds = added_by_clicks(weights, known, data)
    counted, ranked = int((adds > 0).sum()), within & data.queries.spread(in_log)
    unseen = int((ranked & (known.shown == 0)).sum())
    # With β below -α, which an estimate may have, a click adds less than nothing.
    return _OfMetric(values, effective_sample(np.abs(adds)), counted, unseen, int(ranked.sum()), weights)
