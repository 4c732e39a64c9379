"""Collection of evaluations by system into one table of `Values`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray
from toprank.data.query_values import QueryValues, by_query
from toprank.errors import DataError
from toprank.evaluation.result import Evaluation
from toprank.evaluation.values import Values
from toprank.significance.tests import column

Named = Mapping[str, Any] | Iterable[tuple[str, Any]]
PerQuery = Evaluation | Mapping[str, npt.ArrayLike | Mapping[str, float]]

_UNNAMED = "systems must map names to scores, such as {'first': scores, 'second': other_scores}."


def gathered(systems: Mapping[str, PerQuery]) -> Values:
    """Collect the evaluations of systems, or metric → one value per query, into one table.

    Evaluations, and values given as ``{query id: value}``, are joined by query id; plain lists must be in the same
    order.
    """
    columns = _columns(systems)
    evaluations = {name: system for name, system in systems.items() if isinstance(system, Evaluation)}
    convention, errors = _conventions(evaluations)
    first, metrics = next(iter(systems.values())), tuple(next(iter(columns.values())))
    evaluation = first if isinstance(first, Evaluation) else None
    return Values(
        systems=tuple(columns),
        metrics=metrics,
        table=np.array([[of[metric] for metric in metrics] for of in columns.values()]),
        units=np.empty(0, dtype=object) if evaluation is None else evaluation.qids,
        metadata=None if evaluation is None else evaluation.query_metadata,
        lower_is_better=errors,
        convention=convention,
    )


def named(systems: Named) -> dict[str, Any]:
    """Return the systems as a dictionary; raise an error for fewer than two or duplicate names."""
    if not isinstance(systems, Iterable):
        raise DataError(_UNNAMED)
    by_name: dict[str, Any] = {}
    for pair in systems.items() if isinstance(systems, Mapping) else systems:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise DataError(_UNNAMED)
        name, system = pair
        if not isinstance(name, str) or not name.strip():
            raise DataError(f"{name!r} is not a valid system name. Give a non-empty string.")
        if name in by_name:
            raise DataError(f"Two systems are called '{name}'. Give them different names.")
        by_name[name] = system
    if len(by_name) < 2:
        raise DataError(f"A comparison needs at least two systems, but {len(by_name)} was given.")
    return by_name


def _columns(by_name: Mapping[str, Any]) -> dict[str, dict[str, FloatArray]]:
    """Return per-query values as arrays, with the same metrics and queries in the same order for every system."""
    systems = {name: _per_query(system) for name, system in by_name.items()}
    first, reference = next(iter(systems.items()))
    if not reference:
        raise DataError("No metric was given. Name at least one, such as 'ndcg@10'.")
    for name, values_by_metric in systems.items():
        if list(values_by_metric) != list(reference):
            raise DataError(
                f"Systems '{first}' and '{name}' were evaluated with different metrics: "
                f"{', '.join(reference)} and {', '.join(values_by_metric)}. Evaluate all with the same."
            )
    columns: dict[str, dict[str, FloatArray]] = {name: {} for name in systems}
    for metric in reference:
        for name, values in by_query({name: by_metric[metric] for name, by_metric in systems.items()}).items():
            columns[name][metric] = column(values, f"{metric} of system '{name}'")
    _check_lengths(columns)
    return columns


def _per_query(system: Any) -> dict[str, Any]:
    """Return metric → values of a system; mappings by query id become `QueryValues`."""
    per_query = system.per_query if isinstance(system, Evaluation) else system
    return {
        metric: QueryValues.from_values(list(values.values()), list(values)) if isinstance(values, Mapping) else values
        for metric, values in per_query.items()
    }


def _conventions(evaluations: Mapping[str, Evaluation]) -> tuple[str | None, frozenset[str]]:
    """Return the convention of the evaluations, and the metrics for which lower is better."""
    if not evaluations:
        return None, frozenset()
    first, reference = next(iter(evaluations.items()))
    for name, evaluation in evaluations.items():
        if evaluation.convention != reference.convention:
            raise DataError(
                f"System '{first}' was evaluated under {reference.convention.name}, system '{name}' under "
                f"{evaluation.convention.name}. Evaluate both under the same convention."
            )
        if evaluation.query_weights is not None:
            raise DataError(f"A comparison tests unweighted means over queries. Evaluate '{name}' without weights.")
    return reference.convention.name, frozenset(
        name for name, measure in reference.measures.items() if not measure.higher_is_better
    )


def _check_lengths(columns: Mapping[str, Mapping[str, FloatArray]]) -> None:
    first, reference = next(iter(columns.items()))
    length = len(next(iter(reference.values())))
    for name, by_metric in columns.items():
        for metric, values in by_metric.items():
            if values.shape != (length,):
                raise DataError(
                    f"{metric} of system '{name}' has shape {values.shape}, but system '{first}' has {length} queries. "
                    "Evaluate all systems on the same queries, in the same order."
                )
            if np.isnan(values).all():
                raise DataError(f"{metric} is undefined on every query for system '{name}'. Leave out this metric.")
