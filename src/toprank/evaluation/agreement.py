"""Judge agreement: agreement on documents, and agreement on the ranking of systems."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, Unpack

import numpy as np

from toprank.compute import FloatArray, IntArray
from toprank.data.arguments import check_number
from toprank.data.trec import Qrels, Run
from toprank.display.record import Record, to_json
from toprank.display.tables import Part, Table, bracketed, percent
from toprank.errors import DataError
from toprank.evaluation.compared_runs import qrels_from
from toprank.evaluation.comparing import CompareOptions, compare
from toprank.evaluation.comparison import Comparison
from toprank.evaluation.systems import named
from toprank.significance.agreement import coincidences, confusions, kappa, krippendorff
from toprank.significance.resampling import jackknife
from toprank.significance.results import Interval, queries

_MAX_GRADES = 20
"""Maximum number of distinct grades: with more, judgments rarely agree, and confusion matrices grow quadratically."""


@dataclass(frozen=True)
class Agreement:
    """Agreement of a judge with the reference, on the documents that both judged.

    Attributes:
        judge: name of the judge.
        documents, queries: number of documents and queries that both judged.
        same: share of documents with equal grades.
        kappa: Cohen's kappa; None if both judges always give the same grade.
        kappa_interval: confidence interval of `kappa` over queries; None if undefined.
        weighted_kappa: kappa weighted by the distance of the grades.
        weighted_interval: confidence interval of `weighted_kappa`; None if undefined.
    """

    judge: str
    documents: int
    queries: int
    same: float
    kappa: float | None
    kappa_interval: Interval | None
    weighted_kappa: float | None
    weighted_interval: Interval | None


@dataclass(frozen=True)
class SystemOrder:
    """Agreement of a judge with the reference on the ranking of systems, on the queries that both judged.

    Attributes:
        judge, metric: names of the judge and the metric.
        queries: number of queries that both judged.
        tau: Kendall's τ between the means under both judges; None if all means under one judge are equal.
        significant: number of pairs of systems that differ significantly under the reference.
        kept: number of these pairs that differ significantly in the same direction under the other judge.
        lost: number of these pairs without a significant difference under the other judge.
        flipped: number of these pairs that differ significantly in the opposite direction under the other judge.
        gained: number of pairs that differ significantly only under the other judge.
        reversals: one sentence for each flipped pair.
        means: system → (mean under the reference, mean under the other judge).
    """

    judge: str
    metric: str
    queries: int
    tau: float | None
    significant: int
    kept: int
    lost: int
    flipped: int
    gained: int
    reversals: tuple[str, ...]
    means: Mapping[str, tuple[float, float]]


@dataclass(frozen=True, repr=False)
class JudgeAgreement(Record):
    """Result of `judge_agreement`; print it to see its tables.

    Attributes:
        names: names of the judges; the first is the reference.
        agreements: agreement of each other judge with the reference.
        alpha: Krippendorff's alpha of all judges; None if only one grade occurs.
        alpha_interval: confidence interval of `alpha` over queries; None if undefined.
        documents, queries: number of documents and queries with at least two judgments.
        orders: agreement on the ranking of systems, for each other judge and metric; empty without runs.
        weights, level: cost of a disagreement in the weighted kappa and in alpha.
        confidence: confidence level of the intervals and tests.
        caveats: limitations of these numbers, as sentences.
    """

    names: tuple[str, ...]
    agreements: tuple[Agreement, ...]
    alpha: float | None
    alpha_interval: Interval | None
    documents: int
    queries: int
    orders: tuple[SystemOrder, ...]
    weights: str
    level: str
    confidence: float
    caveats: tuple[str, ...] = ()

    def _parts(self) -> Sequence[Part]:
        share = percent(self.confidence)
        alpha = f"{_number(self.alpha)} {_brackets(self.alpha_interval)}".strip()
        judged = f"{self.documents:,} documents of {queries(self.queries)} judged by at least two"
        rows = [
            (agreement.judge, f"{agreement.documents:,}", f"{agreement.same:.1%}",
             f"{_number(agreement.kappa)} {_brackets(agreement.kappa_interval)}".strip(),
             f"{_number(agreement.weighted_kappa)} {_brackets(agreement.weighted_interval)}".strip())
            for agreement in self.agreements
        ]  # fmt: skip
        header = (f"against {self.names[0]}", "documents", "same grade", "kappa", f"{self.weights} kappa")
        parts: list[Part] = [
            f"{len(self.names)} judges, {judged}: Krippendorff's alpha ({self.level}) {alpha}.",
            Table(header, rows, names=1),
        ]
        if self.orders:
            listed = [
                (order.judge, order.metric, f"{order.queries:,}", _number(order.tau), f"{order.significant}",
                 f"{order.kept}", f"{order.lost}", f"{order.flipped}", f"{order.gained}")
                for order in self.orders
            ]  # fmt: skip
            columns = ("judge", "metric", "queries", "tau", "significant", "kept", "lost", "flipped", "gained")
            parts += [
                Table(columns, listed, names=2),
                tuple(reversal for order in self.orders for reversal in order.reversals),
            ]
        return [*parts, f"Intervals are {share} jackknife intervals over queries.", self.caveats]

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain values for JSON."""
        agreements = [
            asdict(agreement)
            | {f"{name}_interval": _ends(getattr(agreement, f"{name}_interval")) for name in ("kappa", "weighted")}
            for agreement in self.agreements
        ]
        plain: dict[str, Any] = {"judges": self.names, "documents": self.documents, "queries": self.queries}
        plain |= {"alpha": self.alpha, "alpha_interval": _ends(self.alpha_interval), "level": self.level}
        plain |= {"weights": self.weights, "confidence": self.confidence, "agreements": agreements}
        plain |= {"orders": self.orders, "caveats": self.caveats}
        return {name: to_json(value) for name, value in plain.items()}

    def _columns(self) -> dict[str, list[Any]]:
        columns = ("judge", "documents", "queries", "same", "kappa", "weighted_kappa")
        values = {name: [getattr(agreement, name) for agreement in self.agreements] for name in columns}
        for name in ("kappa", "weighted"):
            ends = [_ends(getattr(agreement, f"{name}_interval")) for agreement in self.agreements]
            values |= {f"{name}_{side}": [end and end[at] for end in ends] for at, side in enumerate(("low", "high"))}
        return values


class AgreementOptions(CompareOptions, total=False):
    """Options of `judge_agreement`: the measures of agreement and the statistics for systems."""

    weights: str
    level: str


def judge_agreement(
    reference: Any,
    others: Any,
    *,
    runs: Mapping[str, Any] | Iterable[tuple[str, Any]] | None = None,
    metrics: Any = ("ndcg@10",),
    trained: Mapping[str, Any] | None = None,
    name: str | None = None,
    **options: Unpack[AgreementOptions],
) -> JudgeAgreement:
    """Measure whether other judges (people, a language model, clicks) can replace the reference judge.

    Agreement is measured on documents and, if `runs` are given, on the ranking of systems, which is what an evaluation
    depends on. Systems are compared under each judge on the queries that both judged, with all judgments of that judge.

    Args:
        reference: judgments of the reference judge: qrels, a file, a mapping, a frame, or `RankingData`.
        others: name → judgments, or the judgments of a single judge.
        runs: name → run; at least two, to compare as systems under each judge. Default: no systems.
        metrics: metrics of the runs. Default "ndcg@10".
        trained: name of a run → the ranker that produced it. A caveat is added if its training data have a metadata
            column ``judge`` that names one of these judges.
        name: name of the reference judge. Default: the name of its file, or "reference".
        weights: weights of the weighted kappa: ``quadratic`` (default) or ``linear`` in the number of grades between
            two judgments.
        level: level of measurement of Krippendorff's alpha: ``ordinal`` (default), ``nominal`` or ``interval``.
        confidence: confidence level of the jackknife intervals over queries and of the tests. Default 0.95.
        seed: seed of the tests between systems.
        **options: further options of `compare`.

    >>> people = {"q1": {"a": 2, "b": 0, "c": 1}, "q2": {"a": 1, "b": 0}, "q3": {"a": 0, "b": 2}}
    >>> model = {"q1": {"a": 2, "b": 0, "c": 2}, "q2": {"a": 1, "b": 0}, "q3": {"a": 0, "b": 1}}
    >>> result = judge_agreement(people, {"model": model})
    >>> round(result.agreements[0].kappa, 4), round(result.agreements[0].weighted_kappa, 4), round(result.alpha, 4)
    (0.5625, 0.7941, 0.8514)
    """
    weights, level = options.pop("weights", "quadratic"), options.pop("level", "ordinal")
    confidence = options.setdefault("confidence", 0.95)
    check_number("confidence", confidence, above=0, below=1)
    if not isinstance(others, Mapping) or _is_judgments(others):
        others = {_name_of(others) or "judge": others}
    if not others:
        raise DataError("others is empty. Give the judgments of at least one other judge, by name.")
    if name is None:
        name = _name_of(reference) or "reference"
    if name in others:
        raise DataError(f"Two judges are called '{name}'. Give them different names.")
    everyone = {name: qrels_from(reference)} | {other: qrels_from(judgments) for other, judgments in others.items()}
    table = _JudgmentTable.from_judgments(everyone)
    agreements = tuple(_agreement(table, place, weights, confidence) for place in range(1, len(everyone)))
    units = (table.codes >= 0).sum(axis=1) >= 2
    counts = coincidences(table.codes, table.query, table.n_queries, len(table.grades))
    alpha, interval = _with_interval(lambda pairs: krippendorff(pairs, table.grades, level), counts, confidence)
    ordered = () if runs is None else tuple(_orders(everyone, runs, metrics, options))
    return JudgeAgreement(
        names=tuple(everyone),
        agreements=agreements,
        alpha=alpha,
        alpha_interval=interval,
        documents=int(units.sum()),
        queries=len(np.unique(table.query[units])),
        orders=ordered,
        weights=weights,
        level=level,
        confidence=confidence,
        caveats=tuple(_caveats(tuple(everyone), trained or {})),
    )


def _name_of(judgments: Any) -> str | None:
    """Return the judge's name if judgments are a path, otherwise None."""
    return judge_of(judgments) if isinstance(judgments, str | os.PathLike) else None


def _is_judgments(mapping: Mapping[str, Any]) -> bool:
    """Return whether a mapping is {query: {document: grade}} rather than {judge: judgments}."""
    inner = next(iter(mapping.values()), None)
    return isinstance(inner, Mapping) and not isinstance(next(iter(inner.values()), None), Mapping)


class _JudgmentTable(NamedTuple):
    """Grades of all judges for the same documents."""

    names: tuple[str, ...]
    codes: IntArray
    """Grade codes, (documents, judges): indices into `grades`, −1 for an unjudged document."""
    query: IntArray
    n_queries: int
    grades: FloatArray

    @classmethod
    def from_judgments(cls, judgments: Mapping[str, Qrels]) -> _JudgmentTable:
        each = list(judgments.values())
        owner = np.repeat(np.arange(len(each)), [len(judge) for judge in each])
        grades, codes = np.unique(np.concatenate([judge.grades for judge in each]), return_inverse=True)
        if len(grades) > _MAX_GRADES:
            raise DataError(
                f"The judgments have {len(grades):,} distinct grades, but at most {_MAX_GRADES} are supported. Round "
                "scores to grades first."
            )
        qids, query = np.unique(np.concatenate([judge.qids for judge in each]), return_inverse=True)
        _, document = np.unique(np.concatenate([judge.document_ids for judge in each]), return_inverse=True)
        pairs = query.reshape(-1) * (int(document.max()) + 1) + document.reshape(-1)
        unique, unit = np.unique(pairs, return_inverse=True)
        table = np.full((len(unique), len(each)), -1, dtype=np.int64)
        table[unit.reshape(-1), owner] = codes.reshape(-1)
        return cls(tuple(judgments), table, unique // (int(document.max()) + 1), len(qids), grades)


def _agreement(table: _JudgmentTable, place: int, weights: str, confidence: float) -> Agreement:
    both = (table.codes[:, 0] >= 0) & (table.codes[:, place] >= 0)
    if not both.any():
        raise DataError(
            f"{table.names[0]} and {table.names[place]} have no judged document in common. Check that their query and "
            "document ids belong to the same collection."
        )
    first, other, query = table.codes[both, 0], table.codes[both, place], table.query[both]
    counts = confusions(first, other, query, table.n_queries, len(table.grades))
    used = np.flatnonzero(counts.any(axis=(0, 1)) | counts.any(axis=(0, 2)))  # grades of these two judges
    counts = counts[:, used[:, None], used]
    plain, plain_interval = _with_interval(kappa, counts, confidence)
    weighted, weighted_interval = _with_interval(lambda pairs: kappa(pairs, weights), counts, confidence)
    return Agreement(
        judge=table.names[place],
        documents=int(both.sum()),
        queries=len(np.unique(query)),
        same=float((first == other).mean()),
        kappa=plain,
        kappa_interval=plain_interval,
        weighted_kappa=weighted,
        weighted_interval=weighted_interval,
    )


def _with_interval(measure: Any, counts: FloatArray, confidence: float) -> tuple[float | None, Interval | None]:
    """Return an agreement coefficient and its jackknife interval, truncated at its maximum, 1."""
    counts = counts[counts.any(axis=(1, 2))]
    total = counts.sum(axis=0)
    value = float(measure(total))
    if not np.isfinite(value):
        return None, None
    leave_one_out = measure(total - counts)
    if len(counts) < 2 or not np.isfinite(leave_one_out).all():
        return value, None
    interval = jackknife(value, leave_one_out, np.full(len(counts), 1 / len(counts)), confidence)
    low, high = float(interval.low), min(float(interval.high), 1.0)
    return value, Interval(value, low, high, confidence, len(counts), "jackknife over queries", "estimate")


def _orders(everyone: Mapping[str, Qrels], runs: Any, metrics: Any, options: CompareOptions) -> Iterable[SystemOrder]:
    """Yield the agreement on systems for each judge except the reference, and each metric."""
    (_, reference), *others = everyone.items()
    systems = {name: Run.from_source(run) for name, run in named(runs).items()}
    for judge, judgments in others:
        common = np.intersect1d(reference.qids, judgments.qids)
        if len(common) == 0:
            raise DataError(f"{judge} has no judged query in common with the reference judge.")
        before, after = (
            compare(systems, _only(judged, common), metrics, **options) for judged in (reference, judgments)
        )
        for metric in before.metrics:
            yield _order(judge, metric, len(common), before, after)


def _only(judgments: Qrels, qids: Any) -> Qrels:
    kept = np.isin(judgments.qids, qids)
    return Qrels(judgments.qids[kept], judgments.document_ids[kept], judgments.grades[kept])


def _order(judge: str, metric: str, n: int, before: Comparison, after: Comparison) -> SystemOrder:
    from scipy.stats import kendalltau

    means = {name: (before.means[name][metric], after.means[name][metric]) for name in before.systems}
    tau = float(kendalltau(*zip(*means.values(), strict=True)).statistic)
    counts = dict.fromkeys(("significant", "kept", "lost", "flipped", "gained"), 0)
    reversals = []
    for old, new in zip(before.differences, after.differences, strict=True):
        if old.metric != metric:
            continue
        counts["significant"] += old.significant
        if not old.significant:
            counts["gained"] += new.significant
        elif not new.significant:
            counts["lost"] += 1
        elif (old.difference > 0) == (new.difference > 0):
            counts["kept"] += 1
        else:
            counts["flipped"] += 1
            reversals.append(
                f"{judge} prefers {new.winner} to {old.winner} in {metric}; the reference prefers the opposite."
            )
    return SystemOrder(
        judge, metric, n, tau if np.isfinite(tau) else None, **counts, reversals=tuple(reversals), means=means
    )


def _caveats(names: tuple[str, ...], trained: Mapping[str, Any]) -> Iterable[str]:
    for system, ranker in trained.items():
        for judge in getattr(ranker, "training_", {}).get("judges", ()):
            if judge in names:
                yield (
                    f"{system} was trained on labels of {judge}, so an evaluation by {judge} is biased in its favor. "
                    "Evaluate it with judgments that it was not trained on."
                )


def judge_of(path: str | os.PathLike[str]) -> str:
    """Return the name of a judge from the name of a judgment file.

    >>> judge_of("results/gpt-4o.qrels.gz")
    'gpt-4o'
    """
    name = Path(path).name
    for ending in (".gz", ".zst", ".qrels", ".txt", ".trec"):
        name = name.removesuffix(ending)
    return name


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _brackets(interval: Interval | None) -> str:
    return "" if interval is None else bracketed(interval.low, interval.high)


def _ends(interval: Interval | None) -> list[float] | None:
    return None if interval is None else [float(interval.low), float(interval.high)]
