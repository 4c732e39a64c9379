"""YetiRank: logistic losses of neighboring documents in orders sampled from noisy scores; see `native/yetirank.c`.

Pairs are sampled independently for each `draw`: trees count rounds, networks batches, and linear rankers outer
iterations. They depend only on the seed, the draw, the id of the query and the index of the document in its query,
neither on the number of threads nor on other queries.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from typing_extensions import override

from toprank import kernels
from toprank.compute import FloatArray
from toprank.data.arguments import check_number, check_whole
from toprank.losses.base import Block, BlockResult, BoundLoss, Curvature, Judgments, Loss, Requested, Traits, by_columns
from toprank.losses.labels import metric_terms, readable
from toprank.losses.random_stream import RandomStream
from toprank.metrics.conventions import Gain
from toprank.metrics.measure import Measure
from toprank.metrics.parsing import parse

_MAX_PERMUTATIONS = 10_000
"""The mean of this many orders has a hundredth of the standard deviation of one; 23,000 documents take about 5 s."""
_STATES = {"dcg": "PLAIN", "ap": "HITS", "rr": "FIRST", "err": "READING"}
"""State of the documents above a pair that a metric needs, as the kernels' `RankState` names it."""


@dataclass(frozen=True)
class YetiRank(Loss):
    """YetiRank: 1/P Σ over neighbors in P noisy orders of c·|G_i − G_j|·log(1 + e^{−(s_better − s_worse)}).

    Each order sorts s + log(u/(1 − u)) with uniform u: a document precedes another of the same query with probability
    1/(1 + e^{−(s_i − s_j)}). Neighbors at the ranks k and k + 1 (from 0) with different gains form a pair, with c =
    decay^k. With `metric` (YetiLoss) the weight of the pair is the change of the metric if the two exchange ranks. The
    gradient holds the weights constant, as in LambdaRank; the curvature is the Laplacian of the pairs.

    `bound.at(scores, draw=7)` uses the orders of that draw.

    Args:
        permutations: number P of orders, 1 to 10,000; time is proportional to it, and the noise to 1/√P.
        decay: ratio of the weights of neighboring ranks, in (0, 1].
        gain: gain of the labels (a name, a table or a callable), also for NDCG and DCG unless the metric names its own.
        metric: NDCG, DCG, AP (``map``), ERR or RR (``mrr``), as `toprank.metrics.parse` reads them. Default: weights by
            `decay`.
        seed: seed of the orders; rankers add the index of the round, batch or iteration.

    Ties: documents of equal scores precede each other with equal probability. The order of the rows affects a single
    draw but not the distribution.
    Weights: a pair's term is multiplied by w_i·w_j.
    Cost: O(P·m log m), memory O(m).
    Consistency: none known.
    Source: Gulin, Kuralenok & Pavlov 2011, "Winning the transfer learning track of Yahoo!'s learning to rank challenge
    with YetiRank"; with `metric` Lyzhin, Ustimenko, Gulin & Prokhorenkova 2023, "Which tricks are important for
    learning to rank?".

    >>> from toprank import Queries
    >>> bound = YetiRank().on([1, 0], Queries([0, 2]))   # one pair, neighbors in every order
    >>> bool(np.isclose(bound.at([0.0, 0.0]).value, np.log(2)))
    True
    """

    traits: ClassVar[Traits] = Traits(
        convex=False, smooth=False, exact_gradient=False, curvature="gauss-newton", cost="O(P·m log m)", random=True
    )

    permutations: int = 10
    decay: float = 0.85
    gain: Gain | str | tuple[float, ...] | Callable[[Any], Any] = "linear"
    metric: str | Measure | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_whole("YetiRank's permutations", self.permutations, 1, _MAX_PERMUTATIONS + 1)
        check_number("YetiRank's decay", self.decay, above=0, most=1)
        check_whole("YetiRank's seed", self.seed, 0)
        Gain.from_spec(self.gain)
        if self.metric is not None:
            readable(self.metric, self, "needs the change of a metric when neighbors exchange ranks")

    @override
    def bind(self, judgments: Judgments) -> BoundLoss:
        return _BoundYetiRank(self, judgments)


class _BoundYetiRank(BoundLoss):
    """YetiRank on data at one draw; `base` are the scores that determine the orders, by default the evaluated
    scores.
    """

    def __init__(self, loss: YetiRank, judgments: Judgments) -> None:
        super().__init__(judgments)
        self.permutations, self.seed = loss.permutations, loss.seed
        self.base: FloatArray | None = None
        self.document_weights = np.zeros(0) if judgments.document_weights is None else judgments.document_weights
        longest = int(self.queries.sizes.max())
        if loss.metric is None:
            self.kind = kernels.RankState.PLAIN
            self.gains = self.reads = judgments.gains(loss.gain)
            self.drops = float(loss.decay) ** np.arange(longest)  # float also for a decay of 1
        else:
            terms = metric_terms(parse(loss.metric), judgments, loss.gain)
            self.kind = vars(kernels.RankState)[_STATES[terms.kind]]
            self.reads = terms.reads
            self.gains = terms.reads * self.queries.broadcast(terms.inverse)
            self.drops = -np.diff(terms.rank_weights, append=0.0)  # the last rank begins no pair
        self.chance = RandomStream.from_judgments(judgments, self.seed)

    @override
    def resampled(self, draw: int, scores: FloatArray | None = None) -> BoundLoss:
        other = copy(self)
        other.chance = self.chance.resampled(draw)
        other.base = None if scores is None else self._checked(scores)
        return other

    @override
    def evaluate_block(self, block: Block, scores: FloatArray, grad: FloatArray, requested: Requested) -> BlockResult:
        losses, diagonal = np.empty(block.n_queries), np.empty_like(scores)
        base = scores if self.base is None else self.base[block.rows]
        kernels.yeti_sums(scores, base, *self.of(block), requested.value, block.scale, grad, diagonal, losses)
        if not requested.curvature:
            return losses, None
        return losses, _NeighborCurvature(self, block, scores.copy(), base.copy(), diagonal)

    def of(self, block: Block) -> tuple[Any, ...]:
        """Return further arguments of the kernels."""
        rows = block.rows
        of_labels = self.gains[rows], self.reads[rows], self.document_weights[rows], self.drops
        return block.offsets, self.chance.keys[block.queries], *of_labels, self.kind, self.permutations


@dataclass(frozen=True)
class _NeighborCurvature(Curvature):
    """A Laplacian over the pairs of a block, which each product samples again instead of storing them."""

    bound: _BoundYetiRank
    block: Block
    scores: FloatArray
    base: FloatArray
    values: FloatArray

    def __matmul__(self, V: FloatArray) -> FloatArray:
        of_block = self.bound.of(self.block)
        return by_columns(V, kernels.yeti_product, self.scores, self.base, *of_block, self.block.scale)

    @override
    def diagonal(self) -> FloatArray:
        return self.values
