"""`Parity`: comparison of an exported file's scores with `predict`, by row and by ranking."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from toprank.compute import FloatArray, IntArray, offsets_of
from toprank.data.dataset import RankingData, dense_rows
from toprank.data.encoding import codes_of
from toprank.data.queries import Queries
from toprank.display.record import Record, columns_of
from toprank.display.tables import Table
from toprank.errors import DataError
from toprank.exporters.formats import PreparedModel
from toprank.exporters.probe_rows import KINDS, MAX_SPLIT_ROWS, ProbeRows, probe_rows
from toprank.exporters.split_probes import SplitCounts
from toprank.rankers.formula import Formula

_BLOCK_ROWS = 1 << 16  # rows scored at a time
_MAX_DATA_ROWS = 2000  # rows of the data that probe rows draw values from; each feature draws 256 of them
_PROBES_PER_QUERY = 10  # probe rows per generated query: a page of results
# Scores this close differ by the order of sums only: a few thousand terms in double precision.
_ROUNDING_TOLERANCE = 1e-12


class ProbeResult(NamedTuple):
    """Result of the comparison on rows of one kind.

    Attributes:
        near_ties_reordered: Number of rankings in which only documents within the tolerance of each other changed
            order.
        excluded: True if the program that reads the file is known to treat such rows differently; totals omit them.
    """

    kind: str
    rows: int
    max_difference: float
    n_mismatches: int
    rankings: int
    rankings_changed: int
    near_ties_reordered: int
    excluded: bool


@dataclass(frozen=True, eq=False, repr=False)
class Parity(Record):
    """Comparison of an exported file with `predict`, on rows of data and on generated rows.

    Differences are relative to the score (to 1, if the score is smaller). A ranking counts as changed if two documents
    whose scores by `predict` differ by more than the tolerance swap or become equal; it counts as a reordered near tie
    if only documents with closer scores do.

    Attributes:
        interpreter: The program that scored the file.
        kinds: Result for each kind of rows.
        caveats: Notes for the user of the file, one sentence each.
        nodes: Coverage of the splits of the trees: covered by generated rows, reachable, and unreachable. None without
            trees.
        sampled: True if only a sample of splits and categories was tested, because of the row limit (`MAX_SPLIT_ROWS`).
    """

    format: str
    interpreter: str
    tolerance: float
    kinds: tuple[ProbeResult, ...]
    caveats: tuple[str, ...] = ()
    nodes: SplitCounts | None = None
    sampled: bool = False

    json_hidden = frozenset({"sampled"})
    json_properties = (
        "passed", "rows", "max_difference", "n_mismatches", "rankings", "rankings_changed", "near_ties_reordered",
    )  # fmt: skip

    def _sum(self, name: str) -> int:
        return sum(getattr(kind, name) for kind in self.kinds if not kind.excluded)

    @property
    def rows(self) -> int:
        """Number of rows compared."""
        return self._sum("rows")

    @property
    def max_difference(self) -> float:
        """Largest difference."""
        return max((kind.max_difference for kind in self.kinds if not kind.excluded), default=0.0)

    @property
    def n_mismatches(self) -> int:
        """Number of rows whose difference exceeds the tolerance."""
        return self._sum("n_mismatches")

    @property
    def rankings(self) -> int:
        """Number of rankings compared: the queries of the data, and generated rows in groups of ten."""
        return self._sum("rankings")

    @property
    def rankings_changed(self) -> int:
        """Number of rankings with another order of documents whose scores differ by more than the tolerance."""
        return self._sum("rankings_changed")

    @property
    def near_ties_reordered(self) -> int:
        """Number of rankings in which only documents with closer scores changed order."""
        return self._sum("near_ties_reordered")

    @property
    def passed(self) -> bool:
        """True if rows were compared, none exceeds the tolerance, and no ranking changed."""
        return self.rows > 0 and self.n_mismatches == 0 and self.rankings_changed == 0

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON: the totals, the kinds of rows by name, and the coverage of splits."""
        kinds = {kind.kind: {k: v for k, v in kind._asdict().items() if k != "kind"} for kind in self.kinds}
        nodes = None if self.nodes is None else {**self.nodes._asdict(), "sampled": self.sampled}
        return super().to_dict() | {"kinds": kinds, "nodes": nodes}

    def _columns(self) -> dict[str, list[Any]]:
        return columns_of(self.kinds, ProbeResult._fields)

    @override
    def _parts(self) -> Sequence[Any]:
        if not self.kinds:
            return [self._result(), self.caveats]
        lines = [
            (
                KINDS[k.kind] + (" (excluded)" if k.excluded else ""),
                f"{k.rows:,}", f"{k.max_difference:.2g}", f"{k.n_mismatches:,}", f"{k.rankings:,}",
                f"{k.rankings_changed:,}", f"{k.near_ties_reordered:,}",
            )
            for k in self.kinds
        ]  # fmt: skip
        beyond = f"beyond {self.tolerance:g}"
        header = ("rows", "number", "largest difference", beyond, "rankings", "changed", "rounded")
        return [self._result(), Table(header, lines, names=1), self.caveats]

    def _result(self) -> str:
        if not self.kinds:
            return f"{self.format}: not checked, since there is no {self.interpreter} here to score it."
        text = (
            f"{self.format}, scored by {self.interpreter}: {self.rows:,} rows checked against predict, largest "
            f"difference {self.max_difference:.2g}, {self.n_mismatches:,} rows beyond {self.tolerance:g}; "
            f"{self.rankings_changed:,} of {self.rankings:,} rankings changed"
        )
        rounded = self.near_ties_reordered
        text += f", {rounded:,} by documents closer than that." if rounded else "."
        if self.nodes is None:
            return text
        covered, reachable, unreachable = self.nodes
        text += f" Generated rows cover {covered:,} of the {reachable:,} reachable splits"
        text += f" ({unreachable:,} more cannot be reached)." if unreachable else "."
        if self.sampled:
            text += f" This is a sample: there are more splits and categories than {MAX_SPLIT_ROWS:,} rows can cover."
        return text


class ComparedRows(NamedTuple):
    """Rows to compare, with their kinds, the rankings that they form, and their scores by `predict`.

    Attributes:
        data_rows: Rows of the data in their own representation: an array of any type, or sparse.
    """

    data_rows: Any
    probes: FloatArray
    kinds: npt.NDArray[np.str_]
    queries: Queries
    expected: FloatArray
    nodes: SplitCounts | None
    sampled: bool

    def blocks(self) -> Iterator[FloatArray]:
        """Yield all rows in double precision, in blocks, since the data may be large."""
        for first in range(0, self.data_rows.shape[0], _BLOCK_ROWS):
            yield dense_rows(self.data_rows[first : first + _BLOCK_ROWS])
        yield self.probes

    def take(self, places: IntArray) -> FloatArray:
        """Return the rows with these numbers."""
        n = self.data_rows.shape[0]
        return np.concatenate([dense_rows(self.data_rows[places[places < n]]), self.probes[places[places >= n] - n]])


def rows_to_compare(ranker: Any, prepared: PreparedModel, data: RankingData | None) -> ComparedRows:
    """Return the rows of the data, if any, and generated probe rows, scored by the ranker's `predict`."""
    formula = prepared.formula
    data_rows: Any = np.zeros((0, formula.n_features))
    sizes, expected = np.zeros(0, dtype=np.int64), np.zeros(0)
    if data is not None:
        data = data.without_source_order()
        data_rows, sizes, expected = ranker.translated(data).X, np.asarray(data.queries.sizes), ranker.predict(data)
    probes = probe_rows(formula, _sample_rows(data_rows), single=prepared.single, tiny=prepared.tiny)
    if prepared.texts:
        # no text corresponds to a fractional code
        kinds = np.where(probes.kinds == "negative", "categories", probes.kinds)
        probes = probes._replace(X=_valid_levels(probes.X, formula), kinds=kinds)
    probes, scores = _score_probes(ranker, probes)
    counts = [np.diff(np.append(np.arange(0, n, _PROBES_PER_QUERY), n)) for n in _run_lengths(probes.kinds)]
    queries = Queries(offsets_of(np.concatenate([sizes, *counts])))
    kinds = np.concatenate([np.full(data_rows.shape[0], "data"), probes.kinds])
    nodes = probes.nodes if sum(probes.nodes) else None
    return ComparedRows(data_rows, probes.X, kinds, queries, np.concatenate([expected, scores]), nodes, probes.sampled)


def _valid_levels(X: FloatArray, formula: Formula) -> FloatArray:
    """Replace codes without a level by missing values, since no text represents them."""
    X = X.copy()
    for name, levels in formula.levels.items():
        place = formula.features.index(name)
        X[codes_of(X[:, place], len(levels)) < 0, place] = np.nan
    return X


def _sample_rows(rows: Any) -> FloatArray | None:
    """Return evenly spaced rows of the data, for their values."""
    n = rows.shape[0]
    return dense_rows(rows[:: max(1, n // _MAX_DATA_ROWS)]) if n else None


def _run_lengths(kinds: npt.NDArray[np.str_]) -> list[int]:
    """Return the length of each run of rows of the same kind."""
    ends = np.flatnonzero(np.append(kinds[1:] != kinds[:-1], True)) + 1
    return np.diff(np.concatenate([[0], ends])).tolist() if len(kinds) else []


def _score_probes(ranker: Any, probes: ProbeRows) -> tuple[ProbeRows, FloatArray]:
    """Return the probe rows and their scores, without the kinds of rows that the ranker rejects."""
    for refused in (), ("huge",), ("large", "huge"), ("missing",), ("large", "huge", "missing"):
        taken = ~np.isin(probes.kinds, refused)
        rest = probes._replace(X=probes.X[taken], kinds=probes.kinds[taken])
        with suppress(ValueError):  # raised by toprank or by a wrapped estimator
            return rest, _predict(ranker, rest.X)
    return probes, _predict(ranker, probes.X)


def _predict(ranker: Any, X: FloatArray) -> FloatArray:
    names = getattr(ranker, "feature_names_in_", None)
    feature_names = None if names is None else list(names)
    return np.asarray(ranker.predict(RankingData(X, feature_names=feature_names, encoding=ranker.encoding_)))


def measure_parity(format: str, prepared: PreparedModel, path: Path, rows: ComparedRows) -> Parity:
    """Score the file at a path and compare the scores with `predict`.

    Raises:
        DataError: the file returns another number of scores.
    """
    tolerance = prepared.tolerance
    if prepared.score is None:
        return Parity(format, prepared.interpreter, tolerance, (), prepared.remarks)
    features = prepared.formula.features
    parts = [np.asarray(prepared.score(path, block, features), dtype=np.float64) for block in rows.blocks()]
    scores = np.concatenate(parts) + prepared.constant
    if scores.shape != rows.expected.shape:
        raise DataError(f"The exported file returned {scores.shape} scores for {len(rows.expected)} rows.")
    with np.errstate(invalid="ignore"):
        difference = np.abs(scores - rows.expected) / np.maximum(1.0, np.abs(rows.expected))
    # A NaN score, or one that is infinite on both sides, matches nothing.
    difference = np.where(np.isnan(difference), np.inf, difference)
    changed = changed_rankings(rows.expected, scores, rows.queries, tolerance)
    rounded = changed_rankings(rows.expected, scores, rows.queries) & ~changed
    first = rows.kinds[rows.queries.offsets[:-1]]
    kinds = []
    for kind in KINDS:
        own, rankings = difference[rows.kinds == kind], first == kind
        if len(own):
            counts = (int(rankings.sum()), int(changed[rankings].sum()), int(rounded[rankings].sum()))
            beyond = int((own > tolerance).sum())
            kinds.append(ProbeResult(kind, len(own), float(own.max()), beyond, *counts, kind in prepared.excluded))
    return Parity(format, prepared.interpreter, tolerance, tuple(kinds), prepared.remarks, rows.nodes, rows.sampled)


def changed_rankings(
    expected: FloatArray, scores: FloatArray, queries: Queries, tolerance: float = _ROUNDING_TOLERANCE
) -> npt.NDArray[np.bool_]:
    """Return, for each query, whether a document that was better by more than the tolerance no longer is.

    >>> changed_rankings(np.array([3.0, 2.0, 1.0, 1.0]), np.array([3.0, 3.5, 1.0, 1.5]), Queries([0, 2, 4])).tolist()
    [True, False]
    """
    changed = np.zeros(len(queries), dtype=bool)
    for q in range(len(queries)):
        rows = slice(queries.offsets[q], queries.offsets[q + 1])
        order = np.argsort(-expected[rows], kind="stable")
        before, after = expected[rows][order], scores[rows][order]
        # Lowest new score among the documents that were better than each document.
        better = np.searchsorted(-before, -(before + tolerance * np.maximum(1.0, np.abs(before))), side="left")
        worst = np.append(np.inf, np.minimum.accumulate(after))
        changed[q] = not (worst[better] > after).all()
    return changed
