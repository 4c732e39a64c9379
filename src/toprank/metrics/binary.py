"""Measures for binary relevance: a document is relevant if its grade reaches a threshold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from typing_extensions import override

from toprank import kernels
from toprank.compute import FloatArray
from toprank.errors import UnknownNameError
from toprank.metrics.conventions import NoRelevantRule
from toprank.metrics.measure import BoundMeasure, Measure, Rules, View, apply_no_relevant, divided, skip_no_relevant


@dataclass(frozen=True)
class AP(Measure):
    """Average precision: the mean precision at the ranks of the relevant documents.

    ``norm`` is the divisor of AP@k: the number of ``all`` relevant documents (trec_eval), of the ``hits`` within the
    cut-off, or ``min`` (k, relevant), as in LightGBM and XGBoost.
    """

    name: ClassVar[str] = "ap"
    k: int | None = None
    norm: Literal["all", "hits", "min"] | None = None
    rel: float | None = None
    no_relevant: NoRelevantRule | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.norm not in (None, "all", "hits", "min"):
            raise UnknownNameError("norm", self.norm, ["all", "hits", "min"])

    @override
    def bind(self, rules: Rules) -> BoundMeasure:
        relevant, norm = rules.relevant(self.rel), self.norm or rules.convention.ap_norm
        limit, rule = rules.length(self.k), self.no_relevant or rules.convention.no_relevant

        def values(view: View) -> FloatArray:
            total = view.count_relevant(relevant)
            out = view.filled(kernels.average_precision, *view.ranked, relevant, limit, norm == "hits")
            if norm != "hits":
                out = divided(out, total if norm == "all" or self.k is None else np.minimum(total, self.k))
            return apply_no_relevant(out, total == 0, rule)

        return values


@dataclass(frozen=True)
class _FirstHit(Measure):
    """Base of measures that depend only on the rank of the first relevant document."""

    k: int | None = None
    rel: float | None = None
    column: ClassVar[int] = 0

    @override
    def bind(self, rules: Rules) -> BoundMeasure:
        relevant, limit = rules.relevant(self.rel), rules.length(self.k)

        def values(view: View) -> FloatArray:
            both = np.empty((2, len(view.sizes)))
            kernels.first_hit(*view.ranked, relevant, limit, *both)
            return np.asarray(both[self.column])

        return skip_no_relevant(relevant, values, rules)


@dataclass(frozen=True)
class RR(_FirstHit):
    """Reciprocal rank of the first relevant document; 0 if the first k documents contain none."""

    name: ClassVar[str] = "rr"


@dataclass(frozen=True)
class Success(_FirstHit):
    """1 if any of the first k documents is relevant, otherwise 0."""

    name: ClassVar[str] = "success"
    column: ClassVar[int] = 1


@dataclass(frozen=True)
class Precision(Measure):
    """Share of relevant documents among the first k; shorter lists are padded with irrelevant documents."""

    name: ClassVar[str] = "p"
    k: int | None = None
    rel: float | None = None

    @override
    def bind(self, rules: Rules) -> BoundMeasure:
        relevant, ones = rules.relevant(self.rel), np.ones(rules.length(self.k))
        rule = rules.convention.short_precision

        def values(view: View) -> FloatArray:
            depth = np.minimum(view.sizes, len(ones)) if self.k is None or rule == "end" else self.k
            out = view.weighted(relevant, ones) / depth
            if self.k is not None and rule == "zero":
                out[view.sizes < self.k] = 0.0
            return out

        return skip_no_relevant(relevant, values, rules)


def _share_of_relevant(rules: Rules, rel: float | None, k: int | None, at_r: bool) -> BoundMeasure:
    relevant, ones = rules.relevant(rel), np.ones(rules.length(k))

    def values(view: View) -> FloatArray:
        total = view.count_relevant(relevant)
        share = divided(view.weighted(relevant, ones, total.astype(np.int64) if at_r else None), total)
        return apply_no_relevant(share, total == 0, rules.convention.no_relevant)

    return values


@dataclass(frozen=True)
class Recall(Measure):
    """Share of the relevant documents that are ranked among the first k."""

    name: ClassVar[str] = "recall"
    k: int | None = None
    rel: float | None = None

    @override
    def bind(self, rules: Rules) -> BoundMeasure:
        return _share_of_relevant(rules, self.rel, self.k, at_r=False)


@dataclass(frozen=True)
class RPrecision(Measure):
    """R-precision: precision at rank R, where R is the number of relevant documents."""

    name: ClassVar[str] = "rprec"
    rel: float | None = None

    @override
    def bind(self, rules: Rules) -> BoundMeasure:
        return _share_of_relevant(rules, self.rel, None, at_r=True)
