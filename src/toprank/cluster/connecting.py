"""`connect`: a Dask cluster, and what can be done on it."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any, Self, TypeVar

import numpy as np

from toprank.cluster.dataset import Placed, placed
from toprank.cluster.running import Runner
from toprank.cluster.scoring import part_values, predicted, settled_top, write_predicted
from toprank.cluster.sources import Repair, parts_of
from toprank.compute import FloatArray
from toprank.data.checks import check_number, check_whole
from toprank.errors import ClusterError, DataError, needs
from toprank.metrics.conventions import Convention
from toprank.metrics.evaluation import Metrics, Unjudged
from toprank.metrics.parsing import parse_all
from toprank.metrics.result import Evaluation
from toprank.rankers.base import Ranker

__all__ = ["Cluster", "connect"]

R = TypeVar("R", bound=Ranker)
_PATIENCE = 60.0
_CHECKPOINT = 20


def connect(
    address: str | None = None,
    *,
    workers: int | None = None,
    patience: float = _PATIENCE,
    checkpoint: int = _CHECKPOINT,
    **options: Any,
) -> Cluster:
    """A Dask cluster to train, evaluate and predict on.

    Args:
        address: the scheduler's, such as ``"tcp://10.0.0.1:8786"``. None: the Dask client that this process already
            has; or, with `workers`, processes on this machine.
        workers: start so many worker processes here, with one thread each; for trying things out.
        patience: seconds without any worker, or without an answer from the scheduler, after which a call fails.
        checkpoint: rounds of boosting between two checkpoints, from which trees go on where a worker is lost.
        **options: for Dask's `Client`, or with `workers` for its `LocalCluster`.

    Use it in a ``with`` statement, or `close` it.
    """
    distributed = needs("distributed", "cluster", "tr.cluster")
    _check_settings(patience, checkpoint)
    kept: dict[str, Any] = {"patience": patience, "checkpoint": checkpoint}
    if workers is not None:
        if address is not None:
            raise DataError("Give an address to connect to, or workers to start here, not both.")
        check_whole("workers", workers, 1)
        usual = {"threads_per_worker": 1, "dashboard_address": ":0", "processes": True}
        local = distributed.LocalCluster(n_workers=workers, **(usual | options))
        return Cluster(distributed.Client(local), owned=[local], **kept)
    if address is None:
        if options:
            raise DataError("Options are for a connection that is made here; give address= or workers= with them.")
        client = _current(distributed)
        if client is None:
            raise ClusterError(
                "This process has no Dask client. Give the scheduler's address, or workers=2 for two processes here."
            )
        return Cluster(client, **kept)
    if not isinstance(address, str):
        raise DataError(
            f"address must be a text such as 'tcp://10.0.0.1:8786', not {address!r}. (A Dask client is taken by "
            "toprank.cluster.Cluster(client).)"
        )
    return Cluster(_client_at(distributed, address, {"timeout": min(patience, 10.0)} | options), owned=[], **kept)


def _client_at(distributed: Any, address: str, options: dict[str, Any]) -> Any:
    before = _current(distributed)
    try:
        return distributed.Client(address, **options)
    except (OSError, TimeoutError, ValueError) as problem:
        half_made = _current(distributed)
        if half_made is not None and half_made is not before:  # or Dask would take it for this process's client
            with suppress(Exception):
                half_made.close(timeout=1)
        raise ClusterError(
            f"No Dask scheduler answers at {address} ({_first_line(problem)}). Is it running (dask scheduler), and can "
            "it be reached from here?"
        ) from None


def _current(distributed: Any) -> Any:
    """The Dask client that this process has, or None."""
    try:
        return distributed.default_client()
    except ValueError:
        return None


def _check_settings(patience: Any, checkpoint: Any) -> None:
    check_number("patience", patience, above=0)
    check_whole("checkpoint", checkpoint, 1)


class Cluster:
    """A connection to a Dask cluster.

    Args:
        client: Dask's, synchronous.
        patience: see `connect`.
        checkpoint: see `connect`.
        owned: what else to close with it; None: close nothing, not even the client.
    """

    def __init__(
        self,
        client: Any,
        *,
        patience: float = _PATIENCE,
        checkpoint: int = _CHECKPOINT,
        owned: list[Any] | None = None,
    ) -> None:
        _check_settings(patience, checkpoint)
        if not _is_client(client):
            raise DataError(f"A Cluster is made of a Dask client, not of a {type(client).__name__}.")
        if client.asynchronous:
            raise DataError("toprank waits for its results; give a Dask client made with asynchronous=False.")
        if client.status != "running":
            raise ClusterError(f"The Dask client is not connected ({client.status}); make another one.")
        self.client, self._owned = client, owned
        self._runner = Runner(client, patience, checkpoint)

    def place(self, data: Any, *, repair: Repair | None = None, **roles: Any) -> Placed:
        """Place data on the workers, to be used several times.

        Args:
            data: what `toprank.cluster.read` gives, a Dask DataFrame, or a `RankingData` (cut into two partitions for
                each worker, and sent there).
            repair: what to do about queries in several partitions; see `toprank.cluster.Parts`. Default: what was said
                to `read`, else ``neighbours``.
            **roles: for a frame, the columns: ``label="rel", qid="query"`` …, as in `RankingData.from_frame`.
        """
        if not isinstance(data, Placed):
            partitions = 2 * len(self._runner.workers())
            return placed(self._runner, parts_of(data, partitions=partitions, repair=repair, **roles))
        if repair is not None or roles:
            raise DataError("These data are placed already; say repair= and the columns when they are placed.")
        if not self._runner.is_of_same_cluster(data.runner):
            raise DataError("These data are placed on another cluster; use that one, or place them on this one too.")
        return data

    def fit(self, ranker: R, train: Any, valid: Any = None) -> R:
        """Train a ranker on data that lie in partitions on the workers, with the same answer as on one machine.

        Args:
            ranker: a `LinearRanker`, `ExpectedGainRanker` or `TreeRanker`; it is fitted in place and returned.
            train: what `place` takes or gives, with labels.
            valid: likewise, to choose on (a penalty along its path, a number of rounds); never trained on.
        """
        if not getattr(ranker, "learns_from_parts", False):
            raise DataError(
                f"{type(ranker).__name__} cannot be trained on a cluster; LinearRanker, ExpectedGainRanker and "
                "TreeRanker can. (A NeuralRanker can be trained by several processes: toprank.cluster.fit_distributed.)"
            )
        there: list[Placed | None] = []
        try:
            for data in (train, valid):
                there.append(None if data is None else self.place(data))
            ranker.fit_source(there[0], valid=there[1])
        finally:
            for data, one in zip((train, valid), there, strict=False):
                if one is not None and one is not data:  # what the caller placed stays
                    one.release()
        return ranker

    def predict(self, ranker: Ranker, data: Any) -> FloatArray:
        """Scores of all documents: partition after partition, in the order of their rows as they were given."""
        return predicted(self.place(data), ranker)

    def write_predictions(self, ranker: Ranker, data: Any, folder: str | os.PathLike[str]) -> list[str]:
        """The scores of each partition in a file of its own, written by the workers; the paths, in order.

        For more scores than fit into this process. File ``part-00003.scores`` has a line for each row of partition 3
        (from 0) as it was given, in its order; a partition without rows gives an empty file. All files appear when the
        last one is written, in place of the ``part-*.scores`` of an earlier call, or none does. Workers must see the
        folder, which must be there.
        """
        return write_predicted(self.place(data), ranker, folder)

    def evaluate(
        self,
        ranker: Ranker,
        data: Any,
        metrics: Metrics = "ndcg@10",
        *,
        convention: Convention | str = "standard",
        max_grade: float | None = None,
        relevant_from: float = 1.0,
        unjudged: Unjudged | None = None,
        weighted: bool = False,
    ) -> Evaluation:
        """What `toprank.evaluate` gives for the ranker's scores of all the data; workers score and judge their own."""
        rules, measures = Convention.of(convention), parse_all(metrics)
        rows = self.place(data).rows
        top = max_grade
        if top is None:
            top = max(rows.each(settled_top, unjudged or rules.unjudged))
        options = {"max_grade": top if top > 0 else None, "relevant_from": relevant_from}
        options |= {"unjudged": unjudged, "weighted": weighted}
        parts = rows.each(part_values, ranker, list(measures.values()), rules, options)
        columns = zip(*(part.by_metric for part in parts), strict=True)
        per_query = {name: np.concatenate(column) for name, column in zip(measures, columns, strict=True)}
        weights = np.concatenate([part.query_weights for part in parts if part.n_documents]) if weighted else None
        qids = np.concatenate([part.qids for part in parts])
        n_documents = sum(part.n_documents for part in parts)
        if not len(qids):
            raise DataError("Nothing is left to evaluate: every query has unjudged documents. Use unjudged='condense'.")
        return Evaluation(measures, per_query, rules, float(top), qids, n_documents, weights)

    def close(self) -> None:
        """End the connection, and the workers where `connect` started them."""
        if self._owned is None:
            return
        self.client.close()
        for one in self._owned:
            one.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Cluster({self.client!r})"


def _is_client(given: Any) -> bool:
    return hasattr(given, "submit") and hasattr(given, "scheduler") and hasattr(given, "asynchronous")


def _first_line(problem: Exception) -> str:
    return (str(problem).strip() or type(problem).__name__).splitlines()[0][:200].rstrip(".")
