"""Tests of the assumptions of the position-based model: examination depends only on the position, clicks only on
relevance.

**Cascades.** If users read from the top and stop at a good document, documents below good ones are examined less than
their position suggests, and are better than their clicks suggest. Models of both kinds of users are fitted to some
sessions and evaluated on others; if a cascade model is significantly more likely, it also predicts the clicks on each
ranker's lists. A mixture of users who read to different depths, such as on desktop and phone, also correlates
examination with clicks above. If propensities are estimated by context, the models are therefore compared within each
context.

**Trust.** If users click top positions because of the position, P(click) is α_k R + β_k (`toprank.clicks.trust`);
otherwise it is a multiple of R. The test compares the propensities of documents of high and low relevance; if they
differ significantly and β is not small, propensities alone are misleading.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from toprank.clicks.cascades import DBN, DCM
from toprank.clicks.contexts import Context, Contexts, contexts_of, differ
from toprank.clicks.corrections import session_queries
from toprank.clicks.estimators import point_estimate
from toprank.clicks.evidence import Evidence
from toprank.clicks.intervention_harvesting import prepared
from toprank.clicks.log import ClickLog, UnidentifiedWarning, some_queries, sums
from toprank.clicks.model_comparison import ComparedModels, compare_models, model_named, pooled_gain
from toprank.clicks.models import ClickModel
from toprank.clicks.products import PBM
from toprank.compute import FloatArray, IntArray
from toprank.data.dataset import RankingData
from toprank.errors import DataError, held_warnings
from toprank.significance import Interval
from toprank.significance.resampling import mean_interval

_MAX_SESSIONS = 20_000  # Maximum number of sessions for comparing models: enough to distinguish them within seconds.
_MIN_SESSIONS = 200  # Minimum number of sessions for statements about users.
_MAX_POSITION = 10  # Clicks below this position are too rare to separate slopes from offsets.
_TRUST_LEVEL = 0.002  # Significance level of the test for trust in positions.
# Smallest relevant offset, in clicks relative to the first position; smaller ones hardly change a decision.
_MIN_OFFSET = 0.05


@dataclass(frozen=True)
class CascadeCheck:
    """Estimates by a cascade model, for users who read from the top and stop.

    Attributes:
        model: name of the most likely cascade model.
        gain: its held-out log-likelihood per session, minus the log-likelihood of the position-based model.
        estimates: value per session of each ranker, by that model.
        difference: difference of the two rankers.
        context: contexts within which the models were compared; empty if all sessions were compared together.
    """

    model: str
    gain: Interval
    estimates: dict[str, float]
    difference: Interval
    context: str = ""

    def __str__(self) -> str:
        low, high = self.difference
        where = f"within each {self.context} " if self.context else ""
        hint = " Users who read to different depths, such as on different devices, look the same: give the context."
        return (
            f"Users read from the top and stop: {self.model} fits better than the position-based model {where}by "
            f"{self.gain.value:.3g} nats per session [{self.gain.low:.3g}, {self.gain.high:.3g}], so the estimates by "
            f"propensities do not decide alone. By {self.model} the difference is "
            f"{self.difference.value:+.4f} [{low:+.4f}, {high:+.4f}]; the decision needs "
            f"both.{'' if self.context else hint}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the check as values that JSON can hold."""
        return {
            "model": self.model, "gain": self.gain.to_dict(), "estimates": self.estimates,
            "difference": self.difference.to_dict(), "context": self.context or None, "summary": str(self),
        }  # fmt: skip


class CascadeQuestion(NamedTuple):
    """Two rankers to compare under a cascade model.

    Attributes:
        evidence: clicks and documents.
        ranks: rank of each document, by the names of the two rankers.
        k: depth of the metric.
        reward: ``click`` or ``value``.
        confidence: confidence level of the interval.
        seed: seed of the random generator.
        context: columns within whose contexts the models are compared.
    """

    evidence: Evidence
    ranks: Mapping[str, IntArray]
    k: int
    reward: str
    confidence: float
    seed: int
    context: Context | None = None


def check_cascade(question: CascadeQuestion) -> CascadeCheck | None:
    """Compare the rankers by a cascade model, if one is significantly more likely; otherwise return None.

    The interval ignores the uncertainty of the shared parameters, but not of the parameters of documents. The prior of
    the model shrinks documents toward each other, so the difference tends to be too small; only its sign is used.
    """
    evidence, ranks, k, reward, confidence, seed, context = question
    log = evidence.log
    single_lists = log.select(~log.has_duplicate_positions) if log.has_duplicate_positions.any() else log
    compared = _models_by_context(some_queries(single_lists, _MAX_SESSIONS, seed), context, confidence, seed)
    if not compared:
        return None
    gains = {name: pooled_gain(compared, name, "PBM") for name in ("DBN", "DCM")}
    likeliest = max(gains, key=lambda name: np.nan_to_num(gains[name].value, nan=-np.inf))
    gain = gains[likeliest]
    if not gain.low > 0:
        return None
    # Cascade models do not identify the order of positions, which has no effect here.
    with held_warnings(UnidentifiedWarning):
        model = model_named(likeliest)().fit(single_lists)
    values, weights = _expected_reward(model, ranks, single_lists, evidence.data, (k, reward))
    shares, (first, second) = weights / weights.sum(), values
    difference = mean_interval(values[first] - values[second], weights, confidence)
    called = "" if context is None else contexts_of(log, context).called
    return CascadeCheck(likeliest, gain, {name: float(of @ shares) for name, of in values.items()}, difference, called)


def _models_by_context(log: ClickLog, context: Context | None, confidence: float, seed: int) -> list[ComparedModels]:
    """Return the comparison of the models on all sessions, or on the sessions of each context with enough sessions."""
    number = np.zeros(log.n_sessions, np.int64)
    if context is not None:
        number = contexts_of(log, context).number[log.offsets[:-1]]
    parts = (log.select(number == part) for part in range(int(number.max(initial=0)) + 1))
    models: list[ClickModel] = [PBM(), DBN(), DCM()]
    return [
        compare_models(part, models, n_resamples=2, confidence=confidence, seed=seed)
        for part in parts
        if part.n_sessions >= _MIN_SESSIONS
    ]


def _expected_reward(
    model: ClickModel, ranks: Mapping[str, IntArray], log: ClickLog, data: RankingData, top: tuple[int, str]
) -> tuple[dict[str, FloatArray], FloatArray]:
    """Return the expected reward per session of the top of each ranker, for each query, and the session weight of the
    queries.
    """
    query_of = session_queries(log, data)
    k, reward = top
    sessions = sums(query_of[query_of >= 0], log.session_weights[query_of >= 0], data.n_queries)
    in_log = sessions > 0
    if not in_log.any():
        raise DataError("No query of the log is in the data. Check that both use the same query ids.")
    names, query = np.asarray(data.row_names), data.queries.document_query
    worth = _value_per_click(log, data) if reward == "value" else None
    rewards = {}
    for name, rank in ranks.items():
        rows = np.flatnonzero((rank <= k) & data.queries.broadcast(in_log))
        rows = rows[np.lexsort((rank[rows], query[rows]))]
        session = np.cumsum(in_log)[query[rows]] - 1
        qids = np.asarray(data.qids)[query[rows]]
        shown = ClickLog.from_columns(qids, names[rows], rank[rows], np.zeros(len(rows)), session=session, row=rows)
        clicked = model.click_probabilities(shown, conditional=False)
        if worth is not None:
            clicked = clicked * worth[shown.columns["row"]]
        row_query = query[shown.columns["row"]]
        rewards[name] = sums(row_query, clicked, data.n_queries)[in_log]
    return rewards, sessions[in_log]


def _value_per_click(log: ClickLog, data: RankingData) -> FloatArray:
    """Return the mean value of a click on each document; 0 for documents without clicks."""
    row = log.rows(data)[log.pair]
    known = row >= 0
    weight = log.impression_weights[known]
    clicks = sums(row[known], weight * log.clicks[known], data.n_documents)
    value = sums(row[known], weight * log.rewards("value")[known], data.n_documents)
    return np.divide(value, clicks, out=np.zeros(len(value)), where=clicks > 0)


def trust_caveats(log: ClickLog, seed: int) -> list[str]:
    """Return a sentence about trust in positions, if the log shows it significantly.

    The score test decides: its level depends neither on the number of clicks per document nor on weights or changes
    over time, which a fit of P(click) = α_k R + β_k would attribute to trust. The fit estimates the positions and the
    size.
    """
    if log.position.min() > 1:  # The first position is missing, so no comparison is possible.
        return []
    part = some_queries(log.top(_MAX_POSITION), _MAX_SESSIONS, seed)
    if part.n_sessions < _MIN_SESSIONS or part.depth < 2 or not _curves_differ(part, seed):
        return []
    with held_warnings(), np.errstate(all="ignore"):  # A fit that fails shows nothing.
        offsets = point_estimate(part, "trust").offsets
    assert offsets is not None
    large = np.flatnonzero(np.abs(offsets) > _MIN_OFFSET)
    if not len(large):
        return []
    places = ", ".join(str(place + 1) for place in large.tolist())
    noun = "position" if len(large) == 1 else "positions"
    return [
        f"Users trust positions: at {noun} {places}, clicks depend on relevance in another way than at the first. The "
        "estimates may mislead; the method 'trust' models such users."
    ]


def _curves_differ(log: ClickLog, seed: int) -> bool:
    """Test whether documents of high and of low relevance have different propensities, which indicates trust.

    One half of the sessions classifies the documents, the clicks of the other half are tested, and vice versa.
    """
    half = np.random.default_rng(seed).permutation(log.n_sessions) % 2
    p = [differ(tested, _by_relevance(log.select(half != side), tested), seed).p
         for side in (0, 1) for tested in (log.select(half == side),)]  # fmt: skip
    return bool(2 * np.nanmin([1.0, *p]) <= _TRUST_LEVEL)  # Bonferroni


def _by_relevance(log: ClickLog, tested: ClickLog) -> Contexts:
    """Divide the documents of the tested sessions into two classes by the clicks of other sessions.

    Both classes have half of the expected clicks.
    """
    place, n = log.position - 1, log.n_pairs
    with held_warnings():
        slope = np.nan_to_num(prepared(log, "all-pairs").estimate(np.ones(log.n_queries)))
    exposure = sums(log.pair, slope[place] * log.impression_weights, n)
    clicks = sums(log.pair, log.clicks * log.impression_weights, n)
    rate = np.divide(clicks, exposure, out=np.zeros(n), where=exposure > 0)
    order = np.argsort(rate, kind="stable")
    total = np.cumsum(clicks[order])
    high = rate >= rate[order[np.searchsorted(total, total[-1] / 2)]]
    return Contexts(("relevance",), ("low", "high"), True, tested.depth, high[tested.pair].astype(np.int64))
