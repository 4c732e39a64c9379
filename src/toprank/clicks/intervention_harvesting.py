"""Propensities by intervention harvesting: from documents that were shown at several positions.

The clicks on a document shown at positions k and l compare the propensities of the two positions, whatever the
relevance of the document. Positions are therefore the nodes of a graph, and such documents its edges. Only positions
that are connected to the first are identified.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from toprank.clicks.log import (
    MAX_COMPARED_POSITIONS,
    ClickLog,
    UnidentifiedError,
    UnidentifiedWarning,
    bootstrap_weights,
    check_log,
    sums,
    sums_by,
)
from toprank.clicks.recency import Recency
from toprank.compute import FloatArray, IntArray
from toprank.data.arguments import check_number, check_whole
from toprank.data.queries import positions_within
from toprank.display.pictures import Picture
from toprank.display.record import Record, to_json
from toprank.display.svg import WIDTH, Box, Scale, axes, marked_ticks, marker, path, tag
from toprank.display.tables import Part, Table, bracketed, json_rows, percent
from toprank.errors import DataError, Remedy, UnknownNameError, held_warnings, warn_user
from toprank.rankers.base import ConvergenceWarning
from toprank.significance import Interval, bootstrap_t_interval, effective_sample_size

_SHOW = "or show some documents at other positions: swap neighbors, or shuffle the top in some sessions."
SWAP = "Swap neighbors or shuffle the top in some sessions to identify it."
TELL = Remedy(f"Give {{propensities}}, {_SHOW}", propensities=...)
_MIN_Z = 4.0  # standard errors
_PRIOR_CLICKS = 1e-6  # prior clicks at each position, so that positions without clicks have an estimate
_MAX_ITERATIONS = 100
_CONVERGENCE_TOLERANCE = 1e-10  # of log θ; Newton's method then reaches rounding in the next step
_LIKELIHOOD_TOLERANCE = 1e-15  # relative rounding of the likelihood
_RIDGE_CLICKS = 1e-9  # information, in clicks, that keeps the matrix invertible
_MAX_STEP = 3.0  # of log θ, because the Hessian is unreliable far from the maximum
HARVESTED: tuple[str, ...] = ("all-pairs", "pivot", "chain", "randomization")


class Edge(NamedTuple):
    """Two positions, and the documents that were shown at both."""

    first: int
    second: int
    pairs: int
    impressions: int


@dataclass(frozen=True)
class Graph:
    """The graph of positions that share documents.

    Attributes:
        depth: the largest position.
        edges: pairs of positions that share documents.
        components: connected components, starting with the component of the first position.
    """

    depth: int
    edges: tuple[Edge, ...]
    components: tuple[tuple[int, ...], ...]

    @property
    def identified(self) -> npt.NDArray[np.bool_]:
        """True for positions that are connected to the first."""
        return self.joined(1)

    def joined(self, documents: int) -> npt.NDArray[np.bool_]:
        """Return whether each position is connected to the first by edges of at least `documents` shared documents."""
        joined = np.zeros((self.depth, self.depth), dtype=bool)
        for edge in self.edges:
            joined[edge.first - 1, edge.second - 1] = edge.pairs >= documents
        label = components(joined)
        return np.asarray(label == label[0])


class _Harvest(NamedTuple):
    """Pairs shown at two positions: query, positions k ≠ l, and click rate at k of each (document, k, l).

    With weighted sessions, rates are weighted means, and each document has a weight: n_k n_l / (n_k + n_l) of the
    weights, divided by that of the counts. It is the same at k and l.
    """

    query: IntArray
    here: IntArray
    there: IntArray
    rate: FloatArray
    shown: FloatArray
    weight: FloatArray

    @classmethod
    def from_log(cls, log: ClickLog) -> _Harvest:
        check_compared(log)
        depth = log.depth
        weight = log.impression_weights
        cell, (shown, counted, clicked) = sums_by(
            log.pair * np.int64(depth) + log.position - 1, None, weight, weight * log.clicks
        )
        rate = clicked / counted
        pair, position = cell // depth, cell % depth
        begins = np.searchsorted(pair, np.arange(log.n_pairs + 1))
        sizes = np.diff(begins)
        several = np.repeat(sizes, sizes)  # number of positions of each cell's pair
        first = np.repeat(np.arange(len(cell)), several)
        second = np.repeat(begins[:-1], sizes)[first] + positions_within(several)
        both = first != second
        first, second = first[both], second[both]
        part = (1 / shown[first] + 1 / shown[second]) / (1 / counted[first] + 1 / counted[second])
        return cls(log.pair_query[pair[first]], position[first], position[second], rate[first], shown[first], part)


def graph(log: ClickLog) -> Graph:
    """Return the graph of the positions of a log, with an edge if a document of a query was shown at both.

    >>> log = ClickLog.from_columns(["q", "q", "q", "q", "r"], ["a", "b", "b", "a", "c"], [1, 2, 1, 2, 3], [0] * 5)
    >>> graph(log).components
    ((1, 2), (3,))
    """
    return _graph(_Harvest.from_log(log), log.depth)


def _graph(harvest: _Harvest, depth: int) -> Graph:
    pairs = np.bincount(harvest.here * depth + harvest.there, minlength=depth**2).reshape(depth, depth)
    shown = sums(harvest.here * depth + harvest.there, harvest.shown, depth**2).reshape(depth, depth)
    edges = tuple(
        Edge(k + 1, m + 1, int(pairs[k, m]), int(shown[k, m] + shown[m, k]))
        for k in range(depth)
        for m in range(k + 1, depth)
        if pairs[k, m]
    )
    label = components(pairs)
    order = list(dict.fromkeys(label.tolist()))
    return Graph(depth, edges, tuple(tuple((np.flatnonzero(label == component) + 1).tolist()) for component in order))


@dataclass(frozen=True, repr=False)
class Propensities(Record):
    """P(examined at position k) / P(examined at the first position).

    Attributes:
        values: propensity of each position, from the first on; NaN if unidentified.
        intervals: confidence intervals, over queries.
        identified: whether the log identifies each value.
        graph: which positions share documents.
        method: method of estimation.
        confidence: confidence level of the intervals.
        n_resamples: number of bootstrap samples.
        offsets: offset of each position from trust bias, if the method estimates it (``trust``); (click - offset) /
            value then estimates the click at the first position.
        offset_intervals: intervals of the offsets.
        ranker: ranker that learned the relevance, if the method trains one.
        recency: weights of the sessions by age, or None if all weights are 1.
    """

    values: FloatArray
    intervals: Interval[FloatArray]
    identified: npt.NDArray[np.bool_]
    graph: Graph
    method: str
    confidence: float
    n_resamples: int = 0
    offsets: FloatArray | None = None
    offset_intervals: Interval[FloatArray] | None = None
    ranker: Any = None
    recency: Recency | None = None

    def _columns(self) -> dict[str, Sequence[Any]]:
        columns = {"propensity": self.values, "low": self.intervals.low, "high": self.intervals.high}
        if self.offsets is not None and self.offset_intervals is not None:
            ends = {f"offset_{name}": end for name, end in zip(("low", "high"), self.offset_intervals, strict=True)}
            columns |= {"offset": self.offsets, **ends}
        numbers = {name: values.tolist() for name, values in columns.items()}
        return {"position": list(range(1, len(self.values) + 1)), **numbers, "identified": self.identified.tolist()}

    def plot(self) -> Picture:
        """Plot each identified propensity with its interval."""
        (low, high), places = self.intervals, np.flatnonzero(self.identified & np.isfinite(self.values))
        if not len(places):
            raise DataError("There is nothing to plot: the log identifies no propensities.")
        box, depth = Box(44, 10, WIDTH - 12, 190), len(self.values)
        x = Scale(1, max(2, depth), box.left + 8, box.right - 8)
        most = 1.5 * float(np.nanmax(self.values[places]))  # longer intervals are cut off here
        y = Scale(0, max(1.0, min(most, float(np.nanmax(high[places], initial=0.0)))), box.bottom, box.top)
        x_ticks = [(v, words) for v, words in marked_ticks(1, x.high, min(10, depth)) if v == int(v)]
        drawn = [axes(box, x, y, x_ticks, marked_ticks(0, y.high, 5), "position")]
        points = [(x(float(k + 1)), y(float(self.values[k]))) for k in places]
        drawn.append(tag("path", d=path(points), cls="line"))
        for k, (at, height) in zip(places, points, strict=True):
            if not np.isnan(high[k]):
                top, bottom = y(min(float(high[k]), y.high)), y(float(low[k]))
                drawn.append(tag("line", x1=at, x2=at, y1=bottom, y2=top, cls="axis"))
            words = f"position {k + 1}: {self.values[k]:.3f} {bracketed(low[k], high[k])}"
            drawn.append(marker(0, at, height, words))
        return Picture("Propensity by position, with intervals", 230, *drawn)

    def to_dict(self) -> dict[str, Any]:
        """Return the propensities as JSON values; unidentified numbers are None."""
        facts = {"method": self.method, "summary": self.summary, "confidence": self.confidence}
        return {**facts, "recency": to_json(self.recency), "positions": json_rows(self._columns())}

    @property
    def summary(self) -> str:
        """The method, and the positions that the log does not identify."""
        return " ".join(self._sentences())

    def _sentences(self) -> list[str]:
        lost = [str(k + 1) for k in np.flatnonzero(~self.identified)]
        heading = f"Propensities by {self.method}, relative to the first position."
        if self.recency is not None:
            heading = f"{heading} {self.recency}"
        if np.isnan(self.values[self.identified]).any():
            words = (
                "No document that was also shown elsewhere was clicked at the first position, so no other position can "
            )
            return [heading, f"{words}be compared with it."]
        if not lost:
            return [heading]
        if not np.isnan(self.values).any():
            return [heading, assumed(self.method, lost)]
        words = (
            f"No document connects {'position' if len(lost) == 1 else 'positions'} {', '.join(lost)} to the first, so "
            "the log does not identify how likely users examine them. Show some documents at other positions: swap "
            "neighbors, or shuffle the top in some sessions."
        )
        return [heading, words]

    def _parts(self) -> Sequence[Part]:
        pairs = [(self.values, self.intervals)]
        if self.offsets is not None and self.offset_intervals is not None:
            pairs.append((self.offsets, self.offset_intervals))
        rows = [(str(k + 1), *(cell for pair in pairs for cell in _cells(k, *pair))) for k in range(len(self.values))]
        columns = ["position"]
        for name in ("propensity", "offset")[: len(pairs)]:
            columns += [name, f"{percent(self.confidence)} interval"]
        return [*self._sentences(), Table(tuple(columns), rows, names=0)]


def _cells(k: int, values: FloatArray, intervals: Interval[FloatArray]) -> tuple[str, str]:
    return ("—", "") if np.isnan(values[k]) else (f"{values[k]:.3f}", bracketed(intervals.low[k], intervals.high[k]))


def assumed(method: str, lost: Sequence[str]) -> str:
    """Return a warning for positions that are identified only by the form of a ranker."""
    several = len(lost) > 1
    return (
        f"No document and no feature vector connects {'positions' if several else 'position'} {', '.join(lost)} to the "
        f"first, so the estimate of {method} for {'them' if several else 'it'} rests on the ranker alone, which must "
        f"be right about documents that were never shown there. {SWAP}"
    )


def harvested(
    log: ClickLog, method: str = "all-pairs", *, n_resamples: int = 200, confidence: float = 0.95, seed: int = 0
) -> Propensities:
    """Estimate propensities from documents that were shown at several positions, with bootstrap intervals over
    queries.

    ``all-pairs`` uses all pairs of positions that share documents (Agarwal et al., 2019), ``pivot`` the pairs with the
    first position, ``chain`` neighboring positions. ``randomization`` compares the click rates of sessions with
    shuffled lists: those that the column ``explored`` marks, or all sessions, with a warning if they do not look
    shuffled. The estimates are unbiased if the position of a document, given the query, is independent of its
    relevance, as with alternating rankers, random swaps and shuffles.
    """
    check_whole("n_resamples", n_resamples, 2)
    check_number("confidence", confidence, above=0, below=1)
    ready = prepared(log, method)
    log, identified = ready.log, ready.identified
    values = np.where(identified, ready.estimate(np.ones(log.n_queries)), np.nan)
    with held_warnings(ConvergenceWarning):  # a resample may join fewer positions; its interval gets wider
        draws = [ready.estimate(weights) for weights in bootstrap_weights(log, n_resamples, seed)]
    over_queries = bootstrap_t_interval(values, draws, len(np.unique(log.session_query)), confidence, log_scale=True)
    return Propensities(values, over_queries, identified, ready.graph, method, confidence, n_resamples)


class PropensityEstimator(NamedTuple):
    """A log prepared for a method, and a function from query weights to propensities."""

    log: ClickLog
    estimate: Callable[[FloatArray], FloatArray]
    graph: Graph
    identified: npt.NDArray[np.bool_]


def prepared(log: ClickLog, method: str) -> PropensityEstimator:
    """Prepare a log for a method; ``randomization`` only uses shuffled sessions."""
    if method not in HARVESTED:
        raise UnknownNameError("method of propensities", method, HARVESTED)
    check_log(log)
    marked = "explored" in log.columns
    if method == "randomization" and marked:
        log = shuffled(log)
    harvest = _Harvest.from_log(log)
    of_log = _graph(harvest, log.depth)
    used = {
        "pivot": lambda edge: edge.first == 1,
        "chain": lambda edge: edge.second == edge.first + 1,
    }.get(method, lambda _: True)
    identified = replace(of_log, edges=tuple(filter(used, of_log.edges))).identified
    if method == "randomization":
        shown = np.bincount(log.position - 1, minlength=log.depth) > 0
        identified = shown & (marked | of_log.identified)
        if identified[1:].any() and _keeps_its_places(log):
            warn_user(
                "Documents return to the same positions, so not all lists of this log were shuffled, and click rates "
                "also depend on relevance. Mark the shuffled sessions in a column 'explored', or use the method "
                "all-pairs, which suits lists whose neighbors were swapped.",
                UnidentifiedWarning,
            )
    return PropensityEstimator(log, partial(_ESTIMATES[method], log, harvest), of_log, identified)


def shuffled(log: ClickLog) -> ClickLog:
    """Return the sessions that the column ``explored`` marks."""
    explored = is_explored(log)
    if not explored.any():
        raise DataError("No session of the log was shuffled: its column 'explored' is false everywhere.")
    return log.select(explored)


def is_explored(log: ClickLog) -> npt.NDArray[np.bool_]:
    """Return whether the column ``explored`` marks each session as shuffled."""
    return np.asarray(log.columns["explored"].astype(bool)[log.offsets[:-1]])


def refuse_one_order(log: ClickLog, identified: npt.NDArray[np.bool_]) -> None:
    """Raise an error if no document connects positions."""
    if log.depth > 1 and not identified[1:].any():
        raise UnidentifiedError(
            "No document of the log was shown at two positions, as with a single ranker, so the log does not identify "
            "how likely users examine a position.",
            remedy=TELL,
        )


def _keeps_its_places(log: ClickLog) -> bool:
    """Return whether documents return to the same positions more often than in shuffled lists.

    With u the rank of a document minus the middle of its list, (Σu)² over the impressions of a document has the
    expectation Σu² in shuffled lists. The test sums the excess by query, because queries are independent.
    """
    sizes = np.diff(log.offsets)
    u = log.sessions.positions_in_query - np.repeat((sizes - 1) / 2, sizes)
    squares = sums(log.pair_query, sums(log.pair, u, log.n_pairs) ** 2, log.n_queries)
    excess = squares - sums(log.query, u**2, log.n_queries)
    return bool(excess.sum() > _MIN_Z * np.sqrt((excess**2).sum()))


def _rates(harvest: _Harvest, weights: FloatArray, depth: int) -> tuple[FloatArray, FloatArray]:
    """Return the weighted sums of click rates at the first position of each pair of positions, and of documents."""
    key, weight = harvest.here * depth + harvest.there, weights[harvest.query] * harvest.weight
    clicks, shown = sums(key, weight * harvest.rate, depth**2), sums(key, weight, depth**2)
    return clicks.reshape(depth, depth), shown.reshape(depth, depth)


def _ratio(part: FloatArray, whole: FloatArray) -> FloatArray:
    return np.asarray(np.divide(part, whole, out=np.full(part.shape, np.nan), where=whole > 0))


def _pivot(log: ClickLog, harvest: _Harvest, weights: FloatArray) -> FloatArray:
    clicks, _ = _rates(harvest, weights, log.depth)
    values = _ratio(clicks[:, 0], clicks[0])
    values[0] = 1.0
    return values


def _chain(log: ClickLog, harvest: _Harvest, weights: FloatArray) -> FloatArray:
    clicks, _ = _rates(harvest, weights, log.depth)
    steps = _ratio(np.diag(clicks, -1).copy(), np.diag(clicks, 1).copy())
    return np.asarray(np.cumprod(np.r_[1.0, steps]), dtype=np.float64)


def _randomized(log: ClickLog, harvest: _Harvest, weights: FloatArray) -> FloatArray:
    del harvest
    weight = log.reweighted(weights)
    rate = _ratio(sums(log.position - 1, weight * log.clicks, log.depth), sums(log.position - 1, weight, log.depth))
    return rate / rate[0] if rate[0] > 0 else np.full(log.depth, np.nan)


def _all_pairs(log: ClickLog, harvest: _Harvest, weights: FloatArray) -> FloatArray:
    """Fit the position-based model with one document for each pair of positions.

    A position without clicks gets 0 instead of a value from the prior. If the first position has no clicks, nothing is
    identified.
    """
    clicks, shown = _rates(harvest, weights, log.depth)
    first, second = np.nonzero(np.triu(shown, 1))
    if not len(first):
        return np.concatenate([[1.0], np.full(log.depth - 1, np.nan)])
    if not clicks[0].any():
        return np.full(log.depth, np.nan)
    place = np.stack([first, second], axis=1).reshape(-1)
    other = np.stack([second, first], axis=1).reshape(-1)
    begins = 2 * np.arange(len(first) + 1)
    counts = shown[place, other], clicks[place, other]
    examination, rests = relative_examinations(begins, place.astype(np.int32), *counts, log.depth, _PRIOR_CLICKS)
    if not rests:
        warn_user(
            "The propensities by all-pairs did not converge: too few clicks connect some positions to the others. "
            "Show more documents at several positions, or use the method pivot.",
            ConvergenceWarning,
        )
    values = np.where(clicks.any(axis=1), examination, 0.0)
    joined = components(shown)
    return np.asarray(np.where(joined == joined[0], values, np.nan))


# ---- the conditional likelihood of click positions ----


def check_compared(log: ClickLog) -> None:
    """Raise an error if a log has too many positions to compare all pairs."""
    if log.depth > MAX_COMPARED_POSITIONS:
        raise DataError(
            f"The log shows position {log.depth:,}, but at most {MAX_COMPARED_POSITIONS:,} positions can be compared, "
            "because the comparison stores a number for every pair of positions.",
            remedy=Remedy(
                f"log.top({MAX_COMPARED_POSITIONS}) keeps the first ones.", "Drop the rows of lower positions."
            ),
        )


def components(joined: Any) -> npt.NDArray[np.int32]:
    """Return the connected component of each position, from a matrix that is positive for connected positions."""
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import connected_components

    return np.asarray(connected_components(csr_matrix(joined > 0), directed=False)[1])


def relative_examinations(
    begins: IntArray,
    place: npt.NDArray[np.int32],
    shown: FloatArray,
    clicked: FloatArray,
    n_places: int,
    prior: float,
) -> tuple[FloatArray, bool]:
    """Return the examination of each place relative to the first, and whether the optimization converged.

    If a document with C clicks was shown n_k times at position k, the expected clicks there are C n_k θ_k / Σ n_j θ_j,
    whatever its attraction. The θ that match these sums have no small-sample bias, unlike a fit with an attraction for
    each document. They maximize the conditional likelihood of the positions of clicks given their number for each
    document, with Poisson clicks, which is concave in log θ.

    Args:
        begins: index of the first cell of each document, and the number of cells.
        place: place of each cell.
        shown: impressions of the document at the place.
        clicked: clicks among them.
        n_places: number of places.
        prior: clicks at each place on an additional document that was shown once everywhere. They keep estimates above
            0 and all places connected.

    >>> begins, place = np.array([0, 2, 4]), np.array([0, 1, 0, 1], dtype=np.int32)
    >>> shown, clicked = np.array([8.0, 8, 3, 6]), np.array([4.0, 2, 1, 1])
    >>> relative_examinations(begins, place, shown, clicked, 2, 1e-9)[0].round(6).tolist()
    [1.0, 0.5]
    """
    from scipy.sparse import csr_matrix

    every = np.arange(n_places, dtype=np.int32)
    shape = (len(begins), n_places)  # the last row is the prior document
    pointers = np.append(begins, begins[-1] + n_places)
    times = csr_matrix((np.append(shown, np.ones(n_places)), np.append(place, every), pointers), shape=shape)
    clicks = csr_matrix((np.append(clicked, np.full(n_places, prior)), times.indices, pointers), shape=shape)
    of_document, of_place = (np.asarray(clicks.sum(axis=axis)).ravel() for axis in (1, 0))
    clicked_on = of_document > 0
    times, of_document = times[clicked_on], of_document[clicked_on]

    def value(log_theta: FloatArray) -> float:
        return float(of_place @ log_theta - of_document @ np.log(times @ np.exp(log_theta)))

    log_theta, reached = np.zeros(n_places), value(np.zeros(n_places))
    for _ in range(_MAX_ITERATIONS):
        expected = times.multiply(np.exp(log_theta)).tocsr()
        shares = expected.multiply((1 / np.asarray(expected.sum(axis=1)).ravel())[:, None]).tocsr()
        gradient = of_place - shares.T @ of_document
        weighed = shares.multiply(of_document[:, None])
        curvature = np.diag(shares.T @ of_document) - (shares.T @ weighed).toarray()
        step = np.zeros(n_places)  # the first is fixed, since only ratios are identified
        step[1:] = np.linalg.solve(curvature[1:, 1:], gradient[1:])
        step *= min(1.0, _MAX_STEP / max(float(np.abs(step).max()), 1e-300))
        while (raised := value(log_theta + step)) < reached - 1e-12 * abs(reached):
            step /= 2
        log_theta, reached = log_theta + step, raised
        if np.abs(step).max() <= _CONVERGENCE_TOLERANCE or gradient @ step <= _LIKELIHOOD_TOLERANCE * (
            1 + abs(reached)
        ):
            return np.exp(log_theta), True
    return np.exp(log_theta), False


def least_noise(log: ClickLog, curve: FloatArray) -> FloatArray:
    """Return the variance of the log propensities that clicks alone cause, with fixed documents.

    It is the inverse Fisher information of the conditional likelihood (`relative_examinations`) at the curve. A
    diverging estimate has almost no information, however similar its bootstrap samples are.
    """
    from scipy.sparse import csr_matrix

    depth = len(curve)
    used = np.nan_to_num(curve)[log.position - 1] > 0
    document = np.unique(log.pair[used], return_inverse=True)[1]
    position, n = log.position[used] - 1, int(document.max(initial=0)) + 1
    sessions = log.session_weights  # as many clicks count as sessions of equal weight would have
    weight = log.impression_weights[used] * (effective_sample_size(sessions) / sessions.sum())
    mass = csr_matrix((curve[position] * weight, (document, position)), shape=(n, depth))  # impressions add up
    share = mass.multiply(1 / np.maximum(mass.sum(axis=1), 1e-300)).tocsr()
    expected = share.multiply(sums(document, log.clicks[used] * weight, n)[:, None]).tocsr()
    information = np.diag(np.asarray(expected.sum(axis=0)).ravel()) - (share.T @ expected).toarray()
    least = np.zeros(depth)
    least[1:] = np.diag(np.linalg.inv(information[1:, 1:] + _RIDGE_CLICKS * np.eye(depth - 1)))
    return least


_ESTIMATES = {"all-pairs": _all_pairs, "pivot": _pivot, "chain": _chain, "randomization": _randomized}
