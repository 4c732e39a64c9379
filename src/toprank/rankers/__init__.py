"""Rankers: estimators that join a scorer, a loss and a solver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toprank.importing import first_use

KINDS = {
    "LinearRanker": "linear.ranker",
    "ExpectedGainRanker": "linear.expected_gain",
    "TreeRanker": "trees.ranker",
    "NeuralRanker": "neural.ranker",
    "AdaRank": "linear.single_feature",
    "RankBoost": "linear.single_feature",
    "CoordinateAscent": "linear.single_feature",
    "BlendRanker": "blend",
    "ForestRanker": "foreign.ranker",
    "WeightsRanker": "foreign.ranker",
    "OnnxRanker": "foreign.onnx_model",
}
"""Every ranker that a model file may hold, and its home."""

__all__ = [
    "KINDS", "AdaRank", "BlendRanker", "CoordinateAscent", "ExpectedGainRanker", "ForestRanker", "LinearRanker",
    "NeuralRanker", "OnnxRanker", "RankBoost", "TreeRanker", "WeightsRanker",
]  # fmt: skip

if TYPE_CHECKING:
    from toprank.rankers.blend import BlendRanker
    from toprank.rankers.foreign.onnx_model import OnnxRanker
    from toprank.rankers.foreign.ranker import ForestRanker, WeightsRanker
    from toprank.rankers.linear.expected_gain import ExpectedGainRanker
    from toprank.rankers.linear.ranker import LinearRanker
    from toprank.rankers.linear.single_feature import AdaRank, CoordinateAscent, RankBoost
    from toprank.rankers.neural.ranker import NeuralRanker
    from toprank.rankers.trees.ranker import TreeRanker


def __getattr__(name: str) -> Any:
    if name not in KINDS:
        raise AttributeError(f"module 'toprank.rankers' has no attribute '{name}'")
    found = globals()[name] = getattr(first_use(f"toprank.rankers.{KINDS[name]}"), name)
    return found
