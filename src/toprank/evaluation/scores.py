"""Evaluation of scores: one value per query and metric, under a named convention."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypedDict, Unpack, cast

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray, IntArray, blocks_of, each_block
from toprank.data.arguments import check_number
from toprank.data.dataset import RankingData, check_files
from toprank.data.row_order import Order, order_beside_labels
from toprank.data.slices import Sliceable
from toprank.data.unjudged import UNJUDGED, Unjudged, apply_rule, choose_a_rule
from toprank.data.warnings import warn_one_query
from toprank.errors import DataError, Remedy, join_parts
from toprank.evaluation.result import Evaluation
from toprank.metrics.conventions import CONVENTIONS, Convention
from toprank.metrics.measure import Measure, Rules, View
from toprank.metrics.parsing import parse, parse_all
from toprank.metrics.sorting import checked_scores, rank_block

Metrics = str | Measure | Iterable[str | Measure]
_DOCUMENTS_PER_BLOCK = 1 << 18  # a ranked block stays in the cache while all metrics read it


class EvaluationOptions(TypedDict, total=False):
    """Further options of `evaluate`."""

    max_grade: float | None
    min_relevance: float
    unjudged: Unjudged | None
    weighted: bool


def evaluate(
    scores: npt.ArrayLike,
    data: RankingData | npt.ArrayLike,
    metrics: Metrics = "ndcg@10",
    *,
    qid: npt.ArrayLike | None = None,
    convention: Convention | str = "standard",
    order: Order | None = None,
    threads: int | None = None,
    **rules: Unpack[EvaluationOptions],
) -> Evaluation:
    """Evaluate a ranking.

    Args:
        scores: one finite or infinite number per document, higher ranks first, in the order of ``data.X``, or of the
            labels if `data` are plain labels. A pandas Series is aligned by its index.
        data: the labeled documents: a `RankingData`, or an array of labels together with `qid`.
        metrics: names or measures, for example ``["ndcg@10", "map", "err@20"]``.
        qid: query id of each document, if `data` are plain labels; rows need not be grouped.
        convention: evaluation convention, see `toprank.metrics.CONVENTIONS`. Default "standard".
        max_grade: highest possible grade, for ERR and RBP. Default: the largest label of the data.
        min_relevance: lowest relevant grade for binary metrics. Default 1.
        unjudged: treatment of labels NaN and -1, which mean "not judged": ``refuse`` raises an error (default),
            ``irrelevant`` counts them as irrelevant (default of trec_eval), ``condense`` removes unjudged documents
            from the lists, ``drop`` drops queries with unjudged documents.
        weighted: weight the mean by the query weights of the data. Default False.
        order: order of the scores: ``"data"`` (as ``data.X``) or ``"source"`` (as the rows the data were created from).
            Required only if grouping moved rows and the scores are neither the result of ``predict(data)`` nor a Series
            of the source frame; see `RankingData.aligned`.
        threads: number of threads; the result does not depend on it.

    >>> result = evaluate([0.2, 0.9, 0.4], [0, 2, 1], ["ndcg@10", "mrr"], qid=[7, 7, 7])
    >>> result.mean["ndcg@10"], result.mean["mrr"]
    (1.0, 1.0)
    """
    measures = parse_all(metrics)
    if not isinstance(data, RankingData):
        if qid is None:
            warn_one_query(np.size(data), "evaluate")
        data = RankingData(np.empty((np.size(data), 0)), data, qid=qid)
        order = order_beside_labels(data, scores, order)
    elif qid is not None:
        raise DataError("RankingData contains the query ids. Leave qid out.")
    further: dict[str, Any] = {**rules}
    weighted = further.pop("weighted", False)
    terms = Terms(Convention.from_name(convention), **further)
    data, per_query, top = _judged(scores, data, order, measures, terms, threads)
    weights = data.query_weights if weighted else None
    if weighted and weights is None:
        raise DataError("weighted=True needs query weights, but the data have none.")
    query_metadata = Sliceable(data.metadata, data.queries, data.qids, data.query_weights)
    evaluation = Evaluation(measures, per_query, terms.convention, top, data.qids, data.n_documents)
    return replace(evaluation, query_weights=weights, query_metadata=query_metadata)


@dataclass(frozen=True)
class Terms:
    """Evaluation options of the caller; None leaves a rule to the convention or the data.

    Raises:
        DataError: if `min_relevance` or `max_grade` is not a valid grade.
    """

    convention: Convention
    unjudged: Unjudged | None = None
    max_grade: float | None = None
    min_relevance: float = 1.0

    def __post_init__(self) -> None:
        check_number("min_relevance", self.min_relevance)
        if self.max_grade is not None:
            check_number("max_grade", self.max_grade, above=0)

    def rules(self, grades: FloatArray, highest: float, longest: int) -> Rules:
        """Return the rules for lists of at most `longest` documents; `highest` is the largest grade of the data."""
        top = highest if self.max_grade is None else float(self.max_grade)
        return Rules(self.convention, grades, top, self.min_relevance, longest)


def _judged(
    scores: npt.ArrayLike,
    data: RankingData,
    order: Order | None,
    measures: Mapping[str, Measure],
    terms: Terms,
    threads: int | None,
) -> tuple[RankingData, dict[str, FloatArray], float]:
    """Return the evaluated data, the values of their queries by metric, and the highest grade."""
    check_files(data)
    checked_scores(scores, data.n_documents)  # check the scores before their order
    values = checked_scores(data.aligned(scores, order), data.n_documents)
    data, values = _settle_unjudged(data, values, terms.unjudged or terms.convention.unjudged)
    permutation = _tie_order(data) if terms.convention.ties == "document-id" else None
    codes = data.grades.codes
    if permutation is not None:
        values, codes = values[permutation], codes[permutation]
    offsets, grades = data.queries.offsets, data.grades.values
    rules = terms.rules(grades, float(grades.max()), int(data.queries.sizes.max()))
    lists = Lists(as_compared(values, terms.convention), codes, offsets, codes, offsets)
    return data, evaluate_views(lists, measures, rules, threads), rules.max_grade


def as_compared(scores: FloatArray, convention: Convention) -> FloatArray:
    """Return the scores in the precision of the convention; some tools use float32."""
    if not convention.float32_scores:
        return scores
    with np.errstate(over="ignore"):  # values beyond the float32 range become infinite, as in those tools
        return scores.astype(np.float32).astype(np.float64)


class Lists(NamedTuple):
    """Ranked and judged documents as flat arrays grouped by query; `codes` are indices into the grades."""

    scores: FloatArray
    codes: npt.NDArray[Any]
    offsets: IntArray
    judged_codes: npt.NDArray[Any]
    judged_offsets: IntArray


def evaluate_views(
    lists: Lists, measures: Mapping[str, Measure], rules: Rules, threads: int | None = None
) -> dict[str, FloatArray]:
    """Evaluate all measures on all queries; each block of queries is ranked once for all measures."""
    scores, codes, offsets, judged_codes, judged_offsets = lists
    expected = rules.convention.ties == "expected"
    plain = {name: m for name, m in measures.items() if expected or not m.pairwise_ties}
    tied = {name: m for name, m in measures.items() if name not in plain}
    passes = [
        ({name: measure.bind(rules) for name, measure in group.items()}, _depth(group), keep)
        for group, keep in ((plain, expected), (tied, True))
        if group
    ]
    out = {name: np.empty(len(offsets) - 1) for name in measures}

    def work(block: tuple[int, int]) -> None:
        first, last = block
        for bound, depth, keep_ties in passes:
            ranked = rank_block(scores, offsets, block, depth, keep_ties)
            sizes = np.diff(offsets[first : last + 1])
            view = View(*ranked, codes, sizes, judged_codes, judged_offsets[first : last + 1], len(rules.grades))
            for name, per_query in bound.items():
                out[name][first:last] = per_query(view)

    each_block(work, blocks_of(offsets, _DOCUMENTS_PER_BLOCK), threads)
    return out


class BoundMetric:
    """Metric bound to data, for repeated evaluation: `metric(scores)` returns the mean over queries.

    Used for early stopping and line searches. Scores are in the order of the documents.

    >>> data = RankingData(np.zeros((2, 0)), [0, 1], qid=[7, 7])
    >>> BoundMetric(data, "mrr")([0.1, 0.9])
    1.0
    """

    def __init__(
        self,
        data: RankingData,
        metric: str | Measure = "ndcg@10",
        *,
        convention: Convention | str = "standard",
        max_grade: float | None = None,
        threads: int | None = None,
    ) -> None:
        self.data, self.measure, self.convention = data, parse(metric), Convention.from_name(convention)
        self.name = str(metric)  # as spelled by the caller
        self.max_grade, self.threads = max_grade, threads
        if self.convention.unjudged == "refuse" and not data.judged.all():
            raise DataError(
                f"{data.n_unjudged:,} documents for model selection are unjudged (label NaN or -1);",
                remedy=choose_a_rule(
                    "leave them out: data.filter(data.judged); or choose a convention that defines their value, such "
                    "as trec_eval."
                ),
            )

    @property
    def higher_is_better(self) -> bool:
        """True if higher values are better."""
        return self.measure.higher_is_better

    def extremes(self) -> tuple[FloatArray, FloatArray]:
        """Return the per-query values of the ideal order and of its reverse."""
        labels = np.where(self.data.judged, self.data.labels, 0.0)
        return self.per_query(labels), self.per_query(-labels)

    def for_selection(self) -> BoundMetric:
        """Return this metric; raise an error if the best and the worst order have the same value on every query."""
        if np.array_equal(*self.extremes(), equal_nan=True):
            labels = np.where(self.data.judged, self.data.labels, 0.0)
            raise indistinguishable(self.name, float(labels.min()), float(labels.max()))
        return self

    def per_query(self, scores: npt.ArrayLike) -> FloatArray:
        """Return the value of each query; NaN for queries that are left out."""
        terms, measures = Terms(self.convention, max_grade=self.max_grade), {self.name: self.measure}
        return _judged(scores, self.data, "data", measures, terms, self.threads)[1][self.name]

    def signed(self, scores: npt.ArrayLike) -> float:
        """Return the mean over queries, negated if lower is better; NaN becomes -infinity."""
        value = self(scores) if self.higher_is_better else -self(scores)
        return value if value == value else -np.inf

    def __call__(self, scores: npt.ArrayLike) -> float:
        """Return the mean over queries; NaN if all are left out."""
        values = self.per_query(scores)
        return float(np.nanmean(values)) if not np.isnan(values).all() else float("nan")


def indistinguishable(metric: str, lowest: float, highest: float) -> DataError:
    """Return the error for a metric that cannot distinguish rankers on labels from `lowest` to `highest`."""
    return DataError(
        f"{metric} has the same value for the best and the worst order of every query (labels from {lowest:g} to "
        f"{highest:g}), so it cannot distinguish rankers. Select by another metric, such as ndcg, or check the labels."
    )


def _depth(measures: Mapping[str, Measure]) -> int | None:
    depths = [measure.depth for measure in measures.values()]
    return None if None in depths else max(cast(list[int], depths))


def evaluate_all_conventions(
    scores: npt.ArrayLike, data: RankingData, metrics: Metrics, **options: Any
) -> dict[str, Evaluation | str]:
    """Evaluate a ranking under every convention; a convention that does not apply maps to the reason."""
    return under_all(lambda name: evaluate(scores, data, metrics, convention=name, **options))


def under_all(evaluate_under: Callable[[str], Evaluation]) -> dict[str, Evaluation | str]:
    """Call `evaluate_under(name)` for every convention; a convention that does not apply maps to the reason."""
    results: dict[str, Evaluation | str] = {}
    for name in CONVENTIONS:
        try:
            results[name] = evaluate_under(name)
        except DataError as problem:
            results[name] = problem.args[0]
    reasons = [result for result in results.values() if isinstance(result, str)]
    if len(reasons) == len(results):
        raise DataError(reasons[0])
    return results


def _settle_unjudged(data: RankingData, scores: FloatArray, rule: str) -> tuple[RankingData, FloatArray]:
    """Apply the rule for labels NaN and -1."""
    if rule in UNJUDGED and not data.grades.some_unjudged:
        return data, scores
    judged, kept = apply_rule(data.without_features(), rule)  # the metric needs labels only; avoid copying X
    return judged, scores if kept is None else scores[kept]


def _tie_order(data: RankingData) -> IntArray:
    """Return rows by descending document id within queries, so that a stable sort by score orders ties as trec_eval."""
    if data.document_ids is None:
        problem = "This convention orders tied documents by id, but the data have no document ids."
        of_table = "Name the column of a table that holds them with {document_id},"
        give = Remedy("Give document_ids,", of_table, document_id=...)
        raise DataError(problem, remedy=join_parts(give, "or choose another convention."))
    _, rank = np.unique(data.document_ids, return_inverse=True)
    return np.lexsort((-rank.reshape(-1), data.queries.document_query))
