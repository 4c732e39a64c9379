"""Evaluation of a run against judgments (qrels), as in trec_eval.

Unlike in `evaluate`, relevant documents that the run did not retrieve are part of the ideal ranking and of the number
of relevant documents, and a run may leave queries unanswered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict, Unpack

import numpy as np
import numpy.typing as npt

from toprank.compute import Array, FloatArray, IntArray
from toprank.data.arguments import check_whole
from toprank.data.bytesource import PathLike
from toprank.data.queries import Queries, positions_within
from toprank.data.query_values import listed
from toprank.data.trec.tables import Qrels, Run
from toprank.errors import DataError
from toprank.evaluation.result import Evaluation
from toprank.evaluation.scores import Lists, Metrics, Terms, as_compared, evaluate_views
from toprank.metrics.conventions import Convention
from toprank.metrics.measure import Measure
from toprank.metrics.parsing import parse_all
from toprank.metrics.sorting import rank_block


class RunOptions(TypedDict, total=False):
    """Further options of `evaluate_run`."""

    max_grade: float | None
    min_relevance: float
    threads: int | None


def evaluate_run(
    qrels: Qrels | Mapping[str, Mapping[str, float]] | PathLike,
    run: Run | Mapping[str, Mapping[str, float]] | PathLike,
    metrics: Metrics = "ndcg@10",
    *,
    convention: Convention | str = "trec_eval",
    complete: bool | None = None,
    max_documents: int | None = None,
    condense: bool = False,
    **rules: Unpack[RunOptions],
) -> Evaluation:
    """Evaluate a run against judgments.

    Args:
        qrels: judged documents, from `toprank.read_qrels`, ``{query: {document: grade}}``, a frame, or a file.
        run: retrieved documents, from `toprank.read_run`, ``{query: {document: score}}``, a frame, or a file.
        metrics: names or measures, for example ``["map", "ndcg_cut_10"]``.
        convention: evaluation convention. Default "trec_eval".
        complete: if True, judged queries that the run does not answer count 0 (trec_eval's ``-c``); if False, they are
            left out. Default: the rule of the convention. Queries without judgments are always left out.
        max_documents: evaluate only this many documents per query (trec_eval's ``-M``). Default: all.
        max_grade: highest possible grade, for ERR and RBP. Default: the largest grade of the judgments.
        min_relevance: lowest relevant grade for binary metrics (trec_eval's ``-l``). Default 1.
        condense: remove unjudged documents (without a grade, or with grade -1) from the run. By default they count as
            irrelevant.
        threads: number of threads; the result does not depend on it.

    >>> qrels = {"q": {"a": 1, "b": 0, "c": 1}}
    >>> evaluate_run(qrels, {"q": {"a": 0.9, "b": 0.5}}, "map").mean["map"]
    0.5
    """
    further: dict[str, Any] = {**rules}
    threads = further.pop("threads", None)
    for name in further.keys() & {"unjudged", "weighted"}:
        raise DataError(f"{name}= does not apply to runs. Use condense=True to leave out unjudged documents.")
    terms, measures = Terms(Convention.from_name(convention), **further), parse_all(metrics)
    judgments, retrieved = Qrels.from_source(qrels), Run.from_source(run)
    lists, qids, grades = _join(judgments, retrieved, terms.convention, condense, max_documents)
    longest = int(max(np.diff(lists.offsets).max(), np.diff(lists.judged_offsets).max()))
    bounded = terms.rules(grades, float(judgments.grades.max()), longest)
    per_query = evaluate_views(lists, measures, bounded, threads)
    unanswered = np.setdiff1d(judgments.qids, qids)
    if complete or (complete is None and terms.convention.unanswered == "zero"):
        per_query, qids = _with_unanswered(per_query, qids, judgments, measures)
    return Evaluation(
        measures, per_query, terms.convention, bounded.max_grade, qids, len(lists.codes),
        unanswered=tuple(map(str, unanswered)),
    )  # fmt: skip


def _join(
    qrels: Qrels, run: Run, rules: Convention, condense: bool, max_documents: int | None
) -> tuple[Lists, Array, FloatArray]:
    """Join run and judgments; return the lists of queries in both, their ids, and the distinct grades."""
    qids, query_of = np.unique(np.concatenate([qrels.qids, run.qids]), return_inverse=True)
    _, document_of = np.unique(np.concatenate([qrels.document_ids, run.document_ids]), return_inverse=True)
    n = len(qrels.qids)
    judged_query, run_query = query_of[:n], query_of[n:]
    judged_document, run_document = document_of[:n], document_of[n:]
    both = np.zeros(len(qids), dtype=bool)
    both[np.intersect1d(judged_query, run_query)] = True
    if not both.any():
        raise DataError(
            f"No query of the run has judgments: the run answers {listed(np.unique(run.qids))}, the judgments "
            f"cover {listed(np.unique(qrels.qids))}. Check that both use the same query ids."
        )

    scores = as_compared(run.scores, rules)
    grade, known = _grades_of_run(judged_query, judged_document, qrels.grades, run_query, run_document)
    keep = both[run_query] & ((known & (grade != -1)) if condense else True)  # grade -1 means unjudged
    # Ties: by descending document id if the convention requires it, otherwise in row order.
    within = -run_document if rules.ties == "document-id" else np.arange(len(run_document))
    order = np.lexsort((within, run_query))
    order = order[keep[order]]
    if max_documents is not None:
        order = _first_by_score(order, scores, run_query, max_documents)
    if len(order) == 0:
        raise DataError("No document of the run is judged, so all condensed lists are empty. Leave out condense=True.")
    present = np.unique(run_query[order])
    judged_order = np.argsort(judged_query, kind="stable")
    judged_order = judged_order[np.isin(judged_query[judged_order], present)]
    all_grades = np.concatenate([qrels.grades[judged_order], grade[order]])
    grades, codes = np.unique(all_grades, return_inverse=True)
    judged_codes, run_codes = np.split(codes.reshape(-1).astype(np.int32), [len(judged_order)])
    ranked = np.ascontiguousarray(scores[order]), run_codes, _offsets(run_query[order])
    return Lists(*ranked, judged_codes, _offsets(judged_query[judged_order])), qids[present], grades


def _grades_of_run(
    judged_query: Array, judged_document: Array, grades: FloatArray, run_query: Array, run_document: Array
) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
    """Return the grade of each retrieved document (0 if unjudged), and whether it was judged."""
    width = int(max(judged_document.max(), run_document.max())) + 1
    judged_key, run_key = judged_query * width + judged_document, run_query * width + run_document
    by_key = np.argsort(judged_key)
    place = np.minimum(np.searchsorted(judged_key[by_key], run_key), len(by_key) - 1)
    known = judged_key[by_key][place] == run_key
    return np.where(known, grades[by_key][place], 0.0), known


def _offsets(sorted_queries: Array) -> IntArray:
    _, sizes = np.unique(sorted_queries, return_counts=True)
    return Queries.from_sizes(sizes).offsets


def _first_by_score(order: IntArray, scores: FloatArray, query: Array, limit: int) -> IntArray:
    """Return the best `limit` rows of each query, in their original order."""
    check_whole("max_documents", limit, 1)
    offsets = _offsets(query[order])
    ranked = rank_block(np.ascontiguousarray(scores[order]), offsets, (0, len(offsets) - 1), limit, keep_ties=False)
    positions = positions_within(np.diff(ranked.starts))
    kept = ranked.order[: ranked.starts[-1]][positions < limit]
    return order[np.sort(kept)]


def _with_unanswered(
    per_query: dict[str, FloatArray], qids: Array, qrels: Qrels, measures: Mapping[str, Measure]
) -> tuple[dict[str, FloatArray], Array]:
    """Add unanswered judged queries with the worst value: 0, or 1 if lower is better."""
    everyone = np.unique(qrels.qids)
    place = np.searchsorted(everyone, qids)
    filled = {}
    for name, values in per_query.items():
        filled[name] = np.full(len(everyone), 0.0 if measures[name].higher_is_better else 1.0)
        filled[name][place] = values
    return filled, everyone
