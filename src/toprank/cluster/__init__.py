"""Training, evaluation and prediction on a Dask cluster, with the same answer as on one machine.

`connect` to a cluster, `read` data in partitions, and hand both to `fit`:

    with toprank.cluster.connect("tcp://10.0.0.1:8786") as cluster:
        train = toprank.cluster.read("logs/train")          # a folder of Parquet files
        ranker = toprank.LinearRanker("ListNet").fit(train, cluster=cluster)
        print(cluster.evaluate(ranker, toprank.cluster.read("logs/test"), ["ndcg@10"]))
"""

from __future__ import annotations

from typing import Any

from toprank.cluster.connecting import Cluster, connect, place_on, runner_of
from toprank.cluster.faults import ClusterError, QueriesMovedWarning
from toprank.cluster.placed import Placed
from toprank.cluster.sources import Parts, read
from toprank.errors import DataError

__all__ = [
    "Cluster",
    "ClusterError",
    "Parts",
    "Placed",
    "QueriesMovedWarning",
    "connect",
    "fit_distributed",
    "read",
]


def place_for(ranker: Any, cluster: Any, X: Any, y: Any, qid: Any, valid: Any) -> tuple[Any, Any, list[Placed]]:
    """What `Ranker.fit` asks for: its data on the cluster, its validation data, and what of both to release after."""
    name = type(ranker).__name__
    if not ranker.learns_from_parts:
        raise DataError(
            f"{name} cannot be trained on a cluster; LinearRanker, ExpectedGainRanker and TreeRanker can. (A "
            "NeuralRanker can be trained by several processes: toprank.cluster.fit_distributed.)"
        )
    if y is not None or qid is not None:
        raise DataError("With a cluster, give data that know their labels and queries: tr.RankingData(X, y, qid=qid).")
    if cluster is None and not isinstance(X, Placed):
        raise DataError(
            "These data are in parts, for a cluster: fit(parts, cluster=toprank.cluster.connect(address)). Data that "
            "fit into memory are read by toprank.read, and a frame by tr.RankingData.from_frame."
        )
    runner = X.runner if cluster is None else runner_of(cluster)
    placed = [None if data is None else place_on(runner, data) for data in (X, valid)]
    fresh = [there for data, there in zip((X, valid), placed, strict=True) if there is not None and there is not data]
    return placed[0], placed[1], fresh


def fit_distributed(ranker: Any, data: Any, **options: Any) -> Any:
    """Train a `NeuralRanker` by several processes; see `toprank.cluster.neural.fit_distributed`."""
    from toprank.cluster.neural import fit_distributed as fit

    return fit(ranker, data, **options)
