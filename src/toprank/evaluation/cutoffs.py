"""Metrics as a function of the cut-off, which shows where in the list systems differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from toprank.data.trec import Qrels
from toprank.evaluation.compared_runs import judged_runs
from toprank.evaluation.comparison import ComparedInputs
from toprank.evaluation.result import Evaluation
from toprank.evaluation.scores import evaluate
from toprank.evaluation.values import Values
from toprank.metrics import NDCG
from toprank.metrics.measure import Measure

_MAX_CUTOFFS = 20
_MAX_METRICS = 3


@dataclass(frozen=True)
class ValuesAtCutoffs:
    """Values of one metric at several cut-offs.

    Attributes:
        measure: the metric, without a cut-off.
        cutoffs: the cut-offs, ascending.
        values: values by system, cut-off (as the metrics of `Values`) and query.
    """

    measure: Measure
    cutoffs: tuple[int, ...]
    values: Values

    def means_of(self, system: str) -> tuple[float, ...]:
        """Return the mean at each cut-off over the evaluated queries; NaN if there are none."""
        columns = [column[~np.isnan(column)] for column in self.values.by_metric(system).values()]
        return tuple(float(column.mean()) if len(column) else float("nan") for column in columns)


def values_at_cutoffs(
    parts: Sequence[ComparedInputs], systems: Sequence[str], n_documents: int
) -> tuple[ValuesAtCutoffs, ...]:
    """Evaluate systems at cut-offs 1, 2, … for each of their metrics that has a cut-off; NDCG if none has.

    Args:
        parts: inputs of the comparison: one for a comparison, or one per fold, whose queries are pooled.
        systems: names of the systems to evaluate.
        n_documents: number of documents of the largest query, which limits the cut-offs.
    """
    families = _families(parts[0].measures)
    cut = {
        bare: [(k, replace(bare, k=k)) for k in _cutoffs(deepest, n_documents)]  # type: ignore[call-arg]
        for bare, deepest in families.items()
    }
    measures = [measure for family in cut.values() for _, measure in family]
    evaluated = [_evaluated(part, systems, measures) for part in parts]
    units = np.concatenate([next(iter(by_system.values())).qids for by_system in evaluated])

    def values(names: tuple[str, ...]) -> Values:
        table = [
            [np.concatenate([by_system[system].per_query[name] for by_system in evaluated]) for name in names]
            for system in systems
        ]
        return Values(tuple(systems), names, np.array(table), units, convention=parts[0].convention.name)

    return tuple(
        ValuesAtCutoffs(bare, tuple(k for k, _ in family), values(tuple(str(measure) for _, measure in family)))
        for bare, family in cut.items()
    )


def _families(measures: Mapping[str, Measure]) -> dict[Measure, int]:
    """Return metrics without their cut-off → the largest requested cut-off, at least 10."""
    families: dict[Measure, int] = {}
    for measure in measures.values():
        if any(field.name == "k" for field in fields(measure)) and measure.depth is not None:
            bare = replace(measure, k=None)  # type: ignore[call-arg]
            families[bare] = max(families.get(bare, 10), measure.depth)
    return dict(list(families.items())[:_MAX_METRICS]) or {NDCG(): 10}


def _cutoffs(deepest: int, n_documents: int) -> list[int]:
    """Return 1, 2, … 10, then growing steps up to `deepest` or the size of the largest query."""
    last = max(2, min(deepest, n_documents))
    if last <= _MAX_CUTOFFS:
        return list(range(1, last + 1))
    return [*range(1, 11), *np.unique(np.geomspace(11, last, _MAX_CUTOFFS - 10).round().astype(int)).tolist()]


def _evaluated(part: ComparedInputs, systems: Sequence[str], measures: Sequence[Measure]) -> Mapping[str, Evaluation]:
    options = {**part.options, "convention": part.convention}
    compared = {system: part.systems[system] for system in systems}
    if isinstance(part.data, Qrels):
        return judged_runs(compared, part.data, measures, (), **options).evaluations
    return {
        system: evaluate(scores, part.data, measures, order="data", **options) for system, scores in compared.items()
    }
