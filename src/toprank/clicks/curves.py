"""Propensity curves: α and β of each position, or of each cell of contexts and positions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from toprank.clicks.contexts import ContextCells
from toprank.clicks.intervention_harvesting import HARVESTED, harvested, least_noise, prepared
from toprank.clicks.log import ClickLog, UnidentifiedError, some_queries
from toprank.compute import FloatArray, IntArray
from toprank.display.tables import bracketed
from toprank.errors import held_warnings

BLOCKED = 5  # exit status of a command whose decision a caveat blocks, such as propensities that the log contradicts
_MAX_SESSIONS = 20_000  # sampled for the test of a curve
_MIN_SESSIONS = 200  # needed for the test
_MAX_TESTED_POSITION = 10
_N_RESAMPLES = 100
_SIGNIFICANCE_LEVEL = 0.001  # of the test over all positions
_MIN_LOG_DIFFERENCE = 0.1  # smaller differences rarely change a decision


class Shrinkage(NamedTuple):
    """The shrinkage of curves (`empirical_bayes`): weights of the contexts' own data, and prior variances."""

    own: FloatArray
    variance: FloatArray


@dataclass(frozen=True)
class PropensityCurves:
    """α and β of each position, from the first on; α is NaN or 0 if clicks there are not informative.

    `origin` names the source, and `least` is the default lower bound of the α to divide by. With a `layout` they are
    those of its cells, context by context, and `shrunk` holds the shrinkage toward the whole log.
    """

    slope: FloatArray
    offset: FloatArray
    origin: str
    least: float = 0.0
    layout: ContextCells | None = None
    shrunk: Shrinkage | None = None

    @classmethod
    def from_values(cls, slope: FloatArray, origin: str) -> PropensityCurves:
        """Return curves without offsets."""
        return cls(slope, np.zeros(len(slope)), origin)

    @property
    def depth(self) -> int:
        """Number of positions of each context."""
        return len(self.slope) if self.layout is None else self.layout.depth

    @property
    def usable(self) -> npt.NDArray[np.bool_]:
        """True for positions (or cells) whose clicks can be corrected without clipping."""
        return self.known & (self.slope > 0)

    @property
    def known(self) -> npt.NDArray[np.bool_]:
        """True for positions with known α and β."""
        return np.isfinite(self.slope) & np.isfinite(self.offset)

    @property
    def has_offsets(self) -> bool:
        """True if any β differs from 0, because of trust bias."""
        return bool((np.nan_to_num(self.offset) != 0).any())

    def cells(self, log: ClickLog) -> IntArray:
        """Return the index of α and β for each impression."""
        return log.position - 1 if self.layout is None else self.layout.cells(log)

    def slopes(self, log: ClickLog) -> FloatArray:
        """Return α of each impression."""
        return self.slope[self.cells(log)]

    def at_ranks(
        self,
        log: ClickLog,
        session_queries: Callable[[], IntArray],
        query: IntArray,
        ranks: IntArray,
        deepest: int,
        metric: str,
    ) -> tuple[FloatArray, FloatArray]:
        """Return α and β of documents at these ranks; ranks below the deepest count as the deepest.

        Args:
            log: log whose sessions determine the contexts of each query.
            session_queries: returns the query of each session in the data, or -1; only called for contexts.
            query: query of each document.
            ranks: rank of each document, from 1.
            deepest: last rank that counts.
            metric: name of the metric, for messages.
        """
        if self.layout is None:
            if deepest > len(self.slope) or not self.known[:deepest].all():
                raise UnidentifiedError(
                    f"{metric} needs the propensities of all positions down to {deepest}, but some are unknown."
                )
            place = np.minimum(ranks, len(self.slope)) - 1
            return self.slope[place], self.offset[place]
        session_query = session_queries()
        n_queries = max(int(query.max()), int(session_query.max())) + 1
        tables = self.layout.at_ranks(log, session_query, n_queries, deepest, (self.slope, self.offset))
        in_data = np.bincount(session_query[session_query >= 0], minlength=n_queries) > 0
        rows = []
        for table in tables:
            if table.shape[1] < deepest or np.isnan(table[in_data]).any():
                raise UnidentifiedError(
                    f"{metric} needs the propensities of all positions down to {deepest} in each context of "
                    f"{self.layout.called}, but some are unknown."
                )
            rows.append(table[query, np.minimum(ranks, deepest) - 1])
        return rows[0], rows[1]


def contradiction(curves: PropensityCurves, log: ClickLog, seed: int = 0) -> str:
    """Return a sentence if documents shown at several positions significantly contradict a curve, else ''.

    Documents shown at several positions identify propensities without a model of relevance. Click rates on the lists of
    a good ranker confuse relevance with examination, and so do models whose features are incomplete. Curves of contexts
    and curves with offsets are not tested.
    """
    from scipy.special import ndtri

    if curves.layout is not None or curves.has_offsets or curves.origin in HARVESTED:
        return ""
    if log.depth < 2 or log.position.min() > 1 or not curves.usable[0]:
        return ""
    part = some_queries(log.top(_MAX_TESTED_POSITION), _MAX_SESSIONS, seed)
    if part.n_sessions < _MIN_SESSIONS or part.depth < 2:
        return ""
    claimed, level = curves.slope[: part.depth] / curves.slope[0], _SIGNIFICANCE_LEVEL / (part.depth - 1)
    # An estimate that does not converge contradicts nothing.
    with held_warnings(), np.errstate(divide="ignore", invalid="ignore"):
        ready = prepared(part, "all-pairs")
        values = np.where(ready.identified, ready.estimate(np.ones(part.n_queries)), np.nan)
        apart = np.abs(np.log(values / claimed))
        far = np.isfinite(claimed) & (
            apart > np.maximum(_MIN_LOG_DIFFERENCE, ndtri(1 - level / 2) * np.sqrt(least_noise(part, values)))
        )
        if not far.any():  # a bootstrap would find no difference either
            return ""
        low, high = harvested(part, n_resamples=_N_RESAMPLES, confidence=1 - level, seed=seed).intervals
    places = np.flatnonzero(far & ((claimed < low) | (claimed > high))).tolist()
    if not places:
        return ""
    ranges = "; ".join(
        f"at position {place + 1} {bracketed(low[place], high[place])}, not {claimed[place]:.3f}"
        for place in places[:3]
    )
    more = f", and at {len(places) - 3} more" if len(places) > 3 else ""
    return (
        f"Documents shown at several positions contradict these propensities ({curves.origin}): {ranges}{more}. Click "
        "rates on the lists of a good ranker confuse relevance with examination, and so do models with incomplete "
        "features; all-pairs does not."
    )
