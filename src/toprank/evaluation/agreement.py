"""Compare judges: whether they agree on documents, and whether systems come out in the same order under each."""

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

_MOST_GRADES = 20
"""Different grades at most: with more, hardly two judgments agree, and tables of all pairs grow by the square."""


@dataclass(frozen=True)
class Agreement:
    """How far a judge agrees with the first one, on the documents that both judged.

    Attributes:
        judge: its name.
        documents, queries: how many both judged.
        same: share of equal grades.
        kappa: Cohen's kappa; None if both always give one grade.
        kappa_interval: its interval over queries; None if there is none.
        weighted_kappa: kappa with weights by the distance of the grades.
        weighted_interval: the interval of the weighted kappa; None if there is none.
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
    """The systems as a judge orders them, and as the first one does, on the queries that both judged.

    Attributes:
        judge, metric: names.
        queries: how many both judged.
        tau: Kendall's τ between the two orders of means; None if all means of one judge are equal.
        significant: pairs of systems that differ significantly for the first judge.
        kept: of these, pairs that the other judge finds significantly different in the same direction.
        lost: of these, pairs in which the other judge shows no difference.
        flipped: of these, pairs that the other judge finds significantly different the other way round.
        gained: pairs in which only the other judge shows a difference.
        reversals: the flipped pairs in sentences.
        means: system → (mean for the first judge, mean for the other).
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
    """The result of `judge_agreement`; `print` it.

    Attributes:
        names: names of the judges; the others are compared with the first.
        agreements: one for each other judge.
        alpha: Krippendorff's alpha of all judges; None if only one grade occurs.
        alpha_interval: its interval over queries; None if there is none.
        documents, queries: how many at least two judges judged.
        orders: one for each other judge and metric; empty without runs.
        weights, level: what a disagreement costs.
        confidence: level of the intervals, and of the tests.
        caveats: sentences about what these numbers do not show.
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
        """Everything as plain values, for JSON."""
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
    """Further keywords of `judge_agreement`: the measures of agreement, and how systems are compared."""

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
    """Measure whether other judges (people, a language model, clicks) can stand for this one.

    Agreement on documents is one thing; that systems come out in the same order is what an evaluation needs. So with
    `runs` the systems are compared under each judge, on the queries that both judged, each by all of its judgments.

    Args:
        reference: the judgments that the others are compared with: qrels, a file, a mapping, a frame, or `RankingData`.
        others: name → judgments, or the judgments of a single judge.
        runs: name → run, two or more, to order under each judge.
        metrics: metrics of the runs.
        trained: name → ranker: which of the runs were made by rankers whose training data carried a column ``judge``. A
            caveat names those that are judged by a judge that they learned from.
        weights: of the weighted kappa: ``quadratic`` or ``linear``, by how many of the grades that occur lie between.
        level: of Krippendorff's alpha: ``ordinal``, ``nominal`` or ``interval``.
        confidence: level of the intervals (a jackknife over queries), and of the tests between systems.
        name: the name of the judge of `reference`. Default: the name of its file, or "reference".
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
    single = not isinstance(others, Mapping) or _is_judgments(others)
    if single:
        others = {_name_of(others) or "judge": others}
    if not others:
        raise DataError("There is no other judge to compare with; give one or more, by name.")
    if name is None:
        name = _name_of(reference) or "reference"
    if name in others:
        raise DataError(f"Two judges are called '{name}'; give them different names.")
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
    """Return the name of the file that judgments are read from, if they are."""
    return judge_of(judgments) if isinstance(judgments, str | os.PathLike) else None


def _is_judgments(mapping: Mapping[str, Any]) -> bool:
    """Whether a mapping is {query: {document: grade}}, and not {judge: judgments}."""
    inner = next(iter(mapping.values()), None)
    return isinstance(inner, Mapping) and not isinstance(next(iter(inner.values()), None), Mapping)


class _JudgmentTable(NamedTuple):
    """All judgments side by side."""

    names: tuple[str, ...]
    codes: IntArray
    """(documents, judges): positions in `grades`, −1 where a judge says nothing."""
    query: IntArray
    n_queries: int
    grades: FloatArray

    @classmethod
    def from_judgments(cls, judgments: Mapping[str, Qrels]) -> _JudgmentTable:
        each = list(judgments.values())
        owner = np.repeat(np.arange(len(each)), [len(judge) for judge in each])
        grades, codes = np.unique(np.concatenate([judge.grades for judge in each]), return_inverse=True)
        if len(grades) > _MOST_GRADES:
            raise DataError(
                f"The judges give {len(grades):,} different grades, but agreement takes {_MOST_GRADES} at most. Round "
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
            f"{table.names[0]} and {table.names[place]} have judged no document in common; check that their query and "
            "document ids belong to the same collection."
        )
    first, other, query = table.codes[both, 0], table.codes[both, place], table.query[both]
    counts = confusions(first, other, query, table.n_queries, len(table.grades))
    used = np.flatnonzero(counts.any(axis=(0, 1)) | counts.any(axis=(0, 2)))  # weights count grades of these two alone
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
    """Return a measure of all queries and its jackknife interval, cut off at 1, which no agreement exceeds."""
    counts = counts[counts.any(axis=(1, 2))]
    total = counts.sum(axis=0)
    value = float(measure(total))
    if not np.isfinite(value):
        return None, None
    rests = measure(total - counts)
    if len(counts) < 2 or not np.isfinite(rests).all():
        return value, None
    interval = jackknife(value, rests, np.full(len(counts), 1 / len(counts)), confidence)
    low, high = float(interval.low), min(float(interval.high), 1.0)
    return value, Interval(value, low, high, confidence, len(counts), "jackknife over queries", "estimate")


def _orders(everyone: Mapping[str, Qrels], runs: Any, metrics: Any, options: CompareOptions) -> Iterable[SystemOrder]:
    """Yield the order of systems for each judge but the first and each metric."""
    (_, reference), *others = everyone.items()
    systems = {name: Run.from_source(run) for name, run in named(runs).items()}
    for judge, judgments in others:
        common = np.intersect1d(reference.qids, judgments.qids)
        if len(common) == 0:
            raise DataError(f"{judge} judged no query of the first judge.")
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
                f"{judge} prefers {new.winner} to {old.winner} in {metric}; the first judge does the opposite."
            )
    return SystemOrder(
        judge, metric, n, tau if np.isfinite(tau) else None, **counts, reversals=tuple(reversals), means=means
    )


def _caveats(names: tuple[str, ...], trained: Mapping[str, Any]) -> Iterable[str]:
    for system, ranker in trained.items():
        for judge in getattr(ranker, "training_", {}).get("judges", ()):
            if judge in names:
                yield (
                    f"{system} was trained on labels of {judge}, so labels of {judge} are no evidence about it. Judge "
                    "it by somebody whose labels it has not seen."
                )


def judge_of(path: str | os.PathLike[str]) -> str:
    """Return the name of the judge whose judgments are in a file.

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
