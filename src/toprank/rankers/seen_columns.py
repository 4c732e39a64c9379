"""The columns that a ranker is trained on, if these are not the features themselves.

Numbers stay as they are and come first, and so do categories whose codes a ranker takes. Any other category becomes
columns of zeros and ones, or the means of its levels (`toprank.rankers.target_encoding`), which come last.
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

_DENSE = 128  # columns of a one-hot matrix at most, where it may be sparse: 512 bytes a row in float32
TABLE = "target_encoding_"  # and its number: what a table is called among the arrays of a model's file

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class SeenColumns:
    """The features that stay as they are, zeros and ones for levels, and means of levels.

    A column of zeros and ones stands for each level that enough documents had, and one for all other levels of a
    category. A missing value, or a level that was not seen, has a zero in all columns of its category, and 0 as its
    mean. Where that makes many columns, they are sparse, and the numbers beside them, which sparse features are not
    centered for, are centered here.
    """

    encoding: Encoding
    kept: tuple[tuple[int, ...], ...]
    """For each category, the codes of the levels with a column of their own; () where it has no such columns."""
    center: tuple[float, ...] | None = None
    """Where the columns are sparse, what is subtracted from each column that is no category; missing values are 0."""
    means: tuple[TargetEncoding, ...] = ()
    """A category with a mean of its own is seen by that alone."""
    by_code: bool = False
    """Whether the other categories stay as they are."""

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
            encoding: what the features are.
            counts: for each category, the documents of each level.
            means: returns the means of the columns of X, by which sparse columns are centered.
            sparse: whether the columns may be sparse.
            encodings: the means of levels that are used.
        """
        with_mean = _with_mean(encodings)
        kept = tuple(
            () if place in with_mean else tuple(np.flatnonzero(counted >= MIN_CELLS).tolist())
            for place, counted in zip(encoding.categories, counts, strict=True)
        )
        dense = cls(encoding, kept, means=encodings)
        if not sparse or dense.width <= _DENSE:
            return dense
        return cls(encoding, kept, tuple(np.nan_to_num(means()[dense.unchanged]).tolist()), encodings)

    @classmethod
    def from_codes(cls, encoding: Encoding, encodings: tuple[TargetEncoding, ...]) -> Self:
        """Means beside features that stay as they are, codes of other categories too."""
        return cls(encoding, ((),) * len(encoding.categories), means=encodings, by_code=True)

    @cached_property
    def unchanged(self) -> list[int]:
        """The columns of X that stay as they are."""
        gone = _with_mean(self.means) if self.by_code else set(self.encoding.categories)
        return [place for place in range(len(self.encoding.columns)) if place not in gone]

    @cached_property
    def _blocks(self) -> list[tuple[int, Array]]:
        """For each category its column of X, and the column here of each level; −1 at the end, for none."""
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
        """For each category with zeros and ones its column of X, and the column here of each of its codes."""
        return [(place, where[:-1].astype(np.int64)) for place, where in self._blocks]

    @cached_property
    def _first_mean(self) -> int:
        """The first column that is a mean."""
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
        """The categories of each mean."""
        return [[self.encoding.names[place] for place in mean.places] for mean in self.means]

    @property
    def seen_encoding(self) -> Encoding | None:
        """The encoding of the columns; None unless some of them are codes of categories."""
        known = {self.encoding.names[place]: self.encoding.columns[place] for place in self.unchanged}
        encoding = Encoding(tuple(known.get(name, Column(name)) for name in self.names))
        return encoding if encoding.categories else None

    @property
    def is_additive(self) -> bool:
        """Whether no column depends on two features."""
        return all(len(mean.places) == 1 for mean in self.means)

    def by_feature(self, values: FloatArray) -> FloatArray:
        """Values of the columns, added up for each column of X; a pair of categories shares its value by halves."""
        sums = np.zeros(len(self.encoding.columns))
        sums[self.unchanged] = values[: len(self.unchanged)]
        for place, where in self._blocks:
            sums[place] = values[np.unique(where[where >= 0])].sum()
        for value, mean in zip(values[self._first_mean :], self.means, strict=True):
            for place in mean.places:
                sums[place] += value / len(mean.places)
        return sums

    def by_column(self, values: Sequence[int]) -> list[int]:
        """Values of the features that stay as they are, and 0 for all other columns."""
        return [*(values[place] for place in self.unchanged), *([0] * (self.width - len(self.unchanged)))]

    def columns(self, X: Any, means: FloatArray | None = None) -> Any:
        """The columns for rows of codes: an array, or a CSR matrix; in training `means` are those out of fold."""
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
        """As JSON can hold it, beside the encoding and `arrays`."""
        described: dict[str, Any] = {
            "kept": [list(kept) for kept in self.kept],
            "center": None if self.center is None else list(self.center),
        }
        return described | ({"means": [mean.plain() for mean in self.means]} if self.means else {})

    def arrays(self) -> dict[str, Array]:
        """The tables of means, by what a file calls them."""
        return {f"{TABLE}{number}": mean.table for number, mean in enumerate(self.means)}

    @staticmethod
    def tables(arrays: Collection[str]) -> list[str]:
        """What the tables among the arrays of a file are called."""
        return [name for number, _ in enumerate(arrays) if (name := f"{TABLE}{number}") in arrays]

    @classmethod
    def from_plain(
        cls, encoding: Encoding, value: Any, tables: Sequence[Array] = (), by_code: bool = False
    ) -> SeenColumns:
        """Read what `plain` wrote, which may be damaged, and the tables of means."""
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
            raise DataError("the columns of the categories do not fit their levels") from None
        entries = value.get("means", [])
        if not isinstance(entries, list) or len(entries) != len(tables):
            raise DataError("the means of levels do not fit their tables")
        means = tuple(
            TargetEncoding.from_plain(encoding, entry, table) for entry, table in zip(entries, tables, strict=True)
        )
        refuse_if(len({mean.places for mean in means}) < len(means), "the means of levels are described twice")
        unkept = encoding.categories if by_code else _with_mean(means)
        refuse_if(
            any(codes for place, codes in zip(encoding.categories, kept, strict=True) if place in unkept),
            "a category has both its mean and columns of its levels",
        )
        refuse_if(
            by_code and (center is not None or not means),
            "the columns of the categories are not those of a ranker that takes their codes",
        )
        return cls(encoding, kept, center, means, by_code)


def _with_mean(means: Sequence[TargetEncoding]) -> set[int]:
    """The categories that have a mean of their own."""
    return {mean.places[0] for mean in means if len(mean.places) == 1}


def choose_columns(ranker: Ranker, encoding: Encoding, source: Source, valid: Any) -> SeenColumns | None:
    """Return the columns to learn from, or None for the features as they are."""
    before = getattr(ranker, "init_model", None)  # whose columns are those to go on with
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
    if goes_on:  # tables are those of the data at hand, which the model before may have seen in part
        return None if columns_before is None else replace(columns_before, means=means)
    if not ranker.supports_categories:
        return source.one_hot(encoding, ranker.supports_sparse, means)
    return SeenColumns.from_codes(encoding, means) if means else None
