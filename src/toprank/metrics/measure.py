"""Measures: what is computed from a ranking, as frozen values that can be printed and read back.

`NDCG(10)` is a measure; the convention is chosen when it is evaluated, and a field left at None follows it.
`measure.bind(rules)` computes its tables once and returns a function from ranked queries to one number per query: NaN
if the measure is undefined there or the query is left out of the mean.
"""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from toprank import kernels
from toprank.compute import FloatArray, IntArray
from toprank.data.arguments import PlainArguments, check_number, check_whole
from toprank.errors import DataError, UnknownNameError
from toprank.metrics.conventions import Convention, Discount, Gain, NoRelevantRule

FEW_GRADES = 64
"""Beyond, to go through the documents costs less than to count them by grade."""


@dataclass(frozen=True, eq=False)
class View:
    """Ranked queries, and their judged documents: more than the ranked ones if a run missed some."""

    order: IntArray
    ends: npt.NDArray[np.bool_]
    starts: IntArray
    codes: npt.NDArray[Any]
    sizes: IntArray
    judged_codes: npt.NDArray[Any]
    judged_offsets: IntArray
    n_grades: int

    @property
    def ranked(self) -> tuple[npt.NDArray[Any], ...]:
        """The arguments that all kernels share."""
        return self.order, self.ends, self.starts, self.codes

    @property
    def judged(self) -> tuple[npt.NDArray[Any], IntArray]:
        """The arguments of kernels that look at all judged documents."""
        return self.judged_codes, self.judged_offsets

    def filled(self, kernel: Callable[..., Any], *arguments: Any) -> FloatArray:
        """The number that a kernel writes for each query."""
        out = np.empty(len(self.sizes))
        kernel(*arguments, out)
        return out

    def weighted(self, table: FloatArray, weights: FloatArray, limits: IntArray | None = None) -> FloatArray:
        """Σ over ranks (up to `limits`) of the grade's entry in the table times the rank's weight."""
        return self.filled(kernels.weighted_sum, *self.ranked, table, weights, self.sizes if limits is None else limits)

    @cached_property
    def grade_counts(self) -> IntArray:
        """How many judged documents of each query have each grade: counted once for all measures."""
        counts = np.empty((len(self.sizes), self.n_grades), dtype=np.int64)
        kernels.grade_counts(*self.judged, counts)
        return counts

    def count_relevant(self, relevant: FloatArray) -> FloatArray:
        """How many judged documents have a relevant grade."""
        if self.n_grades > FEW_GRADES:
            return self.filled(kernels.count_relevant_of_many_grades, *self.judged, relevant)
        return self.filled(kernels.count_relevant, self.grade_counts, relevant)


class Rules(NamedTuple):
    """What a measure depends on besides the ranking."""

    convention: Convention
    grades: FloatArray
    """The distinct grades; documents carry indices into it."""
    max_grade: float
    min_relevance: float
    """Grades of at least this much count as relevant, unless the measure says otherwise."""
    longest: int
    """Number of documents of the longest list."""

    def length(self, k: int | None) -> int:
        """How many ranks count under a cut-off."""
        return self.longest if k is None else min(k, self.longest)

    def relevant(self, rel: float | None) -> FloatArray:
        """1 for each grade that is relevant, else 0."""
        return (self.grades >= (self.min_relevance if rel is None else rel)).astype(np.float64)


BoundMeasure = Callable[[View], FloatArray]


@dataclass(frozen=True)
class Measure(metaclass=PlainArguments):
    """Base of all measures; subclasses say how they are bound."""

    name: ClassVar[str] = ""
    higher_is_better: ClassVar[bool] = True
    pairwise_ties: ClassVar[bool] = False
    """Whether the measure itself says what a tie is worth, whatever the convention does with ties."""

    @property
    def depth(self) -> int | None:
        """How far down the ranking is looked at; None: to its end."""
        return getattr(self, "k", None)

    @abstractmethod
    def bind(self, rules: Rules) -> BoundMeasure:
        """The function that turns ranked queries into one number each."""

    def __str__(self) -> str:
        options = []
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "k" or value == field.default:
                continue
            shown = f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else value
            options.append(f"{field.name}={shown}")
        cut = f"@{self.depth}" if self.depth is not None and self.depth != self.default_depth() else ""
        return self.name + cut + (f"({','.join(options)})" if options else "")

    @classmethod
    def default_depth(cls) -> Any:
        """The cut-off if none is named."""
        return next((field.default for field in fields(cls) if field.name == "k"), None)

    def __post_init__(self) -> None:
        if self.depth is not None:
            check_whole(f"The cut-off of {self.name}", self.depth, 1)
        for name in ("rel", "max_grade", "beta"):
            if getattr(self, name, None) is not None:
                check_number(f"{name} of {self.name}", getattr(self, name))
        no_relevant = getattr(self, "no_relevant", None)
        if no_relevant not in (None, "zero", "one", "skip"):
            raise UnknownNameError("rule for queries without anything relevant", no_relevant, ["zero", "one", "skip"])
        for name, kind in (("gain", Gain), ("discount", Discount)):
            value = getattr(self, name, None)
            if value is not None:
                object.__setattr__(self, name, kind.from_spec(value))


def apply_no_relevant(values: FloatArray, no_relevant: Any, rule: NoRelevantRule) -> FloatArray:
    """Apply the rule for queries without anything relevant to a measure divided by what an ideal ranking gets."""
    return np.where(no_relevant, {"zero": 0.0, "one": 1.0, "skip": np.nan}[rule], values)


def divided(values: FloatArray, by: FloatArray) -> FloatArray:
    """Divide number by number; 0 where there is nothing to divide by."""
    return np.divide(values, by, out=np.zeros_like(values), where=by > 0)


def skip_no_relevant(table: FloatArray, values: BoundMeasure, rules: Rules) -> BoundMeasure:
    """Leave blank queries out where the convention says so; a measure that is not divided is 0 there otherwise."""
    if rules.convention.no_relevant != "skip":
        return values
    some = (table > 0).astype(np.float64)
    return lambda view: apply_no_relevant(values(view), view.count_relevant(some) == 0, "skip")


@dataclass(frozen=True)
class Custom(Measure):
    """A measure of your own: a function of the labels in rank order, and optionally a cut-off.

    The function gives a number for each query, or None to leave the query out of the mean; NaN, more often a slip than
    a wish, is refused. It has no closed form for ties: under conventions that take expectations over tied orders it
    is refused where documents of other labels are tied at a rank that it looks at, and only there.

    >>> first_is_relevant = Custom("first", lambda labels: float(labels[0] > 0))
    >>> str(first_is_relevant)
    'first'
    """

    title: str
    function: Callable[[FloatArray], float | None]
    k: int | None = None

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            signature = inspect.signature(self.function)
        except (TypeError, ValueError):  # not callable, or a function of C without a signature: `bind` calls it
            return
        try:
            signature.bind(None)
        except TypeError:
            raise DataError(
                f"The function of the measure '{self.title}' is called with one argument, the labels in rank order, "
                f"but it takes {signature}. Cut-offs are given to the measure: Custom({self.title!r}, function, k=10)."
            ) from None

    @override
    def bind(self, rules: Rules) -> BoundMeasure:
        def values(view: View) -> FloatArray:
            ranked = int(view.starts[-1])  # behind it `order` and `ends` are not filled
            labels = rules.grades[view.codes[view.order[:ranked]]]
            if rules.convention.ties == "expected":
                self._refuse_ties(labels, view.ends[:ranked], view.starts, rules.convention.name)
            bounds = zip(view.starts[:-1].tolist(), view.starts[1:].tolist(), strict=True)
            return np.array([self._value(labels[start:stop][: self.k]) for start, stop in bounds])

        return values

    def _refuse_ties(self, labels: FloatArray, ends: npt.NDArray[np.bool_], starts: IntArray, convention: str) -> None:
        """Refuse tied documents whose order the function would see."""
        groups = np.flatnonzero(np.r_[True, ends[:-1]])
        mixed = np.maximum.reduceat(labels, groups) != np.minimum.reduceat(labels, groups)
        query = np.searchsorted(starts, groups, side="right") - 1
        seen = mixed & (groups - starts[query] < (len(labels) if self.k is None else self.k))
        if seen.any():
            first = groups[seen.argmax()]
            tied = labels[first : first + int(ends[first:].argmax()) + 1]
            n, shown = len(np.unique(query[seen])), np.array2string(tied, threshold=8, edgeitems=4)
            raise DataError(
                f"'{self.title}' is a custom measure without a closed form for ties, and in "
                f"{f'{n:,} queries' if n > 1 else 'a query'} documents of other labels are tied at a rank that it "
                f"looks at (labels {shown} at one score), so it cannot be evaluated under '{convention}'. Choose a "
                "convention that orders ties (for example 'letor-clipped')."
            )

    def _value(self, labels: FloatArray) -> float:
        value = self.function(labels)
        if value is None:
            return np.nan
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = np.nan
        if not np.isfinite(number):
            shown = np.array2string(labels, threshold=8, edgeitems=4)
            raise DataError(
                f"The measure '{self.title}' gives {value!r} for a query with the labels {shown} in rank order; give a "
                "finite number, or None to leave the query out."
            )
        return number

    def __str__(self) -> str:
        return self.title if self.k is None else f"{self.title}@{self.k}"
