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
    "PoolFeatures": "toprank.rankers.pool",
    "check": "toprank.doctor",
    "evaluate": "toprank.metrics.evaluation",
    "evaluate_run": "toprank.metrics.runs",
    "compare": "toprank.comparison",
    "importance": "toprank.explaining",
    "ToprankError": "toprank.errors",
    "LinearRanker": "toprank.rankers.linear",
    "ExpectedGainRanker": "toprank.rankers.expected_gain",
    "TreeRanker": "toprank.rankers.trees",
    "NeuralRanker": "toprank.rankers.neural",
    "BlendRanker": "toprank.rankers.blend",
    "AdaRank": "toprank.rankers.one_by_one",
    "RankBoost": "toprank.rankers.one_by_one",
    "CoordinateAscent": "toprank.rankers.one_by_one",
    "load": "toprank.rankers.files",
    "scorer": "toprank.rankers.scoring",
    "wrap": "toprank.rankers.wrapping",
    "export": "toprank.exporting",
    "select": "toprank.selection",
    "auto": "toprank.portfolio",
    "tune": "toprank.tuning",
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
    from toprank.comparison import compare
    from toprank.data.converting import convert
    from toprank.data.dataset import RankingData, concatenate
    from toprank.data.files import read, read_scores, write, write_scores
    from toprank.data.folds import folds, split
    from toprank.data.queries import Queries
    from toprank.data.synthetic import synthetic
    from toprank.data.trec import read_qrels, read_run, write_run
    from toprank.doctor import check
    from toprank.errors import ToprankError
    from toprank.experiment import Experiment
    from toprank.explaining.importance import importance
    from toprank.exporting.export import export
    from toprank.metrics.evaluation import evaluate
    from toprank.metrics.runs import evaluate_run
    from toprank.monitoring import monitor
    from toprank.portfolio import auto
    from toprank.rankers.blend import BlendRanker
    from toprank.rankers.expected_gain import ExpectedGainRanker
    from toprank.rankers.files import load
    from toprank.rankers.linear import LinearRanker
    from toprank.rankers.neural import NeuralRanker
    from toprank.rankers.one_by_one import AdaRank, CoordinateAscent, RankBoost
    from toprank.rankers.pool import PoolFeatures
    from toprank.rankers.scoring import scorer
    from toprank.rankers.trees import TreeRanker
    from toprank.rankers.wrapping import wrap
    from toprank.selection import select
    from toprank.tuning import tune


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
