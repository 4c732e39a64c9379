"""Evaluation measures as frozen values that can be printed and parsed.

`NDCG(10)` is a measure. The convention is chosen at evaluation time, and fields left at None follow it.
`measure.bind(rules)` computes tables once and returns a function from ranked queries to one number per query, which is
NaN if the measure is undefined or the query is left out of the mean.
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

MAX_COUNTED_GRADES = 64
"""Number of distinct grades up to which counting documents by grade is faster than iterating over them."""


@dataclass(frozen=True, eq=False)
class View:
    """Ranked queries with their judged documents, including those that a run did not retrieve."""

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
        """Arguments that all kernels share."""
        return self.order, self.ends, self.starts, self.codes

    @property
    def judged(self) -> tuple[npt.NDArray[Any], IntArray]:
        """Arguments of kernels that read all judged documents."""
        return self.judged_codes, self.judged_offsets

    def filled(self, kernel: Callable[..., Any], *arguments: Any) -> FloatArray:
        """Run a kernel and return the number that it writes for each query."""
        out = np.empty(len(self.sizes))
        kernel(*arguments, out)
        return out

    def weighted(self, table: FloatArray, weights: FloatArray, limits: IntArray | None = None) -> FloatArray:
        """Return Σ over ranks (up to `limits`) of the table entry of the grade times the weight of the rank."""
        return self.filled(kernels.weighted_sum, *self.ranked, table, weights, self.sizes if limits is None else limits)

    @cached_property
    def grade_counts(self) -> IntArray:
        """Number of judged documents by query and grade, counted once for all measures."""
        counts = np.empty((len(self.sizes), self.n_grades), dtype=np.int64)
        kernels.grade_counts(*self.judged, counts)
        return counts

    def count_relevant(self, relevant: FloatArray) -> FloatArray:
        """Return the number of judged documents with a relevant grade, per query."""
        if self.n_grades > MAX_COUNTED_GRADES:
            return self.filled(kernels.count_relevant_of_many_grades, *self.judged, relevant)
        return self.filled(kernels.count_relevant, self.grade_counts, relevant)


class Rules(NamedTuple):
    """Everything except the ranking that the value of a measure depends on."""

    convention: Convention
    grades: FloatArray
    """Distinct grades; documents hold indices into this array."""
    max_grade: float
    min_relevance: float
    """Lowest relevant grade, for measures that do not set their own."""
    longest: int
    """Number of documents in the longest list."""

    def length(self, k: int | None) -> int:
        """Return the number of ranks within a cut-off."""
        return self.longest if k is None else min(k, self.longest)

    def relevant(self, rel: float | None) -> FloatArray:
        """Return 1 for each relevant grade and 0 for the others."""
        return (self.grades >= (self.min_relevance if rel is None else rel)).astype(np.float64)


BoundMeasure = Callable[[View], FloatArray]


@dataclass(frozen=True)
class Measure(metaclass=PlainArguments):
    """Base class of measures; subclasses implement `bind`."""

    name: ClassVar[str] = ""
    higher_is_better: ClassVar[bool] = True
    pairwise_ties: ClassVar[bool] = False
    """Whether the measure defines the value of a tie itself, independently of the convention."""

    @property
    def depth(self) -> int | None:
        """Number of top ranks that are evaluated; None for the whole list."""
        return getattr(self, "k", None)

    @abstractmethod
    def bind(self, rules: Rules) -> BoundMeasure:
        """Return the function that computes one number for each ranked query."""

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
        """Return the default cut-off."""
        return next((field.default for field in fields(cls) if field.name == "k"), None)

    def __post_init__(self) -> None:
        if self.depth is not None:
            check_whole(f"The cut-off of {self.name}", self.depth, 1)
        for name in ("rel", "max_grade", "beta"):
            if getattr(self, name, None) is not None:
                check_number(f"{name} of {self.name}", getattr(self, name))
        no_relevant = getattr(self, "no_relevant", None)
        if no_relevant not in (None, "zero", "one", "skip"):
            raise UnknownNameError("rule for queries without relevant documents", no_relevant, ["zero", "one", "skip"])
        for name, kind in (("gain", Gain), ("discount", Discount)):
            value = getattr(self, name, None)
            if value is not None:
                object.__setattr__(self, name, kind.from_spec(value))


def apply_no_relevant(values: FloatArray, no_relevant: Any, rule: NoRelevantRule) -> FloatArray:
    """Set the value of queries without relevant documents, for a measure that is normalized by the ideal ranking."""
    return np.where(no_relevant, {"zero": 0.0, "one": 1.0, "skip": np.nan}[rule], values)


def divided(values: FloatArray, by: FloatArray) -> FloatArray:
    """Divide element by element; the result is 0 if the divisor is 0."""
    return np.divide(values, by, out=np.zeros_like(values), where=by > 0)


def skip_no_relevant(table: FloatArray, values: BoundMeasure, rules: Rules) -> BoundMeasure:
    """Leave out queries without relevant documents if the convention skips them; unnormalized measures are 0 there."""
    if rules.convention.no_relevant != "skip":
        return values
    some = (table > 0).astype(np.float64)
    return lambda view: apply_no_relevant(values(view), view.count_relevant(some) == 0, "skip")


@dataclass(frozen=True)
class Custom(Measure):
    """A user-defined measure: a function of the labels in rank order, with an optional cut-off.

    The function returns a number for each query, or None to leave the query out of the mean; NaN raises an error.
    Custom measures have no closed form for ties. Under conventions that take expectations over tied documents, they
    raise an error if documents with different labels are tied within the cut-off.

    Args:
        title: name of the measure.
        function: function of the labels of a query in rank order.
        k: cut-off. Default: the whole list.

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
        except (
            TypeError,
            ValueError,
        ):  # not callable, or a C function without a signature; errors then appear in `bind`
            return
        try:
            signature.bind(None)
        except TypeError:
            raise DataError(
                f"The function of the measure '{self.title}' takes {signature}, but is called with one argument, the "
                f"labels in rank order. Give a cut-off to the measure: Custom({self.title!r}, function, k=10)."
            ) from None

    @override
    def bind(self, rules: Rules) -> BoundMeasure:
        def values(view: View) -> FloatArray:
            ranked = int(view.starts[-1])  # `order` and `ends` are undefined after this position
            labels = rules.grades[view.codes[view.order[:ranked]]]
            if rules.convention.ties == "expected":
                self._refuse_ties(labels, view.ends[:ranked], view.starts, rules.convention.name)
            bounds = zip(view.starts[:-1].tolist(), view.starts[1:].tolist(), strict=True)
            return np.array([self._value(labels[start:stop][: self.k]) for start, stop in bounds])

        return values

    def _refuse_ties(self, labels: FloatArray, ends: npt.NDArray[np.bool_], starts: IntArray, convention: str) -> None:
        """Raise an error if documents with different labels are tied within the cut-off."""
        groups = np.flatnonzero(np.r_[True, ends[:-1]])
        mixed = np.maximum.reduceat(labels, groups) != np.minimum.reduceat(labels, groups)
        query = np.searchsorted(starts, groups, side="right") - 1
        seen = mixed & (groups - starts[query] < (len(labels) if self.k is None else self.k))
        if seen.any():
            first = groups[seen.argmax()]
            tied = labels[first : first + int(ends[first:].argmax()) + 1]
            n, shown = len(np.unique(query[seen])), np.array2string(tied, threshold=8, edgeitems=4)
            raise DataError(
                f"The custom measure '{self.title}' cannot be evaluated under '{convention}', because it has no closed "
                f"form for ties and {f'{n:,} queries have' if n > 1 else 'a query has'} tied documents with different "
                f"labels within the cut-off (labels {shown} at one score). Choose a convention that orders ties, for "
                "example 'letor-clipped'."
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
                f"The measure '{self.title}' returns {value!r} for a query with the labels {shown} in rank order. It "
                "must return a finite number, or None to leave the query out."
            )
        return number

    def __str__(self) -> str:
        return self.title if self.k is None else f"{self.title}@{self.k}"
