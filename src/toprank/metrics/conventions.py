"""Conventions: the same ranking gets a different "NDCG@10" from every tool, so the rules have names.

A convention fixes the gain, the discount, what a query without anything relevant is worth, how tied scores are
ordered, and what happens when the cut-off lies beyond the list's end. Rules are data: a new convention is a new value.

Gains G(grade) and discounts F(rank) are the two halves of every DCG-like metric, Σ_{rank j ≤ k} G(y_(j)) / F(j). They
are small frozen values with a name, so that a metric can be printed and read back; a table or any callable will do too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from typing_extensions import override

from toprank.compute import FloatArray
from toprank.errors import DataError, UnknownNameError

_LARGEST = 1e250  # sums of larger gains could overflow
_GAINS: dict[str, Callable[[FloatArray, float], FloatArray]] = {
    "exponential": lambda y, _: np.exp2(y) - 1,
    "linear": lambda y, _: y,
    "clipped": lambda y, _: np.maximum(y, 0),  # trec_eval: a negative grade gains nothing
    "err": lambda y, top: (np.exp2(y) - 1) / np.exp2(top),
    "exponential/31": lambda y, _: (np.exp2(y) - 1) / 31,
}
_GAIN_ALIASES = {"exp": "exponential", "exp2": "exponential", "exp-log2": "exponential", "log2": "linear"}


@dataclass(frozen=True)
class _Values(ABC):
    """Numbers by a name, from a table (`steps`) or by a function."""

    kind: ClassVar[str] = ""
    name: str
    steps: tuple[float, ...] | None = None
    function: Callable[[Any], Any] | None = field(default=None, repr=False)

    @classmethod
    def from_spec(cls, what: Self | str | Sequence[float] | Callable[[Any], Any]) -> Self:
        """From its name, a table (also as text, ``[0,1,3]``), or a callable."""
        if isinstance(what, cls):
            return what
        if isinstance(what, str):
            if not what.strip().startswith("["):
                return cls._named(what.strip())
            try:
                what = [float(step) for step in what.strip().strip("[]").split(",")]
            except ValueError:
                raise DataError(f"'{what}' is not a table of numbers for a {cls.kind}, such as [0,1,3].") from None
        if callable(what):
            return cls(getattr(what, "__name__", "custom"), function=what)
        try:
            steps = tuple(float(step) for step in what)  # type: ignore[union-attr]
        except (TypeError, ValueError):
            raise DataError(f"A {cls.kind} is a name, a table of numbers or a function, not {what!r}.") from None
        if not steps:
            raise DataError("A table of gains or discounts must hold at least one number.")
        return cls("[" + ",".join(_number(step) for step in steps) + "]", steps=steps)

    @classmethod
    @abstractmethod
    def _named(cls, name: str) -> Self:
        """What this name means."""

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Gain(_Values):
    """How much a document of a given grade is worth.

    Names: ``exponential`` 2^y − 1, ``linear`` y, ``clipped`` max(y, 0), ``err`` (2^y − 1)/2^max_grade,
    ``exponential/31`` (2^y − 1)/(2^5 − 1). `Gain.from_spec` also takes a table (the gain of grade 0, 1, 2 …) or a
    callable that maps an array of grades to an array of gains.

    >>> Gain.from_spec("exponential").table(np.array([0.0, 1.0, 2.0]), max_grade=2).tolist()
    [0.0, 1.0, 3.0]
    >>> Gain.from_spec([0, 1, 5]).table(np.array([2.0, 1.0]), max_grade=2).tolist()
    [5.0, 1.0]
    """

    kind: ClassVar[str] = "gain"

    @classmethod
    @override
    def _named(cls, name: str) -> Gain:
        known = _GAIN_ALIASES.get(name.lower(), name.lower())
        if known not in _GAINS:
            raise UnknownNameError("gain", name, [*_GAINS, *_GAIN_ALIASES])
        return cls(known)

    def table(self, grades: FloatArray, max_grade: float) -> FloatArray:
        """The gain of each grade; refused where it is negative or not finite."""
        if self.steps is not None:
            index = grades.astype(np.int64)
            if (index != grades).any() or (index < 0).any() or (index >= len(self.steps)).any():
                raise DataError(
                    f"The gain table {self.name} covers the grades 0 to {len(self.steps) - 1}, but the data hold "
                    f"{_some(grades[(index != grades) | (index < 0) | (index >= len(self.steps))])}."
                )
            gains = np.array(self.steps)[index]
        elif self.function is not None:
            gains = np.asarray(self.function(grades), dtype=np.float64)
            if gains.shape != grades.shape:
                raise DataError(f"The gain '{self.name}' must return one number for each grade it is given.")
        else:
            with np.errstate(over="ignore", invalid="ignore"):
                gains = _GAINS[self.name](grades, max_grade)
        wrong = ~((gains <= _LARGEST) & (gains >= 0))
        if wrong.any():
            raise DataError(
                f"The gain '{self.name}' of grade {_some(grades[wrong])} is {gains[wrong][0]:g}; gains must be finite "
                f"and not negative, and at most {_LARGEST:g}. "
                "Choose another gain (gain=clipped counts negative grades as 0), or mend the labels."
            )
        return np.ascontiguousarray(gains, dtype=np.float64)


_DISCOUNTS: dict[str, Callable[[FloatArray], FloatArray]] = {
    "log2": lambda rank: np.log2(1 + rank),
    "letor": lambda rank: np.where(rank <= 2, 1.0, np.log2(np.maximum(rank, 2))),
    "reciprocal": lambda rank: rank,
    "none": lambda rank: np.ones_like(rank),
}


@dataclass(frozen=True)
class Discount(_Values):
    """How much less a rank counts than the first: F(rank), increasing; the weight of a rank is 1/F.

    Names: ``log2`` log2(1 + j), ``letor`` 1, 1, log2 3, log2 4 …, ``reciprocal`` j, ``zipf(β)`` j^β, ``none`` 1.
    `Discount.from_spec` also takes a table (F(1), F(2) …; later ranks weigh nothing) or a callable on an array of
    ranks.

    >>> Discount.from_spec("reciprocal").weights(3).tolist()
    [1.0, 0.5, 0.3333333333333333]
    >>> Discount.from_spec("zipf(2)").weights(2).tolist()
    [1.0, 0.25]
    """

    kind: ClassVar[str] = "discount"
    beta: float | None = None

    @classmethod
    @override
    def _named(cls, name: str) -> Discount:
        name = name.lower()
        if name.startswith("zipf(") and name.endswith(")"):
            try:
                beta = float(name[5:-1])
            except ValueError:
                beta = float("nan")
            if not 1 < beta < np.inf:
                raise DataError(f"zipf(β) needs a number β > 1, not '{name[5:-1]}'.")
            return cls(f"zipf({_number(beta)})", beta=beta)
        if name not in _DISCOUNTS:
            raise UnknownNameError("discount", name, [*_DISCOUNTS, "zipf(2)"])
        return cls(name)

    def weights(self, n: int) -> FloatArray:
        """1/F(j) for the ranks 1 … n."""
        ranks = np.arange(1, n + 1, dtype=np.float64)
        if self.steps is not None:
            divisors = np.full(n, np.inf)
            divisors[: len(self.steps)] = self.steps[:n]
        elif self.function is not None:
            divisors = np.asarray(self.function(ranks), dtype=np.float64)
            if divisors.shape != ranks.shape:
                raise DataError(f"The discount '{self.name}' must return one number for each rank it is given.")
        elif self.beta is not None:
            divisors = ranks**self.beta
        else:
            divisors = _DISCOUNTS[self.name](ranks)
        if not (divisors > 0).all():
            raise DataError(f"The discount '{self.name}' must be positive at every rank.")
        return 1.0 / divisors


def _number(value: float) -> str:
    """As short as it can be without becoming another number."""
    return f"{value:g}" if float(f"{value:g}") == value else repr(value)


def _some(grades: FloatArray) -> str:
    return ", ".join(f"{grade:g}" for grade in grades[:3]) + (" …" if len(grades) > 3 else "")


NoRelevantRule = Literal["zero", "one", "skip"]
Ties = Literal["expected", "file", "document-id"]


@dataclass(frozen=True)
class Convention:
    """The rules under which rankings are scored.

    Args:
        name: how it is called and printed.
        gain: worth of a grade, unless the metric says otherwise.
        discount: price of a rank, unless the metric says otherwise.
        no_relevant: a query with nothing relevant counts ``zero``, counts ``one`` (in the metrics that are divided by
            what an ideal ranking would get), or is left out of the mean (``skip``).
        ties: ``expected``: the mean over all orders of the tied documents, by closed forms; ``file``: in the order of
            the rows; ``document-id``: by document id, descending.
        short_ndcg: NDCG@k of a list with fewer than k documents: cut at the list's ``end``, or ``zero``.
        short_precision: P@k of such a list: ``pad`` it with irrelevant documents, cut at its ``end``, or ``zero``.
        ap_norm: AP@k is divided by ``all`` relevant documents, by the ``hits`` within k, or by ``min`` (k, relevant).
        float32_scores: scores are rounded to float32 before they are compared.
        unanswered: a judged query that a run does not answer counts ``zero``, or is left out of the mean of that run
            (``skip``, as trec_eval does without its -c).
        unjudged: what a label of NaN or -1 means when the caller does not say (see `evaluate`).
        source: whose rules these are.
    """

    name: str
    gain: Gain
    discount: Discount
    no_relevant: NoRelevantRule = "zero"
    ties: Ties = "expected"
    short_ndcg: Literal["end", "zero"] = "end"
    short_precision: Literal["pad", "end", "zero"] = "pad"
    ap_norm: Literal["all", "hits", "min"] = "all"
    float32_scores: bool = False
    unanswered: Literal["zero", "skip"] = "zero"
    unjudged: Literal["refuse", "irrelevant"] = "refuse"
    source: str = ""

    @classmethod
    def from_name(cls, what: Convention | str) -> Convention:
        """A convention from its name; ``-`` and ``_`` are alike, and so are capitals.

        >>> Convention.from_name("qin2021").name
        'skip-blank'
        """
        if isinstance(what, Convention):
            return what
        if not isinstance(what, str):
            raise DataError(f"A convention is asked for by its name, such as 'standard', not by {what!r}.")
        key = what.strip().lower().replace("_", "-")
        convention = CONVENTIONS.get(_ALIASES.get(key, key).replace("trec-eval", "trec_eval"))
        if convention is None:
            raise UnknownNameError("convention", what, [*CONVENTIONS, *_ALIASES])
        return convention

    def __str__(self) -> str:
        no_relevant = {"zero": "counts 0", "one": "counts 1", "skip": "is left out"}[self.no_relevant]
        orders = {"expected": "expectation over random orders", "file": "in file order"}
        ties = orders.get(self.ties, "by document id, descending")
        rules = f"gain {self.gain}, discount {self.discount}, a query with nothing relevant {no_relevant}, ties {ties}"
        return f"{self.name}: {rules}"


_EXPONENTIAL, _LOG2, _LETOR = Gain.from_spec("exponential"), Discount.from_spec("log2"), Discount.from_spec("letor")
_STANDARD = Convention("standard", _EXPONENTIAL, _LOG2, source="toprank: the order of rows never leaks into a number")
_LETOR3 = Convention(
    "letor3", _EXPONENTIAL, _LETOR, ties="file", short_ndcg="zero", short_precision="zero", source="LETOR 3.0's script"
)
_LIGHTGBM = Convention(
    "lightgbm", _EXPONENTIAL, _LOG2, no_relevant="one", ties="file", ap_norm="min", source="LightGBM's own evaluator"
)
_TREC_EVAL = Convention(
    "trec_eval", Gain.from_spec("clipped"), _LOG2, ties="document-id", float32_scores=True, unanswered="skip",
    unjudged="irrelevant", source="trec_eval",
)  # fmt: skip

CONVENTIONS: dict[str, Convention] = {
    convention.name: convention
    for convention in (
        _STANDARD,
        replace(
            _STANDARD, name="skip-blank", no_relevant="skip", source="Qin et al. 2021 and others who drop blank queries"
        ),
        _LETOR3,
        replace(_LETOR3, name="letor4", short_precision="pad", source="LETOR 4.0's script"),
        replace(
            _LETOR3, name="letor-clipped", short_ndcg="end", short_precision="pad", source="LETOR's, cut at the end"
        ),
        _TREC_EVAL,
        _LIGHTGBM,
        replace(
            _LIGHTGBM, name="xgboost", short_precision="end", float32_scores=True, source="XGBoost's own evaluator"
        ),
        replace(_STANDARD, name="sklearn", gain=Gain.from_spec("linear"), source="scikit-learn's ndcg_score"),
    )
}
_ALIASES = {"qin2021": "skip-blank", "letor": "letor4", "scikit-learn": "sklearn", "default": "standard"}
