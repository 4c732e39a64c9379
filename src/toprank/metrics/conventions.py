"""Evaluation conventions: named sets of rules under which "NDCG@10" has one definite value.

A convention fixes the gain, the discount, the value of queries without relevant documents, the order of tied scores,
and the treatment of lists that are shorter than the cut-off. Conventions are values: a new one is a new instance.

Every DCG-like metric, Σ_{rank j ≤ k} G(y_(j)) / F(j), combines a gain G(grade) with a discount F(rank). Both are frozen
values with a name, so that a metric can be printed and parsed; they can also be given as a table or a callable.
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

_MAX_GAIN = 1e250  # sums of larger gains could overflow
_GAINS: dict[str, Callable[[FloatArray, float], FloatArray]] = {
    "exponential": lambda y, _: np.exp2(y) - 1,
    "linear": lambda y, _: y,
    "clipped": lambda y, _: np.maximum(y, 0),  # trec_eval: negative grades have no gain
    "err": lambda y, top: (np.exp2(y) - 1) / np.exp2(top),
    "exponential/31": lambda y, _: (np.exp2(y) - 1) / 31,
}
_GAIN_ALIASES = {"exp": "exponential", "exp2": "exponential", "exp-log2": "exponential", "log2": "linear"}


@dataclass(frozen=True)
class _Values(ABC):
    """Numbers given by a name, a table (`steps`) or a function."""

    kind: ClassVar[str] = ""
    name: str
    steps: tuple[float, ...] | None = None
    function: Callable[[Any], Any] | None = field(default=None, repr=False)

    @classmethod
    def from_spec(cls, spec: Self | str | Sequence[float] | Callable[[Any], Any]) -> Self:
        """Create the value from a name, a table (also as text, ``[0,1,3]``), or a callable."""
        if isinstance(spec, cls):
            return spec
        if isinstance(spec, str):
            if not spec.strip().startswith("["):
                return cls._from_known_name(spec.strip())
            try:
                spec = [float(step) for step in spec.strip().strip("[]").split(",")]
            except ValueError:
                raise DataError(f"'{spec}' is not a valid {cls.kind} table. Write numbers, such as [0,1,3].") from None
        if callable(spec):
            return cls(getattr(spec, "__name__", "custom"), function=spec)
        try:
            steps = tuple(float(step) for step in spec)  # type: ignore[union-attr]
        except (TypeError, ValueError):
            raise DataError(f"{spec!r} is not a {cls.kind}. Give a name, a table of numbers or a function.") from None
        if not steps:
            raise DataError(f"The {cls.kind} table is empty. Give at least one number.")
        return cls("[" + ",".join(_number(step) for step in steps) + "]", steps=steps)

    @classmethod
    @abstractmethod
    def _from_known_name(cls, name: str) -> Self:
        """Return the value with a known name."""

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Gain(_Values):
    """Gain: the contribution of a document as a function of its relevance grade.

    Names: ``exponential`` 2^y − 1, ``linear`` y, ``clipped`` max(y, 0), ``err`` (2^y − 1)/2^max_grade,
    ``exponential/31`` (2^y − 1)/(2^5 − 1). `Gain.from_spec` also takes a table (the gains of grades 0, 1, 2 …) or
    a callable that maps an array of grades to an array of gains.

    >>> Gain.from_spec("exponential").table(np.array([0.0, 1.0, 2.0]), max_grade=2).tolist()
    [0.0, 1.0, 3.0]
    >>> Gain.from_spec([0, 1, 5]).table(np.array([2.0, 1.0]), max_grade=2).tolist()
    [5.0, 1.0]
    """

    kind: ClassVar[str] = "gain"

    @classmethod
    @override
    def _from_known_name(cls, name: str) -> Gain:
        known = _GAIN_ALIASES.get(name.lower(), name.lower())
        if known not in _GAINS:
            raise UnknownNameError("gain", name, [*_GAINS, *_GAIN_ALIASES])
        return cls(known)

    def table(self, grades: FloatArray, max_grade: float) -> FloatArray:
        """Return the gain of each grade; raise an error for negative or non-finite gains."""
        if self.steps is not None:
            index = grades.astype(np.int64)
            if (index != grades).any() or (index < 0).any() or (index >= len(self.steps)).any():
                raise DataError(
                    f"The gain table {self.name} covers the grades 0 to {len(self.steps) - 1}, but the data "
                    f"contain grade {_some(grades[(index != grades) | (index < 0) | (index >= len(self.steps))])}."
                )
            gains = np.array(self.steps)[index]
        elif self.function is not None:
            gains = np.asarray(self.function(grades), dtype=np.float64)
            if gains.shape != grades.shape:
                raise DataError(f"The gain function '{self.name}' must return one number per grade.")
        else:
            with np.errstate(over="ignore", invalid="ignore"):
                gains = _GAINS[self.name](grades, max_grade)
        wrong = ~((gains <= _MAX_GAIN) & (gains >= 0))
        if wrong.any():
            raise DataError(
                f"The gain '{self.name}' of grade {_some(grades[wrong])} is {gains[wrong][0]:g}. Gains must be between "
                f"0 and {_MAX_GAIN:g}. Choose another gain (gain=clipped treats negative grades as 0) or correct "
                "the labels."
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
    """Rank discount F(rank), an increasing function; the weight of a rank is 1/F.

    Names: ``log2`` log2(1 + j), ``letor`` 1, 1, log2 3, log2 4 …, ``reciprocal`` j, ``zipf(β)`` j^β, ``none`` 1.
    `Discount.from_spec` also takes a table (F(1), F(2) …; later ranks have no weight) or a callable that maps
    an array of ranks to an array of discounts.

    >>> Discount.from_spec("reciprocal").weights(3).tolist()
    [1.0, 0.5, 0.3333333333333333]
    >>> Discount.from_spec("zipf(2)").weights(2).tolist()
    [1.0, 0.25]
    """

    kind: ClassVar[str] = "discount"
    beta: float | None = None

    @classmethod
    @override
    def _from_known_name(cls, name: str) -> Discount:
        name = name.lower()
        if name.startswith("zipf(") and name.endswith(")"):
            try:
                beta = float(name[5:-1])
            except ValueError:
                beta = float("nan")
            if not 1 < beta < np.inf:
                raise DataError(f"The exponent of zipf is '{name[5:-1]}', but must be a number above 1.")
            return cls(f"zipf({_number(beta)})", beta=beta)
        if name not in _DISCOUNTS:
            raise UnknownNameError("discount", name, [*_DISCOUNTS, "zipf(2)"])
        return cls(name)

    def weights(self, n: int) -> FloatArray:
        """Return the weights 1/F(j) of the ranks 1 … n."""
        ranks = np.arange(1, n + 1, dtype=np.float64)
        if self.steps is not None:
            divisors = np.full(n, np.inf)
            divisors[: len(self.steps)] = self.steps[:n]
        elif self.function is not None:
            divisors = np.asarray(self.function(ranks), dtype=np.float64)
            if divisors.shape != ranks.shape:
                raise DataError(f"The discount function '{self.name}' must return one number per rank.")
        elif self.beta is not None:
            divisors = ranks**self.beta
        else:
            divisors = _DISCOUNTS[self.name](ranks)
        if not (divisors > 0).all():
            raise DataError(f"The discount '{self.name}' must be positive at every rank.")
        return 1.0 / divisors


def _number(value: float) -> str:
    """Format a number as briefly as possible without changing its value."""
    return f"{value:g}" if float(f"{value:g}") == value else repr(value)


def _some(grades: FloatArray) -> str:
    return ", ".join(f"{grade:g}" for grade in grades[:3]) + (" …" if len(grades) > 3 else "")


NoRelevantRule = Literal["zero", "one", "skip"]
Ties = Literal["expected", "file", "document-id"]


@dataclass(frozen=True)
class Convention:
    """Evaluation convention: the rules that turn a ranking into metric values.

    Args:
        name: name of the convention, as printed.
        gain: gain of metrics that do not set their own.
        discount: discount of metrics that do not set their own.
        no_relevant: value of a query without relevant documents: ``zero``, ``one`` (for metrics that are normalized by
            the ideal ranking), or ``skip``, which leaves the query out of the mean.
        ties: order of documents with equal scores. ``expected``: the mean over all orders of the tied documents, in
            closed form; ``file``: the order of the rows; ``document-id``: descending document ids.
        short_ndcg: NDCG@k of a list with fewer than k documents: cut off at the ``end`` of the list, or ``zero``.
        short_precision: P@k of such a list: ``pad`` it with irrelevant documents, cut off at its ``end``, or ``zero``.
        ap_norm: divisor of AP@k: the number of ``all`` relevant documents, of the ``hits`` within k, or ``min``
            (k, relevant).
        float32_scores: round scores to float32 before they are compared.
        unanswered: value of a judged query that a run does not answer: ``zero``, or ``skip``, which leaves it out of
            the mean of that run (trec_eval without -c).
        unjudged: default treatment of labels NaN and -1 (see `evaluate`).
        source: tool or paper that defines these rules.
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
    def from_name(cls, name: Convention | str) -> Convention:
        """Return the convention with a name; case and the difference between ``-`` and ``_`` are ignored.

        >>> Convention.from_name("qin2021").name
        'skip-blank'
        """
        if isinstance(name, Convention):
            return name
        if not isinstance(name, str):
            raise DataError(f"{name!r} is not the name of a convention. Give a name such as 'standard'.")
        key = name.strip().lower().replace("_", "-")
        convention = CONVENTIONS.get(_ALIASES.get(key, key).replace("trec-eval", "trec_eval"))
        if convention is None:
            raise UnknownNameError("convention", name, [*CONVENTIONS, *_ALIASES])
        return convention

    def __str__(self) -> str:
        no_relevant = {"zero": "counts 0", "one": "counts 1", "skip": "is left out"}[self.no_relevant]
        orders = {"expected": "expectation over random orders", "file": "in file order"}
        ties = orders.get(self.ties, "by document id, descending")
        rules = f"gain {self.gain}, discount {self.discount}, a query with nothing relevant {no_relevant}, ties {ties}"
        return f"{self.name}: {rules}"


_EXPONENTIAL, _LOG2, _LETOR = Gain.from_spec("exponential"), Discount.from_spec("log2"), Discount.from_spec("letor")
_STANDARD = Convention("standard", _EXPONENTIAL, _LOG2, source="toprank: results do not depend on the order of rows")
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
