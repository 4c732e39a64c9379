"""`Parity`: what an exported file scores, beside what `predict` does, row by row and ranking by ranking."""

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
from toprank.exporters.formats import Prepared
from toprank.exporters.probe_rows import KINDS, MOST_ROWS, ProbeRows, probe_rows
from toprank.exporters.walking import SplitCounts
from toprank.rankers.formula import Formula

_BLOCK = 1 << 16  # rows scored at a time
_SOME = 2000  # rows of the data whose values probe rows are built around; each feature draws 256 of them
_TOGETHER = 10  # probe rows of a made-up query: a page of results
_ROUNDING = 1e-12  # scores so close are equal but for the order of sums: some thousand terms in double precision


class ProbeResult(NamedTuple):
    """What the comparison found on rows of one kind.

    Attributes:
        rankings_rounded: Rankings in which only documents within the tolerance of each other changed places.
        excluded: Whether the program that reads the file is known to treat such rows differently; totals leave them
            out.
    """

    kind: str
    rows: int
    largest: float
    rows_beyond: int
    rankings: int
    rankings_changed: int
    rankings_rounded: int
    excluded: bool


@dataclass(frozen=True, eq=False, repr=False)
class Parity(Record):
    """An exported file compared with `predict`, on rows of data and on rows made to catch mistakes.

    Differences are shares of the score (of 1, if its size is smaller). A ranking changes if two documents whose scores
    by `predict` differ by more than the tolerance change places or become equal; it is rounded if only documents with
    closer scores do.

    Attributes:
        interpreter: The program that scored the file.
        kinds: What was found on each kind of rows.
        caveats: What the user of the file must know, a sentence each.
        nodes: For a model with trees: the splits that rows were made for, that a row can come to, and that none can.
        sampled: Whether splits or categories were drawn because there are more than rows may meet (`MOST_ROWS`).
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
        "holds", "rows", "largest", "rows_beyond", "rankings", "rankings_changed", "rankings_rounded",
    )  # fmt: skip

    def _sum(self, name: str) -> int:
        return sum(getattr(kind, name) for kind in self.kinds if not kind.excluded)

    @property
    def rows(self) -> int:
        """Rows compared."""
        return self._sum("rows")

    @property
    def largest(self) -> float:
        """The largest difference."""
        return max((kind.largest for kind in self.kinds if not kind.excluded), default=0.0)

    @property
    def rows_beyond(self) -> int:
        """Rows whose difference is beyond the tolerance."""
        return self._sum("rows_beyond")

    @property
    def rankings(self) -> int:
        """Rankings compared: the queries of the data, and probe rows by tens."""
        return self._sum("rankings")

    @property
    def rankings_changed(self) -> int:
        """Rankings with another order of documents whose scores differ by more than the tolerance."""
        return self._sum("rankings_changed")

    @property
    def rankings_rounded(self) -> int:
        """Rankings in which only documents with scores closer than that have another order."""
        return self._sum("rankings_rounded")

    @property
    def holds(self) -> bool:
        """Whether rows were compared, none is beyond the tolerance, and no ranking changed."""
        return self.rows > 0 and self.rows_beyond == 0 and self.rankings_changed == 0

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON: the totals, the kinds of rows by name, and how many splits rows stand at."""
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
                f"{k.rows:,}", f"{k.largest:.2g}", f"{k.rows_beyond:,}", f"{k.rankings:,}", f"{k.rankings_changed:,}",
                f"{k.rankings_rounded:,}",
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
            f"difference {self.largest:.2g}, {self.rows_beyond:,} rows beyond {self.tolerance:g}; "
            f"{self.rankings_changed:,} of {self.rankings:,} rankings changed"
        )
        rounded = self.rankings_rounded
        text += f", {rounded:,} by documents closer than that." if rounded else "."
        if self.nodes is None:
            return text
        met, reachable, unreachable = self.nodes
        text += f" Rows stand at {met:,} of the {reachable:,} splits that a row can come to"
        text += f" ({unreachable:,} more cannot be reached)." if unreachable else "."
        if self.sampled:
            text += f" They were drawn: there are more splits and categories than {MOST_ROWS:,} rows can meet."
        return text


class ComparedRows(NamedTuple):
    """Rows to compare, the kind of each, the rankings that they make up, and their scores by `predict`.

    Attributes:
        data_rows: Rows of data as the data hold them: an array of any type, or sparse.
    """

    data_rows: Any
    probes: FloatArray
    kinds: npt.NDArray[np.str_]
    queries: Queries
    expected: FloatArray
    nodes: SplitCounts | None
    sampled: bool

    def blocks(self) -> Iterator[FloatArray]:
        """Yield all rows in double precision, some at a time: the data may be large."""
        for first in range(0, self.data_rows.shape[0], _BLOCK):
            yield dense_rows(self.data_rows[first : first + _BLOCK])
        yield self.probes

    def take(self, places: IntArray) -> FloatArray:
        """Return the rows with these numbers."""
        n = self.data_rows.shape[0]
        return np.concatenate([dense_rows(self.data_rows[places[places < n]]), self.probes[places[places >= n] - n]])


def rows_to_compare(ranker: Any, prepared: Prepared, data: RankingData | None) -> ComparedRows:
    """Return the rows of the data, if any, and probe rows of the formula, scored by the ranker's own `predict`."""
    formula = prepared.formula
    data_rows: Any = np.zeros((0, formula.n_features))
    sizes, expected = np.zeros(0, dtype=np.int64), np.zeros(0)
    if data is not None:
        data = data.without_source_order()
        data_rows, sizes, expected = ranker.translated(data).X, np.asarray(data.queries.sizes), ranker.predict(data)
    probes = probe_rows(formula, _spread(data_rows), single=prepared.single, tiny=prepared.tiny)
    if prepared.texts:
        kinds = np.where(probes.kinds == "negative", "categories", probes.kinds)  # no text is between two codes
        probes = probes._replace(X=_of_levels(probes.X, formula), kinds=kinds)
    probes, scores = _scored(ranker, probes)
    counts = [np.diff(np.append(np.arange(0, n, _TOGETHER), n)) for n in _runs(probes.kinds)]
    queries = Queries(offsets_of(np.concatenate([sizes, *counts])))
    kinds = np.concatenate([np.full(data_rows.shape[0], "data"), probes.kinds])
    nodes = probes.nodes if sum(probes.nodes) else None
    return ComparedRows(data_rows, probes.X, kinds, queries, np.concatenate([expected, scores]), nodes, probes.sampled)


def _of_levels(X: FloatArray, formula: Formula) -> FloatArray:
    """Return rows in which a category of a table is one of its levels, or missing: no text says anything else."""
    X = X.copy()
    for name, levels in formula.levels.items():
        place = formula.features.index(name)
        X[codes_of(X[:, place], len(levels)) < 0, place] = np.nan
    return X


def _spread(rows: Any) -> FloatArray | None:
    """Return rows from all over the data, for their values."""
    n = rows.shape[0]
    return dense_rows(rows[:: max(1, n // _SOME)]) if n else None


def _runs(kinds: npt.NDArray[np.str_]) -> list[int]:
    """Return the length of each run of rows of the same kind."""
    ends = np.flatnonzero(np.append(kinds[1:] != kinds[:-1], True)) + 1
    return np.diff(np.concatenate([[0], ends])).tolist() if len(kinds) else []


def _scored(ranker: Any, probes: ProbeRows) -> tuple[ProbeRows, FloatArray]:
    """Return the probe rows and their scores, without kinds of rows that the ranker itself refuses."""
    for refused in (), ("huge",), ("large", "huge"), ("missing",), ("large", "huge", "missing"):
        taken = ~np.isin(probes.kinds, refused)
        rest = probes._replace(X=probes.X[taken], kinds=probes.kinds[taken])
        with suppress(ValueError):  # ours, or that of a wrapped estimator
            return rest, _predicted(ranker, rest.X)
    return probes, _predicted(ranker, probes.X)


def _predicted(ranker: Any, X: FloatArray) -> FloatArray:
    names = getattr(ranker, "feature_names_in_", None)
    feature_names = None if names is None else list(names)
    return np.asarray(ranker.predict(RankingData(X, feature_names=feature_names, encoding=ranker.encoding_)))


def compared(format: str, prepared: Prepared, path: Path, rows: ComparedRows) -> Parity:
    """Score the file at a path and compare.

    Raises:
        DataError: the file gives another number of scores.
    """
    tolerance = prepared.tolerance
    if prepared.score is None:
        return Parity(format, prepared.interpreter, tolerance, (), prepared.remarks)
    features = prepared.formula.features
    parts = [np.asarray(prepared.score(path, block, features), dtype=np.float64) for block in rows.blocks()]
    scores = np.concatenate(parts) + prepared.constant
    if scores.shape != rows.expected.shape:
        raise DataError(f"The exported file gave {scores.shape} scores for {len(rows.expected)} rows.")
    with np.errstate(invalid="ignore"):
        difference = np.abs(scores - rows.expected) / np.maximum(1.0, np.abs(rows.expected))
    # a score that is no number, or infinite on both sides, agrees with nothing
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
    expected: FloatArray, scores: FloatArray, queries: Queries, tolerance: float = _ROUNDING
) -> npt.NDArray[np.bool_]:
    """Tell for each query whether a document that was better by more than the tolerance no longer is.

    >>> changed_rankings(np.array([3.0, 2.0, 1.0, 1.0]), np.array([3.0, 3.5, 1.0, 1.5]), Queries([0, 2, 4])).tolist()
    [True, False]
    """
    changed = np.zeros(len(queries), dtype=bool)
    for q in range(len(queries)):
        rows = slice(queries.offsets[q], queries.offsets[q + 1])
        order = np.argsort(-expected[rows], kind="stable")
        before, after = expected[rows][order], scores[rows][order]
        # the worst new score of those that were better than each
        better = np.searchsorted(-before, -(before + tolerance * np.maximum(1.0, np.abs(before))), side="left")
        worst = np.append(np.inf, np.minimum.accumulate(after))
        changed[q] = not (worst[better] > after).all()
    return changed
