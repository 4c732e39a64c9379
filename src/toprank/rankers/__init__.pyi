"""Every ranker that a model file may contain and its module, for type checkers and the lazy imports of `__init__`."""

# isort: off
from toprank.rankers.linear.ranker import LinearRanker as LinearRanker
from toprank.rankers.linear.expected_gain import ExpectedGainRanker as ExpectedGainRanker
from toprank.rankers.trees.ranker import TreeRanker as TreeRanker
from toprank.rankers.neural.ranker import NeuralRanker as NeuralRanker
from toprank.rankers.linear.single_feature import AdaRank as AdaRank
from toprank.rankers.linear.single_feature import RankBoost as RankBoost
from toprank.rankers.linear.single_feature import CoordinateAscent as CoordinateAscent
from toprank.rankers.blend import BlendRanker as BlendRanker
from toprank.rankers.foreign.ranker import ForestRanker as ForestRanker
from toprank.rankers.foreign.ranker import ImportedLinearRanker as ImportedLinearRanker
from toprank.rankers.foreign.onnx_model import OnnxRanker as OnnxRanker

KINDS: dict[str, str]
