"""Evaluations in slices of the queries, each mean with its interval."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from toprank.compute import FloatArray
from toprank.data.checks import check_whole
from toprank.data.slices import Slices
from toprank.showing.tables import Kind, Part, Shown, Table, frame_of
from toprank.significance import Interval, bootstrap_interval, effective_sample, weighted_interval
from toprank.significance.results import bounds

if TYPE_CHECKING:
    from toprank.metrics.result import Evaluation

_ALL = "all"
_FEW = 30  # effective queries below which an interval of a weighted mean is too short more often than it claims
_UNEVEN = 0.9  # above this share of effective queries, weights are about equal, and few queries need no warning


class SlicedEvaluation(Shown, Mapping[str, "Evaluation"]):
    """Slice → its evaluation; `str()` is a table with an interval for every mean. Every query is in one slice.

    Slices with fewer than `least` queries have no interval; `options` are those of `bootstrap_interval`.
    """

    def __init__(self, whole: Evaluation, slices: Slices, least: int, options: Mapping[str, Any]) -> None:
        check_whole("least", least, 2)
        self.whole, self.slices, self.least = whole, slices, int(least)
        self._of = {name: _part(whole, slices.codes == code) for code, name in enumerate(slices.names)}

        def of(part: Evaluation) -> dict[str, Interval | None]:
            return {metric: _interval(part, metric, self.least, options) for metric in whole.names}

        self.confidence = options["confidence"]
        self._whole_intervals = of(whole)
        self.effective = {name: _least_effective(part) for name, part in self._of.items()}
        """Slice → its effective sample (queries of equal weight for as precise a mean), the smallest of the metrics."""
        self.intervals = {name: of(part) for name, part in self._of.items()}
        """Slice → metric → the interval of its mean; None where fewer than `least` queries count."""

    def __getitem__(self, name: str) -> Evaluation:
        return self._of[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._of)

    def __len__(self) -> int:
        return len(self._of)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; `interval` has both ends for each metric, or null."""

        def plain(part: Evaluation, intervals: Mapping[str, Interval | None]) -> dict[str, Any]:
            ends = {metric: None if ends is None else list(ends) for metric, ends in intervals.items()}
            return {**part.to_dict(), "effective": _least_effective(part), "interval": ends}

        return {
            "by": self.slices.by,
            "rule": self.slices.rule,
            "confidence": self.confidence,
            "least": self.least,
            "all": plain(self.whole, self._whole_intervals),
            "slices": {name: plain(part, self.intervals[name]) for name, part in self.items()},
        }

    def to_frame(self, kind: Kind = "pandas") -> Any:
        """One row for each slice: how many queries it has, their means, and the ends of the intervals.

        A frame of pandas or polars, or Arrow's.
        """
        columns: dict[str, list[Any]] = {"slice": list(self), "queries": [len(part.qids) for part in self.values()]}
        if self.whole.query_weights is not None:
            columns["effective"] = list(self.effective.values())
        for metric in self.whole.names:
            intervals = [of[metric] for of in self.intervals.values()]
            columns[metric] = [part.mean[metric] for part in self.values()]
            columns[f"{metric} low"] = [None if interval is None else interval.low for interval in intervals]
            columns[f"{metric} high"] = [None if interval is None else interval.high for interval in intervals]
        return frame_of(columns, kind)

    @property
    def _rows(self) -> list[tuple[str, Evaluation, Mapping[str, Interval | None]]]:
        """Each slice, and all queries at the end: name, evaluation, intervals."""
        rows = [(name, part, self.intervals[name]) for name, part in self.items()]
        return [*rows, (_ALL, self.whole, self._whole_intervals)]

    def _parts(self) -> Sequence[Part]:
        weighted = self.whole.query_weights is not None
        cells = [
            (
                name,
                f"{len(part.qids):,}",
                *([f"{_least_effective(part):.1f}"] if weighted else []),
                *(cell for m in part.names for cell in (_mean(part.mean[m]), _ends(of[m]))),
            )
            for name, part, of in self._rows
        ]
        interval = f"{100 * self.confidence:g} % interval"
        counts = ("queries", "effective") if weighted else ("queries",)
        header = (self.slices.by, *counts, *(name for metric in self.whole.names for name in (metric, interval)))
        return [Table(header, cells, names=1), self._rules, *self.warnings]

    @property
    def _rules(self) -> str:
        short = any(interval is None for _, _, of in self._rows for interval in of.values())
        few = f" Fewer than {self.least} queries that count have no interval." if short else ""
        return f"{self.slices.rule}{few} Convention {self.whole.convention.name}."

    @property
    def summary(self) -> str:
        """How the slices are made, the convention of their means, and doubts about the intervals."""
        return " ".join([self._rules, *self.warnings])

    @property
    def warnings(self) -> tuple[str, ...]:
        """Doubts about the intervals, as sentences: means whose weights leave too few effective queries."""
        few = [
            f"{name} ({_least_effective(part):.1f} of {len(part.qids):,})"
            for name, part, of in self._rows
            if any(of[metric] is not None and _is_carried_by_few(part, metric) for metric in part.names)
        ]
        if not few or self.whole.query_weights is None:
            return ()
        return (
            f"Weighted means of few effective queries: {', '.join(few)}. A few queries carry the weight; below {_FEW} "
            f"effective ones an interval holds the truth less often than {100 * self.confidence:g} %, and far less "
            "often where those queries differ from the rest.",
        )

    def __repr__(self) -> str:
        return f"SlicedEvaluation({self.slices.by}: {', '.join(self)})"


def _mean(value: float) -> str:
    return "–" if np.isnan(value) else f"{value:.4f}"


def _ends(interval: Interval | None) -> str:
    return "–" if interval is None else bounds(*interval)


def _interval(part: Evaluation, metric: str, least: int, options: Mapping[str, Any]) -> Interval | None:
    """The interval of a mean; None where too few queries count, or none of them weighs anything."""
    values: FloatArray = np.asarray(part.per_query[metric])
    if _counted(part, metric) < least:
        return None
    if part.query_weights is None:
        return bootstrap_interval(values, **options)
    return weighted_interval(values, part.query_weights, **options)


def _counted(part: Evaluation, metric: str) -> int:
    """The queries that have a value, and weigh something."""
    counts = ~np.isnan(np.asarray(part.per_query[metric]))
    return int((counts if part.query_weights is None else counts & (part.query_weights > 0)).sum())


def _is_carried_by_few(part: Evaluation, metric: str) -> bool:
    effective = _effective(part, metric)
    return effective < _FEW and effective < _UNEVEN * _counted(part, metric)


def _effective(part: Evaluation, metric: str) -> float:
    """The effective sample of the mean: as many queries of equal weight would give as precise a mean."""
    counts = ~np.isnan(np.asarray(part.per_query[metric]))
    return float(counts.sum()) if part.query_weights is None else effective_sample(part.query_weights[counts])


def _least_effective(part: Evaluation) -> float:
    return min(_effective(part, metric) for metric in part.names)


def _part(whole: Evaluation, chosen: Any) -> Evaluation:
    """The evaluation of some of the queries."""
    weights, about = whole.query_weights, whole.about
    documents = whole.n_documents if about is None else int(about.queries.sizes[chosen].sum())
    return replace(
        whole,
        per_query={name: np.asarray(values)[chosen] for name, values in whole.per_query.items()},
        qids=whole.qids[chosen],
        n_documents=documents,
        query_weights=None if weights is None else weights[chosen],
        about=None,
    )
