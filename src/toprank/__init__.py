"""Learning to rank, focused on the top of the list.

Names are imported when they are first used, so that `import toprank` costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toprank.importing import first_use

__version__ = "0.1.0"

_HOMES = {
    "RankingData": "toprank.data.dataset",
    "Queries": "toprank.data.queries",
    "concatenate": "toprank.data.dataset",
    "read": "toprank.data.files",
    "write": "toprank.data.files",
    "convert": "toprank.data.converting",
    "read_scores": "toprank.data.files",
    "write_scores": "toprank.data.files",
    "read_qrels": "toprank.data.trec",
    "read_run": "toprank.data.trec",
    "write_run": "toprank.data.trec",
    "folds": "toprank.data.folds",
    "split": "toprank.data.folds",
    "synthetic": "toprank.data.synthetic",
    "PoolFeatures": "toprank.data.pool",
    "check": "toprank.doctor",
    "evaluate": "toprank.metrics.evaluation",
    "evaluate_run": "toprank.metrics.runs",
    "compare": "toprank.comparison",
    "importance": "toprank.explaining",
    "ToprankError": "toprank.errors",
    "LinearRanker": "toprank.rankers.linear.ranker",
    "ExpectedGainRanker": "toprank.rankers.linear.expected_gain",
    "TreeRanker": "toprank.rankers.trees.ranker",
    "NeuralRanker": "toprank.rankers.neural.ranker",
    "BlendRanker": "toprank.rankers.blend",
    "AdaRank": "toprank.rankers.linear.single_feature",
    "RankBoost": "toprank.rankers.linear.single_feature",
    "CoordinateAscent": "toprank.rankers.linear.single_feature",
    "load": "toprank.rankers.model_files",
    "scorer": "toprank.choosing.scoring",
    "wrap": "toprank.rankers.wrapping",
    "export": "toprank.exporting",
    "select": "toprank.choosing.grid",
    "auto": "toprank.choosing.automatic",
    "tune": "toprank.choosing.tuning",
    "Experiment": "toprank.experiment",
    "monitor": "toprank.monitoring",
}
_ROOMS = (
    "data",
    "metrics",
    "significance",
    "errors",
    "losses",
    "solvers",
    "systems",
    "theory",
    "report",
    "cluster",
    "explaining",
    "serving",
    "clicks",
)

__all__ = [
    "RankingData",
    "Queries",
    "concatenate",
    "read",
    "write",
    "convert",
    "read_scores",
    "write_scores",
    "read_qrels",
    "read_run",
    "write_run",
    "folds",
    "split",
    "synthetic",
    "PoolFeatures",
    "check",
    "evaluate",
    "evaluate_run",
    "compare",
    "importance",
    "ToprankError",
    "LinearRanker",
    "ExpectedGainRanker",
    "TreeRanker",
    "NeuralRanker",
    "BlendRanker",
    "AdaRank",
    "RankBoost",
    "CoordinateAscent",
    "load",
    "wrap",
    "scorer",
    "export",
    "select",
    "auto",
    "tune",
    "Experiment",
    "monitor",
    "data",
    "metrics",
    "significance",
    "errors",
    "losses",
    "solvers",
    "systems",
    "theory",
    "report",
    "cluster",
    "explaining",
    "serving",
    "clicks",
    "__version__",
]

if TYPE_CHECKING:
    from toprank import (
        clicks,
        cluster,
        data,
        errors,
        explaining,
        losses,
        metrics,
        report,
        serving,
        significance,
        solvers,
        systems,
        theory,
    )
    from toprank.choosing.automatic import auto
    from toprank.choosing.grid import select
    from toprank.choosing.scoring import scorer
    from toprank.choosing.tuning import tune
    from toprank.comparison import compare
    from toprank.data.converting import convert
    from toprank.data.dataset import RankingData, concatenate
    from toprank.data.files import read, read_scores, write, write_scores
    from toprank.data.folds import folds, split
    from toprank.data.pool import PoolFeatures
    from toprank.data.queries import Queries
    from toprank.data.synthetic import synthetic
    from toprank.data.trec import read_qrels, read_run, write_run
    from toprank.doctor import check
    from toprank.errors import ToprankError
    from toprank.experiment import Experiment
    from toprank.explaining.permutations import importance
    from toprank.exporting.export import export
    from toprank.metrics.evaluation import evaluate
    from toprank.metrics.runs import evaluate_run
    from toprank.monitoring import monitor
    from toprank.rankers.blend import BlendRanker
    from toprank.rankers.linear.expected_gain import ExpectedGainRanker
    from toprank.rankers.linear.ranker import LinearRanker
    from toprank.rankers.linear.single_feature import AdaRank, CoordinateAscent, RankBoost
    from toprank.rankers.model_files import load
    from toprank.rankers.neural.ranker import NeuralRanker
    from toprank.rankers.trees.ranker import TreeRanker
    from toprank.rankers.wrapping import wrap


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(first_use(_HOMES[name]), name)
    elif name in _ROOMS:
        value = first_use(f"toprank.{name}")
    else:
        raise AttributeError(f"module 'toprank' has no attribute '{name}'")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
