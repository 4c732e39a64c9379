"""The checks at the door of a comparison: systems by name, metrics and queries alike for all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations
from typing import Any

import numpy as np

from toprank.compute import FloatArray
from toprank.errors import DataError, UnknownNameError
from toprank.metrics.result import Evaluation, QueryValues, by_query
from toprank.significance.paired import column

__all__ = ["Columns", "Named", "check_scores", "columns_of", "named", "pairs_of", "rules_of"]

Named = Mapping[str, Any] | Iterable[tuple[str, Any]]
Columns = dict[str, dict[str, FloatArray]]

_UNNAMED = "Systems are compared by name: give a dictionary such as {'first': scores, 'second': other_scores}."


def pairs_of(names: tuple[str, ...], baseline: str | None) -> list[tuple[str, str]]:
    """Each system with the baseline, or all pairs."""
    if baseline is None:
        return list(combinations(names, 2))
    if baseline not in names:
        raise UnknownNameError("system", baseline, names)
    return [(name, baseline) for name in names if name != baseline]


def named(given: Named) -> dict[str, Any]:
    """Two or more systems with distinct names."""
    if not isinstance(given, Iterable):
        raise DataError(_UNNAMED)
    columns: dict[str, Any] = {}
    for pair in given.items() if isinstance(given, Mapping) else given:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise DataError(_UNNAMED)
        name, value = pair
        if not isinstance(name, str) or not name.strip():
            raise DataError(f"A system must have a name, a piece of text; {name!r} is none.")
        if name in columns:
            raise DataError(f"Two systems are called '{name}'; give them different names.")
        columns[name] = value
    if len(columns) < 2:
        raise DataError(f"A comparison needs at least two systems, not {len(columns)}.")
    return columns


def columns_of(per_query: Named) -> Columns:
    """The per-query values as arrays: the same metrics and the same queries, in one order, for every system."""
    given = {name: _values(of) for name, of in named(per_query).items()}
    first, reference = next(iter(given.items()))
    if not reference:
        raise DataError("There is no metric to compare; name at least one, such as 'ndcg@10'.")
    for name, of in given.items():
        if list(of) != list(reference):
            raise DataError(
                f"Systems '{first}' and '{name}' were evaluated with different metrics: "
                f"{', '.join(reference)} and {', '.join(of)}. Evaluate all with the same."
            )
    columns: Columns = {name: {} for name in given}
    for metric in reference:
        for name, values in by_query({name: of[metric] for name, of in given.items()}).items():
            columns[name][metric] = column(values, f"{metric} of system '{name}'")
    _check_lengths(columns)
    return columns


def _values(of: Any) -> dict[str, Any]:
    """Metric → values; where these are given by the ids of the queries, values that know them."""
    given = of.per_query if isinstance(of, Evaluation) else of
    return {
        metric: QueryValues.of(list(values.values()), list(values)) if isinstance(values, Mapping) else values
        for metric, values in given.items()
    }


def rules_of(systems: Mapping[str, Any]) -> tuple[str | None, frozenset[str]]:
    """The convention of the evaluations among the systems, and those of their metrics that are errors."""
    found = {name: of for name, of in systems.items() if isinstance(of, Evaluation)}
    if not found:
        return None, frozenset()
    first, one = next(iter(found.items()))
    for name, of in found.items():
        if of.convention != one.convention:
            raise DataError(
                f"System '{first}' was evaluated under {one.convention.name}, system '{name}' under "
                f"{of.convention.name}; evaluate both under the same convention."
            )
        if of.query_weights is not None:
            raise DataError(f"A comparison tests plain means over the queries; evaluate '{name}' without weights.")
    return one.convention.name, frozenset(name for name, of in one.measures.items() if not of.higher_is_better)


def _check_lengths(columns: Columns) -> None:
    first, reference = next(iter(columns.items()))
    length = len(next(iter(reference.values())))
    for name, of in columns.items():
        for metric, values in of.items():
            if values.shape != (length,):
                raise DataError(
                    f"{metric} of system '{name}' has shape {values.shape}, but system '{first}' has {length} queries; "
                    "all must be evaluated on the same queries, in the same order."
                )
            if np.isnan(values).all():
                raise DataError(f"{metric} is not defined on any query for system '{name}'; leave the metric out.")


def check_scores(name: str, scores: Any, n_documents: int) -> None:
    """Refuse a column of scores of a wrong length, saying whose it is."""
    try:
        size = np.size(scores)
    except ValueError:
        raise DataError(f"The scores of system '{name}' must be a plain list of numbers.") from None
    if size != n_documents:
        raise DataError(f"System '{name}' has {size:,} scores for {n_documents:,} documents; each needs one.")
