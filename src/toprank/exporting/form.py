"""`Form`: a ranker as a plain formula of raw features with their names, which is all that an exported file has to say.

A ranker tells its own formula (`rankers/formula.py`); whoever writes a format looks at the form alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from toprank.data.encoding import Encoding
from toprank.errors import DataError
from toprank.rankers.base import Ranker
from toprank.rankers.estimator import check_is_fitted
from toprank.rankers.formula import (
    MISSING_NAN,
    MISSING_NONE,
    MISSING_ZERO,
    Blend,
    Forest,
    Grades,
    Layer,
    Linear,
    Network,
    Part,
    Tree,
    Wide,
)  # fmt: skip

__all__ = [
    "MISSING_NAN", "MISSING_NONE", "MISSING_ZERO", "Blend", "Forest", "Form", "Grades", "Layer", "Linear", "Network",
    "Part", "Tree", "Wide", "as_forest", "as_linear", "form_of",
]  # fmt: skip


@dataclass(frozen=True, eq=False)
class Form:
    """A ranker as a formula: the names of the features that it takes, in order, and what is made of them."""

    names: tuple[str, ...]
    part: Part
    encoding: Encoding | None = None
    """What the features are, where some are no plain numbers: the target is given codes of categories, and days."""
    named: bool = True
    """Whether the training data named the features; else the names are made."""

    @property
    def n_features(self) -> int:
        """How many features a document has."""
        return len(self.names)

    @property
    def has_network(self) -> bool:
        """Whether a network is a part of it."""
        return _has_network(self.part)

    @property
    def single_sums(self) -> bool:
        """Whether trees are a part of it whose sum is rounded to single precision after each of them."""
        return _single_sums(self.part)

    @property
    def levels(self) -> dict[str, tuple[str, ...]]:
        """The levels of each category by its name; a document has the place of its level among them, from 0 on."""
        if self.encoding is None:
            return {}
        return {self.encoding.names[j]: self.encoding.columns[j].levels for j in self.encoding.categories}


def _has_network(part: Part) -> bool:
    if isinstance(part, Blend):
        return any(_has_network(term) for _, term in part.terms)
    return _has_network(part.part) if isinstance(part, Grades | Wide) else isinstance(part, Network)


def _single_sums(part: Part) -> bool:
    if isinstance(part, Blend):
        return any(_single_sums(term) for _, term in part.terms)
    return _single_sums(part.part) if isinstance(part, Grades | Wide) else isinstance(part, Forest) and part.single_sums


def form_of(ranker: Any) -> Form:
    """The formula of a fitted ranker.

    Raises:
        DataError: the ranker is not fitted, or its scores are no formula of a document's own features.
    """
    if not isinstance(ranker, Ranker):
        raise DataError(
            f"Only rankers of toprank can be exported, not a {type(ranker).__name__}. Of a pipeline export the ranker, "
            "and have the target be given features as the steps before it make them."
        )
    check_is_fitted(ranker)
    names = getattr(ranker, "feature_names_in_", None)
    if names is not None:
        form = Form(tuple(str(name) for name in names), ranker.formula(), ranker.encoding_)
        _check_texts(form)
        return form
    first, d = getattr(ranker, "first_feature_id_", None), ranker.n_features_in_
    made = [f"x{j}" for j in range(d)] if first is None else [f"feature_{first + j}" for j in range(d)]
    return Form(tuple(made), ranker.formula(), named=False)


def _check_texts(form: Form) -> None:
    """Refuse names and levels that no file can hold: half of a character of two, as broken decoding leaves behind."""
    told = [("feature", name, name) for name in form.names]
    told += [("level of the category", name, level) for name, levels in form.levels.items() for level in levels]
    for what, name, text in told:
        if any("\ud800" <= mark <= "\udfff" for mark in text):
            raise DataError(
                f"The {what} {name!a} holds half a character ({text!a}), which no file can say. Rename it before "
                "training: text.encode(errors='replace').decode()."
            )


# ---- for targets that know one kind of model ----


def as_linear(part: Part) -> Linear | None:
    """A linear function with one output, of raw features: weights, an intercept, and what missing values add.

    A blend of linear functions is one; None where the part is no linear function.
    """
    if isinstance(part, Linear) and part.outputs == 1:
        return part.folded()
    if not isinstance(part, Blend):
        return None
    found = [(factor, as_linear(term)) for factor, term in part.terms]
    known = [(factor, linear) for factor, linear in found if linear is not None]
    if len(known) < len(found) or not known:
        return None
    summed = [
        np.sum([factor * getattr(linear, name) for factor, linear in known], axis=0)
        for name in ("weights", "intercepts", "missing")
    ]
    return Linear(known[0][1].centre, known[0][1].scale, *summed)


def as_forest(part: Part) -> Forest | None:
    """Trees with one output, factors of a blend in their leaves; None where the part is more than trees."""
    if isinstance(part, Forest) and part.outputs == 1:
        return part
    if not isinstance(part, Blend):
        return None
    found = [(factor, as_forest(term)) for factor, term in part.terms]
    known = [(factor, forest) for factor, forest in found if forest is not None]
    if len(known) < len(found) or not known:
        return None
    if len({forest.flushes for _, forest in known}) > 1:
        known = [(factor, forest.unflushed()) for factor, forest in known]
    trees = [replace(tree, values=factor * tree.values) for factor, forest in known for tree in forest.trees]
    intercept = np.sum([factor * forest.intercepts for factor, forest in known], axis=0)
    return Forest(tuple(trees), intercept, known[0][1].flushes)
