"""The input columns of a ranker, if these are not the features themselves.

Numbers come first, unchanged, and so do categories whose codes a ranker accepts. Every other category becomes one-hot
columns or target encodings (`toprank.rankers.target_encoding`), which come last.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray, offsets_of
from toprank.data.encoding import MIN_CELLS, Column, Encoding, codes_of
from toprank.errors import DataError, refuse_if
from toprank.rankers.target_encoding import TargetEncoding

if TYPE_CHECKING:
    from toprank.rankers.base import Ranker
    from toprank.rankers.source import Source

_MAX_DENSE = 128  # columns of a dense matrix, if it may be sparse: 512 bytes per row in float32
TABLE = "target_encoding_"  # followed by a number: the names of the tables in a model file

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class SeenColumns:
    """Unchanged features, one-hot columns for category levels, and target encodings.

    Each level with enough documents has a one-hot column, and all other levels of a category share one. A missing
    value, or an unknown level, has zeros in all columns of its category, and 0 as its target encoding. Many columns are
    stored sparse; the numbers among them are then centered here, because sparse features are not centered later.
    """

    encoding: Encoding
    kept: tuple[tuple[int, ...], ...]
    """For each category, the codes of the levels with a column of their own; () for categories without one-hot
    columns.
    """
    center: tuple[float, ...] | None = None
    """For sparse columns, the values subtracted from the numeric columns, with 0 for missing values; else None."""
    means: tuple[TargetEncoding, ...] = ()
    """Target encodings; a category with its own encoding has no other columns."""
    by_code: bool = False
    """Whether the other categories stay unchanged."""

    @classmethod
    def from_counts(
        cls,
        encoding: Encoding,
        counts: Sequence[FloatArray],
        means: Callable[[], Array],
        sparse: bool,
        encodings: tuple[TargetEncoding, ...] = (),
    ) -> Self:
        """Choose the columns by the number of documents of each level.

        Args:
            encoding: the types of the features.
            counts: for each category, the number of documents of each level.
            means: function that returns the means of the columns of X, for centering sparse columns.
            sparse: whether the columns may be sparse.
            encodings: the target encodings to use.
        """
        with_mean = _with_mean(encodings)
        kept = tuple(
            () if place in with_mean else tuple(np.flatnonzero(counted >= MIN_CELLS).tolist())
            for place, counted in zip(encoding.categories, counts, strict=True)
        )
        dense = cls(encoding, kept, means=encodings)
        if not sparse or dense.width <= _MAX_DENSE:
            return dense
        return cls(encoding, kept, tuple(np.nan_to_num(means()[dense.unchanged]).tolist()), encodings)

    @classmethod
    def from_codes(cls, encoding: Encoding, encodings: tuple[TargetEncoding, ...]) -> Self:
        """Add target encodings to features that stay unchanged, including the codes of other categories."""
        return cls(encoding, ((),) * len(encoding.categories), means=encodings, by_code=True)

    @cached_property
    def unchanged(self) -> list[int]:
        """The columns of X that stay unchanged."""
        gone = _with_mean(self.means) if self.by_code else set(self.encoding.categories)
        return [place for place in range(len(self.encoding.columns)) if place not in gone]

    @cached_property
    def _blocks(self) -> list[tuple[int, Array]]:
        """For each one-hot category, its column of X and the column of each level here; −1 at the end, for unknown
        codes.
        """
        first, blocks, with_mean = len(self.unchanged), [], _with_mean(self.means)
        for place, kept in zip(self.encoding.categories, self.kept, strict=True):
            if self.by_code or place in with_mean:
                continue
            size = len(self.encoding.columns[place].levels)
            where = np.full(size + 1, first + len(kept))
            where[list(kept)] = first + np.arange(len(kept))
            where[-1] = -1
            blocks.append((place, where))
            first += len(kept) + (len(kept) < size)
        return blocks

    def places(self) -> list[tuple[int, npt.NDArray[np.int64]]]:
        """Return, for each one-hot category, its column of X and the column of each of its codes here."""
        return [(place, where[:-1].astype(np.int64)) for place, where in self._blocks]

    @cached_property
    def _first_mean(self) -> int:
        """The first column with a target encoding."""
        return max([len(self.unchanged) - 1, *(int(where.max()) for _, where in self._blocks)]) + 1

    @property
    def width(self) -> int:
        """Number of columns."""
        return self._first_mean + len(self.means)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns: ``price``, then ``brand=acme`` …, ``brand=(other)``, then ``mean(seller)`` …"""
        names = [self.encoding.names[place] for place in self.unchanged]
        kept = dict(zip(self.encoding.categories, self.kept, strict=True))
        for place, where in self._blocks:
            column = self.encoding.columns[place]
            names += [f"{column.name}={column.levels[code]}" for code in kept[place]]
            names += [f"{column.name}=(other)"] if len(kept[place]) < len(where) - 1 else []
        return (*names, *(mean.name(self.encoding) for mean in self.means))

    @property
    def names_of_means(self) -> list[list[str]]:
        """The categories of each target encoding."""
        return [[self.encoding.names[place] for place in mean.places] for mean in self.means]

    @property
    def seen_encoding(self) -> Encoding | None:
        """The encoding of the columns; None unless some of them are category codes."""
        known = {self.encoding.names[place]: self.encoding.columns[place] for place in self.unchanged}
        encoding = Encoding(tuple(known.get(name, Column(name)) for name in self.names))
        return encoding if encoding.categories else None

    @property
    def is_additive(self) -> bool:
        """True if no column depends on two features."""
        return all(len(mean.places) == 1 for mean in self.means)

    def by_feature(self, values: FloatArray) -> FloatArray:
        """Sum values of the columns for each column of X; the value of a pair of categories is split in half."""
        sums = np.zeros(len(self.encoding.columns))
        sums[self.unchanged] = values[: len(self.unchanged)]
        for place, where in self._blocks:
            sums[place] = values[np.unique(where[where >= 0])].sum()
        for value, mean in zip(values[self._first_mean :], self.means, strict=True):
            for place in mean.places:
                sums[place] += value / len(mean.places)
        return sums

    def by_column(self, values: Sequence[int]) -> list[int]:
        """Return the values of the unchanged features, and 0 for all other columns."""
        return [*(values[place] for place in self.unchanged), *([0] * (self.width - len(self.unchanged)))]

    def columns(self, X: Any, means: FloatArray | None = None) -> Any:
        """Return the columns for rows of codes, as an array or CSR matrix; in training, `means` are out-of-fold
        encodings.
        """
        if means is None:
            means = np.array([mean.transform(X) for mean in self.means]).T.reshape(len(X), len(self.means))
        if self.center is not None:
            return self._sparse(X, means)
        out = np.zeros((len(X), self.width), dtype=X.dtype)
        out[:, : len(self.unchanged)] = X[:, self.unchanged]
        for place, where in self._blocks:
            target = where[codes_of(X[:, place], len(where) - 1)]
            rows = np.flatnonzero(target >= 0)
            out[rows, target[rows]] = 1.0
        out[:, self._first_mean :] = means
        return out

    def _sparse(self, X: Any, means: FloatArray) -> Any:
        from scipy import sparse

        n, width = len(X), len(self.unchanged)
        centered = np.nan_to_num(
            X[:, self.unchanged].astype(np.float64) - np.array(self.center), posinf=np.inf, neginf=-np.inf
        )
        columns = [np.tile(np.arange(width), (n, 1))]
        columns += [where[codes_of(X[:, place], len(where) - 1)][:, None] for place, where in self._blocks]
        columns += [np.tile(np.arange(self._first_mean, self.width), (n, 1))]
        indices = np.concatenate(columns, axis=1)
        values = np.concatenate([centered, np.ones((n, len(self._blocks))), means], axis=1)
        present = indices >= 0
        starts = offsets_of(present.sum(axis=1))
        return sparse.csr_matrix((values[present], indices[present], starts), shape=(n, self.width))

    # ---- files ----

    def plain(self) -> dict[str, Any]:
        """Return the description in JSON types, without the encoding and `arrays`."""
        described: dict[str, Any] = {
            "kept": [list(kept) for kept in self.kept],
            "center": None if self.center is None else list(self.center),
        }
        return described | ({"means": [mean.plain() for mean in self.means]} if self.means else {})

    def arrays(self) -> dict[str, Array]:
        """Return the tables of the target encodings by their names in a file."""
        return {f"{TABLE}{number}": mean.table for number, mean in enumerate(self.means)}

    @staticmethod
    def tables(arrays: Collection[str]) -> list[str]:
        """Return the names of the target-encoding tables among the arrays of a file."""
        return [name for number, _ in enumerate(arrays) if (name := f"{TABLE}{number}") in arrays]

    @classmethod
    def from_plain(
        cls, encoding: Encoding, value: Any, tables: Sequence[Array] = (), by_code: bool = False
    ) -> SeenColumns:
        """Read the output of `plain`, which may be damaged, and the tables of target encodings."""
        try:
            kept = tuple(tuple(int(code) for code in codes) for codes in value["kept"])
            center = None if value["center"] is None else tuple(float(number) for number in value["center"])
            sizes = [len(encoding.columns[place].levels) for place in encoding.categories]
            fits = all(
                list(codes) == sorted(set(codes) & set(range(size))) for codes, size in zip(kept, sizes, strict=True)
            )
            numbers = len(encoding.columns) - len(sizes)
            if not fits or (center is not None and (len(center) != numbers or not np.isfinite(center).all())):
                raise ValueError(kept)
        except (TypeError, ValueError, KeyError):
            raise DataError("the columns of the categories do not match their levels") from None
        entries = value.get("means", [])
        if not isinstance(entries, list) or len(entries) != len(tables):
            raise DataError("the target encodings do not match their tables")
        means = tuple(
            TargetEncoding.from_plain(encoding, entry, table) for entry, table in zip(entries, tables, strict=True)
        )
        refuse_if(len({mean.places for mean in means}) < len(means), "a target encoding is described twice")
        unkept = encoding.categories if by_code else _with_mean(means)
        refuse_if(
            any(codes for place, codes in zip(encoding.categories, kept, strict=True) if place in unkept),
            "a category has both a target encoding and one-hot columns",
        )
        refuse_if(
            by_code and (center is not None or not means),
            "the columns of the categories do not match a ranker that supports category codes",
        )
        return cls(encoding, kept, center, means, by_code)


def _with_mean(means: Sequence[TargetEncoding]) -> set[int]:
    """Return the categories with their own target encoding."""
    return {mean.places[0] for mean in means if len(mean.places) == 1}


def choose_columns(ranker: Ranker, encoding: Encoding, source: Source, valid: Any) -> SeenColumns | None:
    """Return the input columns, or None for the features themselves."""
    before = getattr(ranker, "init_model", None)  # training continues with its columns
    columns_before: SeenColumns | None = getattr(before, "columns_", None)
    goes_on = before is not None and getattr(before, "encoding_", None) == encoding
    wanted = ranker.categories_to_encode()
    if goes_on:
        wanted = [] if columns_before is None else columns_before.names_of_means
    means: tuple[TargetEncoding, ...] = ()
    if wanted is not False and wanted != []:
        learned = source.target_encodings(valid, wanted, ranker.encoding_seed)
        means = learned.tables
        if means or learned.z_scores:
            ranker.training_["target_encoding"] = learned.plain(encoding)
    if goes_on:  # tables are fitted on the present data only
        return None if columns_before is None else replace(columns_before, means=means)
    if not ranker.supports_categories:
        return source.one_hot(encoding, ranker.supports_sparse, means)
    return SeenColumns.from_codes(encoding, means) if means else None
