"""Launch reports: estimate from a log how a new ranker compares with the current one.

Both rankers are evaluated on the same clicks, so the interval is for their paired difference. `LaunchReport`
applies the decision rule.

The estimand is the mean difference over sessions in the population of queries that the log was sampled from, not over a
fixed set of queries. If m new rankers are compared on one log, each interval has confidence level 1 - α/m (Bonferroni),
the first step of Holm's procedure, at which the best ranker is tested. Intervals of slices are simultaneous in the same
way.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from toprank.clicks.assumptions import CascadeCheck, CascadeQuestion, check_cascade, trust_caveats
from toprank.clicks.contexts import Context, ContextCells, contexts_of
from toprank.clicks.corrections import Correction, Relevance
from toprank.clicks.curves import contradiction
from toprank.clicks.evaluation import RankerEstimates, dropped_sentences, estimate_rankers
from toprank.clicks.evidence import Evidence, bind
from toprank.clicks.launch_result import (
    DO_NOT_LAUNCH,
    LAUNCH,
    Cost,
    LaunchReport,
    SliceGain,
    decision_of,
)
from toprank.clicks.log import REWARDS, ClickLog, UnidentifiedError, check_log, named
from toprank.clicks.policies import Metric, ranks_of
from toprank.clicks.ranking_changes import RankingPair, compare_rankings
from toprank.clicks.recency import SessionOptions, Sessions, options_of
from toprank.clicks.training_overlap import TrainingOverlap
from toprank.compute import FloatArray, IntArray
from toprank.data.arguments import check_number, check_whole
from toprank.data.dataset import RankingData, check_data
from toprank.data.slices import MIN_QUERIES, Sliceable, SliceBy
from toprank.errors import DataError, Remedy, UnknownNameError, join_parts
from toprank.evaluation import Comparison, compare
from toprank.monitoring import monitor
from toprank.significance import Interval
from toprank.significance.resampling import jackknife_variance, mean_interval

ESTIMATORS = ("ips", "snips", "dr")
_DEPTH = 10


class LaunchOptions(SessionOptions, total=False):
    """Keyword arguments of `launch_report`."""

    k: int | None
    context: Context | None
    clip: float | None
    max_unseen_value: float | None
    min_effective_sample_size: int
    slice_by: SliceBy | None
    reference: RankingData | None
    since: float | None
    version: str | None
    current_data: RankingData | None
    names: tuple[str, str]
    n_candidates: int | None
    n_examples: int
    confidence: float
    seed: int


@dataclass(frozen=True)
class _LaunchSettings:
    """Options of the comparison, with their defaults."""

    k: int | None = None
    context: Context | None = None
    clip: float | None = None
    max_unseen_value: float | None = None
    min_effective_sample_size: int = 1000
    slice_by: SliceBy | None = None
    reference: RankingData | None = None
    version: str | None = None
    current_data: RankingData | None = None
    names: tuple[str, str] = ("new", "current")
    n_candidates: int | None = None
    n_examples: int = 5
    confidence: float = 0.95
    seed: int = 0

    def check(self) -> None:
        """Check the numbers."""
        check_whole("min_effective_sample_size", self.min_effective_sample_size, 1)
        check_number("confidence", self.confidence, above=0, below=1)
        if self.max_unseen_value is not None:
            check_number("max_unseen_value", self.max_unseen_value, least=0)


def launch_report(
    log: ClickLog,
    data: RankingData,
    new: Any,
    current: Any,
    metric: str = "click",
    *,
    estimator: str = "snips",
    propensities: Any = None,
    **options: Unpack[LaunchOptions],
) -> LaunchReport:
    """Decide whether to launch a new ranker, from a log of clicks on lists of any rankers.

    Neither ranker may have been trained on the sessions: give a log of later days, or `since`, or `time_column`. A
    ranker that is known to overlap cannot win; model files written after `train` contain the necessary record.

    The best of several new rankers looks better than it is. Pass all of them in one call as a mapping, or count them in
    `n_candidates`; the intervals are widened for the number of comparisons. Rankers that were compared on these
    sessions in any other way (`evaluate`, earlier reports) count too.

    Args:
        log: sessions whose queries are in `data`. Some lists must have been explored, or produced by several rankers.
        data: documents. Labels are only used for an additional comparison.
        new: a fitted ranker, its scores of the documents, or a mapping from names to several of these. The report is
            then about the one with the largest estimated difference; `LaunchReport.candidates` contains all
            differences.
        current: the ranker in production, or its scores.
        metric: ``click`` or ``value``: clicks or value per session in the top `k`. Default: ``click``.
        estimator: the deciding estimator: ``ips``, ``snips`` or ``dr``. Choose it before looking at results. Default:
            ``snips``.
        propensities: as in `evaluate`. Default: estimated from the log; the difference is then corrected for the bias
            that this causes, and its interval includes the uncertainty of the propensities.
        k: depth of the metric. Default: 10, or the depth of the log if that is smaller.
        context: column of the log whose contexts have separate propensities, as in `evaluate`.
        clip: smallest propensity to divide by, as in `evaluate`.
        max_unseen_value: maximum value of a document that was never shown to a user who examines it. Default: 1 for
            clicks; for values, the largest estimated value of a document in the log.
        min_effective_sample_size: minimum effective sample size for a decision, in impressions. Default: 1000.
        slice_by: also report the difference by slice of the queries: a metadata column, or an argument as in `compare`.
            The intervals of the slices are simultaneous (Bonferroni).
        reference: data that the new ranker was trained for, to report drift. Default: no drift report.
        since: drop sessions before this time, in seconds since 1970.
        time_column: column of the log with times, such as ``time``; use the latest sessions only, which `train` holds
            out of the same log.
        holdout: fraction of sessions to hold out.
        half_life: age at which a session has half the weight of the newest: ``"14d"``, ``"36h"``, or seconds.
        window: drop sessions older than this.
        version: version of the current model, or the SHA-256 of its file; sessions served by other versions are
            reported.
        current_data: the same documents with the columns of the current ranker, if the new one uses different columns.
        names: names of the new and the current ranker.
        n_candidates: number of new rankers compared with the current one on these sessions. Default: the number of
            rankers in `new`. Each interval has confidence level 1 - (1 - confidence) / n_candidates (Bonferroni).
        n_examples: number of queries to show side by side. Default: 5.
        confidence: simultaneous confidence level for all new rankers. Default: 0.95.
        seed: seed of the random generator.

    >>> import toprank as tr
    >>> data = tr.synthetic(n_queries=60, n_documents=5, seed=0)
    >>> users = tr.clicks.PBM.from_parameters([1, 0.6, 0.4, 0.3, 0.2])
    >>> log = tr.clicks.simulate(data, data.X[:, 0], users, sessions=4_000, k=5, exploration=0.5)
    >>> report = tr.clicks.launch_report(log, data, -data.labels, data.labels, propensities=[1, 0.6, 0.4, 0.3, 0.2])
    >>> report.decision, report.status
    ('do not launch', 3)
    """
    check_log(log)
    check_data("launch report", data)
    _check_names(log, metric, estimator)
    settings, sessions = options_of("launch_report", options, LaunchOptions, _LaunchSettings, Sessions)
    settings.check()
    rankers = _Rankers.from_arguments(new, current, data, settings)
    evidence = bind(log, data, reward=metric, sessions=sessions, propensities=propensities, context=settings.context)
    question = _Question.from_evidence(evidence, metric, estimator, settings, rankers.n_candidates)
    if metric == "value" and estimator != "ips":
        _refuse_trust(evidence)
    try:
        judged = estimate_rankers(evidence, question.corrections, rankers.ranks, [question.metric], question.level)
    except UnidentifiedError as reason:
        return _undecided_report(question, rankers, reason.args[0])
    deciding, metric_name = judged[estimator], question.metric.name
    gains = {name: deciding.gain(name, rankers.current, metric_name) for name in rankers.new}
    names = (max(gains, key=lambda name: gains[name].value), rankers.current)
    return _report(question, rankers, judged, gains, names)


def _refuse_trust(evidence: Evidence) -> None:
    """Reject given propensities with offsets: for values, only ips supports them."""
    if not evidence.source.is_log and evidence.curves.has_offsets:
        raise DataError("With trust in positions, only one estimator supports values:", remedy=_BY_IPS)


@dataclass(frozen=True, eq=False)
class _Rankers:
    """The new rankers and the current one: scores, costs and ranks by name."""

    new: Mapping[str, Any]
    current: str
    current_ranker: Any
    scores: Mapping[str, FloatArray]
    costs: Mapping[str, Cost]
    ranks: Mapping[str, IntArray]
    n_candidates: int

    @classmethod
    def from_arguments(cls, new: Any, current: Any, data: RankingData, settings: _LaunchSettings) -> _Rankers:
        names, other = settings.names, settings.current_data
        candidates = _candidates(new, names)
        n_candidates = _n_candidates(settings.n_candidates, len(candidates))
        scored = {name: _scores_and_cost(ranker, data, name) for name, ranker in candidates.items()}
        scored[names[1]] = _scores_and_cost(current, data if other is None else _other_columns(other, data), names[1])
        scores = {name: of for name, (of, _) in scored.items()}
        return cls(
            new=candidates, current=names[1], current_ranker=current, scores=scores,
            costs={name: cost for name, (_, cost) in scored.items()},
            ranks={name: ranks_of(of, data) for name, of in scores.items()}, n_candidates=n_candidates,
        )  # fmt: skip

    def facts(self, name: str, evidence: Evidence, settings: _LaunchSettings) -> dict[str, Any]:
        """Return the parts of a report that do not depend on clicks."""
        ranker, pair, data = self.new[name], (name, self.current), evidence.data
        seed, reference = settings.seed, settings.reference
        drift = None
        if reference is not None:
            drift = monitor(ranker, reference, data, confidence=settings.confidence, seed=seed)
        return {
            "names": pair, "recency": evidence.chosen.recency, "n_candidates": self.n_candidates, "drift": drift,
            "training_overlap": (_overlap_with_training(ranker, evidence.log),
            _overlap_with_training(self.current_ranker, evidence.log)),
            "offline": _compare_by_labels({one: self.scores[one] for one in pair}, data, seed),
            "costs": tuple(self.costs[one] for one in pair), "min_effective_sample_size":
            settings.min_effective_sample_size,
        }  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Question:
    """The estimation problem: the metric, the estimators, and the confidence level of each interval."""

    evidence: Evidence
    reward: str
    metric: Metric
    estimator: str
    settings: _LaunchSettings
    level: float
    k: int
    layout: ContextCells | None

    @classmethod
    def from_evidence(
        cls, evidence: Evidence, reward: str, estimator: str, settings: _LaunchSettings, n_candidates: int
    ) -> _Question:
        log = evidence.log
        layout = _layout_of(evidence)
        k = settings.k
        if k is None:
            k = min(_DEPTH, int(np.diff(log.offsets).max()) if _in_cells(layout) else log.depth)
        check_whole("k", k, 1)
        return cls(
            evidence=evidence, reward=reward,
            metric=Metric.from_name(f"{'clicks' if reward == 'click' else 'value'}@{k}"),
            estimator=estimator, settings=settings, level=1 - (1 - settings.confidence) / n_candidates, k=k,
            layout=layout,
        )  # fmt: skip

    @property
    def corrections(self) -> list[Correction]:
        """The estimators."""
        alone = self.reward == "value" and self.estimator == "ips"
        return [Correction(name, self.settings.clip) for name in ((self.estimator,) if alone else ESTIMATORS)]


def _in_cells(layout: ContextCells | None) -> bool:
    """True if positions restart in each context, so that the reading order is unknown."""
    return layout is not None and layout.varies


def _report(
    question: _Question, rankers: _Rankers, judged: dict[str, RankerEstimates], gains: dict[str, Interval],
    names: tuple[str, str],
) -> LaunchReport:  # fmt: skip
    """Return the report on the best of the new rankers."""
    evidence, settings, wanted, layout = question.evidence, question.settings, question.metric.name, question.layout
    deciding = judged[question.estimator]
    known, looks = deciding.policies.relevance[wanted], deciding.looks(wanted, *names)
    intervals = {name: _intervals_of(of, names, wanted) for name, of in judged.items()}
    unseen = (deciding.estimates[names[0]].never_shown[wanted], deciding.estimates[names[1]].never_shown[wanted])
    caveats = _Caveats.from_estimates(question, {name: rankers.ranks[name] for name in names}, deciding, intervals)
    sliced_by, slices = "", tuple[SliceGain, ...]()
    if settings.slice_by is not None:
        sliced_by, slices = _differences_by_slice(deciding, wanted, names, settings.slice_by, question.level)
    return LaunchReport(
        metric=wanted, estimator=question.estimator, estimates=intervals,
        unseen_bounds=_unseen_effect_bounds(deciding, names, wanted, _unseen_value_bounds(evidence.log, known,
        question.reward, settings.max_unseen_value)),
        effective_sample_size=known.effective_sample_size(deciding.added(wanted, *names)),
        sessions=int(evidence.n_sessions.sum()),
        queries=_queries(evidence, looks), never_shown=unseen, clip=(known.clip, known.clipped),
        cascade_check=caveats.cascade_check,
        ranking_changes=_ranking_changes(question, rankers, names, looks),
        slices=slices, informing_lists=deciding.informing_lists(wanted, *names),
        propensity_variance_share=_propensity_variance_share(deciding, intervals[question.estimator][2], wanted, names),
        caveats=(*_context_caveats(layout), *caveats.certain, *caveats.disagreement,
                *_caveats_of_log(evidence.log, known, settings.version)),
        # Estimators assign different values to documents never shown; `unseen_bounds` covers these.
        blocking=(*caveats.certain, *([] if any(unseen) else caveats.disagreement)),
        candidates=gains, _by=sliced_by, **rankers.facts(names[0], evidence, settings),
    )  # fmt: skip


def _queries(evidence: Evidence, looks: FloatArray) -> tuple[int, int]:
    """Return the number of queries in both the log and the data, and the number whose lists differ."""
    differ = evidence.queries.sum((looks != 0) * 1) > 0
    return int(evidence.asked.sum()), int((differ & evidence.asked).sum())


def _ranking_changes(question: _Question, rankers: _Rankers, names: tuple[str, str], looks: FloatArray) -> Any:
    evidence = question.evidence
    changes = RankingPair(evidence.data, rankers.ranks[names[0]], rankers.ranks[names[1]], looks, question.k)
    return compare_rankings(changes, evidence.n_sessions, rankers.new[names[0]], question.settings.n_examples)


def _undecided_report(question: _Question, rankers: _Rankers, reason: str) -> LaunchReport:
    """Return the report if the difference cannot be estimated; the changes for users are known nevertheless."""
    evidence, names = question.evidence, (next(iter(rankers.new)), rankers.current)
    unknown = Interval(np.nan, -np.inf, np.inf, question.level, 0, "not known", "difference")
    shown = evidence.relevance(Correction("none"), question.reward).shown
    first, second = (
        np.where(of <= question.k, 1 / np.log2(of + 1), 0.0) for of in (rankers.ranks[name] for name in names)
    )
    among = evidence.queries.broadcast(evidence.asked) & (shown == 0)
    return LaunchReport(
        metric=question.metric.name, estimator=question.estimator,
        estimates={of.name: (unknown, unknown, unknown) for of in question.corrections},
        unseen_bounds=(0.0, 0.0), effective_sample_size=0.0, sessions=int(evidence.n_sessions.sum()),
        queries=_queries(evidence, first - second),
        never_shown=(int((among & (first > 0)).sum()), int((among & (second > 0)).sum())), clip=(0.0, 0),
        cascade_check=None,
        ranking_changes=_ranking_changes(question, rankers, names, first - second), slices=(), undecided_reason=reason,
        **rankers.facts(names[0], evidence, question.settings),
    )  # fmt: skip


@dataclass(frozen=True)
class _Caveats:
    """Assumptions of the estimates that the log contradicts, and contradictions between estimators."""

    cascade_check: CascadeCheck | None
    certain: tuple[str, ...]
    disagreement: tuple[str, ...]

    @classmethod
    def from_estimates(
        cls, question: _Question, ranks: dict[str, IntArray], deciding: RankerEstimates,
        intervals: dict[str, tuple[Interval, Interval, Interval]],
    ) -> _Caveats:  # fmt: skip
        evidence, layout, settings = question.evidence, question.layout, question.settings
        cascade_check = None
        if not _in_cells(layout):
            read_by = None if layout is None else layout.columns
            readers = CascadeQuestion(
                evidence, ranks, question.k, question.reward, settings.confidence, settings.seed, read_by
            )
            cascade_check = check_cascade(readers)
        source = evidence.source
        knows_trust = source.method == "trust" if source.is_log else bool(evidence.curves.has_offsets)
        examined = layout is None and cascade_check is None and not knows_trust
        trust = trust_caveats(evidence.log, settings.seed) if examined else []
        problem = "" if deciding.curves is None else contradiction(deciding.curves, evidence.log, settings.seed)
        gains = {name: gain for name, (_, _, gain) in intervals.items()}
        return cls(cascade_check, (*trust, *filter(None, [problem])), tuple(_disagreement(gains)))


def _layout_of(evidence: Evidence) -> ContextCells | None:
    """Return the contexts of the propensities."""
    source, log = evidence.source, evidence.log
    if source.context is None:
        return getattr(source.propensities, "layout", None)
    return contexts_of(log, source.context)


_BY_IPS = Remedy("{estimator}: a click out of trust brings no value.", estimator="ips")


def _check_names(log: ClickLog, metric: str, estimator: str) -> None:
    if metric not in REWARDS:
        raise UnknownNameError("metric of a launch report", metric, REWARDS)
    if estimator not in ESTIMATORS:
        raise UnknownNameError("estimator of a launch report", estimator, ESTIMATORS)
    if metric == "value":
        log.rewards("value")


def _intervals_of(judged: RankerEstimates, names: tuple[str, str], metric: str) -> tuple[Interval, Interval, Interval]:
    new, current = (judged.estimates[name].intervals[metric] for name in names)
    return new, current, judged.gain(*names, metric)


def _candidates(new: Any, names: tuple[str, str]) -> dict[str, Any]:
    """Return the new rankers by name."""
    candidates = {str(name): ranker for name, ranker in new.items()} if isinstance(new, Mapping) else {names[0]: new}
    if not candidates:
        raise DataError("new is an empty mapping. Give at least one new ranker.")
    if names[1] in candidates:
        raise DataError(f"The new and the current ranker are both called '{names[1]}'. Give two different names.")
    return candidates


def _n_candidates(n_candidates: int | None, given: int) -> int:
    """Return the number of new rankers compared, which is at least the number given."""
    if n_candidates is None:
        return given
    check_whole("n_candidates", n_candidates, 1)
    if n_candidates < given:
        raise DataError(f"n_candidates is {n_candidates}, but {given} new rankers were given. Count all of them.")
    return n_candidates


def _other_columns(other: RankingData, data: RankingData) -> RankingData:
    """Check that `other` contains the same documents as `data`, in other columns."""
    ours, theirs = ((rows.queries.offsets, rows.qids, rows.document_ids) for rows in map(named, (data, other)))
    if not all(np.array_equal(np.asarray(mine), np.asarray(others)) for mine, others in zip(ours, theirs, strict=True)):
        raise DataError("current_data must contain the documents of data, in the same order.")
    return other


def _overlap_with_training(ranker: Any, log: ClickLog) -> float | None:
    """Return the fraction of the sessions that a ranker was trained on; None if unknown."""
    known = TrainingOverlap.from_ranker(ranker)
    return None if known is None else known.share(log)


def _scores_and_cost(ranker: Any, data: RankingData, name: str) -> tuple[FloatArray, Cost]:
    """Return the scores of the documents, and the cost of computing them."""
    if not hasattr(ranker, "predict"):
        return np.asarray(data.aligned(ranker), dtype=np.float64), Cost(None, None)
    try:
        ranker.predict(data.select([0]))  # Warm up: the first call in a process imports libraries.
        start = time.process_time()
        scores = np.asarray(ranker.predict(data), dtype=np.float64)
    except DataError as problem:
        raise DataError(join_parts(f"The model '{name}' does not fit these data.", problem.args[0])) from None
    seconds = (time.process_time() - start) / data.n_queries
    return scores, Cost(_file_bytes(ranker), seconds)


def _file_bytes(ranker: Any) -> int | None:
    if not hasattr(ranker, "save"):
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.toprank"
        try:
            ranker.save(path)
        except DataError:  # A model of another library, which has another file format.
            return None
        return path.stat().st_size


def _propensity_variance_share(judged: RankerEstimates, whole: Interval, metric: str, names: tuple[str, str]) -> float:
    """Return the fraction of the variance of the difference that vanishes if propensities are taken as exact."""
    if not judged.estimates_propensities or not np.isfinite(whole.low) or whole.high <= whole.low:
        return 0.0
    exact = jackknife_variance(judged.differences_without_groups(*names, metric))
    return max(0.0, 1 - float(exact / jackknife_variance(judged.differences_without(*names, metric))))


def _difference_per_query(judged: RankerEstimates, names: tuple[str, str], metric: str) -> FloatArray:
    """Return the difference of two rankers for each query."""
    values = judged.policies.values
    return values.of(names[0], metric) - values.of(names[1], metric)


def _unseen_value_bounds(log: ClickLog, known: Relevance, metric: str, max_value: float | None) -> tuple[float, float]:
    """Return the minimum and maximum value of a document that was never shown, to a user who examines it."""
    seen = known.relevance[(known.shown > 0) & np.isfinite(known.relevance)]
    least = float(seen.min(initial=0.0)) if (log.rewards(metric) < 0).any() else 0.0
    if max_value is None:
        max_value = 1.0 if metric == "click" else float(seen.max(initial=0.0))
    return least, max_value


def _unseen_effect_bounds(
    judged: RankerEstimates, names: tuple[str, str], metric: str, possible: tuple[float, float]
) -> tuple[float, float]:
    """Return the lower and upper bound of the effect of documents never shown on the difference."""
    known, sessions = judged.policies.relevance[metric], judged.evidence.sessions
    unseen, shares = known.shown == 0, judged.evidence.queries.broadcast(sessions / sessions.sum())
    weight = (judged.looks(metric, *names) * shares)[unseen]
    is_regressed = judged.correction.name == "dr"
    counted = np.nan_to_num(known.relevance)[unseen] if is_regressed else np.zeros(len(weight))
    sides = np.stack([weight * (end - counted) for end in possible])
    return min(float(sides.min(axis=0).sum()), 0.0), max(float(sides.max(axis=0).sum()), 0.0)


def _differences_by_slice(
    judged: RankerEstimates, metric: str, names: tuple[str, str], by: SliceBy, confidence: float
) -> tuple[str, tuple[SliceGain, ...]]:
    """Return the name of the slicing and the difference by slice, with simultaneous intervals (Bonferroni).

    Propensities are assumed to be exact.
    """
    evidence = judged.evidence
    in_log, slices = evidence.asked, Sliceable.from_data(evidence.data).slices(by)
    codes, weights, gains = slices.codes[in_log], judged.policies.queries.weights, []
    each, sizes = (
        _difference_per_query(judged, names, metric),
        np.bincount(codes[codes >= 0], minlength=len(slices.names)),
    )
    level = 1 - (1 - confidence) / max(int((sizes >= MIN_QUERIES).sum()), 1)
    for number, name in enumerate(slices.names):
        of_slice = codes == number
        if not of_slice.any():
            continue
        n_queries, gain = int(of_slice.sum()), mean_interval(each[of_slice], weights[of_slice], level)
        if n_queries < MIN_QUERIES:
            gain = replace(gain, low=-np.inf, high=np.inf)
        gains.append(SliceGain(name, n_queries, int(evidence.n_sessions[in_log][of_slice].sum()), gain))
    return slices.column, tuple(gains)


def _compare_by_labels(scores: dict[str, FloatArray], data: RankingData, seed: int) -> Comparison | None:
    """Compare both rankers by NDCG@10 on the labels, if all documents are judged and some are relevant."""
    if not data.judged.all() or not (data.labels > 0).any():
        return None
    return compare(scores, data, ["ndcg@10"], order="data", n_permutations=10_000, n_resamples=2_000, seed=seed)


def _context_caveats(layout: ContextCells | None) -> list[str]:
    if layout is None:
        return []
    if not layout.varies:
        return [layout.sentence]
    return [
        layout.sentence,
        "Reading from the top and stopping was not tested, because cells have no single reading order.",
    ]


def _disagreement(gains: dict[str, Interval]) -> list[str]:
    """Return a sentence if estimators decide in opposite ways."""
    sides = {name: decision_of(*gain) for name, gain in gains.items()}
    if not {LAUNCH, DO_NOT_LAUNCH} <= set(sides.values()):
        return []
    listed = ", ".join(f"{name}: {side}" for name, side in sides.items())
    return [f"The estimators contradict each other ({listed}). Do not rely on any of them."]


def _caveats_of_log(log: ClickLog, known: Relevance, version: str | None) -> list[str]:
    caveats = dropped_sentences(known.unknown, known.without_propensity)
    n_other = _count_other_versions(log, version)
    if n_other:
        caveats.append(
            f"{n_other:,} of {log.n_sessions:,} sessions were served by other versions than the current model. They "
            "are used, although that model might have shown different lists."
        )
    return caveats


def _count_other_versions(log: ClickLog, version: str | None) -> int:
    """Count sessions served by other versions; interleaved lists and splits contain several versions."""
    if version is None or "version" not in log.columns:
        return 0
    versions = log.columns["version"][log.offsets[:-1]].astype(str)
    known = {
        version_named: any(part and version.startswith(part) for part in version_named.split("+"))
        for version_named in set(versions.tolist())
    }
    return sum(not known[version] for version in versions.tolist())
