"""The dual learning algorithm: a ranker and propensities that are learned from each other (Ai et al., 2018).

Let F be the softmax of the ranker's scores over a list, and G that of one logit per position. A click at position k has
the weight G₁/G_k in the ranker's loss and F₁/F_k in the propensities' loss. If P(click) = θ_k α with e^f proportional
to α, both losses are minimal at the true parameters. The two problems are solved alternately until the propensities
converge.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from toprank.clicks.em import FittedPositions
from toprank.clicks.features import rows_of_all, under
from toprank.clicks.log import ClickLog, sums
from toprank.compute import FloatArray, IntArray
from toprank.data.dataset import RankingData
from toprank.losses import Multicategory
from toprank.rankers.estimator import unfitted

_MAX_ITERATIONS = 500  # lists of several lengths have no closed form
_MIN_PROBABILITY = 1e-9


class Dual:
    """A log with features, prepared for both losses.

    Args:
        log: sessions.
        data: features of its documents.
        ranker: ranker that learns f; its loss is replaced by the softmax loss `Multicategory`.
        clip: smallest ratio of propensities to divide by, so that no click weighs more than 1/clip.
    """

    def __init__(self, log: ClickLog, data: RankingData | None, ranker: Any, clip: float) -> None:
        self.log, self.clip = log, clip
        self._new = under(Multicategory(gain="linear"), ranker, "ranker of the dual learning algorithm")
        self.grouped, rows = rows_of_all(log, data, "ranker of the dual learning algorithm")
        self.rows = rows[log.pair]
        lists, self.entry = _lists(log)
        self.training = RankingData(
            self.grouped.X[rows[lists.pair]], np.zeros(len(lists.pair)), qid=lists.number,
            feature_names=self.grouped.feature_names, encoding=self.grouped.encoding,
        )  # fmt: skip
        self.first = log.offsets[:-1][log.session]
        # Lists with the same positions are one choice; most logs have few kinds of lists.
        shown = np.zeros((log.n_sessions, log.depth), dtype=bool)
        shown[log.session, log.position - 1] = True
        self.choices, self.choice = np.unique(shown, axis=0, return_inverse=True)
        self.choice = self.choice.reshape(-1)

    def solve(self, weights: FloatArray, start: FloatArray, tolerance: float, max_rounds: int) -> FittedPositions:
        """Solve both problems alternately, from initial propensities, with weighted queries."""
        log, clicked = self.log, np.flatnonzero(self.log.clicks)
        count, place = log.reweighted(weights)[clicked], log.position[clicked] - 1
        ahead, behind = self.first[clicked], clicked
        logits = np.log(np.maximum(start, _MIN_PROBABILITY))
        converged = False
        for _ in range(max_rounds):
            there = logits[log.position[ahead] - 1] - logits[place]
            wanted = sums(self.entry[clicked], count * self._clipped(there), self.training.n_documents)
            ranker = unfitted(self._new).fit(self.training.replace(labels=wanted))
            scores = np.asarray(ranker.predict(self.grouped), dtype=np.float64)[self.rows]
            mass = count * self._clipped(scores[ahead] - scores[behind])
            renewed = self._propensities(place, self.choice[log.session[clicked]], mass)
            change, logits = renewed - logits, renewed
            converged = bool(np.abs(change).max() <= tolerance)
            if converged:
                break
        values = np.exp(logits - logits[0])
        return FittedPositions(values, values, converged, ranker)

    def _clipped(self, logarithm: FloatArray) -> FloatArray:
        return np.exp(np.minimum(logarithm, np.log(1 / self.clip)))

    def _propensities(self, place: IntArray, choice: IntArray, mass: FloatArray) -> FloatArray:
        """Return the logits that maximize the likelihood of weighted clicks, each a choice among the positions of
        its list.
        """
        won = sums(place, mass, self.log.depth)
        asked = sums(choice, mass, len(self.choices))
        G = np.maximum(won, _MIN_PROBABILITY * won.sum()) / won.sum()
        for _ in range(_MAX_ITERATIONS):  # Hunter (2004); one step is exact for lists of equal length
            share = (self.choices * (asked / (self.choices @ G))[:, None]).sum(axis=0)
            better = np.maximum(won / np.maximum(share, _MIN_PROBABILITY), _MIN_PROBABILITY)
            better /= better.sum()
            done = np.abs(np.log(better / G)).max() <= _MIN_PROBABILITY
            G = better
            if done:
                break
        return np.asarray(np.log(G / G[0]))


class _Lists(NamedTuple):
    """The distinct sets of shown documents, as the index of the set and of the pair."""

    number: IntArray
    pair: IntArray


def _lists(log: ClickLog) -> tuple[_Lists, IntArray]:
    """Return the distinct sets of shown documents, and the index in them of each impression's document.

    Softmax losses do not depend on the order of a list, so sessions with the same documents are merged.
    """
    rng = np.random.default_rng(0)
    names = rng.integers(0, 2**63, (2, log.n_pairs), dtype=np.uint64)  # 128-bit hashes of sets are sums of them
    sums_of = np.stack([np.add.reduceat(row[log.pair], log.offsets[:-1]) for row in names], axis=1)
    _, sample, number = np.unique(sums_of, axis=0, return_index=True, return_inverse=True)
    number = number.reshape(-1)
    shown = log.select(sample)
    key = np.sort(shown.session * np.int64(log.n_pairs) + shown.pair)
    entry = np.searchsorted(key, number[log.session] * np.int64(log.n_pairs) + log.pair)
    return _Lists(key // log.n_pairs, key % log.n_pairs), entry
