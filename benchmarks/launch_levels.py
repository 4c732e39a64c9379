"""Levels and power of launches: `python benchmarks/launch_levels.py [--runs 2000] [--noise 0.5] [--sessions 5000]`.

A log of one ranker, of whose lists a part swaps two neighbors; propensities are estimated from the log by all-pairs.
Each query has ten documents, and users like each with a uniform probability. Both rankers sort by these probabilities
plus normal noise: 0.5 for the current one. The new one is as good with 0.5, 5 % better with 0.25, 5 % worse with 1.1.

Logs are drawn as counts of impressions and clicks for each document and position, on which all estimates depend; so
many logs are evaluated at once, without sessions. The estimator is `snips`, the interval that of
`tr.clicks.launch_report`,
which can only decide less often, since it also examines whether users read from the top and stop. Printed for each
setting are the fractions of logs that lead to "launch" and "do not launch" with 95 % Clopper-Pearson intervals, the
coverage of the 95 % intervals of the difference and of `tr.clicks.evaluate`, and the median number of informing lists.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from scipy.stats import binomtest

from toprank.clicks.evaluation import MIN_LISTS
from toprank.significance import Interval
from toprank.significance.resampling import second_order_interval

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
M = 10
LOOKS = 1 / np.arange(1, M + 1) ** 0.7
GROUPS, BATCH = 20, 50


def worlds(rng: np.random.Generator, n_logs: int, n_queries: int, noise: float) -> tuple[Floats, Integers]:
    """Return probabilities of a like in the current ranker's order, and the new ranker's places of these documents."""
    liked = rng.random((n_logs, n_queries, M))
    current, new = liked + 0.5 * rng.normal(size=liked.shape), liked + noise * rng.normal(size=liked.shape)
    order = np.argsort(-current, axis=2)
    liked, new = np.take_along_axis(liked, order, 2), np.take_along_axis(new, order, 2)
    return liked, np.argsort(np.argsort(-new, axis=2), axis=2)


class Logs:
    """Several logs: the impressions and clicks of each document at its own place, one above it and one below it."""

    def __init__(self, rank: Integers, shown: Integers, clicks: Integers, group: Integers):
        self.rank, self.shown, self.clicks, self.group = rank, shown, clicks, group
        self.sessions = shown[:, :, 0].sum(axis=2)  # the first document of a list is in all of them
        self.wins = self._wins()

    @classmethod
    def drawn(cls, rng: np.random.Generator, share: float, sessions: int, n_queries: int, noise: float) -> Logs:
        """Draw logs of users who look at a position by its propensity."""
        liked, rank = worlds(rng, BATCH, n_queries, noise)
        of_query = rng.multinomial(sessions, np.full(n_queries, 1 / n_queries), size=BATCH)
        swaps = rng.multinomial(rng.binomial(of_query, share), np.full(M - 1, 1 / (M - 1)))
        shown = np.zeros((*liked.shape, 3), dtype=np.int64)
        shown[..., 1:, 0], shown[..., :-1, 2] = swaps, swaps
        shown[..., 1] = of_query[..., None] - shown[..., 0] - shown[..., 2]
        looks = np.pad(LOOKS, 1)[np.arange(M)[:, None] + np.arange(3)]
        clicks = rng.binomial(shown, (0.1 + 0.9 * liked)[..., None] * looks)
        return cls(rank, shown, clicks, rng.permutation(n_queries) % GROUPS)

    def _wins(self) -> Floats:
        """For each group and two positions, the summed click rates at the first of documents shown at both."""
        rates, seen = self.clicks / np.maximum(self.shown, 1), self.shown > 0
        of_group = (self.group[:, None] == np.arange(GROUPS)).astype(float)
        wins = np.zeros((len(self.shown), GROUPS, M + 2, M + 2))
        places = np.arange(M)
        for here, there in ((0, 1), (1, 0), (1, 2), (2, 1), (0, 2), (2, 0)):
            summed = np.einsum("bqk,qg->bgk", rates[..., here] * seen[..., here] * seen[..., there], of_group)
            wins[:, :, places + here, places + there] += summed
        return wins[:, :, 1:-1, 1:-1]

    def estimates(self, weights: Floats) -> tuple[Floats, Floats]:
        """Return the clicks of a session by the new and the current ranker, for each log and row of group weights."""
        wins = np.einsum("bpg,bgij->bpij", weights, self.wins)
        theta = propensities(wins.reshape(-1, M, M)).reshape(wins.shape[:3])
        both = np.empty((2, *theta.shape[:2]))
        impressions, clicks = self.shown.sum(axis=3), self.clicks.sum(axis=3)
        for part in range(theta.shape[1]):
            looks = theta[:, part]
            around = np.pad(looks, ((0, 0), (1, 1)))[:, np.arange(M)[:, None] + np.arange(3)]
            exposure = (self.shown * around[:, None]).sum(axis=3)
            sessions = self.sessions * weights[:, part][:, self.group]
            relevance = np.where((impressions > 0) & (exposure > 0), clicks / np.maximum(exposure, 1e-300), 0)
            brought = relevance * sessions[..., None]
            new = np.take_along_axis(np.broadcast_to(looks[:, None], brought.shape), self.rank, 2)
            both[0, :, part] = (brought * new).sum(axis=(1, 2)) / sessions.sum(axis=1)
            both[1, :, part] = (brought * looks[:, None]).sum(axis=(1, 2)) / sessions.sum(axis=1)
        return both[0], both[1]

    def informing(self) -> Floats:
        """Return the number of lists that inform the propensities of each log, as `informing_lists` does."""
        whole = self.shown.sum(axis=3, keepdims=True)
        each = (self.shown * (whole - self.shown) / np.maximum(whole, 1)).sum(axis=1) / 2
        lists, places = np.zeros((len(each), M + 2)), np.arange(M)[:, None] + np.arange(3)
        for side in range(3):
            lists[:, places[:, side]] += each[:, :, side]
        looks = propensities(self.wins.sum(axis=1))
        exposure = (self.shown * np.pad(looks, ((0, 0), (1, 1)))[:, places][:, None]).sum(axis=3)
        moved = np.abs(
            np.take_along_axis(np.broadcast_to(looks[:, None], exposure.shape), self.rank, 2) - looks[:, None]
        )
        adds = (moved * self.sessions[..., None] / np.maximum(exposure, 1e-300))[..., None] * self.shown
        used = np.maximum(lists, 1e-300)[:, places][:, None]
        return adds.sum(axis=(1, 2, 3)) / (adds / used).sum(axis=(1, 2, 3))

    def judged(self) -> list[tuple[Interval, Interval]]:
        """Return for each log the intervals of the difference and of the new ranker's clicks."""
        n = len(self.shown)
        parts = np.concatenate([np.ones((1, GROUPS)), 1 - np.eye(GROUPS)])
        new, current = self.estimates(np.broadcast_to(parts, (n, *parts.shape)))
        shares = np.stack([self.sessions[:, self.group == g].sum(axis=1) for g in range(GROUPS)], axis=1)
        shares = shares / shares.sum(axis=1, keepdims=True)
        intervals = []
        for values, of in ((new - current, lambda a, b: a - b), (new, lambda a, b: a)):
            asked: list[Floats] = []  # the weights of all logs first, so that they are evaluated together
            _intervals(values, shares, asked, iter([0.0] * (2 * n)))
            moved = of(*self.estimates(np.array(asked).reshape(n, 2, GROUPS)))
            intervals.append(_intervals(values, shares, [], iter(moved.reshape(-1).tolist())))
        return list(zip(*intervals, strict=True))


def _intervals(values: Floats, shares: Floats, asked: list[Floats], answers: Iterator[float]) -> list[Interval]:
    """Return the interval of each log; the weights that it needs estimates for are appended to `asked`."""

    def reweighted(weights: Floats) -> float:
        asked.append(weights)
        return next(answers)

    return [
        second_order_interval(float(row[0]), row[1:], share, reweighted, 0.95)
        for row, share in zip(values, shares, strict=True)
    ]


def propensities(wins: Floats) -> Floats:
    """Return the Bradley-Terry maximum of each matrix of wins by Newton's method, relative to the first position."""
    clicked = wins.sum(axis=2) > 0
    wins = wins + 1e-7 * (1 - np.eye(M))
    games, logs, every = wins + wins.transpose(0, 2, 1), np.zeros(wins.shape[:2]), np.arange(M)
    for _ in range(60):
        chance = 1 / (1 + np.exp(logs[:, None, :] - logs[:, :, None]))
        gradient, spread = wins.sum(axis=2) - (games * chance).sum(axis=2), games * chance * (1 - chance)
        curvature = -spread
        curvature[:, every, every] += spread.sum(axis=2)
        step = np.linalg.solve(curvature[:, 1:, 1:], gradient[:, 1:, None])[..., 0]
        step *= np.minimum(1, 1.5 / np.maximum(np.abs(step).max(axis=1), 1e-300))[:, None]
        logs[:, 1:] += step
        if np.abs(step).max() < 1e-9:
            break
    return np.where(clicked, np.exp(logs), 0)


def main(runs: int, noise: float, of_sessions: list[int]) -> None:
    """Print a row for each setting."""
    liked, rank = worlds(np.random.default_rng(1), 400, 1_000, noise)
    clicks = 0.1 + 0.9 * liked
    expected, kept = ((clicks * of).sum(axis=2).mean() for of in (LOOKS[rank], LOOKS))
    truth = 0.0 if noise == 0.5 else expected - kept
    expected = kept if noise == 0.5 else expected
    sys.stdout.write(f"The new ranker gets {expected:.3f} clicks a session, {truth:+.3f} more than the current one.\n")
    for share, sessions, n_queries in itertools.product((0.05, 0.2), of_sessions, (100, 300)):
        rng, counts, lists = np.random.default_rng(0), np.zeros(4, dtype=int), []
        for _ in range(runs // BATCH):
            logs = Logs.drawn(rng, share, sessions, n_queries, noise)
            informing = logs.informing()
            lists += informing.tolist()
            for enough, (gain, new) in zip(informing >= MIN_LISTS, logs.judged(), strict=True):
                held = (gain.low <= truth <= gain.high, new.low <= expected <= new.high)
                counts += np.array([enough and gain.low > 0, enough and gain.high < 0, *held], dtype=int)
        n = len(lists)
        sides = []
        for count in counts[:2]:
            ends = binomtest(int(count), n).proportion_ci()
            sides.append(f"{count}/{n} = {count / n:.4f} [{ends.low:.4f}, {ends.high:.4f}]")
        sys.stdout.write(
            f"{share:.0%} swaps, {sessions:,} sessions, {n_queries} queries: launch {sides[0]}, do not {sides[1]}, "
            f"covered {counts[2] / n:.3f}, by evaluate {counts[3] / n:.3f}, {np.median(lists):.0f} lists\n"
        )
        sys.stdout.flush()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=2_000)
    parser.add_argument("--noise", type=float, default=0.5)
    parser.add_argument("--sessions", type=int, nargs="+", default=[5_000, 20_000])
    options = parser.parse_args()
    main(options.runs, options.noise, options.sessions)
