"""Data sets on a cluster: partitions of rows on the workers, and the global statistics that rankers need."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import fields
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from toprank.cluster import work
from toprank.cluster.runner import PartitionObjects, Placement, Runner, SourceObjects
from toprank.cluster.scoring import max_label, part_extremes, part_values
from toprank.cluster.sources import DataPart, FramePart, joined, load, rows_of_frame, taken
from toprank.compute import FloatArray, IntArray
from toprank.data.encoding import Encoding
from toprank.data.frames.categories import drop_identifiers
from toprank.errors import DataError, ToprankError, count_of, warn_user
from toprank.evaluation.scores import indistinguishable
from toprank.losses import Loss
from toprank.metrics.conventions import Convention
from toprank.metrics.measure import Measure
from toprank.metrics.parsing import parse
from toprank.rankers.seen_columns import SeenColumns
from toprank.rankers.source import Score, ScoreJudge, Source
from toprank.rankers.target_encoding import EncodedCategories, TargetEncoding, TargetEncodings
from toprank.scorers.features import Moments, Standardization
from toprank.scorers.linear import Scorer

if TYPE_CHECKING:
    from toprank.cluster.cluster import Partitions

# A partition with more than this multiple of the average number of rows receives no rows if another partition can.
_MAX_RELATIVE_SIZE = 1.25
# If a query is the only one in this many partitions, ids probably restart in every file.
_MIN_SUSPICIOUS_PARTITIONS = 3


class Move(NamedTuple):
    """Rows of some queries to move from one partition to another."""

    donor: int
    home: int
    qids: npt.NDArray[Any]
    n_documents: int = 0


class _Piece(NamedTuple):
    """The rows of a query in one partition."""

    place: int
    number: int
    size: int


def moves(summaries: Sequence[work.PartitionSummary], on_split_queries: str) -> list[Move]:
    """Return the moves that merge every query into one partition.

    A query that is cut by a border moves to the first partition that has rows of it. With ``on_split_queries="all"`` a
    query moves to the partition with most of its rows, among partitions that are not full.

    Raises:
        DataError: a query is split in a way that `on_split_queries` does not allow.
    """
    settled = np.array([part.n_documents for part in summaries])
    cut = _cut_queries(summaries)
    for pieces in cut:
        for piece in pieces:
            settled[piece.place] -= piece.size
    full = _MAX_RELATIVE_SIZE * sum(part.n_documents for part in summaries) / len(summaries)
    moving: dict[tuple[int, int], list[_Piece]] = {}
    for pieces in cut:
        size = sum(piece.size for piece in pieces)
        if on_split_queries == "all":
            home = _best_home(pieces, settled, full - size)
        else:
            _check_border(summaries, pieces, on_split_queries)
            home = pieces[0].place
        settled[home] += size
        for piece in pieces:
            if piece.place != home:
                moving.setdefault((piece.place, home), []).append(piece)
    return [
        Move(
            donor, home, summaries[donor].qids[[piece.number for piece in pieces]], sum(piece.size for piece in pieces)
        )
        for (donor, home), pieces in moving.items()
    ]


def _cut_queries(summaries: Sequence[work.PartitionSummary]) -> list[list[_Piece]]:
    """Return the pieces of each query with rows in several partitions, by first appearance of the query."""
    places = np.repeat(np.arange(len(summaries)), [len(part.qids) for part in summaries])
    numbers = np.concatenate([np.arange(len(part.qids)) for part in summaries])
    sizes = np.concatenate([part.sizes for part in summaries])
    _, codes, counts = np.unique(
        np.concatenate([part.qids for part in summaries]), return_inverse=True, return_counts=True
    )
    codes = codes.reshape(-1)
    pieces: dict[int, list[_Piece]] = {}
    for row in np.flatnonzero(counts[codes] > 1).tolist():
        pieces.setdefault(int(codes[row]), []).append(_Piece(int(places[row]), int(numbers[row]), int(sizes[row])))
    return list(pieces.values())


def _best_home(pieces: Sequence[_Piece], settled: IntArray, most: float) -> int:
    """Return the partition with most rows of a query among those below the limit, else the smallest."""
    roomy = [piece for piece in pieces if settled[piece.place] <= most]
    if not roomy:
        return min(pieces, key=lambda piece: settled[piece.place]).place
    return min(roomy, key=lambda piece: (-piece.size, settled[piece.place])).place


def _check_border(summaries: Sequence[work.PartitionSummary], pieces: Sequence[_Piece], on_split_queries: str) -> None:
    """Raise an error if a query is split other than by borders between neighboring partitions."""
    qid = summaries[pieces[0].place].qids[pieces[0].number]
    for here, there in pairwise(pieces):
        at_border = there.place == here.place + 1 and there.number == 0 and summaries[here.place].qids[-1] == qid
        where = f"Query {qid} has rows in {summaries[here.place].name} and in {summaries[there.place].name}"
        if not at_border:
            raise DataError(
                f"{where}, but not at the border between them. If the id names two different queries, give them "
                "different ids; if it is one query, pass on_split_queries='all' to merge its rows."
            )
        if on_split_queries == "none":
            raise DataError(
                f"{where}; partitions must hold whole queries. Split the data between queries, or pass "
                "on_split_queries='neighbors'."
            )
    alone = [summaries[piece.place].name for piece in pieces if len(summaries[piece.place].qids) == 1]
    if len(alone) >= _MIN_SUSPICIOUS_PARTITIONS:
        raise DataError(
            f"Query {qid} is the only one in each of {len(alone)} partitions, {alone[0]} to {alone[-1]}. If ids "
            "restart in every partition, make them unique; if it is one query, pass on_split_queries='all' to merge "
            "its rows."
        )


class PartitionRows:
    """Futures of the partitions' rows, and the workers that hold them.

    It holds no reference to its users, so that workers release the rows as soon as the users are deleted.
    """

    def __init__(self, runner: Runner, parts: Partitions) -> None:
        self.runner, self.parts = runner, parts
        self.moves: list[Move] = []
        self.kept = list(range(len(parts)))
        """Indices of the partitions that have rows."""
        self.homes = [""] * len(parts)
        """Worker of each partition, including partitions without rows."""
        self._raw: list[Any] = [None] * len(parts)
        self._whole: list[Any] = []
        self._encoding: Encoding | None = None

    def placement(self) -> Placement:
        """Load all partitions that have rows. Existing ones stay; neighbors go to the same worker."""
        workers = self.runner.workers()
        at_once = all(future is None for future in self._raw)
        for number, future in enumerate(self._raw):
            if self.homes[number] not in workers or not _is_available(future):
                place = number * len(workers) // len(self._raw) if at_once else number % len(workers)
                self.homes[number] = workers[place]
                self._raw[number] = self._load(self.parts.sources[number], workers[place])
                self._whole = []
        if not self._whole or not all(_is_available(future) for future in self._whole):
            self._whole = self._merged() if self.moves else list(self._raw)
        return Placement([self._whole[number] for number in self.kept], [self.homes[number] for number in self.kept])

    def encode(self, encoding: Encoding) -> None:
        """Encode all partitions with the same encoding from now on."""
        self._encoding = encoding
        self.forget()

    def move_rows(self, moves: list[Move]) -> None:
        """Merge split queries by these moves from now on."""
        self.moves, self._whole = moves, []

    def forget(self) -> None:
        """Load all partitions again when they are next needed."""
        self._raw, self._whole = [None] * len(self.parts), []

    def release(self) -> None:
        """Release the rows on the workers, even if other objects still hold futures of them."""
        for future in (*self._raw, *self._whole):
            if future is not None:
                future.release()
        self.forget()

    def check_frames(self) -> None:
        """Raise an error that names the first partition of a frame that failed to compute, if any."""
        for future, source in zip(self._raw, self.parts.sources, strict=True):
            if isinstance(source, FramePart) and future is not None and future.status == "error":
                problem = future.exception(timeout=self.runner.timeout)
                if not isinstance(problem, ToprankError):
                    text = " ".join(str(problem).split())[:300].rstrip(".")
                    reason = f"{source.name} cannot be computed ({type(problem).__name__}: {text})."
                    raise DataError(reason[0].upper() + reason[1:]) from problem

    def _merged(self) -> list[Any]:
        """Return the partitions after the moves, computed at once: the donor partitions may be lost later."""
        leaving: dict[int, list[Any]] = {}
        coming: dict[int, list[Any]] = {}
        for donor, home, qids, _ in self.moves:
            leaving.setdefault(donor, []).append(qids)
            part = self.runner.submit(taken, self._raw[donor], donor, qids, workers=[self.homes[donor]])
            coming.setdefault(home, []).append(part)
        rows, changed = list(self._raw), sorted({*leaving, *coming})
        for number in changed:
            gone = np.concatenate(leaving[number]) if number in leaving else None
            more = coming.get(number, [])
            rows[number] = self.runner.submit(joined, rows[number], number, gone, *more, workers=[self.homes[number]])
        self.runner.wait([rows[number] for number in changed], self.homes)
        return rows

    def _load(self, source: Any, home: str) -> Any:
        rows = self._read(source, home)
        if self._encoding is None:
            return rows
        return self.runner.submit(work.with_columns, rows, self._encoding, workers=[home])

    def _read(self, source: Any, home: str) -> Any:
        if isinstance(source, DataPart):
            return self.runner.scatter(work.WorkerRows(source.data, source.name, None), [home])
        if isinstance(source, FramePart):
            frame = self.runner.client.compute(source.frame)
            return self.runner.submit(rows_of_frame, frame, source.name, source.roles, workers=[home])
        return self.runner.submit(load, source, workers=[home])


def _is_available(future: Any) -> bool:
    """Return whether a future has its result, or will have it."""
    return future is not None and future.status in ("pending", "finished")


class QueriesMovedWarning(UserWarning):
    """Queries had rows in several partitions, which were merged."""


class DistributedData(Source):
    """Validated partitions on a cluster: whole queries, and the same columns everywhere.

    Pass it to `fit`, `evaluate` and `predict` as often as needed; the workers keep the rows as long as it exists.
    """

    def __init__(self, runner: Runner, parts: Partitions) -> None:
        self.runner, self.parts = runner, parts
        self.stored_rows = PartitionRows(runner, parts)
        self._columns: tuple[Encoding | SeenColumns, ...] = ()
        """Encodings and column expansions applied to the rows, in order."""
        self._derive_rows()
        summaries = self._summarize()
        self.sizes = [0] * len(parts)
        """Number of documents in each original partition."""
        for number, part in zip(self.stored_rows.kept, summaries, strict=True):
            self.sizes[number] = part.n_documents
        summaries = self._unify_encodings(summaries)
        needed = moves(summaries, parts.on_split_queries)
        if needed:
            kept = self.stored_rows.kept
            self.stored_rows.move_rows([move._replace(donor=kept[move.donor], home=kept[move.home]) for move in needed])
            self._derive_rows()
            summaries = self._summarize()
            _warn_moved(needed)
        self.summaries = summaries
        self.n_moved = sum(len(move.qids) for move in needed)
        """Number of times that rows of a query were moved to another partition."""
        self.n_features, self.feature_names = summaries[0].n_features, summaries[0].feature_names
        self.first_feature_id, self.encoding = summaries[0].first_feature_id, summaries[0].encoding
        self.roles = summaries[0].roles
        self.n_documents = sum(part.n_documents for part in summaries)
        self.n_queries = sum(len(part.qids) for part in summaries)
        self.n_unjudged = sum(part.n_unjudged for part in summaries)

    @cached_property
    def fingerprint(self) -> str:  # type: ignore[override]
        """Fingerprint of the data, as on one machine for a stored copy and data in memory.

        For files and frames, which are never read as a whole, it is ``parts-`` and a hash of the partitions' contents,
        in order. The same rows in other partitions then have another fingerprint.
        """
        known = self.parts.fingerprint
        if known is not None:
            return known
        digests = "".join(self.rows.each(work.digest_of))
        return "parts-" + hashlib.blake2b(digests.encode(), digest_size=13).hexdigest()

    # ---- placing ----

    def redistribute(self) -> None:
        """Forget where the partitions are, and load all of them again on the current workers."""
        self.stored_rows.forget()
        self._derive_rows()

    def release(self) -> None:
        """Release the rows and derived objects on the workers now; they are loaded again when needed.

        This happens automatically when the rows are no longer used, but the traceback of a failure may keep a
        reference.
        """
        self.rows.root.release()
        self.stored_rows.release()
        self._derive_rows()

    def _derive_rows(self) -> None:
        """Derive the rows from the sources again, with the current columns."""
        self.rows: PartitionObjects = SourceObjects(self.runner, self.stored_rows.placement)
        for columns in self._columns:
            self.rows = self.rows.then(work.with_columns, columns)

    def _unify_encodings(self, summaries: list[work.PartitionSummary]) -> list[work.PartitionSummary]:
        """Make codes consistent over all partitions, since each partition of a frame is encoded separately."""
        known = [part.encoding for part in summaries]
        if all(encoding is None for encoding in known):
            return summaries
        whole = Encoding.concatenate(known, summaries[0].feature_names)
        if whole is None:
            return summaries
        whole = self._drop_titles(whole)
        if all(encoding == whole for encoding in known):
            return summaries
        self.stored_rows.encode(whole)
        self._derive_rows()
        return self._summarize()

    def _drop_titles(self, whole: Encoding) -> Encoding:
        """Drop a frame's text columns that are titles or ids; for files this happens before they are read."""
        may_go = {name for source in self.parts.sources if isinstance(source, FramePart) for name in source.may_go}
        if not may_go:
            return whole
        (cells,) = self.rows.total(work.filled_cells)
        counts = {
            name: (len(whole.columns[place].levels), int(cells[place]))
            for place, name in enumerate(whole.names)
            if name in may_go
        }
        gone = drop_identifiers(counts)
        return Encoding(tuple(column for column in whole.columns if column.name not in gone))

    def _summarize(self) -> list[work.PartitionSummary]:
        """Summarize every partition; those without rows are left out from now on."""
        try:
            surveyed = self.rows.each(work.summarize)
        except ToprankError:
            raise
        except Exception:
            self.stored_rows.check_frames()
            raise
        if None in surveyed:
            kept = zip(self.stored_rows.kept, surveyed, strict=True)
            self.stored_rows.kept = [number for number, part in kept if part is not None]
            self._derive_rows()
        summaries = [part for part in surveyed if part is not None]
        if not summaries:
            raise DataError("All partitions are empty: the data contain no documents.")
        _check_same_columns(summaries)
        return summaries

    # ---- what rankers ask for ----

    def standardization(self, threads: int | None) -> Standardization:
        """Return the standardization, computed from sums over the partitions."""
        parts = self.rows.each(work.moments_of, self.summaries[0].first, threads or 1)
        return Standardization.from_moments(Moments.joined(parts), self.feature_names)

    @override
    def target_encodings(self, valid: Any, asked: EncodedCategories, seed: int) -> TargetEncodings:
        if asked != "auto":
            raise DataError(
                "Target encoding needs data in memory, since a partition does not have the folds of the others. On a "
                "cluster, train with target_encoding='auto' or False."
            )
        return TargetEncodings((), "nothing: the data are on a cluster", {})

    @override
    def one_hot(self, encoding: Encoding, sparse: bool, means: tuple[TargetEncoding, ...] = ()) -> SeenColumns:
        counts = self.rows.total(work.level_counts, encoding)
        return SeenColumns.from_counts(encoding, counts, lambda: self.standardization(None).center, sparse, means)

    @override
    def widened(self, columns: SeenColumns, folds: int | None = None) -> DistributedData:
        if columns.means:
            raise DataError(
                "The initial model uses target encoding, which is not available on a cluster. Train it with "
                "target_encoding=False, or continue training in memory."
            )
        return self._with_columns(columns, columns.width, None)

    @override
    def translated(self, encoding: Encoding) -> DistributedData:
        return self._with_columns(encoding, self.n_features, None if encoding.is_plain else encoding)

    def _with_columns(self, columns: Encoding | SeenColumns, width: int, encoding: Encoding | None) -> DistributedData:
        view = copy(self)
        view._columns = (*self._columns, columns)
        view.n_features, view.feature_names, view.encoding = width, columns.names, encoding
        view._derive_rows()
        view.summaries = [part for part in view.rows.each(work.summarize) if part is not None]
        return view

    @override
    def grades(self) -> tuple[FloatArray, FloatArray]:
        every = np.concatenate([part.grades for part in self.summaries])
        values, places = np.unique(every, return_inverse=True)
        counts = np.zeros(len(values))
        np.add.at(counts, places.reshape(-1), np.concatenate([part.counts for part in self.summaries]))
        if np.isinf(counts).any():
            raise DataError(
                f"There are more than {work.MAX_GRADES} distinct labels, too many to be grades. Round them, or train "
                "a LinearRanker, or a TreeRanker with outputs='score'."
            )
        return values, counts / (self.global_facts().weight / self.n_queries)

    def global_facts(self) -> work.GlobalFacts:
        """Return the facts about the whole data that every partition needs."""
        weight = sum(part.weight for part in self.summaries)
        return work.GlobalFacts(weight, np.unique(np.concatenate([part.grades for part in self.summaries])))

    def objective(
        self, scorer: Scorer, loss: Loss, standardization: Standardization, threads: int | None
    ) -> ClusterObjective:
        """Return the objective; see `Source.objective`.

        Each partition is processed by one thread unless `threads` is larger: a worker with several Dask threads
        processes several partitions at a time.
        """
        check_loss(loss, self.summaries)
        whole = self.global_facts()
        parts = self.rows.then(work.part_objective, scorer, loss, standardization, whole, threads or 1)
        return ClusterObjective(parts, scorer.n_weights)

    @override
    def score_spread(self, standardization: Standardization, direction: FloatArray) -> float:
        n, total, _ = self.rows.total(work.score_sums, standardization, direction, 0.0)
        return float(np.sqrt(self.rows.total(work.score_sums, standardization, direction, total / n)[2] / n))

    @override
    def judge(self, metric: str | Measure, convention: str, threads: int | None) -> ScoreJudge:
        rules, measure = Convention.from_name(convention), parse(metric)
        top = max(self.rows.each(max_label, rules.unjudged))

        def value(score: Score) -> float:
            parts = self.rows.each(
                part_values, score, [measure], rules, {"max_grade": top if top > 0 else None, "threads": threads or 1}
            )
            values = np.concatenate([part.by_metric[0] for part in parts])
            return float(np.nanmean(values)) if not np.isnan(values).all() else float("nan")

        def check() -> None:
            parts = self.rows.each(part_extremes, measure, rules, top if top > 0 else None)
            if all(part.level for part in parts):
                raise indistinguishable(
                    str(metric), min(part.lowest for part in parts), max(part.highest for part in parts)
                )

        return ScoreJudge(str(metric), measure, rules, value, check)

    def __repr__(self) -> str:
        return (
            f"DistributedData({len(self.summaries)} partitions, {self.n_queries:,} queries, "
            f"{self.n_documents:,} documents, {self.n_features} features)"
        )


class ClusterObjective:
    """Mean loss over all queries, from sums over partitions, with the interface of an objective in memory."""

    def __init__(self, parts: PartitionObjects, n_weights: int) -> None:
        self.parts, self.n_weights = parts, n_weights

    def resampled(self, draw: int, weights: FloatArray) -> ClusterObjective:
        """Return the objective at a draw; see `RankingObjective.resampled`."""
        return ClusterObjective(self.parts.then(work.resampled, draw, weights), self.n_weights)

    def value_and_grad(self, weights: FloatArray) -> tuple[float, FloatArray]:
        """Return the mean loss and its gradient."""
        value, grad = self.parts.total(work.value_and_grad, weights)
        return float(value), grad

    def hessian(self, weights: FloatArray) -> FloatArray:
        """Return the curvature."""
        result: FloatArray = self.parts.total(work.hessian, weights)[0]
        return result

    def hessian_product(self, weights: FloatArray) -> Callable[[FloatArray], FloatArray]:
        """Return the map v ↦ H v; preparations are made on the workers and stay there."""
        prepared = self.parts.then(work.products, weights)

        def times(vector: FloatArray) -> FloatArray:
            result: FloatArray = prepared.total(work.product, vector)[0]
            return result

        return times


def _check_same_columns(summaries: Sequence[work.PartitionSummary]) -> None:
    """Raise an error if the columns of partitions differ."""
    first = summaries[0]
    for part in summaries[1:]:
        where = f"{part.name} differs from {first.name}"
        if part.n_features != first.n_features:
            raise DataError(
                f"{where}: it has {part.n_features} features instead of {first.n_features}. Name the columns with "
                "features=[...], or pass n_features= for text files that omit trailing features."
            )
        if len({part.first_feature_id, first.first_feature_id} - {None}) > 1:
            raise DataError(
                f"{where}: its first column is feature {part.first_feature_id} instead of {first.first_feature_id}. "
                "Pass first_feature_id=0 and n_features= if some text files never mention feature 0."
            )
        if part.feature_names != first.feature_names:
            theirs, ours = part.feature_names or ("no names",), first.feature_names or ("no names",)
            other = next((a, b) for a, b in zip(theirs, ours, strict=False) if a != b)
            raise DataError(f"{where}: a feature is called '{other[0]}' instead of '{other[1]}'.")
        if part.sparse != first.sparse:
            raise DataError(f"{where}: one has sparse features and the other dense ones.")
        if part.qids.dtype.kind != first.qids.dtype.kind:
            raise DataError(f"{where}: query ids are integers in one and text in the other.")
        if part.columns != first.columns:
            name = next(iter(set(part.columns) ^ set(first.columns)))
            raise DataError(
                f"{where}: {name} are present in one and absent in the other. Add them everywhere, or drop them."
            )


def _warn_moved(moved: Sequence[Move]) -> None:
    """Warn that rows were moved: two different queries with one id would have been merged."""
    qids = np.unique(np.concatenate([move.qids for move in moved]))
    shown = ", ".join(str(qid) for qid in qids[:3].tolist()) + (" …" if len(qids) > 3 else "")
    warn_user(
        f"{count_of(len(qids), 'query')} ({shown}) had rows in several partitions; "
        f"{sum(move.n_documents for move in moved):,} rows were moved to merge them. If ids restart in every file, "
        "these are different queries: make the ids unique.",
        QueriesMovedWarning,
    )


def check_loss(loss: Loss, summaries: Sequence[work.PartitionSummary]) -> None:
    """Raise an error if the value of a loss depends on how the data are partitioned."""
    from toprank.losses.boltzrank import BoltzRank
    from toprank.losses.listmle import PlackettLuce
    from toprank.losses.softmax import XENDCG

    for field in fields(loss):
        if isinstance(part := getattr(loss, field.name), Loss):  # the loss is composed of others
            check_loss(part, summaries)
    name, drawn = type(loss).__name__, ""
    if isinstance(loss, XENDCG) and loss.gamma == "uniform":
        drawn, instead = "gamma='uniform'", "gamma=0.5, its expectation"
    if isinstance(loss, PlackettLuce) and loss.ties == "random":
        drawn, instead = "ties='random'", "ties='efron'"
    if drawn:
        raise DataError(
            f"{name} with {drawn} uses random numbers by global document index, which is unavailable in a partition; "
            f"use {instead}."
        )
    if isinstance(loss, BoltzRank):
        raise DataError(
            f"{name} samples rankings by global query index, which is unavailable in a partition; use ListNet."
        )
    if getattr(loss, "scheme", "") == "grade" and any(np.isinf(part.counts).any() for part in summaries):
        raise DataError(f"The weights of {name} need all distinct labels, but there are more than {work.MAX_GRADES}.")
