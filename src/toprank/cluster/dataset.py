"""A data set on a cluster: its rows in partitions on the workers, and what rankers need from all of them together."""

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
from toprank.cluster.runner import Partitions, Placement, Runner, SourcePartitions
from toprank.cluster.scoring import part_extremes, part_values, settled_top
from toprank.cluster.sources import DataPart, FramePart, joined, load, rows_of_frame, taken
from toprank.compute import FloatArray, IntArray
from toprank.data.encoding import Encoding
from toprank.data.frames.categories import drop_identifiers
from toprank.errors import DataError, ToprankError, count_of, warn_user
from toprank.evaluation.scores import blind
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
    from toprank.cluster.cluster import Parts

# A partition with so many times the average of rows takes no rows from others if another partition can.
_FULL = 1.25
# If a query is alone in so many partitions, ids more likely start again in every file.
_WHOLE_FILES = 3


class Move(NamedTuple):
    """Rows of some queries that move from one partition to another."""

    donor: int
    home: int
    qids: npt.NDArray[Any]
    n_documents: int = 0


class _Piece(NamedTuple):
    """The rows that a partition has of a query."""

    place: int
    number: int
    size: int


def moves(facts: Sequence[work.Facts], repair: str) -> list[Move]:
    """Return the moves that bring every query into one partition.

    A query that is cut by a border goes to the first partition that has rows of it. With ``repair="all"`` queries go to
    where most of their rows are, among partitions that are not full already.

    Raises:
        DataError: a query is cut in a way that the kind of repair does not allow.
    """
    settled = np.array([part.n_documents for part in facts])
    cut = _cut_queries(facts)
    for pieces in cut:
        for piece in pieces:
            settled[piece.place] -= piece.size
    full = _FULL * sum(part.n_documents for part in facts) / len(facts)
    moving: dict[tuple[int, int], list[_Piece]] = {}
    for pieces in cut:
        size = sum(piece.size for piece in pieces)
        if repair == "all":
            home = _roomiest(pieces, settled, full - size)
        else:
            _check_border(facts, pieces, repair)
            home = pieces[0].place
        settled[home] += size
        for piece in pieces:
            if piece.place != home:
                moving.setdefault((piece.place, home), []).append(piece)
    return [
        Move(donor, home, facts[donor].qids[[piece.number for piece in pieces]], sum(piece.size for piece in pieces))
        for (donor, home), pieces in moving.items()
    ]


def _cut_queries(facts: Sequence[work.Facts]) -> list[list[_Piece]]:
    """Return the pieces of each query with rows in several partitions, by first appearance of the query."""
    places = np.repeat(np.arange(len(facts)), [len(part.qids) for part in facts])
    numbers = np.concatenate([np.arange(len(part.qids)) for part in facts])
    sizes = np.concatenate([part.sizes for part in facts])
    _, codes, counts = np.unique(np.concatenate([part.qids for part in facts]), return_inverse=True, return_counts=True)
    codes = codes.reshape(-1)
    pieces: dict[int, list[_Piece]] = {}
    for row in np.flatnonzero(counts[codes] > 1).tolist():
        pieces.setdefault(int(codes[row]), []).append(_Piece(int(places[row]), int(numbers[row]), int(sizes[row])))
    return list(pieces.values())


def _roomiest(pieces: Sequence[_Piece], settled: IntArray, most: float) -> int:
    """Return the partition with most rows of a query among those that have room; the emptiest if none has."""
    roomy = [piece for piece in pieces if settled[piece.place] <= most]
    if not roomy:
        return min(pieces, key=lambda piece: settled[piece.place]).place
    return min(roomy, key=lambda piece: (-piece.size, settled[piece.place])).place


def _check_border(facts: Sequence[work.Facts], pieces: Sequence[_Piece], repair: str) -> None:
    """Refuse a query that is not simply cut by borders."""
    qid = facts[pieces[0].place].qids[pieces[0].number]
    for here, there in pairwise(pieces):
        at_border = there.place == here.place + 1 and there.number == 0 and facts[here.place].qids[-1] == qid
        where = f"Query {qid} lies partly in {facts[here.place].name} and partly in {facts[there.place].name}"
        if not at_border:
            raise DataError(
                f"{where}, and not at the border between them. If the id names two different queries, number them "
                "apart; if it is one query, give repair='all', which brings its rows together."
            )
        if repair == "none":
            raise DataError(f"{where}; partitions must hold whole queries. Cut them so, or give repair='neighbors'.")
    alone = [facts[piece.place].name for piece in pieces if len(facts[piece.place].qids) == 1]
    if len(alone) >= _WHOLE_FILES:
        raise DataError(
            f"Query {qid} is the only one in each of {len(alone)} partitions, {alone[0]} to {alone[-1]}. If the ids "
            "start again in every one, number them apart; if it is one query, give repair='all', which brings its rows "
            "together."
        )


class PartitionRows:
    """Futures of the partitions' rows, and the workers that have them.

    It holds no reference to its users: when they are gone, so is it, and the workers forget the rows at once.
    """

    def __init__(self, runner: Runner, parts: Parts) -> None:
        self.runner, self.parts = runner, parts
        self.moves: list[Move] = []
        self.kept = list(range(len(parts)))
        """The numbers of the partitions that have rows."""
        self.homes = [""] * len(parts)
        """The worker of each partition, also of those without rows."""
        self._raw: list[Any] = [None] * len(parts)
        self._whole: list[Any] = []
        self._encoding: Encoding | None = None

    def place(self) -> Placement:
        """Place all partitions that have rows. What is still there stays; neighbors go to the same worker."""
        workers = self.runner.workers()
        at_once = all(future is None for future in self._raw)
        for number, future in enumerate(self._raw):
            if self.homes[number] not in workers or not _is_there(future):
                place = number * len(workers) // len(self._raw) if at_once else number % len(workers)
                self.homes[number] = workers[place]
                self._raw[number] = self._load(self.parts.sources[number], workers[place])
                self._whole = []
        if not self._whole or not all(_is_there(future) for future in self._whole):
            self._whole = self._repaired() if self.moves else list(self._raw)
        return Placement([self._whole[number] for number in self.kept], [self.homes[number] for number in self.kept])

    def encode(self, encoding: Encoding) -> None:
        """Encode all partitions alike from now on."""
        self._encoding = encoding
        self.forget()

    def repair(self, moves: list[Move]) -> None:
        """Bring rows together, from now on."""
        self.moves, self._whole = moves, []

    def forget(self) -> None:
        """Place all partitions anew when they are needed."""
        self._raw, self._whole = [None] * len(self.parts), []

    def release(self) -> None:
        """Have the workers forget the rows, even if somebody still holds a future of them."""
        for future in (*self._raw, *self._whole):
            if future is not None:
                future.release()
        self.forget()

    def check_frames(self) -> None:
        """Raise an error that names the partition of a frame that could not be computed, if any."""
        for future, source in zip(self._raw, self.parts.sources, strict=True):
            if isinstance(source, FramePart) and future is not None and future.status == "error":
                problem = future.exception(timeout=self.runner.patience)
                if not isinstance(problem, ToprankError):
                    text = " ".join(str(problem).split())[:300].rstrip(".")
                    reason = f"{source.name} cannot be computed ({type(problem).__name__}: {text})."
                    raise DataError(reason[0].upper() + reason[1:]) from problem

    def _repaired(self) -> list[Any]:
        """Return the partitions after the moves, made at once: later, the partitions that gave rows may be gone."""
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
        return self.runner.submit(work.seen_through, rows, self._encoding, workers=[home])

    def _read(self, source: Any, home: str) -> Any:
        if isinstance(source, DataPart):
            return self.runner.scatter(work.WorkerRows(source.data, source.name, None), [home])
        if isinstance(source, FramePart):
            frame = self.runner.client.compute(source.frame)
            return self.runner.submit(rows_of_frame, frame, source.name, source.roles, workers=[home])
        return self.runner.submit(load, source, workers=[home])


def _is_there(future: Any) -> bool:
    """Whether a future has its result, or will have it."""
    return future is not None and future.status in ("pending", "finished")


class QueriesMovedWarning(UserWarning):
    """Queries had rows in several partitions; the rows were brought together."""


class Placed(Source):
    """Partitions on a cluster, checked: whole queries, the same columns everywhere.

    Give it to `fit`, `evaluate` and `predict` as often as needed; the workers keep the rows as long as it exists.
    """

    def __init__(self, runner: Runner, parts: Parts) -> None:
        self.runner, self.parts = runner, parts
        self.stored_rows = PartitionRows(runner, parts)
        self._columns: tuple[Encoding | SeenColumns, ...] = ()
        """The encodings and columns that the rows are seen through, one after the other."""
        self._renew()
        facts = self._survey()
        self.sizes = [0] * len(parts)
        """Documents of each partition as it was given."""
        for number, part in zip(self.stored_rows.kept, facts, strict=True):
            self.sizes[number] = part.n_documents
        facts = self._agree(facts)
        needed = moves(facts, parts.repair)
        if needed:
            kept = self.stored_rows.kept
            self.stored_rows.repair([move._replace(donor=kept[move.donor], home=kept[move.home]) for move in needed])
            self._renew()
            facts = self._survey()
            _warn_of(needed)
        self.facts = facts
        self.n_moved = sum(len(move.qids) for move in needed)
        """How many times rows of a query were moved to the partition where it is brought together."""
        self.n_features, self.feature_names = facts[0].n_features, facts[0].feature_names
        self.first_feature_id, self.encoding = facts[0].first_feature_id, facts[0].encoding
        self.roles = facts[0].roles
        self.n_documents = sum(part.n_documents for part in facts)
        self.n_queries = sum(len(part.qids) for part in facts)
        self.n_unjudged = sum(part.n_unjudged for part in facts)

    @cached_property
    def fingerprint(self) -> str:  # type: ignore[override]
        """The fingerprint of the data on one machine, for a stored copy and data in memory.

        For files and frames, which nobody has read as a whole: ``parts-`` and a hash of the partitions' content, in
        order. The same rows cut elsewhere then have another fingerprint.
        """
        known = self.parts.fingerprint
        if known is not None:
            return known
        digests = "".join(self.rows.each(work.digest_of))
        return "parts-" + hashlib.blake2b(digests.encode(), digest_size=13).hexdigest()

    # ---- placing ----

    def place_evenly(self) -> None:
        """Forget where the partitions are, and place them all anew on the workers that are there now."""
        self.stored_rows.forget()
        self._renew()

    def release(self) -> None:
        """Have the workers forget the rows now, and what was made of them; they are placed anew when they are needed.

        This happens by itself when nobody uses the rows any more, but the traceback of a failure may hold them.
        """
        self.rows.root.release()
        self.stored_rows.release()
        self._renew()

    def _renew(self) -> None:
        """Derive the rows anew from the sources, seen through the columns."""
        self.rows: Partitions = SourcePartitions(self.runner, self.stored_rows.place)
        for columns in self._columns:
            self.rows = self.rows.then(work.seen_through, columns)

    def _agree(self, facts: list[work.Facts]) -> list[work.Facts]:
        """Make a code mean the same level in all partitions; each partition of a frame was read by itself."""
        known = [part.encoding for part in facts]
        if all(encoding is None for encoding in known):
            return facts
        whole = Encoding.concatenate(known, facts[0].feature_names)
        if whole is None:
            return facts
        whole = self._without_titles(whole)
        if all(encoding == whole for encoding in known):
            return facts
        self.stored_rows.encode(whole)
        self._renew()
        return self._survey()

    def _without_titles(self, whole: Encoding) -> Encoding:
        """Leave out a frame's columns of text that are titles or ids; for files this is done before they are read."""
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

    def _survey(self) -> list[work.Facts]:
        """Look at every partition; those without rows are left out from now on."""
        try:
            surveyed = self.rows.each(work.facts_of)
        except ToprankError:
            raise
        except Exception:
            self.stored_rows.check_frames()
            raise
        if None in surveyed:
            kept = zip(self.stored_rows.kept, surveyed, strict=True)
            self.stored_rows.kept = [number for number, part in kept if part is not None]
            self._renew()
        facts = [part for part in surveyed if part is not None]
        if not facts:
            raise DataError("There are no documents: no partition has any rows.")
        _check_alike(facts)
        return facts

    # ---- what rankers ask for ----

    def standardization(self, threads: int | None) -> Standardization:
        """Return the standardization, from sums over the partitions."""
        parts = self.rows.each(work.moments_of, self.facts[0].first, threads or 1)
        return Standardization.from_moments(Moments.joined(parts), self.feature_names)

    @override
    def target_encodings(self, valid: Any, asked: EncodedCategories, seed: int) -> TargetEncodings:
        if asked != "auto":
            raise DataError(
                "Means of levels are learned in memory, not on a cluster: a partition does not know the others' folds. "
                "Train with target_encoding='auto' or False there."
            )
        return TargetEncodings((), "nothing: the data lie on a cluster", {})

    @override
    def one_hot(self, encoding: Encoding, sparse: bool, means: tuple[TargetEncoding, ...] = ()) -> SeenColumns:
        counts = self.rows.total(work.level_counts, encoding)
        return SeenColumns.from_counts(encoding, counts, lambda: self.standardization(None).center, sparse, means)

    @override
    def widened(self, columns: SeenColumns, folds: int | None = None) -> Placed:
        if columns.means:
            raise DataError(
                "The model that training goes on from sees means of levels, which are not learned on a cluster. Train "
                "it with target_encoding=False, or go on in memory."
            )
        return self._seen_through(columns, columns.width, None)

    @override
    def translated(self, encoding: Encoding) -> Placed:
        return self._seen_through(encoding, self.n_features, None if encoding.is_plain else encoding)

    def _seen_through(self, columns: Encoding | SeenColumns, width: int, encoding: Encoding | None) -> Placed:
        view = copy(self)
        view._columns = (*self._columns, columns)
        view.n_features, view.feature_names, view.encoding = width, columns.names, encoding
        view._renew()
        view.facts = [part for part in view.rows.each(work.facts_of) if part is not None]
        return view

    @override
    def grades(self) -> tuple[FloatArray, FloatArray]:
        every = np.concatenate([part.grades for part in self.facts])
        values, places = np.unique(every, return_inverse=True)
        counts = np.zeros(len(values))
        np.add.at(counts, places.reshape(-1), np.concatenate([part.counts for part in self.facts]))
        if np.isinf(counts).any():
            raise DataError(
                f"There are more than {work.MOST_GRADES} distinct labels; these are no grades. Round them, or train a "
                "LinearRanker, or a TreeRanker with outputs='score'."
            )
        return values, counts / (self.whole().weight / self.n_queries)

    def whole(self) -> work.Whole:
        """Return what a partition must know about the others."""
        weight = sum(part.weight for part in self.facts)
        return work.Whole(weight, np.unique(np.concatenate([part.grades for part in self.facts])))

    def objective(
        self, scorer: Scorer, loss: Loss, standardization: Standardization, threads: int | None
    ) -> ClusterObjective:
        """See `Source.objective`.

        One thread works on a partition unless `threads` says more: a worker with several of Dask's threads takes
        several partitions at a time.
        """
        check_loss(loss, self.facts)
        whole = self.whole()
        parts = self.rows.then(work.part_objective, scorer, loss, standardization, whole, threads or 1)
        return ClusterObjective(parts, scorer.n_weights)

    @override
    def score_spread(self, standardization: Standardization, direction: FloatArray) -> float:
        n, total, _ = self.rows.total(work.score_sums, standardization, direction, 0.0)
        return float(np.sqrt(self.rows.total(work.score_sums, standardization, direction, total / n)[2] / n))

    @override
    def judge(self, metric: str | Measure, convention: str, threads: int | None) -> ScoreJudge:
        rules, measure = Convention.from_name(convention), parse(metric)
        top = max(self.rows.each(settled_top, rules.unjudged))

        def value(score: Score) -> float:
            parts = self.rows.each(
                part_values, score, [measure], rules, {"max_grade": top if top > 0 else None, "threads": threads or 1}
            )
            values = np.concatenate([part.by_metric[0] for part in parts])
            return float(np.nanmean(values)) if not np.isnan(values).all() else float("nan")

        def check() -> None:
            parts = self.rows.each(part_extremes, measure, rules, top if top > 0 else None)
            if all(part.level for part in parts):
                raise blind(str(metric), min(part.lowest for part in parts), max(part.highest for part in parts))

        return ScoreJudge(str(metric), measure, rules, value, check)

    def __repr__(self) -> str:
        return (
            f"Placed({len(self.facts)} partitions, {self.n_queries:,} queries, {self.n_documents:,} documents, "
            f"{self.n_features} features)"
        )


class ClusterObjective:
    """The mean loss over all queries, from sums over partitions; a solver cannot tell it from one in memory."""

    def __init__(self, parts: Partitions, n_weights: int) -> None:
        self.parts, self.n_weights = parts, n_weights

    def resampled(self, draw: int, weights: FloatArray) -> ClusterObjective:
        """See `RankingObjective.resampled`."""
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
        """Return the map v ↦ H v; what it needs is prepared on the workers and stays there."""
        prepared = self.parts.then(work.products, weights)

        def times(vector: FloatArray) -> FloatArray:
            result: FloatArray = prepared.total(work.product, vector)[0]
            return result

        return times


def _check_alike(facts: Sequence[work.Facts]) -> None:
    """Refuse partitions whose columns differ."""
    first = facts[0]
    for part in facts[1:]:
        where = f"{part.name} differs from {first.name}"
        if part.n_features != first.n_features:
            raise DataError(
                f"{where}: it has {part.n_features} features instead of {first.n_features}. Name the columns with "
                "features=[...], or give n_features= for text files whose trailing features are absent."
            )
        if len({part.first_feature_id, first.first_feature_id} - {None}) > 1:
            raise DataError(
                f"{where}: its first column is feature {part.first_feature_id} instead of {first.first_feature_id}. "
                "Give first_feature_id=0, and n_features=, for text files of which some never name feature 0."
            )
        if part.feature_names != first.feature_names:
            theirs, ours = part.feature_names or ("no names",), first.feature_names or ("no names",)
            other = next((a, b) for a, b in zip(theirs, ours, strict=False) if a != b)
            raise DataError(f"{where}: a feature is called '{other[0]}' instead of '{other[1]}'.")
        if part.sparse != first.sparse:
            raise DataError(f"{where}: one has sparse features and the other dense ones.")
        if part.qids.dtype.kind != first.qids.dtype.kind:
            raise DataError(f"{where}: query ids are whole numbers in one and text in the other.")
        if part.columns != first.columns:
            name = next(iter(set(part.columns) ^ set(first.columns)))
            raise DataError(
                f"{where}: {name} are there in one and not in the other. Give them everywhere, or drop them."
            )


def _warn_of(moved: Sequence[Move]) -> None:
    """Warn that rows were moved: two queries with one id would have become one."""
    qids = np.unique(np.concatenate([move.qids for move in moved]))
    shown = ", ".join(str(qid) for qid in qids[:3].tolist()) + (" …" if len(qids) > 3 else "")
    warn_user(
        f"{count_of(len(qids), 'query')} ({shown}) had rows in several partitions; "
        f"{sum(move.n_documents for move in moved):,} rows were moved to bring them together. If the ids start again "
        "in every file, these are different queries: number them apart.",
        QueriesMovedWarning,
    )


def check_loss(loss: Loss, facts: Sequence[work.Facts]) -> None:
    """Refuse a loss whose value depends on how the data are cut into partitions."""
    from toprank.losses.boltzrank import BoltzRank
    from toprank.losses.listmle import PlackettLuce
    from toprank.losses.softmax import XENDCG

    for field in fields(loss):
        if isinstance(part := getattr(loss, field.name), Loss):  # a loss made of others
            check_loss(part, facts)
    name, drawn = type(loss).__name__, ""
    if isinstance(loss, XENDCG) and loss.gamma == "uniform":
        drawn, instead = "gamma='uniform'", "gamma=0.5, its expectation"
    if isinstance(loss, PlackettLuce) and loss.ties == "random":
        drawn, instead = "ties='random'", "ties='efron'"
    if drawn:
        raise DataError(
            f"{name} with {drawn} draws by the place of each document, which partitions do not know; use {instead}."
        )
    if isinstance(loss, BoltzRank):
        raise DataError(f"{name} draws rankings by the place of each query, which partitions do not know; use ListNet.")
    if getattr(loss, "scheme", "") == "grade" and any(np.isinf(part.counts).any() for part in facts):
        raise DataError(f"The weights of {name} need all distinct labels, but there are more than {work.MOST_GRADES}.")
