"""YetiRank: logistic pairs of neighbors, in orders drawn by noisy scores; `native/yetirank.c` has the loops.

The pairs are drawn anew for each `draw`: trees count their rounds, networks their batches, linear rankers their outer
iterations. They depend only on the seed, the draw, the query's id and the document's place in its query: the same bits
on any number of threads, and whatever other queries there are.
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
"""The mean of so many orders varies by a hundredth of what one order does, and 23,000 documents take about 5 s."""
_STATES = {"dcg": "PLAIN", "ap": "HITS", "rr": "FIRST", "err": "READING"}
"""What a metric has to know of the documents above a pair, as the kernels' `RankState` names it."""


@dataclass(frozen=True)
class YetiRank(Loss):
    """YetiRank: 1/P Σ over neighbors in P noisy orders of c·|G_i − G_j|·log(1 + e^{−(s_better − s_worse)}).

    Each order sorts s + log(u/(1 − u)), u uniform: a document stands above another of the same query with the chance
    1/(1 + e^{−(s_i − s_j)}). Neighbors at the ranks k and k + 1 (from 0) whose gains differ are a pair, and
    c = decay^k. With `metric` (YetiLoss) the pair weighs what the metric would change if the two changed places. The
    weights are held constant by the gradient, as in LambdaRank; the curvature is the Laplacian of the pairs.

    `bound.at(scores, draw=7)` judges by the orders of that draw.

    Args:
        permutations: the number P of orders, 1 to 10,000: time grows with it, the noise falls with its root.
        decay: weight of a rank as a part of that of the rank above it, in (0, 1].
        gain: gain of the labels (a name, a table or a callable); of NDCG and DCG too, unless the metric names its own.
        metric: NDCG, DCG, AP (``map``), ERR or RR (``mrr``), as `toprank.metrics.parse` reads them; None: `decay`.
        seed: seed of the orders; rankers add the number of the round, batch or iteration.

    Ties: documents of equal scores are as likely above each other as below. In one draw the order of the rows does
    matter; in distribution it does not.
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
            readable(self.metric, self, "needs to know what a metric gains when neighbors change places")

    @override
    def bind(self, judgments: Judgments) -> BoundLoss:
        return _BoundYetiRank(self, judgments)


class _BoundYetiRank(BoundLoss):
    """YetiRank on data, at one draw; `base` are the scores that orders are drawn by, None: those that are judged."""

    def __init__(self, loss: YetiRank, judgments: Judgments) -> None:
        super().__init__(judgments)
        self.permutations, self.seed = loss.permutations, loss.seed
        self.base: FloatArray | None = None
        self.document_weights = np.zeros(0) if judgments.document_weights is None else judgments.document_weights
        longest = int(self.queries.sizes.max())
        if loss.metric is None:
            self.kind = kernels.RankState.PLAIN
            self.gains = self.reads = judgments.gains(loss.gain)
            self.drops = float(loss.decay) ** np.arange(longest)  # 1 would give whole numbers
        else:
            terms = metric_terms(parse(loss.metric), judgments, loss.gain)
            self.kind = vars(kernels.RankState)[_STATES[terms.kind]]
            self.reads = terms.reads
            self.gains = terms.reads * self.queries.broadcast(terms.inverse)
            self.drops = -np.diff(terms.rank_weights, append=0.0)  # no pair begins at the last rank of the longest
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
        """What the kernels take beside the scores."""
        rows = block.rows
        of_labels = self.gains[rows], self.reads[rows], self.document_weights[rows], self.drops
        return block.offsets, self.chance.keys[block.queries], *of_labels, self.kind, self.permutations


@dataclass(frozen=True)
class _NeighborCurvature(Curvature):
    """A Laplacian over the pairs of a block, which are drawn again for each product instead of being kept."""

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
