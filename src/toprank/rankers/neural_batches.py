"""Mini-batches of whole queries.

An epoch is an order of the queries, cut into ranges of neighbours. For a network that sees each document by itself the
order is drawn evenly and a batch is a number of flat rows: nothing is padded. Attention pads its queries to the longest
of the batch, so there queries of similar length come together: they are sorted by a length that chance has changed a
little, cut, and the batches shuffled.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from toprank.compute import IntArray, blocks_of
from toprank.data.queries import Queries

__all__ = ["KEEPS", "EpochPlan", "padding_waste", "plan_epoch", "plan_prediction"]

KEEPS = 5
"""For how many epochs batches are kept on a GPU, in a new order each time: there, binding a loss to a batch costs about
as much as asking it."""
_JITTER = 0.1
"""Lengths change by at most this share before they are sorted: more shuffles better, less pads less."""


class EpochPlan(NamedTuple):
    """The queries in the order of an epoch, and its batches."""

    order: IntArray
    """Numbers of the queries."""
    queries: Queries
    """The same queries in that order."""
    rows: IntArray
    """Rows of the documents in that order."""
    batches: list[tuple[int, int]]
    """Ranges [first, last) of the ordered queries."""

    def documents(self, batch: tuple[int, int]) -> slice:
        """The documents of a batch, as a part of `rows`."""
        return slice(int(self.queries.offsets[batch[0]]), int(self.queries.offsets[batch[1]]))


def plan_epoch(queries: Queries, budget: int, rng: np.random.Generator, *, alike: bool = False) -> EpochPlan:
    """Batches of at most `budget` documents in a random order; a query with more is a batch of its own.

    Args:
        queries: all queries.
        budget: documents of a batch; with `alike`, after padding.
        rng: where chance comes from.
        alike: bring queries of similar length together.

    >>> plan = plan_epoch(Queries([0, 3, 5, 9, 10]), 5, np.random.default_rng(0))
    >>> sorted(plan.rows.tolist()) == list(range(10)), [last - first for first, last in plan.batches]
    (True, [1, 2, 1])
    """
    if not alike:
        return _planned(queries, rng.permutation(len(queries)), budget)
    lengths = queries.sizes * rng.uniform(1 - _JITTER, 1 + _JITTER, len(queries))
    order = np.argsort(lengths, kind="stable")
    parts = [order[first:last] for first, last in _padded_blocks(queries.sizes[order], budget)]
    shuffled = [parts[i] for i in rng.permutation(len(parts))]
    ends = np.cumsum([len(part) for part in shuffled])
    batches = list(zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True))
    return _with_rows(queries, np.concatenate(shuffled), batches)


def plan_prediction(queries: Queries, budget: int) -> EpochPlan:
    """Batches for prediction by attention: queries by length, so that next to nothing is padded."""
    order = np.argsort(queries.sizes, kind="stable")
    return _with_rows(queries, order, _padded_blocks(queries.sizes[order], budget))


def padding_waste(plan: EpochPlan) -> float:
    """Padded places for each document, where every batch is padded to its longest query."""
    sizes = plan.queries.sizes
    padded = sum(int(sizes[first:last].max()) * (last - first) for first, last in plan.batches)
    return padded / plan.queries.n_documents - 1.0


def _planned(queries: Queries, order: IntArray, budget: int) -> EpochPlan:
    offsets = np.concatenate([[0], np.cumsum(queries.sizes[order])])
    return _with_rows(queries, order, blocks_of(offsets, budget))


def _with_rows(queries: Queries, order: IntArray, batches: list[tuple[int, int]]) -> EpochPlan:
    ordered = Queries.from_sizes(queries.sizes[order])
    shifts = queries.offsets[:-1][order] - ordered.offsets[:-1]
    rows = np.arange(queries.n_documents) + np.repeat(shifts, ordered.sizes)
    return EpochPlan(order, ordered, rows, batches)


def _padded_blocks(sizes: IntArray, budget: int) -> list[tuple[int, int]]:
    """Ranges whose number of queries times the longest is at most `budget`."""
    blocks, first, longest = [], 0, 0
    for place, size in enumerate(sizes.tolist()):
        longest = max(longest, size)
        if place > first and (place + 1 - first) * longest > budget:
            blocks.append((first, place))
            first, longest = place, size
    return [*blocks, (first, len(sizes))]
