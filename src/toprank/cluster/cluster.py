"""The doors of a cluster: `connect` to one, `read` data for it in partitions, and train, predict and evaluate there."""

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

import toprank.cluster.trees  # noqa: F401 - registers how trees are trained on `Placed` data
from toprank.cluster.dataset import Placed
from toprank.cluster.runner import Runner, steadily
from toprank.cluster.scoring import part_values, predicted, settled_top, write_predicted
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
    """Connect to a Dask cluster to train, evaluate and predict on.

    Args:
        address: the address of the scheduler, such as ``"tcp://10.0.0.1:8786"``. None: the Dask client that this
            process already has; or, with `workers`, processes on this machine.
        workers: how many worker processes to start here, with one thread each; for trying things out.
        patience: seconds without any worker, or without an answer from the scheduler, after which a call fails.
        checkpoint: rounds of boosting between two checkpoints; if a worker is lost, trees go on from the last one.
        **options: options of Dask's `Client`, or with `workers` of its `LocalCluster`.

    Use it in a ``with`` statement, or `close` it.
    """
    distributed = require_extra("distributed", "cluster", "tr.cluster")
    _check_settings(patience, checkpoint)
    settings: dict[str, Any] = {"patience": patience, "checkpoint": checkpoint}
    if workers is not None:
        if address is not None:
            raise DataError("Give an address to connect to, or workers to start here, not both.")
        check_whole("workers", workers, 1)
        # An error on a worker is raised here; its log would only say it a second time.
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
            raise DataError("Options are for a connection that is made here; give address= or workers= with them.")
        client = _current(distributed)
        if client is None:
            raise ClusterError(
                "This process has no Dask client. Give the scheduler's address, or workers=2 for two processes here."
            )
        return Cluster(client, **settings)
    if not isinstance(address, str):
        raise DataError(
            f"address must be a text such as 'tcp://10.0.0.1:8786', not {address!r}. (A Dask client is taken by "
            "toprank.cluster.Cluster(client).)"
        )
    return Cluster(_client_at(distributed, address, {"timeout": min(patience, 10.0)} | options), owned=[], **settings)


class _ImportPath:
    """The folders that workers in this process add to `sys.path`; closing removes them."""

    def __init__(self) -> None:
        self.before, self.added = list(sys.path), set[str]()

    def changed(self) -> Self:
        """Note what was added since this object was made."""
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
        if half_made is not None and half_made is not before:  # else Dask would take it for this process's client
            with suppress(Exception):
                half_made.close(timeout=1)
        reason = (str(problem).strip() or type(problem).__name__).splitlines()[0][:200].rstrip(".")
        raise ClusterError(
            f"No Dask scheduler answers at {address} ({reason}). Is it running (dask scheduler), and can "
            "it be reached from here?"
        ) from None


def _current(distributed: Any) -> Any:
    """Return the Dask client of this process, or None."""
    try:
        return distributed.default_client()
    except ValueError:
        return None


def _check_settings(patience: Any, checkpoint: Any) -> None:
    check_number("patience", patience, above=0)
    check_whole("checkpoint", checkpoint, 1)


PathLike = str | os.PathLike[str]
Repair = Literal["neighbors", "all", "none"]
REPAIRS = ("neighbors", "all", "none")


class Parts:
    """Data in partitions, described and not yet read: what `Cluster.fit` learns from.

    Args:
        sources: a source for each partition, in order.
        repair: what to do about a query with rows in several partitions. ``neighbors``: bring its rows together if it
            is cut by the border between two partitions, as when a table is cut by rows; refuse it otherwise, since the
            id more likely names two queries. ``all``: bring the rows together wherever they are. ``none``: refuse both.
        whole: the data that these are the parts of, in order, if they are in memory.
    """

    for_a_cluster = True

    def __init__(
        self, sources: Sequence[Any], repair: Repair = "neighbors", *, whole: RankingData | None = None
    ) -> None:
        if repair not in REPAIRS:
            raise UnknownNameError("kind of repair", str(repair), REPAIRS)
        if not sources:
            raise DataError("There is nothing to distribute: no partition was given.")
        self.sources, self.repair, self.whole = tuple(sources), repair, whole

    @property
    def fingerprint(self) -> str | None:
        """The fingerprint of the whole data if it is known without a look at the rows, else None."""
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
        return f"Parts({len(self)} partitions, repair='{self.repair}')"


def read(
    paths: PathLike | Sequence[PathLike],
    *,
    partitions: int | None = None,
    repair: Repair = "neighbors",
    **options: Any,
) -> Parts:
    """Describe data for a cluster by path; nothing is read yet. Workers must see the same paths.

    Args:
        paths: a folder of Parquet files (a partition each), a stored copy (cut into ranges of whole queries), or a list
            of files of any format that `toprank.read` reads (a partition each).
        partitions: how many ranges to cut a stored copy into. Default: about 64 MB of features each, at least 8.
        repair: what to do about queries with rows in several partitions; see `Parts`.
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
            return Parts([StorePart(os.path.abspath(path), first, last) for first, last in ranges], repair)
        files = files_in(path) if path.is_dir() else [path]
    else:
        files = listed_paths(paths)
    if partitions is not None:
        raise DataError("A file is a partition; partitions= belongs to a stored copy (toprank convert makes one).")
    return Parts([FilePart(os.path.abspath(file), options) for file in files], repair)


def parts_of(data: Any, *, partitions: int, repair: Repair | None = None, **roles: Any) -> Parts:
    """Return data in memory (cut into so many parts), a Dask DataFrame, or files by path as partitions.

    `roles` are the columns of a frame, as in `RankingData.from_frame`; `repair` is by default that of the data.
    """
    is_frame = hasattr(data, "to_delayed") and hasattr(getattr(data, "_meta", None), "columns")
    if roles and not is_frame and isinstance(data, Parts | RankingData):
        raise DataError(
            f"{next(iter(roles))}= names a column of a frame, but these data know their columns already; leave it out, "
            "or give it to toprank.cluster.read."
        )
    if _is_paths(data):
        return read(data, repair=repair or "neighbors", **roles)
    if isinstance(data, Parts):
        return data if repair is None else Parts(data.sources, repair, whole=data.whole)
    if isinstance(data, RankingData):
        ranges = even_ranges(data.queries.offsets, partitions)
        parts = [DataPart(data.select(np.arange(a, b)), f"queries {a} to {b - 1}") for a, b in ranges]
        return Parts(parts, repair or "neighbors", whole=data)
    if is_frame:
        return Parts(_frame_parts(data, roles), repair or "neighbors")
    raise DataError(
        f"Data of type {type(data).__name__} cannot be distributed; give paths, what toprank.cluster.read gives, a "
        "Dask DataFrame, or a RankingData."
    )


def _is_paths(data: Any) -> bool:
    """Whether data are paths, as `toprank.cluster.read` takes them."""
    listed = data if isinstance(data, list | tuple) else [data]
    return bool(listed) and all(isinstance(path, str | os.PathLike) for path in listed)


def even_ranges(offsets: IntArray, count: int) -> list[tuple[int, int]]:
    """Return at most `count` ranges of whole queries with about equally many documents.

    >>> even_ranges(np.array([0, 3, 5, 9, 10]), 2)
    [(0, 2), (2, 4)]
    """
    marks = np.linspace(0, offsets[-1], count + 1)
    cuts = np.unique(np.searchsorted((offsets[1:] + offsets[:-1]) / 2, marks))
    return [(int(a), int(b)) for a, b in pairwise(np.unique([0, *cuts, len(offsets) - 1]))]


def _frame_parts(frame: Any, roles: dict[str, Any]) -> list[FramePart]:
    """Return the partitions of a frame, to be read by the columns of the whole frame."""
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
    fixed |= {"like": known_columns(options.like)[1]}  # not the ranker itself: only its columns travel to the workers
    named = [(piece, f"partition {number} of the frame") for number, piece in enumerate(frame.to_delayed())]
    return [FramePart(piece, name, fixed, layout.may_go) for piece, name in named]


class Cluster:
    """A connection to a Dask cluster.

    Args:
        client: Dask's, synchronous.
        patience: see `connect`.
        checkpoint: see `connect`.
        owned: what else to close with the client; None: close nothing, not even the client.
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
        if not all(hasattr(client, name) for name in ("submit", "scheduler", "asynchronous")):
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
            data: what `toprank.cluster.read` takes (a path, or several) or gives, a Dask DataFrame, or a `RankingData`
                (cut into two partitions for each worker, and sent there).
            repair: what to do about queries in several partitions; see `toprank.cluster.Parts`. Default: what `read`
                was given, else ``neighbors``.
            **roles: the columns of a frame: ``label="rel", qid="query"`` …, as in `RankingData.from_frame`.
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
        """Train a ranker on data in partitions on the workers, with the same result as on one machine.

        Args:
            ranker: a `LinearRanker`, `ExpectedGainRanker` or `TreeRanker`; it is fitted in place and returned.
            train: what `place` takes or gives, with labels.
            valid: data of the same kind to choose on (a penalty along its path, a number of rounds); never trained on.
        """
        if not getattr(ranker, "supports_distributed", False):
            raise DataError(
                f"{type(ranker).__name__} cannot be trained on a cluster; LinearRanker, ExpectedGainRanker and "
                "TreeRanker can. (Processes of torchrun train a NeuralRanker: toprank.cluster.fit_distributed.)"
            )
        sources: list[Placed | None] = []
        try:
            for data in (train, valid):
                sources.append(None if data is None else self.place(data))
            ranker.fit_source(sources[0], valid=sources[1])
        finally:
            for data, source in zip((train, valid), sources, strict=False):
                if source is not None and source is not data:  # what the caller placed stays
                    source.release()
        return ranker

    def predict(self, ranker: Ranker, data: Any) -> FloatArray:
        """Return the scores of all documents: partition after partition, in the order in which their rows were given.

        For a `RankingData` or a stored copy they are those of `ranker.predict`, in the order of X.
        """
        whole = data.whole if isinstance(data, Parts) else data
        return by_row(whole, predicted(self.place(data), ranker))

    def write_predictions(self, ranker: Ranker, data: Any, folder: str | os.PathLike[str]) -> list[str]:
        """Have the workers write the scores of each partition to a file; return the paths, in order.

        This is for more scores than fit into this process. File ``part-00003.scores`` has a line for each row of
        partition 3 (from 0) as it was given, in its order; a partition without rows gives an empty file. All files
        appear when the last one is written, in place of the ``part-*.scores`` of an earlier call, or none does. Workers
        must see the folder, which must be there.
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
        min_relevance: float = 1.0,
        unjudged: Unjudged | None = None,
        weighted: bool = False,
    ) -> Evaluation:
        """Return what `toprank.evaluate` does for the ranker's scores; workers score and judge their own partitions."""
        rules, measures = Convention.from_name(convention), parse_all(metrics)
        rows = self.place(data).rows
        top = max_grade
        if top is None:
            top = max(rows.each(settled_top, unjudged or rules.unjudged))
        options = {"max_grade": top if top > 0 else None, "min_relevance": min_relevance}
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
        """End the connection, and the workers if `connect` started them."""
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


def placed(runner: Runner, parts: Parts) -> Placed:
    """Place partitions; if there are several files of tables, all are read by the columns of the first."""
    files = [source for source in parts.sources if isinstance(source, FilePart)]
    if len(files) > 1:
        ((alike, sentences),) = steadily(lambda: runner.results([runner.submit(agreed, files)]))
        for sentence in sentences:
            warn_user(sentence, ColumnsLeftOutWarning)
        others = iter(alike)
        sources = [next(others) if isinstance(source, FilePart) else source for source in parts.sources]
        parts = Parts(sources, parts.repair, whole=parts.whole)
    return Placed(runner, parts)
