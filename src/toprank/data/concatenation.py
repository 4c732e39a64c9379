"""Concatenation of data sets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from toprank.compute import Array
from toprank.data.dataset import OPTIONAL, RankingData, check_files
from toprank.data.encoding import Encoding, listed
from toprank.data.metadata import NO_METADATA, Metadata
from toprank.data.queries import Queries, first_repeat
from toprank.errors import DataError, Remedy


def concatenate(parts: Sequence[RankingData]) -> RankingData:
    """Concatenate data sets in order.

    Optional columns must exist in all parts or in none, and all parts must have the same features. The source order of
    the result (see `RankingData.source_rows`) is that of the first part, followed by that of the second part, and so
    on.

    Raises:
        DataError: a query occurs in two parts, or the columns differ.
    """
    if not parts:
        raise DataError("concatenate got no data; give at least one data set.")
    if len(parts) == 1:
        return parts[0]
    for part in parts:
        check_files(part)
    named = [set[str](part.feature_names or ()) for part in parts]
    some = sorted(named[0].union(*named) - named[0].intersection(*named))
    if some and all(named):
        raise DataError(
            f"Not all parts have {'a column' if len(some) == 1 else 'columns'} {listed(some)}.",
            remedy=Remedy(
                "Read the others with the columns of the first: like=first.", "Give all parts the same columns."
            ),
        )
    widths = {part.n_features for part in parts}
    if len(widths) > 1:
        remedy = Remedy("Read them with {n_features}.", "Give all parts the same features.", n_features=...)
        raise DataError(f"The parts have different numbers of features: {sorted(widths)}.", remedy=remedy)
    if len({part.feature_names for part in parts}) > 1:
        raise DataError("The parts have different feature names; give all parts the same names, or none.")
    encoding = Encoding.concatenate([part.encoding for part in parts], parts[0].feature_names)
    firsts = {part.first_feature_id for part in parts} - {None}
    if len(firsts) > 1:
        alike = "read the text of all parts with first_feature_id=0 and the same n_features=."
        remedy = Remedy(alike, "read the text of all parts in one command.")
        raise DataError("The first column is feature 0 in some parts and feature 1 in others;", remedy=remedy)

    def concatenate_column(name: str) -> Array | None:
        arrays = [getattr(part, name) for part in parts]
        if all(array is None for array in arrays):
            return None
        if any(array is None for array in arrays):
            raise DataError(f"Some parts have {name} and others do not; give it to all parts or to none.")
        return np.concatenate(arrays)

    if any(part.is_sparse for part in parts):
        from scipy import sparse

        X: Any = sparse.vstack([sparse.csr_matrix(part.X) for part in parts], format="csr")
    else:
        X = np.concatenate(
            [part.X if encoding is None else encoding.translated(part.X, part.known_columns()) for part in parts]
        )
    kinds = {part.qids.dtype.kind for part in parts}
    qids = np.concatenate([part.qids if len(kinds) == 1 else part.qids.astype(str) for part in parts])
    repeated = first_repeat(qids)
    if repeated is not None:
        raise DataError(f"Query {qids[repeated]} occurs in two parts; put all of its documents into one part.")
    queries = Queries.from_sizes(np.concatenate([part.queries.sizes for part in parts]))
    none = all(part.metadata is NO_METADATA for part in parts)
    return RankingData._from_validated(
        X=X,
        queries=queries,
        qids=qids,
        **{name: concatenate_column(name) for name in ("labels", *OPTIONAL)},
        source_rows=_concatenate_sources(parts),
        source_index=_concatenate_indexes(parts),
        feature_names=parts[0].feature_names,
        first_feature_id=firsts.pop() if firsts else None,
        metadata=NO_METADATA
        if none
        else Metadata.concatenate([(part.metadata, part.queries) for part in parts], queries),
        encoding=encoding,
        roles=parts[0].roles if all(part.roles == parts[0].roles for part in parts) else None,
    )


def _concatenate_sources(parts: Sequence[RankingData]) -> Array | None:
    """Return the rows of the documents in the concatenated sources of the parts; None if no part was regrouped."""
    if all(part.source_rows is None for part in parts):
        return None
    starts = np.cumsum([0] + [part.n_documents for part in parts])
    return np.concatenate([start + part.source_places for start, part in zip(starts, parts, strict=False)])


def _concatenate_indexes(parts: Sequence[RankingData]) -> Any:
    """Return the joined pandas index of the parts; None if a part has no index."""
    indexes = [part.source_index for part in parts]
    return None if any(index is None for index in indexes) else indexes[0].append(indexes[1:])
