"""Training, evaluation and prediction on a Dask cluster, with the same results as on one machine.

Connect to a cluster with `connect`, describe partitioned data with `read`, and fit a ranker:

    with toprank.cluster.connect("tcp://10.0.0.1:8786") as cluster:
        train = toprank.cluster.read("logs/train")          # a folder of Parquet files
        ranker = cluster.fit(toprank.LinearRanker("ListNet"), train)
        print(cluster.evaluate(ranker, toprank.cluster.read("logs/test"), ["ndcg@10"]))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toprank.cluster.cluster import Cluster, Partitions, connect, read
from toprank.cluster.dataset import DistributedData, QueriesMovedWarning
from toprank.errors import ClusterError, require_extra

if TYPE_CHECKING:
    from toprank.rankers.neural.ranker import NeuralRanker

__all__ = [
    "Cluster",
    "ClusterError",
    "Partitions",
    "DistributedData",
    "QueriesMovedWarning",
    "connect",
    "fit_distributed",
    "read",
]


def fit_distributed(ranker: NeuralRanker, data: Any, **options: Any) -> NeuralRanker:
    """Train a `NeuralRanker` under ``torchrun``; see `toprank.cluster.neural_group.fit_distributed`."""
    require_extra("torch", "neural", "fit_distributed")
    from toprank.cluster.neural_group import fit_distributed as fit

    return fit(ranker, data, **options)
