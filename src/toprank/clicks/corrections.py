"""Click corrections: unbiased estimates of the relevance of documents from clicks.

A click at position k has probability α_k·R + β_k, where R is the relevance of the document, α is how strongly clicks
depend on relevance, and β is the probability of clicks that do not (trust in the position; negative if R is measured
relative to such clicks at the first position, as the method ``trust`` does). Without trust, β = 0 and α_k = θ_k, the
propensity. So (c − β_k)/α_k has expectation R for every impression, and so have means of it:

| correction | estimate from the impressions of a document |
|---|---|
| ``none`` | Σ c / n, the click rate |
| ``ips`` | Σ c/θ_k / n, with θ = α + β |
| ``affine`` | Σ (c − β_k)/α_k / n |
| ``snips`` | Σ (c − β_k) / Σ α_k: the mean of these weighted by α_k, self-normalized, with smaller variance |
| ``dr`` | R̂ + Σ (c − α_k R̂ − β_k) / max(Σ α_k, clip·N), where N is the number of sessions of the query |

Values (`ClickLog.rewards`) can replace c: a value follows a click, and given a click, its expectation depends only on
the document. Without trust, the expected value at position k is α_k·V, where V is the value of the document to a user
who examines it, and everything above holds for V. With trust it is not a multiple of α_k·R + β_k; so β must be 0, or
clicks out of trust must have no value, which is ``ips``.

If sessions are weighted by age (`toprank.clicks.recency`), each c, n, α and N is multiplied by the weight of its
session.

`clip` is the smallest α_k to divide by: it reduces variance and adds bias. Its default is 0 for given propensities, and
10/√(sessions of the log) for propensities estimated from the log and for ``dr``, because a log has little information
about rarely examined positions. Off-policy estimates (`toprank.clicks.evaluation`) use 0 in both cases, except for
``dr``, because clipping hides the uncertainty of small propensities. The bias of ``dr`` (Oosterhuis 2023) is the
clipped part times the error of R̂: it is unbiased if R̂ is correct or nothing is clipped, but α and β must be correct
in either case. R̂ of a query is learned from the clicks on other queries (cross-fitting), so its errors are independent
of the clicks that it corrects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from toprank.clicks.context_estimation import curves_by_context
from toprank.clicks.context_propensities import ContextPropensities
from toprank.clicks.contexts import Context, ContextCells, columns_of, contexts_of
from toprank.clicks.curves import PropensityCurves
from toprank.clicks.estimators import point_estimate
from toprank.clicks.intervention_harvesting import HARVESTED, TELL, prepared, refuse_one_order
from toprank.clicks.log import ClickLog, UnidentifiedError, UnidentifiedWarning, check_log, sums
from toprank.clicks.recency import Span, recent
from toprank.compute import FloatArray, IntArray
from toprank.data.arguments import check_number
from toprank.data.dataset import RankingData, check_data
from toprank.data.queries import Queries
from toprank.errors import DataError, Remedy, UnknownNameError, warn_user
from toprank.significance import effective_sample_size

CORRECTIONS = ("none", "ips", "snips", "affine", "dr")


def resolve_curves(
    propensities: Any, log: ClickLog, data: RankingData | None = None, ranker: Any = None,
    context: Context | None = None, like: PropensityCurves | None = None,
) -> PropensityCurves:  # fmt: skip
    """Return α and β from any of the accepted forms of propensities.

    Args:
        propensities: None or the name of a method (estimated from the log); a result of such a method; one propensity
            per position; two rows, α and β; or a fitted model with an examination per position, for which the
            bias-corrected examinations are used (`ClickModel.bias_corrected`).
        log: log whose positions must be covered.
        data: features, for methods that learn from them.
        ranker: ranker of these methods.
        context: column of the log, or several crossed columns, whose contexts have separate propensities; given
            propensities are then a mapping from contexts to one number per position.
        like: curves of the log that this log is a part of; curves of contexts are shrunk toward the overall curve by
            the same amount.

    >>> log = ClickLog.from_columns(["q", "q"], ["a", "b"], [1, 2], [0, 1])
    >>> resolve_curves([1, 0.5], log).slope.tolist()
    [1.0, 0.5]
    """
    if isinstance(propensities, ContextPropensities):
        propensities = propensities.curves()
    if isinstance(propensities, PropensityCurves):
        return _check_curves(propensities, log, context)
    least = 0.0
    from_log = propensities is None or isinstance(propensities, str)
    if context is not None:
        if from_log:
            return curves_by_context(log, context, propensities or "all-pairs", _default_clip(log), like)
        return _check_curves(_curves_from_mapping(propensities, columns_of(context), log), log, context)
    if isinstance(propensities, Mapping):
        raise DataError(
            "Propensities by context need the name of the log's column that holds the context:",
            remedy=Remedy("give {context}.", context=...),
        )
    if from_log:
        least = _default_clip(log)
        method = propensities or "all-pairs"
        if method in HARVESTED:
            ready = prepared(log, method)
            refuse_one_order(log, ready.identified)
            slope = np.where(ready.identified, ready.estimate(np.ones(ready.log.n_queries)), np.nan)
            both = _slope_and_offset(slope, log)
            return _check_curves(PropensityCurves(both[0], both[1], method, least), log)
        by = {"data": data, "ranker": ranker} if method != "trust" and data is not None else {}
        propensities = point_estimate(log, method, **by)
        if method == "trust":
            refuse_one_order(log, propensities.identified)
    if hasattr(propensities, "values") and hasattr(propensities, "identified"):
        both, origin = np.asarray(propensities.values, dtype=np.float64), propensities.method
        if getattr(propensities, "offsets", None) is not None:
            both = np.stack([both, propensities.offsets])
    elif hasattr(propensities, "examination_"):
        both, origin = _examination(propensities, log), f"examination of {type(propensities).__name__}"
    else:
        both, origin = _as_array(propensities), "given"
    both = _slope_and_offset(both, log)
    return _check_curves(PropensityCurves(both[0], both[1], origin, least), log)


def _slope_and_offset(rows: FloatArray, log: ClickLog) -> FloatArray:
    """Return α and β of each position of a log."""
    rows = rows if rows.ndim == 2 else np.stack([rows, np.zeros(len(rows))])
    if rows.shape[0] != 2 or rows.shape[1] < log.depth or (rows[0] < 0).any() or np.isinf(rows).any():
        raise DataError(
            f"propensities must be one number, 0 or more (NaN where unknown), for each of the {log.depth} positions of "
            "the log, or two rows, α (0 or more) and β."
        )
    return rows


def _curves_from_mapping(by_context: Any, columns: tuple[str, ...], log: ClickLog) -> PropensityCurves:
    """Return the curves of a mapping from contexts."""
    if not isinstance(by_context, Mapping) or not by_context:
        raise DataError(
            "With a context, propensities must be a mapping from contexts, such as {'phone': [1, 0.4], 'desktop': "
            "[1, 0.7]}, or a result of tr.clicks.propensities with this context. Omit them to estimate them from the "
            "log."
        )
    rows = [_slope_and_offset(_as_array(curve), log) for curve in by_context.values()]
    depth = min(pair.shape[1] for pair in rows)
    table = np.stack([np.full((2, depth), np.nan), *(pair[:, :depth] for pair in rows)], axis=1)
    names = tuple(str(name) for name in by_context)
    layout = ContextCells(columns, names, contexts_of(log, columns).varies, depth)
    return PropensityCurves(table[0].reshape(-1), table[1].reshape(-1), f"given, by {layout.called}", 0.0, layout)


def _check_curves(curves: PropensityCurves, log: ClickLog, context: Context | None = None) -> PropensityCurves:
    """Return the curves after checking that they cover the log."""
    layout = curves.layout
    if context is not None and (layout is None or set(layout.columns) != set(columns_of(context))):
        known = "no context" if layout is None else f"the context {layout.called}"
        raise DataError(f"The given propensities have {known}, but context={context!r} was requested.")
    if log.depth > curves.depth:
        raise DataError(f"The propensities are for {curves.depth} positions, but the log has {log.depth}.")
    check_known(curves, curves.cells(log))
    if layout is not None and (others := layout.unknown(log)):
        takes = "those of the whole" if curves.known[: curves.depth].any() else "none, and their clicks do not count"
        warn_user(
            f"The propensities do not cover {layout.called} {', '.join(map(repr, others[:5]))}, which the log has: "
            f"{'they take' if len(others) > 1 else 'it takes'} {takes}.",
            UnidentifiedWarning,
        )
    return curves


def check_known(curves: PropensityCurves, shown: IntArray) -> None:
    """Reject curves that are 0 or unknown in all cells that were shown."""
    if not curves.usable[shown].any():
        raise UnidentifiedError(
            "The propensities of all positions that were shown are 0 or unknown, so clicks cannot be corrected.",
            remedy=TELL,
        )


def _examination(model: Any, log: ClickLog) -> FloatArray:
    """Return the examinations of a position-based model: bias-corrected if it was fitted, NaN if its log does not
    identify them.
    """
    if np.ndim(model.examination_) != 1:
        raise DataError(
            f"{type(model).__name__} has an examination per last click, not per position. Give a PBM, or propensities."
        )
    if not hasattr(model, "log_"):
        return np.asarray(model.examination_, dtype=np.float64)
    by_documents = model.attraction is None
    if by_documents:
        refuse_one_order(log, model.identified_)
    examined: FloatArray = model.bias_corrected()["examination"]
    return np.where(model.identified_ | (not by_documents), examined, np.nan)


def _default_clip(log: ClickLog) -> float:
    """Return the default smallest propensity to divide by, for propensities or regressions estimated from the log."""
    return min(1.0, 10 / float(np.sqrt(max(effective_sample_size(log.session_weights), 1))))


def _as_array(propensities: Any) -> FloatArray:
    try:
        return np.asarray(propensities, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError(
            f"propensities must be numbers for each position, what tr.clicks.propensities gave, or a fitted PBM, not "
            f"{type(propensities).__name__}."
        ) from None


class Correction(NamedTuple):
    """A correction by name, and the smallest propensity to divide by; None for the default."""

    name: str
    clip: float | None = None

    def check(self) -> None:
        """Check the name and the smallest propensity."""
        if self.name not in CORRECTIONS:
            raise UnknownNameError("correction", self.name, CORRECTIONS)
        if self.clip is not None:
            check_number("clip", self.clip, least=0, most=1)


@dataclass(frozen=True, eq=False)
class CellSums:
    """Impressions, summed for each query–document pair and each cell.

    Attributes:
        pair: index of the pair in the log.
        row: row of the data, or -1.
        query: index of the query in the log.
        position: position, from 1.
        context: index of the context; 0 without contexts.
        impressions: number of impressions.
        weight: sum of the weights of the sessions.
        squared: sum of the squared weights.
        rewards: weighted sum of each reward.
    """

    pair: IntArray
    row: IntArray
    query: IntArray
    position: IntArray
    context: IntArray
    impressions: FloatArray
    weight: FloatArray
    squared: FloatArray
    rewards: Mapping[str, FloatArray]

    def select(self, kept: npt.NDArray[np.bool_]) -> CellSums:
        """Return the cells of a mask."""
        if kept.all():
            return self
        columns = {each.name: getattr(self, each.name)[kept] for each in fields(self) if each.name != "rewards"}
        return CellSums(**columns, rewards={name: of[kept] for name, of in self.rewards.items()})

    def scaled(self, by: FloatArray) -> CellSums:
        """Return the sums after multiplying the weights of the sessions of each cell by a factor."""
        if (by == 1).all():
            return self
        rewards = {name: of * by for name, of in self.rewards.items()}
        return replace(self, weight=self.weight * by, squared=self.squared * by**2, rewards=rewards)


class JoinedCells(NamedTuple):
    """Cells with the index of their propensity and the sum of their rewards, and the queries of the data."""

    cells: CellSums
    place: IntArray
    reward: FloatArray
    queries: Queries
    sessions: FloatArray


@dataclass(frozen=True)
class Relevance:
    """Corrected relevance of each row of the data.

    Attributes:
        relevance: relevance of each row; NaN if unknown.
        weight: for each cell, contribution of a reward of 1 to the relevance of its row; 0 if the cell is dropped.
        shown: number of impressions of each row that are used, by the weights of their sessions.
        exposure: sum of α over these impressions.
        cells: the cells.
        unknown: number of impressions of documents that are not in the data.
        without_propensity: number of impressions at positions whose propensity is 0 or unknown.
        clip: smallest propensity used as a divisor; 0 if no propensity was clipped.
        clipped: number of impressions whose propensity was raised to `clip`.
    """

    relevance: FloatArray
    weight: FloatArray
    shown: FloatArray
    exposure: FloatArray
    cells: CellSums
    unknown: int
    without_propensity: int
    clip: float = 0.0
    clipped: int = 0

    @property
    def impressions(self) -> int:
        """Number of impressions used."""
        return int(self.cells.impressions[self.weight > 0].sum())

    @property
    def labels(self) -> FloatArray:
        """Relevance as labels. A label of -1 means "not judged", so a relevance of -1 is changed by one unit in the
        last place.
        """
        return np.where(self.relevance == -1, np.nextafter(-1.0, 0.0), self.relevance)

    def added(self, looks: FloatArray) -> FloatArray:
        """Return the contribution of a reward in each cell to the sum over rows of relevance × looks."""
        return self.weight * looks[self.cells.row] * (self.cells.row >= 0)

    def effective_sample_size(self, looks: FloatArray) -> float:
        """Return the effective number of impressions in the sum over rows of relevance × looks."""
        adds = np.abs(self.added(looks))  # A contribution is negative if β < -α.
        # Avoid `@`: a long product wakes the threads of BLAS, which then spin for a while.
        total = float((adds * self.cells.weight).sum())
        return total**2 / float((adds**2 * self.cells.squared).sum()) if total > 0 else 0.0


def correct(
    joined: JoinedCells, correction: Correction, curves: PropensityCurves | None, predicted: FloatArray | None
) -> Relevance:
    """Return the corrected relevance of each row, in the order of ``data.X``.

    `predicted` is R̂ of ``dr``. If rewards are values, relevance is the value of a document to a user who examines it.
    """
    cells, n = joined.cells, joined.queries.n_documents
    known, name = cells.row >= 0, correction.name
    least = 0.0 if curves is None else curves.least if correction.clip is None else correction.clip
    usable = known
    if curves is not None and name != "none":
        chance = curves.slope + (curves.offset if name == "ips" else 0.0)
        divides = (chance > 0) | (least > 0 and name != "dr")  # dr learns nothing from clicks with α = 0.
        usable = known & (curves.known & divides)[joined.place]
    if not usable.any():
        raise DataError("No impression of the log is at a position with a known propensity above 0.")
    row, count, reward = cells.row[usable], cells.weight[usable], joined.reward[usable]
    shown = sums(row, count, n)
    exposure, floor, numerator = shown, np.zeros(len(row)), reward
    if name == "none" or curves is None:
        divisor = shown[row]
    else:
        slope, offset = curves.slope[joined.place[usable]], curves.offset[joined.place[usable]]
        exposure, floor = sums(row, slope * count, n), least * shown[row]
        if name == "ips":
            divisor = shown[row] * (slope + offset)
        else:
            numerator = reward - offset * count
            divisor = shown[row] * slope if name == "affine" else exposure[row]
        if name == "dr":  # The regression replaces the clipped part.
            assert predicted is not None
            numerator = numerator - slope * predicted[row] * count
            floor = least * joined.queries.broadcast(joined.sessions)[row]
    unit = 1 / np.maximum(divisor, floor)
    relevance = np.where(shown > 0, sums(row, numerator * unit, n), np.nan)
    if predicted is not None:
        asked = joined.queries.broadcast(joined.sessions > 0)
        relevance = np.where(asked, predicted + np.nan_to_num(relevance), np.nan)
    weight = np.zeros(len(known))
    weight[usable] = unit
    raised = divisor < (1 - 1e-9) * floor  # Rounding may move sums slightly below the floor.
    clipped = int(cells.impressions[usable][raised].sum())
    unknown, lost = (int(cells.impressions[of].sum()) for of in (~known, known & ~usable))
    return Relevance(
        relevance=relevance, weight=weight, shown=shown, exposure=exposure, cells=cells, unknown=unknown,
        without_propensity=lost, clip=least if clipped else 0.0, clipped=clipped,
    )  # fmt: skip


def refuse_trust(curves: PropensityCurves, correction: Correction) -> None:
    """Reject values with trust in positions, except under ``ips``."""
    if correction.name not in ("none", "ips") and curves.has_offsets:
        raise DataError(
            "Values cannot be corrected for trust in positions (β). Give propensities without β, or use 'ips' if "
            "clicks out of trust have no value."
        )


def rows_of(log: ClickLog, data: RankingData) -> IntArray:
    """Return the row of each impression in ``data.X``; -1 if its document is not in the data.

    Documents of data without ids are identified by row number, as in `simulate`.
    """
    check_log(log)
    check_data("learning from clicks", data)
    return log.rows(data)[log.pair]


def sessions_of(log: ClickLog, data: RankingData) -> tuple[FloatArray, FloatArray]:
    """Return for each query of the data the sum of the weights of its sessions, and their number."""
    query, n = session_queries(log, data), data.n_queries
    known = query >= 0
    return sums(query[known], log.session_weights[known], n), sums(query[known], None, n)


def session_queries(log: ClickLog, data: RankingData) -> IntArray:
    """Return the index in the data of the query of each session, matched by id; -1 if it is not in the data."""
    return data_queries(log, data)[log.session_query]


def data_queries(log: ClickLog, data: RankingData) -> IntArray:
    """Return the index in the data of each query of the log, matched by id; -1 if it is not in the data."""
    number = {str(qid): query for query, qid in enumerate(data.qids.tolist())}
    return np.array([number.get(str(qid), -1) for qid in log.qids.tolist()], dtype=np.int64)


def preferences(
    log: ClickLog, data: RankingData, *, half_life: Span | None = None, window: Span | None = None
) -> RankingData:
    """Return pairwise preferences: a clicked document is preferred to each unclicked one above it, as a query with
    labels 1, 0.

    The user has examined the documents above a click, so such a pair is informative whatever the propensities are
    (Joachims 2002); documents below the click are ignored. The query weight is the number of occurrences. Any ranker
    takes these data; `Logistic` or `Hinge` gives the Ranking SVM on clicks. Documents that are not in the data are
    dropped. Preferences never confirm the order shown, so rankers trained on them alone reverse lists: combine them
    with other data.

    Args:
        log: sessions.
        data: documents with features.
        half_life: age at which a session has half the weight of the newest: ``"14d"``, ``"36h"``, or seconds.
        window: drop sessions older than this.

    Returns:
        data with query ids ``query:preferred>other``, in row numbers of `data`.

    >>> data = RankingData([[0.0], [1.0]], qid=["q", "q"], document_ids=["x", "y"])
    >>> log = ClickLog.from_columns(["q"] * 2, ["x", "y"], [1, 2], [0, 1])
    >>> pairs = preferences(log, data)
    >>> pairs.X.tolist(), pairs.labels.tolist(), pairs.query_weights.tolist()
    ([[1.0], [0.0]], [1.0, 0.0], [1.0])
    """
    check_log(log)
    log, _ = recent(log, half_life, window)
    row = rows_of(log, data)
    place = log.sessions.positions_in_query
    better, worse, clicked = [], [], []
    for up in range(1, int(place.max()) + 1):  # pair each click with the document `up` places above it
        below = np.flatnonzero((place >= up) & log.clicks)
        below = below[~log.clicks[below - up] & (row[below] >= 0) & (row[below - up] >= 0)]
        better.append(row[below])
        worse.append(row[below - up])
        clicked.append(below)
    pairs = np.stack([np.concatenate(better), np.concatenate(worse)], axis=1) if better else np.empty((0, 2), np.int64)
    if not len(pairs):
        raise DataError("No document was clicked below a skipped one, so the log contains no preferences.")
    pairs, number = np.unique(pairs, axis=0, return_inverse=True)
    counts = sums(number.reshape(-1), log.impression_weights[np.concatenate(clicked)], len(pairs))
    rows, query = pairs.reshape(-1), data.queries.document_query[pairs[:, 0]]
    return RankingData(
        data.X[rows], np.tile([1.0, 0.0], len(pairs)), queries=Queries.from_sizes(np.full(len(pairs), 2)),
        qids=np.array([f"{data.qids[q]}:{better}>{other}" for q, (better, other) in zip(query, pairs, strict=True)]),
        query_weights=counts, feature_names=data.feature_names, encoding=data.encoding,
    )  # fmt: skip
