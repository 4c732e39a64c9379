"""`Values`: per-unit metric values of several systems, the input of all statistics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from toprank.compute import Array, FloatArray
from toprank.data.slices import Sliceable, SliceBy, Slices, slices_of_queries, slices_of_values
from toprank.significance import Interval, bootstrap_interval, effective_sample_size, weighted_interval


@dataclass(frozen=True, eq=False)
class Values:
    """Metric values by system, metric and unit.

    Attributes:
        systems: names of the systems.
        metrics: names of the metrics, as spelled by the caller.
        table: values, (systems, metrics, units); NaN for units that are left out.
        units: ids of the units (queries, sessions or lists); empty if units are identified by position.
        weights: weight of each unit; None for equal weights.
        metadata: metadata columns and weights of the queries, to slice by; None if unknown.
        lower_is_better: metrics for which lower values are better.
        convention: name of the evaluation convention; None for values computed elsewhere.
    """

    systems: tuple[str, ...]
    metrics: tuple[str, ...]
    table: FloatArray
    units: Array = field(default_factory=lambda: np.empty(0, dtype=object))
    weights: FloatArray | None = None
    metadata: Sliceable | None = None
    lower_is_better: frozenset[str] = frozenset()
    convention: str | None = None

    @classmethod
    def from_systems(cls, systems: Mapping[str, Any]) -> Values:
        """Create a table from evaluations by system, or metric → one value per query; see `gathered`."""
        from toprank.evaluation.systems import gathered

        return gathered(systems)

    def __eq__(self, other: object) -> bool:
        """Return whether both hold the same values of the same units; NaN equals NaN."""
        return (
            isinstance(other, Values)
            and (self.systems, self.metrics, self.convention) == (other.systems, other.metrics, other.convention)
            and np.array_equal(self.table, other.table, equal_nan=True)
            and list(map(str, self.units.tolist())) == list(map(str, other.units.tolist()))
        )

    __hash__ = None  # type: ignore[assignment]

    @property
    def n_units(self) -> int:
        """Number of units."""
        return int(self.table.shape[2])

    @property
    def means(self) -> dict[str, dict[str, float]]:
        """System → metric → weighted mean over the evaluated units; NaN if there are none."""
        return {system: {metric: self._mean(system, metric) for metric in self.metrics} for system in self.systems}

    def _mean(self, system: str, metric: str) -> float:
        values, weights = self.counting(system, metric)
        if weights is None:
            return float(values.mean()) if len(values) else np.nan
        return float((values * weights).sum() / weights.sum()) if weights.any() else np.nan

    def of(self, system: str, metric: str) -> FloatArray:
        """Return the value of each unit."""
        values: FloatArray = self.table[self.systems.index(system), self.metrics.index(metric)]
        return values

    def by_metric(self, system: str) -> dict[str, FloatArray]:
        """Return metric → value of each unit."""
        return dict(zip(self.metrics, self.table[self.systems.index(system)], strict=True))

    def counting(self, system: str, metric: str) -> tuple[FloatArray, FloatArray | None]:
        """Return the values of the evaluated units, and their weights if there are any."""
        values = self.of(system, metric)
        counts = ~np.isnan(values)
        return values[counts], None if self.weights is None else self.weights[counts]

    def n_counting(self, system: str, metric: str) -> int:
        """Return the number of units with a value and a positive weight."""
        values, weights = self.counting(system, metric)
        return len(values) if weights is None else int((weights > 0).sum())

    def effective_size(self, system: str, metric: str) -> float:
        """Return the effective sample size of a mean."""
        values, weights = self.counting(system, metric)
        return float(len(values)) if weights is None else effective_sample_size(weights)

    def select(self, units: npt.ArrayLike) -> Values:
        """Return the values of the units selected by a mask."""
        chosen = np.asarray(units, dtype=bool)
        return replace(
            self,
            table=self.table[:, :, chosen],
            units=self.units[chosen] if len(self.units) else self.units,
            weights=None if self.weights is None else self.weights[chosen],
            metadata=None,
        )

    def slices(self, slice_by: SliceBy | Slices) -> Slices:
        """Return the slices of the units; see `Evaluation.by_slice`."""
        if not len(self.units) or isinstance(slice_by, Slices):
            return slices_of_values(slice_by, self.n_units)
        return slices_of_queries(slice_by, self.units, self.metadata)

    def parts(self, slices: Slices) -> dict[str, Values]:
        """Return the values of each slice."""
        return {name: self.select(slices.codes == code) for code, name in enumerate(slices.names)}


Intervals = dict[str, dict[str, Interval | None]]
"""System → metric → interval of the mean; None with too few units."""


def intervals(values: Values, *, min_queries: int = 1, **options: Any) -> Intervals:
    """Return the bootstrap interval of each mean over at least `min_queries` units; options of `bootstrap_interval`."""

    def interval(system: str, metric: str) -> Interval | None:
        if values.n_counting(system, metric) < min_queries:
            return None
        of, weights = values.counting(system, metric)
        return bootstrap_interval(of, **options) if weights is None else weighted_interval(of, weights, **options)

    return {system: {metric: interval(system, metric) for metric in values.metrics} for system in values.systems}


def by_slice(values: Values, slices: Slices, *, min_queries: int, **options: Any) -> dict[str, Intervals]:
    """Return the `intervals` of each slice."""
    return {name: intervals(part, min_queries=min_queries, **options) for name, part in values.parts(slices).items()}
