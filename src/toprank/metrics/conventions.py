"""Conventions: the same ranking gets a different "NDCG@10" from every tool, so the rules have names.

A convention fixes the gain, the discount, what a query without anything relevant is worth, how tied scores are
ordered, and what happens when the cut-off lies beyond the list's end. Rules are data: a new convention is a new value.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from toprank.errors import DataError, UnknownNameError
from toprank.metrics.gains import Discount, Gain

__all__ = ["CONVENTIONS", "Convention"]

Blank = Literal["zero", "one", "skip"]
Ties = Literal["expected", "file", "document-id"]


@dataclass(frozen=True)
class Convention:
    """The rules under which rankings are scored.

    Args:
        name: how it is called and printed.
        gain: worth of a grade, unless the metric says otherwise.
        discount: price of a rank, unless the metric says otherwise.
        blank: a query with nothing relevant counts ``zero``, counts ``one`` (in the metrics that are divided by what
            an ideal ranking would get), or is left out of the mean (``skip``).
        ties: ``expected``: the mean over all orders of the tied documents, by closed forms; ``file``: in the order of
            the rows; ``document-id``: by document id, descending.
        short_ndcg: NDCG@k of a list with fewer than k documents: cut at the list's ``end``, or ``zero``.
        short_precision: P@k of such a list: ``pad`` it with irrelevant documents, cut at its ``end``, or ``zero``.
        ap_norm: AP@k is divided by ``all`` relevant documents, by the ``hits`` within k, or by ``min`` (k, relevant).
        single: scores are rounded to float32 before they are compared.
        missing: a judged query that a run does not answer counts ``zero``, or is left out of the mean of that run
            (``skip``, as trec_eval does without its -c).
        unjudged: what a label of NaN or -1 means when the caller does not say (see `evaluate`).
        source: whose rules these are.
    """

    name: str
    gain: Gain
    discount: Discount
    blank: Blank = "zero"
    ties: Ties = "expected"
    short_ndcg: Literal["end", "zero"] = "end"
    short_precision: Literal["pad", "end", "zero"] = "pad"
    ap_norm: Literal["all", "hits", "min"] = "all"
    single: bool = False
    missing: Literal["zero", "skip"] = "zero"
    unjudged: Literal["refuse", "irrelevant"] = "refuse"
    source: str = ""

    @classmethod
    def of(cls, what: Convention | str) -> Convention:
        """A convention from its name; ``-`` and ``_`` are alike, and so are capitals.

        >>> Convention.of("qin2021").name
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
        blank = {"zero": "counts 0", "one": "counts 1", "skip": "is left out"}[self.blank]
        orders = {"expected": "expectation over random orders", "file": "in file order"}
        ties = orders.get(self.ties, "by document id, descending")
        rules = f"gain {self.gain}, discount {self.discount}, a query with nothing relevant {blank}, ties {ties}"
        return f"{self.name}: {rules}"


_EXPONENTIAL, _LOG2, _LETOR = Gain.of("exponential"), Discount.of("log2"), Discount.of("letor")
_STANDARD = Convention("standard", _EXPONENTIAL, _LOG2, source="toprank: the order of rows never leaks into a number")
_LETOR3 = Convention(
    "letor3", _EXPONENTIAL, _LETOR, ties="file", short_ndcg="zero", short_precision="zero", source="LETOR 3.0's script"
)
_LIGHTGBM = Convention(
    "lightgbm", _EXPONENTIAL, _LOG2, blank="one", ties="file", ap_norm="min", source="LightGBM's own evaluator"
)
_TREC_EVAL = Convention(
    "trec_eval", Gain.of("clipped"), _LOG2, ties="document-id", single=True, missing="skip", unjudged="irrelevant",
    source="trec_eval",
)  # fmt: skip

CONVENTIONS: dict[str, Convention] = {
    convention.name: convention
    for convention in (
        _STANDARD,
        replace(_STANDARD, name="skip-blank", blank="skip", source="Qin et al. 2021 and others who drop blank queries"),
        _LETOR3,
        replace(_LETOR3, name="letor4", short_precision="pad", source="LETOR 4.0's script"),
        replace(
            _LETOR3, name="letor-clipped", short_ndcg="end", short_precision="pad", source="LETOR's, cut at the end"
        ),
        _TREC_EVAL,
        _LIGHTGBM,
        replace(_LIGHTGBM, name="xgboost", short_precision="end", single=True, source="XGBoost's own evaluator"),
        replace(_STANDARD, name="sklearn", gain=Gain.of("linear"), source="scikit-learn's ndcg_score"),
    )
}
_ALIASES = {"qin2021": "skip-blank", "letor": "letor4", "scikit-learn": "sklearn", "default": "standard"}
