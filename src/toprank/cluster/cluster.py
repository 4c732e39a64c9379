"""Entry points: `connect` to a cluster, `read` partitioned data, and train, predict and evaluate there."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

import numpy as np

import toprank.cluster.trees  # noqa: F401 - registers how trees are trained on `DistributedData` data
from toprank.cluster.dataset import DistributedData
from toprank.cluster.runner import Runner, retry_lost
from toprank.cluster.scoring import max_label, part_values, predicted, write_partition_scores
from toprank.cluster.sources import DataPart, FilePart, FramePart, StorePart, agreed
from toprank.compute import FloatArray, IntArray
from toprank.data.arguments import check_number, check_whole
from toprank.data.bytesource import listed_paths
from toprank.data.dataset import RankingData
from toprank.data.frames.arrow import words_of
from toprank.data.frames.categories import ColumnsLeftOutWarning
from toprank.data.frames.layout import known_columns, layout_of
from toprank.data.frames.options import TableOptions
from toprank.data.roles import ROLES
from toprank.data.store import is_store, open_store
from toprank.data.tables.sources import files_in
from toprank.data.unjudged import Unjudged
from toprank.errors import ClusterError, DataError, UnknownNameError, require_extra, warn_user
from toprank.evaluation.result import Evaluation
from toprank.evaluation.scores import Metrics
from toprank.metrics.conventions import Convention
from toprank.metrics.parsing import parse_all
from toprank.rankers.base import Ranker, by_row

R = TypeVar("R", bound=Ranker)
_TIMEOUT_SECONDS = 60.0
_CHECKPOINT_ROUNDS = 20


def connect(
    address: str | None = None,
    *,
    workers: int | None = None,
    timeout: float = _TIMEOUT_SECONDS,
    checkpoint_every: int = _CHECKPOINT_ROUNDS,
    **options: Any,
) -> Cluster:
    """Connect to a Dask cluster to train, evaluate and predict on.

    Args:
        address: the address of the scheduler, such as ``"tcp://10.0.0.1:8786"``. Default: the Dask client of this
            process, or with `workers`, processes on this machine.
        workers: number of worker processes to start on this machine, with one thread each; useful for testing.
        timeout: seconds without a worker, or without a reply of the scheduler, after which a call fails. Default 60.
        checkpoint_every: number of boosting rounds between two checkpoints. Default 20. After the loss of a worker,
            training resumes from the last checkpoint.
        **options: options of Dask's `Client`, or with `workers` of its `LocalCluster`.

    Use it in a ``with`` statement, or `close` it.
    """
    distributed = require_extra("distributed", "cluster", "tr.cluster")
    _check_settings(timeout, checkpoint_every)
    settings: dict[str, Any] = {"timeout": timeout, "checkpoint_every": checkpoint_every}
    if workers is not None:
        if address is not None:
            raise DataError("Pass either address=, to connect, or workers=, to start workers here, but not both.")
        check_whole("workers", workers, 1)
        # An error on a worker is raised here; its log would only repeat it.
        usual = {
            "threads_per_worker": 1,
            "dashboard_address": ":0",
            "processes": True,
            "silence_logs": logging.CRITICAL,
        }
        paths = _ImportPath()
        local = distributed.LocalCluster(n_workers=workers, **(usual | options))
        return Cluster(distributed.Client(local), owned=[local, paths.changed()], **settings)
    if address is None:
        if options:
            raise DataError("Options need a new connection; pass address= or workers= with them.")
        client = _current(distributed)
        if client is None:
            raise ClusterError(
                "This process has no Dask client. Pass the scheduler's address, or workers=2 to start two processes "
                "here."
            )
        return Cluster(client, **settings)
    if not isinstance(address, str):
        raise DataError(
            f"address must be a string such as 'tcp://10.0.0.1:8786', not {address!r}. (To use a Dask client, call "
            "toprank.cluster.Cluster(client).)"
        )
    return Cluster(_client_at(distributed, address, {"timeout": min(timeout, 10.0)} | options), owned=[], **settings)


class _ImportPath:
    """The folders that workers in this process add to `sys.path`; closing removes them."""

    def __init__(self) -> None:
        self.before, self.added = list(sys.path), set[str]()

    def changed(self) -> Self:
        """Record the folders added since this object was created."""
        self.added = set(sys.path) - set(self.before)
        return self

    def close(self) -> None:
        """Remove the folders."""
        sys.path[:] = [folder for folder in sys.path if folder not in self.added]


def _client_at(distributed: Any, address: str, options: dict[str, Any]) -> Any:
    before = _current(distributed)
    try:
        return distributed.Client(address, **options)
    except (OSError, TimeoutError, ValueError) as problem:
        half_made = _current(distributed)
        # Otherwise Dask would use it as the client of this process.
        if half_made is not None and half_made is not before:
            with suppress(Exception):
                half_made.close(timeout=1)
        reason = (str(problem).strip() or type(problem).__name__).splitlines()[0][:200].rstrip(".")
        raise ClusterError(
            f"No Dask scheduler replies at {address} ({reason}). Check that it is running (dask scheduler) and can be "
            "reached from here."
        ) from None


def _current(distributed: Any) -> Any:
    """Return the Dask client of this process, or None."""
    try:
        return distributed.default_client()
    except ValueError:
        return None


def _check_settings(timeout: Any, checkpoint_every: Any) -> None:
    check_number("timeout", timeout, above=0)
    check_whole("checkpoint_every", checkpoint_every, 1)


PathLike = str | os.PathLike[str]
SplitQueries = Literal["neighbors", "all", "none"]
SPLIT_QUERIES = ("neighbors", "all", "none")


class Partitions:
    """Partitioned data, described but not yet read; pass it to `Cluster.fit`.

    Args:
        sources: a source for each partition, in order.
        on_split_queries: what to do about a query with rows in several partitions. ``neighbors`` (default): merge its
            rows if the border between two neighboring partitions cuts it, as when a table is cut by rows; otherwise
            raise an error, since the id more likely names two queries. ``all``: merge the rows wherever they are.
            ``none``: raise an error in both cases.
        whole: the complete data, split in this order, if they are in memory.
    """

    for_a_cluster = True

    def __init__(
        self, sources: Sequence[Any], on_split_queries: SplitQueries = "neighbors", *, whole: RankingData | None = None
    ) -> None:
        if on_split_queries not in SPLIT_QUERIES:
            raise UnknownNameError("rule for split queries", str(on_split_queries), SPLIT_QUERIES)
        if not sources:
            raise DataError("There is nothing to distribute: no partition was given.")
        self.sources, self.on_split_queries, self.whole = tuple(sources), on_split_queries, whole

    @property
    def fingerprint(self) -> str | None:
        """The fingerprint of the whole data if known without reading the rows, else None."""
        if self.whole is not None:
            return self.whole.fingerprint
        stores = [source for source in self.sources if isinstance(source, StorePart)]
        ends = [0, *(source.last for source in stores)]
        if (
            len(stores) < len(self)
            or len({store.path for store in stores}) > 1
            or [store.first for store in stores] != ends[:-1]
        ):
            return None
        data = open_store(stores[0].path)
        return data.fingerprint if data.n_queries == ends[-1] else None

    def __len__(self) -> int:
        return len(self.sources)

    def __repr__(self) -> str:
        return f"Partitions({len(self)} partitions, on_split_queries='{self.on_split_queries}')"


def read(
    paths: PathLike | Sequence[PathLike],
    *,
    partitions: int | None = None,
    on_split_queries: SplitQueries = "neighbors",
    **options: Any,
) -> Partitions:
    """Describe data for a cluster by path, without reading it. Workers must see the same paths.

    Args:
        paths: a folder of Parquet files (a partition each), a stored copy (cut into ranges of whole queries), or a list
            of files of any format that `toprank.read` reads (a partition each).
        partitions: number of ranges to split a stored copy into. Default: about 64 MB of features each, at least 8.
        on_split_queries: what to do about queries with rows in several partitions; see `Partitions`.
        **options: options for the reader of the files, such as ``label=`` and ``qid=``; see `toprank.read`.
    """
    if isinstance(paths, str | os.PathLike):
        path = Path(paths)
        if is_store(path):
            if partitions is not None:
                check_whole("partitions", partitions, 1)
            if options:
                raise UnknownNameError("option for reading a stored copy", next(iter(options)), ["partitions"])
            data = open_store(path)
            width = max(1, data.n_features * data.X.dtype.itemsize)
            wanted = max(8, data.n_documents * width >> 26) if partitions is None else partitions
            ranges = even_ranges(data.queries.offsets, wanted)
            return Partitions(
                [StorePart(os.path.abspath(path), first, last) for first, last in ranges], on_split_queries
            )
        files = files_in(path) if path.is_dir() else [path]
    else:
        files = listed_paths(paths)
    if partitions is not None:
        raise DataError(
            "Each file is one partition; partitions= applies only to a stored copy (made by toprank convert)."
        )
    return Partitions([FilePart(os.path.abspath(file), options) for file in files], on_split_queries)


def parts_of(data: Any, *, partitions: int, on_split_queries: SplitQueries | None = None, **roles: Any) -> Partitions:
    """Describe data in memory (split into `partitions` parts), a Dask DataFrame or files as partitions.

    `roles` are the columns of a frame, as in `RankingData.from_frame`; `on_split_queries` defaults to that of the data.
    """
    is_frame = hasattr(data, "to_delayed") and hasattr(getattr(data, "_meta", None), "columns")
    if roles and not is_frame and isinstance(data, Partitions | RankingData):
        raise DataError(
            f"{next(iter(roles))}= names a column of a frame, but these data have their columns assigned already; "
            "leave it out, or pass it to toprank.cluster.read."
        )
    if _is_paths(data):
        return read(data, on_split_queries=on_split_queries or "neighbors", **roles)
    if isinstance(data, Partitions):
        return data if on_split_queries is None else Partitions(data.sources, on_split_queries, whole=data.whole)
    if isinstance(data, RankingData):
        ranges = even_ranges(data.queries.offsets, partitions)
        parts = [DataPart(data.select(np.arange(a, b)), f"queries {a} to {b - 1}") for a, b in ranges]
        return Partitions(parts, on_split_queries or "neighbors", whole=data)
    if is_frame:
        return Partitions(_frame_parts(data, roles), on_split_queries or "neighbors")
    raise DataError(
        f"Data of type {type(data).__name__} cannot be distributed; pass paths, the result of toprank.cluster.read, a "
        "Dask DataFrame, or a RankingData."
    )


def _is_paths(data: Any) -> bool:
    """Return whether data are paths accepted by `toprank.cluster.read`."""
    listed = data if isinstance(data, list | tuple) else [data]
    return bool(listed) and all(isinstance(path, str | os.PathLike) for path in listed)


def even_ranges(offsets: IntArray, count: int) -> list[tuple[int, int]]:
    """Return at most `count` ranges of whole queries with similar numbers of documents.

    >>> even_ranges(np.array([0, 3, 5, 9, 10]), 2)
    [(0, 2), (2, 4)]
    """
    marks = np.linspace(0, offsets[-1], count + 1)
    cuts = np.unique(np.searchsorted((offsets[1:] + offsets[:-1]) / 2, marks))
    return [(int(a), int(b)) for a, b in pairwise(np.unique([0, *cuts, len(offsets) - 1]))]


def _frame_parts(frame: Any, roles: dict[str, Any]) -> list[FramePart]:
    """Return the partitions of a frame, to be read with the columns of the whole frame."""
    import pyarrow as pa

    known = (*ROLES, "features", "dtype", "metadata", "like")
    for name in roles:
        if name not in known:
            raise UnknownNameError("role of a column", name, known)
    schema = pa.Schema.from_pandas(frame._meta, preserve_index=False)
    options = TableOptions.from_keywords(roles)
    layout = layout_of(schema, options, words_of(frame._meta))
    layout.refuse_text()
    fixed = roles | layout.assigned.keywords()
    fixed |= {"features": layout.features, "dtype": layout.dtype, "regroup": True}
    # only the ranker's columns are sent to the workers, not the ranker
    fixed |= {"like": known_columns(options.like)[1]}
    named = [(piece, f"partition {number} of the frame") for number, piece in enumerate(frame.to_delayed())]
    return [FramePart(piece, name, fixed, layout.may_go) for piece, name in named]


class Cluster:
    """A connection to a Dask cluster.

    Args:
        client: a synchronous Dask client.
        timeout: see `connect`.
        checkpoint_every: see `connect`.
        owned: objects to close along with the client. Default: close nothing, not even the client.
    """

    def __init__(
        self,
        client: Any,
        *,
        timeout: float = _TIMEOUT_SECONDS,
        checkpoint_every: int = _CHECKPOINT_ROUNDS,
        owned: list[Any] | None = None,
    ) -> None:
        _check_settings(timeout, checkpoint_every)
        if not all(hasattr(client, name) for name in ("submit", "scheduler", "asynchronous")):
            raise DataError(f"A Cluster needs a Dask client, not a {type(client).__name__}.")
        if client.asynchronous:
            raise DataError("toprank waits for results; pass a Dask client created with asynchronous=False.")
        if client.status != "running":
            raise ClusterError(f"The Dask client is not connected ({client.status}); create a new one.")
        self.client, self._owned = client, owned
        self._runner = Runner(client, timeout, checkpoint_every)

    def persist(self, data: Any, *, on_split_queries: SplitQueries | None = None, **roles: Any) -> DistributedData:
        """Load data on the workers, to use them several times.

        Args:
            data: a path or several, the result of `toprank.cluster.read`, a Dask DataFrame, or a `RankingData` (split
                into two partitions for each worker, and sent there).
            on_split_queries: what to do about queries with rows in several partitions; see
                `toprank.cluster.Partitions`. Default: the value passed to `read`, else ``neighbors``.
            **roles: the columns of a frame, such as ``label="rel", qid="query"``; see `RankingData.from_frame`.
        """
        if not isinstance(data, DistributedData):
            partitions = 2 * len(self._runner.workers())
            return placed(
                self._runner, parts_of(data, partitions=partitions, on_split_queries=on_split_queries, **roles)
            )
        if on_split_queries is not None or roles:
            raise DataError(
                "The data are distributed already; pass on_split_queries= and the columns when they are first "
                "distributed."
            )
        if not self._runner.is_of_same_cluster(data.runner):
            raise DataError("The data are on another cluster; use that one, or distribute them on this one as well.")
        return data

    def fit(self, ranker: R, train: Any, valid: Any = None) -> R:
        """Train a ranker on partitioned data on the workers, with the same result as on one machine.

        Args:
            ranker: a `LinearRanker`, `ExpectedGainRanker` or `TreeRanker`; it is fitted in place and returned.
            train: data with labels, in any form that `persist` accepts or returns.
            valid: validation data of the same kind, to choose a penalty or a number of rounds. Default: none.
        """
        if not getattr(ranker, "supports_distributed", False):
            raise DataError(
                f"{type(ranker).__name__} cannot be trained on a cluster; LinearRanker, ExpectedGainRanker and "
                "TreeRanker can. (To train a NeuralRanker on several machines, use toprank.cluster.fit_distributed "
                "with torchrun.)"
            )
        sources: list[DistributedData | None] = []
        try:
            for data in (train, valid):
                sources.append(None if data is None else self.persist(data))
            ranker.fit_source(sources[0], valid=sources[1])
        finally:
            for data, source in zip((train, valid), sources, strict=False):
                if source is not None and source is not data:  # data that the caller persisted are kept
                    source.release()
        return ranker

    def predict(self, ranker: Ranker, data: Any) -> FloatArray:
        """Return the scores of all documents, partition by partition, in the original order of their rows.

        For a `RankingData` or a stored copy they equal those of `ranker.predict`, in the order of X.
        """
        whole = data.whole if isinstance(data, Partitions) else data
        return by_row(whole, predicted(self.persist(data), ranker))

    def write_predictions(self, ranker: Ranker, data: Any, folder: str | os.PathLike[str]) -> list[str]:
        """Write the scores of each partition to a file, on the workers; return the paths, in order.

        Use it for more scores than fit into this process. File ``part-00003.scores`` has one line for each original row
        of partition 3 (from 0), in order; a partition without rows gives an empty file. When the last file is written,
        all files replace the ``part-*.scores`` of an earlier call at once; after an error, none does. The folder must
        exist and be visible to the workers.
        """
        return write_partition_scores(self.persist(data), ranker, folder)

    def evaluate(
        self,
        ranker: Ranker,
        data: Any,
        metrics: Metrics = "ndcg@10",
        *,
        convention: Convention | str = "standard",
        max_grade: float | None = None,
        min_relevance: float = 1.0,
        unjudged: Unjudged | None = None,
        weighted: bool = False,
    ) -> Evaluation:
        """Evaluate a ranker like `toprank.evaluate`; workers score and evaluate their own partitions."""
        rules, measures = Convention.from_name(convention), parse_all(metrics)
        rows = self.persist(data).rows
        top = max_grade
        if top is None:
            top = max(rows.each(max_label, unjudged or rules.unjudged))
        options = {"max_grade": top if top > 0 else None, "min_relevance": min_relevance}
        options |= {"unjudged": unjudged, "weighted": weighted}
        parts = rows.each(part_values, ranker, list(measures.values()), rules, options)
        columns = zip(*(part.by_metric for part in parts), strict=True)
        per_query = {name: np.concatenate(column) for name, column in zip(measures, columns, strict=True)}
        weights = np.concatenate([part.query_weights for part in parts if part.n_documents]) if weighted else None
        qids = np.concatenate([part.qids for part in parts])
        n_documents = sum(part.n_documents for part in parts)
        if not len(qids):
            raise DataError(
                "No query is left to evaluate: every query has unjudged documents. Use unjudged='condense'."
            )
        return Evaluation(measures, per_query, rules, float(top), qids, n_documents, weights)

    def close(self) -> None:
        """Close the connection, and the workers if `connect` started them."""
        if self._owned is None:
            return
        self.client.close()
        for owned in self._owned:
            owned.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Cluster({self.client!r})"


def placed(runner: Runner, parts: Partitions) -> DistributedData:
    """Distribute partitions; several tabular files are all read with the columns of the first."""
    files = [source for source in parts.sources if isinstance(source, FilePart)]
    if len(files) > 1:
        ((alike, sentences),) = retry_lost(lambda: runner.results([runner.submit(agreed, files)]))
        for sentence in sentences:
            warn_user(sentence, ColumnsLeftOutWarning)
        others = iter(alike)
        sources = [next(others) if isinstance(source, FilePart) else source for source in parts.sources]
        parts = Partitions(sources, parts.on_split_queries, whole=parts.whole)
    return DistributedData(runner, parts)
