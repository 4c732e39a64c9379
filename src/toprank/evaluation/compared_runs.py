"""Evaluation of several runs on the same queries, with the rule of a convention for unanswered queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from toprank.data.dataset import RankingData
from toprank.data.query_values import listed
from toprank.data.trec import Qrels, Run, qrels_of
from toprank.errors import DataError, FormatError, Remedy
from toprank.evaluation.result import Evaluation
from toprank.evaluation.runs import evaluate_run
from toprank.metrics.conventions import Convention


class JudgedRuns(NamedTuple):
    """Runs evaluated on the same queries, with their omissions.

    Attributes:
        evaluations: evaluations by system; NaN for unanswered queries that are left out.
        unanswered: system → ids of the judged queries that its run does not answer; complete runs have no entry.
        omissions: unanswered and unjudged queries, as sentences.
        runs: runs by system; empty for scores.
        documents: the judgments, or the labeled data.
    """

    evaluations: dict[str, Evaluation]
    unanswered: dict[str, tuple[str, ...]]
    omissions: tuple[str, ...]
    runs: dict[str, Run]
    documents: Any


def are_runs(systems: Mapping[str, Any], data: Any) -> bool:
    """Return whether the systems are runs to evaluate against qrels, rather than scores of labeled data."""
    judgments = isinstance(data, Qrels | Mapping | str) or hasattr(data, "__fspath__") or hasattr(data, "columns")
    return judgments or any(isinstance(system, Run) for system in systems.values())


def qrels_from(data: Any) -> Qrels:
    """Return the judgments in qrels, a file, a mapping, a frame, or ranking data with document ids."""
    return qrels_of(data) if isinstance(data, RankingData) else Qrels.from_source(data)


def judged_runs(
    systems: Mapping[str, Any],
    qrels: Any,
    metrics: Any,
    pairs: Sequence[tuple[str, str]],
    *,
    convention: Convention | str = "trec_eval",
    complete: bool | None = None,
    **options: Any,
) -> JudgedRuns:
    """Evaluate runs on the same queries; `pairs` are the systems to compare, `options` are passed to `evaluate_run`."""
    rules, judgments = Convention.from_name(convention), qrels_from(qrels)
    zero = rules.unanswered == "zero" if complete is None else complete
    evaluated = {name: _evaluated(name, run, judgments, metrics, rules, options) for name, run in systems.items()}
    judged = np.unique(judgments.qids)
    answered = {name: evaluation.qids for name, (evaluation, _) in evaluated.items()}
    qids = judged if zero else np.unique(np.concatenate(list(answered.values())))
    for a, b in pairs if not zero else ():
        if len(np.intersect1d(answered[a], answered[b])) == 0:
            raise DataError(
                f"Runs '{a}' and '{b}' have no judged query in common: {a} answers {listed(answered[a])}, {b} "
                f"{listed(answered[b])}.",
                remedy=Remedy("With {complete} unanswered queries count 0.", complete=True),
            )
    absent = {name: np.setdiff1d(judged, answered_qids) for name, answered_qids in answered.items()}
    beyond = {name: np.setdiff1d(run.qids, judged) for name, (_, run) in evaluated.items()}
    rule = "counted 0." if zero else "left out (the option complete counts 0)."
    notes = _notes("lack", absent, f"of {len(judged):,} judged; {rule}")
    notes += _notes("answer", beyond, "without judgments; left out.")
    return JudgedRuns(
        {name: _on(evaluation, qids, zero) for name, (evaluation, _) in evaluated.items()},
        {name: tuple(ids.tolist()) for name, ids in absent.items() if len(ids)},
        notes,
        {name: run for name, (_, run) in evaluated.items()},
        judgments,
    )


def _evaluated(
    name: str, system: Any, qrels: Qrels, metrics: Any, rules: Convention, options: Mapping[str, Any]
) -> tuple[Evaluation, Run]:
    try:
        run = Run.from_source(system)
        return evaluate_run(qrels, run, metrics, convention=rules, complete=False, **options), run
    except FormatError:  # already names the file and the line
        raise
    except DataError as problem:
        raise DataError(f"Run '{name}':", remedy=problem.args[0]) from None


def _on(evaluation: Evaluation, qids: npt.NDArray[Any], zero: bool) -> Evaluation:
    """Return the evaluation with a value for each of these queries; unanswered ones get the worst value or NaN."""
    place = np.searchsorted(qids, evaluation.qids)
    filled = {}
    for name, values in evaluation.per_query.items():
        worst_value = 0.0 if evaluation.measures[name].higher_is_better else 1.0
        filled[name] = np.full(len(qids), worst_value if zero else np.nan)
        filled[name][place] = values
    return replace(evaluation, per_query=filled, qids=qids)


def _notes(verb: str, queries: Mapping[str, npt.NDArray[Any]], ending: str) -> tuple[str, ...]:
    """Return one sentence for all systems that lack, or answer, the same queries."""
    notes = []
    for ids, group in groupby(
        sorted(queries.items(), key=lambda pair: pair[1].tolist()), lambda pair: pair[1].tolist()
    ):
        if ids:
            names = [name for name, _ in group]
            who = f"{names[0]} {verb}s" if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]} {verb}"
            notes.append(f"{who} {listed(np.array(ids))} {ending}")
    return tuple(notes)
